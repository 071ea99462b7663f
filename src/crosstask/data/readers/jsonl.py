"""JSON lines: an object a line."""

import json
from typing import Any, Unpack

from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Encoding, Source
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.data.task import Examples


def read_jsonl(source: Source, *, encoding: Encoding = "utf-8", **options: Unpack[NestedTableOptions]) -> Examples:
    """Examples from a file with a JSON object a line; keys are columns, and a key that a line lacks is an empty cell.

    Args:
        source: the file.
        encoding: of the text; of several the first that fits.
        options: see `NestedTableOptions`.
    """
    numbers, rows = jsonl_rows(source, encoding)
    names = list(dict.fromkeys(key for row in rows for key in row))
    return examples_from(Table(source, names, lambda place: [row.get(names[place]) for row in rows], numbers), options)


def jsonl_rows(source: Source, encoding: Encoding) -> tuple[list[int], list[dict[str, Any]]]:
    """The objects of a file and the line of each."""
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(source.lines(encoding), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            if number == 1 and line.lstrip().startswith("["):
                raise _one_array(source) from error
            reason = (
                f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else "too deep"
            )
            raise source.error(f"is no JSON ({reason}); each line must be one object.", number) from error
        if not isinstance(row, dict):
            if number == 1 and isinstance(row, list):
                raise _one_array(source)
            raise source.error(f"holds no JSON object but {line[:40]!r}; each line must be one object.", number)
        numbers.append(number)
        rows.append(row)
    return numbers, rows


def _one_array(source: Source) -> Exception:
    return source.error("is a single JSON array; write one object a line instead (JSON lines).", 1)
