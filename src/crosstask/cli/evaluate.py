"""`crosstask evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import MaxBytesOption, RunArgument, TaskOption, TrustOption, app, flag
from crosstask.cli._recipe import print_json, score_text
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.data.examples import Examples, TaskSpec


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Labeled file; the recipe's test set when left out.")
    ] = None,
    task: TaskOption = None,
    json: Annotated[bool, flag("--json", help="Scores as JSON.")] = False,
    trust_remote_code: TrustOption = False,
    max_bytes: MaxBytesOption = None,
) -> None:
    """Score a trained model on labeled data.

    The file is read with the options that the run's recipe gives for the task.

    [dim]crosstask evaluate runs/stars[/dim]
    [dim]crosstask evaluate runs/stars more-stars.csv --json[/dim]
    """
    from crosstask.runs.loading import load
    from crosstask.runs.record import finite

    model = load(run, trust_remote_code=trust_remote_code)
    spec = model.spec(task)
    examples = _labeled_examples(run, data, spec, max_bytes)
    scores = model.score(examples, spec.name)
    if json:
        print_json(finite({"task": spec.name, "examples": len(examples), "scores": scores}))
        return
    typer.echo(f"{spec.name}: {len(examples)} example{'s' * (len(examples) != 1)} of {examples.source}")
    for metric, value in scores.items():
        typer.echo(f"  {metric:<12} {score_text(value)}")


def _labeled_examples(run: Path, data: Path | None, spec: "TaskSpec", max_bytes: int | None) -> "Examples":
    """The examples of a file, or of the test set that the run's recipe names."""
    from crosstask.data.label_map import LabelMap
    from crosstask.data.options import TASK_KEYS
    from crosstask.data.readers import read
    from crosstask.data.task import Task
    from crosstask.runs.loading import task_options

    options = task_options(run, spec.name)
    if max_bytes is not None:
        options["max_bytes"] = max_bytes
    source = options.get("test")
    if data is None and options.get("format") == "hub":
        # The folder may be somebody else's: what it names is fetched when the user names it too.
        raise CrossTaskError(
            f"The recipe of '{run}' takes the data of task '{spec.name}' from the Hugging Face hub, and a run folder "
            "starts no download: name the data set to score on, as OWNER/NAME:SPLIT."
        )
    if data is not None:
        source = str(data)
    elif source is None and options.get("split"):
        # The test set was cut from the training set; it is cut again, in the same way.
        test = Task.read(spec.name, **options).test
        if test is not None:
            return test
    if not isinstance(source, str):
        raise CrossTaskError(
            f"The recipe of '{run}' names no test file for task '{spec.name}': name the file to score on."
        )
    # The recipe's format, unless the file's name says another.
    format = options.get("format")
    if data is not None and data.suffix != Path(str(options.get("train", source))).suffix:
        format = None
    reader_options = {key: value for key, value in options.items() if key not in TASK_KEYS}
    # The labels of the file become those that the model was trained on.
    examples = read(source, format=format, task=spec.name, options=reader_options)
    return LabelMap(options.get("map")).apply(spec.name, spec.kind, examples)
