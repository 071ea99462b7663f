"""Properties and mistakes of DWA."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.dwa import DWA


def show(weighting, **values):
    parameter = torch.ones((), requires_grad=True)
    weighting.backward({task: value * parameter for task, value in values.items()})


def test_weights_add_up_to_the_number_of_tasks_and_favour_the_slow():
    weighting = DWA(window=2, tasks=["fast", "slow"])
    for left in (1.0, 0.9, 0.5, 0.4, 0.3):
        show(weighting, fast=left, slow=1.0)
    assert sum(weighting.weights.values()) == pytest.approx(2.0)
    assert weighting.weights["slow"] > weighting.weights["fast"]


def test_the_scale_of_a_loss_does_not_matter():
    found = []
    for factor in (1.0, 100.0):
        weighting = DWA(window=1, tasks=["a", "b"])
        for left in (1.0, 0.5, 0.4, 0.3):
            show(weighting, a=factor * left, b=left**2)
        found.append(weighting.weights)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_a_higher_temperature_is_more_even():
    spread = []
    for temperature in (0.5, 2.0, 50.0):
        weighting = DWA(window=1, temperature=temperature, tasks=["a", "b"])
        for left in (1.0, 0.5, 0.2):
            show(weighting, a=left, b=1.0)
        spread.append(weighting.weights["b"] - weighting.weights["a"])
    assert spread[0] > spread[1] > spread[2] > 0.0


def test_absent_tasks():
    """Means are over the steps that had the task; without one in a window its ratio is 1."""
    weighting = DWA(window=2, tasks=["a", "b"])
    show(weighting, a=4.0, b=1.0)
    show(weighting, b=3.0)
    show(weighting, a=2.0)
    show(weighting, a=2.0)
    show(weighting, a=2.0, b=1.0)
    assert weighting.averages == [{"a": 4.0, "b": 2.0}, {"a": 2.0}]
    assert weighting.ratio("a") == 0.5
    assert weighting.ratio("b") == 1.0


def test_a_loss_of_zero_has_ratio_one():
    weighting = DWA(window=1, tasks=["a", "b"])
    for left in (0.0, 1.0, 0.0, 0.0):
        show(weighting, a=left, b=1.0)
    assert weighting.ratio("a") == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: show(DWA(tasks=["a"]), a=-1.5), "not negative, but that of 'a' is -1.5"),
        (lambda: DWA(temperature=0.0), "`temperature` must be a number above 0.0"),
        (lambda: DWA(window=0), "`window` must be a whole number >= 1"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
