"""Commands that ask questions of many runs, or before any."""

import time
from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import JobsOption, QuietOption, RecipeArgument, SeedsOption, StudyOption, app, flag


@app.command()
def rank(
    recipe: RecipeArgument,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another target than the recipe's; all other tasks are sources.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=2, metavar="NUMBER", help="Of each task at most: more are surer, and slower.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="`scores`: nothing is trained. `linearised`: one model is trained on all tasks, and tells what every "
            "set of sources brings.",
        ),
    ] = "scores",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Everything as JSON into a file, instead of the run folder if any."
        ),
    ] = None,
    json: Annotated[bool, flag("--json", help="Everything as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Say which sources will help, before any training or after one run.

    Each source gets a verdict (likely helps, probably useless, may hurt) with its reasons, and every score. Features
    come from the recipe's encoder as it is, and are kept on disk: the second call takes seconds. Where the recipe has
    a run folder already, `rank.json` is put there for its page.

    [dim]crosstask rank stars.yaml[/dim]
    [dim]crosstask rank stars.yaml -o ranking.json[/dim]
    [dim]crosstask rank stars.yaml --method linearised[/dim]
    """
    from crosstask.transferability.rank import rank_recipe

    rank_recipe(recipe, target=target, examples=examples, method=method, output=output, as_json=json, quiet=quiet)


@app.command("transfer-matrix")
def transfer_matrix(
    recipe: RecipeArgument,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only what helps this task; can be given several times. All when left out."),
    ] = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = 1,
    output: StudyOption = None,
    json: Annotated[bool, flag("--json", help="As JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Measure by training which task helps which.

    For every ordered pair of the recipe's tasks: the gain on dev of training them together over the target alone, with
    the same budget and start. Stopped, it goes on where it was when it is called again.

    [dim]crosstask transfer-matrix stars.yaml[/dim]
    [dim]crosstask transfer-matrix stars.yaml --target stars --seeds 5 --jobs 4[/dim]
    """
    from crosstask.studies.transfer_matrix import matrix_of_recipe

    matrix_of_recipe(recipe, targets=target, seeds=seeds, jobs=jobs, output=output, as_json=json, quiet=quiet)


@app.command()
def capacity(
    recipe: RecipeArgument,
    widths: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Widths to try, with commas; 5,20,50,100,200,500 if left out.")
    ] = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = 1,
    output: StudyOption = None,
    json: Annotated[bool, flag("--json", help="As JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Find the best width of the shared module, for each task alone and for all together.

    Too narrow, and tasks get in each other's way; too wide, and nothing is shared. Stopped, it goes on where it was
    when it is called again.

    [dim]crosstask capacity stars.yaml --widths 5,50,200[/dim]
    """
    from crosstask.studies.capacity import capacity_of_recipe

    capacity_of_recipe(recipe, widths=widths, seeds=seeds, jobs=jobs, output=output, as_json=json, quiet=quiet)


@app.command()
def auto(
    recipe: RecipeArgument,
    minutes: Annotated[
        float, typer.Option(metavar="NUMBER", help="For everything: reading, features, all that is tried, the model.")
    ] = 10.0,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another target than the recipe's; all other tasks are sources.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder, instead of runs/NAME-auto.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="NUMBER", help="Another seed than the recipe's.")] = None,
    json: Annotated[bool, flag("--json", help="What was found, as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Find the best model of the target, with nothing to choose.

    Sources are ranked, candidates with and without them are tried by cross-validation on the target's labels, cheap
    ones first, and the best is fitted on all labels. Sources have to earn their place: where they do not help, the
    model of the target alone is kept, and the output says so. The recipe's `paradigm`, `weighting` and `transfer` play
    no part; a test set measures the last model alone. Stopped, it goes on when it is called again.

    [dim]crosstask auto stars.yaml[/dim]
    [dim]crosstask auto stars.yaml --minutes 1[/dim]
    [dim]crosstask predict runs/stars-auto/run < texts.txt[/dim]
    """
    started = time.monotonic()  # what is imported here takes time too
    from crosstask.cli.auto import auto_recipe

    auto_recipe(
        recipe, minutes=minutes, target=target, output=output, seed=seed, as_json=json, quiet=quiet, started=started
    )


@app.command()
def compare(
    recipe: RecipeArgument,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="With commas: paradigms, weightings, transfers, or joint+tawt+alignment."),
    ] = None,
    targets: Annotated[
        str | None, typer.Option(metavar="NAMES", help="With commas; the recipe's when left out, each by itself.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Runs of each method; 5 if left out.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Method that the others are tested against; single if left out.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Values of a setting to try, for dev to choose from: learning_rate=5e-5,2e-4 or tawt.every=10,50; can "
            "be given several times.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Most combinations of searched values of a method.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Processes side by side; one per core if left out.")
    ] = None,
    on: Annotated[
        str,
        typer.Option(metavar="PLACE", help="`local`, or `ray` for a Ray cluster (RAY_ADDRESS, or one started here)."),
    ] = "local",
    keep_runs: Annotated[bool, flag("--keep-runs", help="Keep the model of each run too.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the comparison.")
    ] = None,
    json: Annotated[bool, flag("--json", help="As JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare methods: same data, start and budget for each seed, and a table with error bars and tests.

    Stopped, it goes on where it was when it is called again. The recipe's section `compare` can hold the same options,
    and methods with settings of their own.

    [dim]crosstask compare stars.yaml --methods single,joint,tawt,joint+tawt+label-transfer[/dim]
    [dim]crosstask compare stars.yaml --targets stars,polarity --seeds 10 --jobs 4[/dim]
    [dim]crosstask compare stars.yaml --search learning_rate=5e-5,2e-4 --on ray[/dim]
    """
    from crosstask.cli.compare import compare_recipe

    compare_recipe(
        recipe, methods=methods, targets=targets, seeds=seeds, baseline=baseline, search=search or [], trials=trials,
        jobs=jobs, on=on, keep_runs=keep_runs, output=output, as_json=json, quiet=quiet,
    )  # fmt: skip
