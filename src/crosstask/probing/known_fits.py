"""Probes that were fitted before: folds and candidates of a search have the same sources, whose probes are the same."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock

import numpy as np

from crosstask.probing.linear_models import CrossValidation, LinearModel, Units, choose_penalty, fit, penalty_grid

MAX_FITS = 64
"""That are remembered, the latest ones: each is no more than a linear model."""


@dataclass(frozen=True, eq=False)
class ProbeFit:
    """A linear model with the inverse penalty that cross-validation chose, and what it said of it."""

    inverse_penalty: float
    result: CrossValidation
    model: LinearModel


class KnownFits:
    """Fits by their content: units, the sample of them that chooses, and the seed of its folds.

    - `source_seconds`: that fits to sources have taken so far, which need not be made again.
    """

    def __init__(self) -> None:
        self.source_seconds = 0.0
        self._fits: OrderedDict[bytes, ProbeFit] = OrderedDict()
        self._lock = Lock()

    def fit(self, units: Units, choice_units: Units, seed: int, *, is_source: bool = False) -> ProbeFit:
        """Choose a penalty and fit, or what that gave before."""
        key = _key(units, choice_units, seed)
        with self._lock:
            if key in self._fits:
                self._fits.move_to_end(key)
                return self._fits[key]
        started = time.perf_counter()
        penalty, result = choose_penalty(choice_units, penalty_grid(units.features.shape[1]), seed=seed)
        probe_fit = ProbeFit(penalty, result, fit(units, [penalty])[0])
        with self._lock:
            if is_source:
                self.source_seconds += time.perf_counter() - started
            self._fits[key] = probe_fit
            while len(self._fits) > MAX_FITS:
                self._fits.popitem(last=False)
        return probe_fit


KNOWN_FITS = KnownFits()
"""Of this process."""


def _key(units: Units, choice_units: Units, seed: int) -> bytes:
    digest = blake2b(repr((units.kind, units.num_outputs, units.device, seed)).encode(), digest_size=16)
    for array in (units.features, units.labels, units.examples, choice_units.examples, units.class_weights):
        if array is not None:
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
