"""`crosstask reproduce`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from crosstask.cli._app import QuietOption, app, flag
from crosstask.errors import import_papers

if TYPE_CHECKING:
    from crosstask.studies.executors import ExecutorName


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
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Runs side by side; one if left out, on Ray as many as fit."),
    ] = None,
    on: Annotated[
        str,
        typer.Option(metavar="PLACE", help="`local`, or `ray` for a Ray cluster (RAY_ADDRESS, or one started here)."),
    ] = "local",
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
    [dim]crosstask reproduce tawt-ratio --data DIR --on ray[/dim]
    """
    command = import_papers("command", purpose="`crosstask reproduce`")
    if not names:  # a list of what there is
        command.list_experiments()
        return
    command.reproduce_and_show(
        names,
        data,
        encoder=encoder,
        seeds=seeds,
        quick=quick,
        jobs=jobs,
        on=cast("ExecutorName", on),
        minutes=minutes,
        output=output,
        quiet=quiet,
    )
