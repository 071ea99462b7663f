"""`crosstask export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import RunArgument, TaskOption, TrustOption, app, flag
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.runs.publishing import PushOptions


@app.command()
def export(
    run: RunArgument,
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="New folder to write; with --push none is needed.")
    ] = None,
    task: TaskOption = None,
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="transformers, or onnx: a graph for programs without torch.")
    ] = "transformers",
    int8: Annotated[
        bool, flag("--int8", help="With --format onnx: weights of eight bits, a quarter of the size.")
    ] = False,
    push: Annotated[
        str | None, typer.Option("--push", metavar="OWNER/NAME", help="Push the model to this repository of the hub.")
    ] = None,
    private: Annotated[bool, flag("--private", help="With --push: seen by its owner alone, if it is new.")] = False,
    license: Annotated[
        str | None, typer.Option("--license", metavar="NAME", help="With --push: of the weights, such as apache-2.0.")
    ] = None,
    comparison: Annotated[
        Path | None,
        typer.Option("--comparison", metavar="FOLDER", help="With --push: of `compare`, for what the sources gave."),
    ] = None,
    trust_remote_code: TrustOption = False,
) -> None:
    """Write a plain Hugging Face folder or an ONNX graph that works without crosstask, or push it to the hub.

    Where transformers has no class for a model (mean pooling, adapters), its code stands beside the weights, and
    `trust_remote_code=True` runs it. Models over word or numeric vectors become a folder for `crosstask.load`.

    An ONNX folder holds the graph, its tokenizer and its labels; `crosstask predict` and `crosstask serve` run it too.
    What --int8 changes is measured on the examples that the run was measured on, and printed.

    A pushed model has a card with its scores, what the sources counted and gave, and how to load it; it holds no texts
    of your data. `crosstask.from_pretrained("OWNER/NAME")` reads it back.

    [dim]crosstask export runs/stars stars-model[/dim]
    [dim]crosstask export runs/stars stars-onnx --format onnx --int8[/dim]
    [dim]crosstask export runs/stars --push user/stars --license apache-2.0[/dim]
    """
    from crosstask.models.onnx.folder import stated_difference
    from crosstask.models.onnx.graph import OPSET
    from crosstask.models.plain.conversion import CODE_FILE
    from crosstask.runs.loading import load

    if folder is None and push is None:
        raise CrossTaskError("Name a FOLDER to write, or a repository of the hub with --push.")
    if push is None and (private or license is not None or comparison is not None):
        raise CrossTaskError("--private, --license and --comparison are for --push.")
    if push is not None and (format != "transformers" or int8):
        raise CrossTaskError("--push pushes the model for transformers: --format and --int8 are for a FOLDER.")
    predictor = load(run, trust_remote_code=trust_remote_code)
    if push is not None:
        options: PushOptions = {"private": True} if private else {}
        if license is not None:
            options["license"] = license
        target = predictor.spec(task).name
        address = predictor.push_to_hub(
            push, task, folder=folder, evidence=_evidence(run, target, comparison), **options
        )
        typer.echo(f"Pushed to {address}, which loads with crosstask.from_pretrained.")
        return
    assert folder is not None
    path = predictor.export(folder, task, format=format, int8=int8)
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


def _evidence(run: Path, target: str, comparison: Path | None) -> list[str]:
    """What is known of the sources' part: of a comparison, or of the search that the run is of."""
    from crosstask.automl.result import read_found
    from crosstask.report.comparison_view import read_comparison
    from crosstask.report.formatting import plain_sentence

    if comparison is None:
        search = read_found(run.parent)
        return [] if search is None else search.evidence
    views = read_comparison(comparison).targets
    sentences = [plain_sentence(view) for view in views if view.target == target]
    if not sentences:
        names = ", ".join(view.target for view in views)
        raise CrossTaskError(f"The comparison in '{comparison}' is of other targets ({names}) than '{target}'.")
    return sentences
