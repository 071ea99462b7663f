"""What a page shows of a comparison, as plain data: methods x targets x seeds, from the files of its folder alone."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from crosstask.errors import CrossTaskError
from crosstask.papers import Paper
from crosstask.quoting import brief, shown
from crosstask.report import files
from crosstask.report.citations import papers_of_keys, papers_of_names
from crosstask.report.predictions import EvaluatedTask
from crosstask.report.run_view import RunView, read_run
from crosstask.report.series import can_be_shown
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.runs.record import METRICS_FILE, REPORT_FILE

BASELINE = "single"
TARGET_ONLY_0_1 = ("single", "probe")
"""Paradigms that train the target alone, for folders of version 0.1, which do not say so."""
LOWER_IS_BETTER_0_1 = ("rmse",)
"""Metrics whose lower values are better, for folders of version 0.1, which do not say so."""

MAX_NAME_BYTES = 255
"""Of one file, on all common file systems."""


@dataclass(frozen=True, kw_only=True)
class Cell(files.ComparisonCell):
    """One run: a method with a seed, on one target, with its scores in the target's metric."""

    score: float | None
    dev: float | None


@dataclass(frozen=True, kw_only=True)
class MethodView(files.ComparisonLine):
    """A method on a target over all seeds, with the weights at the end of each phase, averaged over seeds."""

    summary: str
    is_chosen: bool
    is_alone: bool
    weights: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class TargetView:
    """The comparison on one target."""

    target: str
    metric: str
    split: str  # what was evaluated
    labels: str | None  # how many labels the target has, in words
    methods: tuple[MethodView, ...]
    cells: tuple[Cell, ...]
    run: RunView | None = None  # of the chosen method, with the median dev score
    alone: EvaluatedTask | None = None  # predictions of training alone with the same seed
    seed: int | None = None  # of the run
    page: Path | None = None  # of the run, if it has one
    majority: Estimate | None = None  # score of always answering what is most common in training

    @property
    def reference(self) -> MethodView | None:
        """What sources are judged by: the best method that trains the target alone."""
        return next((method for method in self.methods if method.is_alone), None)

    @property
    def chosen(self) -> MethodView | None:
        """The method with sources that has the best mean dev score; test scores choose nothing."""
        return next((method for method in self.methods if method.is_chosen), None)

    @property
    def seeds(self) -> list[int]:
        """Of the runs on this target."""
        return sorted({cell.seed for cell in self.cells})

    @property
    def heaviest(self) -> str | None:
        """The source with the largest weight in most runs of the chosen method; None where it learns no weights."""
        if self.run is None or not self.run.learns_weights or self.chosen is None:
            return None
        counts: Counter[str] = Counter()
        for cell in self.cells:
            if cell.method != self.chosen.method:
                continue
            weights = max(cell.weights.values(), key=len, default={})
            sources = {task: weight for task, weight in weights.items() if task != self.target and weight is not None}
            if len(set(sources.values())) > 1:
                counts[max(sources, key=lambda task: sources[task])] += 1
        for source, times in counts.most_common(1):
            if 2 * times > counts.total():
                return source
        return None


@dataclass(frozen=True)
class ComparisonView:
    """What the page of a comparison shows beside its file."""

    file: files.ComparisonFile
    title: str
    targets: tuple[TargetView, ...]
    tasks: Sequence[files.TaskFacts]
    settings: Row  # all that is needed to run it again
    environment: files.Environment
    papers: tuple[Paper, ...]
    set_aside: Mapping[str, int]  # how many runs set a task aside, by task
    ranking: files.Ranking | None


def read_comparison(folder: Path) -> ComparisonView:
    """The view of the folder of a comparison: the table, and one run in full for each target."""
    path = folder / files.COMPARISON_FILE
    file = files.read_json(path, files.ComparisonFile)
    if file is None and (folder / files.RESULTS_FILE).is_file():
        raise CrossTaskError(
            f"'{folder}' holds {files.RESULTS_FILE} and no {files.COMPARISON_FILE}: the demo of version 0.1 wrote such "
            "folders. Run `crosstask demo` again."
        )
    if file is None:
        raise files.damaged(path, "there is no such file")
    _check_names(path, file)
    return comparison_view(file, folder)


def _check_names(path: Path, file: files.ComparisonFile) -> None:
    """What a line or target names must be there."""
    for target in file.metrics:
        if target not in file.parts:
            raise files.damaged(path, f"`parts` has no '{brief(target)}'")
    for line in file.lines:
        if line.method not in file.methods:
            raise files.damaged(path, f"`methods` has no '{brief(line.method)}'")
    for cell in file.cells:
        if cell.run is not None and not _is_inside(cell.run):
            raise files.damaged(path, f"{shown(cell.run)} is no folder inside that of the comparison")


def _is_inside(run: str) -> bool:
    """Whether a path stays in the folder that it is relative to, and can be one at all."""
    path = Path(run)
    has_long_part = any(len(part.encode("utf-8", "replace")) > MAX_NAME_BYTES for part in path.parts)
    return not (path.is_absolute() or ".." in path.parts or "\0" in run or has_long_part)


def comparison_view(file: files.ComparisonFile, folder: Path) -> ComparisonView:
    """The view of a comparison whose runs are in this folder, if they are there at all."""
    targets = tuple(_target_view(file, target, folder) for target in file.metrics)
    environment = file.environment or files.Environment()
    for session in files.read_json_lines(folder / files.CELLS_FILE, files.Session, event="session"):
        environment = file.environment or session.environment  # the last session that added runs
    return ComparisonView(
        file=file,
        title=file.title or folder.resolve().name,
        targets=targets,
        tasks=file.tasks or _tasks_of_runs(file, targets),
        settings=_settings(file),
        environment=environment,
        papers=_papers(file),
        set_aside=_count_set_aside(file, folder),
        ranking=files.read_json(folder / files.RANK_FILE, files.Ranking),
    )


def _target_view(file: files.ComparisonFile, target: str, folder: Path) -> TargetView:
    metric, split = file.metrics[target], file.parts[target]
    cells = []
    for cell in file.cells:
        if cell.target == target and cell.scores is not None:
            score, dev = cell.scores.get(split, {}).get(metric), cell.scores.get("dev", {}).get(metric)
            cells.append(Cell(**vars(cell), score=score, dev=dev))
    selected_method = chosen_method(file, target)
    methods = []
    for line in file.lines:
        if line.target == target:
            method = file.methods[line.method]
            methods.append(
                MethodView(
                    **vars(line),
                    summary=method.summary,
                    is_chosen=line.method == selected_method,
                    is_alone=_is_alone(file, line),
                    weights=_mean_weights(cells, line.method),
                )
            )
    view = TargetView(target, metric, split, file.labels, tuple(methods), tuple(cells))
    return replace(_with_run(view, folder), majority=file.majority.get(target))


def _is_alone(file: files.ComparisonFile, line: files.ComparisonLine) -> bool:
    """Whether it is what sources are judged by on this target; older files do not say so."""
    if line.target in file.alone:
        return line.method == file.alone[line.target]
    method = file.methods[line.method]
    return method.paradigm == BASELINE and not method.weighting and not method.transfer


def _with_run(view: TargetView, folder: Path) -> TargetView:
    """With the median run of the chosen method, if the folder has it."""
    cell = _median_cell(view, folder)
    if cell is None or cell.run is None:
        return view
    run = read_run(folder / cell.run)
    alone = None
    for other in view.cells:
        is_alone = view.reference is not None and other.method == view.reference.method
        if is_alone and other.seed == cell.seed and other.run is not None:
            alone = read_run(folder / other.run).evaluated.get(view.target)
    labels = view.labels
    for task in run.tasks:
        if labels is None and task.name == view.target and task.sizes.get("train"):
            labels = f"{task.sizes['train']:,} labels to train on"
    page = folder / cell.run / REPORT_FILE
    return replace(view, labels=labels, run=run, alone=alone, seed=cell.seed, page=page if page.is_file() else None)


def _median_cell(view: TargetView, folder: Path) -> Cell | None:
    """The run of the chosen method with the median dev score; of an even number the lower one."""
    cells = []
    for cell in view.cells:
        is_of_chosen = view.chosen is not None and cell.method == view.chosen.method
        if is_of_chosen and cell.run is not None and (folder / cell.run).is_dir():
            cells.append(cell)
    scored = [cell for cell in cells if cell.dev is not None]
    if scored:
        scored.sort(key=lambda cell: (cell.dev, cell.seed))
        return scored[(len(scored) - 1) // 2]
    return next(iter(cells), None)


def chosen_method(file: files.ComparisonFile, target: str) -> str | None:
    """The method with sources that has the best mean dev score, the first of equal ones.

    Without dev scores it is the first method with sources.
    """
    metric = file.metrics[target]
    if file.greater_is_better is not None:
        is_greater_better = file.greater_is_better.get(metric, True)
    else:
        is_greater_better = metric not in LOWER_IS_BETTER_0_1
    best, best_score = None, -math.inf
    for line in file.lines:
        if line.target != target or line.score is None or not _uses_sources(file.methods[line.method]):
            continue
        score = -math.inf
        if line.dev is not None:
            score = line.dev.mean if is_greater_better else -line.dev.mean
        if best is None or score > best_score:
            best, best_score = line.method, score
    return best


def _uses_sources(method: files.ComparedMethod) -> bool:
    if method.uses_sources is None:
        return method.paradigm not in TARGET_ONLY_0_1
    return method.uses_sources


def _papers(file: files.ComparisonFile) -> tuple[Paper, ...]:
    """Of all methods, each once."""
    schedule = (file.settings.get("training") or {}).get("schedule")
    papers: list[Paper] = []
    for method in file.methods.values():
        if method.papers is None:
            papers += papers_of_names([method.paradigm, method.weighting, *method.transfer, schedule])
        else:
            papers += papers_of_keys(method.papers)
    return tuple(dict.fromkeys(papers))


def _settings(file: files.ComparisonFile) -> Row:
    """All that is needed to run the comparison again."""
    methods = {}
    for name, method in file.methods.items():
        settings = asdict(method)
        # These say what a method is, not how to run it.
        for key in ("summary", "uses_sources", "papers"):
            del settings[key]
        methods[name] = settings
    targets = list(file.metrics)
    return {"targets": targets, "methods": methods, **file.settings, "seeds": list(file.seeds)}


def _tasks_of_runs(file: files.ComparisonFile, targets: Sequence[TargetView]) -> list[files.TaskFacts]:
    """The tasks as the runs describe them, where the comparison does not."""
    tasks = {}
    for view in targets:
        if view.run is not None:
            for task in view.run.tasks:
                role = "target" if task.name in file.metrics else "source"
                tasks[task.name] = files.TaskFacts(task.name, role, task.kind, task.labels, task.sizes)
    return list(tasks.values())


def _count_set_aside(file: files.ComparisonFile, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for cell in file.cells:
        if cell.run is not None:
            metrics = files.read_json(folder / cell.run / METRICS_FILE, files.Metrics) or files.Metrics()
            counts.update(metrics.set_aside)
    return counts


def _mean_weights(cells: Sequence[Cell], method: str) -> dict[str, dict[str, float]]:
    """What each task counted at the end of each phase of a method, averaged over seeds."""
    # 1. The weights of all seeds.
    values: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        for phase, weights in cell.weights.items():
            for task, weight in weights.items():
                if cell.method == method and can_be_shown(weight):
                    values.setdefault(phase, {}).setdefault(task, []).append(weight)
    # 2. Their means.
    means: dict[str, dict[str, float]] = {}
    for phase, by_task in values.items():
        for task, weights_of_task in by_task.items():
            means.setdefault(phase, {})[task] = statistics.fmean(weights_of_task)
    return means
