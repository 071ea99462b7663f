"""Linear models of the target that soft labels and the target's head can start from."""

from typing import TYPE_CHECKING

import numpy as np

from crosstask.data.examples import TaskSpec
from crosstask.data.label_names import has_label_texts
from crosstask.models.batches import Prepared
from crosstask.probing import names
from crosstask.probing.features import MAX_WORDS, collect
from crosstask.probing.heads import fill, linear_layer
from crosstask.probing.linear_models import LinearModel, choose_penalty, fit, penalty_grid
from crosstask.probing.stacking import fit_stacked

if TYPE_CHECKING:
    from crosstask.models.multitask import Model

NAMES_SCALE = 10.0
"""What the cosine of a source's label and one of the target counts as a logit."""


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


def named_probe_of(model: "Model", target: Prepared) -> LinearModel:
    """The same on current representations, as near to what the target's labels mean as its labels allow."""
    return names.named_probe_of(model, target).model


def with_label_names(model: "Model", probe: LinearModel, target: TaskSpec, source: TaskSpec) -> LinearModel:
    """A probe of the target that also reads the source's label: what means the same has a higher logit.

    A label without words says nothing, but for one that both tasks have.
    """
    cosines = np.zeros((len(target.labels), len(source.labels)))
    if has_label_texts(source):
        cosines = names.label_vectors(model, target) @ names.label_vectors(model, source).T
    for position, label in enumerate(target.labels):
        if label in source.labels:
            cosines[position, source.labels.index(label)] = 1.0
    return LinearModel(np.concatenate([probe.weights, NAMES_SCALE * cosines], axis=1), probe.bias)


def fill_head(model: "Model", task: str, probe: LinearModel) -> None:
    """Let a task's head start as its probe, where the head is one linear layer."""
    layer = linear_layer(model, task)
    if layer is not None and layer.weight.shape == probe.weights.shape:
        fill(layer, probe)
