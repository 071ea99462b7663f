"""Several texts in one row of a batch, so that a transformer computes next to nothing for padding.

A batch is as long as its longest text. Where the others are much shorter, most of its positions are padding, and each
of them takes as long as a token. Here short texts fill up the rows of long ones. A mask for each pair of positions lets
tokens attend to those of their own text alone, and position ids start anew with each text; what comes out is, to
rounding, what comes out of the padded batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PACKED = "packed_positions"
"""Name of `Packing.positions` among the inputs of a batch, where the host has found them beforehand."""
MIN_SAVING = 0.1
"""Of the positions: packing costs little, but not nothing."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of a padded batch stand in packed rows. But for `of`, nothing here waits for the device.

    - `positions`: of each position in the packed rows the one in the padded batch, its rows one after the other, that
      its token is from; -1 where there is none, [rows, length];
    - `mask`: of the padded batch, 1 at tokens, 0 at padding, [batch, length].
    """

    positions: Tensor
    mask: Tensor

    @classmethod
    def of(cls, mask: Tensor, row_step: int = 1) -> "Packing | None":
        """That of a batch with padding before or behind its texts; None where it would not save a tenth of the rows.

        Args:
            mask: 1 at tokens, 0 at padding, [batch, length].
            row_step: the number of rows is a multiple of it, so that shapes come back.
        """
        num_texts, length = mask.shape
        counts = mask.sum(dim=1)
        if int(counts.sum()) > (1 - MIN_SAVING) * mask.numel() or not counts.all():
            return None  # little padding, or a text without any token, which has no vector
        starts, num_rows = assign_rows(counts.tolist(), length)
        num_rows = -(-num_rows // row_step) * row_step
        if num_rows > (1 - MIN_SAVING) * num_texts:
            return None
        padded_at = mask.flatten().nonzero().flatten()  # [tokens]
        offset_of = (mask.cumsum(dim=1) - 1).flatten()[padded_at]
        positions = padded_at.new_full((num_rows * length,), -1)
        positions[torch.from_numpy(starts)[padded_at // length] + offset_of] = padded_at
        return cls(positions.reshape(num_rows, length), mask)

    @property
    def packed_shape(self) -> tuple[int, int]:
        """Number of rows, and positions of a row."""
        num_rows, length = self.positions.shape
        return num_rows, length

    @property
    def _is_token(self) -> Tensor:
        return self.positions >= 0

    def pack(self, values: Tensor, fill: int) -> Tensor:
        """Values of a padded batch, [batch, length], in packed rows."""
        packed = values.flatten()[self.positions.clamp(min=0)]
        return packed.masked_fill(~self._is_token, fill)

    def pack_vectors(self, vectors: Tensor) -> Tensor:
        """Vectors of a padded batch, [batch, length, width], in packed rows; zero at padding."""
        width = vectors.shape[-1]
        packed = vectors.reshape(-1, width).index_select(0, self.positions.clamp(min=0).flatten())
        return packed.reshape(*self.packed_shape, width) * self._is_token.unsqueeze(-1)

    def position_ids(self, first: int) -> Tensor:
        """Of packed rows, where those of a text start at `first`."""
        return self.pack(self.mask.cumsum(dim=1) - 1 + first, first)

    def attention_mask(self, *, is_causal: bool = False) -> Tensor:
        """What is added to the attention between each two positions, [rows, 1, length, length].

        Padding attends to padding, so that there is no position without any to attend to. `is_causal`: a token attends
        to those before it and to itself.
        """
        length = self.mask.shape[1]
        texts = (self.positions // length).masked_fill(~self._is_token, -1)  # [rows, length]
        is_seen = texts[:, None, :, None] == texts[:, None, None, :]
        if is_causal:
            is_seen &= torch.ones(length, length, dtype=torch.bool, device=texts.device).tril()
        lowest = torch.finfo(torch.float32).min
        return torch.zeros(is_seen.shape, device=texts.device).masked_fill_(~is_seen, lowest)

    def unpack(self, vectors: Tensor) -> Tensor:
        """Vectors of packed rows, [rows, length, width], as those of the padded batch; zero at padding."""
        width, num_padded = vectors.shape[-1], self.mask.numel()
        # What stands at empty positions goes behind the batch, each to a slot of its own, and is cut off.
        slots = num_padded + torch.arange(self.positions.numel(), device=vectors.device)
        targets = torch.where(self._is_token.flatten(), self.positions.flatten(), slots)
        padded = vectors.new_zeros(num_padded + self.positions.numel(), width)
        padded = padded.index_copy(0, targets, vectors.reshape(-1, width))
        return padded[:num_padded].reshape(*self.mask.shape, width)


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
