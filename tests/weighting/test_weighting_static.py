"""Weights that stay: their values, their gradients, and the sampling they undo."""

import pytest
import torch

import crosstask as ct
from crosstask.errors import CrossTaskError


def losses_of(parameter):
    return {"a": (parameter**2).sum(), "b": (3 * parameter).sum()}


def test_backward_is_the_weighted_sum():
    parameter = torch.nn.Parameter(torch.tensor([2.0]))
    ct.Fixed({"a": 0.25, "b": 2.0}, tasks=["a", "b"]).backward(losses_of(parameter))
    assert parameter.grad.item() == 0.25 * 4.0 + 2.0 * 3.0


def test_a_batch_counts_weight_over_probability():
    """Drawing tasks with any probabilities leaves the expected gradient that of the weighted sum."""
    drawn = {"a": 0.2, "b": 0.8}
    expected = torch.zeros(1)
    for task, probability in drawn.items():
        parameter = torch.nn.Parameter(torch.tensor([2.0]))
        loss = losses_of(parameter)[task]
        ct.Fixed({"a": 0.25, "b": 2.0}, tasks=["a", "b"]).backward({task: loss}, probabilities=drawn)
        expected += probability * parameter.grad
    assert expected.item() == pytest.approx(0.25 * 4.0 + 2.0 * 3.0)


def test_weights_of_the_two_joint_paradigms():
    by_size = ct.BySize()
    by_size.bind(["a", "b"], "a", sizes={"a": 100, "b": 300})
    assert by_size.weights == {"a": 0.25, "b": 0.75}
    sources = ct.BySize()  # in pre-training the target has a size too, and takes no part
    sources.bind(["a", "b"], "target", sizes={"a": 100, "b": 300, "target": 600})
    assert sources.weights == {"a": 0.25, "b": 0.75}
    uniform = ct.Uniform()
    uniform.bind(["a", "b", "c"], "a", sizes={"a": 100, "b": 300, "c": 1})
    assert uniform.weights == dict.fromkeys("abc", pytest.approx(1 / 3))


def test_tasks_may_be_absent_from_a_step():
    parameter = torch.nn.Parameter(torch.tensor([2.0]))
    ct.Uniform(tasks=["a", "b"]).backward({"b": losses_of(parameter)["b"]})
    assert parameter.grad.item() == 1.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ct.Uniform().backward({"a": torch.ones(())}), "does not know its tasks"),
        (lambda: ct.Uniform(tasks=["ner"]).backward({"nerr": torch.ones(())}), "Did you mean 'ner'"),
        (lambda: ct.Uniform(tasks=["a"]).backward({}), "`losses` is empty"),
        (lambda: ct.Uniform(tasks=["a", "a"]), "named twice"),
        (lambda: ct.Uniform(tasks=[]), "at least one task"),
        (lambda: ct.BySize(tasks=["a"]), "is not known"),
        (lambda: ct.Fixed({"a": -1.0}), "at least 0"),
        (lambda: ct.Fixed({"a": float("nan")}), "at least 0"),
        (lambda: ct.Fixed({"a": 1.0}, tasks=["b"]), "no task of this phase has a weight above 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
