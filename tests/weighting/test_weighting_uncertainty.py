"""Properties and mistakes of Uncertainty."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.uncertainty import MAX_LOG_VARIANCE, Uncertainty


def show(weighting, **values):
    parameter = torch.ones((), requires_grad=True)
    weighting.backward({task: value * parameter for task, value in values.items()})
    return parameter.grad.item()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_high_loss_loses_weight_and_a_low_one_gains(optimizer):
    weighting = Uncertainty(optimizer=optimizer, step_size=0.1, tasks=["low", "high"])
    for _ in range(5):
        show(weighting, low=0.1, high=3.0)
    assert weighting.weights["high"] < 1.0 < weighting.weights["low"]


def test_equal_losses_of_both_kinds_end_with_equal_weights():
    weighting = Uncertainty(regression="b", step_size=0.05, tasks=["a", "b"])
    assert weighting.weights == {"a": 1.0, "b": 0.5}
    for _ in range(2000):
        show(weighting, a=2.0, b=2.0)
    assert weighting.weights["a"] == pytest.approx(weighting.weights["b"], rel=0.02)


def test_a_step_uses_the_weights_from_before_it():
    weighting = Uncertainty(optimizer="sgd", step_size=0.5, tasks=["a"])
    assert show(weighting, a=2.0) == 2.0
    assert weighting.weights["a"] < 1.0
    used = weighting.weights["a"]
    assert show(weighting, a=2.0) == pytest.approx(2.0 * used)


def test_absent_tasks_keep_their_variance():
    weighting = Uncertainty(tasks=["a", "b"])
    show(weighting, a=3.0)
    assert weighting.log_variances["b"] == 0.0
    assert weighting.log_variances["a"] != 0.0


def test_a_loss_of_zero_does_not_send_its_weight_to_infinity():
    weighting = Uncertainty(optimizer="sgd", step_size=100.0, tasks=["a"])
    show(weighting, a=0.0)
    assert weighting.log_variances["a"] == -MAX_LOG_VARIANCE


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: show(Uncertainty(tasks=["a"]), a=-0.25), "not negative, but that of 'a' is -0.25"),
        (lambda: Uncertainty(optimizer="adamw"), "Did you mean 'adam'"),
        (lambda: Uncertainty(step_size=0.0), "`step_size` must be a number above 0.0, found 0.0"),
        (lambda: Uncertainty(step_size="fast"), "found 'fast'"),
        (lambda: Uncertainty(regression=["stars"]).check_names(["star", "ner"]), "Did you mean 'star'"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
