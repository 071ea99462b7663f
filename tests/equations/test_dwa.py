"""Liu et al. (2019): eq. 7 on averages over windows."""

import math

import pytest
import torch

from crosstask.weighting.dwa import DWA, average_weights


def test_eq_7_by_hand():
    ratios = [0.5, 0.9, 1.2]
    total = sum(math.exp(ratio / 2) for ratio in ratios)
    expected = [3 * math.exp(ratio / 2) / total for ratio in ratios]
    assert average_weights(torch.tensor(ratios), 2.0).tolist() == pytest.approx(expected, abs=1e-6)


def test_ratios_are_of_the_averages_of_the_last_two_windows():
    """Windows of two steps: averages (3, 1) then (1.5, 1), so ratios 0.5 and 1 from the fifth step on."""
    weighting = DWA(window=2, temperature=2.0, tasks=["a", "b"])
    parameter = torch.ones((), requires_grad=True)
    for number, loss in enumerate([4.0, 2.0, 2.0, 1.0]):
        weighting.backward({"a": loss * parameter, "b": parameter})
        assert weighting.weights == {"a": 1.0, "b": 1.0}, number
    weighting.backward({"a": 7.0 * parameter, "b": parameter})
    total = math.exp(0.25) + math.exp(0.5)
    assert weighting.weights["a"] == pytest.approx(2 * math.exp(0.25) / total, abs=1e-6)
    assert weighting.weights["b"] == pytest.approx(2 * math.exp(0.5) / total, abs=1e-6)
    assert sum(weighting.weights.values()) == pytest.approx(2.0)
