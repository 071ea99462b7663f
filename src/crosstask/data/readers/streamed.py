"""Data sets that are streamed, as from the hub: windows of rows from several of their shards at a time.

A shard is a file, or a row group of a Parquet file. Pass after pass goes over all shards, each pass in a random order
of its own. Some shards are open at a time, and a block of rows is taken from each in turn, so that a window has rows
from several places. What it holds depends on the seed and its number alone.

Nothing but the open shards is read. Where a window begins is said by a few numbers, which a checkpoint keeps: a run
that goes on opens the same shards again and skips what it has had of them. That is done here and not by the package's
own `shuffle` and `state_dict`, since a shuffled stream loses the rows in its buffer when it goes on.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import TypedDict

from crosstask.data.examples import Examples
from crosstask.data.plain_text import one_line
from crosstask.data.readers.blocks import BLOCK_ROWS
from crosstask.data.readers.source import Source
from crosstask.errors import CrossTaskError
from crosstask.progress import rows_bar

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

NUM_OPEN = 8
"""Shards that are read at a time."""


class StreamPosition(TypedDict):
    """Where a window begins, as plain data.

    - `window`: its number;
    - `pass_number`: over all shards, from 0;
    - `num_opened`: shards that this pass has opened so far, of `num_shards`;
    - `open`: number and rows read of each open shard, the one whose turn it is first.
    """

    window: int
    pass_number: int
    num_opened: int
    num_shards: int
    open: list[list[int]]


def is_streamed(data: object) -> bool:
    """Whether this is a data set of `datasets` whose rows can only be read one after the other."""
    return hasattr(data, "num_shards") and hasattr(data, "take") and not hasattr(data, "__len__")


def whole(source: Source, stream: "IterableDataset") -> "Dataset":
    """All rows of a stream, in memory."""
    return _dataset(source, stream, list(_batches(source, stream)))


@dataclass
class OpenShard:
    """A shard, how many of its rows were read, and those that are to come, a block at a time."""

    number: int
    num_rows: int
    batches: Iterator[Any]


class ShardReader:
    """The blocks of a stream, one after the other and without end, from a position on."""

    def __init__(self, source: Source, stream: "IterableDataset", seed: int, position: StreamPosition | None) -> None:
        self.source, self.stream, self.seed = source, stream, seed
        self.num_shards = int(stream.num_shards)
        self.pass_number = self.num_opened = 0
        self.open: deque[OpenShard] = deque()
        if position is not None:
            self.pass_number, self.num_opened = position["pass_number"], position["num_opened"]
            for number, num_rows in position["open"]:
                self._open(number, num_rows)

    def position(self, window: int) -> StreamPosition:
        """Where the next block is, with which a window begins."""
        return {
            "window": window,
            "pass_number": self.pass_number,
            "num_opened": self.num_opened,
            "num_shards": self.num_shards,
            "open": [[shard.number, shard.num_rows] for shard in self.open],
        }

    def next_block(self) -> Any:
        """The next rows of the shard whose turn it is, as a table of Arrow."""
        num_passes = 0
        while True:
            if not self.open and self.num_opened == self.num_shards:
                num_passes += 1
                if num_passes == 2:
                    raise self.source.error("has no rows.")
                self.pass_number, self.num_opened = self.pass_number + 1, 0
            while len(self.open) < NUM_OPEN and self.num_opened < self.num_shards:
                order = np.random.default_rng([self.seed, self.pass_number]).permutation(self.num_shards)
                self._open(int(order[self.num_opened]), 0)
                self.num_opened += 1
            shard = self.open.popleft()
            block = next(shard.batches, None)
            if block is not None:
                shard.num_rows += len(block)
                self.open.append(shard)
                return block

    def _open(self, number: int, num_rows: int) -> None:
        shard = self.stream.shard(num_shards=self.num_shards, index=number)
        self.open.append(OpenShard(number, num_rows, _batches(self.source, shard, num_rows)))


class StreamBlocks:
    """The windows of a stream.

    Args:
        source: for error messages.
        stream: the data set.
        read: the examples of some of its rows.
        window: rows of a window, at least: the last block is read to its end.
        seed: of the order of shards.
    """

    def __init__(
        self,
        source: Source,
        stream: "IterableDataset",
        read: Callable[["Dataset"], Examples],
        *,
        window: int,
        seed: int,
    ) -> None:
        if stream.num_shards < NUM_OPEN and hasattr(stream, "reshard"):
            stream = stream.reshard()  # row groups for files of Parquet; others stay as they are
        self.source, self.stream, self.read, self.seed = source, stream, read, seed
        self.num_rows = window
        self.positions: dict[int, StreamPosition | None] = {0: None}
        """Where windows begin, as far as that is known."""
        self._reader: tuple[int, ShardReader] | None = None  # and the window that it is to read next
        self._first: Dataset | None = None  # until it is asked for

    @classmethod
    def of(
        cls,
        source: Source,
        stream: "IterableDataset",
        read: Callable[["Dataset"], Examples],
        *,
        window: int,
        seed: int,
    ) -> "StreamBlocks | None":
        """Windows of so many rows; None where the stream has no more than one of them."""
        blocks = cls(source, stream, read, window=window, seed=seed)
        with rows_bar(source.name, window) as advance:
            blocks._first = blocks._rows(0, advance)
        position = blocks.positions[1]
        if position is None or position["pass_number"] > 0:
            return None
        return blocks

    @property
    def num_windows(self) -> float | None:
        """Of a pass, where the data set says how many rows it has."""
        splits = self.stream.info.splits
        if not splits or str(self.stream.split) not in splits:
            return None
        num_rows = splits[str(self.stream.split)].num_examples
        return num_rows / self.num_rows if num_rows else None

    def window(self, number: int) -> Examples:
        """The rows of window number `number`."""
        if number == 0 and self._first is not None:
            rows, self._first = self._first, None
            return self.read(rows)
        nearest = max(window for window in self.positions if window <= number)
        for before in range(nearest, number):  # nobody has said where this window begins
            self._rows(before)
        return self.read(self._rows(number))

    def restore(self, position: StreamPosition) -> None:
        """Note where a window begins, as another process has found it."""
        if position["num_shards"] != self.stream.num_shards:
            raise self.source.error(
                f"has {self.stream.num_shards} shards, and had {position['num_shards']} when the run began, so that it "
                "cannot go on where it was: begin a new run."
            )
        self.positions[position["window"]] = position

    def _rows(self, number: int, advance: Callable[[int], None] = lambda num_rows: None) -> "Dataset":
        if self._reader is None or self._reader[0] != number:
            self._reader = number, ShardReader(self.source, self.stream, self.seed, self.positions[number])
        _, reader = self._reader
        self._reader = None  # an error leaves it in the midst of a window
        blocks: list[Any] = []
        count = 0
        while count < self.num_rows:
            blocks.append(reader.next_block())
            count += len(blocks[-1])
            advance(count)
        self.positions[number + 1] = reader.position(number + 1)
        self._reader = number + 1, reader
        return _dataset(self.source, self.stream, blocks)

    def __getstate__(self) -> dict[str, Any]:
        # What is open stays here; another process opens its own.
        return {**self.__dict__, "_reader": None, "_first": None}


def _batches(source: Source, stream: "IterableDataset", num_skipped: int = 0) -> Iterator[Any]:
    """The rows of a stream as tables of Arrow; whatever goes wrong, which may be the network, as a sentence."""
    try:
        rows = stream.with_format("arrow")
        if num_skipped:
            rows = rows.skip(num_skipped)
        yield from rows.iter(batch_size=BLOCK_ROWS)
    except CrossTaskError:
        raise
    except Exception as error:  # of the package, of those that it reads by, or of a generator of the user's
        reason = one_line(str(error).strip().split("\n")[0])[:200] or type(error).__name__
        raise source.error(f"cannot be read as a stream ({reason}); a run that was begun can be resumed.") from error


def _dataset(source: Source, stream: "IterableDataset", tables: list[Any]) -> "Dataset":
    """Tables of Arrow as a data set in memory, with the features of the stream where it has some."""
    from datasets import Dataset

    columns: dict[str, list[Any]] = {name: [] for name in stream.features or ()}
    num_rows = 0
    for table in tables:
        for name, values in table.to_pydict().items():
            columns.setdefault(name, [None] * num_rows).extend(values)
        num_rows += len(table)
        for values in columns.values():
            values.extend([None] * (num_rows - len(values)))
    try:
        return Dataset.from_dict(columns, features=stream.features)
    except Exception as error:  # of Arrow, whose types do not hold what a column has
        raise source.error(f"has values of several types in one column ({one_line(str(error))[:200]}).") from error
