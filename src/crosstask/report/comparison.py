"""What a page shows of a comparison, as plain data: methods x seeds, from `results.json` and from nothing else."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.evaluation import METRICS, higher

RESULTS_FILE = "results.json"
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
class Cell:
    """One run: a method with a seed."""

    method: str
    seed: int
    dev: float | None
    test: float | None
    weights: Mapping[str, Mapping[str, float]]
    seconds: float


@dataclass(frozen=True)
class MethodRow:
    """A method over all seeds, and against the baseline on the same seeds."""

    method: str
    summary: str
    score: Spread | None
    dev: Spread | None
    gain: Spread | None
    wins: int
    seconds: float
    is_best: bool
    is_chosen: bool
    weights: Mapping[str, Mapping[str, float]]

    @property
    def is_baseline(self) -> bool:
        """Whether the others are measured against this one."""
        return self.method == BASELINE


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
    """All that the page of a comparison shows."""

    title: str
    question: str
    target: str
    metric: str
    num_labels: int
    methods: tuple[MethodRow, ...]
    cells: tuple[Cell, ...]
    tasks: tuple[TaskFacts, ...]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    run: str | None
    seconds: float

    @property
    def baseline(self) -> MethodRow | None:
        """The target alone."""
        return next((row for row in self.methods if row.is_baseline), None)

    @property
    def chosen(self) -> MethodRow | None:
        """The method with sources whose mean dev score is best: test scores choose nothing."""
        return next((row for row in self.methods if row.is_chosen), None)

    @property
    def num_seeds(self) -> int:
        """How many runs each method had."""
        return len({cell.seed for cell in self.cells})


def read_comparison(folder: Path) -> ComparisonRows:
    """Read the results of a comparison."""
    return comparison_rows(json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8")))


def comparison_rows(results: Mapping[str, Any]) -> ComparisonRows:
    """The rows of a comparison from its results."""
    metric = results["metric"]
    cells = tuple(_cell(cell, metric) for cell in results["cells"])
    upward = higher(metric) if metric in METRICS else True
    names = {method["name"]: method.get("summary", "") for method in results["methods"]}
    test = {name: {c.seed: c.test for c in cells if c.method == name and c.test is not None} for name in names}
    dev = {name: {c.seed: c.dev for c in cells if c.method == name and c.dev is not None} for name in names}
    best = _first(test, upward)
    chosen = _first({name: dev[name] for name in names if name != BASELINE}, upward)
    rows = []
    for name, summary in names.items():
        gains = {
            seed: value - test[BASELINE][seed] for seed, value in test[name].items() if seed in test.get(BASELINE, {})
        }
        own = [cell for cell in cells if cell.method == name]
        rows.append(
            MethodRow(
                method=name,
                summary=summary,
                score=Spread.of(list(test[name].values())),
                dev=Spread.of(list(dev[name].values())),
                gain=Spread.of(list(gains.values())) if name != BASELINE else None,
                wins=sum((gain > 0) == upward and gain != 0 for gain in gains.values()),
                seconds=statistics.fmean(cell.seconds for cell in own) if own else 0.0,
                is_best=name == best,
                is_chosen=name == chosen,
                weights=_mean_weights(own),
            )
        )
    return ComparisonRows(
        title=results["title"],
        question=results["question"],
        target=results["target"],
        metric=metric,
        num_labels=results["num_labels"],
        methods=tuple(rows),
        cells=cells,
        tasks=tuple(
            TaskFacts(task["name"], task["role"], task["summary"], tuple(task["labels"]), task["sizes"])
            for task in results["tasks"]
        ),
        notes=tuple(results.get("notes", ())),
        settings=results["settings"],
        environment=results["environment"],
        run=results.get("run"),
        seconds=results.get("seconds", 0.0),
    )


def _cell(cell: Mapping[str, Any], metric: str) -> Cell:
    scores = cell["scores"]
    values = {split: scores.get(split, {}).get(metric) for split in ("dev", "test")}
    return Cell(cell["method"], cell["seed"], values["dev"], values["test"], cell["weights"], cell["seconds"])


def _first(values: Mapping[str, Mapping[int, float]], upward: bool) -> str | None:
    """The method with the best mean; the earlier one of two that are equal."""
    means = {name: statistics.fmean(found.values()) for name, found in values.items() if found}
    if not means:
        return None
    return max(means, key=lambda name: means[name] if upward else -means[name])


def _mean_weights(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """What each task counted in each phase in the end, averaged over seeds."""
    sums: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        for phase, weights in cell.weights.items():
            for task, weight in weights.items():
                if weight is not None and math.isfinite(weight):
                    sums.setdefault(phase, {}).setdefault(task, []).append(weight)
    return {phase: {task: statistics.fmean(values) for task, values in tasks.items()} for phase, tasks in sums.items()}
