"""What commands on a recipe share: reading it, its targets and sources, the folder of a study, printing a result."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import typer

from crosstask.errors import CrossTaskError, unknown
from crosstask.progress import make_progress, shown, step_by_step

if TYPE_CHECKING:
    from rich.table import Table

    from crosstask.data.task import Task
    from crosstask.recipe import RecipeFile


class Result(Protocol):
    """What a study returns."""

    def to_json(self) -> Mapping[str, object]:
        """As plain data."""
        ...


ResultT = TypeVar("ResultT", bound=Result)


@dataclass(frozen=True)
class RecipeTasks:
    """Tasks of a recipe by name, and why each of the others could not be read."""

    tasks: "dict[str, Task]"
    failures: dict[str, str]

    def sources(self, target: str) -> "list[Task]":
        """All tasks but the target."""
        return [task for name, task in self.tasks.items() if name != target]


def read_recipe(
    path: Path, seed: int | None = None, *, precision: str | None = None, quiet: bool = False
) -> "RecipeFile":
    """Read and check a recipe; a seed or a precision given on the command line replaces the recipe's."""
    with shown(make_progress(show_progress(quiet))) as progress:
        # Shown at once: the packages that a recipe needs take seconds to load.
        progress.start(f"read {path.name[-30:]}", 1)
        from crosstask.recipe import RecipeFile
        from crosstask.validation import Seed, check_value

        file = RecipeFile.read(path)
    if seed is not None:
        check_value("--seed", "seed", Seed, seed)
        file.recipe.seed = seed
    if precision is not None:
        from crosstask.training.devices import Precision
        from crosstask.validation import check_value

        check_value("--precision", "precision", Precision, precision)
        file.recipe.training = replace(file.recipe.training, precision=cast(Precision, precision))
    return file


def check_task_name(file: "RecipeFile", name: str, what: str = "task") -> None:
    """Refuse a name that the recipe does not have, before any data is read."""
    if name not in file.recipe.tasks:
        raise unknown(what, name, file.recipe.tasks)


def read_tasks(
    file: "RecipeFile",
    targets: Sequence[str],
    *,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    quiet: bool = False,
) -> RecipeTasks:
    """Read all tasks of a recipe. A target must be readable; a broken source is skipped, the others may help.

    Args:
        file: the recipe.
        targets: names of those that must be readable.
        sections: of all tasks, where they are read by others than the recipe's.
        quiet: show no progress.
    """
    sections = sections or file.recipe.tasks
    tasks: dict[str, Task] = {}
    failures: dict[str, str] = {}
    sources = [name for name in file.recipe.tasks if name not in targets]
    with shown(make_progress(show_progress(quiet))):
        for name in step_by_step("read tasks", [*targets, *sources]):
            try:
                tasks[name] = file.task(name, sections[name])
            except CrossTaskError as error:
                if name in targets:
                    raise
                # The row of the source has its name already.
                failures[name] = str(error).removeprefix(f"Task '{name}': ")
    return RecipeTasks(tasks, failures)


def folder_beside(file: "RecipeFile", output: Path | None, name: str) -> Path:
    """The folder of a study: `output`, or beside the recipe's run folder."""
    from crosstask.storage import check_path

    return check_path(output or file.output.with_name(f"{file.output.name}-{name}"), "--output")


def run_study(
    study: Callable[..., ResultT],
    file: "RecipeFile",
    output: Path,
    *,
    num_seeds: int,
    jobs: int | None,
    quiet: bool,
    **options: Any,
) -> ResultT:
    """Call a study with the tasks, the methods and the settings of a recipe; seeds count on from the recipe's."""
    recipe = file.recipe
    targets, sources = file.tasks(progress=show_progress(quiet))  # to a study all tasks are alike
    return study(
        [*targets, *sources],
        encoder=file.resolved()["encoder"],
        weighting=recipe.weighting,
        transfer=recipe.transfer,
        training=file.settings,
        drop_overlap=recipe.drop_overlap,
        seeds=range(recipe.seed, recipe.seed + num_seeds),
        output=output,
        jobs=jobs,
        progress=show_progress(quiet),
        **options,
    )


def show_progress(quiet: bool) -> bool | None:
    """The argument `progress` of the library: None shows a bar where the error stream is a terminal."""
    if quiet:
        return False
    return None


def score_text(value: float | None) -> str:
    """A score with four digits."""
    if value is None or math.isnan(value):
        return "not defined"
    return f"{value:.4f}"


def print_json(data: Mapping[str, object]) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False))


PADDING = 2
"""Spaces between the columns of a table."""


def plain_table(title: str | None = None, padding: int = PADDING) -> "Table":
    """An empty table without lines, as all commands print them."""
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, padding=(0, padding, 0, 0))
