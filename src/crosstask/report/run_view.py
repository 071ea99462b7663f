"""What a page shows of one run, as plain data: computed from the run folder's files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstask.papers import Paper
from crosstask.report.citations import papers_of_keys, papers_of_recipe
from crosstask.report.diagnostics import Diagnostics, diagnose
from crosstask.report.files import Metrics, RunFiles, read_run_files
from crosstask.report.predictions import EvaluatedTask, group_predictions
from crosstask.report.series import History, Point, thin
from crosstask.runs.events import DevEvaluation, PhaseEnd, PhaseStart, Start, TaskDescription, Update
from crosstask.runs.remarks import Remark, remarks_of

SAME_WEIGHT = 1e-6
"""Weights that differ by no more are the same."""


@dataclass(frozen=True)
class TaskView:
    """A task with its data, and its weight at the end of each phase."""

    name: str
    role: str
    kind: str
    labels: Sequence[str]
    sizes: Mapping[str, int]
    weights: Mapping[str, float | None]


@dataclass(frozen=True)
class Headline:
    """The score that answers the question of a run, and what the same answer for all examples reaches."""

    split: str
    metric: str
    value: float
    majority: float | None = None


@dataclass(frozen=True)
class Phase:
    """A phase of training."""

    name: str
    tasks: Sequence[str]
    first: int  # how many updates came before it
    updates: int
    stopped_early: bool
    kept: str  # which model it ended with: best, last or solved


@dataclass(frozen=True)
class RunView:
    """What the page of a run shows beside its files; all series are over updates, counted over all phases."""

    files: RunFiles
    history: History
    metrics: Metrics
    start: Start
    targets: tuple[str, ...]
    paradigm: str
    tasks: tuple[TaskView, ...]
    phases: tuple[Phase, ...]
    losses: tuple[Point, ...]
    dev_losses: tuple[Point, ...]
    dev_scores: tuple[Point, ...]
    dev_metric: str
    weights: tuple[Point, ...]
    remarks: tuple[Remark, ...]
    diagnostics: Diagnostics
    papers: tuple[Paper, ...]
    evaluated: Mapping[str, EvaluatedTask]

    def headline(self, task: str) -> Headline | None:
        """The main metric, which stands first, on test, or on dev where there is no test set."""
        for split in ("test", "dev"):
            for metric, value in list(self.metrics.scores.get(task, {}).get(split, {}).items())[:1]:
                if value is not None:
                    majority = self.metrics.majority.get(task, {}).get(split, {}).get(metric)
                    return Headline(split, metric, value, majority)
        return None

    @property
    def learns_weights(self) -> bool:
        """Whether weights changed within a phase, so that they say something about the tasks."""
        first: dict[tuple[str, str], float] = {}
        for point in self.weights:
            if abs(first.setdefault((point.phase, point.name), point.value) - point.value) > SAME_WEIGHT:
                return True
        return False

    @property
    def weights_change(self) -> bool:
        """Whether weights differ between updates or phases."""
        return len(self.phases) > 1 or self.learns_weights

    @property
    def kept(self) -> str:
        """Which model the last phase ended with."""
        if not self.phases:
            return "last"
        return self.phases[-1].kept


def read_run(folder: Path) -> RunView:
    """The view of a run folder; of a run that has not finished, what there is so far."""
    return run_view(read_run_files(folder))


def run_view(files: RunFiles) -> RunView:
    """The view of a run from the contents of its files."""
    metrics = files.metrics or Metrics()
    phases = _phases(History(files.events, {}))
    history = History(files.events, {phase.name: phase.first for phase in phases})
    start = next(iter(history.of(Start)), Start([], [], "", None, {}))
    targets = tuple(metrics.targets or start.targets or ())
    paradigm = metrics.paradigm or start.paradigm or ""
    if metrics.papers is None:
        papers = papers_of_recipe(files.recipe, paradigm, start.weighting)
    else:
        papers = papers_of_keys(metrics.papers)
    # The first metric of an evaluation is the one that chooses the model.
    main_metrics = {event.task: next(iter(event.scores), "") for event in history.of(DevEvaluation)}

    def dev_score(event: DevEvaluation) -> dict[str, float | None]:
        return {event.task: event.scores.get(main_metrics[event.task])}

    return RunView(
        files=files,
        history=history,
        metrics=metrics,
        start=start,
        targets=targets,
        paradigm=paradigm,
        tasks=tuple(_tasks(history, targets, metrics)),
        phases=phases,
        losses=thin(history.series(Update, lambda event: event.losses)),
        dev_losses=thin(history.series(DevEvaluation, lambda event: {event.task: event.loss})),
        dev_scores=thin(history.series(DevEvaluation, dev_score)),
        dev_metric=" / ".join(dict.fromkeys(main_metrics.values())),
        weights=thin(history.series(Update, lambda event: event.weights)),
        remarks=tuple(remarks_of(files.events)),
        diagnostics=diagnose(history),
        papers=papers,
        evaluated=group_predictions(files.predictions, history.of(TaskDescription)),
    )


def _phases(history: History) -> tuple[Phase, ...]:
    """The phases that have begun; of one that has not ended, as far as it went."""
    ends = {event.name: event for event in history.of(PhaseEnd)}
    last_updates = {event.phase: event.update for event in history.of(Update)}
    phases: list[Phase] = []
    first = 0
    for start in history.of(PhaseStart):
        end = ends.get(start.name)
        if end is None:
            phase = Phase(start.name, start.tasks, first, last_updates.get(start.name, 0), False, "last")
        else:
            phase = Phase(start.name, start.tasks, first, end.updates, bool(end.stopped_early), end.kept)
        phases.append(phase)
        first += phase.updates
    return tuple(phases)


def _tasks(history: History, targets: Sequence[str], metrics: Metrics) -> list[TaskView]:
    tasks = []
    for task in history.of(TaskDescription):
        role = "target" if task.name in targets else "source"
        weights = {}
        for phase, by_task in metrics.weights.items():
            if task.name in by_task:
                weights[phase] = by_task[task.name]
        tasks.append(TaskView(task.name, role, task.kind, task.labels or (), task.sizes or {}, weights))
    return tasks
