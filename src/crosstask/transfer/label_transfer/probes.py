"""Linear models of the target that soft labels and the target's head can start from."""

from typing import TYPE_CHECKING

import numpy as np

from crosstask.models.batches import Prepared
from crosstask.probing.features import MAX_WORDS, collect
from crosstask.probing.heads import fill, linear_layer
from crosstask.probing.linear_models import LinearModel, choose_penalty, fit, penalty_grid
from crosstask.probing.stacking import fit_stacked

if TYPE_CHECKING:
    from crosstask.models.multitask import Model


def probe_of(model: "Model", target: Prepared) -> LinearModel:
    """A linear model of the target's labels on the current representations; cross-validation chooses the penalty."""
    units = collect(model, target).sample(MAX_WORDS, np.random.default_rng(0))
    penalty, _ = choose_penalty(units, penalty_grid(units.features.shape[1]))
    return fit(units, [penalty])[0]


def stacked_probe_of(model: "Model", target: Prepared, source: str) -> LinearModel:
    """The same on representations and on the probabilities that the source's head gives its labels.

    An example of the source can have its own label there, with probability 1.
    """
    units = collect(model, target, outputs_of=[source]).sample(MAX_WORDS, np.random.default_rng(0))
    width = model.encoder.width
    return fit_stacked(units, width, {source: slice(width, units.features.shape[1])}, seed=0).model


def fill_head(model: "Model", task: str, probe: LinearModel) -> None:
    """Let a task's head start as its probe, where the head is one linear layer."""
    layer = linear_layer(model, task)
    if layer is not None and layer.weight.shape == probe.weights.shape:
        fill(layer, probe)
