"""Chai et al. (2023): eq. 5, 13 and 14 on explicit vectors, and eq. 14 against scipy."""

import pytest
import torch

from crosstask.gradients.simplex import min_norm_point
from crosstask.weighting.getmtl import _on_support, getmtl_coefficients, worst_mixture


def problem(size, dimension, seed, shift=0.3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, dimension, generator=generator, dtype=torch.float64) + shift


def objective(weights, gram, slopes, pull):
    return float(slopes @ weights + pull * (weights @ gram @ weights).clamp(min=0).sqrt())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("size", "dimension"), [(2, 5), (4, 30), (6, 4), (14, 40)])
@pytest.mark.parametrize("pull", [0.01, 1.0, 5.0])
def test_eq_14_against_scipy(size, dimension, seed, pull):
    from scipy.optimize import minimize

    vectors = problem(size, dimension, seed)
    gram, slopes = vectors @ vectors.T, vectors @ vectors.mean(0)
    weights, length = worst_mixture(gram, slopes, pull)
    assert weights.min() >= 0.0
    assert weights.sum().item() == pytest.approx(1.0)
    ours = objective(weights, gram, slopes, pull)
    found = minimize(
        lambda w: objective(torch.as_tensor(w), gram, slopes, pull), [1 / size] * size, bounds=[(0, 1)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-12, "maxiter": 300},
    )  # fmt: skip
    scale = float(gram.diagonal().max()) * (1 + pull)
    if length > 0:
        assert ours <= found.fun + 1e-8 * scale
        slope = slopes + pull * gram @ weights / length  # first-order condition: no vertex leads further down
        assert float(weights @ slope - slope.min()) < 1e-8 * scale
    else:  # nothing is better than a mixture of length zero, up to what counts as zero
        assert ours <= found.fun + 1e-3 * pull * scale


@pytest.mark.parametrize("pull", [1.0, 5.0])
def test_eq_14_in_closed_form_where_the_right_vectors_are_known(pull):
    vectors = problem(6, 40, 3, shift=0.0)
    gram, slopes = vectors @ vectors.T, vectors @ vectors.mean(0)
    weights, length = worst_mixture(gram, slopes, pull)
    level = slopes + pull * gram @ weights / length
    assert torch.allclose(level[weights > 0], level.min(), atol=1e-9)
    again, same_length = _on_support(gram, slopes, pull, (weights > 0).double() / 6)
    assert torch.allclose(again, weights, atol=1e-9)
    assert same_length == pytest.approx(length)
    assert _on_support(gram, slopes, pull, torch.eye(6, dtype=torch.float64)[int(slopes.argmax())]) is None


@pytest.mark.parametrize("eps", [0.0075, 0.025, 0.1])
def test_eq_13_on_explicit_vectors(eps):
    """The direction put together step by step as the paper does, from vectors and not from products."""
    vectors = problem(4, 60, 7, shift=0.0)
    beta = min_norm_point(vectors @ vectors.T)  # eq. 5
    scaled = beta[:, None] * vectors
    mean = vectors.mean(0)
    square = mean @ mean
    weights, _ = worst_mixture(scaled @ scaled.T, scaled @ mean, float(eps * square))  # eq. 14
    mixture = weights @ scaled
    assert mixture.norm() > 0.01
    multiplier = mixture.norm() / (eps * square)
    expected = (mixture + multiplier * mean) / ((1 - eps**2 * square) * multiplier)  # eq. 13
    assert torch.allclose(getmtl_coefficients(vectors @ vectors.T, eps) @ vectors, expected, atol=1e-9)


def test_without_eps_it_is_the_mean():
    gram = problem(5, 9, 1) @ problem(5, 9, 1).T
    assert getmtl_coefficients(gram, 0.0).tolist() == pytest.approx([0.2] * 5)


def test_gradients_that_cancel_leave_the_mean():
    """Two opposite gradients: the best mixture is zero and has no direction."""
    vectors = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    coefficients = getmtl_coefficients(vectors @ vectors.T, 0.1)
    square = 1 / 9
    assert coefficients.tolist() == pytest.approx([1 / 3 / (1 - 0.01 * square)] * 3)
    assert getmtl_coefficients(torch.zeros(3, 3), 0.1).tolist() == pytest.approx([1 / 3] * 3)


def test_large_gradients_never_turn_the_sign():
    vectors = 1e4 * problem(4, 12, 3)
    coefficients = getmtl_coefficients(vectors @ vectors.T, 0.025)
    assert (coefficients > 0).all()
    assert coefficients.sum() < 4
