"""`crosstask auto`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from crosstask.cli._app import QuietOption, RecipeArgument, SeedOption, app, flag
from crosstask.cli._recipe import check_task_name, folder_beside, print_json, read_recipe, read_tasks

if TYPE_CHECKING:
    from crosstask.automl.budget import Clock
    from crosstask.automl.driver import Request
    from crosstask.automl.result import Found
    from crosstask.recipe import RecipeFile
    from crosstask.studies.executors import ExecutorName
    from crosstask.studies.method import Section


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
    seed: SeedOption = None,
    ensemble: Annotated[
        bool, flag("--ensemble", help="Keep all that the best is better with, as one model of several.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Folds side by side; one if left out, on Ray as many as fit."),
    ] = None,
    on: Annotated[
        str,
        typer.Option(metavar="PLACE", help="`local`, or `ray` for a Ray cluster (RAY_ADDRESS, or one started here)."),
    ] = "local",
    json: Annotated[bool, flag("--json", help="What was found, as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Find the best model of the target, with nothing to choose.

    Sources are ranked, candidates with and without them are tried by cross-validation on the target's labels, cheap
    ones first, and the best is fitted on all labels. Sources have to earn their place: where they do not help, the
    model of the target alone is kept, and the output says so. The recipe's `paradigm`, `weighting` and `transfer` play
    no part; a test set measures the last model alone. A recipe with several targets gets a model of each, one after the
    other within the minutes, with all other tasks as sources. Stopped, it goes on when it is called again.

    [dim]crosstask auto stars.yaml[/dim]
    [dim]crosstask auto stars.yaml --minutes 1[/dim]
    [dim]crosstask auto stars.yaml --jobs 4[/dim]
    [dim]crosstask predict runs/stars-auto/run < texts.txt[/dim]
    """
    started = time.monotonic()  # what is imported here takes time too
    from crosstask.automl import check_minutes
    from crosstask.automl.budget import Clock
    from crosstask.automl.driver import find_model
    from crosstask.automl.leaderboard import make_board
    from crosstask.storage import folder_name
    from crosstask.studies.executors import check_executor

    check_minutes(minutes)
    check_executor(on)
    file = read_recipe(recipe, seed, quiet=quiet)
    targets = file.recipe.targets
    if target is not None:
        check_task_name(file, target)
        targets = [target]
    folder = folder_beside(file, output, "auto")
    models: dict[str, Found] = {}
    for position, name in enumerate(targets):
        # One after the other, in equal parts of the time that is left.
        spent = (time.monotonic() - started) / 60.0
        clock = Clock(max(0.0, minutes - spent) / (len(targets) - position))
        if len(targets) == 1:
            folder_of_target, clock = folder, Clock(minutes, started)
        else:
            folder_of_target = folder / folder_name(name)
        options: Section = {"ensemble": ensemble, "jobs": jobs, "on": cast("ExecutorName", on)}
        request = _request(file, name, folder_of_target, clock, options, quiet=quiet)
        # Standard output is for the result alone.
        board = make_board(False) if quiet else make_board(None, lambda line: typer.echo(line, err=True))
        models[name] = find_model(request, board)
        if not json:
            if position > 0:
                typer.echo()
            _show(models[name], folder_of_target)
    if json:
        facts = {name: result.facts for name, result in models.items()}
        print_json(facts if len(targets) > 1 else facts[targets[0]])


def _request(
    file: "RecipeFile", target: str, folder: Path, clock: "Clock", options: "Section", *, quiet: bool
) -> "Request":
    """What is searched for, with all other tasks of the recipe as sources."""
    from crosstask.automl.driver import Request
    from crosstask.automl.recipe import sections_to_read

    sections, limits = sections_to_read(file.recipe.tasks, target)
    tasks = read_tasks(file, [target], sections=sections, quiet=quiet)
    return Request(
        tasks.tasks[target],
        tasks.sources(target),
        encoder=file.resolved()["encoder"],
        training=file.settings,
        seed=file.recipe.seed,
        folder=folder,
        clock=clock,
        unreadable=tasks.failures,
        recipe=_final_recipe(file, target),
        limits=limits,
        drop_overlap=file.recipe.drop_overlap,
        precision=file.settings.precision if file.sets("training", "precision") else None,
        **options,
    )


def _show(model: "Found", folder: Path) -> None:
    """What was found, and where to read on."""
    from crosstask.automl.result import ENSEMBLE_FOLDER, EXPORT_FOLDER, LEADERBOARD_FILE
    from crosstask.report.search_file import AUTO_FILE, RUN_FOLDER
    from crosstask.runs.record import REPORT_FILE

    typer.echo(str(model))
    typer.echo(f"Run folder: {folder / RUN_FOLDER}; plain model: {folder / EXPORT_FOLDER}")
    if model.ensemble is not None:
        typer.echo(f"Ensemble: {folder / ENSEMBLE_FOLDER}")
    typer.echo(f"Why: {folder / REPORT_FILE} (page), {folder / AUTO_FILE}, {folder / LEADERBOARD_FILE}")


def _final_recipe(file: "RecipeFile", target: str) -> dict[str, Any]:
    """The recipe of the last run, whose tasks are read as the search reads them."""
    from crosstask.automl.recipe import sections_to_read

    recipe = file.resolved()
    sections, _ = sections_to_read(recipe["tasks"], target)
    return {**recipe, "target": target, "tasks": sections}
