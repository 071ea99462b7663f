"""`crosstask compare`."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from crosstask.cli._app import JsonOption, QuietOption, RecipeArgument, app, flag
from crosstask.cli._device import DeviceOption, PrecisionOption, train_on
from crosstask.cli._recipe import (
    PADDING,
    check_task_name,
    folder_beside,
    plain_table,
    print_json,
    read_recipe,
    show_progress,
)
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.data.task import Task
    from crosstask.recipe import RecipeFile
    from crosstask.studies.executors import ExecutorName
    from crosstask.studies.table import Comparison

DEFAULT_SEEDS = 5


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
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Runs side by side; one per core, or eight per GPU, if left out."),
    ] = None,
    on: Annotated[
        str,
        typer.Option(metavar="PLACE", help="`local`, or `ray` for a Ray cluster (RAY_ADDRESS, or one started here)."),
    ] = "local",
    keep_runs: Annotated[bool, flag("--keep-runs", help="Keep the model of each run too.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the comparison.")
    ] = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare methods: same data, start and budget for each seed, and a table with error bars and tests.

    Stopped, it goes on where it was when it is called again. The recipe's section `compare` can hold the same options,
    and methods with settings of their own.

    [dim]crosstask compare stars.yaml --methods single,joint,tawt,joint+tawt+label-transfer[/dim]
    [dim]crosstask compare stars.yaml --targets stars,polarity --seeds 10 --jobs 4[/dim]
    [dim]crosstask compare stars.yaml --search learning_rate=5e-5,2e-4 --on ray[/dim]
    """
    train_on(device)
    from crosstask.report import write_comparison_page, write_if_possible
    from crosstask.runs.record import REPORT_FILE
    from crosstask.studies import compare as study
    from crosstask.studies.compare_runs import RUNS_FOLDER
    from crosstask.studies.executors import num_jobs
    from crosstask.studies.grid import CELLS_FILE
    from crosstask.studies.method import DEFAULT_METHODS, Definitions

    # 1. Options win over the recipe's section `compare`.
    file = read_recipe(recipe, precision=precision, quiet=quiet)
    section = file.recipe.compare
    section_methods = section.methods
    if section_methods is None:
        section_methods = list(DEFAULT_METHODS)
    defined_methods = section_methods if isinstance(section_methods, Mapping) else {}
    target_names = _split_names(targets) or [str(name) for name in section.targets or file.recipe.targets]
    for name in target_names:
        check_task_name(file, name, "target")
    num_seeds = seeds or section.seeds or DEFAULT_SEEDS
    if jobs is None and on != "ray":
        jobs = num_jobs()
    folder = folder_beside(file, output, "comparison")

    # 2. The comparison itself, and its page.
    comparison = study.compare_names(
        partial(_seeded_tasks, file),
        _split_names(methods) or [str(name) for name in section_methods],
        Definitions.of_recipe(file.recipe.paradigm, [file.recipe.weighting, *file.recipe.transfer], defined_methods),
        target_names,
        baseline=baseline or section.baseline,
        encoder=file.resolved()["encoder"],
        training=file.settings,
        drop_overlap=file.recipe.drop_overlap,
        seeds=range(file.recipe.seed, file.recipe.seed + num_seeds),
        output=folder,
        search=_search_values(search or []) or section.search,
        trials=trials or section.trials,
        jobs=jobs,
        on=cast("ExecutorName", on),
        keep_runs=keep_runs,
        progress=show_progress(quiet),
    )
    write_if_possible(lambda: write_comparison_page(folder), folder)

    # 3. The answer.
    if json:
        print_json(comparison.to_json())
        return
    print_comparison(comparison)
    tables = f"{study.TABLE_NAME}.{', .'.join(study.WRITERS)}"
    typer.echo(f"Folder: {folder} ({tables}, and every run in {CELLS_FILE} and {RUNS_FOLDER})")
    typer.echo(f"Page: {folder / REPORT_FILE}")


def _search_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`learning_rate=5e-5,2e-4` as a recipe would hold it."""
    from crosstask.recipe import read_value
    from crosstask.validation import shown

    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, sign, value_text = text.partition("=")
        values = read_value(f"[{value_text}]")
        if not sign or not value_text.strip() or not isinstance(values, list):
            raise CrossTaskError(
                f"--search: expected a setting and its values, as in learning_rate=5e-5,2e-4; found {shown(text)}."
            )
        grid[key.strip()] = values
    return grid


def _split_names(text: str | None) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _seeded_tasks(file: "RecipeFile", seed: int) -> "Sequence[Task]":
    """The recipe's tasks as they are with this seed: another one gives another sample where there is a limit."""
    seeded = copy(file)
    seeded.recipe = file.recipe.model_copy(update={"seed": seed})
    targets, sources = seeded.tasks()
    return [*targets, *sources]


def print_comparison(comparison: "Comparison") -> None:
    """The table for the terminal; columns that do not fit stay in the files, those that are missed least first."""
    from rich.console import Console
    from rich.markup import escape

    from crosstask.studies import formats

    console = Console()
    for target in comparison.targets:
        console.print(formats.caption(comparison, target), style="bold", markup=False)
        columns = formats.table_columns(comparison, target)
        # What is missed least goes first, until the table fits.
        for name in (formats.SECONDS, formats.COST, formats.RANK_TEST, formats.WON, formats.T_TEST, formats.P_ALONE):
            if _table_width(columns) > console.width:
                columns.pop(name, None)
        table = plain_table()
        for name in columns:
            if name == formats.METHOD:
                table.add_column(name, style="cyan")
            else:
                table.add_column(name, justify="right")
        best = formats.best_rows(comparison, target)
        for index, texts in enumerate(zip(*columns.values(), strict=True)):
            cells = [escape(text) for text in texts]  # a method's name may hold brackets
            if index in best:
                score = list(columns).index(formats.SCORE)
                cells[score] = f"[bold]{texts[score]}[/bold]"
            table.add_row(*cells)
        console.print(table)
    for refusal in formats.refusals(comparison):
        console.print(refusal, style="yellow", markup=False)
    for note in comparison.notes():
        console.print(note, style="dim", markup=False)


def _table_width(columns: Mapping[str, Sequence[str]]) -> int:
    from rich.cells import cell_len

    width = 0
    for name, cells in columns.items():
        width += max(cell_len(text) for text in (name, *cells)) + PADDING
    return width
