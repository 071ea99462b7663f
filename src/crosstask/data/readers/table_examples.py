"""From the cells of a table to examples: texts, pairs, tokens or vectors, and their labels."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np

from crosstask.data.examples import Examples, Inputs, Labels, LabelValue, select
from crosstask.data.in_memory import first_and_count, has_missing, is_missing
from crosstask.data.readers.column_roles import ColumnRoles, InputColumns, NestedTableOptions, TableOptions, find_roles
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table, as_text, as_texts
from crosstask.errors import CrossTaskError, import_papers
from crosstask.quoting import brief
from crosstask.validation import shown

EMPTY = ("error", "keep", "drop")
ONES = ("1", "1.0", "true")
ZEROS = ("0", "0.0", "false")


def examples_from(table: Table, options: TableOptions) -> Examples:
    """The examples of a table, as the options choose and read its columns."""
    empty = options.get("empty", "error")
    check_empty(table.source, empty)
    strip = _message_stripper(table.source, options.get("strip"))
    if len(table) == 0:
        raise table.source.error("holds no rows of data.")
    # 1. Columns by their roles, and the rows that `where` chooses.
    roles = find_roles(table, cast(NestedTableOptions, options))
    table = table.where(options.get("where"))
    # 2. Inputs; rows without one may go.
    inputs: Inputs
    if roles.inputs.form == "vector":
        inputs = _vectors(table, roles.inputs.columns)
    elif roles.inputs.form == "tokens":
        table = _rows_with_tokens(table, roles.inputs.columns[0])
        inputs = _sentences(table, roles.inputs.columns[0], table.column(roles.inputs.columns[0]))
    else:
        texts = _texts(table, roles.inputs, strip)
        problem = "has an empty text" if strip is None else "has no text left after `strip`"
        rows = rows_with_text(table.source, texts, table.lines, empty, problem)
        inputs = texts
        if len(rows) < len(texts):
            table, inputs = table.take(rows), select(texts, rows)
    # 3. Labels of the remaining rows.
    labels: Labels
    if roles.inputs.form == "tokens":
        labels = _tags(table, roles, inputs)
    elif roles.indicators:
        labels = _indicated_labels(table, roles.label)
    else:
        labels = _labels(table, roles.label[0], options.get("label_separator"))
    features: tuple[str, ...] = ()
    if roles.inputs.form == "vector":
        features = tuple(str(table.names[index]) for index in roles.inputs.columns)
    return Examples(inputs, labels, table.source.name, table.lines, unit=table.source.unit, features=features)


def unlabeled_inputs(table: Table, inputs: InputColumns, strip: str | Sequence[str] | None) -> Inputs:
    """The input of every row, to be labeled by a model: a text may be empty, and a list of words may be a text."""
    if inputs.form == "vector":
        return _vectors(table, inputs.columns)
    if inputs.form == "tokens":
        cells = table.column(inputs.columns[0])
        lists = [cell if isinstance(cell, list) else as_text(cell).split() for cell in cells]
        return _sentences(table, inputs.columns[0], lists)
    for index in inputs.columns:
        for value, line in zip(table.column(index), table.lines, strict=True):
            if value is None:
                raise table.source.error(f"has no text in the column '{table.names[index]}'.", line)
    return _texts(table, inputs, _message_stripper(table.source, strip))


def check_empty(source: Source, empty: object) -> None:
    """Fail if the option `empty` is none of its three values."""
    if not isinstance(empty, str) or empty not in EMPTY:
        raise source.option_error(f"`empty` is one of {', '.join(EMPTY)}; found {shown(empty)}.")


def rows_with_text(
    source: Source, texts: Inputs, lines: Sequence[int], empty: str, problem: str = "has an empty text"
) -> Sequence[int]:
    """The rows to use: all of them, or those with a text; an error where `empty` does not allow for empty texts."""
    everything = range(len(texts))
    if empty == "keep":
        return everything
    empty_rows = [row for row, item in enumerate(texts) if _is_empty(item)]
    if not empty_rows:
        return everything
    if empty == "error":
        others = _others(len(empty_rows))
        raise source.error(
            f"{problem}{others}; set `empty: drop` to leave such examples out or `empty: keep` to keep them.",
            lines[empty_rows[0]],
        )
    if len(empty_rows) == len(texts):
        raise source.error("holds empty texts only.")
    excluded = set(empty_rows)
    return [row for row in everything if row not in excluded]


def _is_empty(item: str | Sequence[str]) -> bool:
    """Whether a text has nothing but white space; of a pair neither may be empty."""
    if isinstance(item, str):
        return not item or item.isspace()
    return any(_is_empty(text) for text in item)


def _message_stripper(source: Source, strip: str | Sequence[str] | None) -> Callable[[str], str] | None:
    """What takes parts of newsgroup messages out; it is a matter of the papers' data, so it lives with them."""
    if strip is None:
        return None
    return import_papers("newsgroups", purpose="The option `strip`").stripper(strip, source)


def _texts(table: Table, inputs: InputColumns, strip: Callable[[str], str] | None) -> Sequence[str | tuple[str, ...]]:
    columns = []
    for index in inputs.columns:
        texts = _column_texts(table, index)
        if strip is not None:
            texts = [strip(text) for text in texts]
        columns.append(texts)
    if inputs.form == "text":
        return columns[0]
    return list(zip(*columns, strict=True))


def _column_texts(table: Table, index: int) -> list[str]:
    texts = []
    for row, value in enumerate(table.column(index)):
        if isinstance(value, str):
            texts.append(value)
        elif is_missing(value):  # not the text "nan"
            texts.append("")
        elif isinstance(value, list | tuple | dict):
            raise table.source.error(
                f"has a list or an object in the text column '{table.names[index]}'; a list of words is named with "
                "`tokens`, a list of numbers with `features`.",
                table.lines[row],
            )
        else:
            texts.append(as_text(value))
    return texts


def _sentences(table: Table, index: int, cells: Sequence[Iterable[object]]) -> list[list[str]]:
    """Lists of words as texts; one that is missing is not the word "None"."""
    problem = f"has a word that is missing in the column '{table.names[index]}'"
    _refuse(table, cells, has_missing, problem, "write it or take it out")
    return [[str(word) for word in words] for words in cells]


def _refuse(
    table: Table, cells: Sequence[object], is_wrong: Callable[[object], bool], problem: str, remedy: str
) -> None:
    """An error where some cell is wrong, which names the first one and says how many others there are."""
    wrong = first_and_count(cells, is_wrong)
    if wrong is not None:
        row, count = wrong
        raise table.source.error(f"{problem}{_others(count)}; {remedy}.", table.lines[row])


def _rows_with_tokens(table: Table, index: int) -> Table:
    """The rows whose list of words is not empty."""
    cells = table.column(index)
    for row, value in enumerate(cells):
        if isinstance(value, list | tuple):
            continue
        _refuse(table, cells, is_missing, f"has no list of words in the column '{table.names[index]}'", "fill it in")
        raise table.source.error(
            f"has no list in the column '{table.names[index]}' (`tokens`) but {_quoted(value)}.", table.lines[row]
        )
    rows = [row for row, value in enumerate(cells) if len(value)]
    if not rows:
        raise table.source.error(f"has empty lists only in the column '{table.names[index]}' (`tokens`).")
    return table.take(rows)


def _tags(table: Table, roles: ColumnRoles, sentences: Inputs) -> list[list[LabelValue]]:
    if roles.indicators:
        raise table.source.option_error("with `tokens`, `label` names a single column that holds a list of tags.")
    name, labels = table.names[roles.label[0]], []
    cells = table.column(roles.label[0])
    _refuse(table, cells, is_missing, f"has no list of tags in the column '{name}'", "fill it in")
    _refuse(table, cells, _lacks_text, f"has a token without a label in the column '{name}'", "fill it in")
    for tags, words, line in zip(cells, sentences, table.lines, strict=True):
        if not isinstance(tags, list | tuple):
            raise table.source.error(f"has no list of tags in the column '{name}' but {_quoted(tags)}.", line)
        if len(tags) != len(words):
            raise table.source.error(f"has {len(words)} tokens but {len(tags)} tags in the column '{name}'.", line)
        labels.append([_item(table, tag) for tag in tags])
    return labels


def _labels(table: Table, index: int, separator: str | None) -> list[LabelValue | tuple[LabelValue, ...]]:
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise table.source.option_error(f"`label_separator` is a piece of text such as ';'; found {shown(separator)}.")
    cells, name = table.column(index), table.names[index]
    if separator is not None:
        _refuse(table, cells, is_missing, f"has no labels in the column '{name}' (None or NaN)", "fill them in")
        return [_separated(value, separator) for value in cells]
    _refuse(
        table, cells, _lacks_text, f"has a label that is missing among several in the column '{name}'", "fill it in"
    )
    labels: list[LabelValue | tuple[LabelValue, ...]] = []
    texts: dict[str, str] = {}  # without spaces around them; a column has few labels many times
    for row, value in enumerate(cells):
        label: LabelValue | tuple[LabelValue, ...] | None = None
        if isinstance(value, str):
            label = texts.get(value)
        if label is None:
            label = _label(table, index, row, value)
            if isinstance(value, str) and isinstance(label, str):
                texts[value] = label
        labels.append(label)
    return labels


def _separated(value: object, separator: str) -> tuple[str, ...]:
    names = as_texts(as_text(value).split(separator))
    return tuple(name for name in names if name)


def _label(table: Table, index: int, row: int, value: object) -> LabelValue | tuple[LabelValue, ...]:
    """The label in a cell: a text, a number, or several texts."""
    line, name = table.lines[row], table.names[index]
    if isinstance(value, list | tuple):
        if any(isinstance(item, list | tuple | dict) for item in value):
            raise table.source.error(f"has a list or an object among the labels in the column '{name}'.", line)
        return tuple(_item(table, item) for item in value)
    if isinstance(value, dict):
        raise table.source.error(f"has an object as label in the column '{name}'.", line)
    if _is_missing(value):
        _, count = first_and_count(table.column(index), _is_missing) or (row, 1)
        which = "the line" if count == 1 else "such lines"
        if table.source.unit != "line":
            which = "it" if count == 1 else "such examples"
        raise table.source.error(
            f"has no label in the column '{name}'{_others(count)}; fill it in or take {which} out.", line
        )
    # A fraction stays a number in any table, so that labels such as 0.5 can make a regression task.
    return value if isinstance(value, float) else _item(table, value)


def _item(table: Table, value: object) -> LabelValue:
    """A label, or one of several, as a text, or as the number that it was in memory."""
    if table.typed and isinstance(value, bool | int | float):
        return value
    return as_text(value)


def _is_missing(value: object) -> bool:
    return is_missing(value) or not as_text(value)


def _lacks_text(cell: object) -> bool:
    """Whether a cell is a list in which something is missing or empty."""
    return isinstance(cell, list | tuple) and any(_is_missing(item) for item in cell)


def _others(count: int) -> str:
    """How many more there are like the first, which is named.

    >>> _others(1), _others(3)
    ('', ' (as have 2 more)')
    """
    return f" (as have {count - 1:,} more)" if count > 1 else ""


def _indicated_labels(table: Table, columns: Sequence[int]) -> list[tuple[str, ...]]:
    """Columns of zeros and ones as the names of those that hold a one."""
    labels: list[tuple[str, ...]] = [()] * len(table)
    for index in columns:
        name = str(table.names[index])
        cells = table.column(index)
        _refuse(table, cells, _is_missing, f"has nothing in the label column '{name}'", "write 0 or 1")
        for row, value in enumerate(cells):
            text = as_text(value).lower()
            if text in ONES:
                labels[row] += (name,)
            elif text not in ZEROS:
                raise table.source.error(
                    f"has {_quoted(value)} in the label column '{name}'; a list of label columns holds 0 or 1 each.",
                    table.lines[row],
                )
    return labels


def _vectors(table: Table, columns: Sequence[int]) -> np.ndarray:
    """A float32 array, [rows, columns]."""
    values_of = [table.column(index) for index in columns]
    if len(columns) == 1 and isinstance(values_of[0][0], list | tuple):
        return _listed_vectors(table, str(table.names[columns[0]]), values_of[0])
    # Column by column: a table of text cells is never held as Python numbers all at once.
    matrix = np.empty((len(table), len(columns)), dtype=np.float32)
    for column, (index, values) in enumerate(zip(columns, values_of, strict=True)):
        matrix[:, column] = numbers = _as_floats(values)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            count = int((~np.isfinite(numbers)).sum())
            raise _no_number(table, row, str(table.names[index]), values[row], count)
    return matrix


def _listed_vectors(table: Table, name: str, vectors: Sequence[Sequence[object]]) -> np.ndarray:
    """A column that holds a list of numbers per row, all of one length."""
    width = len(vectors[0])
    numbers: list[object] = []
    for row, vector in enumerate(vectors):
        length = len(vector) if isinstance(vector, list | tuple) else 0
        if length != width or width == 0:
            raise table.source.error(
                f"has {length} numbers in the column '{name}'; expected {width or 'some'}, as in line "
                f"{table.lines[0]}.",
                table.lines[row],
            )
        numbers.extend(vector)
    flat = _as_floats(numbers)  # [rows * width]
    if not np.isfinite(flat).all():
        row, column = divmod(int(np.argmin(np.isfinite(flat))), width)
        raise _no_number(table, row, name, vectors[row][column], int((~np.isfinite(flat)).sum()))
    return flat.reshape(len(vectors), width)


def _as_floats(values: Sequence[object]) -> np.ndarray:
    """Numbers of single precision; NaN where a value is none."""
    with np.errstate(over="ignore"):  # too large for single precision becomes infinite, which the caller refuses
        try:
            return np.asarray([float(value) for value in values], dtype=np.float64).astype(np.float32)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):  # slower, and only to find the value that is no number
            return np.asarray([_as_float(value) for value in values], dtype=np.float64).astype(np.float32)


def _as_float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _no_number(table: Table, row: int, name: str, value: object, count: int = 1) -> CrossTaskError:
    others = ""
    if count == 2:
        others = " (and 1 more value that is no number)"
    elif count > 2:
        others = f" (and {count - 1:,} more values that are no numbers)"
    return table.source.error(
        f"has {_quoted(value)} in the feature column '{name}'{others}; a finite number was expected.", table.lines[row]
    )


def _quoted(value: object) -> str:
    text = as_text(value)
    return f"'{brief(text)}'" if text else "nothing"
