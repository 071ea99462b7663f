"""The command line. Everything heavy is imported by the command that needs it, so that help answers at once."""

import atexit  # noqa: I001 - commands in the order of the help
import gc

from crosstask.cli import runs, studies, papers, about  # noqa: F401
from crosstask.cli._app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    # The system takes all memory back at the end; with torch loaded, a last search for garbage takes half a second.
    atexit.register(gc.freeze)
    app(prog_name="crosstask")
