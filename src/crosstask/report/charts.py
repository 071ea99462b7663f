"""Charts of pages: Vega-Lite specifications by Altair; the page draws them with the library that it carries itself.

Text and rules are in the page's text color (`currentColor`, see `chart_theme.json`), so that one chart serves light,
dark and print; the colors of tasks have a middle lightness and stand out on both.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import cycle
from typing import TYPE_CHECKING, Any

from crosstask.report.chart_library import ChartLibrary, ChartLibraryError
from crosstask.report.names import short_name
from crosstask.report.series import Point, can_be_shown, last_values

if TYPE_CHECKING:
    import altair as alt

PALETTE = ["#3b7fd4", "#d9772b", "#2f9e73", "#a566c9", "#c9527f", "#2a97ad", "#a58516", "#7d8790", "#cf5148", "#8a7557"]
INSTALL_CHARTS = 'pip install "crosstask[report]"'
ASIDE = "aside"
"""Prefix of the names of data sets that only guide the eye; they are not saved with a chart."""
MAX_WRITTEN_CELLS, MAX_WRITTEN_COLUMNS = 80, 10
"""A heat map of no more cells or columns than this has its values written into them."""
MAX_MARKED_POINTS = 40
"""A curve of no more points than this has its points marked."""
MAX_CURVES = 60
"""Curves or bars of one chart; more can neither be told apart nor drawn in time."""
MAX_NAMES = 6
"""Curves that a description names."""
NAME_LIMIT = 190
"""Pixels for names beside an axis."""

Values = Sequence[Mapping[str, Any]]
"""A data set: one object per mark."""
Spec = dict[str, Any]
"""A Vega-Lite specification."""
_LIBRARY = ChartLibrary()
_FAILURES: list[str] = []
"""Why the JavaScript library could not be made in this process."""


@dataclass(frozen=True)
class Chart:
    """A chart; the template adds what it shows."""

    key: str  # its name as a file
    spec: Spec
    legend: Mapping[str, str] = field(default_factory=dict)  # names of its colors, which stand outside the plot
    points: Sequence[Point] = ()  # of its curves, where it is over updates
    num_left_out: int = 0  # curves or bars, where there are too many to tell apart

    @property
    def names(self) -> str:
        """Names of the curves, as a sentence has them."""
        return names_in_words(list(last_values(self.points)))

    @property
    def num_updates(self) -> int:
        """How far the curves go."""
        return max(point.update for point in self.points)

    @property
    def ends(self) -> str:
        """The last values of the first curves, in words."""
        ends = [f"{short_name(name)} {value:.3g}" for name, value in last_values(self.points).items()]
        return ", ".join(ends[:MAX_NAMES])


@dataclass(frozen=True)
class Curves:
    """Curves of one layer of a line chart."""

    points: Sequence[Point]
    name: str  # of the data set, which differs between the layers of a chart
    dash: tuple[int, int] | None = None  # lengths of strokes and gaps
    steps: bool = False  # a value holds until the next one, on an axis that starts at zero
    marked: bool | None = None  # by default points are marked where they are few

    def mark(self) -> dict[str, Any]:
        """Properties of the mark."""
        mark: dict[str, Any] = {"interpolate": "step-after" if self.steps else "linear"}
        if self.dash:
            mark["strokeDash"] = list(self.dash)
        has_few_points = len(self.points) <= MAX_MARKED_POINTS * len(last_values(self.points))
        if self.marked or (self.marked is None and has_few_points):
            mark["point"] = {"size": 28, "filled": True}
        return mark


@dataclass(frozen=True)
class LineStyle:
    """What all layers of a line chart over updates have in common."""

    colors: Mapping[str, str]  # by curve
    title: str  # of the vertical axis
    phases: Mapping[str, int]  # at which updates phases begin; all but the first are marked
    of: str = "task"  # what a curve is called in tooltips
    bold: Sequence[str] = ()  # curves that are drawn thicker
    domain: tuple[float, float] | None = None  # of the vertical axis, fitted to the values when left out
    has_zero_rule: bool = False
    from_zero: bool = False  # where the axis begins with zero, as a score does
    height: int = 190

    def value_axis(self, *, from_zero: bool = False) -> "alt.Y":
        """The vertical axis."""
        import altair as alt

        scale = alt.Scale(zero=from_zero or self.from_zero, nice=True)
        if self.domain is not None:
            scale = alt.Scale(domain=list(self.domain))
        return alt.Y("value:Q", title=self.title, scale=scale)


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
        """A chart of these values, a layer once it has marks; values that no axis can show are left out."""
        import altair as alt

        self.datasets[name] = [_with_short_names(row) for row in values if _can_be_marked(row)]
        return alt.Chart(alt.NamedData(name=name))

    def rule(self, name: str, values: Values) -> "alt.Chart":
        """The same for values that only guide the eye."""
        return self.data(f"{ASIDE} {name}", values)

    def add_zero_rule(self, axis: "alt.X | alt.Y") -> None:
        """A rule at zero of this axis, for values that may be above or below."""
        name = str(axis.shorthand).removesuffix(":Q")
        rule = self.rule("zero", [{name: 0}]).mark_rule(color="currentColor", opacity=0.4)
        self.layers.append(rule.encode(axis))

    def finish(self, height: int) -> Spec:
        """The specification, as wide as the page allows, with the theme of all charts."""
        import altair as alt

        layered = alt.layer(*self.layers).properties(width="container", height=height)
        spec: Spec = layered.to_dict(validate=False)
        spec["datasets"] = self.datasets
        spec["config"] = json.loads(own_file("chart_theme.json"))
        spec["autosize"] = {"type": "fit", "contains": "padding"}
        spec.pop("usermeta", None)
        return spec


def _can_be_marked(row: Mapping[str, Any]) -> bool:
    return all(can_be_shown(value) for value in row.values() if isinstance(value, int | float))


def _with_short_names(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: short_name(value) if isinstance(value, str) else value for key, value in row.items()}


def charts_available() -> bool:
    """Whether charts can be drawn, as far as is known before the first page."""
    return why_no_charts() is None


def why_no_charts() -> str | None:
    """Why there are no charts, as the end of a sentence; None where there are some."""
    try:
        import altair  # noqa: F401 - describes charts
        import vl_convert  # noqa: F401 - has the JavaScript library
    except ImportError:
        return f"the packages that draw them are not installed; this brings them: {INSTALL_CHARTS}"
    return _FAILURES[0] if _FAILURES else None


def javascript() -> str:
    """The JavaScript library that draws the charts of a page."""
    return _LIBRARY.finish()


def with_or_without_charts(make_page: Callable[[], str]) -> str:
    """A page with charts, or the same with tables where the library for charts turns out to be impossible to make."""
    try:
        if charts_available():
            _LIBRARY.begin()
        return make_page()
    except ChartLibraryError as error:
        _FAILURES.append(str(error))  # no page of this process will have charts
        return make_page()
    finally:
        _LIBRARY.give_up()


@functools.cache
def own_file(name: str) -> str:
    """A file that pages are made of: styles, script, theme of the charts."""
    return (resources.files("crosstask.report") / name).read_text(encoding="utf-8")


def names_in_words(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> names_in_words(["a", "b", "c"]), names_in_words([str(name) for name in range(9)])
    ('a, b and c', '9 tasks')
    """
    if len(names) > MAX_NAMES:
        return f"{len(names)} tasks"
    short_names = [short_name(name) for name in names]
    if len(names) == 1:
        return short_names[0]
    return f"{', '.join(short_names[:-1])} and {short_names[-1]}"


def colors_of(names: Iterable[str], palette: Sequence[str] = PALETTE) -> dict[str, str]:
    """A color for each different name; the first is the target's where names are tasks."""
    return dict(zip(dict.fromkeys(names), cycle(palette), strict=False))


def color_scale(colors: Mapping[str, str], name: str = "task") -> "alt.Color":
    """The colors of a field, the same in every layer; the legend stands outside the plot."""
    import altair as alt

    scale = alt.Scale(domain=[short_name(one) for one in colors], range=list(colors.values()))
    return alt.Color(f"{name}:N", scale=scale, legend=None)


def line(key: str, layers: Sequence[Curves], style: LineStyle) -> Chart | None:
    """Curves over updates; None where there are no points."""
    chart = Layers()
    if style.has_zero_rule:
        chart.add_zero_rule(style.value_axis())
    names = list(last_values(point for curves in layers for point in curves.points))
    if not names:
        return None
    names_to_draw = _curves_to_draw(names, style.bold)
    points: list[Point] = []
    for curves in layers:
        if len(names_to_draw) < len(names):
            curves = replace(curves, points=[point for point in curves.points if point.name in names_to_draw])
        points += curves.points
        chart.layers.append(_curves(chart, curves, style))
    # A rule with a name where each further phase begins.
    starts = _phase_starts(style.phases)
    if starts:
        import altair as alt

        base = chart.rule("phases", starts).encode(_updates_axis())
        chart.layers.append(base.mark_rule(color="currentColor", opacity=0.35, strokeDash=[2, 3]))
        text = base.mark_text(align="left", dx=5, baseline="top", opacity=0.7)
        chart.layers.append(text.encode(text="phase:N", y=alt.value(2)))
    legend = {short_name(name): style.colors[name] for name in last_values(points)}
    return Chart(key, chart.finish(style.height), legend, points, len(names) - len(names_to_draw))


def _phase_starts(phases: Mapping[str, int]) -> list[dict[str, Any]]:
    """Where phases after the first begin; those at the same update, as a solver's before another, share a name.

    >>> _phase_starts({"sources": 0, "probe": 10, "joint": 10})
    [{'update': 10, 'phase': 'probe, joint'}]
    """
    names_by_update: dict[int, list[str]] = {}
    for phase, update in list(phases.items())[1:]:
        names_by_update.setdefault(update, []).append(phase)
    return [{"update": update, "phase": ", ".join(names)} for update, names in names_by_update.items()]


def _curves_to_draw(names: Sequence[str], bold: Sequence[str]) -> set[str]:
    """No more curves than can be told apart: the bold ones first."""
    return set(sorted(names, key=lambda name: name not in bold)[:MAX_CURVES])


def _curves(chart: Layers, curves: Curves, style: LineStyle) -> "alt.Chart":
    import altair as alt

    values = [
        {"phase": point.phase, "update": point.update, "task": point.name, "value": point.value}
        for point in curves.points
    ]
    is_bold = alt.FieldOneOfPredicate(field="task", oneOf=[short_name(name) for name in style.bold])
    return (
        chart.data(curves.name, values)
        .mark_line(**curves.mark())
        .encode(
            _updates_axis(),
            style.value_axis(from_zero=curves.steps),
            color_scale(style.colors),
            detail=["phase:N"],
            strokeWidth=alt.condition(is_bold, alt.value(2.4), alt.value(1.5)),
            tooltip=[
                alt.Tooltip("task:N", title=style.of),
                alt.Tooltip("phase:N"),
                alt.Tooltip("update:Q"),
                alt.Tooltip("value:Q", title=curves.name, format=".4g"),
            ],
        )
    )


def _updates_axis() -> "alt.X":
    """The same in every layer."""
    import altair as alt

    # From the first update to the last, and none in between that there was not.
    scale = alt.Scale(zero=False, nice=False)
    return alt.X("update:Q", title="update", axis=alt.Axis(format=",~f", tickMinStep=1), scale=scale)


def bars(
    values: Mapping[str, float], colors: Mapping[str, str], *, of: str = "task", value: str = "weight", digits: int = 3
) -> Spec:
    """A bar for each value, such as the weight of each task."""
    import altair as alt

    chart = Layers()
    rows = [{of: name, value: number} for name, number in values.items()][:MAX_CURVES]
    plot = chart.data("bars", rows).mark_bar(cornerRadius=2)
    chart.layers.append(
        plot.encode(
            alt.X(f"{value}:Q", title=value),
            alt.Y(f"{of}:N", title=None, sort=[short_name(name) for name in values][:MAX_CURVES]),
            color_scale(colors, of),
            tooltip=[alt.Tooltip(f"{of}:N"), alt.Tooltip(f"{value}:Q", format=f".{digits}f")],
        )
    )
    return chart.finish(28 * len(rows) + 20)


def stacked_bars(weights: Mapping[str, Mapping[str, float]], colors: Mapping[str, str]) -> Spec:
    """A bar for each method, divided among the tasks by their weights."""
    import altair as alt

    chart = Layers()
    values = []
    for method, by_task in weights.items():
        total = sum(by_task.values()) or 1.0
        for index, task in enumerate(colors):
            weight = by_task.get(task, 0.0)
            if weight > 0:
                fraction = round(weight / total, 5)
                values.append(
                    {"method": method, "task": task, "share": fraction, "weight": round(weight, 5), "place": index}
                )
    plot = chart.data("weights", values).mark_bar(size=16, cornerRadius=1)
    chart.layers.append(
        plot.encode(
            alt.X("share:Q", title="share of the weight", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            _names_axis("method"),
            color_scale(colors),
            order=alt.Order("place:Q"),  # as in the legend
            tooltip=[alt.Tooltip("method:N"), alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    return chart.finish(30 * len(weights) + 24)


def boxes(values: Values, group: str, value: "alt.X", style: Dots, *, has_zero_rule: bool = False) -> Spec:
    """A box plot for each value of the field `group`, and each value as a dot."""
    chart = Layers()
    if has_zero_rule:
        chart.add_zero_rule(value)
    base = chart.data("points", values).encode(_names_axis(group), value)
    chart.layers += [base.mark_boxplot(), style.mark(base)]
    return chart.finish(30 * _num_labels(values, group) + 24)


def intervals(values: Values, name: str, value: str, title: str, style: Dots) -> Spec:
    """A dot for each value, and a line from its field `low` to its field `high`; zero has a rule.

    Args:
        values: one object for each name.
        name: field of the names.
        value: field of the values.
        title: of the horizontal axis.
        style: of dots and lines.
    """
    import altair as alt

    chart = Layers()
    axis = alt.X(f"{value}:Q", title=title, scale=alt.Scale(nice=True))
    chart.add_zero_rule(axis)
    base = chart.data("intervals", values).encode(_names_axis(name))
    lines = base.mark_rule(strokeWidth=3, opacity=0.5, strokeCap="round")
    lines = lines.encode(alt.X("low:Q", title=title), x2="high:Q")
    if style.colors is not None:
        lines = lines.encode(color_scale(style.colors, style.group))
    chart.layers += [lines, style.mark(base.encode(axis))]
    return chart.finish(30 * _num_labels(values, name) + 40)


def _names_axis(name: str) -> "alt.Y":
    """Names on the vertical axis, where there is room to read them, in the order of the data."""
    import altair as alt

    axis = alt.Axis(labelLimit=NAME_LIMIT, ticks=False, domain=False)
    return alt.Y(f"{name}:N", title=None, sort=None, axis=axis)


def _num_labels(values: Values, name: str) -> int:
    return len({row[name] for row in values})


def dots(
    values: Values, x: "alt.X", y: "alt.Y", style: Dots, *, has_zero_rule: bool = False, diagonal: Values = ()
) -> Spec:
    """A scatter plot; `diagonal` holds the two ends of a dashed line, in the fields of the values."""
    chart = Layers()
    if has_zero_rule:
        chart.add_zero_rule(y)
    if diagonal:
        plot = chart.rule("ideal", diagonal)
        plot = plot.mark_line(color="currentColor", opacity=0.4, strokeDash=[3, 3], strokeWidth=1)
        chart.layers.append(plot.encode(x, y))
    chart.layers.append(style.mark(chart.data("points", values).encode(x, y)))
    return chart.finish(330)


def heat_map(
    values: Values, across: str, down: str, titles: tuple[str, str], fraction: str = "share", count: str | None = None
) -> Spec:
    """Fractions by two fields: the opacity of one color, so that light and dark read the same.

    Args:
        values: the cells, row by row.
        across: field of the columns.
        down: field of the rows.
        titles: of both.
        fraction: field of the fractions, from 0 to 1.
        count: a further field for tooltips.
    """
    import altair as alt

    has_few_columns = _num_labels(values, across) <= MAX_WRITTEN_COLUMNS
    gap = alt.Scale(paddingInner=0.05)
    tooltip = [alt.Tooltip(f"{down}:N"), alt.Tooltip(f"{across}:N")]
    tooltip.append(alt.Tooltip(f"{fraction}:Q", title="share", format=".1%"))
    if count is not None:
        tooltip.append(alt.Tooltip(f"{count}:Q"))
    chart = Layers()
    base = chart.data("cells", values).encode(
        alt.X(f"{across}:N", title=titles[0], sort=None, axis=_label_axis(0 if has_few_columns else -90), scale=gap),
        alt.Y(f"{down}:N", title=titles[1], sort=None, axis=_label_axis(0), scale=gap),
        tooltip=tooltip,
    )
    opacity = alt.Opacity(f"{fraction}:Q", scale=alt.Scale(domain=[0, 1], range=[0.05, 0.85]), legend=None)
    chart.layers.append(base.mark_rect(fill=PALETTE[0], cornerRadius=3, strokeWidth=0).encode(opacity))
    if has_few_columns or len(values) <= MAX_WRITTEN_CELLS:
        # Values that round to zero are faint.
        faint = alt.condition(f"datum.{fraction} >= 0.005", alt.value(0.95), alt.value(0.35))
        text = alt.Text(f"{fraction}:Q", format=".0%")
        chart.layers.append(base.mark_text().encode(text=text, opacity=faint))
    # Vertical labels need room, and less than 150 pixels have none for the title of the axis.
    height = 34 * _num_labels(values, down) + (50 if has_few_columns else 140)
    return chart.finish(max(height, 150))


def _label_axis(angle: int) -> "alt.Axis":
    import altair as alt

    return alt.Axis(grid=False, ticks=False, domain=False, labelLimit=120, labelAngle=angle, labelOverlap="greedy")
