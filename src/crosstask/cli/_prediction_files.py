"""Inputs of `crosstask predict` from a file or a stream, and the same file with predictions in it."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from crosstask.cli._columns import INPUT_OPTIONS, columns_of, first_file, suffix_of
from crosstask.cli._device import device_named
from crosstask.cli._prediction_rows import CellRows, ObjectRows, Rows, exact_records, with_members
from crosstask.data.examples import Form, Inputs, TaskSpec
from crosstask.data.in_memory import plain
from crosstask.data.label_map import LabelMap
from crosstask.data.plain_text import one_line, text_of
from crosstask.data.readers import READERS, format_of
from crosstask.data.readers.arff import arff_table
from crosstask.data.readers.arff_labels import Header
from crosstask.data.readers.column_roles import InputColumns, guess_columns
from crosstask.data.readers.columns import read_words
from crosstask.data.readers.conllu import read_conllu
from crosstask.data.readers.csv import csv_table
from crosstask.data.readers.hub import hub_table
from crosstask.data.readers.jsonl import jsonl_table
from crosstask.data.readers.parquet import parquet_table
from crosstask.data.readers.source import TAB, Source
from crosstask.data.readers.stream import HEAD, Limits, Replayed
from crosstask.data.readers.table import Table, listed
from crosstask.data.readers.table_examples import unlabeled_inputs
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.models.evaluate import PREDICTION_BATCH
from crosstask.progress import make_progress, shown
from crosstask.quoting import brief
from crosstask.runs.abstaining import Abstention, are_answered, in_words
from crosstask.runs.loading import load, task_options
from crosstask.runs.predictor import Decision, Predictor, Probabilities, decisions, probabilities_by_label
from crosstask.storage import check_path, write_new_text
from crosstask.storage.spreadsheet import csv_line, escape_formula

TABLES = ("csv", "tsv", "jsonl")
# Tables that are not written, and what they come back as.
READ_ONLY = {"parquet": "jsonl", "hub": "jsonl", "arff": "csv"}
SENTENCES = ("columns", "conllu")
FORMATS = ("lines", *TABLES, *READ_ONLY, *SENTENCES)
PREDICTION = "prediction"
MIN_LABELED_LINES = 2
"""One line may begin with a label by chance."""

ReaderOptions = Mapping[str, Any]
"""The section of a task in the recipe of a run."""


@dataclass(frozen=True)
class PredictOptions:
    """What the command line says about the input; None leaves it to the run's recipe and to the file's name.

    - `format`: one of `FORMATS`;
    - `text`: the column of the text, or the two columns of a pair;
    - `label`: columns that are no input;
    - `probabilities`: whether to write the probability of each label too;
    - `trust_remote_code`: whether code that comes with the model may run;
    - `column`: the name of the new column;
    - `raw`: whether cells that a spreadsheet would run as formulas are written as they are;
    - `abstention`: which predictions are held back;
    - `device`, `batch_size`: where and how many inputs at a time the model computes.
    """

    task: str | None = None
    format: str | None = None
    text: Sequence[str] | None = None
    label: Sequence[str] | None = None
    probabilities: bool = False
    encoding: str | None = None
    trust_remote_code: bool = False
    column: str = PREDICTION
    raw: bool = False
    max_bytes: int | None = None
    device: str | None = None
    batch_size: int = PREDICTION_BATCH
    abstention: Abstention = field(default_factory=Abstention)


def abstention_of(abstain: float | None, min_confidence: float | None) -> Abstention:
    """What --abstain and --min-confidence say."""
    try:
        return Abstention(abstain, min_confidence)
    except CrossTaskError as error:
        raise CrossTaskError(f"--abstain, --min-confidence: {error}") from error


@dataclass(frozen=True)
class InputFile:
    """Inputs, and the rows that hold them. Lines and sentences are rows of one column."""

    inputs: Inputs
    rows: Rows


@dataclass(frozen=True)
class NewColumns:
    """What is added to the rows: the prediction, and the probabilities under a name that goes with it."""

    prediction: str

    @property
    def probabilities(self) -> str:
        """The key of all of them in JSON."""
        return self._named("probabilities")

    def probability(self, label: str) -> str:
        """The column of one of them."""
        return self._named(f"p({label})")

    def _named(self, name: str) -> str:
        return name if self.prediction == PREDICTION else f"{self.prediction}_{name}"

    def check_free(self, rows: Rows, labels: Sequence[str], output_format: str) -> None:
        """Fail if the user's file has a column that would be written."""
        rows.check_free(self.prediction)
        if labels and output_format == "jsonl":
            rows.check_free(self.probabilities)
        elif labels:
            for label in labels:
                rows.check_free(self.probability(label))


@dataclass(frozen=True)
class Prediction:
    """The label of one input, and the probabilities of all labels (tagging: of each word) where they are asked for.

    The label is None where it is held back.
    """

    label: Decision | None
    probabilities: Probabilities | list[Probabilities] | None = None


class StandardInput(Source):
    """What is piped into the command."""

    @contextmanager
    def open(self) -> Iterator[tuple[Replayed, int]]:
        """The stream, which has no size."""
        yield Replayed(sys.stdin.buffer.read(HEAD), sys.stdin.buffer), 0


@dataclass(frozen=True)
class HeldSource(Source):
    """A file whose lines are held as they stand in it, with `\\r` at their ends, so that they can be written again."""

    file_lines: Sequence[str] = ()

    @classmethod
    def of(cls, source: Source) -> "HeldSource":
        """Read all lines of a file or stream."""
        lines = list(source.raw_lines())
        return cls(source.task, source.name, source.path, source.encoding, source.limits, file_lines=lines)

    def raw_lines(self) -> Iterator[str]:
        """The lines that were read."""
        return iter(self.file_lines)


def predict_file(folder: Path, data: Path | None, output: Path | None, options: PredictOptions) -> None:
    """Predict labels for the inputs of a file: lines give lines, tables keep their columns and gain the prediction.

    Columns, delimiter and encoding are those of the run's recipe unless `options` name others.
    """
    device = device_named(options.device)
    model = load(folder, trust_remote_code=options.trust_remote_code)
    if device is not None:
        model.to(device)
    spec = model.spec(options.task)
    recipe = task_options(folder, spec.name)
    input_format = _input_format(data, options.format, spec, recipe)
    output_format = _output_format(output, input_format)
    if options.probabilities:
        _check_probabilities(spec, output_format)
    if not options.column.strip():
        raise CrossTaskError("--column: the new column needs a name.")
    encoding = options.encoding or recipe.get("encoding", "utf-8")
    limits = Limits(options.max_bytes or recipe.get("max_bytes"))
    if data is None:
        source: Source = StandardInput(spec.name, "standard input", Path("-"), encoding, limits)
    else:
        source = Source(spec.name, str(data), data, encoding, limits)
    if options.label:
        recipe = {**recipe, "label": columns_of(options.label)}
    is_inferred = data is not None and options.format is None
    file = _read(source, input_format, spec, recipe, options.text, is_inferred=is_inferred)
    columns = NewColumns(options.column)
    if output_format in TABLES:
        labels = spec.labels if options.probabilities else ()
        columns.check_free(file.rows, labels, output_format)
    predictions = _predict(model, spec, file.inputs, options, show_progress=data is not None)
    if output_format == "jsonl":
        content = _as_json_lines(file, predictions, columns)
    elif output_format in TABLES:
        content = _as_table(file, predictions, columns, output_format, raw=options.raw)
    else:
        content = _as_lines(file, predictions, output_format)
    if output is None:
        _print(content)
    else:
        write_new_text(output, content)


def _input_format(data: Path | None, format: str | None, spec: TaskSpec, recipe: ReaderOptions) -> str:
    """As --format says; else as the recipe says of a file with such a suffix; else as the file's name says."""
    if format is None:
        format = "lines"
        if data is not None:
            format = format_of(data.name) or "lines"
            recipe_format = recipe.get("format")
            if recipe_format in FORMATS and suffix_of(data) == suffix_of(Path(first_file(recipe["train"]))):
                format = recipe_format
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
        return READ_ONLY.get(input_format, input_format)
    if os.path.lexists(check_path(output, "--output")):
        raise CrossTaskError(f"'{output}' exists; nothing was written over. Choose another file.")
    if output.suffix == ".gz":
        raise CrossTaskError(f"--output: '{output}' would be written as plain text; leave .gz out.")
    named = format_of(output.name)
    return named if named in TABLES else READ_ONLY.get(input_format, input_format)


def _check_probabilities(spec: TaskSpec, output_format: str) -> None:
    if spec.kind == "regression":
        raise CrossTaskError(f"--probabilities: task '{spec.name}' predicts numbers, which have none.")
    if spec.kind == "tagging" and output_format not in ("jsonl", *SENTENCES):
        raise CrossTaskError(
            f"--probabilities: a {output_format} file has no place for those of every word; use JSON lines "
            "(-o FILE.jsonl) or columns."
        )


def _read(
    source: Source,
    format: str,
    spec: TaskSpec,
    recipe: ReaderOptions,
    text: Sequence[str] | None,
    *,
    is_inferred: bool,
) -> InputFile:
    if format == "lines":
        lines = list(source.lines())
        texts: Sequence[str] = lines
        if is_inferred and recipe.get("format") == "lines":
            texts = _without_labels(source, lines, spec, recipe)
        inputs = [_line_input(source, number, line, spec) for number, line in enumerate(texts, start=1)]
        return InputFile(inputs, CellRows(source, ["text"], [[line] for line in lines]))
    reader_options = {}
    if recipe.get("format", format) == format:  # another format shares nothing with the recipe's
        reader_options = {key: recipe[key] for key in READERS[format].options if key in recipe}
        for key in ("encoding", "max_bytes"):
            reader_options.pop(key, None)
    if format in READ_ONLY:
        return _read_only_table(source, format, reader_options, spec, recipe, text)
    if format in SENTENCES:
        reader_options.pop("label", None)  # which new sentences do not need
        if text:
            reader_options["token"] = columns_of(text)
        if format == "columns":
            sentences = read_words(source, **reader_options)
        else:
            token = reader_options.get("token", "form")
            sentences = list(read_conllu(source, token=token, label=token).inputs)
        texts = [json.dumps({"tokens": words}, ensure_ascii=False) for words in sentences]
        return InputFile(sentences, ObjectRows(source, texts, range(1, len(texts) + 1)))
    return _read_table(HeldSource.of(source), format, reader_options, spec, recipe, text)


def _read_table(
    source: "HeldSource",
    format: str,
    options: ReaderOptions,
    spec: TaskSpec,
    recipe: ReaderOptions,
    text: Sequence[str] | None,
) -> InputFile:
    rows: Rows
    if format == "jsonl":
        table = jsonl_table(source)
        rows = ObjectRows(source, [source.file_lines[line - 1] for line in table.lines], table.lines)
    else:
        is_csv = format == "csv"
        delimiter: str = options.get("delimiter", "," if is_csv else "\t")
        quoting, header = options.get("quoting", is_csv), options.get("header", True)
        table = csv_table(source, delimiter, quoting, header)
        records = dict(exact_records(source.file_lines, TAB.get(delimiter, delimiter), quoting=quoting))
        names = next(iter(records.values())) if header else table.names
        rows = CellRows(source, names, [records[line] for line in table.lines])
    if not table.lines:
        raise source.error("holds no rows to predict for.")
    columns = _input_columns(table, spec, recipe, text)
    return InputFile(unlabeled_inputs(table, columns, recipe.get("strip")), rows)


def _read_only_table(
    source: Source,
    format: str,
    options: ReaderOptions,
    spec: TaskSpec,
    recipe: ReaderOptions,
    text: Sequence[str] | None,
) -> InputFile:
    """A file whose rows come back in another format."""
    if isinstance(source, StandardInput):
        raise CrossTaskError(f"--format: {format} is not read from standard input; name a file.")
    if format == "arff":
        table, header = arff_table(source)
        columns = _input_columns(table, spec, {"label": _label_attributes(header, spec, recipe)}, text)
        cells = zip(*(table.column(index) for index in range(len(table.names))), strict=True)
        rows: Rows = CellRows(source, table.names, [list(row) for row in cells])
        return InputFile(unlabeled_inputs(table, columns, None), rows)
    if format == "hub":
        return _as_objects(hub_table(source, options.get("config")), spec, recipe, text)
    with parquet_table(source) as table:
        return _as_objects(table, spec, recipe, text)


def _as_objects(table: Table, spec: TaskSpec, recipe: ReaderOptions, text: Sequence[str] | None) -> InputFile:
    """A table whose rows come back as JSON objects."""
    columns = _input_columns(table, spec, recipe, text)
    texts = []
    for row in table.rows():
        cells = {name: plain(value) for name, value in row.items()}
        texts.append(json.dumps(cells, ensure_ascii=False, default=text_of))
    rows = ObjectRows(table.source, texts, table.lines)
    return InputFile(unlabeled_inputs(table, columns, recipe.get("strip")), rows)


def _label_attributes(header: Header, spec: TaskSpec, recipe: ReaderOptions) -> list[str]:
    """The attributes of an ARFF file that are labels, if it has some: new data may come without."""
    label = recipe.get("label")
    names = set(spec.labels if spec.kind == "multilabel" else ())
    if isinstance(label, str | list | tuple):
        names.update(str(name) for name in listed(label))
    present = [name for name in header.names if name in names]
    if not present and header.attributes[-1].classes:
        present = header.names[-1:]  # as in training
    return present


def _without_labels(source: Source, lines: Sequence[str], spec: TaskSpec, recipe: ReaderOptions) -> Sequence[str]:
    """The texts of lines that all begin with a label of the task, as those that it was trained on; else the lines."""
    separator: str | None = recipe.get("separator")
    pattern = "[ \t]"
    if separator is not None:
        pattern = re.escape(TAB.get(separator, separator))
    label_map = LabelMap(recipe.get("map"))
    texts: list[str] = []
    for line in lines:
        label, *rest = re.split(pattern, line, maxsplit=1)
        if not rest or label_map.rename(label.strip()) not in spec.labels:
            return lines
        texts.append(rest[0])
    if len(lines) < MIN_LABELED_LINES:
        return lines
    typer.echo(
        f"Note: every line of {one_line(source.name)} begins with a label of '{spec.name}', as in the files that it "
        "was trained on; these labels are left out of the texts. --format lines reads them as text.",
        err=True,
    )
    return texts


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
            raise source.error(f"has '{brief(value)}' where a number was expected.", number) from None
    return numbers


def _input_columns(table: Table, spec: TaskSpec, recipe: ReaderOptions, text: Sequence[str] | None) -> InputColumns:
    """The columns to read: as --text says, else as the run's recipe says, else by the names that they usually have."""
    option = INPUT_OPTIONS[spec.form]
    if spec.features and not text:  # whatever else the table holds, in whatever order
        return InputColumns(spec.form, table.find_all(spec.features, "features of the model; --text names others"))
    names = list(text) if text else recipe.get(option)
    if names == "rest":
        excluded = {str(name) for name in (*listed(recipe.get("label")), *(recipe.get("where") or ()))}
        rest = tuple(index for index, name in enumerate(table.names) if name not in excluded)
        return InputColumns(spec.form, rest)
    named_by = "--text" if text else f"{option} in the run's recipe; --text names another"
    columns = table.find_all(names, named_by) or _usual_columns(table, spec.form, recipe)
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


def _usual_columns(table: Table, form: Form, recipe: ReaderOptions) -> tuple[int, ...]:
    if form == "vector":
        labels = {str(name) for name in listed(recipe.get("label"))}
        return tuple(index for index, name in enumerate(table.names) if name not in labels)
    columns = guess_columns(table, form)
    if form == "tokens":
        columns = columns or guess_columns(table, "text")  # a text is cut into words at white space
    if not columns and form != "pair" and len(table.names) == 1:
        return (0,)
    return columns


def _predict(
    model: Predictor, spec: TaskSpec, inputs: Inputs, options: PredictOptions, *, show_progress: bool
) -> list[Prediction]:
    rule = None  # what is too unsure; a model that cannot tell is refused before it computes
    if options.abstention.is_wanted:
        rule = model.answered(options.abstention, spec.name)
    progress = make_progress(None if show_progress else False)
    with shown(progress):
        progress.start("predict", len(inputs))
        predictions = model.predictions(inputs, spec.name, batch_size=options.batch_size, progress=progress.advance)
    labels: list[Decision | None] = list(decisions(predictions, spec.labels))  # texts, as files hold them
    if rule is not None:
        answered = are_answered(predictions, rule.threshold).tolist()
        labels = [label if is_answer else None for label, is_answer in zip(labels, answered, strict=True)]
        typer.echo(f"Note: {in_words(rule, answered.count(False), len(answered))}", err=True)
    if not options.probabilities:
        return [Prediction(label) for label in labels]
    probabilities = probabilities_by_label(predictions, spec.labels)
    return [Prediction(label, probabilities[i]) for i, label in enumerate(labels)]


def _as_json_lines(file: InputFile, predictions: Sequence[Prediction], columns: NewColumns) -> str:
    lines: list[str] = []
    for text, prediction in zip(file.rows.objects(), predictions, strict=True):
        members: dict[str, Any] = {columns.prediction: prediction.label}
        if prediction.probabilities is not None:
            members[columns.probabilities] = prediction.probabilities
        lines.append(with_members(text, members) + "\n")
    return "".join(lines)


def _as_lines(file: InputFile, predictions: Sequence[Prediction], format: str) -> str:
    lines: list[str] = []
    for item, prediction in zip(file.inputs, predictions, strict=True):
        if format in SENTENCES:
            lines.append(_as_sentence(item, prediction) + "\n")
        else:
            lines.append("\t".join([_cell(prediction.label, ","), *_named(prediction.probabilities)]) + "\n")
    return "".join(lines)


def _as_sentence(words: Sequence[str], prediction: Prediction) -> str:
    """Lines of a word and its tag."""
    lines = []
    for position, word in enumerate(words):
        cells = [word, str(prediction.label[position])]  # type: ignore[index]
        if prediction.probabilities is not None:
            cells += _named(prediction.probabilities[position])
        lines.append("\t".join(cells) + "\n")
    return "".join(lines)


def _as_table(
    file: InputFile, predictions: Sequence[Prediction], columns: NewColumns, format: str, *, raw: bool
) -> str:
    header, rows = file.rows.cells()
    header = [*header, columns.prediction]
    if predictions and isinstance(predictions[0].probabilities, Mapping):
        header += [columns.probability(str(label)) for label in predictions[0].probabilities]
    table = [header]
    for row, prediction in zip(rows, predictions, strict=True):
        cells = [*row, _cell(prediction.label, " ")]
        if isinstance(prediction.probabilities, Mapping):
            cells += [f"{value:.6f}" for value in prediction.probabilities.values()]
        table.append(cells)
    lines: list[str] = []
    for cells in table:
        if not raw:
            cells = [escape_formula(cell) for cell in cells]
        lines.append(csv_line(cells) if format == "csv" else _tsv_line(cells))
    return "".join(lines)


def _tsv_line(cells: Sequence[str]) -> str:
    line = "\t".join(cells)
    if line.count("\t") >= len(cells) or "\n" in line or "\r" in line:
        raise CrossTaskError(
            "A tab-separated file cannot hold a text with a tab or a line end in it; write .csv or .jsonl."
        )
    return line + "\n"


def _named(probabilities: object) -> list[str]:
    if not isinstance(probabilities, Mapping):
        return []
    return [f"{label}={value:.6f}" for label, value in probabilities.items()]


def _cell(label: Decision | None, separator: str) -> str:
    """A prediction as text, with `separator` between several labels; empty where it is held back."""
    if label is None:
        return ""
    if isinstance(label, list):  # tags
        return " ".join(map(str, label))
    if isinstance(label, tuple):  # several labels
        return separator.join(map(str, label))
    if isinstance(label, float):
        return f"{label:.6g}"
    return str(label)


def _print(content: str) -> None:
    try:
        sys.stdout.write(content)
    except UnicodeEncodeError as error:
        raise CrossTaskError(
            f"The output holds characters that {error.encoding} cannot write; name a file with -o, which is written "
            "in utf-8."
        ) from error
