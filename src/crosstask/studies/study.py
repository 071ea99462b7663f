"""Many small runs under the same conditions: which there are, which are done, and how sure the outcome is."""

import hashlib
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.methods import make_transfer, make_weighting
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.studies import grid as cells_module
from crosstask.studies.grid import open_cells
from crosstask.training.config import Training
from crosstask.training.paradigms import find_paradigm
from crosstask.validation import check_options

LOOKS = 10
"""Looks at the dev set in every run of a study, unless the settings say otherwise."""
Named = str | Mapping[str, Any]
"""A method as a recipe names it."""


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and its standard error; one value alone has no error, and none at all no mean."""

    mean: float
    standard_error: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Estimate":
        """Of the values that are known.

        >>> Estimate.of([1.0, 3.0]), Estimate.of([2.0, None]).count
        (Estimate(mean=2.0, standard_error=1.0, count=2), 1)
        """
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return cls(math.nan, None, 0)
        error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
        return cls(statistics.fmean(known), error, len(known))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where the mean over all seeds lies with this confidence (Student's t); anywhere, for one value alone."""
        if self.standard_error is None:
            return -math.inf, math.inf
        from scipy.stats import t

        reach = float(t.ppf(0.5 + level / 2.0, self.count - 1)) * self.standard_error
        return self.mean - reach, self.mean + reach

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return finite(asdict(self))

    def shown(self, *, signed: bool = False) -> str:
        """For people.

        >>> Estimate(0.5, 0.01, 3).shown(), Estimate(0.5, None, 1).shown(signed=True), Estimate.of([]).shown()
        ('0.500 ± 0.010', '+0.500', '–')
        """
        if not self.count:
            return "–"
        mean = f"{self.mean:+.3f}" if signed else f"{self.mean:.3f}"
        return mean if self.standard_error is None else f"{mean} ± {self.standard_error:.3f}"


@dataclass(frozen=True)
class Cell:
    """One run: these targets with the help of those sources, from this start; with a width of its own, if it has."""

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    seed: int
    width: int | None = None

    @classmethod
    def of(cls, row: Row) -> "Cell":
        """The cell that a row of the file is about."""
        return cls(tuple(row["targets"]), tuple(row["sources"]), row["seed"], row["width"])

    @property
    def is_single(self) -> bool:
        """Whether a task is trained alone."""
        return len(self.targets) == 1 and not self.sources

    def __str__(self) -> str:
        helped = f"{', '.join(self.sources)} → " if self.sources else ""
        width = f", width {self.width}" if self.width is not None else ""
        return f"{helped}{', '.join(self.targets)}{width}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Study:
    """What all runs of a study have in common.

    - `paradigm`, `weighting`, `transfer`: of the runs with several tasks, as a recipe names them. A task alone is
      trained with nothing but its own labels;
    - `training`: with a budget of updates that is the same for every run, see `same_budget`;
    - `width_option`: what `width` of a cell is called in the encoder's section.
    """

    tasks: Mapping[str, Task]
    encoder: Named
    paradigm: str
    training: Training
    weighting: Named | None = None
    transfer: Sequence[Named] = field(default=())
    width_option: str = "hidden"

    def run(self, cell: Cell) -> Row:
        """Train one cell; returns its scores and how long it took."""
        started = time.perf_counter()
        alone = find_paradigm(self.paradigm).without_sources
        try:
            run = Learner(
                self._encoder(cell),
                paradigm=alone if cell.is_single else self.paradigm,
                weighting=None if cell.is_single else self.weighting,
                transfer=() if cell.is_single else self.transfer,
                training=self._training(cell),
                seed=cell.seed,
                progress=False,
            ).fit([self.tasks[name] for name in cell.targets], [self.tasks[name] for name in cell.sources])
        except CrossTaskError as error:
            raise CrossTaskError(f"{cell}: {error}") from error
        scores = {name: run.scores[name] for name in cell.targets if name in run.scores}
        return {**asdict(cell), "scores": scores, "seconds": round(time.perf_counter() - started, 2)}

    def _encoder(self, cell: Cell) -> Named:
        if cell.width is None:
            return self.encoder
        section = {"name": self.encoder} if isinstance(self.encoder, str) else dict(self.encoder)
        return {**section, self.width_option: cell.width}

    def _training(self, cell: Cell) -> Training:
        if self.paradigm != "pretrain" or cell.is_single:
            return self.training
        # Two phases share the budget.
        return replace(self.training, updates=max(1, (self.training.updates or 2) // 2))

    def describe(self) -> dict[str, Any]:
        """All that can change a result but the seed, as plain data."""
        settings = {
            "encoder": self.encoder,
            "paradigm": self.paradigm,
            "weighting": self.weighting,
            "transfer": list(self.transfer),
            "training": asdict(self.training),
            "tasks": {
                name: {
                    "kind": task.kind,
                    "labels": len(task.labels),
                    "sizes": {part: len(rows) for part, rows in task.splits.items()},
                    "content": content(task),
                }
                for name, task in self.tasks.items()
            },
        }
        return json.loads(json.dumps(finite(settings), default=str))


def make_study(
    tasks: Sequence[Task],
    encoder: Named,
    *,
    paradigm: str,
    training: Training | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    weighting: Named | None = None,
    transfer: Sequence[Named] = (),
    purpose: str,
    width_option: str = "hidden",
) -> Study:
    """A study of these tasks, checked: names that differ, a dev set each, methods that exist, one budget for all."""
    by_name = {task.name: task for task in tasks}
    if len(by_name) < len(tasks):
        raise CrossTaskError(f"{purpose}: two tasks have the same name; every task needs a name of its own.")
    if len(tasks) < 2:
        raise CrossTaskError(f"{purpose} needs at least two tasks, found {len(tasks)}.")
    for task in tasks:
        if task.dev is None:
            raise CrossTaskError(
                f"{purpose} compares dev scores, but task '{task.name}' has no dev set: give one, or more examples."
            )
    chosen_weighting = make_weighting(weighting)
    if chosen_weighting is not None and chosen_weighting.named_tasks():
        raise CrossTaskError(
            f"{purpose} trains tasks in several combinations, so weights by task name do not fit: leave the weighting "
            "out, or use one that learns the weights."
        )
    for item in transfer:
        make_transfer(item)
    given = as_training(training, settings)
    return Study(by_name, encoder, paradigm, same_budget(given, tasks), weighting, tuple(transfer), width_option)


def as_training(training: Training | Mapping[str, Any] | None, settings: Mapping[str, Any]) -> Training:
    """Settings of the loop, as the learner takes them: an object or a mapping, and single ones by name."""
    given = asdict(training) if isinstance(training, Training) else dict(training or {})
    given.update(settings)
    check_options("training", Training, given)
    return Training(**given)


def same_budget(training: Training, tasks: Sequence[Task]) -> Training:
    """As many updates and as many looks at dev for every run, whichever tasks it has: the largest task's epochs.

    Without this a small task alone would get fewer updates than with a large source, and lose for that reason alone.
    """
    steps = max(-(-len(task.train) // training.batch_size) for task in tasks)
    updates = training.updates or training.epochs * -(-steps // training.accumulate)
    return replace(training, updates=updates, evaluate_every=training.evaluate_every or max(1, updates // LOOKS))


def seed_list(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Seeds as given, or so many from 0 on."""
    found = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not found or len(set(found)) < len(found) or min(found) < 0:
        raise CrossTaskError(f"`seeds` must be a number of at least 1 or different seeds of at least 0, found {seeds}.")
    return found


def content(task: Task) -> str:
    """A short name for the examples of a task: another one for other data."""
    digest = hashlib.sha256()
    for part, examples in task.splits.items():
        rows = examples.inputs
        digest.update(part.encode())
        digest.update(
            np.ascontiguousarray(rows).tobytes() if isinstance(rows, np.ndarray) else repr(list(rows)).encode()
        )
        digest.update(repr(list(examples.labels)).encode())
    return digest.hexdigest()[:16]


def run_cells(
    study: Study,
    cells: Sequence[Cell],
    *,
    output: str | Path | None = None,
    jobs: int = 1,
    progress: bool | None = None,
) -> dict[Cell, Row]:
    """The rows of all cells; those that `output` holds already are not run again.

    Each row is written to `output/cells.jsonl` as soon as it is known, so a study that was killed goes on where it
    stopped when it is started again in the same way.

    Args:
        study: what all runs have in common.
        cells: what to run.
        output: folder of the study; without one nothing is written.
        jobs: processes that run cells side by side, on one thread each; 1 stays in this process.
        progress: show a bar; by default when the error stream is a terminal.
    """
    facts = [("study", key, {"is": value}) for key, value in study.describe().items()]
    record = open_cells(Path(output) if output is not None else None, facts, sort="study", names={"study": "`{}`"})
    return cells_module.run_cells(study.run, cells, record, Cell.of, jobs=jobs, progress=progress)
