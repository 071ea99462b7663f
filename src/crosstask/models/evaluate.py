"""From a model to predictions: batches of similar length, probabilities, and the loss where labels are known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crosstask.baton import hand_on
from crosstask.data.examples import EncodedLabels, TaskSpec
from crosstask.data.metrics import Predictions
from crosstask.decisions.fit import CALIBRATED_KINDS, HeldOutLogits
from crosstask.decisions.rule import DecisionRule
from crosstask.models.arrays import PreparedInput, gather, lengths_of, take, to_device
from crosstask.models.batches import Prepared, in_batches, make_batch
from crosstask.models.encoder import Inputs
from crosstask.models.losses import IGNORED, hard_labels, loss_sum
from crosstask.models.modes import evaluating, without_graph
from crosstask.models.multitask import Model

PREDICTION_BATCH = 64
CARD_BATCH = 256
"""The same on a GPU, which a small batch leaves idle."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model says of some examples, before that becomes probabilities and decisions.

    - `logits`: of each example, in order, [labels]; for tagging of its words, [words, labels], NaN for a word beyond
      the maximum length;
    - `labels`: as `TaskSpec.encode` has them, where they are known.
    """

    spec: TaskSpec
    logits: Sequence[np.ndarray]
    labels: EncodedLabels | None = None

    def predictions(self, rule: DecisionRule | None = None) -> Predictions:
        """Probabilities and decisions, as the model's rule for this task has them."""
        return _predictions(self.spec, self.logits, self.labels, rule)

    def held_out(self) -> HeldOutLogits | None:
        """Logits and labels of all units, to fit a rule to; None where there is nothing that could be calibrated."""
        spec = self.spec
        if spec.kind not in CALIBRATED_KINDS or self.labels is None or not len(self.logits):
            return None
        if spec.kind == "tagging":
            logits = np.concatenate(list(self.logits))  # [words, labels]
            labels = np.concatenate([np.asarray(tags, dtype=np.int64) for tags in self.labels])
            is_read = ~np.isnan(logits).any(1)
            logits, labels = logits[is_read], labels[is_read]
        else:
            logits, labels = np.stack(self.logits), np.asarray(self.labels)
        if not np.isfinite(logits).all():
            return None
        return HeldOutLogits(spec.kind, logits.astype(np.float64), labels)


def evaluate(model: Model, prepared: Prepared, batch_size: int | None = None) -> tuple[Predictions, float]:
    """Predictions next to the true labels, and the mean loss."""
    outputs, loss = labeled_outputs(model, prepared, batch_size)
    return outputs.predictions(model.rules.get(prepared.spec.name)), loss


@without_graph
def labeled_outputs(model: Model, prepared: Prepared, batch_size: int | None = None) -> tuple[Outputs, float]:
    """Logits next to the true labels, and the mean loss."""
    spec, device = prepared.spec, model.device()
    logits: dict[int, np.ndarray] = {}
    total_loss, num_units = 0.0, 0
    if batch_size is None:
        batch_size = CARD_BATCH if device.type == "cuda" else PREDICTION_BATCH
    with evaluating(model):
        for positions in in_batches(prepared.lengths(), batch_size):
            batch = make_batch(model.encoder, {spec.name: prepared}, {spec.name: positions}).to(device)
            output = model(batch.inputs, batch.rows)[spec.name].float()
            loss, count = loss_sum(spec.kind, output, batch.labels[spec.name])
            hand_on()  # while the device is at work
            total_loss += loss.item()
            num_units += int(count)
            logits |= _logits_by_example(output, positions, prepared.rows, spec)
    labels = prepared.labels
    if spec.kind == "regression":
        labels = np.asarray(labels) * spec.scale + spec.mean
    return Outputs(spec, take(logits, range(len(logits))), labels), total_loss / max(num_units, 1)


@without_graph
def predict_scores(
    model: Model,
    task: str,
    inputs: Inputs,
    *,
    batch_size: int = PREDICTION_BATCH,
    progress: Callable[[int], None] = lambda count: None,
) -> Predictions:
    """Predictions for inputs without labels; `progress` is called with the number of inputs that are done."""
    spec = model.specs[task]
    model.eval()
    rows = model.encoder.prepare(inputs, spec.form)
    logits: dict[int, np.ndarray] = {}
    for positions in in_batches(lengths_of(rows), batch_size):
        batch = to_device(model.encoder.collate(gather([(rows, positions)])), model.device())
        output = model(batch, {task: slice(0, len(positions))})[task].float()
        logits |= _logits_by_example(output, positions, rows, spec)
        progress(len(logits))
    return Outputs(spec, take(logits, range(len(logits)))).predictions(model.rules.get(task))


@without_graph
def features_and_labels(model: Model, prepared: Prepared, limit: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Representations of up to `limit` examples (tagging: of words) and their labels, before training."""
    task, device = prepared.spec.name, model.device()
    positions = np.random.default_rng(seed).permutation(len(prepared))[:limit]
    features: list[Tensor] = []
    labels: list[Tensor] = []
    with evaluating(model):
        for start in range(0, len(positions), PREDICTION_BATCH):
            step = {task: positions[start : start + PREDICTION_BATCH]}
            batch = make_batch(model.encoder, {task: prepared}, step).to(device)
            vectors = model.encode(batch.inputs, batch.rows).read_by(prepared.spec.kind)
            batch_labels = hard_labels(prepared.spec.kind, batch.labels[task])
            if prepared.spec.kind == "tagging":
                is_labeled = batch_labels != IGNORED  # [batch, length]
                vectors, batch_labels = vectors[is_labeled], batch_labels[is_labeled]  # [words, width], [words]
            features.append(vectors.float().cpu())
            labels.append(batch_labels.cpu())
    return torch.cat(features)[:limit], torch.cat(labels)[:limit]


def _logits_by_example(
    output: Tensor, positions: np.ndarray, rows: Sequence[PreparedInput], spec: TaskSpec
) -> dict[int, np.ndarray]:
    """Logits of a batch by the position of each example; those of a word beyond the maximum length are nan."""
    logits: dict[int, np.ndarray] = {}
    for i, values in zip(positions.tolist(), output.cpu().numpy(), strict=True):
        logits[i] = values
        if spec.kind == "tagging":
            word_positions = rows[i]["word_positions"]
            words = values[np.maximum(word_positions, 0)]  # [words, labels]
            logits[i] = np.where(word_positions[:, None] >= 0, words, np.nan)
    return logits


def _predictions(
    spec: TaskSpec, logits: Sequence[np.ndarray], labels: EncodedLabels | None, rule: DecisionRule | None
) -> Predictions:
    if spec.kind == "tagging":
        probabilities: list[np.ndarray] = []
        tags: list[np.ndarray] = []
        for words in logits:  # [words, labels]
            calibrated = words if rule is None else rule.calibrated_logits(words)
            probabilities.append(_word_probabilities(calibrated, spec))
            tags.append(probabilities[-1].argmax(-1))
        return Predictions(spec, labels, tags, probabilities)
    stacked = np.stack(logits).astype(np.float64) if len(logits) else np.zeros((0, spec.num_outputs))
    if spec.kind == "regression":
        return Predictions(spec, labels, stacked.reshape(-1) * spec.scale + spec.mean)
    if rule is not None:
        scores = rule.probabilities(stacked)
        return Predictions(spec, labels, scores, decided=rule.decide(scores))
    tensor = torch.from_numpy(stacked)
    if spec.kind == "multilabel":
        return Predictions(spec, labels, tensor.sigmoid().numpy())
    return Predictions(spec, labels, tensor.softmax(-1).numpy())


def _word_probabilities(logits: np.ndarray, spec: TaskSpec) -> np.ndarray:
    """Probabilities of each word's labels; a word that the model never saw gets the most common label for certain."""
    unread = np.isnan(logits).any(-1)
    finite = np.nan_to_num(logits)
    exponents = np.exp(finite - finite.max(-1, keepdims=True))
    probabilities = exponents / exponents.sum(-1, keepdims=True)
    probabilities[unread] = np.eye(len(spec.labels))[spec.common_label]
    return probabilities
