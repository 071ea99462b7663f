"""Several texts in one row of a batch, so that a transformer computes next to nothing for padding.

A batch is as long as its longest text. Where the others are much shorter, most of its positions are padding, and on a
CPU each of them takes as long as a token. Here short texts fill up the rows of long ones. A mask for each pair of
positions lets tokens attend to those of their own text alone, and position ids start anew with each text; what comes
out is, to rounding, what comes out of the padded batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MIN_SAVING = 0.1
"""Of the rows: packing costs little, but not nothing."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of a padded batch stand in packed rows.

    - `batch_shape`, `packed_shape`: number of rows, and positions of a row;
    - `padded_at`: position of each token in the padded batch, its rows one after the other, [tokens];
    - `packed_at`: its position in the packed rows, counted likewise, [tokens];
    - `text_of`, `offset_of`: the text that it is from, and its position there, [tokens].
    """

    batch_shape: tuple[int, int]
    packed_shape: tuple[int, int]
    padded_at: Tensor
    packed_at: Tensor
    text_of: Tensor
    offset_of: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> "Packing | None":
        """That of a batch with padding before or behind its texts; None where it would not save a tenth of the rows.

        Args:
            mask: 1 at tokens, 0 at padding, [batch, length].
        """
        num_texts, length = mask.shape
        counts = mask.sum(dim=1)
        if int(counts.sum()) > (1 - MIN_SAVING) * mask.numel() or not counts.all():
            return None  # little padding, or a text without any token, which has no vector
        starts, num_rows = assign_rows(counts.tolist(), length)
        if num_rows > (1 - MIN_SAVING) * num_texts:
            return None
        padded_at = mask.flatten().nonzero().flatten()
        text_of = padded_at // length
        offset_of = (mask.cumsum(dim=1) - 1).flatten()[padded_at]
        packed_at = torch.from_numpy(starts)[text_of] + offset_of
        return cls((num_texts, length), (num_rows, length), padded_at, packed_at, text_of, offset_of)

    def pack(self, values: Tensor, fill: int) -> Tensor:
        """Values of a padded batch, [batch, length], in packed rows."""
        return self._placed(values.flatten()[self.padded_at], fill)

    def pack_vectors(self, vectors: Tensor) -> Tensor:
        """Vectors of a padded batch, [batch, length, width], in packed rows; zero at padding."""
        num_rows, length = self.packed_shape
        width = vectors.shape[-1]
        tokens = vectors.reshape(-1, width).index_select(0, self.padded_at)
        packed = tokens.new_zeros(num_rows * length, width)
        return packed.index_copy(0, self.packed_at, tokens).reshape(num_rows, length, width)

    def position_ids(self, first: int) -> Tensor:
        """Of packed rows, where those of a text start at `first`."""
        return self._placed(self.offset_of + first, first)

    def attention_mask(self, *, is_causal: bool = False) -> Tensor:
        """What is added to the attention between each two positions, [rows, 1, length, length].

        Padding attends to padding, so that there is no position without any to attend to. `is_causal`: a token attends
        to those before it and to itself.
        """
        texts = self._placed(self.text_of, fill=-1)
        is_seen = texts[:, None, :, None] == texts[:, None, None, :]
        if is_causal:
            is_seen &= torch.ones(is_seen.shape[-2:], dtype=torch.bool).tril()
        lowest = torch.finfo(torch.float32).min
        return torch.zeros(is_seen.shape).masked_fill_(~is_seen, lowest)

    def unpack(self, vectors: Tensor) -> Tensor:
        """Vectors of packed rows, [rows, length, width], as those of the padded batch; zero at padding."""
        width = vectors.shape[-1]
        tokens = vectors.reshape(-1, width).index_select(0, self.packed_at)
        padded = tokens.new_zeros(self.batch_shape[0] * self.batch_shape[1], width)
        return padded.index_copy(0, self.padded_at, tokens).reshape(*self.batch_shape, width)

    def _placed(self, values: Tensor, fill: int) -> Tensor:
        """A value per token in packed rows, [rows, length]."""
        num_rows, length = self.packed_shape
        rows = values.new_full((num_rows * length,), fill)
        rows[self.packed_at] = values
        return rows.reshape(num_rows, length)


def assign_rows(counts: Sequence[int], length: int) -> tuple[np.ndarray, int]:
    """Where each text starts when rows of this length are laid end to end, and how many rows there are.

    From the longest text to the shortest, each goes into the first row that has room for it.

    >>> assign_rows([2, 6, 3, 1], length=6)
    (array([ 9,  0,  6, 11]), 2)
    """
    starts = np.zeros(len(counts), dtype=np.int64)
    free = np.full(len(counts), length)  # positions of each row that are still empty
    num_rows = 0
    for text in np.argsort(-np.asarray(counts), kind="stable").tolist():
        row = int(np.argmax(free >= counts[text]))
        starts[text] = (row + 1) * length - free[row]
        free[row] -= counts[text]
        num_rows = max(num_rows, row + 1)
    return starts, num_rows


def packed_inputs(
    packing: Packing, inputs: Mapping[str, Tensor], *, first_position: int, is_causal: bool = False
) -> dict[str, Tensor]:
    """The inputs of a transformer for packed rows, from those of the padded batch."""
    packed = {
        "attention_mask": packing.attention_mask(is_causal=is_causal),
        "position_ids": packing.position_ids(first_position),
    }
    for name, values in inputs.items():
        if name not in packed:
            packed[name] = packing.pack(values, fill=0)
    return packed
