"""`crosstask reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import QuietOption, app, flag
from crosstask.errors import import_papers


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Experiments; a list of all when left out.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the data sets; an error names what is missing.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Instead of the experiment's own: minilm, a folder, a hub id.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Instead of the experiment's own number.")
    ] = None,
    quick: Annotated[bool, flag("--quick", help="A small version, in minutes on two cores.")] = False,
    jobs: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Runs side by side.")] = 1,
    minutes: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Begin no run after that; with 0 only make the pages anew.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of all experiments.")] = Path(
        "results"
    ),
    quiet: QuietOption = False,
) -> None:
    """Run an experiment of a paper again, and set its figures beside ours.

    Claim by claim: what the paper says, what was found here, and whether that agrees beyond chance. Every run, the
    tables and a page go to results/NAME. Stopped, it goes on where it was when it is called again.

    [dim]crosstask reproduce[/dim]
    [dim]crosstask reproduce tawt-table1 --data DIR --quick[/dim]
    [dim]crosstask reproduce metaxt-sentiment --data DIR --seeds 5 --jobs 8[/dim]
    """
    command = import_papers("command", purpose="`crosstask reproduce`")
    if not names:  # a list of what there is
        command.list_experiments()
        return
    command.reproduce_and_show(
        names, data, encoder=encoder, seeds=seeds, quick=quick, jobs=jobs, minutes=minutes, output=output, quiet=quiet
    )
