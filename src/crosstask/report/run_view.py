"""What a page shows of one run, as plain data: computed from the run folder's files, and from nothing else."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crosstask.report.diagnostics import Diagnostics, diagnose
from crosstask.report.predictions import Measured, read_measured
from crosstask.report.series import Point, of_event, points_of, thin
from crosstask.runs.events import Row
from crosstask.runs.record import ENVIRONMENT_FILE, HISTORY_FILE, METRICS_FILE, RECIPE_FILE, read_history

RANK_FILE = "rank.json"
"""What `crosstask rank --json` prints, beside a run or a comparison."""


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
    diagnostics: Diagnostics
    is_finished: bool = True
    measured: Mapping[str, Measured] = field(default_factory=dict)
    rank: Mapping[str, Any] | None = None

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

    @property
    def learns_weights(self) -> bool:
        """Whether weights moved within a phase, so that they say something about the tasks."""
        seen: dict[tuple[str, str], set[float]] = {}
        for point in self.weights:
            seen.setdefault((point.phase, point.task), set()).add(round(point.value, 6))
        return any(len(values) > 1 for values in seen.values())

    def remarks_as_items(self) -> list[tuple[str, str | None, str]]:
        """Sort, task and text of each remark."""
        return [
            (remark.sort, remark.task, remark.text + (f" ({remark.times} times)" if remark.times > 1 else ""))
            for remark in self.remarks
        ]


def read_rank(folder: Path) -> dict[str, Any] | None:
    """The ranking of the sources; None where nobody asked for it."""
    path = folder / RANK_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def read_run(folder: Path) -> RunRows:
    """Read the files of a run; of one that has not finished, what there is."""

    def text(name: str) -> str:
        path = folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    history = read_history(folder / HISTORY_FILE) if (folder / HISTORY_FILE).is_file() else []
    metrics = json.loads(text(METRICS_FILE) or "{}")
    rows = run_rows(
        folder.resolve().name, history, metrics, text(RECIPE_FILE), json.loads(text(ENVIRONMENT_FILE) or "{}")
    )
    kinds, sizes = {task.name: task.kind for task in rows.tasks}, {task.name: task.sizes for task in rows.tasks}
    return replace(
        rows, is_finished=bool(metrics), measured=read_measured(folder, kinds, sizes), rank=read_rank(folder)
    )


def run_rows(
    name: str, history: Sequence[Row], metrics: Mapping[str, Any], recipe: str, environment: Mapping[str, Any]
) -> RunRows:
    """The rows of a run from its history and its metrics."""
    start: Row = next(of_event(history, "start"), {})
    targets = tuple(metrics.get("targets") or start.get("targets") or ())
    paradigm = metrics.get("paradigm") or start.get("paradigm", "")
    phases = _phases(history)
    offset = {phase.name: phase.first for phase in phases}
    updates, looks = list(of_event(history, "update")), list(of_event(history, "dev"))
    main = {look["task"]: next(iter(look["scores"]), "") for look in looks}
    return RunRows(
        name=name,
        targets=targets,
        sources=tuple(start.get("sources", ())),
        paradigm=paradigm,
        weighting=start.get("weighting"),
        parameters=start.get("parameters", {}),
        seconds=metrics.get("seconds"),
        tasks=tuple(_tasks(history, targets, metrics)),
        scores=tuple(_scores(metrics)),
        phases=phases,
        losses=thin(points_of(updates, offset, lambda row: row["losses"])),
        dev_losses=thin(points_of(looks, offset, lambda look: {look["task"]: look.get("loss")})),
        dev_scores=thin(points_of(looks, offset, lambda look: {look["task"]: look["scores"].get(main[look["task"]])})),
        dev_metric=" / ".join(dict.fromkeys(main.values())),
        weights=thin(points_of(updates, offset, lambda row: row["weights"])),
        remarks=tuple(_remarks(history)),
        recipe=recipe,
        environment=environment,
        diagnostics=diagnose(history, offset, paradigm, recipe),
    )


def _phases(history: Sequence[Row]) -> tuple[PhaseRow, ...]:
    ends = {row["name"]: row for row in of_event(history, "phase_end")}
    last_update = {row["phase"]: row["update"] for row in of_event(history, "update")}
    phases: list[PhaseRow] = []
    first = 0
    for row in of_event(history, "phase"):
        end = ends.get(row["name"], {})
        updates = int(end.get("updates", last_update.get(row["name"], 0)))
        kept = end.get("kept", "last")
        phases.append(PhaseRow(row["name"], tuple(row["tasks"]), first, updates, bool(end.get("stopped_early")), kept))
        first += updates
    return tuple(phases)


def _tasks(history: Sequence[Row], targets: Sequence[str], metrics: Mapping[str, Any]) -> Iterable[TaskRow]:
    weights = metrics.get("weights", {})
    for row in of_event(history, "task"):
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
