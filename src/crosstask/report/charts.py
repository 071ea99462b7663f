"""Charts of pages: Vega-Lite specifications by Altair; the page draws them with the library that it carries itself.

Text and rules are in the page's text color (`currentColor`), so that one chart serves light, dark and print; the colors
of tasks have a middle lightness and stand out on both.
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crosstask.report.series import Point

if TYPE_CHECKING:
    import altair as alt

PALETTE = (
    "#3b7fd4",
    "#d9772b",
    "#2f9e73",
    "#a566c9",
    "#c9527f",
    "#2a97ad",
    "#a58516",
    "#7d8790",
    "#cf5148",
    "#8a7557",
)
GRAY = "#7d8790"
ASIDE = "aside"
"""Prefix of the names of data sets that are only rules to go by; they are not saved with a chart."""
INSTALL_CHARTS = 'pip install "crosstask[report]"'
MAX_WRITTEN_CELLS, MAX_WRITTEN_COLUMNS = 80, 10
"""A heat map of no more cells or columns than this has its values written into them."""
NAME_LIMIT = 190
"""Pixels for names beside an axis."""
MAX_NAMES_IN_WORDS = 6
MAX_MARKED_POINTS = 40
"""A curve of no more points than this has its points marked."""

THEME: Mapping[str, Any] = {
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "tickColor": "currentColor",
        "domainColor": "currentColor",
        "gridColor": "currentColor",
        "gridOpacity": 0.12,
        "domainOpacity": 0.35,
        "tickOpacity": 0.35,
        "labelOpacity": 0.85,
        "titleOpacity": 0.85,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 150,
        "tickCount": 6,
    },
    "axisY": {"titlePadding": 10},
    "text": {"fontSize": 12},
    "aria": False,  # the page itself says what a chart shows
}

Values = Sequence[Mapping[str, Any]]
"""A data set: one object per mark."""
Spec = dict[str, Any]
"""A Vega-Lite specification."""


@dataclass(frozen=True)
class Chart:
    """A chart with its texts.

    - `key`: its name as a file;
    - `description`: what it shows, for readers who cannot see it;
    - `legend`: names of its colors, which stand outside the plot.
    """

    key: str
    spec: Spec
    description: str
    caption: str
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Curves:
    """Curves of one layer of a line chart.

    - `name`: of the data set, which differs between the layers of a chart;
    - `value`: name of the values in tooltips, `name` when left out;
    - `dash`: lengths of strokes and gaps;
    - `steps`: whether a value holds until the next one, on an axis that starts at zero.
    """

    points: Sequence[Point]
    name: str
    value: str | None = None
    dash: tuple[int, int] | None = None
    marked: bool = False
    steps: bool = False


@dataclass(frozen=True)
class LineStyle:
    """What all layers of a line chart over updates have in common.

    - `colors`: by curve;
    - `title`: of the vertical axis;
    - `of`: what a curve is called in tooltips;
    - `bold`: curves that are drawn thicker;
    - `domain`: of the vertical axis, fitted to the values when left out;
    - `has_zero_rule`: whether a rule marks zero.
    """

    colors: Mapping[str, str]
    title: str
    of: str = "task"
    bold: Sequence[str] = ()
    domain: tuple[float, float] | None = None
    has_zero_rule: bool = False
    height: int = 190

    def value_axis(self, *, from_zero: bool = False) -> "alt.Y":
        """The vertical axis."""
        import altair as alt

        if self.domain is None:
            scale = alt.Scale(zero=from_zero, nice=True)
        else:
            scale = alt.Scale(domain=list(self.domain))
        return alt.Y("value:Q", title=self.title, scale=scale)


@dataclass(frozen=True)
class Side:
    """An axis of labels: the field of the values, its labels in order, and the title of the axis."""

    name: str
    labels: Sequence[str]
    title: str = ""


@dataclass(frozen=True)
class Dots:
    """How single values are marked: with the colors of the field `group`, or all in one color."""

    tooltip: Sequence["alt.Tooltip"]
    colors: Mapping[str, str] | None = None
    group: str = "series"
    size: int = 44
    opacity: float = 0.85

    def mark(self, base: "alt.Chart") -> "alt.Chart":
        """The values of a chart as dots."""
        plot = base.mark_point(filled=True, size=self.size, opacity=self.opacity, color=PALETTE[0])
        if self.colors is not None:
            plot = plot.encode(color_scale(self.colors, self.group))
        return plot.encode(tooltip=list(self.tooltip))


class Layers:
    """The layers of one chart, and the data sets that they show.

    Data sets are put into the specification at the end: Altair itself would copy and check each value many times.
    """

    def __init__(self) -> None:
        self.datasets: dict[str, Values] = {}
        self.layers: list[alt.Chart] = []

    def data(self, name: str, values: Values) -> "alt.Chart":
        """A chart of these values, which becomes a layer once it has marks."""
        import altair as alt

        self.datasets[name] = values
        return alt.Chart(alt.NamedData(name=name))

    def rule(self, name: str, values: Values) -> "alt.Chart":
        """The same for values that only guide the eye."""
        return self.data(f"{ASIDE} {name}", values)

    def finish(self, height: int) -> Spec:
        """The specification, as wide as the page allows, with the theme of all charts."""
        import altair as alt

        layered = alt.layer(*self.layers).properties(width="container", height=height)
        spec: Spec = layered.to_dict(validate=False)
        spec["datasets"] = {name: list(values) for name, values in self.datasets.items()}
        spec["config"] = dict(THEME)
        spec["autosize"] = {"type": "fit", "contains": "padding"}
        spec.pop("usermeta", None)
        return spec


def charts_available() -> bool:
    """Whether both packages are installed: the one that describes charts and the one with the JavaScript library."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def javascript() -> str:
    """The JavaScript library in one piece, for the version that the specifications are written for."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    versions = vl_convert.get_vegalite_versions()
    if version not in versions:
        version = versions[-1]
    bundle: Any = vl_convert.javascript_bundle  # its types ask for a snippet, which it does not need
    text: str = bundle(vl_version=version)
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def colors_of(names: Sequence[str]) -> dict[str, str]:
    """A color for each different name; the first is the target's where names are tasks."""
    different = list(dict.fromkeys(names))
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(different)}


def color_scale(colors: Mapping[str, str], name: str = "task") -> "alt.Color":
    """The colors of a field, the same in every layer; the legend stands outside the plot."""
    import altair as alt

    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(f"{name}:N", scale=scale, legend=None)


def line(layers: Sequence[Curves], style: LineStyle, phases: Mapping[str, int]) -> Spec:
    """Curves over updates; `phases` says at which updates phases begin, and all but the first are marked."""
    chart = Layers()
    if style.has_zero_rule:
        chart.layers.append(zero_rule(chart, style.value_axis()))
    for curves in layers:
        chart.layers.append(_curves(chart, curves, style))
    chart.layers += _phase_marks(chart, phases)
    return chart.finish(style.height)


def _curves(chart: Layers, curves: Curves, style: LineStyle) -> "alt.Chart":
    import altair as alt

    values = [
        {"phase": point.phase, "update": point.update, "task": point.name, "value": point.value}
        for point in curves.points
    ]
    mark: dict[str, Any] = {"interpolate": "step-after" if curves.steps else "linear"}
    if curves.dash:
        mark["strokeDash"] = list(curves.dash)
    if curves.marked:
        mark["point"] = {"size": 28, "filled": True}
    is_bold = alt.FieldOneOfPredicate(field="task", oneOf=list(style.bold))
    plot = chart.data(curves.name, values).mark_line(**mark)
    return plot.encode(
        _updates_axis(),
        style.value_axis(from_zero=curves.steps),
        color_scale(style.colors),
        detail=["phase:N"],
        strokeWidth=alt.condition(is_bold, alt.value(2.4), alt.value(1.5)),
        tooltip=[
            alt.Tooltip("task:N", title=style.of),
            alt.Tooltip("phase:N"),
            alt.Tooltip("update:Q"),
            alt.Tooltip("value:Q", title=curves.value or curves.name, format=".4g"),
        ],
    )


def _phase_marks(chart: Layers, phases: Mapping[str, int]) -> Iterator["alt.Chart"]:
    """A vertical rule where a phase begins, with its name; none for the first."""
    import altair as alt

    starts = [{"update": update, "phase": phase} for phase, update in phases.items()][1:]
    if starts:
        base = chart.rule("phases", starts).encode(_updates_axis())
        yield base.mark_rule(color="currentColor", opacity=0.35, strokeDash=[2, 3])
        text = base.mark_text(align="left", dx=5, baseline="top", color="currentColor", opacity=0.7)
        yield text.encode(text="phase:N", y=alt.value(2))


def _updates_axis() -> "alt.X":
    """The same in every layer."""
    import altair as alt

    return alt.X("update:Q", title="update", axis=alt.Axis(format=",~f"))


def zero_rule(chart: Layers, axis: "alt.X | alt.Y") -> "alt.Chart":
    """A rule at zero of this axis, for values that may be above or below."""
    name = str(axis.shorthand).removesuffix(":Q")
    rule = chart.rule("zero", [{name: 0}]).mark_rule(color="currentColor", opacity=0.4)
    return rule.encode(axis)


def bars(weights: Mapping[str, float], colors: Mapping[str, str]) -> Spec:
    """A bar for the weight of each task."""
    import altair as alt

    chart = Layers()
    values = [{"task": task, "weight": weight} for task, weight in weights.items()]
    plot = chart.data("weights", values).mark_bar(cornerRadius=2)
    chart.layers.append(
        plot.encode(
            alt.X("weight:Q", title="weight"),
            alt.Y("task:N", title=None, sort=list(weights)),
            color_scale(colors),
            tooltip=[alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    return chart.finish(28 * len(values) + 20)


def stacked_bars(weights: Mapping[str, Mapping[str, float]], colors: Mapping[str, str]) -> Spec:
    """A bar for each method, divided among the tasks by their weights."""
    import altair as alt

    chart = Layers()
    values = []
    for method, by_task in weights.items():
        total = sum(by_task.values()) or 1.0
        for task in colors:
            weight = by_task.get(task, 0.0)
            if weight > 0:
                fraction = round(weight / total, 5)
                values.append({"method": method, "task": task, "share": fraction, "weight": round(weight, 5)})
    # Within a bar the tasks stand in the order of the legend.
    plot = chart.data("weights", values).transform_calculate(place=f"indexof({json.dumps(list(colors))}, datum.task)")
    chart.layers.append(
        plot.mark_bar(size=16, cornerRadius=1).encode(
            alt.X("share:Q", title="share of the weight", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            alt.Y(
                "method:N",
                title=None,
                sort=list(weights),
                axis=alt.Axis(labelLimit=NAME_LIMIT, ticks=False, domain=False),
            ),
            color_scale(colors),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("method:N"), alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    return chart.finish(30 * len(weights) + 24)


def boxes(values: Values, names: Side, value: "alt.X", style: Dots, *, has_zero_rule: bool = False) -> Spec:
    """A box plot for each name, and each value as a dot."""
    import altair as alt

    chart = Layers()
    if has_zero_rule:
        chart.layers.append(zero_rule(chart, value))
    axis = alt.Axis(labelLimit=NAME_LIMIT, ticks=False, domain=False)
    base = chart.data("points", values).encode(
        alt.Y(f"{names.name}:N", title=names.title or None, sort=list(names.labels), axis=axis), value
    )
    box = base.mark_boxplot(
        size=16,
        extent="min-max",
        opacity=0.35,
        color=GRAY,
        median={"color": "currentColor", "opacity": 1},
        rule={"color": GRAY},
    )
    chart.layers += [box, style.mark(base)]
    return chart.finish(30 * len(names.labels) + 24)


def dots(
    values: Values, x: "alt.X", y: "alt.Y", style: Dots, *, has_zero_rule: bool = False, diagonal: Values = ()
) -> Spec:
    """A scatter plot; `diagonal` holds the two ends of a dashed line, in the fields of the values."""
    chart = Layers()
    if has_zero_rule:
        chart.layers.append(zero_rule(chart, y))
    if diagonal:
        dashed = chart.rule("ideal", diagonal).mark_line(
            color="currentColor", opacity=0.4, strokeDash=[3, 3], strokeWidth=1
        )
        chart.layers.append(dashed.encode(x, y))
    chart.layers.append(style.mark(chart.data("points", values).encode(x, y)))
    return chart.finish(330)


def heat_map(values: Values, across: Side, down: Side, fraction: str = "share", counts: Sequence[str] = ()) -> Spec:
    """Fractions by two fields: the opacity of one color, so that light and dark read the same.

    Args:
        values: the cells.
        across: columns.
        down: rows.
        fraction: the field with the fractions, from 0 to 1.
        counts: further fields for tooltips.
    """
    import altair as alt

    has_few_columns = len(across.labels) <= MAX_WRITTEN_COLUMNS
    angle, room_for_labels = (0, 50) if has_few_columns else (-45, 120)
    gap = alt.Scale(paddingInner=0.05)

    chart = Layers()
    base = chart.data("cells", values).encode(
        alt.X(f"{across.name}:N", title=across.title, sort=list(across.labels), axis=_label_axis(angle), scale=gap),
        alt.Y(f"{down.name}:N", title=down.title, sort=list(down.labels), axis=_label_axis(), scale=gap),
        tooltip=[
            alt.Tooltip(f"{down.name}:N"),
            alt.Tooltip(f"{across.name}:N"),
            alt.Tooltip(f"{fraction}:Q", title="share", format=".1%"),
            *(alt.Tooltip(f"{name}:Q") for name in counts),
        ],
    )
    opacity = alt.Opacity(f"{fraction}:Q", scale=alt.Scale(domain=[0, 1], range=[0.05, 0.85]), legend=None)
    chart.layers.append(base.mark_rect(fill=PALETTE[0], cornerRadius=3, strokeWidth=0).encode(opacity))
    if has_few_columns or len(values) <= MAX_WRITTEN_CELLS:
        is_visible = alt.condition(f"datum.{fraction} >= 0.005", alt.value(0.95), alt.value(0.35))
        text = base.mark_text(color="currentColor")
        chart.layers.append(text.encode(text=alt.Text(f"{fraction}:Q", format=".0%"), opacity=is_visible))
    # Less than 150 pixels have no room for the title of the axis.
    return chart.finish(max(34 * len(down.labels) + room_for_labels, 150))


def _label_axis(angle: int = 0) -> "alt.Axis":
    import altair as alt

    return alt.Axis(grid=False, ticks=False, domain=False, labelLimit=120, labelAngle=angle, labelOverlap="greedy")


def names_in_words(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> names_in_words(["a", "b", "c"]), names_in_words([str(name) for name in range(9)])
    ('a, b and c', '9 tasks')
    """
    if len(names) > MAX_NAMES_IN_WORDS:
        return f"{len(names)} tasks"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
