"""The charts of one run: losses, dev scores, weights, and the diagnostics of its weighting and transfers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from crosstask.report.charts import (
    MAX_MARKED_POINTS,
    PALETTE,
    Chart,
    Curves,
    LineStyle,
    Side,
    bars,
    charts_available,
    colors_of,
    heat_map,
    line,
    names_in_words,
)
from crosstask.report.diagnostics import (
    BETWEEN_TASKS,
    DEV,
    EFFECTIVE,
    HELD_OUT,
    TRAINING,
    WITH_TARGET,
    LabelMap,
    TaskLosses,
)
from crosstask.report.run_view import RunView
from crosstask.report.series import Point, last_values, names_of

LOSS_COLORS = {TRAINING: PALETTE[0], HELD_OUT: PALETTE[1], DEV: PALETTE[2]}
LOSS_DASHES = {TRAINING: None, HELD_OUT: (2, 2), DEV: (5, 3)}
CONFLICTS = {
    BETWEEN_TASKS: "the pairs of tasks whose gradients point against each other",
    WITH_TARGET: "the sources whose gradients point against the target's",
}
MAX_ENDS = 6
"""Curves whose last values a description names."""
MAX_ROWS_IN_DESCRIPTION = 12


@dataclass(frozen=True)
class LabelMapCharts:
    """A label map, and how its largest entries developed."""

    heat_map: Chart
    paths: Chart | None


@dataclass(frozen=True)
class RunCharts:
    """All charts of a run; None for those that the run has no values for, or that cannot be drawn."""

    weights: Chart | None = None
    similarity: Chart | None = None
    conflict: Chart | None = None
    effective: Chart | None = None
    label_maps: Sequence[LabelMapCharts] = ()
    losses: Chart | None = None
    dev: Chart | None = None
    task_losses: Sequence[Chart] = ()
    gap: Chart | None = None

    @property
    def has_losses(self) -> bool:
        """Whether there is a chart of losses or of dev scores."""
        return bool(self.losses or self.dev or self.task_losses or self.gap)


def run_charts(run: RunView) -> RunCharts:
    """The charts of a run; none where the packages for them are not installed."""
    if not charts_available():
        return RunCharts()
    return RunCharts(
        weights=weights_chart(run),
        similarity=similarity_chart(run),
        conflict=conflict_chart(run),
        effective=effective_chart(run),
        label_maps=label_map_charts(run),
        losses=losses_chart(run),
        dev=dev_chart(run),
        task_losses=task_loss_charts(run),
        gap=gap_chart(run),
    )


def losses_chart(run: RunView) -> Chart | None:
    """Training losses of all tasks, and the target's on dev."""
    if not run.losses:
        return None
    tasks = names_of(run.losses)
    layers = [Curves(run.losses, "training loss")]
    caption = "Training loss of each task, update by update."
    dev_losses = [point for point in run.dev_losses if point.name in run.targets]
    if dev_losses:
        layers.append(Curves(dev_losses, "dev loss", dash=(4, 3), marked=True))
        caption += " Dashed: the target's loss on its dev set."
    if len(run.phases) > 1:
        later_phases = names_in_words([phase.name for phase in run.phases[1:]])
        caption += f" Vertical lines: where {later_phases} begins."
    colors = task_colors(run)
    spec = line(layers, LineStyle(colors, "loss", bold=run.targets, height=260), _phase_starts(run))
    description = f"Line chart of training losses of {names_in_words(tasks)} over {_last_update(run.losses)} updates."
    return Chart("losses", spec, description, caption, _legend(colors, tasks))


def dev_chart(run: RunView) -> Chart | None:
    """The score that chooses the model."""
    if len({point.update for point in run.dev_scores}) < 2:  # a single evaluation is in the table of scores
        return None
    values = {point.value for point in run.dev_scores}
    domain = None
    if len(values) == 1:
        # An axis without extent would be labeled with a rounded number, far from the score.
        domain = (min(values) - 0.1, min(values) + 0.1)
    colors = task_colors(run)
    style = LineStyle(colors, run.dev_metric, bold=run.targets, domain=domain, height=200)
    spec = line([Curves(run.dev_scores, run.dev_metric, marked=True)], style, _phase_starts(run))
    kept = "the best model is kept" if run.kept == "best" else "the last model is kept"
    caption = f"Score on the dev set ({run.dev_metric}) at each evaluation; {kept}."
    tasks = names_of(run.dev_scores)
    description = f"Line chart of the dev score of {names_in_words(tasks)} over {_last_update(run.dev_scores)} updates."
    return Chart("dev", spec, description, caption, _legend(colors, tasks))


def weights_chart(run: RunView) -> Chart | None:
    """The weight of each task; None where there is one task alone."""
    tasks = names_of(run.weights)
    if len(tasks) < 2:
        return None
    colors = _legend(task_colors(run), tasks)
    if run.weights_change:
        style = LineStyle(task_colors(run), "weight", bold=run.targets, height=220)
        spec = line([Curves(run.weights, "weight", steps=True)], style, _phase_starts(run))
        description = f"Line chart of the weights of {names_in_words(tasks)} over {_last_update(run.weights)} updates."
        return Chart("weights", spec, description, "What each task counts, update by update.", colors)
    weights = last_values(run.weights)
    listed = ", ".join(f"{task} {weight:.2f}" for task, weight in weights.items())
    caption = "What each task counts; the weights are the same from the first update to the last."
    return Chart("weights", bars(weights, colors), f"Bar chart of weights: {listed}.", caption)


def similarity_chart(run: RunView) -> Chart | None:
    """The cosine of each source's gradient with the target's."""
    points = run.diagnostics.similarities
    if not points:
        return None
    sources = names_of(points)
    colors = task_colors(run, sources)
    style = LineStyle(colors, "cosine", bold=run.targets, has_zero_rule=True)
    spec = line([Curves(points, "similarity", marked=_has_few(points))], style, _phase_starts(run))
    caption = "Above zero a source's gradient pulls the shared part where the target's does, below zero against it."
    description = (
        f"Line chart of the similarity of the gradients of {names_in_words(sources)} with the target's over "
        f"{_last_update(points)} updates; at the end {_ends(points)}."
    )
    return Chart("similarity", spec, description, caption, _legend(colors, sources))


def conflict_chart(run: RunView) -> Chart | None:
    """The fraction of gradients that oppose each other."""
    points = run.diagnostics.conflicts
    if not points:
        return None
    names = names_of(points)
    colors = colors_of(names)
    style = LineStyle(colors, "share in conflict", of="of", domain=(0.0, 1.0))
    spec = line([Curves(points, "share", marked=_has_few(points))], style, _phase_starts(run))
    caption = f"Share of {' and of '.join(CONFLICTS[name] for name in names)} (0: none does)."
    description = (
        f"Line chart of the share in conflict over {_last_update(points)} updates; at the end {_ends(points)}."
    )
    return Chart("conflict", spec, description, caption, colors)


def effective_chart(run: RunView) -> Chart | None:
    """The effective sample size."""
    points = run.diagnostics.effective_sample_size
    if not points:
        return None
    style = LineStyle({EFFECTIVE: PALETTE[0]}, "examples", of="of")
    spec = line([Curves(points, "examples", marked=_has_few(points), steps=True)], style, _phase_starts(run))
    caption = "How many equally weighted examples the weighted ones are worth: the more unequal, the fewer."
    description = (
        f"Line chart of the effective sample size over {_last_update(points)} updates; at the end {_ends(points)}."
    )
    return Chart("effective", spec, description, caption)


def task_loss_charts(run: RunView) -> list[Chart]:
    """A chart for each task with losses on unseen examples; none where the chart of all losses shows the same."""
    losses = run.diagnostics.losses
    has_held_out = any(HELD_OUT in names_of(task.points) for task in losses)
    if len(names_of(run.losses)) < 2 and not has_held_out:
        return []
    return [_task_losses(run, task, f"losses-{index}") for index, task in enumerate(losses)]


def _task_losses(run: RunView, losses: TaskLosses, key: str) -> Chart:
    layers = []
    kinds = []
    for kind, dash in LOSS_DASHES.items():
        points = [point for point in losses.points if point.name == kind]
        if points:
            kinds.append(kind)
            marked = kind == DEV and _has_few(points)
            layers.append(Curves(points, f"loss on {kind}", "loss", dash, marked))
    spec = line(layers, LineStyle(LOSS_COLORS, "loss", of="loss on"), _phase_starts(run))
    text = "<bdi>{}</bdi>: the further the loss on unseen examples stays above the training loss, the less generalizes."
    description = (
        f"Line chart of the losses of {losses.task} on {names_in_words(kinds)}; at the end {_ends(losses.points)}."
    )
    return Chart(key, spec, description, Markup(text).format(losses.task), _legend(LOSS_COLORS, kinds))


def gap_chart(run: RunView) -> Chart | None:
    """The differences between losses on unseen examples and training losses, all tasks in one chart."""
    names = {DEV: "the dev set", HELD_OUT: "held-out examples (dotted)"}
    gaps: dict[str, list[Point]] = {}
    for kind in names:
        for losses in run.diagnostics.losses:
            for point in losses.gaps:
                if point.name == kind:
                    gaps.setdefault(kind, []).append(replace(point, name=losses.task))
    if not gaps:
        return None
    layers = []
    for kind, points in gaps.items():
        dash = LOSS_DASHES[HELD_OUT] if kind == HELD_OUT else None
        layers.append(Curves(points, f"{kind} less training", dash=dash, marked=kind == DEV and _has_few(points)))
    tasks = names_of(point for points in gaps.values() for point in points)
    colors = task_colors(run, tasks)
    spec = line(layers, LineStyle(colors, "gap", bold=run.targets, has_zero_rule=True), _phase_starts(run))
    caption = (
        f"Loss on {' and on '.join(names[kind] for kind in gaps)} minus the training loss since the evaluation before: "
        "a gap that grows means that a task overfits its training examples."
    )
    ends = "; ".join(f"{kind} {_ends(points)}" for kind, points in gaps.items())
    description = f"Line chart of gaps between losses of {names_in_words(tasks)}; at the end {ends}."
    return Chart("gap", spec, description, caption, _legend(colors, tasks))


def label_map_charts(run: RunView) -> list[LabelMapCharts]:
    """Two charts for each label map."""
    return [LabelMapCharts(_label_heat_map(rows), _label_paths(run, rows)) for rows in run.diagnostics.label_maps]


def _label_heat_map(rows: LabelMap) -> Chart:
    """A row per source label, a column per target label."""
    values = []
    for name, row in rows.fractions.items():
        for label, fraction in row.items():
            values.append({"source label": name, "target label": label, "share": fraction})
    across = Side("target label", rows.target_labels, f"label of {rows.target}")
    down = Side("source label", list(rows.fractions), f"label of {rows.source}")
    caption = Markup(
        "What label transfer made of each label of <bdi>{}</bdi> for <bdi>{}</bdi> at the last evaluation: a row adds "
        "up to 100 %, and the stronger the color of a cell, the more went there."
    ).format(rows.source, rows.target)
    if rows.is_cut:
        caption += " Only a part of the labels is shown."
    ends = [f"{name} mostly to {label}" for name, label in rows.largest_entries.items()]
    listed = ", ".join(ends[:MAX_ROWS_IN_DESCRIPTION])
    description = f"Heat map of labels of {rows.source} by labels of {rows.target}: {listed}."
    return Chart(f"label-map-{rows.source}-{rows.target}", heat_map(values, across, down), description, caption)


def _label_paths(run: RunView, rows: LabelMap) -> Chart | None:
    """How the largest entries of a label map developed."""
    if not rows.paths:
        return None
    colors = colors_of(names_of(rows.paths))
    style = LineStyle(colors, "share", of="entry", domain=(0.0, 1.0))
    spec = line([Curves(rows.paths, "share", marked=_has_few(rows.paths))], style, _phase_starts(run))
    caption = "How the largest entry of each row developed: its share at each evaluation."
    description = f"Line chart of entries of the label map over {_last_update(rows.paths)} updates."
    return Chart(f"label-paths-{rows.source}-{rows.target}", spec, description, caption, colors)


def task_colors(run: RunView, more: Sequence[str] = ()) -> dict[str, str]:
    """A color for each task of a run, the same in all of its charts."""
    tasks = [task.name for task in run.tasks]
    in_series = names_of((*run.losses, *run.dev_scores, *run.weights))
    return colors_of([*tasks, *in_series, *more])


def _phase_starts(run: RunView) -> dict[str, int]:
    return {phase.name: phase.first for phase in run.phases}


def _legend(colors: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: colors[name] for name in names}


def _has_few(points: Sequence[Point]) -> bool:
    """Whether the points can be marked without hiding the curves."""
    return len(points) <= MAX_MARKED_POINTS * len(names_of(points))


def _last_update(points: Sequence[Point]) -> int:
    return max(point.update for point in points)


def _ends(points: Sequence[Point]) -> str:
    """The last values of the first curves, in words."""
    ends = [f"{name} {value:.3g}" for name, value in last_values(points).items()]
    return ", ".join(ends[:MAX_ENDS])
