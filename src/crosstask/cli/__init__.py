"""The command line. Everything heavy is imported by the command that needs it, so that help answers at once."""

import atexit
import gc

from crosstask.cli._app import app
from crosstask.cli._signals import stopped_by_signals

# The order of the imports is the order of the commands in the help.
from crosstask.cli import (  # noqa: F401  # isort: skip
    train,
    evaluate,
    predict,
    export,
    serve,
    report,
    rank,
    transfer_matrix,
    capacity,
    auto,
    compare,
    reproduce,
    bench,
    methods,
    schema,
    cache,
    demo,
)

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    # The system takes all memory back at the end; with torch loaded, a last search for garbage takes half a second.
    atexit.register(gc.freeze)
    with stopped_by_signals():
        app(prog_name="crosstask")
