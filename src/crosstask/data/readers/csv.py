"""Comma- and tab-separated files: tables with a character between columns."""

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Unpack

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.readers.column_roles import TableOptions
from crosstask.data.readers.source import TAB, Source
from crosstask.data.readers.table import CellColumns, Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.validation import shown

Record = tuple[int, list[str]]
"""The line that a record begins on, and its fields."""


def read_csv(
    source: Source,
    *,
    delimiter: str = ",",
    quoting: bool = True,
    header: bool = True,
    **options: Unpack[TableOptions],
) -> Examples:
    """Examples from a delimited table, quoted as RFC 4180 says.

    Args:
        source: the file.
        delimiter: the character between columns ("tab" is understood).
        quoting: whether fields may stand in double quotes, over several lines too.
        header: whether the first record names the columns; without it they are numbered from 0.
        options: see `TableOptions`.
    """
    return examples_from(csv_table(source, delimiter, quoting, header), options)


def read_tsv(
    source: Source,
    *,
    delimiter: str = "\t",
    quoting: bool = False,
    header: bool = True,
    **options: Unpack[TableOptions],
) -> Examples:
    """Examples from a tab-separated table; the arguments are those of `read_csv` with other defaults.

    Quotes are plain characters by default, as unbalanced ones are common in such files.
    """
    return examples_from(csv_table(source, delimiter, quoting, header), options)


def csv_table(source: Source, delimiter: str, quoting: bool, header: bool) -> Table:
    """A delimited table as it stands in its file; see `read_csv`."""
    if isinstance(delimiter, str):
        delimiter = TAB.get(delimiter, delimiter)
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise source.option_error(f"`delimiter` is a single character such as ';' or tab; found {shown(delimiter)}.")
    for name, value in {"quoting": quoting, "header": header}.items():
        if not isinstance(value, bool):
            raise source.option_error(f"`{name}` is true or false; found {shown(value)}.")
    return _table(source, _records(source, delimiter, quoting), header)


def _records(source: Source, delimiter: str, quoting: bool) -> Iterator[Record]:
    """Up to the first quote there is nothing to parse, and cutting lines is several times faster."""
    lines = source.lines()
    for number, line in enumerate(lines, start=1):
        if quoting and '"' in line:
            yield from _quoted_records(source, chain([line], lines), delimiter, number)
            return
        if line:
            yield number, line.split(delimiter)


def _quoted_records(source: Source, lines: Iterable[str], delimiter: str, first_line: int) -> Iterator[Record]:
    # The default is 128 kB, less than a long document; more than 31 bits do not fit everywhere.
    old_limit = csv.field_size_limit(min(source.limits.line, 2**31 - 1))
    number = first_line
    try:
        reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
        for record in reader:
            if record:
                yield number, record
            number = first_line + reader.line_num
    except csv.Error as error:
        raise source.error(
            f"begins a record that cannot be cut into columns ({error}); a quote inside quotes is written twice, and "
            "`quoting: false` takes quotes as plain characters.",
            number,
        ) from error
    finally:
        csv.field_size_limit(old_limit)


def _table(source: Source, records: Iterator[Record], header: bool) -> Table:
    first_line, first = next(records, (0, []))
    numbers = line_numbers()
    cells = CellColumns(len(first))
    if header:
        names = [name.strip() for name in first]
    else:
        names = [str(index) for index in range(len(first))]
        numbers.append(first_line)
        cells.add(first)
    for number, row in records:
        # A file with a row that is too short or too long is refused: nobody can tell which column is missing.
        if len(row) != len(names):
            if len(row) == 1 and not row[0].strip():
                continue  # nothing but spaces
            model = "the header" if header else f"line {first_line}"
            raise source.error(
                f"has {len(row)} column{'s' * (len(row) != 1)}; expected {len(names)}, as in {model}. Is a delimiter "
                "or a quote missing, or one too many?",
                number,
            )
        numbers.append(number)
        cells.add(row)
    return Table(source, names, cells.column, numbers, numbered=True)
