"""`crosstask export`."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import RunArgument, TaskOption, TrustOption, app


@app.command()
def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder to write.")],
    task: TaskOption = None,
    trust_remote_code: TrustOption = False,
) -> None:
    """Write a plain Hugging Face folder that loads without crosstask.

    Models that transformers has no class for (word vectors, numeric vectors) become a folder for `crosstask.load`.

    [dim]crosstask export runs/stars stars-model[/dim]
    """
    from crosstask.runs.loading import load

    path = load(run, trust_remote_code=trust_remote_code).export(folder, task)
    # transformers' own marker of a model.
    loader = "plain transformers" if (path / "config.json").is_file() else "crosstask.load"
    typer.echo(f"Wrote {path}, which loads with {loader}.")
