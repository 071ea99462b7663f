"""Rows of the user's file exactly as they stand in it, for `crosstask predict` to add to."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from crosstask.data.readers.source import Source
from crosstask.quoting import brief

MAX_CELL = 2**31 - 1
JSON_SPACE = " \t\n\r"

# Numbers as they are written: those of thousands of digits, 1e400 and 1.10 have no other exact form.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)

Member = tuple[str, Any, str]
"""A key of an object, its value, and the text of that value in the file."""


class Rows(Protocol):
    """Rows that can be written as a table or as JSON lines."""

    def check_free(self, name: str) -> None:
        """Fail if a column of this name exists."""

    def cells(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """The names of the columns, and the cells of every row."""

    def objects(self) -> Iterable[str]:
        """Every row as the text of a JSON object."""


@dataclass(frozen=True)
class CellRows:
    """Rows of a delimited file. Two columns may have the same name."""

    source: Source
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def check_free(self, name: str) -> None:
        """Fail if a column of this name exists."""
        if name in [column.strip() for column in self.header]:
            raise self.source.error(_taken(f"has a column '{brief(name)}' already"))

    def cells(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """As they are."""
        return self.header, self.rows

    def objects(self) -> Iterable[str]:
        """A key per column, which therefore must have names of their own."""
        for position, name in enumerate(self.header):
            if name in self.header[:position]:
                raise self.source.error(
                    f"has two columns named '{brief(name)}', of which JSON could keep one only; write .csv, or "
                    "rename one."
                )
        return (json.dumps(dict(zip(self.header, row, strict=True)), ensure_ascii=False) for row in self.rows)


@dataclass(frozen=True)
class ObjectRows:
    """Objects of a file of JSON lines, as the texts that they are there, and the numbers of their lines."""

    source: Source
    texts: Sequence[str]
    lines: Sequence[int]

    def check_free(self, name: str) -> None:
        """Fail if an object has this key."""
        for text, line in zip(self.texts, self.lines, strict=True):
            if name not in text and "\\" not in text:
                continue  # without an escape, a key stands in the text as it is
            if any(key == name for key, _, _ in _members(text)):
                raise self.source.error(_taken(f"has a key '{brief(name)}' already"), line)

    def cells(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """A column per key, in the order in which they occur; empty where an object lacks it."""
        objects: list[dict[str, str]] = []
        for text, line in zip(self.texts, self.lines, strict=True):
            row: dict[str, str] = {}
            for key, value, value_text in _members(text):
                if key in row:
                    raise self.source.error(f"has the key '{brief(key)}' twice, which only JSON lines can hold.", line)
                row[key] = _cell_of(value, value_text)
            objects.append(row)
        header = list(dict.fromkeys(chain.from_iterable(objects)))
        return header, [[row.get(name, "") for name in header] for row in objects]

    def objects(self) -> Iterable[str]:
        """As they are."""
        return self.texts


def with_members(text: str, members: Mapping[str, Any]) -> str:
    """The text of a JSON object with more keys at its end; all that it had stays as it was.

    >>> with_members('{"a": 1e400, "a": 1.10}', {"b": "x"})
    '{"a": 1e400, "a": 1.10, "b": "x"}'
    >>> with_members('{ }', {"b": "x"})
    '{"b": "x"}'
    """
    start = text.rstrip(JSON_SPACE)[:-1].rstrip(JSON_SPACE)
    more = json.dumps(members, ensure_ascii=False)[1:]
    return start + more if start.endswith("{") else f"{start}, {more}"


def exact_records(lines: Iterable[str], delimiter: str, *, quoting: bool) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record by the number of the line that it begins on, with the line ends that stand in quotes.

    The lines have `\\r` at their ends where the file has it. The readers, which have taken the same file before, make
    one kind of all line ends.
    """
    rest = iter(lines)
    for number, line in enumerate(rest, start=1):
        if quoting and '"' in line:
            yield from _quoted_records(chain([line], rest), number, delimiter)
            return
        if line.removesuffix("\r"):
            yield number, line.removesuffix("\r").split(delimiter)


def _quoted_records(lines: Iterable[str], first: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    old_limit = csv.field_size_limit(MAX_CELL)  # the default is 128 kB, less than a long document
    try:
        reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
        number = first
        for record in reader:
            if record:
                yield number, record
            number = first + reader.line_num
    finally:
        csv.field_size_limit(old_limit)


def _members(text: str) -> Iterator[Member]:
    """The keys and values of a JSON object, which is known to be one, in their order and with those that come twice."""
    position = _skip_space(text, _skip_space(text, 0) + 1)  # behind the brace
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        position = _skip_space(text, _skip_space(text, position) + 1)  # behind the colon
        value, end = _DECODER.raw_decode(text, position)
        yield key, value, text[position:end]
        position = _skip_space(text, end)
        if text[position] == ",":
            position = _skip_space(text, position + 1)


def _skip_space(text: str, position: int) -> int:
    while text[position] in JSON_SPACE:
        position += 1
    return position


def _cell_of(value: Any, text: str) -> str:
    """A value as a cell: texts as they are, words with spaces between them, everything else as JSON writes it."""
    if value is None:
        return ""
    if text.startswith('"'):
        return str(value)
    if isinstance(value, list) and "{" not in text and text.count("[") == 1:
        words = [item for item in value if isinstance(item, str) and item.split() == [item]]
        if len(words) == len(value) == text.count('"') // 2:
            return " ".join(words)
    return text


def _taken(problem: str) -> str:
    return f"{problem}, and nothing is written over; name the new one with --column."
