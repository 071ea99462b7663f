"""Charts as Vega-Lite specifications, made with Altair; the page draws them with the library that it carries itself.

Text and lines are drawn in the page's own text colour (`currentColor`), so that one drawing serves light, dark and
print; the colours of tasks are of middle lightness and stand out on both.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crosstask.report.comparison import ComparisonRows
from crosstask.report.rows import PhaseRow, Point, RunRows

PALETTE = (
    "#3b7fd4", "#d9772b", "#2f9e73", "#a566c9", "#c9527f", "#2a97ad", "#a58516", "#7d8790", "#cf5148", "#8a7557",
)  # fmt: skip
INSTALL_CHARTS = 'pip install "crosstask[report]"'
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


@dataclass(frozen=True)
class Chart:
    """A drawing with what to say about it; `legend` names the colours."""

    key: str
    spec: dict[str, Any]
    spoken: str
    caption: str
    legend: Mapping[str, str]


def charts_available() -> bool:
    """Whether both packages are there: the one that describes charts and the one that carries the drawing library."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def javascript() -> str:
    """The drawing library in one piece, for the version that the specifications are written for."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    known = vl_convert.get_vegalite_versions()
    make: Any = vl_convert.javascript_bundle  # its types ask for a snippet, which it does not need
    bundle: str = make(vl_version=version if version in known else known[-1])
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def colours(tasks: Sequence[str]) -> dict[str, str]:
    """A colour per task, the same in every chart of a page; the first is the target's."""
    return {task: PALETTE[place % len(PALETTE)] for place, task in enumerate(tasks)}


def run_charts(run: RunRows) -> list[Chart]:
    """Losses, dev scores and weights over the updates of a run."""
    names = [task.name for task in run.tasks] or sorted({point.task for point in run.losses})
    colour = colours(names)
    charts = []
    if run.losses:
        charts.append(_losses(run, colour))
    if run.dev_scores:
        charts.append(_dev_scores(run, colour))
    if run.weights and len(names) > 1 and len({point.task for point in run.weights}) > 1:
        charts.append(_weights(run, colour))
    return charts


def comparison_charts(rows: ComparisonRows) -> list[Chart]:
    """Scores over seeds, and what each task counted in each method."""
    charts = []
    if any(cell.test is not None for cell in rows.cells):
        charts.append(_scores_over_seeds(rows))
    if any(len(weights) > 1 for method in rows.methods for weights in method.weights.values()):
        charts.append(_weights_of_methods(rows))
    return charts


def _losses(run: RunRows, colour: Mapping[str, str]) -> Chart:
    import altair as alt

    trained = list(dict.fromkeys(point.task for point in run.losses))
    held_out = [point for point in run.dev_losses if point.task in run.targets]
    layers = [_lines(run.losses, colour, "training loss", "loss", targets=run.targets)]
    if held_out:
        layers.append(_lines(held_out, colour, "dev loss", "loss", targets=run.targets, dash=(4, 3), dots=True))
    chart = alt.layer(*layers, *_phase_marks(run.phases))
    caption = "Training loss of each task, update by update."
    if held_out:
        caption += " Dashed: the target's loss on its dev set."
    if len(run.phases) > 1:
        caption += f" Vertical lines: where {_and([phase.name for phase in run.phases[1:]])} begins."
    spoken = f"Line chart of training losses of {_and(trained)} over {_last(run.losses)} updates."
    return Chart("losses", _finished(chart, 260), spoken, caption, {task: colour[task] for task in trained})


def _dev_scores(run: RunRows, colour: Mapping[str, str]) -> Chart:
    import altair as alt

    watched = list(dict.fromkeys(point.task for point in run.dev_scores))
    lines = _lines(run.dev_scores, colour, run.dev_metric, run.dev_metric, targets=run.targets, dots=True)
    chart = alt.layer(lines, *_phase_marks(run.phases))
    kept = run.phases[-1].kept if run.phases else "last"
    which = "the model of the best look is kept" if kept == "best" else "the last model is kept"
    caption = f"Score on the dev set ({run.dev_metric}) at each look; {which}."
    spoken = f"Line chart of the dev score of {_and(watched)} over {_last(run.dev_scores)} updates."
    return Chart("dev", _finished(chart, 200), spoken, caption, {task: colour[task] for task in watched})


def _weights(run: RunRows, colour: Mapping[str, str]) -> Chart:
    import altair as alt

    weighed = list(dict.fromkeys(point.task for point in run.weights))
    legend = {task: colour[task] for task in weighed}
    if run.weights_change:
        lines = _lines(run.weights, colour, "weight", "weight", targets=run.targets, step=True)
        chart = alt.layer(lines, *_phase_marks(run.phases))
        spoken = f"Line chart of the weights of {_and(weighed)} over {_last(run.weights)} updates."
        return Chart("weights", _finished(chart, 220), spoken, "What each task counts, update by update.", legend)
    last = {point.task: point.value for point in run.weights}
    values = [{"task": task, "weight": weight} for task, weight in last.items()]
    bars = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(cornerRadius=2)
        .encode(
            alt.X("weight:Q", title="weight"),
            alt.Y("task:N", title=None, sort=weighed),
            _colour(legend),
            tooltip=[alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    spoken = "Bar chart of weights: " + ", ".join(f"{task} {weight:.2f}" for task, weight in last.items()) + "."
    caption = "What each task counts; the weights stayed as they are from the first update to the last."
    return Chart("weights", _finished(bars, 28 * len(values) + 20), spoken, caption, {})


def _scores_over_seeds(rows: ComparisonRows) -> Chart:
    import altair as alt

    order = [row.method for row in rows.methods]
    cells = [cell for cell in rows.cells if cell.test is not None]
    values = [{"method": cell.method, "seed": cell.seed, "score": round(cell.test or 0.0, 5)} for cell in cells]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        alt.Y("method:N", title=None, sort=order),
        alt.X("score:Q", title=f"{rows.metric} on test", scale=alt.Scale(zero=False, nice=True, padding=12)),
    )
    grey = {"color": "#7d8790"}
    boxes = base.mark_boxplot(
        size=20, extent="min-max", opacity=0.35, color=grey["color"], median={"color": "currentColor", "opacity": 1},
        rule=grey,
    )  # fmt: skip
    dots = base.mark_point(filled=True, size=58, opacity=0.9).encode(
        _colour({method: PALETTE[1] if method == "single" else PALETTE[0] for method in order}, field="method"),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("seed:N"),
            alt.Tooltip("score:Q", title=rows.metric, format=".3f"),
        ],
    )
    spoken = "Box plot of test scores over seeds: " + "; ".join(
        f"{row.method} mean {row.score.mean:.3f}" for row in rows.methods if row.score
    )
    caption = (
        f"Each dot is one of {rows.num_seeds} seeds; the box spans the middle half, the line inside is the median."
    )
    return Chart("scores", _finished(alt.layer(boxes, dots), 46 * len(order) + 24), f"{spoken}.", caption, {})


def _weights_of_methods(rows: ComparisonRows) -> Chart:
    import altair as alt

    colour = colours([task.name for task in rows.tasks])
    values, order = [], []
    for row in rows.methods:
        for phase, weights in row.weights.items():
            label = row.method if len(row.weights) == 1 or phase == row.method else f"{row.method}: {phase}"
            order.append(label)
            total = sum(weights.values()) or 1.0
            values += [
                {
                    "method": label,
                    "task": task,
                    "share": round(weight / total, 5),
                    "weight": round(weight, 5),
                    "place": i,
                }
                for i, task in enumerate(colour)
                if (weight := weights.get(task, 0.0)) > 0
            ]
    bars = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(size=20)
        .encode(
            alt.X("share:Q", title="share of the weight", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            alt.Y("method:N", title=None, sort=order),
            _colour(colour),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("method:N"), alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    caption = "What each task counts at the end of training, averaged over seeds; a method of two phases has two bars."
    spoken = f"Stacked bars of the weights of {_and(list(colour))} in each method."
    return Chart("weights", _finished(bars, 36 * len(order) + 24), spoken, caption, colour)


def _lines(
    points: Sequence[Point],
    colour: Mapping[str, str],
    tooltip: str,
    title: str,
    *,
    targets: Sequence[str],
    dash: tuple[int, int] | None = None,
    dots: bool = False,
    step: bool = False,
) -> Any:
    import altair as alt

    values = [
        {"phase": p.phase, "update": p.update, "task": p.task, "value": p.value, "target": p.task in targets}
        for p in points
    ]
    mark: dict[str, Any] = {"interpolate": "step-after" if step else "linear"}
    if dash:
        mark["strokeDash"] = list(dash)
    if dots:
        mark["point"] = {"size": 28, "filled": True}
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(**mark)
        .encode(
            _updates(),
            alt.Y("value:Q", title=title, scale=alt.Scale(zero=step, nice=True)),
            _colour(colour),
            detail=["phase:N"],
            strokeWidth=alt.condition("datum.target", alt.value(2.4), alt.value(1.4)),
            tooltip=[
                alt.Tooltip("task:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("update:Q"),
                alt.Tooltip("value:Q", title=tooltip, format=".4g"),
            ],
        )
    )


def _phase_marks(phases: Sequence[PhaseRow]) -> list[Any]:
    import altair as alt

    begins = [{"update": phase.first, "phase": phase.name} for phase in phases[1:]]
    if not begins:
        return []
    base = alt.Chart(alt.InlineData(values=begins)).encode(_updates())
    return [
        base.mark_rule(color="currentColor", opacity=0.35, strokeDash=[2, 3]),
        base.mark_text(align="left", dx=5, baseline="top", color="currentColor", opacity=0.7).encode(
            text="phase:N", y=alt.value(2)
        ),
    ]


def _updates() -> Any:
    """The axis of updates, the same in every layer."""
    import altair as alt

    return alt.X("update:Q", title="update", axis=alt.Axis(format=",~f"))


def _colour(colour: Mapping[str, str], field: str = "task") -> Any:
    import altair as alt

    scale = alt.Scale(domain=list(colour), range=list(colour.values()))
    return alt.Color(f"{field}:N", scale=scale, legend=None)


def _finished(chart: Any, height: int) -> dict[str, Any]:
    """As wide as the page allows, in the page's own type and colour."""
    axis = {
        "labelColor": "currentColor", "titleColor": "currentColor", "tickColor": "currentColor",
        "domainColor": "currentColor", "gridColor": "currentColor", "gridOpacity": 0.12, "domainOpacity": 0.35,
        "tickOpacity": 0.35, "labelOpacity": 0.85, "titleOpacity": 0.85, "titleFontWeight": "normal",
        "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 150, "tickCount": 6,
    }  # fmt: skip
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    spec["config"] = {
        "font": FONT, "background": None, "view": {"stroke": None}, "axis": axis, "axisY": {"titlePadding": 10},
        "text": {"fontSize": 12},
    }  # fmt: skip
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec.pop("usermeta", None)
    return spec


def _and(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    if len(names) > 6:
        return f"{len(names)} tasks"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _last(points: Sequence[Point]) -> int:
    return max(point.update for point in points)
