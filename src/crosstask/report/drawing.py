"""What charts are made of: Vega-Lite specifications by Altair; the page draws them with the library it carries itself.

Text and lines are drawn in the page's own text colour (`currentColor`), so that one drawing serves light, dark and
print; the colours of tasks are of middle lightness and stand out on both.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crosstask.report.run_view import PhaseRow
from crosstask.report.series import Point

PALETTE = (
    "#3b7fd4", "#d9772b", "#2f9e73", "#a566c9", "#c9527f", "#2a97ad", "#a58516", "#7d8790", "#cf5148", "#8a7557",
)  # fmt: skip
ASIDE = "aside"
"""How the names of data begin that are no data but lines to go by; they are not saved with a chart."""
INSTALL_CHARTS = 'pip install "crosstask[report]"'
Data = dict[str, Sequence[Mapping[str, Any]]]
"""The data of a chart by name."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


@dataclass(frozen=True)
class Chart:
    """A drawing with what to say about it; `legend` names the colours, and `key` is its name as a file."""

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


def chart_of(data: Data, name: str, values: Sequence[Mapping[str, Any]]) -> Any:
    """A chart of values that `finished` puts into the specification: Altair itself would look at each many times."""
    import altair as alt

    data[name] = values
    return alt.Chart(alt.NamedData(name=name))


def lines(
    data: Data,
    points: Sequence[Point],
    colour: Mapping[str, str],
    tooltip: str,
    title: str,
    *,
    targets: Sequence[str],
    dash: tuple[int, int] | None = None,
    dots: bool = False,
    step: bool = False,
    named: str = "task",
    series: str | None = None,
    domain: tuple[float, float] | None = None,
) -> Any:
    """A line per task.

    `named` is what the tooltip calls a line, where lines are no tasks; `series` is the name of the data, which no other
    layer of a chart may have, `tooltip` when left out.
    """
    import altair as alt

    values = [{"phase": p.phase, "update": p.update, "task": p.task, "value": p.value} for p in points]
    mark: dict[str, Any] = {"interpolate": "step-after" if step else "linear"}
    if dash:
        mark["strokeDash"] = list(dash)
    if dots:
        mark["point"] = {"size": 28, "filled": True}
    scale = alt.Scale(zero=step, nice=True) if domain is None else alt.Scale(domain=list(domain))
    return (
        chart_of(data, series or tooltip, values)
        .mark_line(**mark)
        .encode(
            updates_axis(),
            alt.Y("value:Q", title=title, scale=scale),
            colour_scale(colour),
            detail=["phase:N"],
            strokeWidth=alt.condition(
                alt.FieldOneOfPredicate(field="task", oneOf=list(targets)), alt.value(2.4), alt.value(1.5)
            ),
            tooltip=[
                alt.Tooltip("task:N", title=named),
                alt.Tooltip("phase:N"),
                alt.Tooltip("update:Q"),
                alt.Tooltip("value:Q", title=tooltip, format=".4g"),
            ],
        )
    )


def phase_marks(data: Data, phases: Sequence[PhaseRow]) -> list[Any]:
    """A vertical line where a phase begins, with its name; none for the first."""
    import altair as alt

    begins = [{"update": phase.first, "phase": phase.name} for phase in phases[1:]]
    if not begins:
        return []
    base = chart_of(data, f"{ASIDE} phases", begins).encode(updates_axis())
    return [
        base.mark_rule(color="currentColor", opacity=0.35, strokeDash=[2, 3]),
        base.mark_text(align="left", dx=5, baseline="top", color="currentColor", opacity=0.7).encode(
            text="phase:N", y=alt.value(2)
        ),
    ]


def updates_axis() -> Any:
    """The axis of updates, the same in every layer."""
    import altair as alt

    return alt.X("update:Q", title="update", axis=alt.Axis(format=",~f"))


def colour_scale(colour: Mapping[str, str], field: str = "task") -> Any:
    """The colours of tasks, the same in every layer; the legend stands outside the drawing."""
    import altair as alt

    scale = alt.Scale(domain=list(colour), range=list(colour.values()))
    return alt.Color(f"{field}:N", scale=scale, legend=None)


def finished(chart: Any, data: Data, height: int) -> dict[str, Any]:
    """As wide as the page allows, in the page's own type and colour."""
    axis = {
        "labelColor": "currentColor", "titleColor": "currentColor", "tickColor": "currentColor",
        "domainColor": "currentColor", "gridColor": "currentColor", "gridOpacity": 0.12, "domainOpacity": 0.35,
        "tickOpacity": 0.35, "labelOpacity": 0.85, "titleOpacity": 0.85, "titleFontWeight": "normal",
        "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 150, "tickCount": 6,
    }  # fmt: skip
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict(validate=False)
    spec["datasets"] = {name: list(values) for name, values in data.items()}
    spec["config"] = {
        "font": FONT, "background": None, "view": {"stroke": None}, "axis": axis, "axisY": {"titlePadding": 10},
        "text": {"fontSize": 12}, "aria": False,  # the page itself says what a chart shows
    }  # fmt: skip
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec.pop("usermeta", None)
    return spec


def in_words(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    if len(names) > 6:
        return f"{len(names)} tasks"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def last_update(points: Sequence[Point]) -> int:
    """How far the points go."""
    return max(point.update for point in points)
