"""Kendall et al. (2018): the objective's factors and its derivative by the log variance."""

import math

import pytest
import torch

from crosstask.weighting.uncertainty import Uncertainty, adam_step, log_variance_gradient, weight_of
from weighting_problem import show_losses


def objective(log_variance, loss, regression):
    """Eq. 10 in sigma, as it is printed."""
    sigma = torch.exp(log_variance / 2)
    return loss / (2 * sigma**2) + sigma.log() if regression else loss / sigma**2 + sigma.log()


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("start", [-1.3, 0.0, 0.7])
def test_eq_10_derivative_by_the_log_variance(start, regression):
    log_variance = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(objective(log_variance, 1.7, regression), log_variance)
    assert log_variance_gradient(start, 1.7, regression=regression) == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("regression", [False, True])
def test_eq_10_weight_is_the_derivative_by_the_loss(regression):
    loss = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    log_variance = torch.tensor(0.4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(objective(log_variance, loss, regression), loss)
    assert weight_of(0.4, regression=regression) == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("regression", [False, True])
def test_the_minimum_has_weight_one_over_twice_the_loss(regression):
    """Setting the derivative to zero: sigma^2 = L for a regression and 2 L otherwise, the same weight for both."""
    weighting = Uncertainty(regression=["a"] if regression else [], optimizer="sgd", step_size=0.5, tasks=["a"])
    for _ in range(400):
        show_losses(weighting, {"a": 0.8})
    assert weighting.weights["a"] == pytest.approx(1 / 1.6, abs=1e-9)
    assert math.exp(weighting.log_variances["a"]) == pytest.approx(0.8 if regression else 1.6, abs=1e-8)


def test_adam_is_that_of_torch():
    value = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([value], lr=0.02)
    ours, first, second = 0.3, 0.0, 0.0
    for number, slope in enumerate([0.5, -1.2, 0.1, 3.0], start=1):
        value.grad = torch.tensor(slope, dtype=torch.float64)
        optimizer.step()
        change, first, second = adam_step(slope, first, second, number, 0.02)
        ours += change
        assert ours == pytest.approx(value.item(), abs=1e-12)


def test_a_step_is_a_joint_gradient_step_on_model_and_variances():
    """Autograd through eq. 10 in both gives the same two gradients."""
    parameter = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
    log_variances = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    weighting = Uncertainty(regression=["b"], optimizer="sgd", step_size=0.1, tasks=["a", "b"])
    for _ in range(3):
        parameter.grad = log_variances.grad = None
        losses = {"a": parameter**2, "b": (parameter - 3.0) ** 2}
        total = objective(log_variances[0], losses["a"], False) + objective(log_variances[1], losses["b"], True)
        total.backward()
        expected = parameter.grad.clone()
        parameter.grad = None
        weighting.backward({"a": parameter**2, "b": (parameter - 3.0) ** 2})
        assert parameter.grad.item() == pytest.approx(expected.item(), abs=1e-6)
        with torch.no_grad():
            log_variances -= 0.1 * log_variances.grad
            parameter -= 0.1 * parameter.grad
        assert list(weighting.log_variances.values()) == pytest.approx(log_variances.tolist(), abs=1e-6)
