"""Weights by the target's loss on held-out examples: its derivative through a real step, and the weights' own."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from crosstask.weighting.metaweighting import SupportGradients
from crosstask.weighting.tawt_held_out import HeldOutTAWT, agreement_after_step

RATE = 0.3
NAMES = ("own", "second", "a", "b")


class Problem:
    """Examples that train and examples that are held out, in float64; a shared encoder, a head per task."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 4)).double()
        self.heads = nn.ModuleDict({task: nn.Linear(4, 3) for task in NAMES}).double()
        self.inputs = {task: torch.randn(2, 8, 5, dtype=torch.float64) for task in NAMES}
        self.labels = {task: torch.randint(0, 3, (2, 8)) for task in NAMES}

    @property
    def shared(self):
        return list(self.encoder.parameters())

    def loss(self, task, part, shared=None, rows=slice(None)):
        """Part 0 trains, part 1 is held out."""
        shared = dict(self.encoder.named_parameters()) if shared is None else shared
        hidden = functional_call(self.encoder, shared, (self.inputs[task][part][rows],)).tanh()
        return nn.functional.cross_entropy(self.heads[task](hidden), self.labels[task][part][rows])

    def losses(self, tasks, rows=slice(None)):
        return {task: self.loss(task, 0, rows=rows) for task in tasks}

    def held_out_after(self, factors, targets, shared):
        """The mean held-out loss of the targets after a step on the shared parameters from there, heads as they are."""
        moved = dict(shared)
        for task, factor in factors.items():
            start = {name: value.clone().requires_grad_() for name, value in shared.items()}
            gradient = torch.autograd.grad(self.loss(task, 0, start), list(start.values()))
            for name, part in zip(start, gradient, strict=True):
                moved[name] = moved[name] - RATE * factor * part
        return torch.stack([self.loss(target, 1, moved) for target in targets]).mean()

    def descend(self, rate=RATE):
        with torch.no_grad():
            for parameter in self.shared:
                parameter -= rate * parameter.grad
                parameter.grad = None


def finite_differences(factors, targets):
    """The derivative of the held-out loss by what each task counts in the step."""
    problem, slopes = Problem(), {}
    shared = {name: value.detach() for name, value in problem.encoder.named_parameters()}
    for task in factors:
        ends = []
        for shift in (1e-5, -1e-5):
            changed = {**factors, task: factors[task] + shift}
            ends.append(problem.held_out_after(changed, targets, shared).item())
        slopes[task] = (ends[0] - ends[1]) / 2e-5
    return slopes


def inspect(weighting, targets, *, weights=None, probabilities=None, scale=1.0, parts=1):
    """One update and the held-out losses after it, with these weights; in `parts` steps."""
    problem = Problem()
    if weights is not None:
        logs = {task: float(np.log(weight)) for task, weight in weights.items()}
        weighting.load_state_dict({**weighting.state_dict(), "log_weights": logs})
    size = 8 // parts
    for part in range(parts):
        losses = problem.losses(weighting.tasks, slice(part * size, (part + 1) * size))
        weighting.backward(losses, shared=problem.shared, probabilities=probabilities, scale=scale / parts)
    assert weighting.wants_held_out
    problem.descend(RATE / scale)
    weighting.after_step({target: problem.loss(target, 1) for target in targets})
    assert not weighting.wants_held_out
    return weighting.facts()["weight_gradient"], problem


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("targets", [("own",), ("own", "second")])
def test_the_derivative_by_finite_differences_through_a_real_step(targets, outside):
    tasks = ("a", "b") if outside else (*targets, "a", "b")
    weights = dict(zip(tasks, np.random.default_rng(0).dirichlet(np.ones(len(tasks))), strict=True))
    weighting = HeldOutTAWT(similarity="dot", every=1, tasks=tasks, target=targets)
    found, _ = inspect(weighting, targets, weights=weights)
    expected = finite_differences(weights, targets)
    assert set(found) == set(tasks)
    for task in tasks:
        assert abs(expected[task]) > 1e-5
        assert RATE * found[task] == pytest.approx(expected[task], rel=1e-5)


def test_the_derivative_with_probabilities_a_scale_and_several_steps():
    """A task that is drawn with probability q counts weight / q in the step, and so does its weight."""
    drawn = {"own": 1.0, "a": 0.5, "b": 0.25}
    weighting = HeldOutTAWT(similarity="dot", every=1, tasks=tuple(drawn), target="own")
    found, _ = inspect(weighting, ("own",), probabilities=drawn, scale=512.0, parts=2)
    expected = finite_differences({task: 1.0 / 3.0 / q for task, q in drawn.items()}, ("own",))
    for task, q in drawn.items():
        assert RATE * found[task] == pytest.approx(expected[task] / q, rel=1e-5)


def test_the_cosine_is_that_of_whole_vectors_before_and_after_the_step():
    before = Problem()
    vectors = {}
    for task in ("own", "a", "b"):
        gradient = torch.autograd.grad(before.loss(task, 0), before.shared)
        vectors[task] = torch.cat([part.reshape(-1) for part in gradient])
    weighting = HeldOutTAWT(sharpness=2.0, every=1, tasks=("own", "a", "b"), target="own")
    found, after = inspect(weighting, ("own",), probabilities={"own": 1.0, "a": 0.5, "b": 0.25})
    judge = torch.cat([part.reshape(-1) for part in torch.autograd.grad(after.loss("own", 1), after.shared)])
    for task, vector in vectors.items():
        assert found[task] == pytest.approx(-2.0 * float(nn.functional.cosine_similarity(judge, vector, dim=0)))
    assert found["own"] > -1.9  # the target's own batch is judged like any other


def test_eq_2_8_with_these_derivatives():
    weights = {"own": 0.2, "a": 0.5, "b": 0.3}
    weighting = HeldOutTAWT(step_size=0.7, every=1, tasks=tuple(weights), target="own")
    found, _ = inspect(weighting, ("own",), weights=weights)
    moved = np.array(list(weights.values())) * np.exp(-0.7 * np.array(list(found.values())))
    assert list(weighting.weights.values()) == pytest.approx(list(moved / moved.sum()))


def test_products_of_kept_gradients():
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    support = SupportGradients(parameters, scale=2.0)
    support.add("a", [torch.tensor([2.0, 0.0]), None], {}, 0.5)
    support.add("b", [torch.tensor([0.0, 4.0]), torch.tensor([6.0])], {}, 1.0)
    targets = [[torch.tensor([1.0, 3.0]), None], [torch.tensor([3.0, 1.0]), torch.tensor([4.0])]]  # mean 2, 2, 2
    alignment = agreement_after_step(support, targets)
    assert alignment.products.tolist() == [1.0, 10.0]
    assert alignment.squares.tolist() == [0.25, 13.0]
    assert alignment.target_square == 12.0
