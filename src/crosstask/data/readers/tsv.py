"""Tab-separated files. Quotes are plain characters by default, as unbalanced ones are common in such files."""

from typing import Unpack

from crosstask.data.readers.column_roles import TableOptions
from crosstask.data.readers.csv import read_csv
from crosstask.data.readers.source import Encoding, Source
from crosstask.data.task import Examples


def read_tsv(
    source: Source,
    *,
    delimiter: str = "\t",
    quoting: bool = False,
    header: bool = True,
    encoding: Encoding = "utf-8",
    **options: Unpack[TableOptions],
) -> Examples:
    """Examples from a tab-separated table; the arguments are those of `read_csv` with other defaults."""
    return read_csv(source, delimiter=delimiter, quoting=quoting, header=header, encoding=encoding, **options)
