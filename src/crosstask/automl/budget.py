"""Time: what is left of it, what things cost, and how many updates fit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

CARE = 1.15
"""Factor on estimates: a machine is not steady."""
ALL_LABELS = 1.25
"""What the last fit costs against one of a fold: it has all labels, not four fifths."""


class Clock:
    """The time of one call, from its beginning on."""

    def __init__(self, minutes: float, started: float | None = None) -> None:
        self.seconds = 60.0 * minutes
        self.started = time.monotonic() if started is None else started

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.seconds - self.spent


@dataclass(frozen=True)
class Cost:
    """What a run takes: so many seconds before its first update, and so many for each."""

    setup: float
    update: float

    def of(self, updates: int) -> float:
        """Seconds of a run with so many updates, with some care."""
        return CARE * (self.setup + updates * self.update)


def affordable_updates(costs: Sequence[Cost], folds: int, seconds: float) -> int:
    """The most updates with which each of these goes through so many folds, and the costliest is fitted once more.

    >>> affordable_updates([Cost(1.0, 0.1), Cost(1.0, 0.3)], folds=2, seconds=100.0)
    69
    """
    last = max(costs, key=lambda cost: (cost.update, cost.setup))
    setup = folds * sum(cost.setup for cost in costs) + ALL_LABELS * last.setup
    update = folds * sum(cost.update for cost in costs) + ALL_LABELS * last.update
    return max(0, int((seconds / CARE - setup) / max(update, 1e-9)))
