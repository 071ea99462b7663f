"""Methods against each other: the same data, start and budget for each seed, and a table with error bars."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.storage import write_text
from crosstask.studies.compare_runs import Bench, Cell, SeededTasks, run_cells
from crosstask.studies.executors import Place, check_place
from crosstask.studies.formats import to_csv, to_latex, to_markdown
from crosstask.studies.hyperparameters import Grid, make_trials, read_grids
from crosstask.studies.method import DEFAULT_METHODS, Method, Named, Words, read_methods
from crosstask.studies.study import as_training, seed_list
from crosstask.studies.table import SINGLE, Comparison, choose_trials, make_lines
from crosstask.training.config import Training

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
    search: Grid | None = None,
    trials: int | None = None,
    seeds: int | Sequence[int] = 5,
    output: str | Path | None = None,
    jobs: int | None = None,
    on: Place = "local",
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
            with `method`, or `paradigm`, `weighting` and `transfer`, and with what differs in `training` and `search`.
        targets: tasks that matter; all when left out.
        baseline: the method that the others are tested against; "single" when left out, or else the first one.
        encoder: as a recipe names it.
        training: settings of the loop; single ones can also be given by name (`epochs=10`). Epochs are those of the
            largest task.
        search: lists of values to try, by setting of training (`learning_rate`) or option of a weighting or transfer
            (`tawt.every`). For each method and target the mean dev score over seeds chooses; test never does.
        trials: most combinations of a method, drawn from what `search` gives. When left out, all methods must have the
            same number, for who may try more often wins more often.
        seeds: how many, or which.
        output: folder for `cells.jsonl`, which grows run by run, for what each run measured (`runs`), and for the table
            as JSON, CSV, Markdown and LaTeX. What it holds already is not run again.
        jobs: processes side by side; when left out, this one alone, or as many as a Ray cluster has CPUs. A script that
            asks for several needs `if __name__ == "__main__":`.
        on: "local", or "ray" for a Ray cluster: that of `RAY_ADDRESS`, or one on this machine. Its machines must see
            the same files.
        keep_runs: whether `output` keeps the models too, with a page each; a run that was stopped half-way then goes on
            from its last checkpoint.
        progress: show a bar; by default when the error stream is a terminal.
        words: what names of methods stand for, from a recipe.
    """
    words = words or Words()
    if isinstance(methods, Mapping):
        words = Words({**words.defined, **methods}, words.options, words.paradigm)
    chosen = read_methods([methods] if isinstance(methods, str) else list(methods), words)
    tries = make_trials(chosen, read_grids(chosen, words, search), trials)
    is_searched = any(name for own in tries.values() for name in own)
    against = _baseline(baseline, chosen)
    check_place(on)
    if jobs is not None and jobs < 1:
        raise CrossTaskError(f"`jobs` must be at least 1, found {jobs}.")
    if keep_runs and output is None:
        raise CrossTaskError("Runs can be kept only in a folder: give `output` as well.")
    used = seed_list(seeds)
    folder = Path(output) if output is not None else None
    make = tasks if callable(tasks) else partial(_same, tuple(tasks))
    bench = Bench(SeededTasks(make), encoder, as_training(training, settings), chosen, folder, keep_runs, tries)
    metrics = _metrics(bench.tasks(used[0]), [targets] if isinstance(targets, str) else targets, chosen)
    if is_searched:
        _check_dev(bench.tasks(used[0]), metrics)
    cells = [
        Cell(method, target, seed, trial)
        for seed in used
        for target in metrics
        for method, own in tries.items()
        for trial in own
    ]
    here = jobs or (None if on == "ray" else 1)
    rows = run_cells(bench, cells, output=folder, jobs=here, on=on, progress=progress)
    rows, tried = choose_trials(rows, tries, metrics) if is_searched else (rows, ())
    lines, parts = make_lines(rows, chosen, metrics, against, tried)
    described = {"encoder": encoder, "training": asdict(bench.training)}
    comparison = Comparison(lines, against, metrics, parts, used, chosen, described, tuple(rows.values()), tried)
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


def _check_dev(tasks: Mapping[str, Task], targets: Iterable[str]) -> None:
    for name in targets:
        if tasks[name].dev is None:
            raise CrossTaskError(
                f"`search` chooses on dev, but task '{name}' has no dev set: give one, or more examples to cut it from."
            )


def _same(tasks: Sequence[Task], seed: int) -> Sequence[Task]:
    return tasks
