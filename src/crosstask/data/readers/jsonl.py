"""JSON lines: an object a line."""

import json
from typing import Any, Unpack

from crosstask.data.examples import Examples
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import CrossTaskError


def read_jsonl(source: Source, **options: Unpack[NestedTableOptions]) -> Examples:
    """Examples from a file with a JSON object a line; keys are columns, and a key that a line lacks is an empty cell.

    Args:
        source: the file.
        options: see `NestedTableOptions`.
    """
    return examples_from(jsonl_table(source), options)


def jsonl_table(source: Source) -> Table:
    """The objects of a file; columns are their keys in the order in which they occur."""
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    names: dict[str, None] = {}  # a set that remembers its order
    for number, line in enumerate(source.lines(), start=1):
        if line.strip():
            row = _parse(source, number, line)
            numbers.append(number)
            rows.append(row)
            names.update(dict.fromkeys(row))
    keys = list(names)
    return Table(source, keys, lambda index: [row.get(keys[index]) for row in rows], numbers, objects=rows)


def _parse(source: Source, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        # A file with one array over many lines fails in its first line.
        if number == 1 and line.lstrip().startswith("["):
            raise _single_array(source) from error
        reason = "too deep"
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at character {error.colno}"
        raise source.error(f"is no JSON ({reason}); each line must be one object.", number) from error
    if isinstance(row, dict):
        return row
    if number == 1 and isinstance(row, list):
        raise _single_array(source)
    raise source.error(f"holds no JSON object but {line[:40]!r}; each line must be one object.", number)


def _single_array(source: Source) -> CrossTaskError:
    return source.error("is a single JSON array; write one object a line instead (JSON lines).", 1)
