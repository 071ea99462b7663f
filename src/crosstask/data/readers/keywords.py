"""What each format takes by keyword, for editors and type checkers; the docstrings of the readers say what it means."""

from collections.abc import Sequence

from crosstask.data.options import SplitKeywords
from crosstask.data.readers.column_roles import NestedTableOptions, TableOptions
from crosstask.data.readers.source import Encoding
from crosstask.data.readers.table import Column


class MemoryKeywords(NestedTableOptions, SplitKeywords, total=False):
    """Of tables in memory: columns, and how the examples become splits."""


class TextFileKeywords(SplitKeywords, total=False):
    """Of every file of text. `folder` is where relative paths start."""

    folder: str
    encoding: Encoding
    max_bytes: int | None


class CsvKeywords(TableOptions, TextFileKeywords, total=False):
    """Of `read_csv`."""

    delimiter: str
    quoting: bool
    header: bool


class ColumnsKeywords(TextFileKeywords, total=False):
    """Of `read_columns`."""

    token: Column | None
    label: Column | None
    separator: str | None
    comment: str | None
    header: bool
    names: Sequence[str] | None


class ConlluKeywords(TextFileKeywords, total=False):
    """Of `read_conllu`."""

    token: Column
    label: Column


class ReadKeywords(NestedTableOptions, SplitKeywords, total=False):
    """Of all formats."""

    encoding: Encoding
    max_bytes: int | None
    delimiter: str
    quoting: bool
    header: bool
    token: Column | None
    separator: str | None
    comment: str | None
    names: Sequence[str] | None
    config: str | None
    streaming: bool
