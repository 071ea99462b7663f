"""What a step costs with 2 to 64 tasks, by method, and how long a training of a thousand small tasks takes to begin.

1. Steps. Tasks of 16 examples a step on vectors of 2,048 numbers, a layer of 512 units that all share, one processor
   thread: the median time of an update, and by how much the peak of resident memory exceeds what there was before the
   first. Each measurement is a process of its own. Methods inspect in every update, so that these are their most
   expensive steps; where samples of tasks will do, they run with `tasks_per_step: 8` too.
2. The beginning. A thousand CSV files of 20 rows each: seconds from the command to the first update that the bar shows,
   and to the end of 20 updates. With --before, the checkout whose `src` it names takes turns.

    python benchmarks/many_tasks.py --before ../old/src --output benchmarks/results/many_tasks.json
"""

import argparse
import itertools
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from million_rows import UPDATES, timed

import crosstask
from crosstask import Learner, Task
from crosstask.runs.environment import environment
from crosstask.runs.events import Event, PhaseStart, Update

TASK_COUNTS = (2, 4, 8, 16, 32, 64)
SAMPLED = 8
WIDTH, UNITS, ROWS, BATCH_SIZE = 2_048, 512, 64, 16
WARM_UPDATES, TIMED_UPDATES = 3, 8
METHODS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "uncertainty": {},
    "scale-invariant": {},
    "tawt": {"every": 1},
    "gradnorm": {},
    "mgda-ub": {},
    "mgda": {},
    "getmtl": {},
    "metaweighting": {},
}
SAMPLING = ("uniform", "uncertainty", "scale-invariant", "tawt", "gradnorm")
"""Those for which samples of tasks will do."""
RECIPE = f"""
target: task0
encoder: {{name: textcnn, dimension: 16}}
paradigm: joint
training: {{updates: {UPDATES}, batch_size: 4, tasks_per_step: {SAMPLED}}}
tasks:
"""


def memory(name: str) -> float:
    """A line of the process's status, in megabytes: VmRSS now, or VmHWM, its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1_000
    raise SystemExit(f"this system does not tell {name}")


class Meter:
    """Notes the time after each update, and the memory before the first and at most."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.before = 0.0

    def __call__(self, event: Event) -> None:
        """Called by the learner."""
        if isinstance(event, PhaseStart):
            Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
            self.before = memory("VmRSS")
        elif isinstance(event, Update):
            self.times.append(time.perf_counter())

    def result(self) -> dict[str, float]:
        """The median update and the additional memory."""
        times = self.times[WARM_UPDATES:]
        seconds = [after - before for before, after in itertools.pairwise(times)]
        return {
            "milliseconds": round(1_000 * statistics.median(seconds), 2),
            "megabytes": round(memory("VmHWM") - self.before, 1),
        }


def measure_steps(method: str, num_tasks: int, tasks_per_step: int | None) -> dict[str, float]:
    """A short training."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(ROWS, WIDTH)).astype("float32")
    tasks = []
    for number in range(num_tasks):
        labels = vectors @ generator.normal(size=WIDTH).astype("float32") > 0
        tasks.append(Task.from_arrays(f"task{number}", vectors, labels))
    meter = Meter()
    updates = WARM_UPDATES + TIMED_UPDATES + 1
    settings = {"updates": updates, "evaluate_every": updates, "batch_size": BATCH_SIZE, "keep": "last"}
    learner = Learner(
        {"name": "relu", "hidden": UNITS},
        weighting={"name": method, **METHODS[method]},
        tasks_per_step=tasks_per_step,
        progress=False,
        callbacks=meter,
        **settings,
    )
    learner.fit(tasks[0], tasks[1:])
    return meter.result()


def exponent(costs: dict[int, float]) -> float:
    """By which power a cost grows with the number of tasks, from 8 of them on: 1 is linear, 0 flat."""
    counts = [count for count in costs if count >= SAMPLED]
    slope, _ = np.polyfit(np.log(counts), np.log([max(costs[count], 0.1) for count in counts]), 1)
    return round(float(slope), 2)


def curves() -> list[dict[str, Any]]:
    """Time and memory of every method at every number of tasks."""
    rows: list[dict[str, Any]] = []
    runs: list[tuple[str, int | None]] = [(method, None) for method in METHODS]
    runs += [(method, SAMPLED) for method in SAMPLING]
    for method, tasks_per_step in runs:
        by_count: dict[int, dict[str, float]] = {}
        for count in TASK_COUNTS:
            # `fork`: a process of its own that need not import everything once more.
            with multiprocessing.get_context("fork").Pool(1) as pool:
                by_count[count] = pool.apply(measure_steps, (method, count, tasks_per_step))
        row = {"method": method, "tasks_per_step": tasks_per_step, "by_number_of_tasks": by_count}
        for cost in ("milliseconds", "megabytes"):
            row[f"exponent_of_{cost}"] = exponent({count: numbers[cost] for count, numbers in by_count.items()})
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def write_small_tasks(folder: Path, num_tasks: int) -> Path:
    """A recipe of so many files of 20 rows."""
    generator = random.Random(0)
    words = [f"w{number}" for number in range(2_000)]
    recipe = RECIPE
    for number in range(num_tasks):
        lines = ["text,label"]
        for row in range(20):
            lines.append(" ".join(generator.choices(words, k=10)) + "," + "abc"[row % 3])
        (folder / f"task{number}.csv").write_text("\n".join(lines) + "\n")
        recipe += f"  task{number}: {{train: task{number}.csv}}\n"
    path = folder / "recipe.yaml"
    path.write_text(recipe)
    return path


def beginning(before: Path | None, num_tasks: int, rounds: int) -> dict[str, Any]:
    """Seconds to the first update and to the end, medians of some rounds."""
    result: dict[str, Any] = {"tasks": num_tasks}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        recipe = write_small_tasks(folder, num_tasks)
        old_recipe = folder / "old.yaml"
        old_recipe.write_text(recipe.read_text().replace(f", tasks_per_step: {SAMPLED}", ""))
        runs = {"now": (recipe, Path(crosstask.__file__).parent.parent)}
        runs["now, all tasks in a step"] = (old_recipe, runs["now"][1])
        if before is not None:
            runs["before, all tasks in a step"] = (old_recipe, before.absolute())
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
        for number in range(rounds):
            for index, (name, (path, source)) in enumerate(runs.items()):
                measured[name].append(timed(path, source, folder / f"run-{index}-{number}"))
                print(name, measured[name][-1], flush=True)
    for name, rows in measured.items():
        result[name] = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return result


def main() -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="`src` of another checkout, which takes turns at the beginning")
    parser.add_argument("--tasks", type=int, default=1_000, help="small tasks")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    result = {
        "environment": environment(),
        "beginning": beginning(arguments.before, arguments.tasks, arguments.rounds),
        "steps": curves(),
    }
    text = json.dumps(result, indent=2)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
