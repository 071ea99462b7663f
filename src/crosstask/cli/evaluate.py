"""`crosstask evaluate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstask.cli._app import (
    AbstainOption,
    ConfidenceOption,
    EncodingOption,
    LabelOption,
    MaxBytesOption,
    RunArgument,
    TaskOption,
    TextOption,
    TrustOption,
    app,
    flag,
)
from crosstask.cli._columns import column_option_of, columns_of, first_file, shared_options, suffix_of
from crosstask.cli._device import DeviceOption, device_named
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
    format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Of the file; from its name or the recipe when left out.")
    ] = None,
    text: TextOption = None,
    label: LabelOption = None,
    abstain: AbstainOption = None,
    min_confidence: ConfidenceOption = None,
    encoding: EncodingOption = None,
    json: Annotated[bool, flag("--json", help="Scores as JSON.")] = False,
    trust_remote_code: TrustOption = False,
    max_bytes: MaxBytesOption = None,
    device: DeviceOption = None,
) -> None:
    """Score a trained model on labeled data.

    The file may have any format that `train` reads. It is read with the options that the run's recipe gives for the
    task, as far as other ones are not named.

    With --abstain or --min-confidence only the answers are scored that `predict` would give, and `answered` is their
    fraction.

    [dim]crosstask evaluate runs/stars[/dim]
    [dim]crosstask evaluate runs/stars more-stars.csv --json[/dim]
    [dim]crosstask evaluate runs/stars other.jsonl --text body --label rating[/dim]
    """
    from crosstask.runs.loading import load
    from crosstask.runs.record import finite

    chosen_device = device_named(device)
    model = load(run, trust_remote_code=trust_remote_code)
    if chosen_device is not None:
        model.model.to(chosen_device)
    spec = model.spec(task)
    options = ReadOptions(format, text, label, encoding, max_bytes)
    examples = _labeled_examples(run, data, spec, options)
    scores = model.score(examples, spec.name, abstain=abstain, min_confidence=min_confidence)
    if json:
        print_json(finite({"task": spec.name, "examples": len(examples), "scores": scores}))
        return
    typer.echo(f"{spec.name}: {len(examples)} example{'s' * (len(examples) != 1)} of {examples.source}")
    for metric, value in scores.items():
        typer.echo(f"  {metric:<12} {score_text(value)}")


@dataclass(frozen=True)
class ReadOptions:
    """What the command line says about the file; None leaves it to the run's recipe and to the file's name."""

    format: str | None = None
    text: Sequence[str] | None = None
    label: Sequence[str] | None = None
    encoding: str | None = None
    max_bytes: int | None = None


def _labeled_examples(run: Path, data: Path | None, spec: "TaskSpec", read_options: ReadOptions) -> "Examples":
    """The examples of a file, or of the test set that the run's recipe names."""
    from crosstask.data.label_map import LabelMap
    from crosstask.data.readers import read
    from crosstask.data.task import Task
    from crosstask.runs.loading import task_options

    options = task_options(run, spec.name)
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
        if read_options.max_bytes is not None:
            options["max_bytes"] = read_options.max_bytes
        # The test set was cut from the training set; it is cut again, in the same way.
        test = Task.read(spec.name, **options).test
        if test is not None:
            return test
    if not isinstance(source, str | list) or not source:
        raise CrossTaskError(
            f"The recipe of '{run}' names no test file for task '{spec.name}': name the file to score on."
        )
    format, reader_options = _reading(data, source, options, spec, read_options)
    # The labels of the file become those that the model was trained on.
    examples = read(source, format=format, task=spec.name, options=reader_options)
    return LabelMap(options.get("map")).apply(spec.name, spec.kind, examples)


def _reading(
    data: Path | None,
    source: str | list[str],
    recipe: Mapping[str, Any],
    spec: "TaskSpec",
    read_options: ReadOptions,
) -> tuple[str, dict[str, Any]]:
    """The format of the file and how it is read: as the recipe says, as far as that goes with the format."""
    from crosstask.data.readers import reader_for

    first = source if isinstance(source, str) else str(source[0])
    recipe_format = recipe.get("format")
    if "train" in recipe and recipe_format is None:
        recipe_format = reader_for(first_file(recipe["train"]), None, spec.name).name
    format = read_options.format
    # The recipe's format, unless the file's name says another.
    if format is None and (data is None or suffix_of(data) == suffix_of(Path(first_file(recipe.get("train", first))))):
        format = recipe_format
    reader = reader_for(first, format, spec.name)
    options = shared_options(recipe, recipe_format, reader.name)
    for key, value in {"encoding": read_options.encoding, "max_bytes": read_options.max_bytes}.items():
        if value is not None and key in reader.options:
            options[key] = value
    if spec.features and "features" in reader.options:  # by name, whatever else the file holds in whatever order
        options["features"] = list(spec.features)
        if spec.kind == "multilabel" and reader.name == "arff" and "map" not in recipe:
            options.setdefault("label", list(spec.labels))
    column_option = column_option_of(spec.form, reader.name)
    if read_options.text:
        options[column_option] = columns_of(read_options.text)
    if read_options.label:
        options["label"] = columns_of(read_options.label)
    return reader.name, options
