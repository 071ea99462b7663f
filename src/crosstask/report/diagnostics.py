"""Why a run went as it did, as plain data from its events; what the record does not have stays empty."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from crosstask.report.series import MAX_POINTS_PER_CHART, History, Point, last_values, thin, thin_together
from crosstask.runs.events import (
    DevEvaluation,
    HeldOutLosses,
    StackingFitted,
    TransferFacts,
    Update,
    WeightingFacts,
)

MAX_POINTS_OF_ALL_LOSSES = 2000
"""Points in the charts of all tasks' losses together."""
MAX_POINTS_OF_NOISE = 40
"""Points of a curve that jumps from one evaluation to the next, so that its trend can be seen."""
MAX_CELLS = 500
MAX_ROWS, MAX_COLUMNS = 40, 25
"""Of one label map: the target labels with the largest sums stay, and the first source labels."""
MAX_PATHS = 8
"""Source labels whose entries are plotted over time."""
MAX_MERGES, MAX_BRANCHES = 100, 20
"""Merges that are shown, the last ones, and of each the first branches."""
TRAINING, HELD_OUT, DEV = "training", "held out", "dev"
BETWEEN_TASKS, WITH_TARGET = "pairs of tasks", "sources against the target"
EFFECTIVE = "effective sample size"

SoftLabels = Mapping[str, Mapping[str, float | None]]
"""What a label map makes of source labels: by source label, the fraction of each target label."""


@dataclass(frozen=True)
class TaskLosses:
    """Losses of one task on its training examples, on held-out examples and on dev, which name the points.

    `gaps` are losses on examples that the task does not train on, minus the training loss up to there.
    """

    task: str
    points: tuple[Point, ...]
    gaps: tuple[Point, ...]

    @property
    def last_gaps(self) -> dict[str, float]:
        """The last difference from the training loss, by kind of loss."""
        return last_values(self.gaps)


@dataclass(frozen=True)
class LabelMap:
    """What label transfer made of a source's labels at the last evaluation: `fractions[source label][target label]`.

    `paths` follow, over the evaluations, the largest entry of each source label.
    """

    target: str
    source: str
    target_labels: tuple[str, ...]
    fractions: Mapping[str, Mapping[str, float]]
    paths: tuple[Point, ...]
    is_cut: bool

    @property
    def largest_entries(self) -> dict[str, str]:
        """The target label with the largest fraction, by source label."""
        return _largest_entries(self.fractions)


@dataclass(frozen=True)
class Alignment:
    """Similarity of the covariances of a source and a target, without and with the alignment matrices."""

    target: str
    source: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class AdapterAttention:
    """The fraction of a target's fusion that one adapter has in each layer."""

    target: str
    adapter: str
    layers: tuple[float, ...]


@dataclass(frozen=True)
class Merge:
    """A merge of branches: by branch its weight and its held-out loss alone, and the loss of what they were merged to.

    `update` counts over all phases.
    """

    update: int
    weights: Mapping[str, float]
    losses: Mapping[str, float | None]
    merged_loss: float | None


@dataclass(frozen=True)
class Contribution:
    """What a source gives a stacked model: the cross-validated loss with all sources and without this one."""

    target: str
    source: str
    loss: float
    loss_without: float

    @property
    def gain(self) -> float:
        """By how much the loss is lower with the source."""
        return self.loss_without - self.loss


@dataclass(frozen=True)
class Diagnostics:
    """All diagnostics of a run; points are over updates, counted over all phases."""

    similarities: tuple[Point, ...] = ()
    conflicts: tuple[Point, ...] = ()
    losses: tuple[TaskLosses, ...] = ()
    effective_sample_size: tuple[Point, ...] = ()
    label_maps: tuple[LabelMap, ...] = ()
    alignments: tuple[Alignment, ...] = ()
    attention: tuple[AdapterAttention, ...] = ()
    merges: tuple[Merge, ...] = ()
    contributions: tuple[Contribution, ...] = ()


def diagnose(history: History) -> Diagnostics:
    """All diagnostics that the events of a run allow."""

    def conflicts(event: WeightingFacts) -> dict[str, float | None]:
        facts = event.facts
        return {BETWEEN_TASKS: facts.get("conflict"), WITH_TARGET: facts.get("conflict_with_target")}

    def sample_size(event: WeightingFacts) -> dict[str, float | None]:
        return {EFFECTIVE: event.facts.get("effective_sample_size")}

    similarities = history.series(WeightingFacts, lambda event: event.facts.get("similarities") or {})
    return Diagnostics(
        similarities=thin_together(similarities),
        conflicts=thin(history.series(WeightingFacts, conflicts), MAX_POINTS_OF_NOISE),
        losses=tuple(_task_losses(history)),
        effective_sample_size=thin_together(history.series(WeightingFacts, sample_size)),
        label_maps=tuple(_label_maps(history)),
        alignments=tuple(_alignments(history)),
        attention=tuple(_attention(history)),
        merges=tuple(_merges(history)),
        contributions=tuple(_contributions(history)),
    )


def _task_losses(history: History) -> list[TaskLosses]:
    """Of each task that has a loss on examples it does not train on."""
    training = _by_task(TRAINING, history.series(Update, lambda event: event.losses))
    dev = _by_task(DEV, history.series(DevEvaluation, lambda event: {event.task: event.loss}))
    held_out = _by_task(HELD_OUT, history.series(HeldOutLosses, lambda event: event.losses))
    tasks = list(dict.fromkeys([*held_out, *dev]))
    max_points = min(MAX_POINTS_PER_CHART, MAX_POINTS_OF_ALL_LOSSES // max(1, len(tasks)))
    losses = []
    for task in tasks:
        points = list(training.get(task, []))
        gaps: list[Point] = []
        for unseen in (held_out.get(task, []), dev.get(task, [])):
            gaps += loss_gaps(training.get(task, []), unseen)
            points += unseen
        losses.append(TaskLosses(task, thin_together(points, max_points), thin(gaps, MAX_POINTS_OF_NOISE)))
    return losses


def loss_gaps(training: Sequence[Point], unseen: Sequence[Point]) -> list[Point]:
    """Each loss on unseen examples minus the mean training loss since the one before it.

    >>> training = [Point("joint", update, "training", 2.0 - 0.5 * update) for update in (1, 2, 3)]
    >>> loss_gaps(training, [Point("joint", 2, "dev", 1.5), Point("joint", 3, "dev", 1.0)])
    [Point(phase='joint', update=2, name='dev', value=0.25), Point(phase='joint', update=3, name='dev', value=0.5)]
    """
    gaps = []
    position = 0
    for point in unseen:
        since = []
        while position < len(training) and training[position].update <= point.update:
            if training[position].phase == point.phase:
                since.append(training[position].value)
            position += 1
        if since:
            gaps.append(replace(point, value=point.value - sum(since) / len(since)))
    return gaps


def _by_task(kind: str, points: Iterable[Point]) -> dict[str, list[Point]]:
    """The points of each task, named by their kind instead."""
    # Held-out losses are of the model after the update whose number they bear, and updates are counted from one.
    shift = 1 if kind == HELD_OUT else 0
    by_task: dict[str, list[Point]] = {}
    for point in points:
        by_task.setdefault(point.name, []).append(replace(point, name=kind, update=point.update + shift))
    return by_task


def _label_maps(history: History) -> list[LabelMap]:
    """The label maps at the last evaluation that has some."""
    maps = []
    for target, by_source in _last_facts(history, "label_map").get("label_map", {}).items():
        for source, soft_labels in by_source.items():
            maps.append(_label_map(history, target, source, soft_labels))
    return maps


def _label_map(history: History, target: str, source: str, complete: SoftLabels) -> LabelMap:
    """The label map between two tasks, cut to what a chart can show."""
    # 1. The target labels with the largest sums stay, in their order.
    sums: dict[str, float] = {}
    for row in complete.values():
        for label, fraction in row.items():
            sums[label] = sums.get(label, 0.0) + (fraction or 0.0)
    largest = set(sorted(sums, key=lambda label: -sums[label])[:MAX_COLUMNS])
    columns = tuple(label for label in sums if label in largest)

    # 2. Of the source labels the first ones stay.
    num_rows = min(MAX_ROWS, MAX_CELLS // max(1, len(columns)))
    fractions: dict[str, dict[str, float]] = {}
    for name, row in list(complete.items())[:num_rows]:
        fractions[name] = {label: round(row.get(label) or 0.0, 4) for label in columns}

    # 3. The largest entry of each row over time, where there were several evaluations.
    followed = list(_largest_entries(fractions).items())[:MAX_PATHS]

    def entries(event: TransferFacts) -> dict[str, float | None]:
        then = (event.facts.get("label_map") or {}).get(target, {}).get(source, {})
        return {f"{name} → {label}": then.get(name, {}).get(label) for name, label in followed}

    paths = thin_together(history.series(TransferFacts, entries))
    if len({point.update for point in paths}) < 2:
        paths = ()
    is_cut = len(columns) < len(sums) or len(fractions) < len(complete)
    return LabelMap(target, source, columns, fractions, paths, is_cut)


def _largest_entries(fractions: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    entries = {}
    for name, row in fractions.items():
        if row:
            label, _ = max(row.items(), key=itemgetter(1))
            entries[name] = label
    return entries


def _alignments(history: History) -> list[Alignment]:
    """Of the last evaluation that has similarities."""
    facts = _last_facts(history, "similarity")
    before = facts.get("similarity_before") or {}
    alignments = []
    for target, sources in facts.get("similarity", {}).items():
        for source, after in sources.items():
            alignments.append(Alignment(target, source, before.get(target, {}).get(source), after))
    return alignments


def _attention(history: History) -> list[AdapterAttention]:
    """Of the last evaluation that has attention over adapters."""
    attention = []
    for target, adapters in _last_facts(history, "attention").get("attention", {}).items():
        for adapter, layers in adapters.items():
            attention.append(AdapterAttention(target, adapter, tuple(layers)))
    return attention


def _merges(history: History) -> list[Merge]:
    """The merges of branches, in their order."""
    merges = []
    for event in history.of(TransferFacts):
        facts = event.facts
        if facts.get("merge_weights"):
            update = history.first_updates.get(event.phase, 0) + event.update
            weights = dict(list(facts["merge_weights"].items())[:MAX_BRANCHES])
            merges.append(Merge(update, weights, facts.get("branch_losses") or {}, facts.get("merged_loss")))
    return merges[-MAX_MERGES:]


def _contributions(history: History) -> list[Contribution]:
    """Of each source to each stacked model that uses what sources say."""
    contributions = []
    for event in history.of(StackingFitted):
        loss = (event.held_out or {}).get("loss")
        for source, facts in (event.held_out_without or {}).items():
            without = facts.get("loss")
            if event.share and loss is not None and without is not None:
                contributions.append(Contribution(event.task, source, loss, without))
    return contributions


def _last_facts(history: History, key: str) -> Mapping[str, Any]:
    """What transfers had to show at the last evaluation that has this key."""
    for event in reversed(history.of(TransferFacts)):
        if event.facts.get(key):
            return event.facts
    return {}
