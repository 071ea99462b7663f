"""`crosstask bench`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from crosstask.cli._app import QuietOption, app, flag
from crosstask.errors import import_papers

if TYPE_CHECKING:
    from crosstask.studies.executors import ExecutorName


@app.command()
def bench(
    suites: Annotated[
        list[str] | None, typer.Argument(metavar="SUITE...", help="Suites; all for which there is data if left out.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with the data sets.")] = None,
    methods: Annotated[str | None, typer.Option(metavar="NAMES", help="With commas; all if left out.")] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Instead of each suite's own: minilm, a folder, a hub id.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Of each problem; 5 if left out, or 2 if quick.")
    ] = None,
    quick: Annotated[
        bool, flag("--quick", help="A small version, in minutes on two cores; hand-made data without --data.")
    ] = False,
    pairs: Annotated[
        bool,
        flag(
            "--pairs",
            help="Measure what every single source brings instead of all together, and whether `rank` foresees it.",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Runs side by side; one if left out, on Ray as many as fit."),
    ] = None,
    on: Annotated[
        str,
        typer.Option(metavar="PLACE", help="`local`, or `ray` for a Ray cluster (RAY_ADDRESS, or one started here)."),
    ] = "local",
    minutes: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Begin no run after that; with 0 only make the page anew.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the bench.")] = Path(
        "results/bench"
    ),
    problems: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Run nothing: write the problems there, for opponents to be measured on."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Run nothing: score what an opponent has predicted for these problems."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Compare all methods on suites of targets with few labels and sources with many.

    The same labels and updates for every method, learning rates chosen on other targets, several seeds; tables with
    ranks, tests and costs. Without arguments it lists suites and methods. Stopped, it goes on where it was when it is
    called again.

    [dim]crosstask bench --quick[/dim]
    [dim]crosstask bench sentences crossner --data DIR --seeds 3 --jobs 8[/dim]
    [dim]crosstask bench sentences --data DIR --seeds 3 --pairs[/dim]
    """
    command = import_papers("bench.command", purpose="`crosstask bench`")
    if not suites and data is None and not quick:  # a list of what there is
        command.list_suites()
        return
    names = suites or []
    if problems is not None:
        command.write_and_count(problems, names, data, seeds=seeds, quick=quick)
        return
    command.run_and_show(
        names,
        data,
        methods=[name.strip() for name in methods.split(",")] if methods else [],
        encoder=encoder,
        seeds=seeds,
        quick=quick,
        pairs=pairs,
        jobs=jobs,
        on=cast("ExecutorName", on),
        minutes=minutes,
        output=output,
        predictions=predictions,
        quiet=quiet,
    )
