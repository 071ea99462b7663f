"""The command: a recipe's target and sources, minutes, and a folder with all that was found."""

import json
from pathlib import Path
from typing import Any

import typer

from crosstask.automl import auto
from crosstask.automl.leaderboard import make_board
from crosstask.automl.result import AUTO_FILE, EXPORT_FOLDER, LEADERBOARD_FILE, RUN_FOLDER
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.recipe import RecipeFile


def auto_recipe(
    path: Path,
    *,
    minutes: float,
    target: str | None,
    output: Path | None,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    started: float,
) -> None:
    """Find the best model of a recipe's target, and say what was found; the time began at `started`."""
    file = RecipeFile.read(path)
    if seed is not None:
        file.recipe.seed = seed
    name = _target(file, target)
    own = file.task(name)
    sources: list[Task] = []
    failed: dict[str, str] = {}
    for other in file.recipe.tasks:
        if other != name:
            try:
                sources.append(file.task(other))
            except CrossTaskError as error:  # the others may help all the same
                failed[other] = str(error).removeprefix(f"Task '{other}': ")
    folder = output or file.output.with_name(f"{file.output.name}-auto")
    found = auto(
        own,
        sources,
        minutes=minutes,
        encoder=file.resolved()["encoder"],
        training=file.settings,
        seed=file.recipe.seed,
        output=folder,
        board=make_board(False) if quiet else make_board(None, lambda line: typer.echo(line, err=True)),
        recipe=_described(file, name),
        failed=failed,
        started=started,
    )
    if as_json:
        typer.echo(json.dumps(found.facts, ensure_ascii=False))
        return
    typer.echo(str(found))
    typer.echo(f"Run folder: {folder / RUN_FOLDER}; plain model: {folder / EXPORT_FOLDER}")
    typer.echo(f"Why: {folder / AUTO_FILE}, {folder / LEADERBOARD_FILE}")


def _target(file: RecipeFile, wanted: str | None) -> str:
    recipe = file.recipe
    if wanted is None:
        if len(recipe.targets) > 1:
            raise CrossTaskError(
                f"{file.path} names {len(recipe.targets)} targets ({', '.join(recipe.targets)}), and a search is for "
                "the best model of one: choose it with --target."
            )
        return recipe.targets[0]
    if wanted not in recipe.tasks:
        raise unknown("task", wanted, recipe.tasks)
    return wanted


def _described(file: RecipeFile, target: str) -> dict[str, Any]:
    """The recipe of the last run: all labels train, so that a dev set is not cut."""
    data = file.resolved()
    own = dict(data["tasks"][target])
    if not isinstance(own.get("dev"), str):
        own["dev"] = False
    return {**data, "target": target, "tasks": {**data["tasks"], target: own}}
