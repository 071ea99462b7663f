"""`crosstask methods`."""

import json as json_format

import typer

from crosstask.cli._app import JsonOption, app
from crosstask.cli._recipe import plain_table


@app.command()
def methods(
    json: JsonOption = False,
) -> None:
    """List what a recipe can name: paradigms, weightings, encoders, formats, metrics and more.

    [dim]crosstask methods[/dim]
    """
    from rich.console import Console

    from crosstask.catalogue import catalogue

    groups = catalogue()
    if json:
        typer.echo(json_format.dumps(groups, indent=2, ensure_ascii=False))
        return
    console = Console()
    # One width for all tables, so that summaries stand below each other.
    width = 0
    for entries in groups.values():
        width = max(width, *(len(entry["name"]) for entry in entries))
    for group, entries in groups.items():
        columns = ["name", "summary"]
        if any(entry["paper"] for entry in entries):
            columns.append("paper")
        table = plain_table(group)
        table.title_style = "bold"
        table.show_header = False  # the columns speak for themselves
        table.add_column("name", style="cyan", no_wrap=True, min_width=width)
        table.add_column("what it is")
        if "paper" in columns:
            table.add_column("paper", style="dim")
        for entry in entries:
            table.add_row(*(entry[column] for column in columns))
        console.print(table)
        console.print()
