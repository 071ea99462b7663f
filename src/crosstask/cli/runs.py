"""Commands that make a model and use it."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import QuietOption, RecipeArgument, RunArgument, TaskOption, app, flag


@app.command()
def train(
    recipe: RecipeArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Run folder, instead of the recipe's or runs/NAME."),
    ] = None,
    resume: Annotated[bool, flag("--resume", help="Go on with a run that was stopped.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, metavar="NUMBER", help="Another seed than the recipe's.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Train the model that a recipe describes.

    Everything goes to the run folder: the recipe as resolved, history, metrics, checkpoints, the model and a page.
    A folder that exists is never written over.

    [dim]crosstask train stars.yaml[/dim]
    [dim]crosstask train stars.yaml --resume[/dim]
    [dim]crosstask train stars.yaml --seed 1 -o runs/stars-1[/dim]
    """
    from crosstask.cli.commands import train_recipe

    train_recipe(recipe, output, resume=resume, seed=seed, quiet=quiet)


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Labelled file; the recipe's test set when left out.")
    ] = None,
    task: TaskOption = None,
    json: Annotated[bool, flag("--json", help="Scores as JSON.")] = False,
) -> None:
    """Score a trained model on labelled data.

    The file is read with the options that the run's recipe gives for the task.

    [dim]crosstask evaluate runs/stars[/dim]
    [dim]crosstask evaluate runs/stars more-stars.csv --json[/dim]
    """
    from crosstask.cli.commands import evaluate_run

    evaluate_run(run, data, task=task, as_json=json)


@app.command()
def predict(
    run: RunArgument,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="Lines, .csv, .tsv, .jsonl or, for tagging, .conllu and columns; each also gzipped. "
            "Standard input when left out.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; standard output when left out."),
    ] = None,
    task: TaskOption = None,
    format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Of the input; from the file's name when left out.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of the text, where the recipe's is not meant; twice for a pair."),
    ] = None,
    probabilities: Annotated[bool, flag("--probabilities", help="Also the probability of each label.")] = False,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the input; the recipe's, or utf-8, when left out.")
    ] = None,
) -> None:
    """Label new data.

    Lines in give lines out: a label each, or a tag for every word. Tables keep their columns and gain `prediction`.
    Pairs in lines are two texts with a tab between them.

    [dim]crosstask predict runs/stars < texts.txt[/dim]
    [dim]crosstask predict runs/stars reviews.csv -o labelled.csv[/dim]
    [dim]crosstask predict runs/stars reviews.jsonl --text body --probabilities[/dim]
    """
    from crosstask.cli.predict import label_file

    label_file(run, data, output, task=task, format=format, text=text, probabilities=probabilities, encoding=encoding)


@app.command()
def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder to write.")],
    task: TaskOption = None,
) -> None:
    """Write a plain Hugging Face folder that loads without crosstask.

    Models that transformers has no class for (word vectors, numeric vectors) become a folder for `crosstask.load`.

    [dim]crosstask export runs/stars stars-model[/dim]
    """
    from crosstask.cli.commands import export_run

    export_run(run, folder, task=task)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run, a comparison or the demo.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of report.html in the folder.")
    ] = None,
    show: Annotated[bool, flag("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write the page of a run or of a comparison: one HTML file that needs no network.

    Everything on it is computed from the other files of the folder, so that it can be written anew at any time.

    [dim]crosstask report runs/stars --open[/dim]
    [dim]crosstask report runs/stars-comparison -o stars.html[/dim]
    """
    from crosstask.report import write_page

    page = write_page(folder, output)
    typer.echo(page)
    if show:
        typer.launch(page.resolve().as_uri())
