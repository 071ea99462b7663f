"""`crosstask export`."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import RunArgument, TaskOption, TrustOption, app, flag


@app.command()
def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder to write.")],
    task: TaskOption = None,
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="transformers, or onnx: a graph for programs without torch.")
    ] = "transformers",
    int8: Annotated[
        bool, flag("--int8", help="With --format onnx: weights of eight bits, a quarter of the size.")
    ] = False,
    trust_remote_code: TrustOption = False,
) -> None:
    """Write a plain Hugging Face folder, or an ONNX graph, that works without crosstask.

    Where transformers has no class for a model (mean pooling, adapters), its code stands beside the weights, and
    `trust_remote_code=True` runs it. Models over word or numeric vectors become a folder for `crosstask.load`.

    An ONNX folder holds the graph, its tokenizer and its labels; `crosstask predict` and `crosstask serve` run it too.
    What --int8 changes is measured on the examples that the run was measured on, and printed.

    [dim]crosstask export runs/stars stars-model[/dim]
    [dim]crosstask export runs/stars stars-onnx --format onnx --int8[/dim]
    """
    from crosstask.models.onnx.folder import stated_difference
    from crosstask.models.onnx.graph import OPSET
    from crosstask.models.plain.conversion import CODE_FILE
    from crosstask.runs.loading import load

    path = load(run, trust_remote_code=trust_remote_code).export(folder, task, format=format, int8=int8)
    if format == "onnx":
        typer.echo(f"Wrote {path}, which any ONNX runtime runs (opset {OPSET}; README.md there shows how).")
        if int8:
            typer.echo(f"Eight bits: {stated_difference(path)}")
        return
    loader = "crosstask.load"
    if (path / CODE_FILE).is_file():
        loader = f"plain transformers and trust_remote_code=True, which runs its {CODE_FILE} (README.md there says why)"
    elif (path / "config.json").is_file():  # transformers' own marker of a model
        loader = "plain transformers"
    typer.echo(f"Wrote {path}, which loads with {loader}.")
