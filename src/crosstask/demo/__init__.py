"""The main job on data that is at hand: every paradigm, several seeds, a table, a page and one whole run folder."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.demo.methods import demo_methods
from crosstask.demo.problem import Problem
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.progress import Progress, make_progress, shown
from crosstask.report import write_comparison_page
from crosstask.report.comparison_view import ComparisonView, comparison_view, read_comparison
from crosstask.report.files import RESULTS_FILE
from crosstask.report.results_file import as_comparison
from crosstask.runs.environment import environment
from crosstask.runs.record import REPORT_FILE, finite
from crosstask.runs.run import Run
from crosstask.storage import new_folder, write_text
from crosstask.training.paradigms import Plan, plan_phases

MADE_BY = "crosstask demo"
RUN_FOLDER = "run"


def run_demo(
    *, text: bool = False, seeds: int = 5, output: Path = Path("runs/demo"), quiet: bool = False
) -> ComparisonView:
    """Compare the paradigms on digits, or on sentences, and write what came out to `output`."""
    check_output(output)
    progress = make_progress(False if quiet else None)
    if text:
        from crosstask.demo.sentences import sentences_problem

        problem = sentences_problem()
    else:
        from crosstask.demo.digits import digits_problem

        problem = digits_problem()
    return compare(problem, range(seeds), output, progress)


def compare(problem: Problem, seeds: Sequence[int], output: Path, progress: Progress) -> ComparisonView:
    """Train every method with every seed, and write results, page and one run folder, all at once at the end."""
    started = time.perf_counter()
    with shown(progress), ExitStack() as few_threads:
        problem.prepare(progress)
        few_threads.enter_context(one_thread())
        cells = []
        progress.start("demo", len(seeds) * len(demo_methods(problem)))
        for seed, method, run, seconds in trained(problem, seeds):
            cells.append({"method": method, "seed": seed, **_measured(run, problem), "seconds": round(seconds, 2)})
            progress.advance(len(cells), f"{method}, seed {seed}")
        results = describe(problem, seeds, cells)
        best = comparison_view(as_comparison(results)).targets[0].chosen
        with new_folder(output) as scratch:
            if best is not None:
                target, sources = problem.make(seeds[0])
                learner = make_learner(problem, best.method, target, sources, seeds[0])
                learner.fit(target, sources, output=scratch / RUN_FOLDER)
                results["run"] = RUN_FOLDER
            results["seconds"] = round(time.perf_counter() - started, 1)
            write_text(scratch / RESULTS_FILE, json.dumps(finite(results), indent=1, ensure_ascii=False) + "\n")
            write_comparison_page(scratch)
    return read_comparison(output)


@contextmanager
def one_thread() -> Iterator[None]:
    """Small layers are quickest on one thread; several spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def trained(problem: Problem, seeds: Sequence[int]) -> Iterator[tuple[int, str, Run, float]]:
    """Every method with every seed: seed, method, run, seconds."""
    for seed in seeds:
        target, sources = problem.make(seed)
        for method in demo_methods(problem):
            begun = time.perf_counter()
            run = make_learner(problem, method, target, sources, seed).fit(target, sources)
            yield seed, method, run, time.perf_counter() - begun


def make_learner(problem: Problem, method: str, target: Task, sources: Sequence[Task], seed: int) -> Learner:
    """A learner whose phases together have the problem's budget of updates."""
    chosen = demo_methods(problem)[method]
    names = (target.name,), tuple(task.name for task in sources)
    sizes = {task.name: len(task.train) for task in (target, *sources)}
    num_phases = len(plan_phases(chosen.paradigm, Plan(*names, sizes, problem.training, None)))
    updates = max(1, (problem.training.updates or 1) // num_phases)
    training = replace(problem.training, updates=updates)
    return Learner(
        problem.encoder,
        paradigm=chosen.paradigm,
        weighting=chosen.weighting,
        transfer=chosen.transfer,
        training=training,
        seed=seed,
        progress=False,
    )


def describe(problem: Problem, seeds: Sequence[int], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the page shows and that somebody else needs to compute it again."""
    target, sources = problem.make(seeds[0])
    methods = demo_methods(problem)
    return {
        "made_by": MADE_BY,
        "title": problem.title,
        "question": problem.question,
        "target": problem.target,
        "metric": chosen_metric(target.spec).name,
        "num_labels": problem.num_labels,
        "methods": [{"name": method.name, "summary": method.summary} for method in methods.values()],
        "tasks": [
            {
                "name": task.name,
                "role": "target" if task is target else "source",
                "summary": problem.summaries[task.name],
                "labels": list(task.labels),
                "sizes": {part: len(rows) for part, rows in task.splits.items()},
            }
            for task in (target, *sources)
        ],
        "cells": cells,
        "notes": list(problem.notes),
        "settings": {
            "target": problem.target,
            "labels": problem.num_labels,
            "encoder": dict(problem.encoder),
            "methods": {name: asdict(method) for name, method in methods.items()},
            "training": asdict(problem.training),
            "seeds": list(seeds),
        },
        "environment": environment(),
    }


def check_output(output: Path) -> None:
    """A folder may be written over only if an earlier demo made it, and nothing was added to it since."""
    if not output.exists():
        return
    advice = "nothing was written over. Choose another folder with --output."
    results = output / RESULTS_FILE
    try:
        marker = json.loads(results.read_text(encoding="utf-8")).get("made_by")
    except (OSError, ValueError, AttributeError):
        marker = None
    if marker != MADE_BY:
        raise CrossTaskError(f"'{output}' exists and was not made by an earlier demo; {advice}")
    added = sorted({path.name for path in output.iterdir()} - {RESULTS_FILE, REPORT_FILE, RUN_FOLDER})
    if added:
        raise CrossTaskError(f"'{output}' holds something that no demo made ({', '.join(added[:3])}); {advice}")


def _measured(run: Run, problem: Problem) -> dict[str, Any]:
    return {"scores": run.scores[problem.target], "weights": run.metrics["weights"]}
