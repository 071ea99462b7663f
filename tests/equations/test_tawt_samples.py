"""Each equation behind weights of single examples, against an independent computation."""

import math

import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.func import functional_call

from crosstask.gradients.per_example import example_products
from crosstask.gradients.simplex import effective_number, mirror_step_within
from crosstask.weighting.target_aware import effective_sample_size
from crosstask.weighting.tawt_samples import SampleTAWT, relative_products


def mirror_step(weights, gradient, step_size):
    """`p_i exp(-step_size g_i)` over its sum."""
    raised = weights * torch.exp(-step_size * gradient)
    return raised / raised.sum()


def bound(**options):
    return SampleTAWT(tasks=["own", "a"], target="own", sizes={"a": 6}, cap=math.inf, **options)


@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_eq_2_8(step_size):
    """A look at all examples is the mirror step on the simplex, with g_i = -5 <grad_0, grad_i>."""
    generator = torch.Generator().manual_seed(0)
    weighting = bound(similarity="dot", step_size=step_size)
    simplex = torch.full((6,), 1.0 / 6.0, dtype=torch.float64)
    for _ in range(3):
        products = 0.1 * torch.randn(6, generator=generator, dtype=torch.float64)
        weighting.update_examples("a", range(6), products)
        simplex = mirror_step(simplex, -5.0 * products, step_size)
        torch.testing.assert_close(weighting.example_weights("a", range(6)).double() / 6.0, simplex, rtol=1e-6, atol=0)


def test_eq_2_7_with_the_identity():
    """-c <grad_0, grad_i> is the derivative of the target's loss by p_i, one step of length c further on.

    With the inverse Hessian c I, what the weighted examples teach is `phi(p) = phi - c sum_i p_i grad_i`; the slope of
    L_0(phi(p)) at p = 0 by finite differences.
    """
    torch.manual_seed(0)
    encoder, heads = nn.Linear(3, 4).double(), [nn.Linear(4, 1).double() for _ in range(2)]
    inputs, outputs = torch.randn(2, 6, 3).double(), torch.randn(2, 6, 1).double()
    parameters = {name: value.detach().requires_grad_() for name, value in encoder.named_parameters()}

    def losses(place, values):
        hidden = functional_call(encoder, values, (inputs[place],)).tanh()
        return (heads[place](hidden) - outputs[place]).square()[:, 0]

    values = list(parameters.values())
    along = dict(zip(parameters, torch.autograd.grad(losses(0, parameters).mean(), values), strict=True))
    products = example_products(lambda moved: losses(1, moved), parameters, along)
    constant, step = 5.0, 1e-6
    for i in range(6):
        gradient = torch.autograd.grad(losses(1, parameters)[i], values)
        ahead, behind = (
            losses(
                0,
                {
                    name: value - sign * step * constant * part
                    for (name, value), part in zip(parameters.items(), gradient, strict=True)
                },
            ).mean()
            for sign in (1, -1)
        )
        slope = (ahead - behind) / (2.0 * step)
        torch.testing.assert_close(-constant * products[i], slope.detach(), rtol=1e-6, atol=1e-8)


def test_part_of_the_examples_is_eq_2_8_on_their_share():
    """Given what the others have, the examples looked at take a mirror step on the simplex of their own."""
    weighting = bound(similarity="dot")
    weighting.update_examples("a", range(6), torch.tensor([0.1, 0.2, 0.3, 0.0, -0.2, 0.1]))
    before = weighting.example_weights("a", range(6)).double()
    rows, products = [1, 4, 5], torch.tensor([0.2, 0.1, -0.3])
    weighting.update_examples("a", rows, products)
    after = weighting.example_weights("a", range(6)).double()
    share = before[rows].sum()
    torch.testing.assert_close(after[rows], share * mirror_step(before[rows] / share, -5.0 * products, 1.0))
    torch.testing.assert_close(after[[0, 2, 3]], before[[0, 2, 3]])


@pytest.mark.parametrize("bounds", [(0.0, 1.5), (0.4, math.inf), (0.3, 1.8), (0.9, 1.1)])
def test_bounded_step_is_the_nearest_point(bounds):
    """Among all weights with that sum and within the bounds, the one of least Kullback-Leibler divergence (SLSQP)."""
    floor, cap = bounds
    generator = torch.Generator().manual_seed(1)
    before = torch.randn(6, generator=generator, dtype=torch.float64).clamp(-0.1, 0.1)
    before -= before.exp().mean().log()
    exponents = torch.randn(6, generator=generator, dtype=torch.float64)
    free = mirror_step_within(before, exponents).exp().numpy()
    found = mirror_step_within(before, exponents, floor, cap).exp().numpy()
    best = minimize(
        lambda w: (w * (torch.from_numpy(w / free).log().numpy()) - w).sum(),
        x0=torch.ones(6).numpy(),
        bounds=[(max(floor, 1e-9), None if cap == math.inf else cap)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 6.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.sum() == pytest.approx(6.0, abs=1e-12)
    assert found == pytest.approx(best.x, abs=1e-5)
    assert (found >= floor - 1e-12).all()
    assert (found <= cap + 1e-12).all()


def test_scaled_products():
    """By hand: the root mean square of 3, 0, 0, -1, 0, 0, 0, 0, 0, 0 is 1."""
    products = torch.tensor([3.0, 0, 0, -1.0, 0, 0, 0, 0, 0, 0])
    assert relative_products(products).tolist() == products.tolist()
    assert relative_products(1e-6 * products).tolist() == pytest.approx(products.tolist())
    assert relative_products(torch.zeros(3)).tolist() == [0.0] * 3
    weighting = bound(sharpness=0.5)
    weighting.update_examples("a", range(6), torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))
    first, last = weighting.example_weights("a", [0, 5]).double().tolist()
    assert math.log(last / first) == pytest.approx(0.5 * math.sqrt(6.0), rel=1e-6)


def test_effective_numbers():
    """1 / sum p^2 by hand; with equal weights the effective sample size is that of task weights (Theorem 3.1)."""
    assert effective_number(torch.tensor([3.0, 1.0]).log()) == pytest.approx(1.0 / (0.75**2 + 0.25**2))
    sizes = {"a": 100, "b": 300}
    weighting = SampleTAWT(tasks=["a", "b"], target="own", sizes=sizes)
    weighting.update_examples("a", range(100), torch.zeros(100))
    expected = effective_sample_size({"a": 0.5, "b": 0.5}, sizes)
    assert weighting.facts()["effective_sample_size"] == pytest.approx(expected)
