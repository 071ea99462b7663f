"""Curves over the updates of a run, thinned to what a chart can show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

from crosstask.runs.events import DevEvaluation, Event, HeldOutLosses, TransferFacts, Update, WeightingFacts

MAX_POINTS = 160
"""Points of one curve in a chart; neighbors are averaged beyond that, which the eye does anyway."""
MAX_POINTS_PER_CHART = 500
"""Points of all curves of one chart."""
MIN_POINTS = 10
"""A curve keeps at least so many points, however many curves share a chart."""

MAX_SHOWN = 1e100
"""Larger numbers are those of a run that diverged, and their sums may be beyond all numbers."""

SomeEvent = TypeVar("SomeEvent", bound=Event)
AtUpdate = TypeVar("AtUpdate", Update, DevEvaluation, HeldOutLosses, WeightingFacts, TransferFacts)
"""An event that belongs to an update of a phase."""


@dataclass(frozen=True)
class Point:
    """A value at one update, counted over all phases; `name` is the curve that it belongs to, mostly a task's name."""

    phase: str
    update: int
    name: str
    value: float


def can_be_shown(value: float | None) -> TypeGuard[float]:
    """Whether an axis can show a number."""
    return value is not None and -MAX_SHOWN <= value <= MAX_SHOWN  # nan is not between any numbers


@dataclass(frozen=True)
class History:
    """The events of a run, in the order of the record."""

    events: Sequence[Event]
    first_updates: Mapping[str, int]  # how many updates came before each phase

    def of(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        """The events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    def series(self, kind: type[AtUpdate], values: Callable[[AtUpdate], Mapping[str, float | None]]) -> list[Point]:
        """A point for each value of each event of a type; `values` reads those of one event by curve."""
        points = []
        for event in self.of(kind):
            update = self.first_updates.get(event.phase, 0) + event.update
            for name, value in (values(event) or {}).items():  # an event of another version may lack them
                if can_be_shown(value):
                    points.append(Point(event.phase, update, name, float(value)))
        return points


def thin(points: Sequence[Point], max_points: int = MAX_POINTS) -> tuple[Point, ...]:
    """Curves of at most `max_points` points each: neighbors are averaged, at the update of the last of them."""
    curves: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        curves.setdefault((point.phase, point.name), []).append(point)
    thinned: list[Point] = []
    for curve in curves.values():
        size = -(-len(curve) // max_points)
        for start in range(0, len(curve), size):
            neighbors = curve[start : start + size]
            last = neighbors[-1]
            mean = sum(point.value for point in neighbors) / len(neighbors)
            # Four digits are more than a chart can show, and keep the page small.
            thinned.append(Point(last.phase, last.update, last.name, float(f"{mean:.4g}")))
    return tuple(thinned)


def thin_together(points: Sequence[Point], max_points: int = MAX_POINTS_PER_CHART) -> tuple[Point, ...]:
    """Thinned so that all curves together have about `max_points` points, and each at least `MIN_POINTS`."""
    num_curves = len({(point.phase, point.name) for point in points})
    per_curve = max(MIN_POINTS, max_points // max(1, num_curves))
    return thin(points, min(MAX_POINTS, per_curve))


def last_values(points: Iterable[Point]) -> dict[str, float]:
    """Where each curve ends, in the order of their first points."""
    return {point.name: point.value for point in points}
