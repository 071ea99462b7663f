"""Time: how much remains of it, what runs cost, and how many updates fit."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

SAFETY_FACTOR = 1.15
"""On estimates of time: the speed of a machine varies."""
ALL_LABELS = 1.25
"""What the last fit costs against one of a fold: it has all labels, not four fifths."""


class Clock:
    """The time of one call; `started` is on the clock of `time.monotonic`."""

    def __init__(self, minutes: float, started: float | None = None) -> None:
        self.seconds = 60.0 * minutes
        self.started = time.monotonic() if started is None else started

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        """Seconds until the end."""
        return self.seconds - self.spent


@dataclass(frozen=True)
class Cost:
    """Seconds of a run: before its first update, and for each update."""

    setup: float
    update: float

    def of(self, updates: int) -> float:
        """Seconds of a run with so many updates, with a safety factor."""
        return SAFETY_FACTOR * (self.setup + updates * self.update)


def affordable_updates(costs: Sequence[Cost], folds: int, seconds: float, at_a_time: int = 1) -> int:
    """The largest number of updates with which each candidate goes through so many folds, some of them at a time, and
    the costliest is fitted once more on all labels.

    >>> affordable_updates([Cost(1.0, 0.1), Cost(1.0, 0.3)], folds=2, seconds=100.0)
    69
    >>> affordable_updates([Cost(1.0, 0.1), Cost(1.0, 0.3)], folds=2, seconds=100.0, at_a_time=4)
    147
    """
    # seconds = SAFETY_FACTOR * (setup + updates * update), over all folds and the last fit.
    last_fit = max(costs, key=lambda cost: (cost.update, cost.setup))
    setup, update = ALL_LABELS * last_fit.setup, ALL_LABELS * last_fit.update
    in_turn = math.ceil(folds * len(costs) / at_a_time) / len(costs)  # folds of a candidate, one after the other
    for cost in costs:
        setup += in_turn * cost.setup
        update += in_turn * cost.update
    return max(0, int((seconds / SAFETY_FACTOR - setup) / max(update, 1e-9)))
