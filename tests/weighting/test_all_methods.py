"""What every weighting must do, whatever its method. A new method needs a line in CASES and one in PINNED."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.papers import PAPERS
from crosstask.weighting import WEIGHTINGS, BySize, Fixed, Uniform, Weighting
from crosstask.weighting.bandit import BanditMTL
from crosstask.weighting.db_mtl import DBMTL
from crosstask.weighting.dwa import DWA
from crosstask.weighting.evidence import Need
from crosstask.weighting.getmtl import GetMTL
from crosstask.weighting.go4align import GO4Align
from crosstask.weighting.gradnorm import GradNorm
from crosstask.weighting.metaweighting import MetaWeighting
from crosstask.weighting.mgda import MGDA
from crosstask.weighting.mgda_ub import MGDAUB
from crosstask.weighting.random_weights import RandomWeights
from crosstask.weighting.scale_invariant import ScaleInvariant
from crosstask.weighting.svd import SVDWeighting
from crosstask.weighting.tawt import TAWT
from crosstask.weighting.tawt_held_out import HeldOutTAWT
from crosstask.weighting.tawt_samples import SampleTAWT
from crosstask.weighting.tchebycheff import Tchebycheff
from crosstask.weighting.torchjd import TorchJD
from crosstask.weighting.uncertainty import Uncertainty
from weighting_problem import NAMES, SIZES, Ranks, TinyProblem


@dataclass
class Case:
    """How to make a method, and what is particular about it.

    - `options`: its options for these names of tasks;
    - `order_counts`: whether the order in which tasks are named plays a part;
    - `constant`: whether it has no formula of its own, so that its docstring may be short.
    """

    method: type[Weighting]
    options: Callable[[Sequence[str]], dict[str, Any]] = lambda names: {}
    order_counts: bool = False
    constant: bool = False

    def make(self, names: Sequence[str] = NAMES, sizes: Sequence[int] = SIZES) -> Weighting:
        weighting = self.method(**self.options(sorted(names)))
        weighting.bind(names, sorted(names)[0], sizes=dict(zip(names, sizes, strict=True)))
        show_features(weighting)
        return weighting


def show_features(weighting: Weighting) -> None:
    """Features, where a method needs some; labels without a direction leave its weights as they are."""
    if Need.FEATURES in weighting.needs(0):
        nothing = dict.fromkeys(weighting.tasks, torch.zeros(1, 1))
        weighting.fit_features(nothing, nothing)


CASES = {
    "uniform": Case(Uniform, constant=True),
    "by-size": Case(BySize, constant=True),
    "fixed": Case(Fixed, lambda names: {"weights": {names[0]: 2.0, names[1]: 0.5, names[2]: 1.0}}, constant=True),
    "uncertainty": Case(Uncertainty, lambda names: {"regression": [names[1]]}),
    "gradnorm": Case(GradNorm, lambda names: {"last_shared": 2}),
    "metaweighting": Case(MetaWeighting, lambda names: {"step_size": 10.0}),
    "mgda": Case(MGDA),
    "mgda-ub": Case(MGDAUB),
    "tawt": Case(TAWT, lambda names: {"every": 1}),
    "tawt-held-out": Case(HeldOutTAWT, lambda names: {"every": 1}),
    "bandit": Case(BanditMTL, lambda names: {"rho": 0.3}),
    "tchebycheff": Case(Tchebycheff, lambda names: {"smooth": 0.5, "preferences": {names[2]: 0.5}}),
    "getmtl": Case(GetMTL, lambda names: {"eps": 0.1}),
    "dwa": Case(DWA, lambda names: {"window": 1}),
    "db-mtl": Case(DBMTL),
    "go4align": Case(GO4Align, lambda names: {"step_size": 0.1}),
    "scale-invariant": Case(ScaleInvariant),
    "random": Case(RandomWeights, order_counts=True),
    "svd": Case(SVDWeighting),
    "tawt-samples": Case(SampleTAWT),
    "torchjd": Case(TorchJD, lambda names: {"method": "UPGrad"}, constant=True),
}

PINNED = {
    "uniform": (0.333333, 0.333333, 0.333333),
    "by-size": (0.1, 0.3, 0.6),
    "fixed": (2.0, 0.5, 1.0),
    "uncertainty": (0.970546, 0.485279, 0.970815),
    "gradnorm": (1.12375, 0.953311, 0.922939),
    "metaweighting": (0.972945, 0.999296, 1.001027),
    "mgda": (0.751627, 0.21299, 0.035383),
    "mgda-ub": (0.743311, 0.219262, 0.037427),
    "tawt": (0.748192, 0.048347, 0.203461),
    "tawt-held-out": (0.042758, 0.198871, 0.758371),
    "bandit": (0.099274, 0.198576, 0.702149),
    "tchebycheff": (0.004025, 0.31225, 0.341863),
    "getmtl": (0.50681, 0.337291, 0.337291),
    "dwa": (1.03469, 0.998691, 0.966619),
    "db-mtl": (0.709825, 0.316758, 0.151142),
    "go4align": (6.751992, 0.584189, 0.584189),
    "scale-invariant": (0.223443, 0.087382, 0.035475),
    "random": (0.348444, 0.538161, 0.113395),
    "svd": (0.333333, 0.333333, 0.333333),
    "tawt-samples": (0.333333, 0.333333, 0.333333),
    "torchjd": (0.662646, 0.426747, 0.350769),
}
"""Weights after three steps on the tiny problem, to six digits."""

every_method = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run(case, steps, problem=None, weighting=None):
    problem, weighting = problem or TinyProblem(), weighting or case.make()
    for _ in range(steps):
        problem.step(weighting)
    return problem, weighting


def same(first, second):
    return all(
        (one is None and two is None) or torch.allclose(one, two, atol=1e-7, rtol=1e-6)
        for one, two in zip(first, second, strict=True)
    )


def test_every_exported_method_has_a_case():
    assert set(WEIGHTINGS) <= set(CASES)
    assert all(case.method.name == name for name, case in CASES.items())


@every_method
def test_pinned_number(case):
    """A silent change of any result shows here."""
    _, weighting = run(case, 3)
    assert [weighting.weights[name] for name in NAMES] == pytest.approx(list(PINNED[case.method.name]), abs=1e-6)


@every_method
def test_it_says_what_it_is_and_where_it_comes_from(case):
    method = case.method
    assert method.summary
    assert len(method.summary) <= 100
    assert method.paper is None if method.name == "fixed" else method.paper in PAPERS
    text = inspect.cleandoc(method.__doc__)
    assert ">>>" in text
    assert case.constant or all(word in text for word in ("Differs from the paper", "Needs", "osts", "In the code"))
    for name in inspect.signature(method).parameters:
        assert case.constant or name in ("tasks", "target") or f"        {name}: " in method.__doc__, name


@every_method
def test_gradients_land_in_shared_parameters_and_heads(case):
    problem = TinyProblem()
    problem.backward(case.make())
    for parameter in problem.shared:
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0
    assert all(torch.isfinite(gradient).all() for gradient in problem.gradients() if gradient is not None)
    weighting = case.make()
    assert set(weighting.weights) == set(NAMES)
    assert any(head.weight.grad is not None and head.weight.grad.abs().max() > 0 for head in problem.heads.values())


@every_method
def test_renaming_tasks_renames_weights_and_nothing_else(case):
    problem, weighting = run(case, 4)
    names = ("x", "y", "z")
    renamed, other = run(case, 4, TinyProblem(names), case.make(names))
    assert list(other.weights) == list(names)
    assert list(weighting.weights.values()) == list(other.weights.values())
    assert all(torch.equal(one, two) for one, two in zip(problem.values(), renamed.values(), strict=True))


@every_method
def test_the_order_of_tasks_does_not_matter(case):
    problem, weighting = run(case, 4)
    if case.order_counts:  # then at least that of the losses does not
        shuffled, other = TinyProblem(), case.make()
        for _ in range(4):
            shuffled.step(other, ("c", "a", "b"))
    else:
        names = ("c", "a", "b")
        shuffled, other = run(case, 4, TinyProblem(names, order=(2, 0, 1)), case.make(names, (600, 100, 300)))
    assert {name: other.weights[name] for name in NAMES} == pytest.approx(weighting.weights, abs=1e-6)
    assert same(shuffled.values(), problem.values())


@every_method
def test_state_there_and_back_in_the_middle_of_training(case):
    """A run that stopped after three steps goes on as if nothing had happened, to the last bit."""
    problem, weighting = run(case, 3)
    state = weighting.state_dict()
    plain = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
    tensors = {key: value.clone() for key, value in state.items() if isinstance(value, torch.Tensor)}
    resumed = case.make()
    resumed.load_state_dict({**json.loads(json.dumps(plain)), **tensors})
    assert resumed.weights == weighting.weights

    other = TinyProblem()
    for parameter, value in zip(other.parameters(), problem.values(), strict=True):
        parameter.data = value
    run(case, 3, problem, weighting)
    run(case, 3, other, resumed)
    assert resumed.weights == weighting.weights
    assert all(torch.equal(one, two) for one, two in zip(problem.values(), other.values(), strict=True))
    assert resumed.steps == weighting.steps == 6


@every_method
def test_saving_the_state_does_not_tie_it_to_the_weighting(case):
    problem, weighting = run(case, 2)
    state, before = weighting.state_dict(), weighting.weights
    run(case, 2, problem, weighting)
    restored = case.make()
    restored.load_state_dict(state)
    assert restored.weights == before


@every_method
def test_scale_scales_gradients_and_nothing_else(case):
    plain, scaled = TinyProblem(), TinyProblem()
    one, other = case.make(), case.make()
    for _ in range(3):
        plain.step(one)
        scaled.step(other, scale=1024.0)
    plain.backward(one)
    scaled.backward(other, scale=1024.0)
    assert other.weights == pytest.approx(one.weights, abs=1e-6)
    seen = [weighting.facts().get("gradient_norms", {}) for weighting in (one, other)]
    assert seen[0] == pytest.approx(seen[1], rel=1e-5)
    for first, second in zip(plain.gradients(), scaled.gradients(), strict=True):
        assert (first is None) == (second is None)
        assert first is None or torch.allclose(1024.0 * first, second, rtol=1e-5, atol=1e-6)


@every_method
def test_gradients_add_to_those_that_are_there(case):
    problem, weighting = TinyProblem(), case.make()
    problem.backward(weighting)
    alone = problem.gradients()
    other, weighting = TinyProblem(), case.make()
    for parameter in other.parameters():
        parameter.grad = torch.ones_like(parameter)
    losses, representations = other.losses()
    weighting.backward(losses, shared=other.shared, representations=representations)
    expected = [1.0 + (0.0 if gradient is None else gradient) for gradient in alone]
    for found, wanted in zip(other.gradients(), expected, strict=True):
        assert torch.allclose(found, torch.as_tensor(wanted, dtype=torch.float64).expand_as(found), atol=1e-9)


@every_method
def test_unknown_tasks_and_empty_losses_are_refused(case):
    problem = TinyProblem()
    losses, _ = problem.losses()
    with pytest.raises(CrossTaskError, match="Unknown task 'aa'"):
        case.make().backward({"aa": losses["a"]}, shared=problem.shared)
    with pytest.raises(CrossTaskError, match="`losses` is empty"):
        case.make().backward({}, shared=problem.shared)
    with pytest.raises(CrossTaskError, match="must be a scalar"):
        case.make().backward({"a": torch.ones(2)}, shared=problem.shared)


@every_method
def test_it_must_be_told_its_tasks(case):
    weighting = case.method(**case.options(NAMES))
    losses, _ = TinyProblem().losses()
    with pytest.raises(CrossTaskError, match="does not know its tasks"):
        weighting.backward(losses)


@every_method
def test_frozen_shared_parameters_are_left_alone(case):
    problem, weighting = TinyProblem(), case.make()
    problem.first.requires_grad_(False)
    before = [parameter.clone() for parameter in problem.first.parameters()]
    run(case, 3, problem, weighting)
    problem.backward(weighting)
    assert all(parameter.grad is None for parameter in problem.first.parameters())
    assert all(torch.equal(one, two) for one, two in zip(before, problem.first.parameters(), strict=True))
    assert all(torch.isfinite(parameter.grad).all() for parameter in problem.second.parameters())
    assert all(weight == weight for weight in weighting.weights.values())


@every_method
def test_a_task_may_reach_only_part_of_the_shared_parameters(case):
    problem, weighting = run(case, 3, TinyProblem(partial="b"))
    problem.backward(weighting)
    assert all(torch.isfinite(parameter.grad).all() for parameter in problem.shared)
    assert all(weight == weight for weight in weighting.weights.values())


@every_method
def test_a_task_may_be_absent_now_and_then(case):
    """Such as one whose loss was not finite: the step goes on without it, and it takes part again later."""
    problem, weighting = run(case, 1)
    problem.step(weighting, ("a", "c"))
    assert problem.heads["b"].weight.grad is None
    problem.step(weighting, ("b",))
    problem.step(weighting)
    assert set(weighting.weights) == set(NAMES)
    assert all(torch.isfinite(value).all() for value in problem.values())


@every_method
def test_one_task_alone(case):
    weighting = case.method(**case.options(NAMES))
    weighting.bind(["a"], "a", sizes={"a": 10})
    show_features(weighting)
    problem = TinyProblem()
    for _ in range(3):
        problem.step(weighting, ("a",))
    assert list(weighting.weights) == ["a"]
    assert weighting.weights["a"] > 0


@pytest.mark.parametrize("with_slices", [False, True], ids=["whole", "slices"])
@every_method
def test_two_ranks_reach_what_one_reaches(case, with_slices):
    """Each rank has some of the examples; what they leave in `.grad` adds up to the gradient of one rank with all."""
    alone, weighting = TinyProblem(), case.make()
    ranks = Ranks(2)
    problems = [TinyProblem(rows=rows) for rows in (slice(0, 4), slice(4, 6))]
    weightings = [case.make() for _ in problems]

    def work(rank):
        problem, mine = problems[rank], weightings[rank]
        mine.reduce, mine.num_ranks = lambda values: ranks.sum(rank, values), 2
        if with_slices:  # of gradients that are added up, of which each rank gets a half
            mine.connect(mine.reduce, 2, lambda values: ranks.sum(rank, values).chunk(2)[rank], rank)
        mine.learning_rate = 0.05
        for _ in range(3):
            problem.backward(mine)
            for parameter in problem.parameters():
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.data -= 0.05 * ranks.sum(rank, gradient)
            if mine.wants_held_out:
                held_out, _ = problem.losses(part=1)
                mine.after_step(held_out, shared=problem.shared)

    ranks.run(work)
    run(case, 3, alone, weighting)
    assert weightings[0].weights == weightings[1].weights
    assert weightings[0].weights == pytest.approx(weighting.weights, abs=1e-5)
    assert same(problems[0].values(), alone.values())
    assert same(problems[0].values(), problems[1].values())
