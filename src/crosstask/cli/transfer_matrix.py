"""`crosstask transfer-matrix`."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import (
    JobsOption,
    JsonOption,
    PlaceOption,
    QuietOption,
    RecipeArgument,
    SeedsOption,
    StudyOption,
    app,
)
from crosstask.cli._recipe import folder_beside, plain_table, print_json, read_recipe, run_study

if TYPE_CHECKING:
    from rich.table import Table

    from crosstask.studies.transfer_matrix import Gain, TransferMatrix

STYLES: dict[str, str] = {"helps": "green", "hurts": "red", "unclear": "dim"}
MARKS: dict[str, str] = {"helps": " +", "hurts": " -", "unclear": "  "}


@app.command()
def transfer_matrix(
    recipe: RecipeArgument,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only what helps this task; can be given several times. All when left out."),
    ] = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = None,
    on: PlaceOption = "local",
    output: StudyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure by training which task helps which.

    For every ordered pair of the recipe's tasks: the gain on dev of training them together over the target alone, with
    the same budget and start. Stopped, it goes on where it was when it is called again.

    [dim]crosstask transfer-matrix stars.yaml[/dim]
    [dim]crosstask transfer-matrix stars.yaml --target stars --seeds 5 --jobs 4[/dim]
    [dim]crosstask transfer-matrix stars.yaml --on ray[/dim]
    """
    from crosstask.studies import transfer_matrix as study
    from crosstask.studies.grid import CELLS_FILE
    from crosstask.training.paradigms import find_paradigm

    file = read_recipe(recipe, quiet=quiet)
    folder = folder_beside(file, output, "transfer-matrix")
    matrix = run_study(
        study.transfer_matrix,
        file,
        folder,
        num_seeds=seeds,
        jobs=jobs,
        on=on,
        quiet=quiet,
        targets=target or None,
        paradigm=find_paradigm(file.recipe.paradigm or "normalized-joint").with_sources,
    )
    if json:
        print_json(matrix.to_json())
        return
    print_matrix(matrix)
    typer.echo(f"Folder: {folder} ({study.MATRIX_FILE}, and every run in {CELLS_FILE})")


def print_matrix(matrix: "TransferMatrix") -> None:
    """The table for the terminal: a column per target, or a line per pair where columns do not fit."""
    from rich.console import Console

    console = Console()
    count = len(matrix.seeds)
    title = f"Gain on dev, {matrix.settings['paradigm']} over single, {count} seed{'s' * (count > 1)}"
    console.print(title, style="bold")
    width = 4 + max(len(name) for name in matrix.sources)
    for target in matrix.targets:
        width += max(18, len(target) + len(matrix.metrics[target]) + 5)
    if width <= console.width:
        console.print(_table_of_targets(matrix))
    else:
        console.print(_table_of_pairs(matrix))
    console.print("+ helps, - hurts: the 95% interval leaves zero out. ± standard error.", style="dim")


def _table_of_targets(matrix: "TransferMatrix") -> "Table":
    """A line per source, a column per target."""
    from rich.markup import escape

    table = plain_table()
    table.add_column("source", style="cyan", no_wrap=True)
    scores_alone = []
    for target in matrix.targets:
        table.add_column(f"→ {escape(target)} [dim]{matrix.metrics[target]}[/dim]", justify="right", no_wrap=True)
        scores_alone.append(_any_gain(matrix, target).alone.text("standard_error") + "  ")
    table.add_row("(alone)", *scores_alone)
    for source in matrix.sources:
        if matrix.targets != (source,):  # the line would be empty
            table.add_row(escape(source), *(_gain_text(matrix, source, target) for target in matrix.targets))
    return table


def _table_of_pairs(matrix: "TransferMatrix") -> "Table":
    """A line per pair, for many or long names."""
    from rich.markup import escape

    table = plain_table()
    for heading in ("source", "target"):
        table.add_column(heading, style="cyan", overflow="fold")
    table.add_column("gain", justify="right", no_wrap=True)
    for gain in sorted(matrix.cells.values(), key=_by_target_and_gain):
        table.add_row(escape(gain.source), escape(gain.target), _gain_text(matrix, gain.source, gain.target))
    return table


def _any_gain(matrix: "TransferMatrix", target: str) -> "Gain":
    """Of any source: the target's score alone is the same in all of them."""
    return next(gain for (_, name), gain in matrix.cells.items() if name == target)


def _gain_text(matrix: "TransferMatrix", source: str, target: str) -> str:
    if source == target:
        return "·  "
    gain = matrix.cells[source, target]
    return f"[{STYLES[gain.verdict]}]{gain.dev.text('standard_error', signed=True)}{MARKS[gain.verdict]}[/]"


def _by_target_and_gain(gain: "Gain") -> tuple[str, float]:
    """Sorting key: the best source of a target first, one whose gain is not known last."""
    if math.isnan(gain.dev.mean):
        return gain.target, math.inf
    return gain.target, -gain.dev.mean
