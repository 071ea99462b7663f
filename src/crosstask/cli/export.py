"""`crosstask export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import RunArgument, TaskOption, TrustOption, app, flag
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.runs.predictor import PushOptions


@app.command()
def export(
    run: RunArgument,
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="New folder to write; with --push none is needed.")
    ] = None,
    task: TaskOption = None,
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
    """Write a plain Hugging Face folder that loads without crosstask, or push it to the hub.

    Models that transformers has no class for (word vectors, numeric vectors) become a folder for `crosstask.load`.

    A pushed model has a card with its scores, what the sources counted and gave, and how to load it; it holds no texts
    of your data. `crosstask.from_pretrained("OWNER/NAME")` reads it back.

    [dim]crosstask export runs/stars stars-model[/dim]
    [dim]crosstask export runs/stars --push user/stars --license apache-2.0[/dim]
    """
    from crosstask.runs.loading import load

    if folder is None and push is None:
        raise CrossTaskError("Name a FOLDER to write, or a repository of the hub with --push.")
    if push is None and (private or license is not None or comparison is not None):
        raise CrossTaskError("--private, --license and --comparison are for --push.")
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
    path = predictor.export(folder, task)
    # transformers' own marker of a model.
    loader = "plain transformers" if (path / "config.json").is_file() else "crosstask.load"
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
