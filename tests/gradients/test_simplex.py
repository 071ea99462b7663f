"""Steps on the simplex, projections onto it and the shortest mixture: formulas, optimality conditions, odd cases."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from crosstask.errors import CrossTaskError
from crosstask.gradients.simplex import (
    frank_wolfe,
    min_norm_gap,
    min_norm_point,
    mirror_step_of_logs,
    project_onto_simplex,
)

numbers = st.floats(-1e6, 1e6, allow_nan=False)
vectors = st.lists(numbers, min_size=1, max_size=12).map(lambda entries: torch.tensor(entries, dtype=torch.float64))


def on_simplex(weights, tolerance=1e-12):
    return weights.min() >= 0.0 and abs(weights.sum().item() - 1.0) <= tolerance


# The mirror step


def mirror_step(weights, gradient, step_size):
    return mirror_step_of_logs(weights.log(), gradient, step_size).softmax(0)


def test_mirror_step_is_its_formula():
    weights, gradient = [0.2, 0.5, 0.3], [1.5, -2.0, 0.25]
    raised = [weight * math.exp(-0.7 * slope) for weight, slope in zip(weights, gradient, strict=True)]
    found = mirror_step(torch.tensor(weights, dtype=torch.float64), torch.tensor(gradient), 0.7)
    assert found.tolist() == pytest.approx([value / sum(raised) for value in raised], abs=1e-15)


def test_mirror_step_minimises_slope_plus_divergence():
    """What mirror descent means: argmin over the simplex of `step <g, v> + KL(v || w)`, by an unrelated solver."""
    weights = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    gradient = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)

    def value(point):
        point = torch.as_tensor(point)
        return float(0.5 * gradient @ point + (point * (point / weights).log()).sum())

    simplex = {"type": "eq", "fun": lambda point: point.sum() - 1.0}
    found = minimize(value, [1 / 3] * 3, bounds=[(1e-9, 1)] * 3, constraints=simplex, options={"ftol": 1e-14})
    assert mirror_step(weights, gradient, 0.5).tolist() == pytest.approx(found.x.tolist(), abs=1e-5)


@given(vectors, st.floats(0.0, 100.0), numbers)
def test_mirror_step_stays_on_the_simplex_and_ignores_a_constant(gradient, step_size, constant):
    weights = torch.full((len(gradient),), 1.0 / len(gradient), dtype=torch.float64)
    found = mirror_step(weights, gradient, step_size)
    assert on_simplex(found)
    assert found[gradient.argmin()] == found.max()
    assert torch.allclose(mirror_step(weights, gradient + constant, step_size), found, atol=1e-6)


def test_mirror_step_at_the_edge():
    """A weight of zero stays there, and does not decide which exponent is the largest."""
    found = mirror_step(torch.tensor([1.0, 0.0]), torch.tensor([1000.0, -1000.0]), 1.0)
    assert found.tolist() == [1.0, 0.0]
    unchanged = mirror_step(torch.tensor([0.25, 0.75]), torch.zeros(2), 1.0)
    assert unchanged.tolist() == pytest.approx([0.25, 0.75])


# The projection


@given(vectors)
def test_projection_satisfies_its_optimality_conditions(point):
    """x = max(p - shift, 0) for one shift, and on the simplex: that is the nearest point and no other is."""
    found = project_onto_simplex(point)
    size = max(1.0, point.abs().max().item())
    assert on_simplex(found, 1e-9)
    inside = found > 0
    shift = (point - found)[inside]
    assert shift.max() - shift.min() <= 1e-12 * size
    assert (point[~inside] <= shift.mean() + 1e-12 * size).all()


@given(vectors)
def test_projecting_twice_is_projecting_once(point):
    once = project_onto_simplex(point)
    assert torch.allclose(project_onto_simplex(once), once, atol=1e-12)


def test_projection_against_another_solver():
    torch.manual_seed(0)
    for size in (2, 5, 9):
        point = torch.randn(size, dtype=torch.float64)
        simplex = {"type": "eq", "fun": lambda x: x.sum() - 1.0}
        found = minimize(
            lambda x, point=point: ((x - point.numpy()) ** 2).sum(), [1 / size] * size, bounds=[(0, 1)] * size,
            constraints=simplex, options={"ftol": 1e-15},
        )  # fmt: skip
        assert project_onto_simplex(point).tolist() == pytest.approx(found.x.tolist(), abs=1e-6)


def test_projection_of_huge_and_of_single_entries():
    assert project_onto_simplex(torch.tensor([1e20, 1.0])).tolist() == [1.0, 0.0]
    assert project_onto_simplex(torch.tensor([-7.0])).tolist() == [1.0]


# The shortest mixture


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def families(generator):
    """Kinds of vectors, [vectors, dimension]: ordinary ones and all that is degenerate."""
    size = int(torch.randint(1, 13, (1,), generator=generator))
    width = int(torch.randint(1, 25, (1,), generator=generator))
    some, centre = normal(generator, size, width), normal(generator, 1, width)
    centres = normal(generator, 3, width)[torch.randint(0, 3, (size,), generator=generator)]
    exponents = 24.0 * torch.rand(size, 1, generator=generator, dtype=torch.float64) - 12.0
    with_zero = some.clone()
    with_zero[0] = 0.0
    yield "ordinary", some
    yield "on one side", some + 2.0 * centre
    yield "doubled", torch.cat([some, some, some[:1]])
    yield "with zero", with_zero
    yield "all zero", torch.zeros_like(some)
    yield "on a line", some[:, :1] * centre
    yield "on a ray", some[:, :1].abs() * centre
    yield "of rank two", normal(generator, size, 2) @ normal(generator, 2, width) + centre
    yield "of many lengths", (some + centre) * 10.0**exponents
    yield "almost the same", centre + 1e-7 * some
    yield "almost in three places", centres + 1e-8 * some
    yield "whole numbers", some.round()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_min_norm_gap_is_below_1e_9(scale):
    generator = torch.Generator().manual_seed(0)
    for _ in range(25):  # 300 problems for each scale
        for kind, rows in families(generator):
            rows = scale * rows
            weights = min_norm_point(rows @ rows.T)
            assert on_simplex(weights), kind
            assert min_norm_gap(rows @ rows.T, weights) < 1e-9, kind


@pytest.mark.parametrize("width", [5, 60, 400])
def test_min_norm_of_hundreds_of_vectors(width):
    generator = torch.Generator().manual_seed(0)
    for shift in (0.0, 1.0):
        rows = normal(generator, 300, width) + shift * normal(generator, 1, width)
        weights = min_norm_point(rows @ rows.T)
        assert on_simplex(weights)
        assert min_norm_gap(rows @ rows.T, weights) < 1e-9


def test_min_norm_point_by_hand():
    assert min_norm_point(torch.tensor([[7.0]])).tolist() == [1.0]
    rows = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert min_norm_point(rows @ rows.T).tolist() == pytest.approx([0.64, 0.36])  # 16 and 9 of 25
    rows = torch.tensor([[2.0, 1.0], [2.0, -1.0], [5.0, 0.0]])
    assert min_norm_point(rows @ rows.T).tolist() == pytest.approx([0.5, 0.5, 0.0])
    rows = torch.tensor([[1.0, 0.0], [-0.5, 1.0], [-0.5, -1.0]])
    assert min_norm_point(rows @ rows.T).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])  # zero is inside


def test_min_norm_point_against_another_solver():
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        rows = normal(generator, 5, 7) + normal(generator, 1, 7)
        gram = (rows @ rows.T).numpy()
        simplex = {"type": "eq", "fun": lambda x: x.sum() - 1.0}
        found = minimize(
            lambda x, gram=gram: x @ gram @ x, [0.2] * 5, bounds=[(0, 1)] * 5, constraints=simplex,
            options={"ftol": 1e-16, "maxiter": 500},
        )  # fmt: skip
        assert min_norm_point(torch.from_numpy(gram)).tolist() == pytest.approx(found.x.tolist(), abs=1e-5)


def test_a_short_vector_keeps_its_say_next_to_long_ones():
    """Lengths a million times apart: the gap counts in units of the shortest, above which no mixture can be needed."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(50):
        rows = normal(generator, 5, 8) + normal(generator, 1, 8)
        rows = rows * torch.tensor([1e-6, 1e-6, 1e-3, 1.0, 1.0], dtype=torch.float64)[:, None]
        gram = rows @ rows.T
        weights = min_norm_point(gram)
        slopes = gram @ weights
        assert (weights @ slopes - slopes.min()) / gram.diagonal().min() < 1e-8


def test_zero_vectors_share_what_there_is():
    """Nothing is shorter than zero, and none of several zeros comes first."""
    assert min_norm_point(torch.diag(torch.tensor([0.0, 4.0, 0.0]))).tolist() == [0.5, 0.0, 0.5]


@given(st.integers(0, 10_000), st.floats(-150.0, 150.0))
def test_min_norm_point_does_not_depend_on_order_or_scale(seed, exponent):
    generator = torch.Generator().manual_seed(seed)
    rows = normal(generator, 5, 9) + normal(generator, 1, 9)
    gram = rows @ rows.T
    order = torch.randperm(5, generator=generator)
    weights = min_norm_point(gram)
    assert torch.allclose(min_norm_point(gram[order][:, order]), weights[order], atol=1e-9)
    assert torch.allclose(min_norm_point(2.0 ** round(exponent) * gram), weights, atol=1e-15)


@pytest.mark.parametrize("noise", [1e-12, 1e-7])
def test_a_gram_matrix_with_rounding_errors_ends_as_near_as_they_allow(noise):
    """Products of float32 gradients of copied tasks: not quite positive semidefinite, and still no endless search."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(40):
        rows = normal(generator, 8, 6) + normal(generator, 1, 6)
        rows = torch.cat([rows, rows])
        errors = noise * normal(generator, 16, 16)
        lengths = rows.norm(dim=1)
        gram = rows @ rows.T + (errors + errors.T) * lengths * lengths[:, None]
        weights = min_norm_point(gram)
        assert on_simplex(weights)
        assert min_norm_gap(gram, weights) < 30 * noise


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(CrossTaskError, match="not finite"):
        min_norm_point(torch.tensor([[1.0, math.nan], [math.nan, 1.0]]))


def test_frank_wolfe_leaves_a_gap_that_is_reported():
    """Why it is only kept for comparison: on 5 vectors in 7 dimensions it is still 1e-4 away after 2,000 steps."""
    generator = torch.Generator().manual_seed(0)
    gaps, lengths = [], []
    for _ in range(10):
        rows = normal(generator, 5, 7)
        gram = rows @ rows.T
        found, exact = frank_wolfe(gram, steps=2000), min_norm_point(gram)
        assert on_simplex(found, 1e-9)
        gaps.append(min_norm_gap(gram, found))
        lengths.append((found @ gram @ found - exact @ gram @ exact).item())
    assert 1e-6 < max(gaps) < 1e-2
    assert min(lengths) > -1e-12


def test_frank_wolfe_of_two_vectors_is_exact_in_one_step():
    gram = torch.tensor([[9.0, 0.0], [0.0, 16.0]])
    assert frank_wolfe(gram, steps=1).tolist() == pytest.approx([0.64, 0.36])
    assert frank_wolfe(torch.zeros(3, 3)).tolist() == pytest.approx([1 / 3] * 3)
