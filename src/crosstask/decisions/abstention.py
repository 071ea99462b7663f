"""Which inputs to leave to people: those whose decision is too likely to be wrong."""

import math
from dataclasses import dataclass, replace

import numpy as np

MAX_KEPT = 1_000
"""Held-out decisions that a model keeps: of more, so many at even distances."""


@dataclass(frozen=True)
class Answered:
    """What becomes of held-out units at a threshold of confidence.

    - `threshold`: decisions of at least this probability are answers; infinite where none is sure enough;
    - `fraction`: of units that are answered;
    - `expected_error`, `error`: of the answers, by their probabilities and as it came; NaN where there is none.
    """

    threshold: float
    fraction: float
    expected_error: float
    error: float


@dataclass(frozen=True)
class HeldOutDecisions:
    """The probability of each decision on units that did not train the model, and whether it is right.

    They tell what a threshold of confidence promises, and what came of it.
    """

    probabilities: tuple[float, ...]
    is_right: tuple[bool, ...]

    @classmethod
    def of(cls, probabilities: np.ndarray, is_right: np.ndarray) -> "HeldOutDecisions":
        """The surest first; of many, some at even distances."""
        order = np.argsort(-probabilities, kind="stable")
        if len(order) > MAX_KEPT:
            order = order[np.linspace(0, len(order) - 1, MAX_KEPT).round().astype(np.int64)]
        ordered = probabilities[order].round(6)
        return cls(tuple(ordered.tolist()), tuple(is_right[order].astype(bool).tolist()))

    def at(self, threshold: float) -> Answered:
        """What is answered at a threshold."""
        probabilities = np.asarray(self.probabilities)
        answered = probabilities >= threshold
        if not answered.any():
            return Answered(threshold, 0.0, math.nan, math.nan)
        expected_error = 1.0 - float(probabilities[answered].mean())
        error = 1.0 - float(np.asarray(self.is_right)[answered].mean())
        return Answered(threshold, float(answered.mean()), expected_error, error)

    def for_error(self, max_error: float) -> Answered:
        """The lowest threshold at which answers are wrong no more often than that; 0 where all may be answered.

        Both by their probabilities, of which the mean of 1 - p is the error to expect (Geifman and El-Yaniv 2017 choose
        by an error on held-out units alike), and as it came among the held-out units.

        >>> decisions = HeldOutDecisions((0.99, 0.95, 0.9, 0.6), (True, True, True, False))
        >>> [decisions.for_error(error).threshold for error in (0.1, 0.01, 0.001)]
        [0.9, 0.99, inf]
        """
        best = Answered(math.inf, 0.0, math.nan, math.nan)
        for threshold in sorted(set(self.probabilities), reverse=True):
            answered = self.at(threshold)
            # Rounding: a mean of probabilities of 0.9 promises an error of 0.1.
            if max(answered.expected_error, answered.error) <= max_error + 1e-9:
                best = answered
        if best.fraction == 1.0:  # new units may be less sure than any of these
            return replace(best, threshold=0.0)
        return best
