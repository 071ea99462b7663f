"""The runs of a comparison: methods x targets x seeds, each written down as soon as it is done."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.methods import make_transfer, make_weighting
from crosstask.runs.events import Row
from crosstask.runs.record import METRICS_FILE, Record
from crosstask.runs.run import Run, RunFolder
from crosstask.storage import remove_scratch
from crosstask.studies import grid as cells_module
from crosstask.studies.executors import Place
from crosstask.studies.grid import Fact, open_cells
from crosstask.studies.hyperparameters import Trial
from crosstask.studies.method import Method, Named
from crosstask.studies.study import content, same_budget
from crosstask.training.config import Training
from crosstask.training.paradigms import Plan, plan_phases

RUNS_FOLDER = "runs"
LONGEST_NAME = 100
"""Signs of a folder's name; file systems end at 255 bytes, and a sign can be four."""


@dataclass(frozen=True)
class Cell:
    """One run; `trial` names the settings that are tried, where some are searched."""

    method: str
    target: str
    seed: int
    trial: str = ""

    def __str__(self) -> str:
        tried = f" with {self.trial}" if self.trial else ""
        return f"{self.method}{tried} on {self.target}, seed {self.seed}"


class SeededTasks:
    """The tasks for a seed, by name; the last ones are kept, for the methods of a seed come one after the other."""

    def __init__(self, make: Callable[[int], Sequence[Task]]) -> None:
        self.make = make
        self._last: tuple[int, dict[str, Task]] | None = None

    def __call__(self, seed: int) -> dict[str, Task]:
        if self._last is None or self._last[0] != seed:
            tasks = self.make(seed)
            by_name = {task.name: task for task in tasks}
            if len(by_name) < len(tasks):
                raise CrossTaskError("Two tasks have the same name; every task needs a name of its own.")
            self._last = seed, by_name
        return self._last[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make, "_last": None}


@dataclass(frozen=True, eq=False)
class Bench:
    """What all runs of a comparison have in common.

    The same seed gives every method the same examples, the same start and the same number of updates, so that scores
    are pairs. With several phases (`pretrain`) those share the updates.

    - `output`: where each run gets a folder of its own under `runs`, if anywhere;
    - `keep_models`: whether those hold the model too, and checkpoints from which a run that was killed goes on;
    - `trials`: of every method by name, where settings are searched.
    """

    tasks: SeededTasks
    encoder: Named
    training: Training
    methods: Mapping[str, Method]
    output: Path | None = None
    keep_models: bool = False
    trials: Mapping[str, Mapping[str, Trial]] = field(default_factory=dict)

    def run(self, cell: Cell) -> Row:
        """Train one cell; returns its scores, or the reason why this method does not go with this recipe."""
        method = self.method(cell)
        tasks = self.tasks(cell.seed)
        try:
            learner = Learner(
                self.encoder,
                paradigm=method.paradigm,
                weighting=method.weighting,
                transfer=method.transfer,
                training=self.budget(method, cell.target, tasks),
                seed=cell.seed,
                progress=False,
            )
            measured = self._measured(learner, cell, tasks)
        except CrossTaskError as error:
            return {**asdict(cell), "refused": str(error)}
        return {**asdict(cell), **measured}

    def _measured(self, learner: Learner, cell: Cell, tasks: Mapping[str, Task]) -> Row:
        """What the run of a cell measured; a folder that was finished before a kill is read, not trained again."""
        started = time.perf_counter()
        folder = self.output / run_folder(cell) if self.output is not None else None
        if folder is not None and RunFolder(folder).is_finished:
            metrics = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
            seconds = metrics["seconds"]
        else:
            if folder is not None:
                remove_scratch(folder)
                if not self.keep_models:
                    shutil.rmtree(folder, ignore_errors=True)
            goes_on = folder is not None and RunFolder(folder).checkpoints.exists()
            metrics = self._train(learner, cell, tasks, folder).metrics
            # How long the part before the kill took is not known.
            seconds = None if goes_on else round(time.perf_counter() - started, 3)
        return {
            "scores": metrics["scores"].get(cell.target, {}),
            "weights": metrics["weights"],
            "seconds": seconds,
            **({"run": run_folder(cell)} if folder is not None else {}),
        }

    def _train(self, learner: Learner, cell: Cell, tasks: Mapping[str, Task], folder: Path | None) -> Run:
        method = self.method(cell)
        ordered = {cell.target: tasks[cell.target], **tasks}
        recipe = learner.describe(method.paradigm, ordered)
        return learner.fit(
            tasks[cell.target],
            [task for name, task in tasks.items() if name != cell.target],
            output=folder,
            resume=folder is not None and folder.exists(),
            recipe={**recipe, "weighting": method.weighting, "transfer": list(method.transfer)},
            keep_model=self.keep_models,
        )

    def method(self, cell: Cell) -> Method:
        """The method of a cell, with the settings that it tries."""
        return self.trials[cell.method][cell.trial].method if cell.trial else self.methods[cell.method]

    def budget(self, method: Method, target: str, tasks: Mapping[str, Task]) -> Training:
        """Settings with which all phases together take as many updates as any other method."""
        changes = method.settings(target)
        if "epochs" in changes:
            changes = {"updates": None, **changes}
        given = replace(self.training, **changes)
        updates = same_budget(given, list(tasks.values())).updates or 1
        sources = tuple(name for name in tasks if name != target)
        sizes = {name: len(task.train) for name, task in tasks.items()}
        transfers = [make_transfer(item) for item in method.transfer]
        names = tuple(transfer.name for transfer in transfers)
        plan = Plan((target,), sources, sizes, given, make_weighting(method.weighting), names)
        phases = plan_phases(method.paradigm, plan)
        for transfer in transfers:
            phases = transfer.plan(plan, phases)
        return replace(given, updates=max(1, updates // len(phases)))


def run_folder(cell: Cell) -> str:
    """Where the run of a cell is, from the comparison's folder on."""
    parts = [RUNS_FOLDER, _as_name(cell.target), _as_name(cell.method)]
    return "/".join([*parts, *([_as_name(cell.trial)] if cell.trial else []), f"seed-{cell.seed}"])


def _as_name(text: str) -> str:
    """A text as the name of a folder, which must not be too long.

    >>> _as_name("joint+tawt"), _as_name("a/b"), len(_as_name("tawt.every=10, " * 20))
    ('joint+tawt', 'a%2Fb', 100)
    """
    name = quote(text, safe=" +=,")
    name = name.replace(".", "%2E", 1) if name.startswith(".") else name
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(digest) - 1]}-{digest}"


def run_cells(
    bench: Bench,
    cells: Sequence[Cell],
    *,
    output: Path | None = None,
    jobs: int | None = 1,
    on: Place = "local",
    progress: bool | None = None,
) -> dict[Cell, Row]:
    """The rows of all cells; those that `output` holds already are not run again.

    A cell that was refused is no finished one: it is tried again, in case what stood in its way is gone.
    """
    record = _record(output, bench, sorted({cell.seed for cell in cells}))
    return cells_module.run_cells(bench.run, cells, record, _cell, jobs=jobs, on=on, progress=progress)


def _cell(row: Row) -> Cell:
    return Cell(row["method"], row["target"], row["seed"], row["trial"])


def _record(folder: Path | None, bench: Bench, seeds: Sequence[int]) -> Record:
    """The rows that are there already; methods, targets and seeds can be added later."""
    facts: list[Fact] = [("settings", "", {"encoder": bench.encoder, "training": asdict(bench.training)})]
    facts += [("method", name, {"method": method.to_json()}) for name, method in bench.methods.items()]
    facts += [
        ("data", str(seed), {"tasks": {name: content(task) for name, task in bench.tasks(seed).items()}})
        for seed in seeds
    ]
    names = {"settings": "encoder or training", "method": "method '{}'", "data": "the data of seed {}"}
    return open_cells(folder, facts, sort="comparison", names=names)
