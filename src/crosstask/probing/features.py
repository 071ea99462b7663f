"""Features and labels of a training set, as arrays for linear models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared, in_batches, make_batch
from crosstask.models.evaluate import PREDICTION_BATCH
from crosstask.models.losses import IGNORED, hard_labels, label_values
from crosstask.models.modes import without_graph
from crosstask.probing.linear_models import Units

if TYPE_CHECKING:
    from crosstask.models.multitask import Model

MAX_WORDS = 20_000
"""Words of a tagging task that a model is fitted on at most, in complete sentences."""
SAME_INPUT = 1e-4
"""Features whose distance is below this fraction of their length are those of one input."""
ROWS_AT_A_TIME = 1000
"""Examples whose distances to all others are computed at once."""


@without_graph
def collect(model: "Model", prepared: Prepared, outputs_of: Sequence[str] = ()) -> Units:
    """Features and labels of a training set, an example or a word each, in double precision.

    Behind the features stand the probabilities (or numbers) that the heads of the tasks `outputs_of` give each unit.
    Examples with the same input are one example of the units.
    """
    if not len(prepared):
        raise CrossTaskError(f"Task '{prepared.spec.name}' has no training examples, so that there is nothing to fit.")
    was_training = model.training
    model.eval()
    spec, device = prepared.spec, model.device()
    features: list[Tensor] = []
    labels: list[Tensor] = []
    examples: list[np.ndarray] = []
    distinct = prepared.distinct_inputs
    for positions in in_batches(prepared.lengths(), PREDICTION_BATCH):
        batch = make_batch(model.encoder, {spec.name: prepared}, {spec.name: positions}).to(device)
        representation = model.encode(batch.inputs, batch.rows)
        batch_labels = hard_labels(spec.kind, batch.labels[spec.name])
        columns = [representation.read_by(spec.kind)]
        for task in outputs_of:
            columns.append(label_values(model.specs[task].kind, model.head(task)(representation, batch.inputs)))
        vectors = torch.cat(columns, dim=-1)  # [batch, width], or [batch, length, width] for tagging
        if spec.kind == "tagging":
            is_labeled = batch_labels != IGNORED  # [batch, length]
            vectors, batch_labels = vectors[is_labeled], batch_labels[is_labeled]  # [words, width], [words]
            positions = np.repeat(positions, is_labeled.sum(1).cpu().numpy())
        features.append(vectors.double().cpu())
        labels.append(batch_labels.cpu())
        examples.append(distinct.first[distinct.numbers[positions]])
    model.train(was_training)
    label_array = torch.cat(labels).numpy()
    if spec.kind == "regression":
        label_array = label_array.astype(np.float64)
    return Units(
        *(spec.kind, spec.num_outputs, torch.cat(features).numpy(), label_array, np.concatenate(examples)),
        device=solving_device(device),
    )


def solving_device(device: torch.device) -> str:
    """Where linear models of features from this device are solved: there, if it has double precision."""
    if device.type == "cuda":
        return str(device)
    return "cpu"


def shared_examples(units: Units, others: Units) -> np.ndarray:
    """For each unit the example of `others` that has the same input, or -1; inputs are told apart by their features."""
    examples, vectors = _example_means(units)
    other_examples, other_vectors = _example_means(others)
    other_norms = (other_vectors**2).sum(axis=1)
    matches = np.full(len(examples), -1)
    for start in range(0, len(examples), ROWS_AT_A_TIME):
        rows = vectors[start : start + ROWS_AT_A_TIME]
        norms = (rows**2).sum(axis=1)
        distances = norms[:, None] + other_norms - 2.0 * rows @ other_vectors.T  # squared, [rows, others]
        nearest = distances.argmin(axis=1)
        is_same = distances[np.arange(len(rows)), nearest] <= SAME_INPUT**2 * norms
        matches[start : start + ROWS_AT_A_TIME][is_same] = other_examples[nearest[is_same]]
    return matches[np.searchsorted(examples, units.examples)]


def _example_means(units: Units) -> tuple[np.ndarray, np.ndarray]:
    """The examples, and the mean of each one's features, [examples, width]."""
    examples, indices, counts = np.unique(units.examples, return_inverse=True, return_counts=True)
    sums = np.zeros((len(examples), units.features.shape[1]))
    np.add.at(sums, indices, units.features)
    return examples, sums / counts[:, None]
