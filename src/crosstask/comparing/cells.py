"""The runs of a comparison: methods x targets x seeds, each written down as soon as it is done."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crosstask import cells as cells_module
from crosstask.cells import Fact, open_cells
from crosstask.comparing.methods import Method, Named
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner, make_transfer, make_weighting
from crosstask.paradigms import Plan, plan_phases
from crosstask.record import Record, Row
from crosstask.settings import Training
from crosstask.tasks import Task
from crosstask.understanding.study import content, same_budget

RUNS_FOLDER = "runs"


@dataclass(frozen=True)
class Cell:
    """One run."""

    method: str
    target: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method} on {self.target}, seed {self.seed}"


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

    - `runs`: where each run gets a folder of its own, if anywhere.
    """

    tasks: SeededTasks
    encoder: Named
    training: Training
    methods: Mapping[str, Method]
    runs: Path | None = None

    def run(self, cell: Cell) -> Row:
        """Train one cell; returns its scores, or the reason why this method does not go with this recipe."""
        started = time.perf_counter()
        method = self.methods[cell.method]
        tasks = self.tasks(cell.seed)
        sources = [task for name, task in tasks.items() if name != cell.target]
        folder = self._folder(cell)
        try:
            run = Learner(
                self.encoder,
                paradigm=method.paradigm,
                weighting=method.weighting,
                transfer=method.transfer,
                training=self.budget(method, cell.target, tasks),
                seed=cell.seed,
                progress=False,
            ).fit(tasks[cell.target], sources, output=folder, resume=folder is not None and folder.exists())
        except CrossTaskError as error:
            return {**asdict(cell), "refused": str(error)}
        return {
            **asdict(cell),
            "scores": run.scores.get(cell.target, {}),
            "weights": run.metrics["weights"],
            "seconds": round(time.perf_counter() - started, 3),
        }

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

    def _folder(self, cell: Cell) -> Path | None:
        if self.runs is None:
            return None
        return self.runs / quote(cell.target, safe=" ") / quote(cell.method, safe=" +") / f"seed-{cell.seed}"


def run_cells(
    bench: Bench,
    cells: Sequence[Cell],
    *,
    output: Path | None = None,
    jobs: int = 1,
    progress: bool | None = None,
) -> dict[Cell, Row]:
    """The rows of all cells; those that `output` holds already are not run again.

    A cell that was refused is no finished one: it is tried again, in case what stood in its way is gone.
    """
    record = _record(output, bench, sorted({cell.seed for cell in cells}))
    return cells_module.run_cells(bench.run, cells, record, _cell, jobs=jobs, progress=progress)


def _cell(row: Row) -> Cell:
    return Cell(row["method"], row["target"], row["seed"])


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
