"""Shen et al. (2024): risks over steps, groups against all partitions, and the weights of their code."""

import itertools
import math

import numpy as np
import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.go4align import GO4Align, group_means, next_risks
from weighting_problem import show_losses


def partitions(count, num_groups):
    """Every way to put so many things into so many groups, by the group of each."""
    for groups in itertools.product(range(num_groups), repeat=count):
        if len(set(groups)) == num_groups:
            yield groups


def spread_within(values, means):
    return float(((values - means) ** 2).sum())


@pytest.mark.parametrize("num_groups", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_groups_are_as_tight_as_any(seed, num_groups):
    values = torch.from_numpy(np.random.default_rng(seed).normal(size=6))
    found = group_means(values, num_groups)
    least = math.inf
    for groups in partitions(6, num_groups):
        means = torch.empty_like(values)
        for group in range(num_groups):
            members = [place for place in range(6) if groups[place] == group]
            means[members] = values[members].mean()
        least = min(least, spread_within(values, means))
    assert spread_within(values, found) == pytest.approx(least, abs=1e-12)
    assert len(set(found.tolist())) == num_groups


def test_groups_of_few_and_of_equal_numbers():
    assert group_means(torch.tensor([3.0, 1.0]), 5).tolist() == [3.0, 1.0]
    assert group_means(torch.tensor([2.0, 2.0, 2.0]), 2).tolist() == [2.0, 2.0, 2.0]
    assert group_means(torch.tensor([4.0]), 1).tolist() == [4.0]


def test_the_weights_step_by_step():
    """p exp(-s L) over its sum, times the sum of the losses over the loss, then means of groups."""
    names, step_size = ("a", "b", "c", "d"), 0.3
    weighting = GO4Align(groups=2, step_size=step_size, tasks=names)
    rng = np.random.default_rng(1)
    risks = np.full(4, 0.25)
    for _ in range(5):
        losses = rng.uniform(0.1, 3.0, size=4)
        show_losses(weighting, dict(zip(names, losses.tolist(), strict=True)))
        risks = risks * np.exp(-step_size * losses)
        risks /= risks.sum()
        raw = losses.sum() / losses * risks
        expected = group_means(torch.from_numpy(raw), 2).tolist()
        assert list(weighting.weights.values()) == pytest.approx(expected)
        assert list(weighting.risks.values()) == pytest.approx(risks.tolist())
    assert len(set(np.round(list(weighting.weights.values()), 9))) == 2


def test_large_losses_do_not_underflow():
    risks = next_risks(torch.tensor([0.5, 0.5]).double(), torch.tensor([1e6, 1e6 + 1.0]).double(), 1.0)
    assert risks.tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)])


def test_absent_tasks_and_bad_losses():
    weighting = GO4Align(groups=1, step_size=0.5, tasks=["a", "b", "c"])
    show_losses(weighting, {"a": 1.0, "b": 3.0})
    assert weighting.weights["c"] == 1.0
    assert weighting.risks["c"] == pytest.approx(1 / 3)
    assert sum(weighting.risks.values()) == pytest.approx(1.0)
    show_losses(weighting, {"a": 0.0, "b": 1.0})
    assert all(math.isfinite(weight) for weight in weighting.weights.values())
    with pytest.raises(CrossTaskError, match="not negative"):
        show_losses(weighting, {"a": -1.0, "b": 1.0})
