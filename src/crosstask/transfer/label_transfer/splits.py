"""What label transfer reads off its tasks: who can give labels to whom, how often labels occur, what is held out."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.subsets import stratified_cut
from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared
from crosstask.probing.linear_models import LinearModel, cross_validate, fit, strengths_for

if TYPE_CHECKING:
    from crosstask.data.task import Task, TaskSpec
    from crosstask.models.multitask import Model
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
    labels = None if target.spec.kind == "tagging" else [int(label) for label in target.labels]
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


def probe_of(model: "Model", target: Prepared) -> LinearModel:
    """A linear model of the target's labels on representations as they are; cross-validation chooses the penalty."""
    from crosstask.probing.probe import MOST_WORDS, collect

    units = collect(model, target).sample(MOST_WORDS, np.random.default_rng(0))
    strengths = strengths_for(units.features.shape[1])
    losses = np.array([held.loss for held in cross_validate(units, strengths)])
    best = len(losses) // 2 if np.isnan(losses).all() else int(np.nanargmin(losses))
    return fit(units, [strengths[best]])[0]


def stacked_probe_of(model: "Model", target: Prepared, source: str) -> LinearModel:
    """The same on representations and on what the source's head says of them, as probabilities of its labels.

    Of a source's example its own label can be put there, for certain.
    """
    from crosstask.probing.probe import MOST_WORDS, collect, fit_stacked

    units = collect(model, target, said_by=[source]).sample(MOST_WORDS, np.random.default_rng(0))
    width = model.encoder.width
    return fit_stacked(units, width, {source: slice(width, units.features.shape[1])}, seed=0).model


def fill_head(model: "Model", task: str, probe: LinearModel) -> None:
    """Let a task's head say what its probe says, where the head is one linear layer."""
    layers = [module for module in model.head(task).modules() if isinstance(module, nn.Linear)]
    if len(layers) == 1 and layers[0].weight.shape == probe.weights.shape:
        with torch.no_grad():
            layers[0].weight.copy_(torch.from_numpy(probe.weights))
            layers[0].bias.copy_(torch.from_numpy(probe.bias))
