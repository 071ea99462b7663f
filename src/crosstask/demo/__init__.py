"""The main job on data that is at hand: every paradigm, several seeds, a table, a page and one full run folder."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from crosstask.demo.problem import Problem
from crosstask.errors import CrossTaskError
from crosstask.progress import make_progress, shown
from crosstask.report import write_comparison_page, write_if_possible
from crosstask.report.comparison_view import ComparisonView, read_comparison
from crosstask.runs.environment import environment
from crosstask.runs.record import REPORT_FILE, finite
from crosstask.storage import new_folder, remove_scratch, write_text
from crosstask.studies.compare import TABLE_NAME, WRITERS, ComparisonPlan, compare_methods
from crosstask.studies.compare_runs import MethodStudy, SeededTasks, run_key
from crosstask.studies.hyperparameters import make_trials
from crosstask.studies.options import Conditions
from crosstask.studies.table import SINGLE, Comparison

MADE_BY = "crosstask demo"
RUN_FOLDER = "run"
TABLE_FILE = f"{TABLE_NAME}.json"
OLD_FILE = "results.json"
"""In place of the table in folders of version 0.1."""


def run_demo(
    *, text: bool = False, seeds: int = 5, output: Path = Path("runs/demo"), quiet: bool = False
) -> ComparisonView:
    """Compare the paradigms on digits, or on sentences, and write the comparison to `output`."""
    check_output(output)
    if text:
        from crosstask.demo.sentences import sentences_problem

        problem = sentences_problem()
    else:
        from crosstask.demo.digits import digits_problem

        problem = digits_problem()
    return compare(problem, range(seeds), output, progress=False if quiet else None)


def compare(problem: Problem, seeds: Sequence[int], output: Path, *, progress: bool | None = None) -> ComparisonView:
    """Train every method with every seed, and write table, page and one run folder, all at once at the end."""
    started = time.perf_counter()
    # 1. The comparison, in memory.
    with shown(make_progress(progress)) as bar:
        problem.prepare(bar)
    methods = problem.methods()
    trials = make_trials(methods, {name: {} for name in methods})
    plan = ComparisonPlan(methods, trials, SINGLE, [problem.target])
    conditions = Conditions(problem.encoder, problem.training, tuple(seeds), progress=progress)
    with one_thread():
        comparison = compare_methods(problem.tasks, plan, conditions)
        data = {**comparison.to_json(), **describe(problem, seeds[0])}
        remove_scratch(output)  # of a demo that was killed
        with new_folder(output) as scratch:
            _write_tables(scratch, comparison, data)
            # 2. The run that the page shows in full: of the method that dev chose.
            best = read_comparison(scratch).targets[0].chosen
            if best is not None:
                _write_run(problem, best.method, seeds[0], scratch / RUN_FOLDER)
                for row in data["cells"]:
                    if (row["method"], row["seed"]) == (best.method, seeds[0]):
                        row["run"] = RUN_FOLDER
            # 3. The page.
            data["seconds"] = round(time.perf_counter() - started, 1)
            _write_tables(scratch, comparison, data)
            write_if_possible(lambda: write_comparison_page(scratch), output)
    return read_comparison(output)


@contextmanager
def one_thread() -> Iterator[None]:
    """Small layers are quickest on one thread; several spend their time waiting for each other."""
    before = torch.get_num_threads()  # a setting of the whole process, so it is put back
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_study(problem: Problem) -> MethodStudy:
    """The runs of a demo: all phases of a method together have the problem's budget of updates."""
    return MethodStudy(SeededTasks(problem.tasks), problem.encoder, problem.training, problem.methods())


def describe(problem: Problem, seed: int) -> dict[str, Any]:
    """What the page shows beside the table."""
    tasks: list[dict[str, Any]] = []
    for task in problem.tasks(seed):
        description = {
            "name": task.name,
            "role": "target" if task.name == problem.target else "source",
            "summary": problem.summaries[task.name],
            "labels": list(task.labels),
            "sizes": {split: len(examples) for split, examples in task.splits.items()},
        }
        tasks.append(description)
    return {
        "made_by": MADE_BY,
        "title": problem.title,
        "question": problem.question,
        "labels": f"{problem.num_labels:,} labels",
        "tasks": tasks,
        "notes": list(problem.notes),
        "environment": environment(),
    }


def _write_tables(folder: Path, comparison: Comparison, data: dict[str, Any]) -> None:
    for ending, write in WRITERS.items():
        write_text(folder / f"{TABLE_NAME}.{ending}", write(comparison))
    write_text(folder / TABLE_FILE, json.dumps(finite(data), indent=1, ensure_ascii=False) + "\n")


def _write_run(problem: Problem, method: str, seed: int, folder: Path) -> None:
    study = make_study(problem)
    tasks = study.tasks(seed)
    target, *sources = tasks.values()
    study.learner(run_key(method, problem.target, seed), tasks).fit(target, sources, output=folder)


def check_output(output: Path) -> None:
    """A folder may be replaced only if an earlier demo made it, and nothing was added to it since."""
    if not output.exists():
        return
    advice = "nothing was written over. Choose another folder with --output."
    if not (_is_marked(output / TABLE_FILE) or _is_marked(output / OLD_FILE)):
        raise CrossTaskError(f"'{output}' exists and was not made by an earlier demo; {advice}")
    added: list[str] = []
    for path in sorted(output.iterdir()):
        # The table is written in several formats.
        if path.stem != TABLE_NAME and path.name not in (OLD_FILE, REPORT_FILE, RUN_FOLDER):
            added.append(path.name)
    if added:
        raise CrossTaskError(f"'{output}' holds something that no demo made ({', '.join(added[:3])}); {advice}")


def _is_marked(path: Path) -> bool:
    """Whether a demo wrote this file."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("made_by") == MADE_BY
    except (OSError, ValueError, AttributeError):
        return False
