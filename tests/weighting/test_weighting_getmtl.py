"""Properties and mistakes of GetMTL."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.gradients.simplex import min_norm_point
from crosstask.weighting.getmtl import GetMTL, getmtl_coefficients
from weighting_problem import TinyProblem


@pytest.mark.parametrize("seed", range(10))
def test_the_worst_task_is_served_no_worse_than_by_the_mean(seed):
    """What the maximin problem promises, for the gradients times beta."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(4, 12, generator=generator, dtype=torch.float64)
    scaled = min_norm_point(vectors @ vectors.T)[:, None] * vectors
    mean = vectors.mean(0)
    eps = 0.3 / mean.norm().item()
    direction = getmtl_coefficients(vectors @ vectors.T, eps) @ vectors * (1 - (eps * mean.norm()) ** 2)
    assert (scaled @ direction).min() >= (scaled @ mean).min() - 1e-12
    assert (direction - mean).norm() <= eps * mean.norm() ** 2 * (1 + 1e-9)


def test_no_weight_is_below_the_mean():
    problem, weighting = TinyProblem(), GetMTL(eps=0.1, tasks=["a", "b", "c"])
    for _ in range(4):
        problem.step(weighting)
        assert min(weighting.weights.values()) >= 1 / 3 - 1e-12


def test_without_eps_it_is_uniform():
    problem, weighting = TinyProblem(), GetMTL(eps=0.0, tasks=["a", "b", "c"])
    problem.backward(weighting)
    assert weighting.weights == pytest.approx(dict.fromkeys("abc", 1 / 3))
    expected = torch.autograd.grad(sum(problem.losses()[0].values()) / 3, problem.shared)
    assert all(torch.allclose(p.grad, g, atol=1e-12) for p, g in zip(problem.shared, expected, strict=True))


def test_scaling_gradients_and_eps_against_it_changes_nothing():
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(4, 30, generator=generator, dtype=torch.float64)
    gram = vectors @ vectors.T
    assert torch.allclose(getmtl_coefficients(gram, 0.1), getmtl_coefficients(1e6 * gram, 1e-4), atol=1e-9)


def test_heads_get_their_own_gradient():
    problem = TinyProblem()
    expected = torch.autograd.grad(problem.losses()[0]["b"], problem.heads["b"].weight)[0]
    problem.backward(GetMTL(tasks=["a", "b", "c"]))
    assert torch.allclose(problem.heads["b"].weight.grad, expected, atol=1e-12)


@pytest.mark.parametrize("options", [{"eps": -0.1}, {"eps": float("inf")}, {"every": 0}, {"every": True}])
def test_mistakes(options):
    with pytest.raises(CrossTaskError, match="weighting 'getmtl': `e"):
        GetMTL(**options)
