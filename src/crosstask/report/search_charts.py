"""The charts of a search: gains of the candidates, learning curves, the time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crosstask.report.charts import (
    PALETTE,
    Chart,
    Dots,
    Layers,
    bars,
    charts_available,
    color_scale,
    colors_of,
    intervals,
)
from crosstask.report.formatting import metric_name
from crosstask.report.search_view import SearchView

if TYPE_CHECKING:
    import altair as alt

CHOSEN, WITH_SOURCES, ALONE = "chosen", "with sources", "the target alone"
COLORS = {CHOSEN: PALETTE[2], WITH_SOURCES: PALETTE[0], ALONE: PALETTE[1]}
"""Of candidates, as a comparison has them for methods."""
MEASURED, EXPECTED = "measured", "with twice the labels"


@dataclass(frozen=True)
class SearchCharts:
    """All charts of a search; None for those that it has no values for, or that cannot be drawn."""

    gains: Chart | None = None
    labels: Chart | None = None
    times: Chart | None = None


def search_charts(view: SearchView) -> SearchCharts:
    """The charts of a search; none where the packages for them are not installed."""
    if not charts_available():
        return SearchCharts()
    return SearchCharts(gains_chart(view), labels_chart(view), times_chart(view))


def gains_chart(view: SearchView) -> Chart | None:
    """The expected gain of each candidate that was tried, with its interval."""
    import altair as alt

    values = []
    for candidate in view.candidates:
        line = candidate.line
        if line.gain is None or line.interval is None or not line.score.count:
            continue
        group = WITH_SOURCES if line.sources else ALONE
        if line.is_winner:
            group = CHOSEN
        low, high = line.interval
        ends = {"low": round(low, 5), "high": round(high, 5)}
        values.append({"candidate": line.candidate, "group": group, "gain": round(line.gain, 5), **ends})
    if not values:
        return None
    tooltip = [alt.Tooltip("candidate:N"), alt.Tooltip("group:N", title=" ")]
    for name in ("gain", "low", "high"):
        tooltip.append(alt.Tooltip(f"{name}:Q", format="+.3f"))
    title = f"expected gain over {view.file.base or 'the base'} ({metric_name(view.file.metric)})"
    spec = intervals(values, "candidate", "gain", title, Dots(tooltip, COLORS, "group", size=70))
    groups = {value["group"] for value in values}
    return Chart("gains", spec, {group: color for group, color in COLORS.items() if group in groups})


def labels_chart(view: SearchView) -> Chart | None:
    """The score by the number of labels, and what twice as many should bring."""
    if not view.file.learning_curves:
        return None
    colors = colors_of(curve.candidate for curve in view.file.learning_curves)
    measured, expected = _measured_points(view), _expected_points(view)
    counts = sorted({row["labels"] for row in (*measured, *expected)})
    chart, title = Layers(), metric_name(view.file.metric)
    for name, values, dash in ((MEASURED, measured, [1, 0]), (EXPECTED, expected, [4, 3])):
        base = chart.data(name, values).encode(_labels_axis(counts), color_scale(colors, "candidate"))
        chart.layers += _line_with_errors(base, title, dash)
    return Chart("labels", chart.finish(260), colors)


def _measured_points(view: SearchView) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for curve in view.file.learning_curves:
        for point in curve.points:
            error = point.standard_error or 0.0
            rows.append(
                {
                    "candidate": curve.candidate,
                    "labels": point.labels,
                    "score": point.score,
                    "low": point.score - error,
                    "high": point.score + error,
                }
            )
    return rows


def _expected_points(view: SearchView) -> list[dict[str, Any]]:
    """From the end of the curve that the forecast is by, where it is sure, to twice the labels."""
    forecast = view.file.forecast
    sign = 1.0 if view.file.greater_is_better else -1.0
    rows: list[dict[str, Any]] = []
    for curve in view.file.learning_curves:
        if forecast is not None and forecast.candidate == curve.candidate and curve.points:
            labels, score = curve.points[-1].labels, curve.points[-1].score
            low, high = sorted(score + sign * end for end in forecast.interval)
            start = {"labels": labels, "score": score, "low": score, "high": score}
            end = {"labels": 2 * labels, "score": score + sign * forecast.gain, "low": low, "high": high}
            rows += [{"candidate": curve.candidate, **point} for point in (start, end)]
    return rows


def _labels_axis(counts: Sequence[int]) -> "alt.X":
    """On which a doubling is as wide as the next."""
    import altair as alt

    axis, scale = alt.Axis(values=list(counts), format=",d", grid=False), alt.Scale(type="log", nice=False, padding=24)
    return alt.X("labels:Q", title="labels to learn from", scale=scale, axis=axis)


def _line_with_errors(base: "alt.Chart", title: str, dash: Sequence[int]) -> "list[alt.Chart]":
    import altair as alt

    scale = alt.Scale(zero=False, nice=True)
    tooltip = [alt.Tooltip("candidate:N"), alt.Tooltip("labels:Q", format=",d"), alt.Tooltip("score:Q", format=".3f")]
    errors = base.mark_rule(opacity=0.5, strokeWidth=2, strokeDash=list(dash))
    line = base.mark_line(strokeWidth=2, strokeDash=list(dash), point={"size": 50, "filled": True})
    return [
        errors.encode(alt.Y("low:Q", title=title, scale=scale), y2="high:Q"),
        line.encode(alt.Y("score:Q", title=title, scale=scale), tooltip=tooltip),
    ]


def times_chart(view: SearchView) -> Chart | None:
    """Seconds of each step."""
    times = view.file.times
    if not times:
        return None
    return Chart("times", bars(times, dict.fromkeys(times, PALETTE[0]), of="step", value="seconds", digits=1))
