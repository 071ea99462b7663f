"""A table as it stands in its file: named columns, a line number per row, and the choice of columns and rows."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosstask.data.examples import line_numbers, select
from crosstask.data.plain_text import text_of
from crosstask.data.readers.source import Source
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief
from crosstask.validation import shown

Column = str | int

_DELIMITERS = {"\t": "\\t", ";": ";", ",": ",", "|": "|"}


BLOCK_ROWS = 4096
MAX_POOL = 10_000
"""A column with fewer different cells than this, such as that of the label, holds each of them once."""


class CellColumns:
    """Cells of a file column by column, filled row by row: a list per column takes far less memory than one per row."""

    def __init__(self, num_columns: int) -> None:
        self.columns: list[list[str]] = [[] for _ in range(num_columns)]
        self.pools: list[dict[str, str] | None] = [{} for _ in range(num_columns)]
        self.block: list[list[str]] = []

    def add(self, row: list[str]) -> None:
        """Append a row, which must have a cell for every column."""
        self.block.append(row)
        if len(self.block) == BLOCK_ROWS:
            self._close_block()

    def column(self, index: int) -> list[str]:
        """All cells of a column."""
        self._close_block()
        return self.columns[index]

    def _close_block(self) -> None:
        for index, cells in enumerate(zip(*self.block, strict=True)):
            pool = self.pools[index]
            if pool is None:
                self.columns[index] += cells
                continue
            self.columns[index] += [pool.setdefault(cell, cell) for cell in cells]
            if len(pool) > MAX_POOL:
                self.pools[index] = None
        self.block = []


@dataclass(frozen=True)
class Table:
    """Rows of one file, column by column.

    - `column`: the values of the column with this number, one per row; only called for columns that are used;
    - `lines`: where each row begins in the file (the row's number from 1 where the file has no lines);
    - `numbered`: columns may be chosen by number (from 0, or from the end: -1), as the file has them in an order;
    - `objects`: the rows as the file has them, where a row need not have all columns (JSON lines);
    - `typed`: labels that are numbers or true or false stay that, and are no texts (tables in memory).
    """

    source: Source
    names: Sequence[str]
    column: Callable[[int], Sequence[Any]]
    lines: Sequence[int]
    numbered: bool = False
    objects: Sequence[dict[str, Any]] | None = None
    typed: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> Sequence[dict[str, Any]]:
        """Every row as its values by the names of their columns."""
        if self.objects is not None:
            return self.objects
        columns = [self.column(index) for index in range(len(self.names))]
        return [dict(zip(self.names, values, strict=True)) for values in zip(*columns, strict=True)]

    def find(self, column: Column, option: str) -> int:
        """The index of a column that the user chose with `option`, by name or by number."""
        if not isinstance(column, str | int):
            raise self.source.option_error(f"`{option}` names a column by its name or number; found {shown(column)}.")
        name = text_of(column)
        matches = [index for index, other in enumerate(self.names) if other == name]
        if len(matches) > 1:
            remedy = f"choose one by number, here {matches[0]}" if self.numbered else "rename one"
            raise self.source.error(f"has {len(matches)} columns named '{brief(name)}' (`{option}`); {remedy}.")
        if matches:
            return matches[0]
        if self.numbered and isinstance(column, int) and not isinstance(column, bool):
            if -len(self.names) <= column < len(self.names):
                return column % len(self.names)
            raise self.source.error(
                f"has {len(self.names)} columns, numbered from 0 to {len(self.names) - 1}; `{option}` asks for {name}."
            )
        raise self._missing(name, option)

    def columns_but(self, excluded: Collection[int]) -> tuple[int, ...]:
        """The indices of all columns but these."""
        return tuple(index for index in range(len(self.names)) if index not in excluded)

    def find_all(self, columns: Column | Sequence[Column] | None, option: str) -> tuple[int, ...]:
        """The indices of one column or of several."""
        return tuple(self.find(column, option) for column in listed(columns))

    def _missing(self, name: str, option: str) -> CrossTaskError:
        """The error for a column that does not exist: which there are, and which one may be meant."""
        problem = f"has no column '{brief(name)}' (`{option}`); its columns: {self.listing()}."
        suggestion = did_you_mean(name, self.names)
        if suggestion.startswith("Did"):  # otherwise it lists the names once more
            problem += f" {suggestion}"
        return self.source.error(problem + self.delimiter_hint())

    def listing(self) -> str:
        """The names of the columns, as errors list them."""
        listing = ", ".join(brief(name) for name in self.names[:30])
        if len(self.names) > 30:
            listing += f", ... ({len(self.names)} in all)"
        return listing

    def delimiter_hint(self) -> str:
        """A guess at the right delimiter, where a table of one column looks like one that was not cut."""
        if self.numbered and len(self.names) == 1:
            for delimiter, escaped in _DELIMITERS.items():
                if delimiter in self.names[0]:
                    return f' Perhaps the columns are separated otherwise: `delimiter: "{escaped}"`.'
        return ""

    def take(self, rows: Sequence[int]) -> "Table":
        """The table of these rows only."""
        if len(rows) == len(self):  # all of them
            return self
        return replace(
            self,
            column=lambda index: select(self.column(index), rows),
            lines=line_numbers(select(self.lines, rows)),
            objects=None,
        )

    def where(self, conditions: Mapping[Column, object] | None) -> "Table":
        """The rows in which each of these columns holds its value, or one of a list of values, compared as text."""
        if conditions is None:
            return self
        if not isinstance(conditions, Mapping):
            raise self.source.option_error(
                f"`where` maps columns to the value that they must have, as in {{language: en}}; found "
                f"{shown(conditions)}."
            )
        table = self
        for column, condition in conditions.items():
            values = as_texts(table.column(self.find(column, "where")))
            accepted = {as_text(condition)}
            if isinstance(condition, list | tuple | set):
                accepted = set(as_texts(condition))
            rows = [row for row, value in enumerate(values) if value in accepted]
            if not rows:
                others = sorted(set(values))
                listing = ", ".join(brief(value) for value in others[:10])
                if len(others) > 10:
                    listing += ", ..."
                raise self.source.error(
                    f"has no row where '{brief(text_of(column))}' is {brief(' or '.join(sorted(accepted)))} "
                    f"(`where`); it holds: {listing}."
                )
            table = table.take(rows)
        return table


def listed(columns: Column | Sequence[Column] | None) -> Sequence[Column]:
    """The value of an option that names one column or a list of them, as a list.

    >>> listed("text"), listed(["a", 1]), listed(None)
    (['text'], ['a', 1], [])
    """
    if columns is None:
        return []
    if isinstance(columns, list | tuple):
        return columns
    return [columns]  # type: ignore[list-item]


def as_text(value: object) -> str:
    """A cell as text, with true and false as JSON and YAML write them.

    >>> as_text(True), as_text(" a "), as_text(3), as_text(None)
    ('true', 'a', '3', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return text_of(value).strip()


def as_texts(values: Iterable[object]) -> list[str]:
    """Several cells as texts."""
    return [as_text(value) for value in values]
