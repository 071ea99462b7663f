"""Windows of data that are larger than memory: blocks of rows from everywhere in it, a few at a time.

The rows of a window stand in random blocks, so that a file is never read as a whole, and a window of a sorted file has
rows from many places. Which blocks are in a window depends on the seed and its number alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from crosstask.data.examples import Examples
from crosstask.data.readers.source import Source
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from datasets import Dataset

BLOCK_BYTES = 2**16
"""Of a file: some hundred rows."""
BLOCK_ROWS = 256
"""Of a data set in memory-mapped files."""
NUM_PROBED = 64
"""Blocks of which the mean length of a line is taken."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class BlockOrder:
    """Which blocks are in which window: pass after pass over all blocks, each in a random order of its own.

    >>> order = BlockOrder(num_blocks=4, per_window=2, seed=0)
    >>> sorted([*order.blocks(0), *order.blocks(1)])
    [0, 1, 2, 3]
    """

    num_blocks: int
    per_window: int
    seed: int

    @property
    def num_windows(self) -> float:
        """Of a pass over all blocks."""
        return self.num_blocks / self.per_window

    def blocks(self, window: int) -> list[int]:
        """The numbers of a window's blocks."""
        orders: dict[int, np.ndarray] = {}
        numbers: list[int] = []
        for position in range(window * self.per_window, (window + 1) * self.per_window):
            round_number, rank_in_round = divmod(position, self.num_blocks)
            if round_number not in orders:
                generator = np.random.default_rng([self.seed, round_number])
                orders[round_number] = generator.permutation(self.num_blocks)
            numbers.append(int(orders[round_number][rank_in_round]))
        return numbers


@runtime_checkable  # tasks are checked as arguments
class Blocks(Protocol):
    """Data in blocks."""

    @property
    def num_windows(self) -> float | None:
        """Of a pass over all rows; None where that is not known without reading them."""

    def window(self, number: int) -> Examples:
        """The rows of window number `number`, from 0."""


@dataclass(frozen=True)
class BlockSource(Source):
    """Some blocks of a file as if they were all of it, after the line that names the columns, if there is one.

    A line belongs to the block in which it begins.
    """

    blocks: tuple[int, ...] = ()
    has_header: bool = False
    unit: str = "line of those read"

    def chunks(self) -> Iterator[bytes]:
        """The header and the lines of the blocks."""
        with self.explained(), self.path.open("rb") as file:
            header = file.readline() if self.has_header else b""
            yield header
            for block in self.blocks:
                start, stop = block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES
                if start:
                    file.seek(start - 1)
                    file.readline()  # the end of a line that began before
                else:
                    file.seek(len(header))
                length = stop - file.tell()
                if length <= 0:  # one line is longer than the block
                    continue
                lines = file.read(length)
                if not lines.endswith(b"\n"):
                    lines += file.readline()
                if lines and not lines.endswith(b"\n"):
                    lines += b"\n"
                yield lines if start else lines.removeprefix(BYTE_ORDER_MARK)


@dataclass(frozen=True)
class FileBlocks:
    """A file with a row on each line.

    - `source`: the file;
    - `read`: the examples of a source, by the reader of its format;
    - `options`: of the reader;
    - `order`: of blocks.
    """

    source: Source
    read: Callable[..., Examples]
    options: Mapping[str, Any]
    has_header: bool
    order: BlockOrder

    @classmethod
    def of(
        cls,
        source: Source,
        read: Callable[..., Examples],
        options: Mapping[str, Any],
        *,
        has_header: bool,
        window: int,
        seed: int,
    ) -> "FileBlocks | None":
        """Windows of about so many rows; None where the file has no more than one of them."""
        with source.explained():
            source.check()
            size = source.path.stat().st_size
            with source.path.open("rb") as file:
                if file.read(2) == b"\x1f\x8b":
                    raise source.error("is packed, and only plain files can be read by `window`; unpack it.")
            num_rows = _estimated_rows(source.path, size)
        num_blocks = -(-size // BLOCK_BYTES)
        per_window = max(1, round(window * num_blocks / max(1, num_rows)))
        if per_window >= num_blocks:
            return None
        order = BlockOrder(num_blocks, per_window, seed)
        return cls(source, read, dict(options), has_header, order)

    @property
    def num_windows(self) -> float:
        """Of a pass over the file."""
        return self.order.num_windows

    def window(self, number: int) -> Examples:
        """The rows of these blocks, by the reader of the format."""
        source = self.source
        part = BlockSource(
            source.task,
            source.name,
            source.path,
            source.encoding,
            source.limits,
            blocks=tuple(self.order.blocks(number)),
            has_header=self.has_header,
        )
        return self.read(part, **self.options)


def _estimated_rows(path: Path, size: int) -> int:
    """Lines of a file, by their mean length in blocks at equal distances."""
    num_bytes = num_lines = 0
    num_blocks = -(-size // BLOCK_BYTES)
    with path.open("rb") as file:
        for block in np.unique(np.linspace(0, num_blocks - 1, NUM_PROBED).astype(int)).tolist():
            file.seek(block * BLOCK_BYTES)
            content = file.read(BLOCK_BYTES)
            num_bytes += len(content)
            num_lines += content.count(b"\n")
    return round(size * num_lines / max(1, num_bytes))


@dataclass(frozen=True)
class DatasetBlocks:
    """A data set of the package `datasets`, whose rows stay in memory-mapped files until they are read."""

    dataset: "Dataset"
    read: Callable[["Dataset"], Examples]
    order: BlockOrder

    @classmethod
    def of(
        cls, dataset: "Dataset", read: Callable[["Dataset"], Examples], *, window: int, seed: int
    ) -> "DatasetBlocks | None":
        """Windows of about so many rows; None where the data set has no more than one of them."""
        num_blocks = -(-len(dataset) // BLOCK_ROWS)
        per_window = max(1, round(window / BLOCK_ROWS))
        if per_window >= num_blocks:
            return None
        return cls(dataset, read, BlockOrder(num_blocks, per_window, seed))

    @property
    def num_windows(self) -> float:
        """Of a pass over the data set."""
        return self.order.num_windows

    def window(self, number: int) -> Examples:
        """The rows of these blocks."""
        rows: list[int] = []
        for block in self.order.blocks(number):
            rows.extend(range(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, len(self.dataset))))
        return self.read(self.dataset.select(rows))


def check_window(task: str, options: Mapping[str, Any]) -> None:
    """Options that ask for a whole file do not go with `window`."""
    for name in ("limit", "split"):
        if options.get(name) is not None:
            raise CrossTaskError(
                f"Task '{task}': `{name}` draws from all rows, and `window` reads a part of them at a time: leave one "
                "of the two out."
            )
    if options.get("cut") == "latest":
        raise CrossTaskError(
            f"Task '{task}': `cut: latest` needs all rows, and `window` reads a part of them at a time: leave one of "
            "the two out."
        )
