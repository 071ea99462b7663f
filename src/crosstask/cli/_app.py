"""The application, its one way to fail, and the options that several commands share."""

import contextlib
import logging
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from crosstask.cli._signals import Stopped, forget_output
from crosstask.errors import CrossTaskError, CrossTaskWarning, RemoteCodeWarning
from crosstask.quoting import readable


class Commands(TyperGroup):
    """All commands, with one way to fail: a user's mistake is one sentence and exit code 2, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command and print in one line what went wrong, if something did."""
        try:
            with _warnings_as_lines():
                result = super().invoke(ctx)
            sys.stdout.flush()  # here, so that a reader that has gone away is noticed here
            return result
        except CrossTaskError as error:
            if ctx.params.get("debug"):
                raise
            # A file's name, or a value from it, may hold line breaks; the error stays one line.
            typer.echo("Error: " + re.sub(r"\s*\n\s*", " ", str(error).strip()), err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT) from None
        except BrokenPipeError:  # as in `crosstask predict ... | head`
            forget_output()
            raise typer.Exit(0) from None


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print a warning that is meant for the user as a line, not as a place in the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RemoteCodeWarning)
        warnings.simplefilter("ignore", CrossTaskWarning)  # commands print what runs warn of in their own way
        show_in_source = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
            if issubclass(category, RemoteCodeWarning):
                typer.echo(f"Warning: {message}", err=True)
            else:
                show_in_source(message, category, *location, **more)

        warnings.showwarning = show
        yield


app = typer.Typer(
    name="crosstask",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)


def flag(*names: str, **options: Any) -> Any:
    """An option without a value; the help would otherwise show a type that nobody has to type."""
    return typer.Option(*names, metavar="", **options)


# Arguments and options that several commands have.
RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="YAML file that names tasks and settings.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or an exported model.")]
TaskOption = Annotated[str | None, typer.Option(metavar="NAME", help="Which task; the target when left out.")]
SeedOption = Annotated[int | None, typer.Option(min=0, metavar="NUMBER", help="Another seed than the recipe's.")]
JsonOption = Annotated[bool, flag("--json", help="As JSON.")]
TrustOption = Annotated[
    bool,
    flag("--trust-remote-code", help="Run Python code that comes with the model, with all your rights. Few need it."),
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES", min=1, help="Of the input, unpacked, at most; the recipe's, or 4 GiB, when left out."
    ),
]
TextOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the text, the words or a number, where the recipe's is not meant; again for each other one.",
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column of the label, likewise; again for each where labels are columns."),
]
EncodingOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the input; the recipe's, or utf-8, when left out.")
]
AbstainOption = Annotated[
    float | None,
    typer.Option(
        metavar="ERROR",
        help="Hold predictions back so that no more of the others are wrong than this, such as 0.05.",
    ),
]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(metavar="PROBABILITY", help="Hold predictions back whose probability is below this."),
]
QuietOption = Annotated[bool, flag("--quiet", "-q", help="No progress bar.")]
SeedsOption = Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Runs of each combination.")]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="NUMBER", help="Runs side by side; one, or as a GPU has room for, if left out."),
]
PlaceOption = Annotated[
    str,
    typer.Option(
        "--on", metavar="PLACE", help="`local`, or `ray` for a Ray cluster (RAY_ADDRESS, or one started here)."
    ),
]
StudyOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the study, beside the recipe's runs.")
]


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from crosstask import __version__

        typer.echo(f"crosstask {__version__}")
        raise typer.Exit


LogLevel = Literal["warning", "info", "debug"]


class TerminalHandler(logging.Handler):
    """Writes to the error stream as it is at that moment: a progress bar takes its place while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line, whatever it quotes."""
        typer.echo(readable(self.format(record)), err=True)


@contextlib.contextmanager
def logged_to_terminal(level: LogLevel) -> Iterator[None]:
    """Show what the package tells Python's logging inside, from this level on."""
    logger = logging.getLogger("crosstask")
    level_before, propagate_before = logger.level, logger.propagate
    handler = TerminalHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    logger.propagate = False  # once is enough
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        logger.propagate = propagate_before


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, flag("--debug", help="Show the traceback of an error.")] = False,
    log: Annotated[
        LogLevel | None,
        typer.Option(metavar="LEVEL", help="Show what happens: info (phases, evaluations) or debug (every update)."),
    ] = None,
    version: Annotated[
        bool, flag("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Few labels for the task you care about, plenty for related ones: train a model of yours with their help.

    [dim]crosstask demo[/dim]               the main job on built-in data

    [dim]crosstask train recipe.yaml[/dim]  a run of your own, in runs/recipe
    """
    if log is not None:
        context.with_resource(logged_to_terminal(log))
