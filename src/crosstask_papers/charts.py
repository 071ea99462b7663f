"""Figures of experiments as charts of the report."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from crosstask.report.drawing import ASIDE, PALETTE, Chart, Data, chart_of, colour_scale, finished
from crosstask_papers.experiment import Figure

COLOURS = (*PALETTE, "#5457c8", "#83a32b", "#e08fa8", "#5fb0e0")
"""Enough for the 14 domains of reviews; after that they begin again."""
GREY = "#7d8790"
DIGITS = 5
MOST_TICKS = 8
"""An axis with no more values than this is labelled with the values themselves."""
FEW_COLUMNS, FEW_LINES, MOST_SPOKEN = 10, 6, 14
TICKLESS: dict[str, Any] = {"grid": False, "ticks": False, "domain": False}


def chart(figure: Figure) -> Chart | None:
    """The drawing with its words; None where there is nothing to draw."""
    points = [rounded for point in figure.points if (rounded := _rounded(point)) is not None]
    if not points:
        return None
    names = list(dict.fromkeys(point["series"] for point in points if "series" in point))
    colour = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    data: Data = {}
    made = {"lines": _lines, "boxes": _boxes, "heat map": _heat_map, "dots": _dots}[figure.kind]
    layers, height = made(figure, points, colour, data)
    import altair as alt

    drawn = finished(alt.layer(*layers), data, height)
    legend = {} if figure.kind == "boxes" else colour
    return Chart(figure.title, drawn, f"{figure.title}. {_spoken(figure, points)}", _caption(figure, points), legend)


def _rounded(point: Mapping[str, Any]) -> dict[str, Any] | None:
    """With as many digits as a chart can show; None where a number is none that can be drawn."""
    numbers = {key: value for key, value in point.items() if isinstance(value, float)}
    if not all(map(math.isfinite, numbers.values())):
        return None
    return {**point, **{key: float(f"{value:.{DIGITS}g}") for key, value in numbers.items()}}


def _lines(
    figure: Figure, points: Sequence[Mapping[str, Any]], colour: Mapping[str, str], data: Data
) -> tuple[list[Any], int]:
    """A line with marks per series, and bands below all lines."""
    import altair as alt

    x, y = _x_axis(figure, points), _y_axis(figure)
    layers = _zero_rule(figure, data, y)
    banded = [{key: point[key] for key in ("series", "x", "low", "high")} for point in points if "low" in point]
    if banded:
        strength = 0.14 if len(colour) <= FEW_LINES else 0.07
        base = chart_of(data, f"{ASIDE} bands", banded).mark_area(opacity=strength, strokeWidth=0)
        layers.append(base.encode(x, _y_axis(figure, "low"), alt.Y2("high"), colour_scale(colour, "series")))
    is_dashed = alt.FieldOneOfPredicate(field="series", oneOf=list(figure.dashed))
    drawn = chart_of(data, "points", points).mark_line(strokeWidth=2, point={"size": 30, "filled": True})
    layers.append(
        drawn.encode(
            x,
            y,
            colour_scale(colour, "series"),
            strokeDash=alt.condition(is_dashed, alt.value([5, 4]), alt.value([1, 0])),
            tooltip=_tooltips(figure, "series", "x", "y"),
        )
    )
    return layers, 300


def _boxes(
    figure: Figure, points: Sequence[Mapping[str, Any]], colour: Mapping[str, str], data: Data
) -> tuple[list[Any], int]:
    """Names on the vertical axis, where there is room to read them."""
    import altair as alt

    value = alt.X("y:Q", title=figure.y, scale=alt.Scale(zero=False, nice=True, padding=12))
    names = alt.Axis(labelLimit=240, ticks=False, domain=False)
    base = chart_of(data, "points", points).encode(alt.Y("series:N", title=None, sort=list(colour), axis=names), value)
    box = base.mark_boxplot(
        size=16, extent="min-max", opacity=0.35, color=GREY, median={"color": "currentColor", "opacity": 1},
        rule={"color": GREY},
    )  # fmt: skip
    dots = base.mark_point(filled=True, size=40, opacity=0.8, color=PALETTE[0])
    layers = [*_zero_rule(figure, data, value), box, dots.encode(tooltip=_tooltips(figure, "series", "y"))]
    return layers, 28 * len(colour) + 50


def _dots(
    figure: Figure, points: Sequence[Mapping[str, Any]], colour: Mapping[str, str], data: Data
) -> tuple[list[Any], int]:
    """A scatter."""
    x, y = _x_axis(figure, ()), _y_axis(figure)
    named = ["name"] if any("name" in point for point in points) else []
    drawn = chart_of(data, "points", points).mark_point(filled=True, size=54, opacity=0.8)
    shown = drawn.encode(x, y, colour_scale(colour, "series"), tooltip=_tooltips(figure, "series", *named, "x", "y"))
    return [*_zero_rule(figure, data, y), shown], 340


def _heat_map(
    figure: Figure, points: Sequence[Mapping[str, Any]], colour: Mapping[str, str], data: Data
) -> tuple[list[Any], int]:
    """The strength of one colour, as in the heat maps of a run."""
    import altair as alt

    rows, columns = (list(dict.fromkeys(point[side] for point in points)) for side in ("row", "column"))
    few = len(columns) <= FEW_COLUMNS
    gap = alt.Scale(paddingInner=0.05)
    across = alt.Axis(**TICKLESS, labelLimit=120, labelAngle=0 if few else -90, labelOverlap="greedy")
    base = chart_of(data, "cells", points).encode(
        alt.X("column:N", title=figure.x, sort=columns, axis=across, scale=gap),
        alt.Y("row:N", title=figure.y, sort=rows, axis=alt.Axis(**TICKLESS, labelLimit=120), scale=gap),
        tooltip=[alt.Tooltip("row:N"), alt.Tooltip("column:N"), alt.Tooltip("value:Q", title="share", format=".1%")],
    )
    strength = alt.Opacity("value:Q", scale=alt.Scale(domain=[0, 1], range=[0.05, 0.85]), legend=None)
    layers = [base.mark_rect(fill=PALETTE[0], cornerRadius=3, strokeWidth=0).encode(strength)]
    if few:
        layers.append(base.mark_text(color="currentColor").encode(text=alt.Text("value:Q", format=".0%")))
    return layers, max(34 * len(rows) + (60 if few else 140), 150)  # less has no room for the axis's name


def _x_axis(figure: Figure, points: Sequence[Mapping[str, Any]]) -> Any:
    """Labelled with the values of the points where these are few."""
    import altair as alt

    values = sorted({point["x"] for point in points})
    # A log axis labels powers of ten alone unless its count of ticks is large.
    ticks: dict[str, Any] = {"values": values, "tickCount": 100} if 0 < len(values) <= MOST_TICKS else {}
    axis = alt.Axis(format=",~f", labelOverlap="greedy", **ticks)
    shape: dict[str, Any] = {"type": "log"} if figure.x_log else {"zero": False}  # a log scale has no zero to leave out
    scale = alt.Scale(nice=False, padding=14, **shape)
    return alt.X("x:Q", title=figure.x, scale=scale, axis=axis)


def _y_axis(figure: Figure, field: str = "y") -> Any:
    """The same in every layer."""
    import altair as alt

    return alt.Y(f"{field}:Q", title=figure.y, scale=alt.Scale(zero=False, nice=True))


def _zero_rule(figure: Figure, data: Data, axis: Any) -> list[Any]:
    """Where what is measured is 0, if the figure asks for it."""
    if not figure.zero:
        return []
    rule = chart_of(data, f"{ASIDE} zero", [{"y": 0}]).mark_rule(color="currentColor", opacity=0.6, strokeDash=[3, 3])
    return [rule.encode(axis)]


def _tooltips(figure: Figure, *fields: str) -> list[Any]:
    import altair as alt

    numbers = {"x": (figure.x, ",~f"), "y": (figure.y, ".4~g")}
    return [
        alt.Tooltip(f"{name}:Q", title=numbers[name][0] or name, format=numbers[name][1])
        if name in numbers
        else alt.Tooltip(f"{name}:N")
        for name in fields
    ]


def _caption(figure: Figure, points: Sequence[Mapping[str, Any]]) -> str:
    """The note, and how to read the drawing."""
    found = [figure.note] if figure.note else []
    if figure.kind == "boxes":
        found.append("Each dot is one seed; the box spans the middle half, the line inside is the median.")
    if figure.kind == "heat map":
        found.append("The stronger the colour of a cell, the larger the share.")
    if any("low" in point for point in points):
        found.append("Lines are means over seeds, bands one standard deviation to either side.")
    if figure.dashed:
        found.append("Dashed: the paper's figures.")
    return " ".join(found)


def _spoken(figure: Figure, points: Sequence[Mapping[str, Any]]) -> str:
    """The gist for those who do not see the drawing."""
    if figure.kind == "heat map":
        best: dict[str, Mapping[str, Any]] = {}
        for point in points:
            if point["row"] not in best or point["value"] > best[point["row"]]["value"]:
                best[point["row"]] = point
        ends = [f"{name} mostly to {point['column']}" for name, point in best.items()]
        return f"Heat map: {_listed(ends)}."
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        groups.setdefault(point["series"], []).append(point)
    if figure.kind == "lines":
        ends = [_ends(name, sorted(group, key=lambda point: point["x"])) for name, group in groups.items()]
        return f"Line chart of {figure.y} by {figure.x}: {_listed(ends)}."
    means = [f"{name} mean {fmean(point['y'] for point in group):.4g}" for name, group in groups.items()]
    if figure.kind == "boxes":
        return f"Box plot of {figure.y}: {_listed(means)}."
    return f"{len(points)} dots of {figure.y} against {figure.x}: {_listed(means)}."


def _ends(name: str, line: Sequence[Mapping[str, Any]]) -> str:
    first, last = line[0]["y"], line[-1]["y"]
    return f"{name} {last:.4g}" if len(line) == 1 else f"{name} from {first:.4g} to {last:.4g}"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - MOST_SPOKEN
    return "; ".join([*texts[:MOST_SPOKEN], *([f"{more} more"] if more > 0 else [])])
