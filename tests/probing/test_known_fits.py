"""Probes of the same data are fitted once, and those of other data never mixed up."""

from dataclasses import replace

import numpy as np
import pytest

from crosstask.probing import known_fits
from crosstask.probing.known_fits import KnownFits
from crosstask.probing.linear_models import Units, choose_penalty, fit, penalty_grid


@pytest.fixture
def units():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 4))
    return Units("classification", 2, features, (features[:, 0] > 0).astype(np.int64), np.arange(60))


@pytest.fixture
def solved(monkeypatch):
    """Sizes of what was fitted."""
    sizes = []

    def counted(units, *more, **options):
        sizes.append(len(units))
        return fit(units, *more, **options)

    monkeypatch.setattr(known_fits, "fit", counted)
    return sizes


def test_the_same_data_are_fitted_once(units, solved):
    known = KnownFits()
    first = known.fit(units, units, seed=0)
    again = known.fit(replace(units, features=units.features.copy()), units, seed=0)
    assert again is first
    assert solved == [60]
    penalty, result = choose_penalty(units, penalty_grid(4), seed=0)
    assert (first.inverse_penalty, first.result) == (penalty, result)
    np.testing.assert_array_equal(first.model.weights, fit(units, [penalty])[0].weights)


@pytest.mark.parametrize(
    "change",
    [
        lambda units: replace(units, features=units.features + 1e-12),
        lambda units: replace(units, labels=1 - units.labels),
        lambda units: replace(units, examples=units.examples // 2),
        lambda units: replace(units, class_weights=np.array([1.0, 2.0])),
        lambda units: replace(units, features=units.features.reshape(60, 4)[:, ::-1]),
        lambda units: units.take(np.arange(59)),
    ],
)
def test_other_data_are_not_the_same(units, solved, change):
    known = KnownFits()
    known.fit(units, units, seed=0)
    other = change(units)
    known.fit(other, other, seed=0)
    assert len(solved) == 2


def test_another_seed_or_sample_chooses_anew(units, solved):
    known = KnownFits()
    known.fit(units, units, seed=0)
    known.fit(units, units, seed=1)
    known.fit(units, units.take(np.arange(30)), seed=0)
    assert len(solved) == 3


def test_the_oldest_are_forgotten(units, solved, monkeypatch):
    monkeypatch.setattr(known_fits, "MAX_FITS", 2)
    known = KnownFits()
    for seed in (0, 1, 0, 2, 0, 1):
        known.fit(units, units, seed=seed)
    assert len(solved) == 4  # 0, 1, 2, and 1 again
