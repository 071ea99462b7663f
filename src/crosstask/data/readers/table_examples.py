"""From the cells of a table to examples: texts, pairs, tokens or vectors, and their labels."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from crosstask.data.readers.column_roles import NestedTableOptions, Roles, TableOptions, find_roles
from crosstask.data.readers.newsgroups import stripper
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table, as_text
from crosstask.data.task import Examples
from crosstask.errors import CrossTaskError

EMPTY = ("error", "keep", "drop")


def examples_from(table: Table, options: TableOptions) -> Examples:
    """The examples of a table, as the user's options choose and read its columns."""
    nested = cast(NestedTableOptions, options)
    empty = options.get("empty", "error")
    check_empty(table.source, empty)
    strip = stripper(options.get("strip"), table.source)
    if len(table) == 0:
        raise table.source.error("holds no rows of data.")
    roles = find_roles(table, nested)
    table = table.where(options.get("where"))
    inputs: Sequence[Any] | np.ndarray
    if roles.features:
        inputs = _vectors(table, roles.features)
    elif roles.tokens is not None:
        table, inputs = _tokens(table, roles.tokens)
    else:
        columns = [_texts(table, place) for place in roles.text]
        if strip is not None:
            columns = [[strip(text) for text in column] for column in columns]
        full = [all(text.strip() for text in row) for row in zip(*columns, strict=True)]
        rows = full_rows(table.source, full, table.lines, empty, "has no text left after `strip`" if strip else "")
        if len(rows) < len(table):
            table, columns = table.take(rows), [[column[row] for row in rows] for column in columns]
        inputs = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    if roles.tokens is not None:
        labels: Sequence[Any] = _tags(table, roles, inputs)
    elif roles.indicators:
        labels = _indicated(table, roles.label)
    else:
        labels = _labels(table, roles.label[0], options.get("label_separator"))
    return Examples(inputs, labels, table.source.name, list(table.lines))


def check_empty(source: Source, empty: object) -> None:
    """Fail if the option `empty` is none of its three values."""
    if empty not in EMPTY:
        raise source.option_error(f"`empty` is one of {', '.join(EMPTY)}; found '{empty}'.")


def full_rows(source: Source, full: Sequence[bool], lines: Sequence[int], empty: str, found: str = "") -> list[int]:
    """The rows to keep: all of them, or those with a text in them; an error where empty texts are not foreseen."""
    if empty == "keep" or all(full):
        return list(range(len(full)))
    if empty == "error":
        first, count = list(full).index(False), len(full) - sum(full)
        more = f" (as have {count - 1} more)" if count > 1 else ""
        raise source.error(
            f"{found or 'has an empty text'}{more}; set `empty: drop` to leave such examples out or `empty: keep` "
            "to keep them.",
            lines[first],
        )
    kept = [row for row, has_text in enumerate(full) if has_text]
    if not kept:
        raise source.error("holds empty texts only.")
    return kept


def _texts(table: Table, place: int) -> list[str]:
    texts = []
    for row, value in enumerate(table.column(place)):
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list | tuple | dict):
            raise table.source.error(
                f"has a list or an object in the text column '{table.names[place]}'; a list of words is named with "
                "`tokens`, a list of numbers with `features`.",
                table.lines[row],
            )
        else:
            texts.append(as_text(value))
    return texts


def _tokens(table: Table, place: int) -> tuple[Table, list[list[str]]]:
    """Lists of words, without the empty ones, and the rows that they stand in."""
    values = table.column(place)
    for row, value in enumerate(values):
        if not isinstance(value, list | tuple):
            raise table.source.error(
                f"has no list in the column '{table.names[place]}' (`tokens`) but {_shown(value)}.", table.lines[row]
            )
    rows = [row for row, value in enumerate(values) if len(value)]
    if not rows:
        raise table.source.error(f"has empty lists only in the column '{table.names[place]}' (`tokens`).")
    return table.take(rows), [[str(word) for word in values[row]] for row in rows]


def _tags(table: Table, roles: Roles, sentences: Sequence[Any] | np.ndarray) -> list[list[str]]:
    if roles.indicators:
        raise table.source.option_error("with `tokens`, `label` names a single column that holds a list of tags.")
    name, labels = table.names[roles.label[0]], []
    for tags, words, line in zip(table.column(roles.label[0]), sentences, table.lines, strict=True):
        if not isinstance(tags, list | tuple):
            raise table.source.error(f"has no list of tags in the column '{name}' but {_shown(tags)}.", line)
        if len(tags) != len(words):
            raise table.source.error(f"has {len(words)} tokens but {len(tags)} tags in the column '{name}'.", line)
        if any(_is_missing(tag) for tag in tags):
            raise table.source.error(f"has a token without a label in the column '{name}'.", line)
        labels.append([as_text(tag) for tag in tags])
    return labels


def _labels(table: Table, place: int, separator: str | None) -> list[Any]:
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise table.source.option_error(f"`label_separator` is a piece of text such as ';'; found {separator!r}.")
    labels: list[Any] = []
    for value, line in zip(table.column(place), table.lines, strict=True):
        if separator is not None:
            parts = [part.strip() for part in as_text(value).split(separator)]
            labels.append(tuple(part for part in parts if part))
        elif isinstance(value, list | tuple):
            labels.append(tuple(as_text(part) for part in value))
        elif isinstance(value, dict):
            raise table.source.error(f"has an object as label in the column '{table.names[place]}'.", line)
        elif _is_missing(value):
            raise table.source.error(
                f"has no label in the column '{table.names[place]}'; fill it in or take the line out.", line
            )
        else:
            labels.append(value if isinstance(value, float) else as_text(value))
    return labels


def _is_missing(value: Any) -> bool:
    return (isinstance(value, float) and math.isnan(value)) or not as_text(value)


def _indicated(table: Table, places: Sequence[int]) -> list[tuple[str, ...]]:
    """Columns of zeros and ones as the names of those that hold a one."""
    present: list[list[str]] = [[] for _ in range(len(table))]
    for place in places:
        name = str(table.names[place])
        for row, value in enumerate(table.column(place)):
            text = as_text(value).lower()
            if text in ("1", "1.0", "true"):
                present[row].append(name)
            elif text not in ("0", "0.0", "false"):
                raise table.source.error(
                    f"has {_shown(value)} in the label column '{name}'; a list of label columns holds 0 or 1 each.",
                    table.lines[row],
                )
    return [tuple(names) for names in present]


def _vectors(table: Table, places: Sequence[int]) -> np.ndarray:
    columns = [table.column(place) for place in places]
    if len(places) == 1 and isinstance(columns[0][0], list | tuple):
        return _listed_vectors(table, str(table.names[places[0]]), columns[0])
    matrix = np.empty((len(table), len(places)), dtype=np.float32)
    for index, (place, values) in enumerate(zip(places, columns, strict=True)):
        matrix[:, index] = numbers = _as_floats(values)
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            raise _no_number(table, row, str(table.names[place]), values[row])
    return matrix


def _listed_vectors(table: Table, name: str, values: Sequence[Any]) -> np.ndarray:
    """A column that holds a list of numbers per row, all of one length."""
    width = len(values[0])
    for row, vector in enumerate(values):
        found = len(vector) if isinstance(vector, list | tuple) else 0
        if found != width or width == 0:
            raise table.source.error(
                f"has {found} numbers in the column '{name}'; expected {width or 'some'}, as in line {table.lines[0]}.",
                table.lines[row],
            )
    flat = _as_floats([number for vector in values for number in vector])
    if not np.isfinite(flat).all():
        row, index = divmod(int(np.argmin(np.isfinite(flat))), width)
        raise _no_number(table, row, name, values[row][index])
    return flat.reshape(len(values), width)


def _as_floats(values: Sequence[Any]) -> np.ndarray:
    """Numbers of single precision; NaN where a value is none."""
    with np.errstate(over="ignore"):  # too large for single precision becomes infinite, which the caller refuses
        try:
            return np.asarray([float(value) for value in values], dtype=np.float64).astype(np.float32)
        except (TypeError, ValueError, OverflowError):
            return np.asarray([_as_float(value) for value in values], dtype=np.float64).astype(np.float32)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _no_number(table: Table, row: int, name: str, value: Any) -> CrossTaskError:
    return table.source.error(
        f"has {_shown(value)} in the feature column '{name}'; a finite number was expected.", table.lines[row]
    )


def _shown(value: Any) -> str:
    text = as_text(value)
    if not text:
        return "nothing"
    return f"'{text[:37]}...'" if len(text) > 40 else f"'{text}'"
