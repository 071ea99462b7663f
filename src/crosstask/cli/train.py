"""`crosstask train`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import QuietOption, RecipeArgument, SeedOption, app, flag
from crosstask.cli._device import DeviceOption, PrecisionOption, train_on
from crosstask.cli._recipe import read_recipe, score_text, show_progress
from crosstask.errors import CrossTaskError
from crosstask.quoting import brief

if TYPE_CHECKING:
    from crosstask.runs.run import Run

SHOWN_LABELS = 5
"""Of those that are never predicted."""


@app.command()
def train(
    recipe: RecipeArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Run folder, instead of the recipe's or runs/NAME."),
    ] = None,
    resume: Annotated[bool, flag("--resume", help="Go on with a run that was stopped.")] = False,
    force: Annotated[bool, flag("--force", help="Put the run in the place of one that is in the folder.")] = False,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    seed: SeedOption = None,
    quiet: QuietOption = False,
) -> None:
    """Train the model that a recipe describes.

    Everything goes to the run folder: the recipe as resolved, history, metrics, checkpoints, the model and a page.
    A folder that exists is never written over, unless --force says so: the old run goes when the new one begins.

    [dim]crosstask train stars.yaml[/dim]
    [dim]crosstask train stars.yaml --resume[/dim]
    [dim]crosstask train stars.yaml --seed 1 -o runs/stars-1 --device cuda:1[/dim]
    """
    if force and resume:
        raise CrossTaskError("--force starts anew and --resume goes on: name one of them.")
    train_on(device)
    file = read_recipe(recipe, seed, precision=precision, quiet=quiet)
    # After the recipe, which shows at once that something happens: these take seconds to load.
    from crosstask.learner import reopen
    from crosstask.models.build import trusts_remote_code
    from crosstask.runs.run import RunFolder
    from crosstask.storage import check_path

    path = check_path(output or file.output, "--output")
    # Before any data is read.
    folder = RunFolder.checked(path, file.resolved(), resume=resume, force=force)
    if folder.is_finished:
        typer.echo(f"The run in '{folder.path}' had finished already; there was nothing left to do.", err=True)
        _print_run(reopen(folder, trusts_remote_code(file.recipe.encoder)), folder.path)
        return
    learner = file.learner(progress=show_progress(quiet))
    targets, sources = file.tasks(progress=show_progress(quiet))
    run = learner.fit(targets, sources, output=folder)
    if _is_main_process():  # of several, one prints
        _print_run(run, folder.path)


def _is_main_process() -> bool:
    from accelerate.state import PartialState

    return PartialState().is_main_process


def _print_run(run: "Run", folder: Path) -> None:
    from crosstask.runs.record import REPORT_FILE

    for sentence in run.warnings:
        typer.echo(f"Note: {sentence}", err=True)
    for target in run.targets:
        for split, scores in run.scores.get(target, {}).items():
            if not scores:
                continue
            metric, value = next(iter(scores.items()))  # the first is the one that chooses the model
            typer.echo(f"{target}: {metric} {score_text(value)} on {split}{_beside(run, target, split, metric)}")
    typer.echo(f"Run folder: {folder} (to look at: {REPORT_FILE})")


def _beside(run: "Run", target: str, split: str, metric: str) -> str:
    """What the score has to beat, and what it hides."""
    words: list[str] = []
    majority = run.majority.get(target, {}).get(split, {}).get(metric)
    if majority is not None:
        words.append(f"the same answer for all: {score_text(majority)}")
    missed = run.metrics.get("never_predicted", {}).get(target, {}).get(split, [])
    if missed:
        more = f" and {len(missed) - SHOWN_LABELS} more" if len(missed) > SHOWN_LABELS else ""
        words.append(f"never predicted: {', '.join(map(brief, missed[:SHOWN_LABELS]))}{more}")
    return f" ({'; '.join(words)})" if words else ""
