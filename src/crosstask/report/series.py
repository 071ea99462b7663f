"""Points of lines over the updates of a run, thinned to what a chart can show."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crosstask.runs.events import Row

MOST_POINTS = 160
"""Points of one line in a chart; more are averaged, which the eye does anyway and which keeps the page small."""
MOST_IN_A_CHART = 500
"""Points of all lines of one chart."""


@dataclass(frozen=True)
class Point:
    """A number of one task at one update, counted over all phases."""

    phase: str
    update: int
    task: str
    value: float


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """Lines of at most `most` points each: neighbours are averaged and stand where the last of them stood."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.phase, point.task), []).append(point)
    thinned: list[Point] = []
    for line in lines.values():
        size = -(-len(line) // most)
        for place in range(0, len(line), size):
            near = line[place : place + size]
            value = sum(point.value for point in near) / len(near)
            thinned.append(Point(near[-1].phase, near[-1].update, near[-1].task, float(f"{value:.4g}")))
    return tuple(thinned)


def of_event(history: Sequence[Row], event: str) -> Iterator[Row]:
    """The rows of one sort."""
    return (row for row in history if row.get("event") == event)


def points_of(
    rows: Sequence[Row], offset: Mapping[str, int], values: Callable[[Row], Mapping[str, float | None]]
) -> list[Point]:
    """A point for each value by task in each row; `offset` is where each phase begins, null is left out."""
    return [
        Point(row["phase"], offset.get(row["phase"], 0) + row["update"], task, float(value))
        for row in rows
        for task, value in values(row).items()
        if value is not None
    ]


def thin_together(points: Sequence[Point], most: int = MOST_IN_A_CHART) -> tuple[Point, ...]:
    """Thinned so that all lines together have some `most` points, and each at least ten."""
    num_lines = len({(point.phase, point.task) for point in points})
    return thin(points, min(MOST_POINTS, max(10, most // max(1, num_lines))))
