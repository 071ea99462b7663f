"""`crosstask predict`: inputs from a file of any usual sort, the same file back with predictions in it."""

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.data.examples import TaskSpec
from crosstask.data.readers import READERS
from crosstask.data.readers.column_roles import PAIR_NAMES, TEXT_NAMES, TOKEN_NAMES
from crosstask.data.readers.csv import csv_table
from crosstask.data.readers.jsonl import jsonl_rows
from crosstask.data.readers.newsgroups import stripper
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table, as_text
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.progress import make_progress, shown
from crosstask.runs.predictor import Predictor, by_name, decisions
from crosstask.runs.run import load, task_options
from crosstask.storage import write_text

TABLES = ("csv", "tsv", "jsonl")
SENTENCES = ("columns", "conllu")
FORMATS = ("lines", *TABLES, *SENTENCES)


@dataclass(frozen=True)
class Rows:
    """Inputs, and the row of its file that each stands in. Lines and sentences are rows of one column."""

    inputs: list[Any]
    columns: list[str]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Result:
    """What is predicted for one input, and, if wanted, how likely each label is (a list of that for tagging)."""

    prediction: Any
    probabilities: Any = None


class StandardInput(Source):
    """What is piped into the command."""

    def data(self) -> bytes:
        """Everything, unpacked if it is gzipped."""
        content = sys.stdin.buffer.read()
        if content.startswith(b"\x1f\x8b"):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise self.error(f"is a broken gzip stream ({error}).") from error
        if not content:
            raise self.error("is empty.")
        return content


def label_file(
    folder: Path,
    data: Path | None,
    output: Path | None,
    *,
    task: str | None,
    format: str | None,
    text: Sequence[str] | None,
    probabilities: bool,
    encoding: str | None,
) -> None:
    """Label the inputs of a file: lines give lines, tables keep their columns and gain the prediction.

    Columns, delimiter and encoding are those of the run's recipe where nothing else is said.
    """
    model = load(folder)
    spec = model.spec(task)
    options = task_options(folder, spec.name)
    read_as = _input_format(data, format, spec, options)
    write_as = _output_format(output, read_as)
    if probabilities:
        _check_probabilities(spec, write_as)
    if encoding is not None:
        options["encoding"] = encoding
    source = (
        Source(spec.name, str(data), data)
        if data is not None
        else StandardInput(spec.name, "standard input", Path("-"))
    )
    found = _read(source, read_as, spec, options, text)
    results = _predicted(model, spec, found.inputs, probabilities, show=data is not None)
    written = _written(found, results, write_as, spec)
    if output is None:
        sys.stdout.write(written)
    else:
        write_text(output, written)


def _input_format(data: Path | None, format: str | None, spec: TaskSpec, options: Mapping[str, Any]) -> str:
    """As --format says; else as the recipe says of a file with such a name; else as the file's name says."""
    if format is None:
        format = _named_like(data) if data is not None else "lines"
        named = options.get("format")
        if data is not None and named in FORMATS and _suffix(data) == _suffix(Path(options["train"])):
            format = named
    if format in READERS and format not in FORMATS:
        raise CrossTaskError(f"{data or '--format'}: predict reads {', '.join(FORMATS)}, not {format}.")
    if format not in FORMATS:
        raise CrossTaskError(f"--format: unknown format '{format}'. {did_you_mean(format, FORMATS)}")
    if format in SENTENCES and spec.form != "tokens":
        raise CrossTaskError(
            f"{data or '--format'}: the format {format} holds sentences word by word, for tagging; task '{spec.name}' "
            f"is {spec.kind}. Name another with --format."
        )
    return format


def _output_format(output: Path | None, read_as: str) -> str:
    """As the file's name says; like the input where it says nothing."""
    if output is None:
        return read_as
    if output.exists():
        raise CrossTaskError(f"'{output}' exists; nothing was written over. Choose another file.")
    if output.suffix == ".gz":
        raise CrossTaskError(f"--output: '{output}' would be written as plain text; leave .gz out.")
    named = _named_like(output)
    return named if named in TABLES else read_as


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _named_like(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return next((reader.name for reader in READERS.values() if name.endswith(reader.suffixes)), "lines")


def _check_probabilities(spec: TaskSpec, write_as: str) -> None:
    if spec.kind == "regression":
        raise CrossTaskError(f"--probabilities: task '{spec.name}' predicts numbers, which have none.")
    if spec.kind == "tagging" and write_as not in ("jsonl", *SENTENCES):
        raise CrossTaskError(
            f"--probabilities: a {write_as} file has no place for those of every word; use JSON lines "
            "(-o FILE.jsonl) or columns."
        )


def _read(source: Source, format: str, spec: TaskSpec, options: Mapping[str, Any], text: Sequence[str] | None) -> Rows:
    if format == "lines":
        lines = source.lines(options.get("encoding", "utf-8"))
        inputs = [_line_input(source, number, line, spec) for number, line in enumerate(lines, start=1)]
        return Rows(inputs, ["text"], [{"text": line} for line in lines])
    reader = READERS[format]
    same = options.get("format", format) == format
    own = {key: options[key] for key in reader.options if key in options and (same or key == "encoding")}
    if format in SENTENCES:
        token = own.get("token", 0 if format == "columns" else "form")
        sentences = reader.read(source, **{**own, "token": token, "label": token})  # no label is needed, nor looked at
        return Rows(list(sentences.inputs), ["tokens"], [{"tokens": words} for words in sentences.inputs])
    encoding = options.get("encoding", "utf-8")
    if format == "jsonl":
        numbers, rows = jsonl_rows(source, encoding)
        names = list(dict.fromkeys(key for row in rows for key in row))
        table = Table(source, names, lambda place: [row.get(names[place]) for row in rows], numbers)
    else:
        comma = format == "csv"
        style: dict[str, Any] = {"delimiter": "," if comma else "\t", "quoting": comma, "header": True}
        style.update({key: own[key] for key in style if key in own})
        table = csv_table(source, encoding=encoding, **style)
        columns = [table.column(place) for place in range(len(table.names))]
        rows = [dict(zip(table.names, values, strict=True)) for values in zip(*columns, strict=True)]
    if not rows:
        raise source.error("holds no rows to predict for.")
    return Rows(_table_inputs(table, spec, options, text), list(table.names), rows)


def _line_input(source: Source, number: int, line: str, spec: TaskSpec) -> Any:
    if spec.form == "pair":
        parts = line.split("\t")
        if len(parts) != 2:
            raise source.error(f"has {len(parts) - 1} tabs; a pair is two texts with one tab between them.", number)
        return tuple(parts)
    if spec.form == "vector":
        return _numbers(source, number, line.replace(",", " ").split())
    return line.split() if spec.form == "tokens" else line


def _numbers(source: Source, number: int, values: Sequence[Any]) -> list[float]:
    found = []
    for value in values:
        try:
            found.append(float(value))
        except (TypeError, ValueError):
            raise source.error(f"has '{value}' where a number was expected.", number) from None
    return found


def _table_inputs(table: Table, spec: TaskSpec, options: Mapping[str, Any], text: Sequence[str] | None) -> list[Any]:
    places = _input_columns(table, spec, options, text)
    columns = [table.column(place) for place in places]
    cells = list(zip(*columns, strict=True))
    if spec.form == "vector":
        flat = [row[0] if len(row) == 1 and isinstance(row[0], list) else row for row in cells]
        return [_numbers(table.source, line, values) for values, line in zip(flat, table.lines, strict=True)]
    strip = stripper(options.get("strip"), table.source) or (lambda text: text)
    inputs: list[Any] = []
    for row, line in zip(cells, table.lines, strict=True):
        if spec.form == "tokens":
            inputs.append([str(word) for word in row[0]] if isinstance(row[0], list) else as_text(row[0]).split())
            continue
        for value, place in zip(row, places, strict=True):
            if value is None or isinstance(value, list | dict):
                raise table.source.error(f"has no text in the column '{table.names[place]}'.", line)
        texts = tuple(strip(value if isinstance(value, str) else as_text(value)) for value in row)
        inputs.append(texts if spec.form == "pair" else texts[0])
    return inputs


def _input_columns(table: Table, spec: TaskSpec, options: Mapping[str, Any], text: Sequence[str] | None) -> list[int]:
    """The columns to read: as --text says, else as the run's recipe says, else by the names that they usually have."""
    option = {"tokens": "tokens", "vector": "features"}.get(spec.form, "text")
    given: Any = list(text) if text else options.get(option)
    if given == "rest":
        skipped = {str(name) for name in (*_listed(options.get("label")), *(options.get("where") or {}))}
        return [place for place, name in enumerate(table.names) if name not in skipped]
    named_by = "--text" if text else f"{option} in the run's recipe; --text names another"
    places = [table.find(column, named_by) for column in _listed(given)] or _usual_columns(table, spec)
    wanted = {"pair": 2, "vector": len(places)}.get(spec.form, 1)
    if len(places) == wanted:
        return places
    if text:
        raise table.source.error(f"needs --text {('once', 'twice')[wanted - 1]}; it was given {len(places)} times.")
    what = "text; name it with --text" if wanted == 1 else "two texts; name both with --text"
    raise table.source.error(f"has no column that is plainly the {what}. Its columns: {table.listing()}.{table.hint()}")


def _usual_columns(table: Table, spec: TaskSpec) -> list[int]:
    lowered = {name.lower(): place for place, name in enumerate(table.names)}
    if spec.form == "vector":
        return list(range(len(table.names)))
    if spec.form == "pair":
        return next(([lowered[a], lowered[b]] for a, b in PAIR_NAMES if a in lowered and b in lowered), [])
    usual = (*TOKEN_NAMES, *TEXT_NAMES) if spec.form == "tokens" else TEXT_NAMES
    found = [lowered[name] for name in usual if name in lowered][:1]
    return found or ([0] if len(table.names) == 1 else [])


def _listed(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, list | tuple) else [given]


def _predicted(model: Predictor, spec: TaskSpec, inputs: list[Any], probabilities: bool, *, show: bool) -> list[Result]:
    progress = make_progress(None if show else False)
    with shown(progress):
        progress.start("predict", len(inputs))
        found = model.predictions(inputs, spec.name, progress=progress.advance)
    labels = decisions(found)
    if not probabilities:
        return [Result(label) for label in labels]
    if spec.kind == "tagging":
        chances: Any = [[by_name(spec, row) for row in rows] for rows in found.probabilities or []]
    else:
        chances = [by_name(spec, row) for row in found.scores]
    return [Result(label, chance) for label, chance in zip(labels, chances, strict=True)]


def _written(found: Rows, results: Sequence[Result], format: str, spec: TaskSpec) -> str:
    pairs = list(zip(found.rows, results, strict=True))
    if format == "lines":
        return "".join("\t".join([_as_text(r.prediction, ","), *_chances(r.probabilities)]) + "\n" for _, r in pairs)
    if format in SENTENCES:
        return "".join(_as_columns(words, result) + "\n" for words, result in zip(found.inputs, results, strict=True))
    if format == "jsonl":
        return "".join(json.dumps(_as_object(row, result), ensure_ascii=False) + "\n" for row, result in pairs)
    has_chances = bool(results) and results[0].probabilities is not None
    heads = [f"p({label})" for label in spec.labels] if has_chances else []
    out = io.StringIO()
    style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if format == "tsv" else {}
    writer = csv.writer(out, lineterminator="\n", **style)
    try:
        writer.writerow([*found.columns, "prediction", *heads])
        for row, result in pairs:
            chances = [f"{value:.6f}" for value in (result.probabilities or {}).values()]
            cells = [_as_text(row.get(name), " ") for name in found.columns]
            writer.writerow([*cells, _as_text(result.prediction, " "), *chances])
    except csv.Error as error:
        raise CrossTaskError(
            f"A tab-separated file cannot hold a text with a tab or a line end in it ({error}); write .csv or .jsonl."
        ) from error
    return out.getvalue()


def _as_object(row: Mapping[str, Any], result: Result) -> dict[str, Any]:
    chances = {} if result.probabilities is None else {"probabilities": result.probabilities}
    return {**row, "prediction": result.prediction, **chances}


def _as_columns(words: Sequence[str], result: Result) -> str:
    """A sentence as lines of a word and its tag."""
    chances = result.probabilities or [None] * len(words)
    rows = zip(words, result.prediction, chances, strict=True)
    return "".join("\t".join([word, tag, *_chances(chance)]) + "\n" for word, tag, chance in rows)


def _chances(probabilities: Mapping[str, float] | None) -> list[str]:
    return [f"{label}={value:.6f}" for label, value in (probabilities or {}).items()]


def _as_text(value: Any, separator: str) -> str:
    if isinstance(value, list):  # tags, or words
        return " ".join(str(item) for item in value)
    if isinstance(value, tuple):  # several labels
        return separator.join(value)
    return f"{value:.6g}" if isinstance(value, float) else as_text(value) if not isinstance(value, str) else value
