"""Lin et al. (2022): the softmax of standard normal draws."""

import pytest
import torch

from crosstask.weighting.random_weights import RandomWeights
from weighting_problem import show_losses


def test_the_draw_is_the_softmax_of_normal_numbers():
    generator = torch.Generator().manual_seed(7)
    weighting = RandomWeights(seed=7, tasks=["a", "b", "c"])
    for _ in range(3):
        expected = torch.softmax(torch.randn(3, generator=generator, dtype=torch.float64), 0)
        show_losses(weighting, {"a": 1.0})
        assert list(weighting.weights.values()) == expected.tolist()


def test_moments():
    """Log ratios of two weights are differences of two standard normal numbers: mean 0, variance 2."""
    weighting = RandomWeights(tasks=["a", "b"])
    ratios = []
    for _ in range(2000):
        show_losses(weighting, {"a": 1.0})
        ratios.append(weighting.weights["a"] / weighting.weights["b"])
    logs = torch.tensor(ratios).log()
    assert logs.mean().item() == pytest.approx(0.0, abs=0.1)
    assert logs.var().item() == pytest.approx(2.0, abs=0.2)
