"""Prepared inputs as arrays, and batches of them as tensors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from crosstask.models.packing import PACKED

Item = TypeVar("Item")
Name = TypeVar("Name")
PreparedInput = dict[str, np.ndarray]
"""One example as arrays. The array `word_positions` holds the position of each word of a tagged sentence."""


@dataclass(frozen=True, eq=False)
class Ragged(Sequence[np.ndarray]):
    """Arrays of whole numbers and different lengths, end to end in a single one.

    >>> ragged = Ragged.of([[5, 6], [], [7]])
    >>> ragged[0].tolist(), ragged.lengths().tolist(), ragged.take(np.array([2, 0])).values.tolist()
    ([5, 6], [2, 0, 1], [7, 5, 6])
    """

    values: np.ndarray
    ends: np.ndarray  # of each array, after a zero

    @classmethod
    def of(cls, arrays: Sequence[Sequence[int]], dtype: type[np.integer] = np.int32) -> "Ragged":
        """The same numbers, in less memory."""
        lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
        ends = _ends(lengths)
        return cls(np.fromiter(chain.from_iterable(arrays), dtype, int(ends[-1])), ends)

    @classmethod
    def concatenate(cls, parts: "Sequence[Ragged]") -> "Ragged":
        """The arrays of all parts."""
        lengths = np.concatenate([part.lengths() for part in parts])
        return cls(np.concatenate([part.values for part in parts]), _ends(lengths))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, position: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, position: slice) -> list[np.ndarray]: ...
    def __getitem__(self, position: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        return self.values[self.ends[position] : self.ends[position + 1]].astype(np.int64)

    def lengths(self) -> np.ndarray:
        """Of each array."""
        return self.ends[1:] - self.ends[:-1]

    def take(self, positions: np.ndarray) -> "Ragged":
        """The arrays at these positions, in their order."""
        starts = self.ends[positions]
        lengths = self.ends[positions + 1] - starts
        ends = _ends(lengths)
        # Where each value was: as far from its array's start as it is now.
        shifts = np.repeat(starts - ends[:-1], lengths)
        return Ragged(self.values[np.arange(len(shifts)) + shifts], ends)


def _ends(lengths: np.ndarray) -> np.ndarray:
    """Where each of several arrays ends that stand end to end, after a zero."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


class FlatRows(Sequence[PreparedInput]):
    """Prepared inputs of whole numbers, with all arrays of a name in a single one.

    A million small arrays would take several times the memory of what is in them.

    >>> rows = FlatRows({"ids": Ragged.of([[5, 6], [7]])})
    >>> len(rows), rows[0]["ids"].tolist(), rows[-1]["ids"].tolist(), rows.lengths().tolist()
    (2, [5, 6], [7], [2, 1])
    """

    def __init__(self, columns: Mapping[str, Ragged]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, position: int) -> PreparedInput: ...
    @overload
    def __getitem__(self, position: slice) -> list[PreparedInput]: ...
    def __getitem__(self, position: int | slice) -> PreparedInput | list[PreparedInput]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(position)
        position %= len(self)
        return {name: ragged[position] for name, ragged in self.columns.items()}

    def lengths(self) -> np.ndarray:
        """Number of positions of each row."""
        lengths = [ragged.lengths() for name, ragged in self.columns.items() if name != "word_positions"]
        return np.max(lengths, axis=0)

    def take(self, positions: np.ndarray) -> "FlatRows":
        """The rows at these positions, in their order."""
        return FlatRows({name: ragged.take(positions) for name, ragged in self.columns.items()})

    @classmethod
    def concatenate(cls, parts: "Sequence[FlatRows]") -> "FlatRows":
        """The rows of all parts, with the arrays that each of them has."""
        columns: dict[str, Ragged] = {}
        for name in parts[0].columns:
            if all(name in part.columns for part in parts):
                columns[name] = Ragged.concatenate([part.columns[name] for part in parts])
        return cls(columns)


def length_of(row: PreparedInput) -> int:
    """Number of positions of a prepared input; rows of similar length make batches with little padding."""
    lengths: list[int] = []
    for name, array in row.items():
        if name != "word_positions":
            lengths.append(len(array))
    return max(lengths, default=1)


def lengths_of(rows: Sequence[PreparedInput]) -> np.ndarray:
    """Number of positions of each prepared input."""
    if isinstance(rows, FlatRows):
        return rows.lengths()
    return np.asarray([length_of(row) for row in rows])


@overload
def take(items: Sequence[Item], positions: Iterable[int]) -> list[Item]: ...
@overload
def take(items: Mapping[Name, Item], positions: Iterable[Name]) -> list[Item]: ...
def take(items: Sequence[Item] | Mapping[Name, Item], positions: Iterable[Any]) -> list[Item]:
    """The items at these positions, or of these names, in their order."""
    return [items[i] for i in positions]


def gather(parts: Sequence[tuple[Sequence[PreparedInput], np.ndarray]]) -> Sequence[PreparedInput]:
    """The prepared inputs at these positions of each part; flat where all parts are, without a step for each input."""
    flat: list[FlatRows] = []
    examples: list[PreparedInput] = []
    for rows, positions in parts:
        if isinstance(rows, FlatRows):
            flat.append(rows.take(positions))
    if len(flat) == len(parts):
        return FlatRows.concatenate(flat)
    for rows, positions in parts:
        examples += take(rows, positions)
    return examples


def column(rows: Iterable[PreparedInput], name: str) -> Sequence[np.ndarray]:
    """The array of this name of each prepared input."""
    if isinstance(rows, FlatRows):
        return rows.columns[name]
    return [row[name] for row in rows]


def pad(arrays: Sequence[np.ndarray], value: float, length: int = 0) -> Tensor:
    """Stack arrays that differ in their first axis, filled up at the end, to at least `length`.

    >>> pad([np.array([1, 2]), np.array([3])], value=0).tolist()
    [[1, 2], [3, 0]]
    >>> pad(Ragged.of([[1, 2], [3]]), value=0, length=3).tolist()
    [[1, 2, 0], [3, 0, 0]]
    """
    if isinstance(arrays, Ragged):
        is_value = _is_value(arrays, length)
        padded = np.full(is_value.shape, value, dtype=np.int64)
        padded[is_value] = arrays.values
        return torch.from_numpy(padded)
    length = max(length, *(len(array) for array in arrays))
    padded = np.full((len(arrays), length, *arrays[0].shape[1:]), value, dtype=arrays[0].dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded)


def attention_mask(arrays: Sequence[np.ndarray], length: int = 0) -> Tensor:
    """1 where `pad` has a position of an array, 0 where it fills up, [batch, length].

    >>> attention_mask([np.array([1, 2]), np.array([3])]).tolist()
    [[1, 1], [1, 0]]
    """
    return torch.from_numpy(_is_value(arrays, length).astype(np.int64))


def _is_value(arrays: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Where padded arrays hold values, [batch, length]."""
    if isinstance(arrays, Ragged):
        lengths = arrays.lengths()
    else:
        lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    return np.arange(max(length, lengths.max())) < lengths[:, None]


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Copies of tensors on a device; from pinned memory without waiting."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def rows_of(tensors: Mapping[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """These rows of a batch's tensors, without what says how all of them are packed."""
    return {name: tensor[rows] for name, tensor in tensors.items() if name != PACKED}
