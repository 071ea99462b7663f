"""What label transfer reads off its tasks: who can give labels to whom, how often labels occur, what is held out."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from crosstask.data.subsets import stratified_cut
from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared

if TYPE_CHECKING:
    from crosstask.data.task import Task, TaskSpec
    from crosstask.transfer.base import Moment

LEVELS = {"classification": "sequence", "pair": "sequence", "tagging": "token"}
"""Kinds of task whose labels can be carried over; only within a level."""


def halves(positions: np.ndarray, split: float) -> tuple[np.ndarray, np.ndarray]:
    """A batch in two parts, neither of them empty unless it has one example.

    What is held out is spread evenly over the batch, whose examples may be sorted by length.
    """
    size = len(positions)
    held_out = min(max(1, round(split * size)), size - 1)
    is_held_out = np.diff(np.arange(size + 1) * held_out // size) > 0
    return positions[~is_held_out], positions[is_held_out]


def held_out_part(target: Prepared, share: float) -> np.ndarray:
    """Positions of a share of the target's training set, class by class where it has classes; the same for any seed."""
    labels = None if target.spec.kind == "tagging" else np.asarray(target.labels).tolist()
    count = min(max(1, round(share * len(target))), len(target) - 1)
    _, held_out = stratified_cut(labels, len(target), count, np.random.default_rng(0))
    return np.asarray(held_out)


def drawn_apart(moment: "Moment", target: str, held_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As many examples of the target as its batch has, outside what is held out, and as many inside."""
    size, everything = len(moment.step[target]), np.arange(len(moment.data[target]))
    generator = np.random.default_rng([moment.update, zlib.crc32(target.encode())])
    judges = generator.permutation(held_out)[:size]
    return generator.permutation(np.setdiff1d(everything, held_out))[:size], judges


def sources_of(target: "TaskSpec", tasks: Sequence["Task"], targets: Sequence[str]) -> list["TaskSpec"]:
    """The sources whose labels this target can be given."""
    if target.kind not in LEVELS:
        raise CrossTaskError(
            f"transfer 'label-transfer' carries over classes, but the target '{target.name}' is {target.kind}. "
            "Leave it out, or use 'stacking'."
        )
    found = [t.spec for t in tasks if t.name not in targets and LEVELS.get(t.kind) == LEVELS[target.kind]]
    if not found:
        raise CrossTaskError(
            f"transfer 'label-transfer' finds no source whose labels it could carry over to '{target.name}' "
            f"({target.kind}): it needs one with labels of whole texts for a target of such, or of words."
        )
    return found


def frequencies(target: "Task") -> Tensor:
    """How often each label of the target stands in its training set."""
    encoded = target.spec.encode(target.train)
    flat = np.concatenate([np.atleast_1d(np.asarray(row)) for row in encoded])
    counts = np.bincount(flat[flat >= 0].astype(np.int64), minlength=len(target.labels))
    return torch.tensor(counts / counts.sum(), dtype=torch.float32)
