"""Which sources can give a target labels, how frequent its labels are, and which of its examples are held out."""

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crosstask.data.examples import Kind
from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared

if TYPE_CHECKING:
    from crosstask.data.task import Task, TaskSpec
    from crosstask.transfer.base import Moment

LEVELS: Mapping[Kind, str] = {
    "classification": "sequence",
    "pair": "sequence",
    "multilabel": "sequence",
    "regression": "sequence",
    "tagging": "token",
}
"""What a label is of: labels can be carried over only within a level."""


class Split(NamedTuple):
    """Positions of a target's examples: those of the look-ahead step, and those held out, which judge it."""

    train: np.ndarray
    held_out: np.ndarray


def split_batch(positions: np.ndarray, fraction: float, input_numbers: np.ndarray) -> Split:
    """A batch in two, neither part empty unless all of it is one input; examples with one input stay together.

    What is held out is spread evenly over the batch, whose examples may be sorted by length.

    Args:
        positions: of the batch's examples in the training set.
        fraction: of the inputs that is held out.
        input_numbers: of all examples of the training set, the same for the same input.
    """
    # Inputs are numbered anew, as they come in the batch.
    number_of: dict[int, int] = {}
    numbers: list[int] = []
    for number in input_numbers[positions].tolist():
        numbers.append(number_of.setdefault(number, len(number_of)))
    size = len(number_of)
    num_held_out = min(max(1, round(fraction * size)), size - 1)
    is_held_out_input = np.diff(np.arange(size + 1) * num_held_out // size) > 0  # [inputs]
    is_held_out = is_held_out_input[numbers]  # [batch]
    return Split(positions[~is_held_out], positions[is_held_out])


def held_out_positions(target: Prepared, fraction: float) -> np.ndarray:
    """Positions of a fraction of the target's training set, stratified where it has classes; the same for any seed.

    All examples of an input are held out, or none.
    """
    labels = None
    if target.spec.kind in ("classification", "pair"):
        labels = np.asarray(target.labels).tolist()
    distinct = target.distinct_inputs
    count = min(max(1, round(fraction * len(distinct))), len(distinct) - 1)
    _, positions = distinct.cut(labels, count, np.random.default_rng(0))
    return np.asarray(positions, dtype=np.int64)


def sample_split(moment: "Moment", target: str, held_out: np.ndarray) -> Split:
    """As many random examples of the target as its batch has, outside of `held_out`, and as many inside."""
    size = len(moment.step[target])
    generator = np.random.default_rng([moment.update, zlib.crc32(target.encode())])
    sampled_held_out = generator.permutation(held_out)[:size]
    remaining = np.setdiff1d(np.arange(len(moment.data[target])), held_out)
    return Split(generator.permutation(remaining)[:size], sampled_held_out)


def sources_of(target: "TaskSpec", tasks: Sequence["Task"], targets: Sequence[str]) -> list["TaskSpec"]:
    """The sources whose labels this target can be given."""
    sources = []
    for task in tasks:
        if task.name not in targets and LEVELS[task.kind] == LEVELS[target.kind]:
            sources.append(task.spec)
    if not sources:
        raise CrossTaskError(
            f"transfer 'label-transfer' finds no source whose labels it could carry over to '{target.name}' "
            f"({target.kind}): it needs one with labels of whole texts for a target of such, or of words."
        )
    return sources


def label_frequencies(target: "Task") -> Tensor:
    """Relative frequency of each outcome of a label in the target's training set, in the shape of `outcome_weights`.

    Without the axis of units: [labels], or [labels, 2] for multilabel, where the labels together have one.
    """
    encoded = target.spec.encode(target.train)
    if target.kind == "multilabel":
        present = torch.from_numpy(np.asarray(encoded)).mean(0)  # [labels]
        return torch.stack([1.0 - present, present], dim=-1) / len(present)
    flat = np.concatenate([np.atleast_1d(np.asarray(row)) for row in encoded])  # below 0: not labeled
    counts = np.bincount(flat[flat >= 0].astype(np.int64), minlength=len(target.labels))
    return torch.tensor(counts / counts.sum(), dtype=torch.float32)
