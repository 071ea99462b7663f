"""Mao et al. (2021): the opponent's step is the solution of its constrained problem."""

import math

import pytest
import torch

from crosstask.weighting.bandit import ascent_step, distance_from_uniform


def draw(size, seed):
    generator = torch.Generator().manual_seed(seed)
    shares = torch.softmax(torch.randn(size, generator=generator, dtype=torch.float64), 0)
    return shares, 3 * torch.randn(size, generator=generator, dtype=torch.float64)


def test_distance_by_hand():
    shares = torch.tensor([0.7, 0.2, 0.1])
    expected = sum(p * math.log(3 * p) for p in (0.7, 0.2, 0.1))
    assert distance_from_uniform(shares) == pytest.approx(expected, abs=1e-7)
    assert distance_from_uniform(torch.tensor([0.0, 1.0])) == pytest.approx(math.log(2))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rho", [0.01, 0.3, 1.2])
def test_conditions_of_karush_kuhn_and_tucker(seed, rho):
    """max eta <p, L> - KL(p || p_old) with KL(p || uniform) <= rho: all four conditions."""
    old, losses = draw(5, seed)
    new, multiplier = ascent_step(old, losses, 0.5, rho)
    distance = distance_from_uniform(new)
    assert new.sum().item() == pytest.approx(1.0)  # feasible
    assert distance <= rho + 1e-12
    assert multiplier >= 0.0  # dual feasible
    assert multiplier * (rho - distance) == pytest.approx(0.0, abs=1e-9)  # complementary
    # Stationary: the derivative of the Lagrangian is the same for every task.
    slopes = 0.5 * losses - (new / old).log() - multiplier * (new * 5).log()
    assert float(slopes.max() - slopes.min()) < 1e-6 * (1 + multiplier)


@pytest.mark.parametrize("rho", [0.05, 0.4])
def test_against_scipy(rho):
    from scipy.optimize import minimize

    old, losses = draw(4, 11)
    new, _ = ascent_step(old, losses, 0.5, rho)

    def value(p):
        p = torch.as_tensor(p).clamp(min=1e-12)
        return float(-0.5 * p @ losses + (p * (p / old).log()).sum())

    found = minimize(
        value, [0.25] * 4, bounds=[(1e-9, 1)] * 4, options={"ftol": 1e-13, "maxiter": 500},
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1},
            {"type": "ineq", "fun": lambda p: rho - distance_from_uniform(torch.as_tensor(p))},
        ],
    )  # fmt: skip
    assert value(new) <= found.fun + 1e-7
    assert new.tolist() == pytest.approx(found.x.tolist(), abs=1e-3)


def test_lambda_is_the_smallest():
    """A slightly smaller one breaks the constraint."""
    old, losses = draw(5, 2)
    new, multiplier = ascent_step(old, losses, 0.5, 0.1)
    assert multiplier > 0
    smaller = torch.softmax((old.log() + 0.5 * losses) / (1 + multiplier * (1 - 1e-6)), 0)
    assert distance_from_uniform(smaller) > 0.1 >= distance_from_uniform(new)


def test_without_a_bound_it_is_plain_mirror_ascent():
    old, losses = draw(5, 3)
    new, multiplier = ascent_step(old, losses, 0.5, math.log(5))
    raised = old * (0.5 * losses).exp()
    assert multiplier == 0.0
    assert torch.allclose(new, raised / raised.sum(), atol=1e-12)


def test_no_distance_at_all_is_uniform():
    old, losses = draw(5, 4)
    new, _ = ascent_step(old, losses, 0.5, 0.0)
    assert new.tolist() == pytest.approx([0.2] * 5, abs=1e-7)
