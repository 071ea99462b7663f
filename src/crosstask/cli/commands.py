"""What the commands do: files in, files and a few lines out."""

import json
import math
from pathlib import Path

import typer

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.task import NOT_OF_READERS, Task
from crosstask.errors import CrossTaskError
from crosstask.runs.record import REPORT_FILE, finite
from crosstask.runs.run import Run, RunFolder, load, task_options


def train_recipe(path: Path, output: Path | None, *, resume: bool, seed: int | None, quiet: bool) -> None:
    """Train what a recipe describes and say how good it is."""
    from crosstask.recipe import RecipeFile

    recipe = RecipeFile.read(path)
    if seed is not None:
        recipe.recipe.seed = seed
    folder = RunFolder(output or recipe.output)
    if resume:
        folder.check_recipe(recipe.resolved())
        if folder.is_finished:
            finished = load(folder.path)
            assert isinstance(finished, Run)
            typer.echo(f"The run in '{folder.path}' had finished already; there was nothing left to do.", err=True)
            _say_result(finished, folder.path)
            return
    else:
        folder.check_new()  # before any data is read
    learner = recipe.learner(progress=False if quiet else None)
    targets, sources = recipe.tasks()
    run = learner.fit(targets, sources, output=folder.path, resume=resume, recipe=recipe.resolved())
    if _is_main():
        _say_result(run, folder.path)


def _is_main() -> bool:
    from accelerate.state import PartialState

    return PartialState().is_main_process


def _say_result(run: Run, folder: Path) -> None:
    for row in run.history:
        if row["event"] in ("warning", "set_aside"):
            what = row.get("text") or f"set aside: {row['reason']}"
            typer.echo(f"Note: {'task ' + repr(row['task']) + ': ' if row.get('task') else ''}{what}", err=True)
    for target in run.targets:
        for part, scores in run.scores.get(target, {}).items():
            metric, value = next(iter(scores.items()))
            typer.echo(f"{target}: {metric} {_number(value)} on {part}")
    typer.echo(f"Run folder: {folder} (to look at: {REPORT_FILE})")


def _number(value: float | None) -> str:
    return "not defined" if value is None or math.isnan(value) else f"{value:.4f}"


def evaluate_run(folder: Path, data: Path | None, *, task: str | None, as_json: bool) -> None:
    """Score a model on a labelled file, or on the test set of its recipe."""
    model = load(folder)
    spec = model.spec(task)
    examples = _labelled(folder, data, spec)
    scores = model.score(examples, spec.name)
    if as_json:
        typer.echo(json.dumps(finite({"task": spec.name, "examples": len(examples), "scores": scores})))
        return
    typer.echo(f"{spec.name}: {len(examples)} example{'s' * (len(examples) != 1)} of {examples.source}")
    for metric, value in scores.items():
        typer.echo(f"  {metric:<12} {_number(value)}")


def _labelled(folder: Path, data: Path | None, spec: TaskSpec) -> Examples:
    from crosstask.data.label_map import LabelMap
    from crosstask.data.readers import read

    options = task_options(folder, spec.name)
    place = str(data) if data is not None else options.get("test")
    if place is None and options.get("split"):  # the test set was cut from train; it is cut again, in the same way
        test = Task.read(spec.name, **options).test
        if test is not None:
            return test
    if not isinstance(place, str):
        raise CrossTaskError(
            f"The recipe of '{folder}' names no test file for task '{spec.name}': name the file to score on."
        )
    # The recipe's format, unless the file's name says another.
    same = data is None or data.suffix == Path(str(options.get("train", place))).suffix
    format = options.get("format") if same else None
    reader_options = {key: value for key, value in options.items() if key not in NOT_OF_READERS}
    examples = read(place, format=format, task=spec.name, options=reader_options)
    return LabelMap(options.get("map")).apply(spec.name, spec.kind, examples)


def export_run(folder: Path, output: Path, *, task: str | None) -> None:
    """Write a plain model of one task."""
    model = load(folder)
    path = model.export(output, task)
    plain = (path / "config.json").is_file()
    typer.echo(f"Wrote {path}, which loads with " + ("plain transformers." if plain else "crosstask.load."))


def list_methods(*, as_json: bool) -> None:
    """Everything that a recipe can name, with its paper and a line each."""
    from crosstask.catalogue import catalogue

    groups = catalogue()
    if as_json:
        typer.echo(json.dumps(groups, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    width = max(len(entry["name"]) for entries in groups.values() for entry in entries)
    for group, entries in groups.items():
        has_papers = any(entry["paper"] for entry in entries)
        table = Table(title=group, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        table.show_header = False
        table.add_column("name", style="cyan", no_wrap=True, min_width=width)
        table.add_column("what it is")
        if has_papers:
            table.add_column("paper", style="dim")
        for entry in entries:
            table.add_row(*(entry[key] for key in ("name", "summary", "paper")[: 2 + has_papers]))
        console.print(table)
        console.print()
