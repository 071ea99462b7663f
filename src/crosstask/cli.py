"""The command line. Everything heavy is imported by the command that needs it, so that help answers at once."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from crosstask.errors import CrossTaskError

app = typer.Typer(
    name="crosstask",
    help="Few labels for the task you care about, plenty for related ones: train a model of yours with their help.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)

RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="YAML file that names tasks and settings.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or an exported model.")]
TaskOption = Annotated[str | None, typer.Option(metavar="NAME", help="Which task; the target when left out.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


@app.command()
def train(
    recipe: RecipeArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Run folder, instead of the recipe's.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue a run that was stopped.")] = False,
    seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Train the model that a recipe describes.

    Everything goes to the run folder: the recipe as resolved, history, metrics, checkpoints, the model and a page.

    [dim]crosstask train stars.yaml[/dim]
    """
    from crosstask.commands import train_recipe

    train_recipe(recipe, output, resume=resume, seed=seed, quiet=quiet)


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Labelled file; the recipe's test set when left out.")
    ] = None,
    task: TaskOption = None,
    json: Annotated[bool, typer.Option("--json", help="Scores as JSON.")] = False,
) -> None:
    """Score a trained model on labelled data.

    The file is read with the options that the run's recipe gives for the task.

    [dim]crosstask evaluate runs/stars more-stars.csv[/dim]
    """
    from crosstask.commands import evaluate_run

    evaluate_run(run, data, task=task, as_json=json)


@app.command()
def predict(
    run: RunArgument,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help="Texts: lines, .csv, .tsv or .jsonl. Standard input when left out."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output when left out.")
    ] = None,
    task: TaskOption = None,
    format: Annotated[
        str | None, typer.Option(help="lines, csv, tsv or jsonl; from the file's name when left out.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; give it twice for a pair.")
    ] = None,
    probabilities: Annotated[bool, typer.Option(help="A column per label with its probability.")] = False,
    encoding: Annotated[str, typer.Option(help="Of the input.")] = "utf-8",
) -> None:
    """Label new texts.

    Lines in give lines out: a label each. CSV and JSON lines keep their columns and gain `prediction`.

    [dim]crosstask predict runs/stars < texts.txt[/dim]
    [dim]crosstask predict runs/stars reviews.csv --text review --probabilities -o labelled.csv[/dim]
    """
    from crosstask.commands import predict_file

    predict_file(run, data, output, task=task, format=format, text=text, probabilities=probabilities, encoding=encoding)


@app.command()
def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder to write.")],
    task: TaskOption = None,
) -> None:
    """Write a plain Hugging Face folder that loads without crosstask.

    [dim]crosstask export runs/stars stars-model[/dim]
    """
    from crosstask.commands import export_run

    export_run(run, folder, task=task)


@app.command()
def methods(
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what there is: paradigms, weightings, transfers, encoders, formats, metrics."""
    from crosstask.commands import list_methods

    list_methods(as_json=json)


@app.command()
def demo(
    text: Annotated[bool, typer.Option("--text", help="Sentences with MiniLM instead of digits.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per method.")] = 5,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("runs/demo"),
    quiet: QuietOption = False,
) -> None:
    """Show the main job on built-in data, no network needed.

    Which digit is it? Few labels for that, many for parity, size and loops, and one source that can only hurt.
    """
    from crosstask.demo import run_demo

    run_demo(text=text, seeds=seeds, output=output, quiet=quiet)


def _version(wanted: bool) -> None:
    if wanted:
        from crosstask import __version__

        typer.echo(f"crosstask {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Few labels for the task you care about, plenty for related ones: train a model of yours with their help."""
    if debug:
        os.environ["CROSSTASK_DEBUG"] = "1"


def main() -> None:
    """Run the command line. A user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app(prog_name="crosstask")
    except CrossTaskError as error:
        if os.environ.get("CROSSTASK_DEBUG"):
            raise
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("Stopped. A training run continues with --resume.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
