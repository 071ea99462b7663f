"""The runs of a comparison: methods x targets x seeds, each written down as soon as it is done."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crosstask.comparing.methods import Method, Named
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner, make_transfer, make_weighting
from crosstask.paradigms import Plan, plan_phases
from crosstask.processes import finished
from crosstask.progress import make_progress, shown
from crosstask.record import Record, Row, environment, finite, read_history
from crosstask.settings import Training
from crosstask.storage import explain_write_errors
from crosstask.tasks import Task
from crosstask.understanding.study import CELLS_FILE, content, duration, same_budget

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
    rows = {_cell(row): _facts(row) for row in record.of("cell")}
    left = [cell for cell in cells if cell not in rows]
    num_done, started = len(cells) - len(left), time.perf_counter()
    if left:
        record.write("session", environment=environment())  # which versions and machine made the lines that follow
    with shown(make_progress(progress)) as bar:
        bar.start("runs", len(cells), num_done)
        for number, (cell, row) in enumerate(finished(bench.run, left, jobs), 1):
            if "refused" not in row:
                record.write("cell", **row)
            rows[cell] = _plain(row)  # as the file would give it back
            seconds = (time.perf_counter() - started) / number * (len(left) - number)
            bar.advance(num_done + number, f"{duration(seconds)} left, last: {cell}")
    return {cell: rows[cell] for cell in cells}


def _cell(row: Row) -> Cell:
    return Cell(row["method"], row["target"], row["seed"])


def _facts(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "event"}


def _record(folder: Path | None, bench: Bench, seeds: Sequence[int]) -> Record:
    """The rows that are there already, or the beginning of new ones.

    Methods, targets and seeds can be added later; what changed since under the same name is refused.
    """
    facts: list[tuple[str, str, dict[str, Any]]] = [
        ("settings", "", {"encoder": bench.encoder, "training": asdict(bench.training)})
    ]
    facts += [("method", name, {"method": method.to_json()}) for name, method in bench.methods.items()]
    facts += [
        ("data", str(seed), {"tasks": {name: content(task) for name, task in bench.tasks(seed).items()}})
        for seed in seeds
    ]
    if folder is None:
        record = Record()
    else:
        path = folder / CELLS_FILE
        rows = read_history(path) if path.is_file() else []
        known = {(row["event"], row["key"]): row for row in rows if "key" in row}
        _check_folder(folder, rows, known)
        for event, key, fact in facts:
            before = known.get((event, key))
            if before is not None and any(before.get(name) != _plain(value) for name, value in fact.items()):
                names = {
                    "settings": "encoder or training",
                    "method": f"method '{key}'",
                    "data": f"the data of seed {key}",
                }
                what = names[event]
                raise CrossTaskError(
                    f"The comparison in '{folder}' was begun with other settings: {what} changed since. Change it back "
                    "to go on, or start anew with another --output."
                )
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        record = Record(path, keep=len(rows))  # a last line that a kill cut short goes
        facts = [fact for fact in facts if fact[:2] not in known]
    for event, key, fact in facts:
        record.write(event, key=key, **_plain(fact))
    return record


def _check_folder(folder: Path, rows: Sequence[Row], known: Mapping[Any, Any]) -> None:
    is_other = folder.exists() and (not folder.is_dir() or any(path.name != CELLS_FILE for path in folder.iterdir()))
    if (rows and ("settings", "") not in known) or (not rows and is_other):
        raise CrossTaskError(
            f"'{folder}' exists and holds no comparison; nothing was written over. Choose another folder with --output."
        )


def _plain(value: Any) -> Any:
    """As it comes back from the file."""
    return json.loads(json.dumps(finite(value), default=str))
