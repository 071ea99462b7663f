"""`crosstask report`."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import app, flag


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of a run, a comparison, a search (`auto`) or the demo.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of report.html in the folder.")
    ] = None,
    show: Annotated[bool, flag("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write the page of a run, a comparison or a search: one HTML file that needs no network.

    Everything on it is computed from the other files of the folder, so that it can be written anew at any time.

    [dim]crosstask report runs/stars --open[/dim]
    [dim]crosstask report runs/stars-comparison -o stars.html[/dim]
    [dim]crosstask report runs/stars-auto[/dim]
    """
    from crosstask.report import write_page

    page = write_page(folder, output)
    typer.echo(page)  # alone, so that a script can use it
    if show:
        typer.launch(page.resolve().as_uri())
