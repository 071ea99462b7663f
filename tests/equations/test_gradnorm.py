"""Chen et al. (2018): targets, gradient of the weights' loss, renormalising, and the order of Algorithm 1."""

from types import SimpleNamespace

import pytest
import torch

from crosstask.weighting.gradnorm import GradNorm, gradnorm_gradient, renormalize, training_rates


def test_training_rates_by_hand():
    """Losses 1 of 2, 3 of 4 and 1 of 1: what is left is 0.5, 0.75 and 1, whose mean is 0.75."""
    rates = training_rates(torch.tensor([1.0, 3.0, 1.0]), torch.tensor([2.0, 4.0, 1.0]))
    assert rates.tolist() == pytest.approx([2 / 3, 1.0, 4 / 3])


@pytest.mark.parametrize("alpha", [0.0, 0.12, 1.5])
def test_eq_1_and_2_by_autograd(alpha):
    """Real gradients of weighted losses, their norms, and autograd of eq. 2 with the targets cut off."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3).double()
    inputs = torch.randn(5, 4, dtype=torch.float64)
    losses = [layer(inputs).pow(2).mean(), layer(inputs).abs().mean(), layer(inputs).sin().pow(2).mean()]
    initial = torch.tensor([2.0, 0.7, 0.9], dtype=torch.float64)
    weights = torch.tensor([0.5, 1.2, 1.3], dtype=torch.float64, requires_grad=True)
    sizes = []
    for weight, loss in zip(weights, losses, strict=True):
        parts = torch.autograd.grad(weight * loss, list(layer.parameters()), create_graph=True)
        sizes.append(torch.cat([part.reshape(-1) for part in parts]).norm())
    sizes = torch.stack(sizes)
    left = torch.stack(losses).detach() / initial
    targets = (sizes.mean() * (left / left.mean()) ** alpha).detach()
    (expected,) = torch.autograd.grad((sizes - targets).abs().sum(), weights)

    norms = (sizes / weights).detach()
    rates = training_rates(torch.stack(losses).detach(), initial)
    assert torch.allclose(gradnorm_gradient(weights.detach(), norms, rates, alpha), expected, atol=1e-12)


def test_renormalize_keeps_the_sum_and_the_sign():
    weights = renormalize(torch.tensor([-0.5, 1.0, 3.0], dtype=torch.float64), 3.0)
    assert weights.sum().item() == pytest.approx(3.0)
    assert (weights > 0).all()
    assert (weights[2] / weights[1]).item() == pytest.approx(3.0)


def test_algorithm_1_uses_the_old_weights_for_the_model():
    parameter = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    weighting = GradNorm(step_size=0.1, tasks=["a", "b"])
    used = []
    for _ in range(4):
        before = weighting.weights
        parameter.grad = None
        weighting.backward({"a": parameter.sum() ** 2, "b": 5 * parameter.sum()}, shared=[parameter])
        expected = before["a"] * 2 * parameter.item() + before["b"] * 5
        assert parameter.grad.item() == pytest.approx(expected)
        used.append(before)
    assert used[0] == {"a": 1.0, "b": 1.0}
    assert used[1]["b"] < 1.0 < used[1]["a"]  # the larger gradient is made smaller


def test_weights_settle_where_the_sizes_meet_their_targets():
    """With losses that stand still, G_t / mean(G) comes to r_t^alpha (eq. 1), within a step."""
    weighting = GradNorm(alpha=1.0, step_size=1e-3, tasks=["a", "b"])
    norms = torch.tensor([1.0, 4.0], dtype=torch.float64)
    losses = {"a": 0.5, "b": 1.5}  # 0.5 and 0.75 of the first, rates 0.8 and 1.2
    evidence = SimpleNamespace(gradient_norms=norms, tasks=["a", "b"], losses=losses)
    weighting.initial_losses = {"a": 1.0, "b": 2.0}
    for _ in range(4000):
        weighting._weights = dict(weighting.coefficients(evidence))
    sizes = torch.tensor([weighting.weights["a"], 4 * weighting.weights["b"]])
    assert (sizes / sizes.mean()).tolist() == pytest.approx([0.8, 1.2], abs=0.02)
