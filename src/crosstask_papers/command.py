"""The command: experiments by name, their claims and tables in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from crosstask.errors import CrossTaskError
from crosstask.studies.executors import ExecutorName
from crosstask_papers import EXPERIMENTS, find, folder_of, reproduce
from crosstask_papers.claims import Verdict
from crosstask_papers.experiment import Table
from crosstask_papers.pages import CORRECTED, REPORT_FILE

STYLES: dict[Verdict, str] = {
    "holds": "green",
    "same direction": "yellow",
    "does not hold": "red",
    "reversed": "bold red",
    "count": "default",
    "no test": "default",
    "in-sample": "magenta",
    "not measured": "dim",
}


def list_experiments() -> None:
    """Names, papers and titles."""
    table = RichTable(box=None, padding=(0, 2, 0, 0))
    for heading in ("name", "paper", "what"):
        table.add_column(heading, style="cyan" if heading == "name" else None, overflow="fold")
    for name in EXPERIMENTS:
        experiment = find(name)
        table.add_row(name, experiment.paper.short, escape(experiment.title))
    Console().print(table)


def reproduce_and_show(
    names: Sequence[str],
    data: Path | None,
    *,
    encoder: str | None,
    seeds: int | None,
    quick: bool,
    jobs: int | None,
    on: ExecutorName,
    minutes: float | None,
    output: Path,
    quiet: bool,
) -> None:
    """Run, then print what was found."""
    for name in names:
        find(name)  # a wrong name before anything else
    if minutes is not None and minutes < 0:
        raise CrossTaskError(f"--minutes must be at least 0, found {minutes:g}.")
    results = reproduce(
        names,
        data,
        encoder=encoder,
        seeds=seeds,
        quick=quick,
        output=output,
        jobs=jobs,
        on=on,
        minutes=minutes,
        progress=False if quiet else None,
    )
    for name, experiment_results in results.items():
        _show(experiment_results)
        typer.echo(f"Page: {folder_of(output, name, quick=quick) / REPORT_FILE}")


def _show(results: dict[str, Any]) -> None:
    console = Console()
    console.print(f"{results['title']} · {results['paper']}", style="bold")
    num_done, num_runs = results["runs"]["done"], results["runs"]["wanted"]
    if num_done < num_runs:
        console.print(f"{num_done} of {num_runs} runs are done; the same command goes on.", style="yellow")
    for data in results["tables"]:
        table = Table.from_json(data)
        rich_table = _titled(table.title)
        for index, heading in enumerate(table.head):
            if index == 0:
                rich_table.add_column(escape(heading), style="cyan")
            else:
                rich_table.add_column(escape(heading), justify="right")
        for line in table.texts:
            rich_table.add_row(*(escape(text) for text in line))
        console.print(rich_table)
        if table.note:
            console.print(escape(table.note), style="dim")
    claims = _titled("Claims")
    for heading in ("claim", "paper", "ours", "verdict"):
        claims.add_column(heading, overflow="fold")
    for claim in results["claims"]:
        verdict = f"[{STYLES[claim['verdict']]}]{claim['verdict']}[/]"
        claims.add_row(escape(claim["text"]), escape(claim["paper"]), escape(claim["ours"]), verdict)
    console.print(claims)
    console.print(CORRECTED.replace("`", ""), style="dim")


def _titled(title: str) -> RichTable:
    return RichTable(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
