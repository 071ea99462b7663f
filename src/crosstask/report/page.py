"""One HTML file with everything inside: the frame that all pages share, and its parts under headings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources

from crosstask.report.drawing import INSTALL_CHARTS, Chart, charts_available, javascript
from crosstask.report.html import Markup, join, script_json, tag


@dataclass(frozen=True)
class Part:
    """A part of the page under a heading; charts stand among its content, and smaller parts come after it."""

    title: str | Markup
    content: tuple[object, ...] = ()
    parts: tuple["Part", ...] = ()

    @property
    def charts(self) -> Iterator[Chart]:
        """All charts in it, in their order."""
        for item in self.content:
            yield from [item] if isinstance(item, Chart) else item.charts if isinstance(item, Grid) else []
        for inner in self.parts:
            yield from inner.charts


@dataclass(frozen=True)
class Grid:
    """Small charts side by side, where there is room."""

    charts: tuple[Chart, ...]


def part(title: str | Markup, *content: object, parts: Sequence[Part | None] = ()) -> Part | None:
    """A part of what there is; None where there is nothing to show."""
    shown = tuple(item for item in content if item is not None and item != Grid(()))
    inner = tuple(item for item in parts if item is not None)
    return Part(title, shown, inner) if shown or inner else None


def page(title: str, opening: Markup, parts: Sequence[Part | None]) -> str:
    """The whole file. The drawing library is put in once, and only where there is a chart to draw."""
    shown = [item for item in parts if item is not None]
    places = {id(chart): f"chart-{number}" for number, chart in enumerate(_charts(shown), 1)}
    specs = [
        tag("script", script_json(chart.spec), type="application/json", id=places[id(chart)])
        for chart in _charts(shown)
    ]
    scripts = [tag("script", Markup(javascript()))] if specs else []
    scripts.append(tag("script", Markup(_own_file("page.js"))))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(_own_file("page.css"))),
    )
    links = [tag("li", tag("a", item.title, href=f"#part-{i}")) for i, item in enumerate(shown, 1)]
    written = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("nav", tag("p", "On this page", id="contents"), tag("ol", links), aria_labelledby="contents"),
        tag(
            "main",
            tag("header", opening),
            [_section(item, f"part-{number}", places) for number, item in enumerate(shown, 1)],
            id="content",
            tabindex="-1",
        ),
        tag("footer", f"Written by crosstask on {written}. This file needs no network."),
        specs,
        scripts,
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _charts(parts: Sequence[Part]) -> Iterator[Chart]:
    return (chart for item in parts for chart in item.charts)


def _section(item: Part, identity: str, places: dict[int, str], level: int = 2) -> Markup:
    def filled(content: object) -> object:
        if isinstance(content, Chart):
            return _figure(content, places[id(content)])
        if isinstance(content, Grid):
            return tag("div", [_figure(chart, places[id(chart)]) for chart in content.charts], class_="grid")
        return content

    return tag(
        "section",
        tag(f"h{level}", item.title, id=identity),
        [filled(content) for content in item.content],
        [
            _section(inner, f"{identity}-{number}", places, level + 1)
            for number, inner in enumerate(item.parts, 1)
        ],
        aria_labelledby=identity,
    )  # fmt: skip


def _figure(chart: Chart, place: str) -> Markup:
    """A chart with the names of its colours above, what it shows below, and buttons to keep it."""
    swatches = [tag("li", _swatch(colour), tag("bdi", name)) for name, colour in chart.legend.items()]
    buttons = [
        tag("button", form.upper(), type="button", data_save=form, aria_label=f"Save {what} as {form.upper()}")
        for form, what in (("svg", "this chart"), ("csv", "the data of this chart"))
    ]
    return tag(
        "figure",
        tag("ul", swatches, class_="legend") if len(swatches) > 1 else None,
        # Two elements, for the drawing library has a say in the attributes of the one that it draws into.
        tag(
            "div",
            tag("div", data_chart=place, data_name=chart.key, aria_hidden="true"),
            role="img",
            aria_label=chart.spoken,
            class_="chart",
        ),
        tag("div", tag("figcaption", chart.caption), tag("div", buttons, class_="tools"), class_="below"),
    )


def without_charts() -> Markup | None:
    """What to install where the charts are missing; nothing where they are there."""
    if charts_available():
        return None
    text = "The charts are left out because the packages that draw them are not installed. This brings them: "
    return tag("p", text, tag("code", INSTALL_CHARTS), class_="quiet")


def quiet(*content: object) -> Markup:
    """A remark in small print."""
    return tag("p", *content, class_="quiet")


def folded(title: str, *content: object) -> Markup:
    """What only some readers want to see."""
    return tag("details", tag("summary", title), *content)


def listed(names: Sequence[str], most: int = 12) -> Markup:
    """Names in a row, each kept apart from its neighbours' direction of writing; a long list is cut."""
    shown: list[object] = []
    for name in names[:most]:
        shown += [", " if shown else None, tag("bdi", name)]
    return join(*shown, f" and {len(names) - most} more" if len(names) > most else None)


def badge(text: str, sort: str | None = None) -> Markup:
    """A word set off from its neighbours; `sort` colours it: "good", "bad" or "main"."""
    return tag("span", text, class_=f"badge {sort}" if sort else "badge")


def role_badge(role: str) -> Markup:
    """Whether a task is the target or a source."""
    return badge(role, "main" if role == "target" else None)


def _swatch(colour: str) -> Markup:
    dot = tag("circle", cx="5", cy="5", r="5", fill=colour)
    return tag("svg", dot, viewBox="0 0 10 10", aria_hidden="true")


def _own_file(name: str) -> str:
    return (resources.files("crosstask.report") / name).read_text(encoding="utf-8")
