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

    Where transformers has no class for a model (mean pooling, adapters), its code stands beside the weights, and
    `trust_remote_code=True` runs it. Models over word or numeric vectors become a folder for `crosstask.load`.

    [dim]crosstask export runs/stars stars-model[/dim]
    """
    from crosstask.models.plain.conversion import CODE_FILE
    from crosstask.runs.loading import load

    path = load(run, trust_remote_code=trust_remote_code).export(folder, task)
    loader = "crosstask.load"
    if (path / CODE_FILE).is_file():
        loader = f"plain transformers and trust_remote_code=True, which runs its {CODE_FILE} (README.md there says why)"
    elif (path / "config.json").is_file():  # transformers' own marker of a model
        loader = "plain transformers"
    typer.echo(f"Wrote {path}, which loads with {loader}.")
