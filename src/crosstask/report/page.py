"""One HTML file with everything inside: the frame that all pages share, and the sections that more than one has."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import resources
from typing import Any

import yaml

from crosstask.report.drawing import INSTALL_CHARTS, Chart, charts_available, javascript
from crosstask.report.markup import Markup, join, script_json, table, tag


def page(title: str, body: Sequence[Markup], charts: Sequence[Chart]) -> str:
    """The whole file. The drawing library is put in once, and only where there is a chart to draw."""
    scripts: list[Markup] = []
    if charts:
        scripts = [
            tag("script", script_json(chart.spec), type="application/json", id=_chart_id(chart)) for chart in charts
        ]
        scripts += [tag("script", Markup(javascript())), tag("script", Markup(_own_file("page.js")))]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(_own_file("page.css"))),
    )
    written = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    footer = tag("footer", f"Written by crosstask on {written}. This file needs no network.")
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *body, footer), *scripts), lang='en')}\n"


def section(title: str, *content: object) -> Markup:
    """A part of the page under a heading."""
    return tag("section", tag("h2", title), *content)


def figure(chart: Chart) -> Markup:
    """A chart with the names of its colours above and what it shows below."""
    swatches = [tag("li", _swatch(colour), tag("bdi", name)) for name, colour in chart.legend.items()]
    return tag(
        "figure",
        tag("ul", swatches, class_="legend") if len(swatches) > 1 else None,
        tag("div", role="group", aria_label=chart.spoken, class_="chart", data_chart=_chart_id(chart)),
        tag("figcaption", chart.caption),
    )


def without_charts() -> Markup | None:
    """What to install where the charts are missing; nothing where they are there."""
    if charts_available():
        return None
    text = "The charts are left out because the packages that draw them are not installed. This brings them: "
    return tag("p", text, tag("code", INSTALL_CHARTS), class_="quiet")


def remarks(items: Sequence[tuple[str, str | None, str]]) -> Markup:
    """A list of things to know: sort, task, text. What is no mere note is set off."""
    return tag(
        "ul",
        [
            tag(
                "li",
                tag("b", sort.capitalize()),
                [" · ", tag("bdi", task)] if task else None,
                ": ",
                text,
                class_=None if sort == "note" else "warning",
            )
            for sort, task, text in items
        ],
        class_="remarks",
    )


def fine_print(recipe: str, environment: Mapping[str, Any]) -> Markup:
    """The recipe and the versions, folded away."""
    facts = {
        "python": environment.get("python"),
        **environment.get("packages", {}),
        "platform": environment.get("platform"),
        "processor threads": environment.get("processor_threads"),
        "GPUs": ", ".join(environment.get("gpus", [])) or None,
        "command": " ".join(environment.get("command", [])) or None,
    }
    rows: list[list[object]] = [[name, value] for name, value in facts.items() if value is not None]
    return section(
        "How to do it again",
        tag("details", tag("summary", "Recipe"), tag("pre", recipe, tabindex="0")),
        tag("details", tag("summary", "Versions and machine"), table(["what", "version"], rows, caption="Versions")),
    )


def as_yaml(data: Mapping[str, Any]) -> str:
    """Settings as a person writes them."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=100)


def listed(names: Sequence[str], most: int = 12) -> Markup:
    """Names in a row, each kept apart from its neighbours' direction of writing; a long list is cut."""
    shown: list[object] = []
    for name in names[:most]:
        shown += [", " if shown else None, tag("bdi", name)]
    return join(*shown, f" and {len(names) - most} more" if len(names) > most else None)


def role_badge(role: str) -> Markup:
    """Whether a task is the target or a source."""
    return tag("span", role, class_="badge target" if role == "target" else "badge")


def _swatch(colour: str) -> Markup:
    dot = tag("circle", cx="5", cy="5", r="5", fill=colour)
    return tag("svg", dot, viewBox="0 0 10 10", aria_hidden="true")


def _chart_id(chart: Chart) -> str:
    return f"chart-{chart.key}"


def _own_file(name: str) -> str:
    return (resources.files("crosstask.report") / name).read_text(encoding="utf-8")
