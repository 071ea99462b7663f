"""The command: a recipe's tasks, methods by name, the table in the terminal and files in a folder."""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, cast

import typer

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, did_you_mean, unknown
from crosstask.recipe import RecipeFile, read_value
from crosstask.report import write_comparison_page
from crosstask.runs.record import REPORT_FILE
from crosstask.studies.compare import TABLE_NAME, WRITERS, compare
from crosstask.studies.compare_runs import RUNS_FOLDER
from crosstask.studies.executors import Place, num_processes
from crosstask.studies.formats import show
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.method import DEFAULT_METHODS, Words
from crosstask.validation import shown

DEFAULT_SEEDS = 5
KEYS: dict[str, tuple[type, ...]] = {
    "methods": (list, dict),
    "targets": (list,),
    "seeds": (int,),
    "baseline": (str,),
    "search": (dict,),
    "trials": (int,),
}
"""Of the recipe's section `compare`, with the sorts of their values."""


def compare_recipe(
    path: Path,
    *,
    methods: str | None,
    targets: str | None,
    seeds: int | None,
    baseline: str | None,
    search: Sequence[str],
    trials: int | None,
    jobs: int | None,
    on: str,
    keep_runs: bool,
    output: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare methods on a recipe's tasks. Options win over the recipe's section `compare`."""
    file = RecipeFile.read(path)
    recipe = file.recipe
    section = _section(file)
    named = section.get("methods", list(DEFAULT_METHODS))
    defined = named if isinstance(named, Mapping) else {}
    wanted = _names(targets) or [str(name) for name in section.get("targets", recipe.targets)]
    for name in wanted:  # before any data is read
        if name not in recipe.tasks:
            raise unknown("target", name, recipe.tasks)
    count = seeds or section.get("seeds", DEFAULT_SEEDS)
    folder = output or file.output.with_name(f"{file.output.name}-comparison")
    comparison = compare(
        partial(_tasks_of, file),
        _names(methods) or [str(name) for name in named],
        targets=wanted,
        baseline=baseline or section.get("baseline"),
        encoder=file.resolved()["encoder"],
        training=file.settings,
        seeds=range(recipe.seed, recipe.seed + count),
        output=folder,
        search=_grid(search) or section.get("search"),
        trials=trials or section.get("trials"),
        jobs=jobs or (None if on == "ray" else num_processes()),
        on=cast(Place, on),
        keep_runs=keep_runs,
        progress=False if quiet else None,
        words=Words.of(recipe.paradigm, [recipe.weighting, *recipe.transfer], defined),
    )
    write_comparison_page(folder)
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), ensure_ascii=False))
        return
    show(comparison)
    typer.echo(
        f"Folder: {folder} ({TABLE_NAME}.{', .'.join(WRITERS)}, and every run in {CELLS_FILE} and {RUNS_FOLDER})"
    )
    typer.echo(f"Page: {folder / REPORT_FILE}")


def _section(file: RecipeFile) -> dict[str, Any]:
    section = file.recipe.compare
    for key, value in section.items():
        if key not in KEYS:
            raise CrossTaskError(f"{file.path}: unknown key 'compare.{key}'. {did_you_mean(str(key), KEYS)}")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            sorts = {list: "a list", dict: "a mapping", int: "a whole number", str: "a text"}
            wanted = " or ".join(sorts[sort] for sort in KEYS[key])
            raise CrossTaskError(f"{file.path}: `compare.{key}` must be {wanted}; found {shown(value)}.")
    for key in ("seeds", "trials"):
        if section.get(key, 1) < 1:
            raise CrossTaskError(f"{file.path}: `compare.{key}` must be at least 1; found {section[key]}.")
    return section


def _grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`learning_rate=5e-5,2e-4` as a recipe would hold it."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, sign, values = text.partition("=")
        found = read_value(f"[{values}]")
        if not sign or not values.strip() or not isinstance(found, list):
            raise CrossTaskError(
                f"--search: expected a setting and its values, as in learning_rate=5e-5,2e-4; found {shown(text)}."
            )
        grid[key.strip()] = found
    return grid


def _names(text: str | None) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _tasks_of(file: RecipeFile, seed: int) -> Sequence[Task]:
    """The recipe's tasks as they are with this seed: another one gives another sample where there is a limit."""
    seeded = copy(file)
    seeded.recipe = file.recipe.model_copy(update={"seed": seed})
    targets, sources = seeded.tasks()
    return [*targets, *sources]
