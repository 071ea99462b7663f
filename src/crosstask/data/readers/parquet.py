"""Parquet files, by pyarrow."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Unpack

from crosstask.data.examples import Examples
from crosstask.data.plain_text import one_line
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.stream import raise_limit
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import CrossTaskError, import_extra
from crosstask.quoting import brief

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

PARQUET = b"PAR1"
BATCH_ROWS = 2**14
BYTES_PER_CELL = 8
"""Of memory, whatever is in it: a file of a few bytes can say that it has a billion cells."""


def read_parquet(source: Source, **options: Unpack[NestedTableOptions]) -> Examples:
    """Examples from a Parquet file; only the columns that are used are read. Rows count as lines, from 1.

    Args:
        source: the file.
        options: see `NestedTableOptions`.
    """
    with parquet_table(source) as table:
        return examples_from(table, options)


@contextmanager
def parquet_table(source: Source) -> Iterator[Table]:
    """A Parquet file as a table, as long as it is open."""
    import_extra("pyarrow", extra="parquet", purpose="Reading Parquet files")
    parquet = import_extra("pyarrow.parquet", extra="parquet", purpose="Reading Parquet files")
    with _content(source) as content:
        with _explained(source):
            file = parquet.ParquetFile(content)
            names = [str(name) for name in file.schema_arrow.names]
            num_rows = int(file.metadata.num_rows)
        _check_size(source, num_rows * BYTES_PER_CELL)
        yield Table(source, names, lambda index: _column(source, file, names[index], num_rows), range(1, num_rows + 1))


@contextmanager
def _content(source: Source) -> Iterator[BinaryIO]:
    """The file, to be read here and there; a pipe, or one that has to be unpacked, is held in memory."""
    if _is_plain_file(source):
        with source.path.open("rb") as file:
            yield file
    else:
        yield io.BytesIO(source.data())


def _is_plain_file(source: Source) -> bool:
    with source.explained():
        source.check()
        if not source.path.is_file():
            return False
        with source.open() as (file, _):
            return file.head.startswith(PARQUET)


@contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Whatever pyarrow says of a file: of broken ones it raises errors of a dozen types, and not all are its own."""
    try:
        yield
    except CrossTaskError:
        raise
    except Exception as error:
        reason = one_line(str(error).strip().split("\n")[0]) or type(error).__name__
        raise source.error(f"is no Parquet file, or a broken one ({reason}).") from error


def _column(source: Source, file: "ParquetFile", name: str, num_rows: int) -> list[object]:
    values: list[object] = []
    num_bytes = 0
    with _explained(source):
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=[name]):
            num_bytes += batch.nbytes
            _check_size(source, num_bytes)
            values += _decoded(batch.column(0).to_pylist())
    if len(values) != num_rows:
        raise source.error(f"is a broken Parquet file: it has {len(values)} of {num_rows} rows of '{brief(name)}'.")
    return values


def _decoded(values: list[object]) -> list[object]:
    """Some writers store texts without saying that they are texts."""
    if not any(isinstance(value, bytes) for value in values):
        return values
    return [value.decode("utf-8") if isinstance(value, bytes) else value for value in values]


def _check_size(source: Source, num_bytes: int) -> None:
    if num_bytes > source.limits.file:
        raise source.error(f"needs more than {source.limits.file:,} bytes of memory; {raise_limit()}.")
