"""MetaWeighting in a loop: when it looks, what it keeps, overflow, ranks, and a problem whose truth is known."""

import math
import weakref
from collections.abc import Mapping
from itertools import pairwise

import pytest
import torch
from torch import nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.task_gradients import leaves_of
from crosstask.weighting.evidence import Need
from crosstask.weighting.metaweighting import MetaWeighting, SupportGradients
from crosstask.weighting.static import Uniform
from weighting_problem import NAMES, Ranks, TinyProblem


def trained(steps=5, problem=None, **options):
    problem, weighting = problem or TinyProblem(), MetaWeighting(tasks=NAMES, **options)
    for _ in range(steps):
        problem.step(weighting)
    return problem, weighting


def test_what_it_asks_of_the_loop():
    weighting = MetaWeighting(query=0.2)
    assert weighting.needs_held_out
    assert weighting.held_out.kind == "query"
    assert weighting.held_out.query == 0.2
    assert Need.EVERY_TASK in weighting.needs(0)
    assert not weighting.wants_held_out  # nothing waits before the first step
    assert weighting.weights == {}
    weighting.bind(["a", "b"], "a", sizes={"a": 5, "b": 7})
    assert weighting.weights == {"a": 1.0, "b": 1.0}


def test_weights_are_never_negative():
    """Even with steps far too long; those that reached zero can come back."""
    problem, weighting = TinyProblem(), MetaWeighting(step_size=3000.0, tasks=NAMES)
    seen = []
    for _ in range(12):
        problem.step(weighting)
        seen.append(list(weighting.weights.values()))
    low = [min(weights) for weights in seen]
    assert min(low) == 0.0
    assert any(before[i] == 0.0 < after[i] for before, after in pairwise(seen) for i in range(3))


def test_keep_sum_stays_on_the_simplex_times_the_number_of_tasks():
    problem, weighting = TinyProblem(), MetaWeighting(step_size=20.0, keep_sum=True, tasks=NAMES)
    for _ in range(6):
        problem.step(weighting)
        assert sum(weighting.weights.values()) == pytest.approx(3.0)
        assert min(weighting.weights.values()) >= 0.0
    assert weighting.weights != dict.fromkeys(NAMES, 1.0)


def test_the_rate_is_the_length_of_the_step_and_no_more():
    """Half the rate with twice the step size is the same; with `normalise` the rate plays no part."""

    def weights(claimed, **options):
        problem, weighting = TinyProblem(), MetaWeighting(tasks=NAMES, **options)
        problem.backward(weighting)
        with torch.no_grad():
            for parameter in problem.parameters():
                parameter -= 0.05 * parameter.grad
        weighting.learning_rate = claimed
        weighting.after_step(problem.losses(part=1)[0])
        return weighting.weights

    assert weights(0.05, step_size=1.0) == pytest.approx(weights(0.025, step_size=2.0), abs=1e-12)
    assert weights(0.05, step_size=1.0) != pytest.approx(weights(0.05, step_size=2.0), abs=1e-5)
    assert weights(1e-9, normalise=True) == pytest.approx(weights(10.0, normalise=True), abs=1e-12)
    moved = torch.tensor(list(weights(1.0, normalise=True).values())) - 1.0
    assert 1e-5 < moved.norm() <= 0.1 + 1e-9


def test_losses_of_any_size_make_the_same_normalised_step():
    def weights(factor):
        problem, weighting = TinyProblem(), MetaWeighting(normalise=True, tasks=NAMES)
        weighting.backward({task: factor * loss for task, loss in problem.losses()[0].items()}, shared=problem.shared)
        weighting.after_step({task: factor * loss for task, loss in problem.losses(part=1)[0].items()})
        return weighting.weights

    assert weights(1e-6) == pytest.approx(weights(1.0), abs=1e-9)


@pytest.mark.parametrize("every", [1, 3])
def test_it_looks_on_every_so_manyth_step(every):
    problem, weighting = TinyProblem(), MetaWeighting(every=every, tasks=NAMES)
    for step in range(1, 8):
        before = weighting.weights
        assert weighting.inspects_gradients == (step % every == 0)
        problem.backward(weighting)
        assert weighting.wants_held_out == (step % every == 0)
        weighting.after_step(problem.losses(part=1)[0])  # a loop may call it after every update
        assert not weighting.wants_held_out
        assert (weighting.weights != before) == (step % every == 0)


def test_steps_without_a_look_have_the_same_gradient():
    looking, plain = TinyProblem(), TinyProblem()
    weights = {"a": 0.5, "b": 0.0, "c": 2.0}
    for problem, every in ((looking, 1), (plain, 1000)):
        weighting = MetaWeighting(every=every, tasks=NAMES)
        weighting.load_state_dict({"weights": weights, "steps": 3})
        problem.backward(weighting)
    for one, two in zip(looking.gradients(), plain.gradients(), strict=True):
        assert torch.allclose(one, two, atol=1e-12)
    losses, _ = plain.losses()
    expected = torch.autograd.grad(sum(weights[name] / 3 * losses[name] for name in NAMES), plain.shared)
    assert all(torch.allclose(one, two.grad) for one, two in zip(expected, plain.shared, strict=True))


def test_steps_of_one_update_add_up():
    """Two calls of `backward` with half the scale each are one with all examples."""
    whole, halves = TinyProblem(), TinyProblem()
    one, other = (MetaWeighting(step_size=5.0, tasks=NAMES) for _ in range(2))
    for _ in range(3):
        whole.step(one)
        other.learning_rate = 0.05
        for parameter in halves.parameters():
            parameter.grad = None
        for rows in (slice(0, 3), slice(3, 6)):
            halves.rows = rows
            losses = {task: 2.0 * loss for task, loss in halves.losses()[0].items()}  # means of three out of six
            other.backward(losses, shared=halves.shared, scale=0.5)
        halves.rows = slice(None)
        with torch.no_grad():
            for parameter in halves.parameters():
                parameter -= 0.05 * parameter.grad
        other.after_step(halves.losses(part=1)[0])
    assert other.weights == pytest.approx(one.weights, abs=1e-12)


def test_what_waits_is_dropped_when_the_next_update_begins():
    """A loop that skipped `after_step`, for a query loss that was not finite: nothing stale is mixed in."""
    problem, fresh = TinyProblem(), TinyProblem()
    weighting, other = (MetaWeighting(step_size=5.0, tasks=NAMES) for _ in range(2))
    problem.backward(weighting)
    problem.step(weighting)
    fresh.step(other)
    assert weighting.weights == other.weights
    problem.backward(weighting)
    weighting.after_step({})
    assert not weighting.wants_held_out
    assert weighting.weights == other.weights


def test_gradients_in_place_are_left_alone_by_after_step():
    problem, weighting = TinyProblem(), MetaWeighting(tasks=NAMES)
    problem.backward(weighting)
    before = problem.gradients()
    weighting.after_step(problem.losses(part=1)[0])
    assert all(torch.equal(one, two) for one, two in zip(before, problem.gradients(), strict=True))


def test_support_gradients_do_not_change_with_what_happens_to_grad():
    """With one task of weight 1 the gradient could become `.grad` itself, which loops clip, zero and scale in place."""
    results = []
    for spoil in (False, True):
        problem, weighting = TinyProblem(), MetaWeighting(step_size=5.0, tasks=["a"])
        problem.backward(weighting, ("a",))
        if spoil:
            for parameter in problem.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
        weighting.after_step(problem.losses(("a",), part=1)[0])
        results.append(weighting.weights["a"])
    assert results[0] == results[1] != 1.0


class Lazy(Mapping):
    """Losses that are made when asked for."""

    def __init__(self, problem):
        self.problem, self.asked = problem, []

    def __iter__(self):
        return iter(NAMES)

    def __len__(self):
        return len(NAMES)

    def __getitem__(self, task):
        self.asked.append(task)
        return self.problem.losses((task,), part=1)[0][task]


def test_query_losses_are_looked_up_once_and_one_by_one():
    problem, weighting = TinyProblem(), MetaWeighting(step_size=5.0, tasks=NAMES)
    _, eager = trained(1, step_size=5.0)
    weighting.learning_rate = 0.05
    problem.backward(weighting)
    with torch.no_grad():
        for parameter in problem.parameters():
            parameter -= 0.05 * parameter.grad
    lazy = Lazy(problem)
    weighting.after_step(lazy)
    assert lazy.asked == list(NAMES)
    assert weighting.weights == eager.weights


def test_overflow_leaves_the_weights():
    """In a support gradient it spoils every row, in a query loss only that one's."""
    problem, weighting = trained(2, step_size=5.0)
    before = weighting.weights
    problem.backward(weighting, scale=math.inf)
    weighting.after_step(problem.losses(part=1)[0])
    assert weighting.weights == before

    problem.backward(weighting)
    held_out = problem.losses(part=1)[0]
    held_out["b"] = held_out["b"] * math.inf
    weighting.after_step(held_out)
    assert weighting.facts()["shares"]["b"] == 0.0
    assert weighting.weights != before
    assert all(math.isfinite(weight) for weight in weighting.weights.values())


def test_a_query_loss_that_nothing_can_lower_does_not_stop_the_others():
    problem, weighting = TinyProblem(), MetaWeighting(tasks=NAMES)
    problem.backward(weighting)
    held_out = problem.losses(part=1)[0]
    held_out["c"] = torch.tensor(3.0, dtype=torch.float64)
    weighting.after_step(held_out)
    assert weighting.weights != dict.fromkeys(NAMES, 1.0)
    assert weighting.facts()["shares"]["c"] == 0.0


def test_a_task_that_shares_nothing_is_judged_by_its_head():
    lone = nn.Linear(1, 1).double()
    shared = nn.Linear(1, 1).double()
    inputs = torch.ones(1, 1, dtype=torch.float64)
    losses = {"with": lambda: shared(inputs).pow(2).sum(), "without": lambda: lone(inputs).pow(2).sum()}
    weighting = MetaWeighting(step_size=1.0, normalise=True, tasks=list(losses))
    weighting.backward({task: loss() for task, loss in losses.items()}, shared=shared.parameters())
    assert lone.weight.grad is not None
    weighting.after_step({task: loss() for task, loss in losses.items()})
    assert all(weight > 1.0 for weight in weighting.weights.values())  # both lower their own loss and no other's


def test_facts_for_the_record():
    problem, weighting = TinyProblem(), MetaWeighting(tasks=NAMES)
    weighting.learning_rate = 0.05
    problem.backward(weighting)
    held_out = problem.losses(part=1)[0]
    weighting.after_step(held_out)
    facts = weighting.facts()
    assert facts["weights"] == weighting.weights
    assert facts["query_losses"] == pytest.approx({task: loss.item() for task, loss in held_out.items()})
    assert sum(facts["shares"].values()) == pytest.approx(1.0)
    assert 0.0 <= facts["conflict"] <= 1.0
    assert weighting.facts() == {}


def test_tied_weights_checkpointing_and_low_rank_parts():
    """A frozen layer with a low-rank part beside it, under gradient checkpointing, and a head tied to the encoder."""
    torch.manual_seed(0)
    frozen = nn.Linear(4, 4, bias=False).double().requires_grad_(False)
    down, up = nn.Linear(4, 2, bias=False).double(), nn.Linear(2, 4, bias=False).double()
    head = nn.Linear(4, 1).double()
    inputs = torch.randn(2, 6, 4, dtype=torch.float64)
    shared = [*frozen.parameters(), *down.parameters(), *up.parameters()]

    def loss(task, part, checkpointed):
        def body(x):
            return (frozen(x) + up(down(x))).tanh()

        run = torch.utils.checkpoint.checkpoint
        hidden = run(body, inputs[part], use_reentrant=False) if checkpointed else body(inputs[part])
        return (hidden @ up.weight).pow(2).mean() if task == "tied" else (head(hidden) - 1.0).pow(2).mean()

    found = []
    for checkpointed in (False, True):
        weighting = MetaWeighting(step_size=5.0, tasks=["tied", "head"])
        for parameter in (*shared, *head.parameters()):
            parameter.grad = None
        weighting.backward({task: loss(task, 0, checkpointed) for task in ("tied", "head")}, shared=shared)
        weighting.after_step({task: loss(task, 1, checkpointed) for task in ("tied", "head")})
        found.append(weighting.weights)
        assert frozen.weight.grad is None
        assert len(leaves_of(loss("tied", 0, checkpointed))) == 2
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    assert found[0]["tied"] != 1.0


def test_a_rank_without_examples_of_a_task_does_not_hold_up_the_others():
    ranks = Ranks(2)
    problems = [TinyProblem(rows=slice(0, 6)), TinyProblem(rows=slice(6, 6))]
    weightings = [MetaWeighting(step_size=5.0, tasks=NAMES) for _ in problems]

    def losses(rank, part):
        found, _ = problems[rank].losses(part=part)
        if rank == 1:  # as the loop has it: nothing but a zero that depends on one parameter
            found = {task: problems[1].shared[0].sum() * 0.0 for task in found}
        return found

    def work(rank):
        mine = weightings[rank]
        mine.reduce, mine.num_ranks = lambda values: ranks.sum(rank, values), 2
        mine.backward(losses(rank, 0), shared=problems[rank].shared)
        mine.after_step(losses(rank, 1))

    ranks.run(work)
    alone, expected = TinyProblem(), MetaWeighting(step_size=5.0, heads=False, tasks=NAMES)
    alone.backward(expected)
    expected.after_step(alone.losses(part=1)[0])
    assert weightings[0].weights == weightings[1].weights
    assert weightings[0].weights == pytest.approx(expected.weights, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": 0.0}, "`query` must be a number above 0"),
        ({"query": 1.0}, "`query` must be a share below 1"),
        ({"query": "test"}, "or 'dev' for the dev sets; found 'test'"),
        ({"step_size": -0.1}, "`step_size` must be a number >= 0"),
        ({"every": 0}, "`every` must be a whole number"),
        ({"solver": "frankwolfe"}, "Did you mean 'frank-wolfe'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(CrossTaskError, match=message):
        MetaWeighting(**options)


def test_bad_calls():
    problem, weighting = TinyProblem(), MetaWeighting(tasks=NAMES)
    with pytest.raises(CrossTaskError, match="`shared` is empty or frozen"):
        weighting.backward(problem.losses()[0])
    problem.backward(weighting)
    with pytest.raises(CrossTaskError, match="Unknown task 'aa'"):
        weighting.after_step({"aa": problem.losses()[0]["a"]})
    hidden = problem.first(problem.inputs["a"][0]).tanh()
    shared_graph = {task: problem.heads[task](hidden).pow(2).mean() for task in NAMES}
    with pytest.raises(CrossTaskError, match="losses share a graph"):
        weighting.backward(shared_graph, shared=problem.shared)


class CorruptedTask:
    """Three tasks on three common directions; half of the training labels of "c" are wrong, its query's are right."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        directions = torch.randn(10, 3, generator=generator)
        self.data = {}
        for task in NAMES:
            rule = torch.randn(3, generator=generator)
            self.data[task] = []
            for size in (40, 40, 1000):  # support, query, test
                inputs = torch.randn(size, 10, generator=generator)
                self.data[task].append((inputs, (inputs @ directions @ rule > 0).float()))
        self.data["c"][0][1][:20] = 1.0 - self.data["c"][0][1][:20]
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(10, 16), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(16, 1) for task in NAMES})

    def losses(self, part):
        return {
            task: nn.functional.binary_cross_entropy_with_logits(
                self.heads[task](self.encoder(self.data[task][part][0]))[:, 0], self.data[task][part][1]
            )
            for task in NAMES
        }

    def train(self, weighting):
        """An ordinary loop with Adam."""
        optimizer = torch.optim.Adam([*self.encoder.parameters(), *self.heads.parameters()], lr=0.01)
        for _ in range(150):
            weighting.backward(self.losses(0), shared=self.encoder.parameters())
            optimizer.step()
            optimizer.zero_grad()
            if weighting.wants_held_out:
                weighting.after_step(self.losses(1))
        with torch.no_grad():
            return {task: loss.item() for task, loss in self.losses(2).items()}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_task_with_corrupted_labels_comes_to_count_the_least(seed):
    weighting = MetaWeighting(normalise=True, tasks=NAMES)
    found = CorruptedTask(seed).train(weighting)
    uniform = CorruptedTask(seed).train(Uniform(tasks=NAMES))
    assert weighting.weights["c"] < 0.5
    assert weighting.weights["c"] < min(weighting.weights["a"], weighting.weights["b"])
    assert found["c"] < 0.8 * uniform["c"]  # it no longer learns its wrong labels by heart
    assert sum(found.values()) < sum(uniform.values())


class Loose(Mapping):
    """Losses of single examples, not yet averaged, each computed when asked for."""

    def __init__(self, losses):
        self.losses = losses

    def __getitem__(self, task):
        return self.losses[task].expand(2)

    def __iter__(self):
        return iter(self.losses)

    def __len__(self):
        return len(self.losses)


def test_a_loss_that_is_computed_when_asked_is_checked_too():
    parameter = nn.Parameter(torch.ones(2))
    weighting = MetaWeighting(tasks=["a", "b"])
    losses = {"a": parameter.sum(), "b": (parameter**2).sum()}
    weighting.backward(losses, shared=[parameter])
    with pytest.raises(CrossTaskError, match="must be a scalar"):
        weighting.after_step(Loose({"a": parameter.sum(), "b": (parameter**2).sum()}))


def test_short_numbers_are_multiplied_in_full():
    torch.manual_seed(0)
    support = SupportGradients([nn.Parameter(torch.zeros(3000, dtype=torch.bfloat16))], scale=1.0)
    gradients = torch.randn(3, 3000).bfloat16()
    for task, gradient in zip(NAMES, gradients[:2], strict=False):
        support.add(task, [gradient], {}, 1.0)
    (found,) = support.products([grads.TaskGradient([gradients[2]], [])])
    torch.testing.assert_close(found, gradients[:2].double() @ gradients[2].double(), rtol=1e-5, atol=1e-4)


def test_query_gradients_are_in_memory_one_at_a_time(monkeypatch):
    """And support gradients as the backward passes returned them, until the query losses are known."""
    taken, are_queries = [], []

    def take_gradient(*arguments, **options):
        if are_queries:
            assert all(reference() is None for reference in taken)
        gradient = original(*arguments, **options)
        taken.append(weakref.ref(gradient.shared[0]))
        return gradient

    original = grads.take_gradient
    monkeypatch.setattr(grads, "take_gradient", take_gradient)
    parameter = nn.Parameter(torch.ones(2))
    weighting = MetaWeighting(tasks=["a", "b", "c"])
    weighting.backward(dict(zip("abc", cubes(parameter), strict=True)), shared=[parameter])
    assert [reference().data_ptr() for reference in taken] == [
        gradients[0].data_ptr() for gradients in weighting._support.shared.values()
    ]
    taken.clear()
    are_queries.append(True)
    weighting.after_step(dict(zip("abc", cubes(parameter), strict=True)))
    assert len(taken) == 3


def cubes(parameter):
    return [(factor * parameter**3).sum() for factor in (1.0, 2.0, 3.0)]
