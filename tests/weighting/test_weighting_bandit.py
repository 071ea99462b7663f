"""Properties and mistakes of BanditMTL."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crosstask.errors import CrossTaskError
from crosstask.weighting.bandit import BanditMTL, distance_from_uniform
from weighting_problem import show_losses

numbers = st.lists(st.floats(-50, 50), min_size=3, max_size=3)


@given(st.lists(numbers, min_size=1, max_size=5), st.floats(0.0, 1.5))
def test_weights_stay_on_the_simplex_and_within_the_distance(steps, rho):
    weighting = BanditMTL(rho=rho, tasks=["a", "b", "c"])
    for losses in steps:
        show_losses(weighting, dict(zip("abc", losses, strict=True)))
        shares = torch.tensor(list(weighting.weights.values()), dtype=torch.float64)
        assert float(shares.sum()) == pytest.approx(1.0)
        assert float(shares.min()) >= 0.0
        assert distance_from_uniform(shares) <= rho + 1e-9


@given(numbers, st.floats(-20, 20))
def test_adding_a_constant_to_all_losses_changes_nothing(losses, constant):
    plain, shifted = (BanditMTL(rho=0.2, tasks=["a", "b", "c"]) for _ in range(2))
    show_losses(plain, dict(zip("abc", losses, strict=True)))
    show_losses(shifted, {task: loss + constant for task, loss in zip("abc", losses, strict=True)})
    assert plain.weights == pytest.approx(shifted.weights, abs=1e-6)


def test_the_worse_task_counts_more():
    weighting = BanditMTL(tasks=["easy", "hard"])
    show_losses(weighting, {"easy": 0.1, "hard": 2.0})
    assert weighting.weights["hard"] > weighting.weights["easy"]


def test_a_share_that_was_almost_lost_comes_back():
    weighting = BanditMTL(rho=10.0, step_size=100.0, tasks=["a", "b"])
    show_losses(weighting, {"a": 0.0, "b": 50.0})
    assert weighting.weights["a"] < 1e-20
    for _ in range(2):
        show_losses(weighting, {"a": 50.0, "b": 0.0})
    assert weighting.weights["a"] > 0.99


def test_an_absent_task_is_taken_by_what_was_seen_last():
    with_all, without = (BanditMTL(rho=0.2, tasks=["a", "b"]) for _ in range(2))
    for weighting in (with_all, without):
        show_losses(weighting, {"a": 1.0, "b": 2.0})
    show_losses(with_all, {"a": 0.5, "b": 2.0})
    show_losses(without, {"a": 0.5})
    assert with_all.weights == without.weights


def test_a_task_never_seen_is_taken_for_an_ordinary_one():
    weighting = BanditMTL(tasks=["a", "b", "c"])
    show_losses(weighting, {"a": 1.0, "b": 3.0})
    assert weighting.weights["a"] < weighting.weights["c"] < weighting.weights["b"]


def test_the_step_uses_the_new_weights():
    weighting = BanditMTL(tasks=["a", "b"])
    parameter = torch.ones((), requires_grad=True)
    weighting.backward({"a": 1.0 * parameter, "b": 3.0 * parameter})
    expected = weighting.weights["a"] + 3.0 * weighting.weights["b"]
    assert parameter.grad.item() == pytest.approx(expected)


def test_the_usual_distance_is_always_a_bound():
    assert BanditMTL(tasks=["a", "b"]).rho == pytest.approx(math.log(2) / 2)
    assert BanditMTL(tasks=["a", "b", "c", "d"]).rho == 1.2
    weighting = BanditMTL(tasks=["a", "b"])
    for _ in range(50):
        show_losses(weighting, {"a": 1.0, "b": 5.0})
    assert weighting.weights["a"] > 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": -0.1}, "`rho` must be a number >= 0.0"),
        ({"rho": float("nan")}, "found nan"),
        ({"step_size": 0}, "`step_size` must be a number above 0.0"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(CrossTaskError, match=message):
        BanditMTL(**options)
