"""The charts of one run: losses, dev scores, weights, and the diagnostics of its weighting and transfers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crosstask.report.charts import (
    MAX_CURVES,
    PALETTE,
    Chart,
    Curves,
    LineStyle,
    bars,
    charts_available,
    colors_of,
    heat_map,
    line,
)
from crosstask.report.diagnostics import DEV, EFFECTIVE, HELD_OUT, TRAINING, LabelMap, TaskLosses
from crosstask.report.run_view import RunView
from crosstask.report.series import Point, last_values

LOSS_COLORS = {TRAINING: PALETTE[0], HELD_OUT: PALETTE[1], DEV: PALETTE[2]}
MAX_TASK_CHARTS = 24
"""Tasks that have a chart of their own; the table of gaps has all of them."""
LOSS_DASHES = {TRAINING: None, HELD_OUT: (2, 2), DEV: (5, 3)}


@dataclass(frozen=True)
class RunCharts:
    """All charts of a run; None for those that the run has no values for, or that cannot be drawn."""

    weights: Chart | None = None
    similarity: Chart | None = None
    conflict: Chart | None = None
    effective: Chart | None = None
    label_maps: Sequence[tuple[LabelMap, Chart, Chart | None]] = ()  # at the end, and over time
    losses: Chart | None = None
    dev: Chart | None = None
    task_losses: Mapping[str, Chart] = field(default_factory=dict)
    gap: Chart | None = None


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
    """Training losses of all tasks, and the targets' on dev."""
    layers = [Curves(run.losses, "training loss", marked=False)]
    dev_losses = [point for point in run.dev_losses if point.name in run.targets]
    if dev_losses:
        layers.append(Curves(dev_losses, "dev loss", dash=(4, 3), marked=True))
    return line("losses", layers, replace(_task_style(run, "loss"), height=260))


def dev_chart(run: RunView) -> Chart | None:
    """The score that chooses the model."""
    if len({point.update for point in run.dev_scores}) < 2:  # a single evaluation is in the table of scores
        return None
    style = replace(_task_style(run, run.dev_metric), height=200, from_zero=True)
    if {point.value for point in run.dev_scores} == {0.0}:  # from which an axis would have no extent
        style = replace(style, domain=(0.0, 1.0))
    return line("dev", [Curves(run.dev_scores, run.dev_metric, marked=True)], style)


def weights_chart(run: RunView) -> Chart | None:
    """The weight of each task; None where there is one task alone."""
    weights = last_values(run.weights)
    style = replace(_task_style(run, "weight"), height=220)
    if len(weights) < 2:
        return None
    if run.weights_change:
        return line("weights", [Curves(run.weights, "weight", steps=True, marked=False)], style)
    num_left_out = max(0, len(weights) - MAX_CURVES)
    return Chart("weights", bars(weights, style.colors), points=run.weights, num_left_out=num_left_out)


def similarity_chart(run: RunView) -> Chart | None:
    """The cosine of each source's gradient with the target's."""
    style = replace(_task_style(run, "cosine"), has_zero_rule=True)
    return line("similarity", [Curves(run.diagnostics.similarities, "similarity")], style)


def conflict_chart(run: RunView) -> Chart | None:
    """The fraction of gradients that oppose each other."""
    points = run.diagnostics.conflicts
    style = _style(run, "share in conflict", colors_of(last_values(points)), of="of")
    return line("conflict", [Curves(points, "share")], replace(style, domain=(0.0, 1.0)))


def effective_chart(run: RunView) -> Chart | None:
    """The effective sample size."""
    curves = Curves(run.diagnostics.effective_sample_size, "examples", steps=True)
    return line("effective", [curves], _style(run, "examples", {EFFECTIVE: PALETTE[0]}, of="of"))


def task_loss_charts(run: RunView) -> dict[str, Chart]:
    """A chart for each task with losses on unseen examples; none where the chart of all losses shows the same."""
    tasks = run.diagnostics.losses
    has_held_out = any(HELD_OUT in last_values(task.points) for task in tasks)
    charts = {}
    for index, task in enumerate(tasks[:MAX_TASK_CHARTS]):
        chart = _task_losses(run, task, f"losses-{index}")
        if chart is not None and (has_held_out or len(last_values(run.losses)) > 1):
            charts[task.task] = chart
    return charts


def _task_losses(run: RunView, losses: TaskLosses, key: str) -> Chart | None:
    layers = []
    for kind, dash in LOSS_DASHES.items():
        points = [point for point in losses.points if point.name == kind]
        if points:
            marked = None if kind == DEV else False  # dev losses are marked where they are few, others never
            layers.append(Curves(points, f"loss on {kind}", dash, marked=marked))
    return line(key, layers, _style(run, "loss", LOSS_COLORS, of="loss on"))


def gap_chart(run: RunView) -> Chart | None:
    """The differences between losses on unseen examples and training losses, all tasks in one chart."""
    gaps: dict[str, list[Point]] = {DEV: [], HELD_OUT: []}
    for losses in run.diagnostics.losses:
        for point in losses.gaps:
            gaps[point.name].append(replace(point, name=losses.task))
    layers = []
    if gaps[DEV]:
        layers.append(Curves(gaps[DEV], f"{DEV} less training"))
    if gaps[HELD_OUT]:
        layers.append(Curves(gaps[HELD_OUT], f"{HELD_OUT} less training", LOSS_DASHES[HELD_OUT], marked=False))
    return line("gap", layers, replace(_task_style(run, "gap"), has_zero_rule=True))


def label_map_charts(run: RunView) -> list[tuple[LabelMap, Chart, Chart | None]]:
    """Two charts for each label map: a row per source label with a column per target label, and entries over time."""
    charts = []
    for label_map in run.diagnostics.label_maps:
        values = []
        for name, row in label_map.fractions.items():
            for label, fraction in row.items():
                values.append({"source label": name, "target label": label, "share": fraction})
        titles = f"label of {label_map.target}", f"label of {label_map.source}"
        spec = heat_map(values, "target label", "source label", titles)
        style = _style(run, "share", colors_of(last_values(label_map.paths)), of="entry")
        tasks = f"{label_map.source}-{label_map.target}"
        curves = Curves(label_map.paths, "share")
        paths = line(f"label-paths-{tasks}", [curves], replace(style, domain=(0.0, 1.0)))
        charts.append((label_map, Chart(f"label-map-{tasks}", spec), paths))
    return charts


def _style(run: RunView, title: str, colors: Mapping[str, str], of: str) -> LineStyle:
    return LineStyle(colors, title, run.history.first_updates, of)


def _task_style(run: RunView, title: str) -> LineStyle:
    """A color for each task of a run, the same in all of its charts; targets are bold."""
    names = [task.name for task in run.tasks]
    for points in (run.losses, run.dev_scores, run.weights, run.diagnostics.similarities):
        names += last_values(points)
    return LineStyle(colors_of(names), title, run.history.first_updates, bold=run.targets)
