"""From runs to what people read: results.json, a Markdown page, an HTML page. All are made from the runs alone."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from crosstask.report import write_if_possible
from crosstask.runs.events import Row
from crosstask.runs.record import REPORT_FILE, Record, finite
from crosstask.storage import write_text
from crosstask_papers.compute_cost import machine_minutes
from crosstask_papers.experiment import Experiment, Figure, Rows, Table

RESULTS_FILE, PAGE_FILE = "results.json", "README.md"
CORRECTED = "P-values are corrected for the number of tested claims (Holm); the uncorrected ones are in `results.json`."


def write_results(
    folder: Path, experiment: Experiment, record: Record, rows: Sequence[Row], num_runs: int
) -> dict[str, Any]:
    """Write all files of an experiment but its runs, of which there should be `wanted`.

    Returns what `results.json` holds.
    """
    all_rows = Rows(rows)
    tables = experiment.tables(all_rows)
    claims = [claim.to_json() for claim in experiment.judged_claims(all_rows)]
    figures = [figure for figure in experiment.figures(all_rows) if figure.points]
    results = finite(
        {
            "name": experiment.name,
            "title": experiment.title,
            "about": experiment.about,
            "why": experiment.why,
            "paper": experiment.paper.short,
            "command": command(experiment),
            "quick": experiment.options.quick,
            "settings": experiment.settings(),
            # Without those of trials, which choose settings and are in no table of scores.
            "seeds": sorted(seed for seed in all_rows.values("seed") if seed in experiment.used_seeds),
            "runs": {"done": len(rows), "wanted": num_runs, "minutes": machine_minutes(record.rows)},
            "environments": _environments(record),
            "claims": claims,
            "figures": [figure.to_json() for figure in figures],
            "tables": [table.to_json() for table in tables],
        }
    )
    write_text(folder / RESULTS_FILE, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / PAGE_FILE, markdown_page(results, tables))
    write_if_possible(lambda: _write_html_page(folder / REPORT_FILE, results, tables, figures), folder)
    return results


def _write_html_page(path: Path, results: dict[str, Any], tables: Sequence[Table], figures: Sequence[Figure]) -> None:
    from crosstask.report.charts import with_or_without_charts

    write_text(path, with_or_without_charts(lambda: html_page(results, tables, figures)))


def command(experiment: Experiment) -> str:
    """How to run it again."""
    quick = " --quick" if experiment.options.quick else ""
    return f"crosstask reproduce {experiment.name} --data DIR{quick}"


def markdown_page(results: dict[str, Any], tables: Sequence[Table]) -> str:
    """The page beside the runs."""
    lines = [
        f"# {results['title']}",
        "",
        f"{results['paper']}. {results['about']}",
        "",
        f"    {results['command']}",
        "",
    ]
    num_done, num_runs = results["runs"]["done"], results["runs"]["wanted"]
    if num_done < num_runs:
        lines += [f"**{num_done} of {num_runs} runs are done**; the same command goes on.", ""]
    lines += ["## Claims", "", markdown_table(claims_table(results["claims"])), "", CORRECTED, ""]
    if results["why"]:
        lines += ["## Where a claim does not hold", "", results["why"], ""]
    for table in tables:
        lines += [f"## {table.title}", "", markdown_table(table), ""]
        if table.note:
            lines += [table.note, ""]
    lines += [f"Settings: `{json.dumps(results['settings'], ensure_ascii=False)}`", ""]
    lines += [f"Made from {num_done} runs in `cells.jsonl` ({_machines(results)}).", ""]
    return "\n".join(lines)


def html_page(results: dict[str, Any], tables: Sequence[Table], figures: Sequence[Figure] = ()) -> str:
    """The same as one HTML file, with figures."""
    from crosstask.report.charts import charts_available
    from crosstask.report.html import render
    from crosstask_papers.charts import chart

    charts = []
    if charts_available():
        charts = [chart(figure) for figure in figures]
    facts = {"command": results["command"], "settings": results["settings"], "made with": results["environments"]}
    return render(
        "experiment.html.j2",
        package="crosstask_papers",
        filters={"unbroken": unbroken, "code_names": code_names},
        title=results["title"],
        results=results,
        claims=results["claims"],
        num_holding=sum(claim["verdict"] == "holds" for claim in results["claims"]),
        num_tested=sum(claim["p"] is not None for claim in results["claims"]),
        corrected=CORRECTED,
        has_figures=bool(figures),
        figures=[chart for chart in charts if chart is not None],
        tables=tables,
        facts=json.dumps(facts, indent=1, ensure_ascii=False),
    )


def code_names(text: str) -> Markup:
    """Sentences with names between backticks, which become code.

    >>> code_names("with `cut` < 1")
    Markup('with <code>cut</code> &lt; 1')
    """
    pieces: list[Markup] = []
    for index, piece in enumerate(text.split("`")):
        is_code = index % 2 == 1
        pieces.append(Markup("<code>{}</code>" if is_code else "{}").format(piece))
    return Markup("").join(pieces)


def unbroken(text: str) -> str:
    """With spaces that no line breaks at around signs: "p = 0.02" stays whole.

    >>> unbroken("+1.0 ± 0.2, p = 0.02").replace(chr(160), "_")
    '+1.0_±_0.2, p_=_0.02'
    """
    return re.sub(r" ([=±]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", text)


def claims_table(claims: Sequence[dict[str, Any]]) -> Table:
    """Claims as a table."""
    lines = [[claim["text"], claim["paper"], claim["ours"], claim["verdict"]] for claim in claims]
    return Table("Claims", ["claim", "paper", "ours", "verdict"], lines)


def markdown_table(table: Table) -> str:
    """A table in Markdown, without its title and note."""
    lines = [table.head, *table.texts]
    rows = []
    for line in lines:
        rows.append("| " + " | ".join(str(item).replace("|", "\\|") for item in line) + " |")
    rows.insert(1, "|---" * len(table.head) + "|")
    return "\n".join(rows)


def _environments(record: Record) -> list[dict[str, Any]]:
    """Versions and machines that had a part in the runs, each once."""
    environments: list[dict[str, Any]] = []
    for row in record.of("session"):
        facts = {key: value for key, value in row["environment"].items() if key != "command"}
        if facts not in environments:
            environments.append(facts)
    return environments


def _machines(results: dict[str, Any]) -> str:
    machines = [
        f"torch {facts['packages'].get('torch')}, {', '.join(facts['gpus'][:1]) or 'CPU'}"
        for facts in results["environments"]
    ]
    return "; ".join(dict.fromkeys(machines))
