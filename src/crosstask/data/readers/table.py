"""A table as the readers hand it over: named columns, a line number per row, and the choice of columns and rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosstask.data.readers.source import Source
from crosstask.errors import CrossTaskError, did_you_mean

Column = str | int


@dataclass(frozen=True)
class Table:
    """Rows of one file, column by column.

    - `column`: the values of the column with this number, one per row; only called for columns that are used;
    - `lines`: where each row begins in the file (the row's number from 1 where the file has no lines);
    - `numbered`: columns may be chosen by number (from 0, or from the end: -1), as their order is the file's own.
    """

    source: Source
    names: Sequence[str]
    column: Callable[[int], Sequence[Any]]
    lines: Sequence[int]
    numbered: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def find(self, column: Column, option: str) -> int:
        """The number of a column that the user chose with `option`, by name or by number."""
        name = str(column)
        places = [place for place, known in enumerate(self.names) if known == name]
        if len(places) > 1:
            remedy = f"choose one by number, here {places[0]}" if self.numbered else "rename one"
            raise self.source.error(f"has {len(places)} columns named '{name}' (`{option}`); {remedy}.")
        if places:
            return places[0]
        if self.numbered and isinstance(column, int) and not isinstance(column, bool):
            if -len(self.names) <= column < len(self.names):
                return column % len(self.names)
            raise self.source.error(
                f"has {len(self.names)} columns, numbered from 0 to {len(self.names) - 1}; `{option}` asks for {name}."
            )
        raise self.missing(name, option)

    def missing(self, name: str, option: str) -> CrossTaskError:
        """The error for a column that is not there: which there are, and which one may be meant."""
        suggestion = did_you_mean(name, self.names)
        suggestion = f" {suggestion}" if suggestion.startswith("Did") else ""
        return self.source.error(
            f"has no column '{name}' (`{option}`); its columns: {self.listing()}.{suggestion}{self.hint()}"
        )

    def listing(self) -> str:
        """The names of the columns, as errors list them."""
        shown = [name if len(name) <= 40 else name[:37] + "..." for name in self.names[:30]]
        return ", ".join(shown) + (f", ... ({len(self.names)} in all)" if len(self.names) > 30 else "")

    def hint(self) -> str:
        """A guess at the right delimiter, where a table of one column looks like one that was not cut."""
        if self.numbered and len(self.names) == 1:
            for delimiter, written in {"\t": "\\t", ";": ";", ",": ",", "|": "|"}.items():
                if delimiter in self.names[0]:
                    return f' Perhaps the columns are separated otherwise: `delimiter: "{written}"`.'
        return ""

    def take(self, rows: Sequence[int]) -> "Table":
        """The table of these rows only."""
        whole = self.column
        return replace(
            self,
            column=lambda place: (lambda values: [values[row] for row in rows])(whole(place)),
            lines=[self.lines[row] for row in rows],
        )

    def where(self, conditions: Mapping[Column, Any] | None) -> "Table":
        """The rows in which each of these columns holds its value, or one of a list of values, compared as text."""
        if conditions is None:
            return self
        if not isinstance(conditions, Mapping):
            raise self.source.option_error(
                f"`where` maps columns to the value that they must have, as in {{language: en}}; found {conditions!r}."
            )
        table = self
        for column, wanted in conditions.items():
            values = [as_text(value) for value in table.column(self.find(column, "where"))]
            options = {as_text(item) for item in (wanted if isinstance(wanted, list | tuple | set) else [wanted])}
            rows = [row for row, value in enumerate(values) if value in options]
            if not rows:
                there = sorted(set(values))
                shown = ", ".join(there[:10]) + (", ..." if len(there) > 10 else "")
                raise self.source.error(
                    f"has no row where '{column}' is {' or '.join(sorted(options))} (`where`); it holds: {shown}."
                )
            table = table.take(rows)
        return table


def as_text(value: Any) -> str:
    """A cell as text, with true and false as JSON and YAML write them.

    >>> as_text(True), as_text(" a "), as_text(3), as_text(None)
    ('true', 'a', '3', '')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value).strip()
