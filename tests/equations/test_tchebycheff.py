"""Mao et al. (2020) and Lin et al. (2024): weights are the gradients of the maximum and of the smooth maximum."""

import pytest
import torch

from crosstask.weighting.tchebycheff import tchebycheff_weights

LOSSES = torch.tensor([0.3, 1.1, 0.9], dtype=torch.float64)
PREFERENCES = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)


def test_gradient_of_the_maximum():
    losses = LOSSES.clone().requires_grad_()
    (expected,) = torch.autograd.grad((PREFERENCES * losses).max(), losses)
    assert torch.equal(tchebycheff_weights(LOSSES, PREFERENCES), expected)


@pytest.mark.parametrize("smooth", [0.01, 0.3, 5.0])
def test_gradient_of_the_smooth_maximum(smooth):
    losses = LOSSES.clone().requires_grad_()
    (expected,) = torch.autograd.grad(smooth * torch.logsumexp(PREFERENCES * losses / smooth, 0), losses)
    assert torch.allclose(tchebycheff_weights(LOSSES, PREFERENCES, smooth), expected, atol=1e-12)


def test_the_smooth_maximum_lies_between_the_two_limits():
    sharp = tchebycheff_weights(LOSSES, PREFERENCES, 1e-3)
    assert torch.allclose(sharp, tchebycheff_weights(LOSSES, PREFERENCES), atol=1e-9)
    flat = tchebycheff_weights(LOSSES, PREFERENCES, 1e6)
    assert torch.allclose(flat, PREFERENCES / 3, atol=1e-5)


def test_tasks_that_are_equally_bad_share():
    weights = tchebycheff_weights(torch.tensor([2.0, 1.0, 2.0]), torch.ones(3))
    assert weights.tolist() == [0.5, 0.0, 0.5]
