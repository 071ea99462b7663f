"""Parquet files, by pyarrow."""

import io
from typing import Unpack

from crosstask.data.examples import Examples
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import import_extra


def read_parquet(source: Source, **options: Unpack[NestedTableOptions]) -> Examples:
    """Examples from a Parquet file; only the columns that are used are read. Rows count as lines, from 1.

    Args:
        source: the file.
        options: see `NestedTableOptions`.
    """
    pyarrow = import_extra("pyarrow", extra="parquet", purpose="Reading Parquet files")
    parquet = import_extra("pyarrow.parquet", extra="parquet", purpose="Reading Parquet files")
    content = source.data()
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        names = list(file.schema_arrow.names)

        def column(index: int) -> list[object]:
            return file.read(columns=[names[index]]).column(0).to_pylist()

        return examples_from(Table(source, names, column, range(1, file.metadata.num_rows + 1)), options)
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise source.error(f"is no Parquet file, or a broken one ({reason}).") from error
