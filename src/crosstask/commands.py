"""What the commands do: files in, files and a few lines out."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.predictor import Predictor
from crosstask.progress import make_progress, shown
from crosstask.record import RECIPE_FILE
from crosstask.run import Run, load
from crosstask.storage import write_text
from crosstask.tasks import NOT_OF_READERS, TaskSpec

FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def train_recipe(path: Path, output: Path | None, *, resume: bool, seed: int | None, quiet: bool) -> None:
    """Train what a recipe describes and say how good it is."""
    from crosstask.recipe import RecipeFile
    from crosstask.run import RunFolder

    recipe = RecipeFile.read(path)
    if seed is not None:
        recipe.recipe.seed = seed
    folder = output or recipe.output
    if not resume:
        RunFolder(folder).check_new()  # before any data is read
    targets, sources = recipe.tasks()
    learner = recipe.learner(progress=False if quiet else None)
    run = learner.fit(targets, sources, output=folder, resume=resume, recipe=recipe.resolved())
    if _is_main():
        _say_result(run, folder)


def _is_main() -> bool:
    from accelerate.state import PartialState

    return PartialState().is_main_process


def _say_result(run: Run, folder: Path) -> None:
    for target in run.targets:
        for part, scores in run.scores[target].items():
            metric, value = next(iter(scores.items()))
            typer.echo(f"{target}: {metric} {value:.4f} on {part}")
    for row in run.history:
        if row["event"] in ("warning", "set_aside"):
            typer.echo(f"Note: {row.get('text') or row['task'] + ' was set aside: ' + row['reason']}", err=True)
    typer.echo(f"Run folder: {folder}")


def evaluate_run(folder: Path, data: Path | None, *, task: str | None, as_json: bool) -> None:
    """Score a model on a labelled file, or on the test set of its recipe."""
    from crosstask.labels import LabelMap
    from crosstask.readers import read

    model = load(folder)
    spec = model.spec(task)
    options = _task_options(folder, spec.name)
    place = str(data) if data is not None else options.get("test")
    if not isinstance(place, str):
        raise CrossTaskError(
            f"The recipe of '{folder}' names no test file for task '{spec.name}': name the file to score on."
        )
    reader_options = {key: value for key, value in options.items() if key not in NOT_OF_READERS}
    examples = read(place, format=_format_of(place, options), task=spec.name, options=reader_options)
    examples = LabelMap(options.get("map")).apply(spec.name, spec.kind, examples)
    scores = model.score(examples, spec.name)
    if as_json:
        typer.echo(json.dumps({"task": spec.name, "examples": len(examples), "scores": scores}))
    else:
        typer.echo(f"{spec.name}, {len(examples)} examples: " + ", ".join(f"{k} {v:.4f}" for k, v in scores.items()))


def _task_options(folder: Path, task: str) -> dict[str, Any]:
    """How the run's recipe reads a task; nothing for a model that was exported or made in Python."""
    path = folder / RECIPE_FILE
    if not path.is_file():
        return {}
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")).get("tasks", {}).get(task, {}))


def _format_of(place: str, options: dict[str, Any]) -> str | None:
    """The recipe's format, unless the file's name says another."""
    same = Path(place).suffix == Path(str(options.get("train", place))).suffix
    return options.get("format") if same else None


@dataclass(frozen=True)
class Table:
    """Inputs with whatever else stands beside them in their file."""

    inputs: list[Any]
    columns: list[str]
    rows: list[dict[str, Any]]


def predict_file(
    folder: Path,
    data: Path | None,
    output: Path | None,
    *,
    task: str | None,
    format: str | None,
    text: Sequence[str] | None,
    probabilities: bool,
    encoding: str,
) -> None:
    """Label the inputs of a file; lines give lines, tables keep their columns and gain the prediction."""
    model = load(folder)
    spec = model.spec(task)
    named = format or (FORMATS.get(data.suffix.lower(), "lines") if data else "lines")
    if named not in ("lines", "csv", "tsv", "jsonl"):
        raise CrossTaskError(f"Unknown format '{named}'. {did_you_mean(named, ['lines', 'csv', 'tsv', 'jsonl'])}")
    content = _read_text(data, encoding)
    table = _read_table(content, named, spec, text, str(data or "standard input"))
    if not table.inputs:
        raise CrossTaskError(f"{data or 'Standard input'} holds nothing to predict.")
    if output is not None and output.exists():
        raise CrossTaskError(f"'{output}' exists; nothing was written over. Choose another file.")
    results = _predicted(model, spec, table.inputs, probabilities, bool(data))
    written = _written(table, results, named, spec, probabilities)
    if output is None:
        sys.stdout.write(written)
    else:
        write_text(output, written)


def _read_text(path: Path | None, encoding: str) -> str:
    try:
        raw = path.read_bytes() if path else sys.stdin.buffer.read()
        if raw[:2] == b"\x1f\x8b":
            import gzip

            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except FileNotFoundError:
        raise CrossTaskError(f"There is no file '{path}'.") from None
    except (UnicodeDecodeError, LookupError) as error:
        raise CrossTaskError(f"{path or 'Standard input'} is not {encoding}: {error}. Name its --encoding.") from error
    except OSError as error:
        raise CrossTaskError(f"'{path}' cannot be read: {error.strerror or error}.") from error


def _read_table(content: str, format: str, spec: TaskSpec, text: Sequence[str] | None, source: str) -> Table:
    if format == "lines":
        lines = [line.rstrip("\r") for line in content.split("\n")]
        if lines and not lines[-1]:
            lines.pop()
        return Table([_line_input(line, spec, f"{source}, line {i}") for i, line in enumerate(lines, 1)], [], [])
    if format == "jsonl":
        rows = []
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise CrossTaskError(f"{source}, line {number}: no valid JSON: {error}.") from error
                if not isinstance(rows[-1], dict):
                    raise CrossTaskError(f"{source}, line {number}: expected a JSON object.")
        columns = list(rows[0]) if rows else []
    else:
        # Tab-separated files have no quoting, as when training data is read.
        style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if format == "tsv" else {}
        reader = csv.DictReader(io.StringIO(content, newline=""), **style)
        rows, columns = list(reader), list(reader.fieldnames or [])
    return Table(
        [_row_input(row, columns, spec, text, f"{source}, row {i}") for i, row in enumerate(rows, 1)], columns, rows
    )


def _line_input(line: str, spec: TaskSpec, where: str) -> Any:
    if spec.form == "pair":
        parts = line.split("\t")
        if len(parts) != 2:
            raise CrossTaskError(f"{where}: a pair is two texts with a tab between them; found {len(parts)}.")
        return tuple(parts)
    if spec.form == "vector":
        try:
            return [float(value) for value in line.replace(",", " ").split()]
        except ValueError as error:
            raise CrossTaskError(f"{where}: expected numbers: {error}.") from error
    return line.split() if spec.form == "tokens" else line


def _row_input(row: dict[str, Any], columns: list[str], spec: TaskSpec, text: Sequence[str] | None, where: str) -> Any:
    usual = {"text": ["text", "sentence", "review"], "pair": [], "tokens": ["tokens", "text"], "vector": ["features"]}
    names = list(text) if text else [name for name in usual[spec.form] if name in columns][:1]
    for name in names:
        if name not in columns:
            raise CrossTaskError(f"{where}: there is no column '{name}'. {did_you_mean(name, columns)}")
    if spec.form == "vector" and not names:
        names = columns
    wanted = 2 if spec.form == "pair" else 1
    if spec.form != "vector" and len(names) != wanted:
        raise CrossTaskError(
            f"Name the column{'s' if wanted > 1 else ''} of the text with --text (columns: {', '.join(columns)})."
        )
    if spec.form == "vector":
        values = [row[name] for name in names]
        flat = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        try:
            return [float(value) for value in flat]
        except (TypeError, ValueError) as error:
            raise CrossTaskError(f"{where}: expected numbers: {error}.") from error
    found = [row.get(name) for name in names]
    if any(value is None for value in found):
        raise CrossTaskError(f"{where}: the text is missing.")
    if spec.form == "tokens":
        return found[0] if isinstance(found[0], list) else str(found[0]).split()
    return tuple(str(value) for value in found) if spec.form == "pair" else str(found[0])


def _predicted(
    model: Predictor, spec: TaskSpec, inputs: list[Any], probabilities: bool, show: bool
) -> list[tuple[Any, Any]]:
    from crosstask.predictor import by_name, decisions

    progress = make_progress(None if show else False)
    with shown(progress):
        progress.start("predict", len(inputs))
        found = model.predictions(inputs, spec.name, progress=progress.advance)
    if not probabilities or spec.kind == "regression":
        return [(decision, None) for decision in decisions(found)]
    if spec.kind == "tagging":
        chances: Any = [[by_name(spec, row) for row in rows] for rows in found.probabilities or []]
    else:
        chances = [by_name(spec, row) for row in found.scores]
    return list(zip(decisions(found), chances, strict=True))


def _written(table: Table, results: list[tuple[Any, Any]], format: str, spec: TaskSpec, probabilities: bool) -> str:
    if format == "jsonl":
        lines = [
            json.dumps({**row, "prediction": decision, **({"probabilities": chance} if chance is not None else {})},
                       ensure_ascii=False)
            for row, (decision, chance) in zip(table.rows, results, strict=True)
        ]  # fmt: skip
        return "".join(line + "\n" for line in lines)
    per_label = spec.labels if probabilities and spec.kind not in ("tagging", "regression") else ()
    out = io.StringIO()
    if format == "lines":
        for decision, chance in results:
            numbers = [f"{chance[label]:.6f}" for label in per_label]
            out.write("\t".join([_as_text(decision, " " if spec.kind == "tagging" else ","), *numbers]) + "\n")
        return out.getvalue()
    style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if format == "tsv" else {}
    writer = csv.writer(out, lineterminator="\n", **style)
    writer.writerow([*table.columns, "prediction", *(f"p({label})" for label in per_label)])
    for row, (decision, chance) in zip(table.rows, results, strict=True):
        numbers = [f"{chance[label]:.6f}" for label in per_label]
        writer.writerow([*(row[name] for name in table.columns), _as_text(decision, " "), *numbers])
    return out.getvalue()


def _as_text(decision: Any, separator: str) -> str:
    if isinstance(decision, list | tuple):
        return separator.join(decision)
    return f"{decision:.6g}" if isinstance(decision, float) else str(decision)


def export_run(folder: Path, output: Path, *, task: str | None) -> None:
    """Write a plain model of one task."""
    model = load(folder)
    path = model.export(output, task)
    plain = (path / "config.json").is_file()
    typer.echo(f"Wrote {path}: " + ("loads with plain transformers." if plain else "loads with crosstask.load."))


def list_methods(*, as_json: bool) -> None:
    """Everything that a recipe can name, with its paper and a line each."""
    from crosstask.catalogue import catalogue

    groups = catalogue()
    if as_json:
        typer.echo(json.dumps(groups, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    for group, entries in groups.items():
        table = RichTable(title=group, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        for heading in ("name", "what it is", "paper"):
            table.add_column(heading, style="cyan" if heading == "name" else None, no_wrap=heading == "name")
        for entry in entries:
            table.add_row(entry["name"], entry["summary"], entry["paper"])
        console.print(table)
        console.print()
