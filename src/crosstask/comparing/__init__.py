"""Methods against each other: the same data, start and budget for each seed, and a table with error bars."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from crosstask.comparing.cells import RUNS_FOLDER, Bench, Cell, SeededTasks, run_cells
from crosstask.comparing.formats import to_csv, to_latex, to_markdown
from crosstask.comparing.methods import DEFAULT_METHODS, Method, Named, Words, read_methods
from crosstask.comparing.table import SINGLE, Comparison, make_lines
from crosstask.errors import CrossTaskError, unknown
from crosstask.evaluation import chosen_metric
from crosstask.processes import num_processes
from crosstask.settings import Training
from crosstask.storage import write_text
from crosstask.tasks import Task
from crosstask.understanding.study import as_training, seed_list

__all__ = ["Comparison", "compare"]

TABLE_NAME = "comparison"
"""Of the files with the table, before their endings."""
WRITERS: dict[str, Callable[[Comparison], str]] = {
    "json": lambda comparison: json.dumps(comparison.to_json(), indent=1, ensure_ascii=False) + "\n",
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
}


def compare(
    tasks: Sequence[Task] | Callable[[int], Sequence[Task]],
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT_METHODS,
    *,
    targets: str | Sequence[str] | None = None,
    baseline: str | None = None,
    encoder: Named = "minilm",
    training: Training | Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] = 5,
    output: str | Path | None = None,
    jobs: int | None = 1,
    keep_runs: bool = False,
    progress: bool | None = None,
    words: Words | None = None,
    **settings: Any,
) -> Comparison:
    """Train every method on every target with every seed, and say which is better and how sure that is.

    With the same seed all methods have the same examples, start and number of updates. Each target has all other tasks
    as sources. Scores are those on test where there is one; each run chooses its model on dev. A method that does not
    go with the tasks keeps a line that says why.

    Args:
        tasks: all tasks, or a function from a seed to them, where every seed has a sample of its own.
        methods: names such as "single", "tawt" or "joint+tawt+label-transfer"; or, by a name of one's own, mappings
            with `method`, or `paradigm`, `weighting` and `transfer`, and with what differs in `training`.
        targets: tasks that matter; all when left out.
        baseline: the method that the others are tested against; "single" when left out, or else the first one.
        encoder: as a recipe names it.
        training: settings of the loop; single ones can also be given by name (`epochs=10`). Epochs are those of the
            largest task.
        seeds: how many, or which.
        output: folder for `cells.jsonl`, which grows run by run, and for the table as JSON, CSV, Markdown and LaTeX.
            What it holds already is not run again.
        jobs: processes side by side; as many as the machine has cores when None. A script that asks for several needs
            `if __name__ == "__main__":`.
        keep_runs: whether each run gets a folder in `output`, with model and page, from which it also goes on when it
            was stopped half-way.
        progress: show a bar; by default when the error stream is a terminal.
        words: what names of methods stand for, from a recipe.
    """
    words = words or Words()
    if isinstance(methods, Mapping):
        words = Words({**words.defined, **methods}, words.options, words.paradigm)
    chosen = read_methods([methods] if isinstance(methods, str) else list(methods), words)
    against = _baseline(baseline, chosen)
    if jobs is not None and jobs < 1:
        raise CrossTaskError(f"`jobs` must be at least 1, found {jobs}.")
    if keep_runs and output is None:
        raise CrossTaskError("Runs can be kept only in a folder: give `output` as well.")
    used = seed_list(seeds)
    folder = Path(output) if output is not None else None
    make = tasks if callable(tasks) else partial(_same, tuple(tasks))
    bench = Bench(
        SeededTasks(make), encoder, as_training(training, settings), chosen,
        folder / RUNS_FOLDER if folder is not None and keep_runs else None,
    )  # fmt: skip
    metrics = _metrics(bench.tasks(used[0]), [targets] if isinstance(targets, str) else targets, chosen)
    cells = [Cell(method, target, seed) for seed in used for target in metrics for method in chosen]
    rows = run_cells(bench, cells, output=folder, jobs=jobs or num_processes(), progress=progress)
    lines, parts = make_lines(rows, chosen, metrics, against)
    described = {"encoder": encoder, "training": asdict(bench.training)}
    comparison = Comparison(lines, against, metrics, parts, used, chosen, described, tuple(rows.values()))
    if folder is not None:
        for ending, write in WRITERS.items():
            write_text(folder / f"{TABLE_NAME}.{ending}", write(comparison))
    return comparison


def _baseline(given: str | None, methods: Mapping[str, Method]) -> str:
    if given is None:
        return SINGLE if SINGLE in methods else next(iter(methods))
    if given not in methods:
        raise CrossTaskError(
            f"The baseline '{given}' is not among the methods ({', '.join(methods)}): add it to them, or choose one."
        )
    return given


def _metrics(tasks: Mapping[str, Task], targets: Sequence[str] | None, methods: Mapping[str, Method]) -> dict[str, str]:
    """The targets, checked, with the metric of each."""
    wanted = list(dict.fromkeys(tasks if targets is None else targets))
    by_target = [name for method in methods.values() for name in method.by_target]
    for name in (*wanted, *by_target):
        if name not in tasks:
            raise unknown("target", name, tasks)
    if not wanted:
        raise CrossTaskError("There is no target: name at least one task that matters.")
    for name in wanted:
        if tasks[name].dev is None and tasks[name].test is None:
            raise CrossTaskError(
                f"A comparison needs scores on examples that were not trained on, but task '{name}' has neither dev "
                "nor test: give one, or more examples."
            )
    return {name: chosen_metric(tasks[name].spec).name for name in wanted}


def _same(tasks: Sequence[Task], seed: int) -> Sequence[Task]:
    return tasks
