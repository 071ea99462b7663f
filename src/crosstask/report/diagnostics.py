"""What a run's history says of why it went as it did, as plain data; what the history does not have stays empty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from crosstask.papers import MT_DNN, Paper
from crosstask.report.series import MOST_IN_A_CHART, Point, of_event, points_of, thin, thin_together
from crosstask.runs.events import Row

MOST_IN_ALL = 2000
"""Points in the charts of all tasks' losses together."""
MOST_OF_NOISE = 40
"""Points of a line that jumps from look to look, so that what is seen is its course."""
MOST_CELLS = 500
MOST_ROWS, MOST_COLUMNS = 40, 25
"""Of one label map: the target labels that got the most stay, and the first source labels."""
MOST_PATHS = 8
"""Source labels whose way over time is drawn."""
TRAINING, HELD_OUT, DEV = "training", "held out", "dev"
BETWEEN_TASKS, WITH_TARGET = "pairs of tasks", "sources against the target"
EFFECTIVE = "effective sample size"


@dataclass(frozen=True)
class TaskLosses:
    """Losses of one task on what it trains on and on what it does not; a point's `task` is one of the three sorts.

    `gaps` are the differences, loss on what it does not train on less the training loss up to there; its points are
    named by the sort that is compared with training.
    """

    task: str
    points: tuple[Point, ...]
    gaps: tuple[Point, ...]

    def last_gap(self, sort: str) -> float | None:
        """Where the difference between this sort of loss and training ended."""
        return next((point.value for point in reversed(self.gaps) if point.task == sort), None)


@dataclass(frozen=True)
class LabelMapRows:
    """What label transfer made of a source's labels at the last look: `shares[source label][target label]`.

    `paths` follow, over the looks, the share of the target label that each source label ended at.
    """

    target: str
    source: str
    target_labels: tuple[str, ...]
    shares: Mapping[str, Mapping[str, float]]
    paths: tuple[Point, ...]
    is_cut: bool


@dataclass(frozen=True)
class AlignmentRow:
    """How alike the covariances of a source and a target are, without and with the alignment."""

    target: str
    source: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class AttentionRow:
    """What share of a target's fusion one adapter has, layer by layer."""

    target: str
    adapter: str
    layers: tuple[float, ...]


@dataclass(frozen=True)
class Diagnostics:
    """All of it; points are over updates, counted over all phases."""

    similarities: tuple[Point, ...]
    conflicts: tuple[Point, ...]
    losses: tuple[TaskLosses, ...]
    effective_sample_size: tuple[Point, ...]
    label_maps: tuple[LabelMapRows, ...]
    alignment: tuple[AlignmentRow, ...]
    attention: tuple[AttentionRow, ...]
    papers: tuple[Paper, ...]


def diagnose(history: Sequence[Row], offset: Mapping[str, int], paradigm: str, recipe: str) -> Diagnostics:
    """Everything that the history has.

    Args:
        history: the rows of the run.
        offset: how many updates came before each phase.
        paradigm: its name.
        recipe: the run's recipe as text, which names the methods.
    """
    looks, transfers = list(of_event(history, "weighting")), list(of_event(history, "transfer"))
    names = {BETWEEN_TASKS: "conflict", WITH_TARGET: "conflict_with_target"}
    return Diagnostics(
        similarities=thin_together(points_of(looks, offset, lambda row: row.get("similarities", {}))),
        conflicts=thin(
            points_of(looks, offset, lambda row: {name: row.get(key) for name, key in names.items()}), MOST_OF_NOISE
        ),
        losses=tuple(_losses(history, offset)),
        effective_sample_size=thin_together(
            points_of(looks, offset, lambda row: {EFFECTIVE: row.get("effective_sample_size")})
        ),
        label_maps=tuple(_label_maps(transfers, offset)),
        alignment=tuple(_alignment(_last(transfers, "similarity"))),
        attention=tuple(
            AttentionRow(target, adapter, tuple(layers))
            for target, adapters in _last(transfers, "attention").get("attention", {}).items()
            for adapter, layers in adapters.items()
        ),
        papers=_papers(history, paradigm, recipe),
    )


def _losses(history: Sequence[Row], offset: Mapping[str, int]) -> list[TaskLosses]:
    """Of each task that has a loss on examples it does not train on."""
    training = points_of(list(of_event(history, "update")), offset, lambda row: row["losses"])
    # Held-out losses are of the model after the update, whose number they bear; updates are counted from one.
    held_out_rows = [{**row, "update": row["update"] + 1} for row in of_event(history, "held_out")]
    dev_rows = list(of_event(history, "dev"))
    own = _by_task(TRAINING, training)
    unseen = {
        HELD_OUT: _by_task(HELD_OUT, points_of(held_out_rows, offset, lambda row: row["losses"])),
        DEV: _by_task(DEV, points_of(dev_rows, offset, lambda row: {row["task"]: row.get("loss")})),
    }
    tasks = list(dict.fromkeys(task for by_task in unseen.values() for task in by_task))
    most = min(MOST_IN_A_CHART, MOST_IN_ALL // max(1, len(tasks)))
    found = []
    for task in tasks:
        trained, others = own.get(task, []), [by_task.get(task, []) for by_task in unseen.values()]
        gaps = [gap for points in others for gap in loss_gaps(trained, points)]
        every = [point for points in (trained, *others) for point in points]
        found.append(TaskLosses(task, thin_together(every, most), thin(gaps, MOST_OF_NOISE)))
    return found


def loss_gaps(training: Sequence[Point], unseen: Sequence[Point]) -> list[Point]:
    """Each loss on unseen examples less the mean training loss since the one before it.

    >>> training = [Point("joint", update, "training", 2.0 - 0.5 * update) for update in (1, 2, 3)]
    >>> loss_gaps(training, [Point("joint", 2, "dev", 1.5), Point("joint", 3, "dev", 1.0)])
    [Point(phase='joint', update=2, task='dev', value=0.25), Point(phase='joint', update=3, task='dev', value=0.5)]
    """
    gaps = []
    place = 0
    for point in unseen:
        since = []
        while place < len(training) and training[place].update <= point.update:
            if training[place].phase == point.phase:
                since.append(training[place].value)
            place += 1
        if since:
            gaps.append(Point(point.phase, point.update, point.task, point.value - sum(since) / len(since)))
    return gaps


def _by_task(sort: str, points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each task, named by their sort instead."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.task, []).append(Point(point.phase, point.update, sort, point.value))
    return found


def _last(rows: Sequence[Row], key: str) -> Row:
    return next((row for row in reversed(rows) if row.get(key)), {})


def _label_maps(transfers: Sequence[Row], offset: Mapping[str, int]) -> list[LabelMapRows]:
    looks = [row for row in transfers if row.get("label_map")]
    last = _last(looks, "label_map").get("label_map", {})
    return [_label_map(looks, offset, target, source) for target, by_source in last.items() for source in by_source]


def _label_map(looks: Sequence[Row], offset: Mapping[str, int], target: str, source: str) -> LabelMapRows:
    whole: Mapping[str, Mapping[str, float]] = looks[-1]["label_map"][target][source]
    labels = list(dict.fromkeys(label for row in whole.values() for label in row))
    weight = {label: sum(row.get(label) or 0.0 for row in whole.values()) for label in labels}
    kept = set(sorted(labels, key=lambda label: -weight[label])[:MOST_COLUMNS])
    columns = tuple(label for label in labels if label in kept)
    rows = list(whole)[: min(MOST_ROWS, MOST_CELLS // max(1, len(columns)))]
    shares = {name: {label: round(whole[name].get(label) or 0.0, 4) for label in columns} for name in rows}
    ends = {name: max(row, key=lambda label: row[label]) for name, row in shares.items() if row}

    def on_the_way(look: Row) -> dict[str, float | None]:
        then = look["label_map"].get(target, {}).get(source, {})
        return {f"{name} → {end}": then.get(name, {}).get(end) for name, end in list(ends.items())[:MOST_PATHS]}

    paths = thin_together(points_of(looks, offset, on_the_way)) if len(looks) > 1 else ()
    is_cut = len(columns) < len(labels) or len(rows) < len(whole)
    return LabelMapRows(target, source, columns, shares, paths, is_cut)


def _alignment(row: Row) -> list[AlignmentRow]:
    before = row.get("similarity_before", {})
    return [
        AlignmentRow(target, source, before.get(target, {}).get(source), after)
        for target, sources in row.get("similarity", {}).items()
        for source, after in sources.items()
    ]


def _papers(history: Sequence[Row], paradigm: str, recipe: str) -> tuple[Paper, ...]:
    settings = _settings(recipe)
    weighting = next((row.get("weighting") for row in of_event(history, "start")), None)
    schedule = (settings.get("training") or {}).get("schedule")
    return papers_of([{"paradigm": paradigm, "weighting": weighting, "transfer": settings.get("transfer")}], schedule)


def papers_of(methods: Sequence[Mapping[str, Any]], schedule: str | None) -> tuple[Paper, ...]:
    """Where methods come from, each a mapping with `paradigm`, `weighting` and `transfer` as recipes have them.

    What is of the user's own making has no paper here.
    """
    from crosstask.training.paradigms import PARADIGMS
    from crosstask.transfer import TRANSFERS
    from crosstask.weighting import WEIGHTINGS

    def name(given: Any) -> str:
        return str(given.get("name") if isinstance(given, Mapping) else given)

    found: list[Paper | None] = []
    for method in methods:
        paradigm = method.get("paradigm")
        found += [PARADIGMS[paradigm].paper] if paradigm in PARADIGMS else []
        parts = [WEIGHTINGS.get(name(method.get("weighting")))]
        parts += [TRANSFERS.get(name(given)) for given in method.get("transfer") or ()]
        found += [item.paper for item in parts if item is not None]
    found += [MT_DNN] if schedule == "mixed" else []
    return tuple(dict.fromkeys(paper for paper in found if paper is not None))


def _settings(recipe: str) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(recipe)
    except yaml.YAMLError:
        return {}
    return settings if isinstance(settings, dict) else {}
