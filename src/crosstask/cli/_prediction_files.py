"""Inputs of `crosstask predict` from a file or a stream, and the same file with predictions in it."""

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.data.examples import Form, Inputs, TaskSpec
from crosstask.data.readers import READERS, format_of
from crosstask.data.readers.column_roles import InputColumns, guess_columns
from crosstask.data.readers.csv import csv_table
from crosstask.data.readers.jsonl import jsonl_table
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table, as_text, listed
from crosstask.data.readers.table_examples import unlabeled_inputs
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.progress import make_progress, shown
from crosstask.runs.loading import load, task_options
from crosstask.runs.predictor import Decision, Predictor, Probabilities, decisions, probabilities_by_name
from crosstask.storage import write_text

TABLES = ("csv", "tsv", "jsonl")
SENTENCES = ("columns", "conllu")
FORMATS = ("lines", *TABLES, *SENTENCES)
# The options of a recipe that name the columns of inputs.
COLUMN_OPTIONS: dict[Form, str] = {"text": "text", "pair": "text", "tokens": "tokens", "vector": "features"}

ReaderOptions = Mapping[str, Any]
"""The section of a task in the recipe of a run."""
Row = Mapping[str, Any]
"""A row of a file: its values by the names of their columns."""


@dataclass(frozen=True)
class PredictOptions:
    """What the command line says about the input; None leaves it to the run's recipe and to the file's name.

    - `format`: one of `FORMATS`;
    - `text`: the column of the text, or the two columns of a pair;
    - `probabilities`: whether to write the probability of each label too;
    - `trust_remote_code`: whether code that comes with the model may run.
    """

    task: str | None = None
    format: str | None = None
    text: Sequence[str] | None = None
    probabilities: bool = False
    encoding: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class InputFile:
    """Inputs, and the rows that hold them. Lines and sentences are rows of one column."""

    inputs: Inputs
    columns: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Prediction:
    """The label of one input, and the probabilities of all labels (tagging: of each word) where they are asked for."""

    label: Decision
    probabilities: Probabilities | list[Probabilities] | None = None


class StandardInput(Source):
    """What is piped into the command."""

    def packed_data(self) -> bytes:
        """Everything up to the end of the stream."""
        return sys.stdin.buffer.read()


def predict_file(folder: Path, data: Path | None, output: Path | None, options: PredictOptions) -> None:
    """Predict labels for the inputs of a file: lines give lines, tables keep their columns and gain the prediction.

    Columns, delimiter and encoding are those of the run's recipe unless `options` name others.
    """
    model = load(folder, trust_remote_code=options.trust_remote_code)
    spec = model.spec(options.task)
    recipe = task_options(folder, spec.name)
    input_format = _input_format(data, options.format, spec, recipe)
    output_format = _output_format(output, input_format)
    if options.probabilities:
        _check_probabilities(spec, output_format)
    encoding = options.encoding or recipe.get("encoding", "utf-8")
    if data is None:
        source: Source = StandardInput(spec.name, "standard input", Path("-"), encoding)
    else:
        source = Source(spec.name, str(data), data, encoding)
    file = _read(source, input_format, spec, recipe, options.text)
    predictions = _predict(model, spec, file.inputs, options.probabilities, show_progress=data is not None)
    content = _written(file, predictions, output_format, spec)
    if output is None:
        sys.stdout.write(content)
    else:
        write_text(output, content)


def _input_format(data: Path | None, format: str | None, spec: TaskSpec, recipe: ReaderOptions) -> str:
    """As --format says; else as the recipe says of a file with such a suffix; else as the file's name says."""
    if format is None:
        format = "lines"
        if data is not None:
            format = format_of(data.name) or "lines"
            recipe_format = recipe.get("format")
            if recipe_format in FORMATS and _suffix(data) == _suffix(Path(recipe["train"])):
                format = recipe_format
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


def _output_format(output: Path | None, input_format: str) -> str:
    """As the file's name says; like the input where it says nothing."""
    if output is None:
        return input_format
    if output.exists():
        raise CrossTaskError(f"'{output}' exists; nothing was written over. Choose another file.")
    if output.suffix == ".gz":
        raise CrossTaskError(f"--output: '{output}' would be written as plain text; leave .gz out.")
    named = format_of(output.name)
    return named if named in TABLES else input_format


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _check_probabilities(spec: TaskSpec, output_format: str) -> None:
    if spec.kind == "regression":
        raise CrossTaskError(f"--probabilities: task '{spec.name}' predicts numbers, which have none.")
    if spec.kind == "tagging" and output_format not in ("jsonl", *SENTENCES):
        raise CrossTaskError(
            f"--probabilities: a {output_format} file has no place for those of every word; use JSON lines "
            "(-o FILE.jsonl) or columns."
        )


def _read(source: Source, format: str, spec: TaskSpec, recipe: ReaderOptions, text: Sequence[str] | None) -> InputFile:
    if format == "lines":
        lines = source.lines()
        inputs = [_line_input(source, number, line, spec) for number, line in enumerate(lines, start=1)]
        return InputFile(inputs, ["text"], [{"text": line} for line in lines])
    reader_options = {}
    if recipe.get("format", format) == format:  # another format shares nothing with the recipe's
        reader_options = {key: recipe[key] for key in READERS[format].options if key in recipe}
        reader_options.pop("encoding", None)
    if format in SENTENCES:
        token = reader_options.get("token", 0 if format == "columns" else "form")
        # New sentences need no labels: the words take their place.
        sentences = READERS[format].read(source, **{**reader_options, "token": token, "label": token}).inputs
        return InputFile(sentences, ["tokens"], [{"tokens": words} for words in sentences])
    table = _table(source, format, reader_options)
    rows = table.rows()
    if not rows:
        raise source.error("holds no rows to predict for.")
    columns = _input_columns(table, spec, recipe, text)
    return InputFile(unlabeled_inputs(table, columns, recipe.get("strip")), table.names, rows)


def _table(source: Source, format: str, options: ReaderOptions) -> Table:
    if format == "jsonl":
        return jsonl_table(source)
    is_csv = format == "csv"
    delimiter = options.get("delimiter", "," if is_csv else "\t")
    quoting = options.get("quoting", is_csv)
    return csv_table(source, delimiter, quoting, options.get("header", True))


def _line_input(
    source: Source, number: int, line: str, spec: TaskSpec
) -> str | tuple[str, ...] | list[str] | list[float]:
    if spec.form == "text":
        return line
    if spec.form == "tokens":
        return line.split()
    if spec.form == "pair":
        texts = line.split("\t")
        if len(texts) != 2:
            raise source.error(f"has {len(texts) - 1} tabs; a pair is two texts with one tab between them.", number)
        return tuple(texts)
    numbers = []
    for value in line.replace(",", " ").split():
        try:
            numbers.append(float(value))
        except ValueError:
            raise source.error(f"has '{value}' where a number was expected.", number) from None
    return numbers


def _input_columns(table: Table, spec: TaskSpec, recipe: ReaderOptions, text: Sequence[str] | None) -> InputColumns:
    """The columns to read: as --text says, else as the run's recipe says, else by the names that they usually have."""
    option = COLUMN_OPTIONS[spec.form]
    names = list(text) if text else recipe.get(option)
    if names == "rest":
        excluded = {str(name) for name in (*listed(recipe.get("label")), *(recipe.get("where") or ()))}
        rest = tuple(index for index, name in enumerate(table.names) if name not in excluded)
        return InputColumns(spec.form, rest)
    named_by = "--text" if text else f"{option} in the run's recipe; --text names another"
    columns = table.find_all(names, named_by) or _usual_columns(table, spec.form)
    num_columns = 2 if spec.form == "pair" else 1
    if spec.form == "vector" or len(columns) == num_columns:
        return InputColumns(spec.form, columns)
    if text:
        times = "twice" if spec.form == "pair" else "once"
        raise table.source.error(f"needs --text {times}; it was given {len(columns)} times.")
    what = "two texts; name both with --text" if spec.form == "pair" else "text; name it with --text"
    raise table.source.error(
        f"has no column that is plainly the {what}. Its columns: {table.listing()}.{table.delimiter_hint()}"
    )


def _usual_columns(table: Table, form: Form) -> tuple[int, ...]:
    if form == "vector":
        return tuple(range(len(table.names)))
    columns = guess_columns(table, form)
    if form == "tokens":
        columns = columns or guess_columns(table, "text")  # a text is cut into words at white space
    if not columns and form != "pair" and len(table.names) == 1:
        return (0,)
    return columns


def _predict(
    model: Predictor, spec: TaskSpec, inputs: Inputs, with_probabilities: bool, *, show_progress: bool
) -> list[Prediction]:
    progress = make_progress(None if show_progress else False)
    with shown(progress):
        progress.start("predict", len(inputs))
        predictions = model.predictions(inputs, spec.name, progress=progress.advance)
    labels = decisions(predictions)
    if not with_probabilities:
        return [Prediction(label) for label in labels]
    probabilities = probabilities_by_name(predictions)
    return [Prediction(label, probabilities[i]) for i, label in enumerate(labels)]


def _written(file: InputFile, predictions: Sequence[Prediction], format: str, spec: TaskSpec) -> str:
    if format in TABLES and format != "jsonl":
        return _as_table(file, predictions, format, spec)
    lines = []
    for item, row, prediction in zip(file.inputs, file.rows, predictions, strict=True):
        if format == "jsonl":
            lines.append(_as_object(row, prediction))
        elif format in SENTENCES:
            lines.append(_as_sentence(item, prediction))
        else:
            lines.append("\t".join([_cell(prediction.label, ","), *_named(prediction.probabilities)]))
    return "".join(line + "\n" for line in lines)


def _as_object(row: Row, prediction: Prediction) -> str:
    values = {**row, "prediction": prediction.label}
    if prediction.probabilities is not None:
        values["probabilities"] = prediction.probabilities
    return json.dumps(values, ensure_ascii=False)


def _as_sentence(words: Sequence[str], prediction: Prediction) -> str:
    """Lines of a word and its tag."""
    lines = []
    for position, word in enumerate(words):
        cells = [word, prediction.label[position]]  # type: ignore[index]
        if prediction.probabilities is not None:
            cells += _named(prediction.probabilities[position])  # type: ignore[index]
        lines.append("\t".join(cells) + "\n")
    return "".join(lines)


def _as_table(file: InputFile, predictions: Sequence[Prediction], format: str, spec: TaskSpec) -> str:
    header = [*file.columns, "prediction"]
    if predictions and predictions[0].probabilities is not None:
        header += [f"p({label})" for label in spec.labels]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if format == "tsv":
        writer = csv.writer(out, lineterminator="\n", delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)
    try:
        writer.writerow(header)
        for row, prediction in zip(file.rows, predictions, strict=True):
            cells = [_cell(row.get(name), " ") for name in file.columns]
            cells.append(_cell(prediction.label, " "))
            if isinstance(prediction.probabilities, Mapping):
                cells += [f"{value:.6f}" for value in prediction.probabilities.values()]
            writer.writerow(cells)
    except csv.Error as error:
        raise CrossTaskError(
            f"A tab-separated file cannot hold a text with a tab or a line end in it ({error}); write .csv or .jsonl."
        ) from error
    return out.getvalue()


def _named(probabilities: object) -> list[str]:
    if not isinstance(probabilities, Mapping):
        return []
    return [f"{label}={value:.6f}" for label, value in probabilities.items()]


def _cell(value: object, separator: str) -> str:
    """A value as text, with `separator` between several labels."""
    if isinstance(value, list):  # tags, or words
        return " ".join(str(item) for item in value)
    if isinstance(value, tuple):  # several labels
        return separator.join(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else as_text(value)
