"""`crosstask capacity`."""

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
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.studies.capacity import Capacity


@app.command()
def capacity(
    recipe: RecipeArgument,
    widths: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Widths to try, with commas; 5,20,50,100,200,500 if left out.")
    ] = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = None,
    on: PlaceOption = "local",
    output: StudyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the best width of the shared module, for each task alone and for all together.

    Too narrow, and tasks get in each other's way; too wide, and nothing is shared. Stopped, it goes on where it was
    when it is called again.

    [dim]crosstask capacity stars.yaml --widths 5,50,200[/dim]
    [dim]crosstask capacity stars.yaml --on ray[/dim]
    """
    from crosstask.studies import capacity as study
    from crosstask.studies.grid import CELLS_FILE

    file = read_recipe(recipe, quiet=quiet)
    folder = folder_beside(file, output, "capacity")
    paradigm = file.recipe.paradigm
    if paradigm not in study.PARADIGMS:
        paradigm = "normalized-joint"
    result = run_study(
        study.capacity,
        file,
        folder,
        num_seeds=seeds,
        jobs=jobs,
        on=on,
        quiet=quiet,
        widths=_parse_widths(widths) or study.WIDTHS,
        paradigm=paradigm,
    )
    if json:
        print_json(result.to_json())
        return
    print_capacity(result)
    typer.echo(f"Folder: {folder} ({study.CAPACITY_FILE}, and every run in {CELLS_FILE})")


def _parse_widths(text: str | None) -> list[int]:
    """Numbers with commas between them; none when the option is left out."""
    if text is None:
        return []
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise CrossTaskError(f"--widths must be whole numbers with commas between them, found '{text}'.") from None


def print_capacity(result: "Capacity") -> None:
    """Best widths and their scores, as in Table 1 of the paper."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    count = len(result.seeds)
    split = "dev"  # where there is no test set
    if result.alone_test:
        split = "test"
    title = f"Best `{result.width_option}` by dev score, {split} score there, {count} seed{'s' * (count > 1)}"
    console.print(title, style="bold", markup=False)
    table = plain_table()
    table.add_column("task", style="cyan", no_wrap=True)
    for heading in ("width alone", "score alone", "width together", "score together"):
        table.add_column(heading, justify="right", no_wrap=True)
    scores: list[tuple[float, float]] = []  # alone and together, by task
    for task in result.tasks:
        if task in result.alone_test:
            alone, together = result.alone_test[task], result.together_test[task]
        else:
            alone, together = result.alone[task][result.best_alone[task]], result.together[task][result.best_together]
        scores.append((alone.mean, together.mean))
        scores_alone, scores_together = alone.text("standard_error"), together.text("standard_error")
        widths = str(result.best_alone[task]), str(result.best_together)
        table.add_row(escape(task), widths[0], scores_alone, widths[1], scores_together)
    means = ["", ""]
    # Scores of one metric have a mean; those of several have not.
    if len(set(result.metrics.values())) == 1:
        means = [f"{sum(column) / len(column):.3f}" for column in zip(*scores, strict=True)]
    table.add_row("[bold]overall", str(result.total_alone), means[0], str(result.best_together), means[1])
    console.print(table)
    for note in result.notes:
        console.print(note, style="dim", markup=False)
