"""Pages from Jinja2 templates: one HTML file with everything inside, and all text escaped by the templates."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache

import yaml
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from crosstask.report.charts import Chart, javascript, names_in_words, own_file, why_no_charts
from crosstask.report.formatting import metric_name, number, spread
from crosstask.report.names import short_name
from crosstask.runs.events import Row

TOP_LEVEL = 2
"""Level of the headings of sections; the headline of the page is the only one above."""


class Contents:
    """Sections and charts of a page, in the order in which its template shows them."""

    def __init__(self) -> None:
        self.titles: dict[str, str | Markup] = {}
        self.charts: dict[str, Chart] = {}
        self._num_subsections = 0

    def add_section(self, title: str | Markup, level: int) -> str:
        """Returns the id of a new section; those of the top level stand in the navigation."""
        if level == TOP_LEVEL:
            self._num_subsections = 0
            section_id = f"part-{len(self.titles) + 1}"
            self.titles[section_id] = title
            return section_id
        self._num_subsections += 1
        return f"part-{len(self.titles)}-{self._num_subsections}"

    def add_chart(self, chart: Chart) -> str:
        """Returns the id of the element that will hold the specification of a chart."""
        chart_id = f"chart-{len(self.charts) + 1}"
        self.charts[chart_id] = chart
        return chart_id


def render(
    template: str,
    *,
    package: str = "crosstask.report",
    filters: Mapping[str, Callable[..., str]] | None = None,
    **data: object,
) -> str:
    """A page.

    Args:
        template: name of its template.
        package: where the template is; those of another package can extend those of the report.
        filters: functions of this template, beside those of all.
        data: what the template shows.
    """
    environment = _environment(package)
    environment.filters.update(filters or {})
    why_no_charts_now = why_no_charts()
    page = environment.get_template(template).render(
        **data,
        contents=Contents(),
        has_charts=why_no_charts_now is None,
        why_no_charts=why_no_charts_now,
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    # Half a character, which JSON can hold, cannot be written.
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("crosstask.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        spread=spread,
        metric_name=metric_name,
        thousands=thousands,
        names_in_words=names_in_words,
        short_name=short_name,
        as_yaml=as_yaml,
    )
    # Specifications of charts stand inside script elements, where `tojson` escapes whatever could end them.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals.update(own_file=own_file, javascript=javascript)
    return environment


def thousands(value: int) -> str:
    """A count with separators, as in 4,000."""
    return f"{value:,}"


def as_yaml(settings: Row) -> str:
    """Settings as a person writes them."""
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=100)
