"""Methods against each other: the same data, start and budget for each seed, and a table with error bars."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Unpack

from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.quoting import brief
from crosstask.storage import write_text
from crosstask.studies.compare_runs import MethodStudy, SeededTasks, run_key
from crosstask.studies.formats import to_csv, to_latex, to_markdown
from crosstask.studies.hyperparameters import SearchSpace, Trials, Tried, make_trials, read_spaces
from crosstask.studies.method import DEFAULT_METHODS, Definitions, Method, Section, read_methods
from crosstask.studies.options import Conditions, StudyOptions
from crosstask.studies.table import SINGLE, Comparison, choose_trials, make_lines
from crosstask.training.problem import overlap_notes
from crosstask.validation import items_of

__all__ = ["Comparison", "compare"]

Tasks = Sequence[Task] | Callable[[int], Sequence[Task]]
"""The tasks, or a function from a seed to them."""
TABLE_NAME = "comparison"
"""Of the files with the table, before their endings."""
DEFAULT_SEEDS = 5


def _to_json(comparison: Comparison) -> str:
    return json.dumps(comparison.to_json(), indent=1, ensure_ascii=False) + "\n"


WRITERS: dict[str, Callable[[Comparison], str]] = {
    "json": _to_json,
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
}


class CompareOptions(StudyOptions, total=False):
    """Options of `compare` beside those of every study.

    - `baseline`: the method that the others are tested against; "single" when left out, or else the first one;
    - `search`: lists of values to try, by setting of training (`learning_rate`) or option of a weighting or transfer
      (`tawt.every`). For each method and target the mean dev score over seeds chooses; test never does;
    - `trials`: at most so many combinations of a method, sampled from what `search` gives. When left out, all methods
      must have the same number, since who may try more often wins more often;
    - `keep_runs`: whether `output` keeps the models too, with a page each; a run that was stopped half-way then goes on
      from its last checkpoint.
    """

    baseline: str | None
    search: SearchSpace | None
    trials: int | None
    keep_runs: bool


def compare(
    tasks: Tasks,
    methods: Sequence[str] | Mapping[str, Section] = DEFAULT_METHODS,
    *,
    targets: str | Sequence[str] | None = None,
    **options: Unpack[CompareOptions],
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
        options: `encoder` ("minilm" when left out), `training` or single settings of it by name (`epochs=10`), `seeds`
            (5), `baseline`, `search`, `trials`, `output`, `keep_runs`, `jobs`, `on` and `progress`; see
            `CompareOptions` and `StudyOptions`. `output` also gets what each run measured (`runs`), and the table as
            JSON, CSV, Markdown and LaTeX.
    """
    definitions = Definitions()
    if isinstance(methods, Mapping):
        definitions = Definitions(methods)
    elif isinstance(methods, str):
        methods = [methods]
    else:
        methods = items_of("compare", "methods", methods, str)
    return compare_names(tasks, list(methods), definitions, targets, **options)


def compare_names(
    tasks: Tasks,
    names: Sequence[str],
    definitions: Definitions,
    targets: str | Sequence[str] | None,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """`compare` with methods whose names are defined elsewhere, as in a recipe."""
    if isinstance(targets, str):
        targets = [targets]
    elif targets is not None:
        targets = items_of("compare", "targets", targets, str)
    # Every name and option is checked before data is read.
    methods = read_methods(names, definitions)
    spaces = read_spaces(methods, definitions, options.pop("search", None))
    plan = ComparisonPlan(
        methods,
        make_trials(methods, spaces, options.pop("trials", None)),
        baseline=_baseline(options.pop("baseline", None), methods),
        targets=targets,
        keep_runs=options.pop("keep_runs", False),
    )
    return compare_methods(tasks, plan, Conditions.of(options, encoder="minilm", seeds=DEFAULT_SEEDS))


@dataclass(frozen=True, eq=False)
class ComparisonPlan:
    """What is compared, by names in their order; see `CompareOptions`."""

    methods: Mapping[str, Method]
    trials: Trials
    baseline: str
    targets: Sequence[str] | None = None
    keep_runs: bool = False

    @property
    def is_searched(self) -> bool:
        """Whether dev chooses settings."""
        return any("" not in trials for trials in self.trials.values())


def compare_methods(tasks: Tasks, plan: ComparisonPlan, conditions: Conditions) -> Comparison:
    """Run a comparison and write its table."""
    # 1. Check everything that can be checked before training.
    if plan.keep_runs and conditions.folder is None:
        raise CrossTaskError("Runs can be kept only in a folder: give `output` as well.")
    make_tasks = tasks
    if not callable(make_tasks):
        make_tasks = partial(_same_tasks, items_of("compare", "tasks", make_tasks, Task))
    study = MethodStudy(
        SeededTasks(make_tasks),
        conditions.encoder,
        conditions.training,
        plan.methods,
        conditions.folder,
        plan.keep_runs,
        plan.trials,
        conditions.drop_overlap,
    )
    first_tasks = study.tasks(conditions.seeds[0])
    metrics = _metrics(first_tasks, plan)
    if plan.is_searched:
        _check_dev(first_tasks, metrics)
    # 2. Train what the folder does not hold yet.
    keys = []
    for seed in conditions.seeds:
        for target in metrics:
            for method, trials in plan.trials.items():
                for trial in trials:
                    keys.append(run_key(method, target, seed, trial))
    with study.open(conditions.seeds) as grid:
        rows = grid.run(study.run, keys, jobs=conditions.jobs, on=conditions.on, progress=conditions.progress)
        study.draw_missing_pages(rows)
    # 3. Choose settings by dev scores, and make the table.
    tried: tuple[Tried, ...] = ()
    if plan.is_searched:
        rows, tried = choose_trials(rows, plan.trials, metrics)
    table = make_lines(rows, plan.methods, metrics, plan.baseline, tried)
    comparison = Comparison(
        lines=table.lines,
        baseline=plan.baseline,
        metrics=metrics,
        parts=table.parts,
        seeds=conditions.seeds,
        methods=plan.methods,
        settings={"encoder": conditions.encoder, "training": asdict(conditions.training)},
        cells=tuple(rows.values()),
        tried=tried,
        left_out=_left_out(first_tasks, metrics, plan, conditions),
        alone=table.alone,
        majority=table.majority,
    )
    if conditions.folder is not None:
        for ending, write in WRITERS.items():
            write_text(conditions.folder / f"{TABLE_NAME}.{ending}", write(comparison))
    return comparison


def _baseline(name: str | None, methods: Mapping[str, Method]) -> str:
    if name is None:
        return SINGLE if SINGLE in methods else next(iter(methods))
    if not isinstance(name, str) or name not in methods:
        raise CrossTaskError(
            f"The baseline '{brief(name)}' is not among the methods ({', '.join(methods)}): add it to them, or choose "
            "one."
        )
    return name


def _metrics(tasks: Mapping[str, Task], plan: ComparisonPlan) -> dict[str, str]:
    """The targets, checked, with the metric of each."""
    targets = list(tasks)
    if plan.targets is not None:
        targets = list(dict.fromkeys(plan.targets))
    names = list(targets)
    for method in plan.methods.values():
        names += method.by_target
    for name in names:
        if name not in tasks:
            raise unknown("target", name, tasks)
    if not targets:
        raise CrossTaskError("There is no target: name at least one task that matters.")
    for name in targets:
        if tasks[name].dev is None and tasks[name].test is None:
            raise CrossTaskError(
                f"A comparison needs scores on examples that were not trained on, but task '{name}' has neither dev "
                "nor test: give one, or more examples."
            )
    return {name: chosen_metric(tasks[name].spec).name for name in targets}


def _left_out(
    tasks: Mapping[str, Task], targets: Iterable[str], plan: ComparisonPlan, conditions: Conditions
) -> tuple[str, ...]:
    """What the first seed's sources were not trained on."""
    if not conditions.drop_overlap or not any(method.uses_sources for method in plan.methods.values()):
        return ()
    return tuple(overlap_notes(list(tasks.values()), [tasks[name] for name in targets]))


def _check_dev(tasks: Mapping[str, Task], targets: Iterable[str]) -> None:
    for name in targets:
        if tasks[name].dev is None:
            raise CrossTaskError(
                f"`search` chooses on dev, but task '{name}' has no dev set: give one, or more examples to cut it from."
            )


def _same_tasks(tasks: Sequence[Task], seed: int) -> Sequence[Task]:
    return tasks
