"""What a page shows of one run, as plain data: computed from the run folder's files, and from nothing else."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.record import ENVIRONMENT_FILE, HISTORY_FILE, METRICS_FILE, RECIPE_FILE, Row, read_history

MOST_POINTS = 160
"""Points of one line in a chart; more are averaged, which the eye does anyway and which keeps the page small."""


@dataclass(frozen=True)
class TaskRow:
    """A task: what it is, how much data it has, and what it counted in the end."""

    name: str
    role: str
    kind: str
    labels: tuple[str, ...]
    sizes: Mapping[str, int]
    weights: Mapping[str, float]


@dataclass(frozen=True)
class ScoreRow:
    """One metric of one task on one split; the first metric of a task is the one that chose its model."""

    task: str
    split: str
    metric: str
    value: float | None
    is_main: bool


@dataclass(frozen=True)
class Point:
    """A number of one task at one update, counted over all phases."""

    phase: str
    update: int
    task: str
    value: float


@dataclass(frozen=True)
class PhaseRow:
    """A stretch of training: from which update to which, and how it ended."""

    name: str
    tasks: tuple[str, ...]
    first: int
    updates: int
    stopped_early: bool
    kept: str


@dataclass(frozen=True)
class Remark:
    """Something that a reader should know: a note, a warning, a batch that was skipped, a task set aside."""

    sort: str
    task: str | None
    text: str
    times: int = 1


@dataclass(frozen=True)
class RunRows:
    """All that the page of a run shows."""

    name: str
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    paradigm: str
    weighting: str | None
    parameters: Mapping[str, int]
    seconds: float | None
    tasks: tuple[TaskRow, ...]
    scores: tuple[ScoreRow, ...]
    phases: tuple[PhaseRow, ...]
    losses: tuple[Point, ...]
    dev_losses: tuple[Point, ...]
    dev_scores: tuple[Point, ...]
    dev_metric: str
    weights: tuple[Point, ...]
    remarks: tuple[Remark, ...]
    recipe: str
    environment: Mapping[str, Any]

    def headline(self, task: str) -> ScoreRow | None:
        """The score that answers the question: the task's own metric on test, or on dev where there is no test."""
        main = {row.split: row for row in self.scores if row.task == task and row.is_main and row.value is not None}
        return main.get("test") or main.get("dev")

    @property
    def weights_change(self) -> bool:
        """Whether some task's weight was not the same from the first update to the last."""
        seen: dict[str, set[float]] = {}
        for point in self.weights:
            seen.setdefault(point.task, set()).add(round(point.value, 6))
        return any(len(values) > 1 for values in seen.values()) or len(self.phases) > 1


def read_run(folder: Path) -> RunRows:
    """Read the files of a finished run."""

    def text(name: str) -> str:
        path = folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    history = read_history(folder / HISTORY_FILE) if (folder / HISTORY_FILE).is_file() else []
    metrics = json.loads(text(METRICS_FILE) or "{}")
    return run_rows(
        folder.resolve().name, history, metrics, text(RECIPE_FILE), json.loads(text(ENVIRONMENT_FILE) or "{}")
    )


def run_rows(
    name: str, history: Sequence[Row], metrics: Mapping[str, Any], recipe: str, environment: Mapping[str, Any]
) -> RunRows:
    """The rows of a run from its history and its metrics."""
    start: Row = next(_of(history, "start"), {})
    targets = tuple(metrics.get("targets") or start.get("targets") or ())
    phases = _phases(history)
    offset = {phase.name: phase.first for phase in phases}
    updates, looks = list(_of(history, "update")), list(_of(history, "dev"))
    main = {look["task"]: next(iter(look["scores"]), "") for look in looks}
    return RunRows(
        name=name,
        targets=targets,
        sources=tuple(start.get("sources", ())),
        paradigm=metrics.get("paradigm") or start.get("paradigm", ""),
        weighting=start.get("weighting"),
        parameters=start.get("parameters", {}),
        seconds=metrics.get("seconds"),
        tasks=tuple(_tasks(history, targets, metrics)),
        scores=tuple(_scores(metrics)),
        phases=phases,
        losses=thin(_points(updates, "losses", offset)),
        dev_losses=thin(_looks(looks, offset, lambda look: look.get("loss"))),
        dev_scores=thin(_looks(looks, offset, lambda look: look["scores"].get(main[look["task"]]))),
        dev_metric=" / ".join(dict.fromkeys(main.values())),
        weights=thin(_points(updates, "weights", offset)),
        remarks=tuple(_remarks(history)),
        recipe=recipe,
        environment=environment,
    )


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


def _of(history: Sequence[Row], event: str) -> Iterator[Row]:
    return (row for row in history if row.get("event") == event)


def _phases(history: Sequence[Row]) -> tuple[PhaseRow, ...]:
    ends = {row["name"]: row for row in _of(history, "phase_end")}
    last_update = {row["phase"]: row["update"] for row in _of(history, "update")}
    phases: list[PhaseRow] = []
    first = 0
    for row in _of(history, "phase"):
        end = ends.get(row["name"], {})
        updates = int(end.get("updates", last_update.get(row["name"], 0)))
        kept = end.get("kept", "last")
        phases.append(PhaseRow(row["name"], tuple(row["tasks"]), first, updates, bool(end.get("stopped_early")), kept))
        first += updates
    return tuple(phases)


def _points(rows: Sequence[Row], key: str, offset: Mapping[str, int]) -> list[Point]:
    return [
        Point(row["phase"], offset.get(row["phase"], 0) + row["update"], task, float(value))
        for row in rows
        for task, value in row[key].items()
        if value is not None
    ]


def _looks(rows: Sequence[Row], offset: Mapping[str, int], value_of: Any) -> list[Point]:
    found = ((row, value_of(row)) for row in rows)
    return [
        Point(row["phase"], offset.get(row["phase"], 0) + row["update"], row["task"], float(value))
        for row, value in found
        if value is not None
    ]


def _tasks(history: Sequence[Row], targets: Sequence[str], metrics: Mapping[str, Any]) -> Iterable[TaskRow]:
    weights = metrics.get("weights", {})
    for row in _of(history, "task"):
        name = row["name"]
        yield TaskRow(
            name=name,
            role="target" if name in targets else "source",
            kind=row["kind"],
            labels=tuple(row.get("labels", ())),
            sizes=row.get("sizes", {}),
            weights={phase: counted[name] for phase, counted in weights.items() if name in counted},
        )


def _scores(metrics: Mapping[str, Any]) -> Iterable[ScoreRow]:
    for task, splits in metrics.get("scores", {}).items():
        for split, values in splits.items():
            for place, (metric, value) in enumerate(values.items()):
                yield ScoreRow(task, split, metric, value, place == 0)


def _remarks(history: Sequence[Row]) -> list[Remark]:
    """Warnings first; the same thing said many times is one remark with a count."""
    counts: Counter[Remark] = Counter()
    for row in history:
        event = row.get("event")
        if event in ("note", "warning"):
            counts[Remark(event, row.get("task"), row.get("text", ""))] += 1
        elif event == "set_aside":
            counts[Remark("set aside", row.get("task"), row.get("reason", ""))] += 1
        elif event == "skipped":
            tasks = ", ".join(row.get("tasks", ())) or None
            counts[Remark("skipped", tasks, f"a batch was skipped: {row.get('reason', '')}")] += 1
    order = {"set aside": 0, "warning": 1, "skipped": 2, "note": 3}
    remarks = [Remark(remark.sort, remark.task, remark.text, times) for remark, times in counts.items()]
    return sorted(remarks, key=lambda remark: order[remark.sort])
