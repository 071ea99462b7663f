"""The command line. Everything heavy is imported by the command that needs it, so that help answers at once."""

from crosstask.cli import runs, studies, papers, about  # noqa: F401, I001 - in the order of the help
from crosstask.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app(prog_name="crosstask")
