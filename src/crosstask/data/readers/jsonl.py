"""JSON lines: an object a line."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.plain_text import has_lone_surrogate
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import CrossTaskError
from crosstask.validation import shown

MAX_DEPTH = 64
"""Lists and objects inside one another; those of data have three or four."""

Values = tuple[Any, ...]
"""The values of one object, in the order of its keys."""


class ObjectRuns:
    """Objects of a file, in runs of those with the same keys: the keys are held once, and a row takes a tuple."""

    def __init__(self) -> None:
        self.runs: list[tuple[tuple[str, ...], list[Values]]] = []
        self.names: dict[str, None] = {}  # a set that remembers its order

    def add(self, row: dict[str, Any]) -> None:
        """Append an object."""
        keys = tuple(row)
        if not self.runs or self.runs[-1][0] != keys:
            self.runs.append((keys, []))
            self.names.update(dict.fromkeys(keys))
        self.runs[-1][1].append(tuple(row.values()))

    def column(self, name: str) -> list[Any]:
        """The value of each object under this key; None where it has no such key."""
        values: list[Any] = []
        for keys, rows in self.runs:
            if name in keys:
                position = keys.index(name)
                values += [row[position] for row in rows]
            else:
                values += [None] * len(rows)
        return values

    def objects(self) -> list[dict[str, Any]]:
        """All objects."""
        objects = []
        for keys, rows in self.runs:
            for row in rows:
                objects.append(dict(zip(keys, row, strict=True)))
        return objects


def read_jsonl(source: Source, **options: Unpack[NestedTableOptions]) -> Examples:
    """Examples from a file with a JSON object a line; keys are columns, and a key that a line lacks is an empty cell.

    Args:
        source: the file.
        options: see `NestedTableOptions`.
    """
    runs, numbers = _read_objects(source)
    return examples_from(_table(source, runs, numbers), options)


def jsonl_table(source: Source) -> Table:
    """The objects of a file; columns are their keys in the order in which they occur."""
    runs, numbers = _read_objects(source)
    return _table(source, runs, numbers, runs.objects())


def _table(
    source: Source, runs: ObjectRuns, numbers: Sequence[int], objects: Sequence[dict[str, Any]] | None = None
) -> Table:
    keys = list(runs.names)
    return Table(source, keys, lambda index: runs.column(keys[index]), numbers, objects=objects)


def _read_objects(source: Source) -> tuple[ObjectRuns, Sequence[int]]:
    numbers = line_numbers()
    runs = ObjectRuns()
    for number, line in enumerate(source.lines(), start=1):
        if line.strip():
            runs.add(_parse(source, number, line))
            numbers.append(number)
    return runs, numbers


def _parse(source: Source, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        # A file with one array over many lines fails in its first line.
        if number == 1 and line.lstrip().startswith("["):
            raise _single_array(source) from error
        raise source.error(f"is no JSON ({_reason(error)}); each line must be one object.", number) from error
    if isinstance(row, dict):
        _check_object(source, number, line, row)
        return row
    if number == 1 and isinstance(row, list):
        raise _single_array(source)
    raise source.error(f"holds no JSON object but {shown(line)}; each line must be one object.", number)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.colno}"
    if isinstance(error, RecursionError):
        return "too deep"
    return "a number of thousands of digits"


def _check_object(source: Source, number: int, line: str, row: dict[str, Any]) -> None:
    """Refuse what parses but cannot be written or shown: half of a surrogate pair, and lists in lists in lists."""
    # Only an escape can make a surrogate in a file that was decoded, and only brackets make lists.
    if "\\u" in line and has_lone_surrogate(json.dumps(row, ensure_ascii=False)):
        raise source.error(
            "holds half of a surrogate pair, such as \\ud800 alone, which is no text; take it out.", number
        )
    if line.count("[") + line.count("{") > MAX_DEPTH and _depth(row.values()) > MAX_DEPTH:
        raise source.error(f"has lists or objects more than {MAX_DEPTH} deep inside one another.", number)


def _depth(values: Iterable[Any]) -> int:
    """How deep lists and objects stand inside one another, this one included."""
    depth = 0
    level = list(values)
    while level and depth <= MAX_DEPTH:
        depth += 1
        inside: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inside += value.values()
            elif isinstance(value, list):
                inside += value
        level = inside
    return depth


def _single_array(source: Source) -> CrossTaskError:
    return source.error("is a single JSON array; write one object a line instead (JSON lines).", 1)
