"""Mao et al. (2022): the hypergradient against autograd through the real step, both algorithms, and the theorem."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from crosstask.gradients.simplex import frank_wolfe, min_norm_gap, min_norm_point
from crosstask.weighting.metaweighting import MetaWeighting, common_direction, hypergradients, step_weights

TASKS = ("a", "b", "c", "d")
RATE = 0.3


class Network(nn.Module):
    """A shared encoder with a normalisation, a head per task, and an offset that the first two tasks have in common."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 4))
        self.heads = nn.ModuleDict({task: nn.Linear(4, 3) for task in TASKS})
        self.offset = nn.Parameter(torch.randn(3))

    def forward(self, task, inputs):
        logits = self.heads[task](self.encoder(inputs).tanh())
        return logits + self.offset if task in "ab" else logits


class Problem:
    """Support and query examples of four tasks, in float64."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.network = Network().double()
        self.inputs = {task: torch.randn(2, 8, 5, dtype=torch.float64) for task in TASKS}
        self.labels = {task: torch.randint(0, 3, (2, 8)) for task in TASKS}

    @property
    def shared(self):
        return list(self.network.encoder.parameters())

    def loss(self, task, part, parameters=None):
        """Part 0 is support, part 1 is query."""
        parameters = dict(self.network.named_parameters()) if parameters is None else parameters
        logits = functional_call(self.network, parameters, (task, self.inputs[task][part]))
        return nn.functional.cross_entropy(logits, self.labels[task][part])

    def losses(self, part):
        return {task: self.loss(task, part) for task in TASKS}

    def parameters_after(self, weights, rate=RATE):
        """Eq. 9 as a function of the weights that autograd can see through."""
        names, values = zip(*self.network.named_parameters(), strict=True)
        moved = dict(zip(names, values, strict=True))
        for place, task in enumerate(TASKS):
            parts = torch.autograd.grad(self.loss(task, 0), values, allow_unused=True)
            for name, part in zip(names, parts, strict=True):
                if part is not None:
                    moved[name] = moved[name] - rate / len(TASKS) * weights[place] * part
        return moved

    def query_losses_after(self, weights):
        moved = self.parameters_after(weights)
        return torch.stack([self.loss(task, 1, moved).detach() for task in TASKS])

    def true_hypergradients(self, weights, heads=True):
        """Each query loss differentiated by the weights; without heads, what those did to heads is cut off."""
        weights = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
        moved = self.parameters_after(weights)
        if not heads:
            moved = {name: p if name.startswith("encoder") else p.detach() for name, p in moved.items()}
        return torch.stack(
            [torch.autograd.grad(self.loss(task, 1, moved), weights, retain_graph=True)[0] for task in TASKS]
        )

    def descend(self, rate=RATE):
        with torch.no_grad():
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter -= rate * parameter.grad
                    parameter.grad = None


def look(problem, weighting, weights):
    """One step of the class from these weights; what it handed to `_learn_from_products`."""
    weighting.load_state_dict({"weights": dict(zip(TASKS, weights, strict=True)), "steps": 0})
    weighting.learning_rate = RATE
    seen = []
    learn = weighting._learn_from_products
    weighting._learn_from_products = lambda products, losses: seen.append(products) or learn(products, losses)
    weighting.backward(problem.losses(0), shared=problem.shared)
    problem.descend()
    weighting.after_step(problem.losses(1))
    return seen[0]


@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (0.3, 2.0, 0.0, 1.1)])
def test_eq_10_is_autograd_through_the_real_step(weights, heads):
    problem, weighting = Problem(), MetaWeighting(heads=heads, tasks=TASKS)
    expected = problem.true_hypergradients(weights, heads)
    found = hypergradients(look(problem, weighting, weights), RATE)
    assert expected.abs().min() > 1e-6
    assert (found - expected).abs().max() < 1e-12
    assert torch.allclose(found, expected, rtol=1e-6, atol=0.0)


def test_eq_10_on_heads_touches_the_diagonal_and_what_two_tasks_share_unannounced():
    with_heads = look(Problem(), MetaWeighting(tasks=TASKS), (1.0,) * 4)
    without = look(Problem(), MetaWeighting(heads=False, tasks=TASKS), (1.0,) * 4)
    differs = (with_heads - without).abs() > 1e-9
    expected = torch.eye(4, dtype=torch.bool)
    expected[0, 1] = expected[1, 0] = True  # the offset that "a" and "b" both add
    assert differs.tolist() == expected.tolist()


def test_eq_10_by_finite_differences_of_the_whole_step():
    problem, weights, delta = Problem(3), torch.tensor([0.5, 1.5, 1.0, 0.2], dtype=torch.float64), 1e-5
    found = hypergradients(look(Problem(3), MetaWeighting(tasks=TASKS), weights.tolist()), RATE)
    for i in range(4):
        shift = delta * torch.eye(4, dtype=torch.float64)[i]
        ends = [problem.query_losses_after(moved) for moved in (weights + shift, weights - shift)]
        assert torch.allclose(found[:, i], (ends[0] - ends[1]) / (2 * delta), rtol=1e-6, atol=1e-9)


def test_eq_10_with_accumulated_steps_and_probabilities():
    """Two half steps, scaled as a GradScaler would, and tasks that count one over their probability."""
    drawn = dict(zip(TASKS, (1.0, 0.5, 0.25, 0.8), strict=True))
    whole, halves = Problem(), Problem()
    weights = [1.0 / drawn[task] for task in TASKS]  # the same step, put into the weights
    expected = whole.true_hypergradients(weights) * torch.tensor(weights, dtype=torch.float64)  # dw / dq
    weighting = MetaWeighting(tasks=TASKS)
    weighting.learning_rate = RATE
    seen = []
    weighting._learn_from_products = lambda products, losses: seen.append(products)
    for half in (slice(0, 4), slice(4, 8)):
        losses = {}
        for task in TASKS:
            logits = halves.network(task, halves.inputs[task][0][half])
            losses[task] = nn.functional.cross_entropy(logits, halves.labels[task][0][half])
        weighting.backward(losses, shared=halves.shared, probabilities=drawn, scale=1024.0 / 2)
    halves.descend(RATE / 1024.0)
    weighting.after_step(halves.losses(1))
    assert torch.allclose(hypergradients(seen[0], RATE), expected, rtol=1e-6, atol=1e-12)


def test_eq_9_is_the_step_of_the_model():
    problem, weighting = Problem(), MetaWeighting(tasks=TASKS)
    weights = (0.3, 2.0, 0.0, 1.1)
    expected = problem.parameters_after(torch.tensor(weights, dtype=torch.float64))
    look(problem, weighting, weights)
    for name, parameter in problem.network.named_parameters():
        assert torch.allclose(parameter, expected[name], atol=1e-12)


@pytest.mark.parametrize("solver", ["exact", "frank-wolfe"])
def test_algorithm_1(solver):
    """Three iterations of the listing, written out with autograd and dense matrices."""
    problem, weighting = Problem(), MetaWeighting(step_size=0.5, solver=solver, tasks=TASKS)
    weighting.learning_rate = RATE
    expected = torch.ones(4, dtype=torch.float64)
    for _ in range(3):
        slopes = problem.true_hypergradients(expected.tolist())
        shares = (min_norm_point if solver == "exact" else frank_wolfe)(slopes @ slopes.T)
        expected = expected - 0.5 * (shares @ slopes)
        weighting.backward(problem.losses(0), shared=problem.shared)
        problem.descend()
        weighting.after_step(problem.losses(1))
        assert list(weighting.weights.values()) == pytest.approx(expected.tolist(), abs=1e-9)
    assert expected.min() > 0  # no projection so far
    assert (expected - 1).abs().max() > 1e-3


def test_eq_11_and_12_by_hand():
    """Rows of length 3 and 4 at a right angle: shares 16/25 and 9/25."""
    direction, shares = common_direction(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    assert shares.tolist() == pytest.approx([0.64, 0.36])
    assert direction.tolist() == pytest.approx([1.92, 1.44])


def test_the_mean_of_all_slopes():
    """Not in the paper: equal shares, but for rows that say nothing."""
    slopes = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    direction, shares = common_direction(slopes, "mean")
    assert shares.tolist() == [0.5, 0.5, 0.0]
    assert direction.tolist() == [1.5, 2.0]


def test_algorithm_2_written_out():
    """Frank-Wolfe with exact line search, step by step, against a search along the line."""
    torch.manual_seed(0)
    slopes = torch.randn(5, 5, dtype=torch.float64)
    gram = slopes @ slopes.T
    shares = torch.full((5,), 0.2, dtype=torch.float64)
    for steps in range(6):
        assert torch.allclose(frank_wolfe(gram, steps=steps), shares, atol=1e-4)
        vertex = torch.eye(5, dtype=torch.float64)[(gram @ shares).argmin()]
        lengths = torch.linspace(0, 1, 100_001, dtype=torch.float64)
        points = shares + lengths[:, None] * (vertex - shares)
        shares = points[((points @ gram) * points).sum(1).argmin()]


def test_algorithm_2_comes_to_the_exact_point():
    """Frank-Wolfe leaves a gap, which shrinks with its steps; its mixture is never shorter than the exact one."""
    torch.manual_seed(0)
    for _ in range(8):
        slopes = torch.randn(6, 6, dtype=torch.float64) + torch.randn(6, dtype=torch.float64)
        gram = slopes @ slopes.T
        exact, close, coarse = min_norm_point(gram), frank_wolfe(gram, steps=2000), frank_wolfe(gram, steps=20)
        assert min_norm_gap(gram, exact) < 1e-9
        assert min_norm_gap(gram, close) < 2e-3
        assert min_norm_gap(gram, close) <= min_norm_gap(gram, coarse) + 1e-12
        assert -1e-12 <= close @ gram @ close - exact @ gram @ exact < 2e-3 * gram.diagonal().max()
        assert torch.allclose(common_direction(slopes)[0], exact @ slopes, atol=1e-9)


def test_eq_13_and_the_projection():
    weights = torch.tensor([1.0, 0.2, 0.0], dtype=torch.float64)
    direction = torch.tensor([-1.0, 3.0, -0.5], dtype=torch.float64)
    assert step_weights(weights, direction, 0.1).tolist() == pytest.approx([1.1, 0.0, 0.05])
    kept = step_weights(weights, direction, 0.1, keep_sum=True)
    assert kept.sum().item() == pytest.approx(3.0)
    assert kept.min() >= 0


def test_theorem_1_a_step_against_the_direction_lowers_every_query_loss():
    """The derivative of each loss along the direction is at least its squared length, and so it is measured."""
    lowered = 0
    for seed in range(5):
        problem = Problem(seed)
        slopes = problem.true_hypergradients((1.0,) * 4)
        direction, _ = common_direction(slopes)
        assert (slopes @ direction >= direction @ direction - 1e-12).all()
        if direction.norm() > 1e-4:
            lowered += 1
            ones = torch.ones(4, dtype=torch.float64)
            before = problem.query_losses_after(ones)
            after = problem.query_losses_after(ones - 1e-3 * direction)
            assert (after < before).all()
    assert lowered >= 3
