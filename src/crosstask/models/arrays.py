"""Prepared inputs as arrays, and batches of them as tensors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, overload

import numpy as np
import torch
from torch import Tensor

Item = TypeVar("Item")
PreparedInput = dict[str, np.ndarray]
"""One example as arrays. The array `word_positions` holds the position of each word of a tagged sentence."""


class FlatRows(Sequence[PreparedInput]):
    """Prepared inputs that have one array of whole numbers each, held in a single one.

    A million small arrays would take several times the memory of what is in them.

    >>> rows = FlatRows("ids", np.array([5, 6, 7], dtype=np.int32), np.array([0, 2, 3]))
    >>> len(rows), rows[0]["ids"].tolist(), rows[-1]["ids"].tolist(), rows.lengths().tolist()
    (2, [5, 6], [7], [2, 1])
    """

    def __init__(self, name: str, values: np.ndarray, ends: np.ndarray) -> None:
        self.name = name
        self.values = values
        self.ends = ends  # of each row, after a zero

    def __len__(self) -> int:
        return len(self.ends) - 1

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
        start, end = self.ends[position], self.ends[position + 1]
        return {self.name: self.values[start:end].astype(np.int64)}

    def lengths(self) -> np.ndarray:
        """Number of values of each row."""
        return np.diff(self.ends)


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


def take(items: Sequence[Item] | Mapping[int, Item], positions: Iterable[int]) -> list[Item]:
    """The items at these positions, in their order."""
    return [items[i] for i in positions]


def column(rows: Iterable[PreparedInput], name: str) -> list[np.ndarray]:
    """The array of this name of each prepared input."""
    return [row[name] for row in rows]


def pad(arrays: Sequence[np.ndarray], value: float, length: int = 0) -> Tensor:
    """Stack arrays that differ in their first axis, filled up at the end, to at least `length`.

    >>> pad([np.array([1, 2]), np.array([3])], value=0).tolist()
    [[1, 2], [3, 0]]
    """
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
    lengths = torch.tensor([len(array) for array in arrays])
    return (torch.arange(max(length, int(lengths.max()))) < lengths[:, None]).long()


def to_device(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Copies of tensors on a device; from pinned memory without waiting."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def rows_of(tensors: Mapping[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """These rows of a batch's tensors."""
    return {name: tensor[rows] for name, tensor in tensors.items()}
