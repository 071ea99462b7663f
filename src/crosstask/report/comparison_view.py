"""What a page shows of a comparison, as plain data: methods x targets x seeds, from the files of its folder alone."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crosstask.data.metrics import METRICS, higher
from crosstask.papers import Paper
from crosstask.report.diagnostics import papers_of
from crosstask.report.predictions import Measured
from crosstask.report.run_view import RunRows, read_rank, read_run
from crosstask.report.series import of_event
from crosstask.runs.record import METRICS_FILE, REPORT_FILE, read_history
from crosstask.training.paradigms import PARADIGMS

COMPARISON_FILE, CELLS_FILE, RESULTS_FILE = "comparison.json", "cells.jsonl", "results.json"
BASELINE = "single"


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation; one value alone has no deviation."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Of the values that there are.

        >>> Spread.of([0.5, 0.7]).mean, Spread.of([0.5]).deviation, Spread.of([])
        (0.6, None, None)
        """
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class CellRow:
    """One run: a method with a seed, on one target; `run` is its folder, from that of the comparison on."""

    method: str
    seed: int
    score: float | None
    dev: float | None
    weights: Mapping[str, Mapping[str, float]]
    run: str | None


@dataclass(frozen=True)
class MethodRow:
    """A method on a target over all seeds, and against the baseline on the same seeds.

    `gain` is positive where the method is better, whichever way the metric points; `p` is of a paired test, corrected;
    `verdict` is what the sources did, against the target alone; `refused` is why it did not run;
    `settings` are those that dev chose, where some were searched.
    """

    method: str
    summary: str
    score: Spread | None
    dev: Spread | None
    gain: Spread | None
    wins: int
    pairs: int
    p: float | None
    verdict: str | None
    seconds: float | None
    is_best: bool
    is_chosen: bool
    is_baseline: bool
    is_single: bool
    refused: str | None
    settings: Mapping[str, Any]
    weights: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class TargetRows:
    """The comparison on one target.

    `labels` says how many the target has; `run` is the run of the chosen method whose dev score is the median one;
    `alone` is what training alone said of the same examples with the same seed; `page` is the run's own, if it has one.
    """

    target: str
    metric: str
    part: str
    labels: str | None
    methods: tuple[MethodRow, ...]
    cells: tuple[CellRow, ...]
    run: RunRows | None = None
    alone: Measured | None = None
    seed: int | None = None
    page: Path | None = None

    @property
    def single(self) -> MethodRow | None:
        """The target alone."""
        return next((row for row in self.methods if row.is_single), None)

    @property
    def chosen(self) -> MethodRow | None:
        """The method with sources whose mean dev score is best: test scores choose nothing."""
        return next((row for row in self.methods if row.is_chosen), None)

    @property
    def heaviest(self) -> str | None:
        """The source that the chosen method came to give the most weight in most seeds; None where it learns none."""
        if self.run is None or not self.run.learns_weights or self.chosen is None:
            return None
        firsts: Counter[str] = Counter()
        for cell in self.cells:
            weights = max(cell.weights.values(), key=len, default={}) if cell.method == self.chosen.method else {}
            sources = {task: weight for task, weight in weights.items() if task != self.target and weight is not None}
            if len(sources) > 1 and len(set(sources.values())) > 1:
                firsts[max(sources, key=lambda task: sources[task])] += 1
        ranked = firsts.most_common(1)
        return ranked[0][0] if ranked and 2 * ranked[0][1] > sum(firsts.values()) else None


@dataclass(frozen=True)
class TaskFacts:
    """A task as the page describes it."""

    name: str
    role: str
    summary: str
    labels: tuple[str, ...]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class ComparisonRows:
    """All that the page of a comparison shows.

    - `set_aside`: how many runs set a task aside, by task;
    - `seconds`: of everything, where that is known.
    """

    title: str
    question: str
    baseline: str
    seeds: tuple[int, ...]
    targets: tuple[TargetRows, ...]
    tasks: tuple[TaskFacts, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    papers: tuple[Paper, ...]
    set_aside: Mapping[str, int]
    rank: Mapping[str, Any] | None = None
    seconds: float | None = None


def read_comparison(folder: Path) -> ComparisonRows:
    """Read the folder of a comparison, or of the demo: the table, and one run in full for each target."""
    from crosstask.report.results_file import as_comparison

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    is_comparison = (folder / COMPARISON_FILE).is_file()
    return comparison_rows(read(COMPARISON_FILE) if is_comparison else as_comparison(read(RESULTS_FILE)), folder)


def comparison_rows(data: Mapping[str, Any], folder: Path | None = None) -> ComparisonRows:
    """The rows of a comparison from `Comparison.to_json()`, and from the folder with its runs where there is one."""
    targets = tuple(_target(data, target, folder) for target in data["metrics"])
    schedule = (data["settings"].get("training") or {}).get("schedule")
    methods = data["methods"]
    return ComparisonRows(
        title=data.get("title") or (folder.resolve().name if folder is not None else ""),
        question=data.get("question", ""),
        baseline=data["baseline"],
        seeds=tuple(data["seeds"]),
        targets=targets,
        tasks=_tasks(data, targets),
        notes=tuple(data["notes"]),
        settings={"targets": list(data["metrics"]), "methods": methods, **data["settings"], "seeds": data["seeds"]},
        environment=data.get("environment") or _environment(folder),
        papers=papers_of(list(methods.values()), schedule),
        set_aside=_set_aside(targets, folder),
        rank=read_rank(folder) if folder is not None else None,
        seconds=data.get("seconds"),
    )


def _target(data: Mapping[str, Any], target: str, folder: Path | None) -> TargetRows:
    metric, part = data["metrics"][target], data["parts"][target]
    cells = tuple(_cell(row, metric, part) for row in data["cells"] if row["target"] == target and "scores" in row)
    lines = [line for line in data["lines"] if line["target"] == target]
    methods = data["methods"]
    chosen = chosen_method(data, target)
    rows = tuple(
        MethodRow(
            method=line["method"],
            summary=methods[line["method"]].get("summary", ""),
            score=_spread(line["score"]),
            dev=_spread(line["dev"]),
            gain=_spread(line["gain"]),
            wins=line["wins"],
            pairs=line["pairs"],
            p=line["p_t_holm"],
            verdict=line["verdict"],
            seconds=line["seconds"],
            is_best=line["is_best"],
            is_chosen=line["method"] == chosen,
            is_baseline=line["is_baseline"],
            is_single=_is_single(methods[line["method"]]),
            refused=line["refused"],
            settings=line.get("settings") or {},
            weights=_mean_weights([cell for cell in cells if cell.method == line["method"]]),
        )
        for line in lines
    )
    found = TargetRows(target, metric, part, data.get("labels"), rows, cells)
    return _with_run(found, folder)


def _with_run(found: TargetRows, folder: Path | None) -> TargetRows:
    """With the median run of the chosen method, if the folder has it."""
    cell = _median_cell(found, folder)
    if folder is None or cell is None or cell.run is None:
        return found
    run, alone = read_run(folder / cell.run), None
    for other in found.cells:
        is_alone = found.single is not None and other.method == found.single.method
        if is_alone and other.seed == cell.seed and other.run is not None:
            alone = read_run(folder / other.run).measured.get(found.target)
    labels = found.labels or _labels_to_train_on(run, found.target)
    page = folder / cell.run / REPORT_FILE
    return replace(
        found, labels=labels, run=run, alone=alone, seed=cell.seed, page=page if page.is_file() else None
    )  # fmt: skip


def _median_cell(found: TargetRows, folder: Path | None) -> CellRow | None:
    """The run of the chosen method with the median dev score; of an even number the lower one."""
    own = [
        cell
        for cell in found.cells
        if found.chosen is not None and folder is not None
        if cell.method == found.chosen.method and cell.run is not None and (folder / cell.run).is_dir()
    ]
    ranked = sorted((cell for cell in own if cell.dev is not None), key=lambda cell: (cell.dev, cell.seed))
    if ranked:
        return ranked[(len(ranked) - 1) // 2]
    return own[0] if own else None


def _labels_to_train_on(run: RunRows, target: str) -> str | None:
    size = next((task.sizes.get("train") for task in run.tasks if task.name == target), None)
    return f"{size:,} labels to train on" if size else None


def chosen_method(data: Mapping[str, Any], target: str) -> str | None:
    """The method with sources whose mean dev score is best, the earlier one of two that are equal.

    Where there is no dev, that which stands first.
    """
    metric = data["metrics"][target]
    sign = 1.0 if metric not in METRICS or higher(metric) else -1.0
    measured = [
        line
        for line in data["lines"]
        if line["target"] == target and line["score"] is not None and _uses_sources(data["methods"][line["method"]])
    ]
    if not measured:
        return None
    return str(max(measured, key=lambda line: sign * line["dev"]["mean"] if line["dev"] else -math.inf)["method"])


def _uses_sources(method: Mapping[str, Any]) -> bool:
    paradigm = PARADIGMS.get(method["paradigm"])
    return paradigm is None or paradigm.uses_sources


def _cell(row: Mapping[str, Any], metric: str, part: str) -> CellRow:
    scores = row["scores"]
    score, dev = (scores.get(split, {}).get(metric) for split in (part, "dev"))
    return CellRow(row["method"], row["seed"], score, dev, row.get("weights", {}), row.get("run"))


def _spread(data: Mapping[str, Any] | None) -> Spread | None:
    return Spread(**data) if data is not None else None


def _is_single(method: Mapping[str, Any]) -> bool:
    return method["paradigm"] == BASELINE and not method.get("weighting") and not method.get("transfer")


def _tasks(data: Mapping[str, Any], targets: Sequence[TargetRows]) -> tuple[TaskFacts, ...]:
    """As the comparison describes them, or as its runs do."""
    if "tasks" in data:
        return tuple(
            TaskFacts(task["name"], task["role"], task["summary"], tuple(task["labels"]), task["sizes"])
            for task in data["tasks"]
        )
    names = {found.target for found in targets}
    facts = {
        task.name: TaskFacts(
            task.name, "target" if task.name in names else "source", task.kind, task.labels, task.sizes
        )
        for found in targets
        if found.run is not None
        for task in found.run.tasks
    }
    return tuple(facts.values())


def _environment(folder: Path | None) -> dict[str, Any]:
    """Of the last session that added runs."""
    path = folder / CELLS_FILE if folder is not None else None
    if path is None or not path.is_file():
        return {}
    sessions = list(of_event(read_history(path), "session"))
    return sessions[-1]["environment"] if sessions else {}


def _set_aside(targets: Sequence[TargetRows], folder: Path | None) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for cell in (cell for found in targets for cell in found.cells):
        path = folder / cell.run / METRICS_FILE if folder is not None and cell.run is not None else None
        if path is not None and path.is_file():
            counts.update(json.loads(path.read_text(encoding="utf-8")).get("set_aside", []))
    return dict(counts)


def _mean_weights(cells: Sequence[CellRow]) -> dict[str, dict[str, float]]:
    """What each task counted in each phase in the end, averaged over seeds."""
    sums: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        for phase, weights in cell.weights.items():
            for task, weight in weights.items():
                if weight is not None and math.isfinite(weight):
                    sums.setdefault(phase, {}).setdefault(task, []).append(weight)
    return {phase: {task: statistics.fmean(values) for task, values in tasks.items()} for phase, tasks in sums.items()}
