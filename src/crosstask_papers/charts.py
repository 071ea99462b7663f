"""Figures of experiments as charts of the report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any

from crosstask.report.charts import (
    PALETTE,
    Chart,
    Dots,
    Layers,
    Spec,
    boxes,
    color_scale,
    colors_of,
    dots,
    heat_map,
)
from crosstask_papers.experiment import Figure

if TYPE_CHECKING:
    import altair as alt

COLORS = (*PALETTE, "#5457c8", "#83a32b", "#e08fa8", "#5fb0e0")
"""Enough for the 14 domains of reviews; more names begin again with the first."""
DIGITS = 5
"""Significant digits that a chart can show."""
MAX_TICKS = 8
"""An axis with no more values than this is labeled with the values themselves."""
MAX_DESCRIBED = 14
"""Series that a description names."""
FEW_LINES = 6
"""Bands of no more lines than this can be stronger."""

Point = Mapping[str, Any]
"""A point of a figure; see `Figure` for its keys."""


@dataclass(frozen=True)
class FigureChart:
    """The chart of a figure with its texts; `description` is for readers who cannot see it."""

    chart: Chart
    description: str
    caption: str


def chart(figure: Figure) -> FigureChart | None:
    """The chart with its texts; None where there is nothing to draw."""
    points = _finite_points(figure)
    if not points:
        return None
    colors = colors_of((point["series"] for point in points if "series" in point), COLORS)
    legend: Mapping[str, str] = colors
    if figure.kind == "lines":
        spec = _lines(figure, points, colors)
    elif figure.kind == "boxes":
        spec = _boxes(figure, points)
        legend = {}
    elif figure.kind == "dots":
        spec = _dots(figure, points, colors)
    else:
        spec = heat_map(points, "column", "row", (figure.x, figure.y), "value")
    description = f"{figure.title}. {_description(figure, points)}"
    return FigureChart(Chart(figure.title, spec, legend), description, _caption(figure, points))


def _finite_points(figure: Figure) -> list[Point]:
    """Points whose numbers can be plotted, with as many digits as a chart can show."""
    points: list[Point] = []
    for point in figure.points:
        numbers = {key: value for key, value in point.items() if isinstance(value, float)}
        if all(math.isfinite(value) for value in numbers.values()):
            rounded = {key: float(f"{value:.{DIGITS}g}") for key, value in numbers.items()}
            points.append({**point, **rounded})
    return points


def _lines(figure: Figure, points: Sequence[Point], colors: Mapping[str, str]) -> Spec:
    """A line with marks for each series, and bands below all lines."""
    import altair as alt

    chart = Layers()
    x, y = _x_axis(figure, points), _y_axis(figure)
    if figure.zero:
        chart.add_zero_rule(y)
    bands = [_only(point, "series", "x", "low", "high") for point in points if "low" in point]
    if bands:
        opacity = 0.14 if len(colors) <= FEW_LINES else 0.07
        area = chart.rule("bands", bands).mark_area(opacity=opacity, strokeWidth=0)
        edges = _y_axis(figure, "low"), alt.Y2("high")
        chart.layers.append(area.encode(x, *edges, color_scale(colors, "series")))
    is_dashed = alt.FieldOneOfPredicate(field="series", oneOf=list(figure.dashed))
    plot = chart.data("points", points).mark_line(strokeWidth=2, point={"size": 30, "filled": True})
    chart.layers.append(
        plot.encode(
            x,
            y,
            color_scale(colors, "series"),
            strokeDash=alt.condition(is_dashed, alt.value([5, 4]), alt.value([1, 0])),
            tooltip=_tooltips(figure, "series", "x", "y"),
        )
    )
    return chart.finish(300)


def _only(point: Point, *fields: str) -> dict[str, Any]:
    return {field: point[field] for field in fields}


def _boxes(figure: Figure, points: Sequence[Point]) -> Spec:
    """Names on the vertical axis, where there is room to read them."""
    import altair as alt

    value = alt.X("y:Q", title=figure.y, scale=alt.Scale(zero=False, nice=True, padding=12))
    style = Dots(_tooltips(figure, "series", "y"))
    return boxes(points, "series", value, style, has_zero_rule=figure.zero)


def _dots(figure: Figure, points: Sequence[Point], colors: Mapping[str, str]) -> Spec:
    """A scatter plot."""
    fields = ["series", "x", "y"]
    if any("name" in point for point in points):
        fields.insert(1, "name")
    style = Dots(_tooltips(figure, *fields), colors, size=54, opacity=0.8)
    return dots(points, _x_axis(figure, ()), _y_axis(figure), style, has_zero_rule=figure.zero)


def _x_axis(figure: Figure, points: Sequence[Point]) -> "alt.X":
    """Labeled with the values of the points where these are few."""
    import altair as alt

    values = sorted({point["x"] for point in points})
    axis = alt.Axis(format=",~f", labelOverlap="greedy")
    if 0 < len(values) <= MAX_TICKS:
        # A log axis labels powers of ten alone unless its count of ticks is large.
        axis = alt.Axis(format=",~f", labelOverlap="greedy", values=values, tickCount=100)
    if figure.x_log:
        scale = alt.Scale(nice=False, padding=14, type="log")
    else:
        scale = alt.Scale(nice=False, padding=14, zero=False)
    return alt.X("x:Q", title=figure.x, scale=scale, axis=axis)


def _y_axis(figure: Figure, field: str = "y") -> "alt.Y":
    """The same in every layer."""
    import altair as alt

    return alt.Y(f"{field}:Q", title=figure.y, scale=alt.Scale(zero=False, nice=True))


def _tooltips(figure: Figure, *fields: str) -> list["alt.Tooltip"]:
    import altair as alt

    tooltips = []
    for field in fields:
        if field == "x":
            tooltips.append(alt.Tooltip("x:Q", title=figure.x or "x", format=",~f"))
        elif field == "y":
            tooltips.append(alt.Tooltip("y:Q", title=figure.y or "y", format=".4~g"))
        else:
            tooltips.append(alt.Tooltip(f"{field}:N"))
    return tooltips


def _caption(figure: Figure, points: Sequence[Point]) -> str:
    """The note, and how to read the chart."""
    sentences = []
    if figure.note:
        sentences.append(figure.note)
    if figure.kind == "boxes":
        sentences.append("Each dot is one seed; the box spans the middle half, the line inside is the median.")
    if figure.kind == "heat map":
        sentences.append("The stronger the color of a cell, the larger the share.")
    if any("low" in point for point in points):
        sentences.append("Lines are means over seeds, bands one standard deviation to either side.")
    if figure.dashed:
        sentences.append("Dashed: the paper's figures.")
    return " ".join(sentences)


def _description(figure: Figure, points: Sequence[Point]) -> str:
    """The gist for readers who cannot see the chart."""
    if figure.kind == "heat map":
        rows = _grouped(points, "row")
        ends = []
        for name, row in rows.items():
            largest = max(row, key=itemgetter("value"))
            ends.append(f"{name} mostly to {largest['column']}")
        return f"Heat map: {_listed(ends)}."
    groups = _grouped(points, "series")
    if figure.kind == "lines":
        ends = [_ends(name, sorted(group, key=itemgetter("x"))) for name, group in groups.items()]
        return f"Line chart of {figure.y} by {figure.x}: {_listed(ends)}."
    means = [f"{name} mean {fmean(point['y'] for point in group):.4g}" for name, group in groups.items()]
    if figure.kind == "boxes":
        return f"Box plot of {figure.y}: {_listed(means)}."
    return f"{len(points)} dots of {figure.y} against {figure.x}: {_listed(means)}."


def _grouped(points: Sequence[Point], field: str) -> dict[str, list[Point]]:
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point[field], []).append(point)
    return groups


def _ends(name: str, line: Sequence[Point]) -> str:
    first, last = line[0]["y"], line[-1]["y"]
    if len(line) == 1:
        return f"{name} {last:.4g}"
    return f"{name} from {first:.4g} to {last:.4g}"


def _listed(texts: Sequence[str]) -> str:
    listed = list(texts[:MAX_DESCRIBED])
    if len(texts) > MAX_DESCRIBED:
        listed.append(f"{len(texts) - MAX_DESCRIBED} more")
    return "; ".join(listed)
