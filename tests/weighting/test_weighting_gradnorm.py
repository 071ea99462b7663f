"""Properties and mistakes of GradNorm."""

from types import SimpleNamespace

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.gradnorm import GradNorm
from weighting_problem import TinyProblem


def show(weighting, **values):
    parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    weighting.backward({task: value * parameter.sum() for task, value in values.items()}, shared=[parameter])
    return parameter.grad.item()


def test_weights_add_up_to_the_number_of_tasks_also_when_some_are_absent():
    problem, weighting = TinyProblem(), GradNorm(step_size=0.2, tasks=["a", "b", "c"])
    for tasks in (None, ("a", "b"), ("c",), ("b", "c"), None):
        absent = {task: weighting.weights[task] for task in "abc" if tasks and task not in tasks}
        problem.step(weighting, tasks)
        assert sum(weighting.weights.values()) == pytest.approx(3.0)
        assert all(weighting.weights[task] == weight for task, weight in absent.items())
        assert min(weighting.weights.values()) > 0.0


def test_scaling_all_losses_and_the_step_against_it_changes_nothing():
    weights = []
    for factor in (1.0, 64.0):
        weighting = GradNorm(step_size=0.1 / factor, tasks=["a", "b"])
        for left in (1.0, 0.9, 0.7):
            show(weighting, a=factor * left, b=factor * 3.0)
        weights.append(weighting.weights)
    assert weights[0] == pytest.approx(weights[1], rel=1e-6)


def test_a_slow_task_is_pulled_up():
    """Both gradients have the same size at all times, but the loss of `slow` does not fall."""
    gram = torch.eye(2, dtype=torch.float64)
    weighting = GradNorm(tasks=["fast", "slow"])
    for left in (1.0, 0.5, 0.25):
        losses = {"fast": left, "slow": 1.0}
        evidence = SimpleNamespace(gradient_norms=gram.diagonal().sqrt(), tasks=list(losses), losses=losses)
        weighting._weights.update(weighting.coefficients(evidence))
    assert weighting.weights["slow"] > 1.0 > weighting.weights["fast"]


def test_last_shared_looks_at_the_last_layer_alone():
    problem = TinyProblem()
    losses, _ = problem.losses()
    last = list(problem.second.parameters())
    expected = {}
    for task, loss in losses.items():
        parts = torch.autograd.grad(loss, last, retain_graph=True)
        expected[task] = torch.cat([part.reshape(-1) for part in parts]).norm().item()
    weighting = GradNorm(last_shared=2, tasks=["a", "b", "c"])
    problem.backward(weighting)
    assert weighting.facts()["gradient_norms"] == pytest.approx(expected)
    whole = GradNorm(tasks=["a", "b", "c"])
    problem.backward(whole)
    assert all(norm > expected[task] for task, norm in whole.facts()["gradient_norms"].items())


def test_the_first_loss_of_each_task_is_remembered():
    weighting = GradNorm(tasks=["a", "b"])
    show(weighting, a=2.0)
    show(weighting, a=1.0, b=5.0)
    show(weighting, a=0.5, b=4.0)
    assert weighting.initial_losses == {"a": 2.0, "b": 5.0}


def test_in_between_a_step_is_plain_and_uses_the_weights():
    weighting = GradNorm(every=2, step_size=0.1, tasks=["a", "b"])
    assert weighting.inspects_gradients
    show(weighting, a=1.0, b=3.0)
    assert not weighting.inspects_gradients
    before = weighting.weights
    assert show(weighting, a=1.0, b=3.0) == pytest.approx(before["a"] + 3.0 * before["b"])
    assert weighting.weights == before


def test_a_step_too_long_does_not_turn_a_weight_negative():
    weighting = GradNorm(step_size=10.0, tasks=["a", "b"])
    show(weighting, a=1.0, b=100.0)
    assert min(weighting.weights.values()) > 0.0


def test_losses_of_zero_later_on_are_no_trouble():
    weighting = GradNorm(tasks=["a", "b"])
    show(weighting, a=1.0, b=1.0)
    show(weighting, a=0.0, b=0.0)
    show(weighting, a=0.0, b=1.0)
    assert sum(weighting.weights.values()) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: show(GradNorm(tasks=["a", "b"]), a=1.0, b=-2.0), "not negative, but that of 'b' is -2"),
        (lambda: show(GradNorm(tasks=["a", "b"]), a=1.0, b=0.0), "above zero at the start.* 'b' is 0"),
        (lambda: show(GradNorm(last_shared=3, tasks=["a"]), a=1.0), "only 1 shared parameter tensors"),
        (lambda: GradNorm(tasks=["a"]).backward({"a": torch.ones((), requires_grad=True)}), "`shared` is empty"),
        (lambda: GradNorm(alpha=-1.0), "`alpha` must be a number >= 0.0"),
        (lambda: GradNorm(last_shared=0), "`last_shared` must be a whole number >= 1"),
        (lambda: GradNorm(every=1.5), "`every` must be a whole number >= 1, found 1.5"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
