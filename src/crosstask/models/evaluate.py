"""From a model to scores: batches of like length, probabilities, decisions, and the loss where labels are known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crosstask.data.metrics import Predictions
from crosstask.data.task import TaskSpec
from crosstask.models.batches import Prepared, in_batches, make_batch
from crosstask.models.encoder import PreparedInput
from crosstask.models.losses import IGNORED, loss_sum
from crosstask.models.multitask import Model

PREDICTION_BATCH = 64


@torch.inference_mode()
def evaluate(model: Model, prepared: Prepared, batch_size: int = PREDICTION_BATCH) -> tuple[Predictions, float]:
    """Predictions next to the true labels, and the mean loss."""
    was_training = model.training
    model.eval()
    logits: list[Any] = [None] * len(prepared)
    total, units = 0.0, 0
    task, device = prepared.spec.name, model.device()
    for positions in in_batches(prepared.lengths(), batch_size):
        batch = make_batch(model.encoder, {task: prepared}, {task: positions}).to(device)
        output = model(batch.inputs, batch.rows)[task].float()
        loss, count = loss_sum(prepared.spec.kind, output, batch.labels[task])
        total, units = total + loss.item(), units + int(count)
        _scatter(logits, output, positions, prepared.rows, prepared.spec)
    model.train(was_training)
    gold = prepared.labels
    if prepared.spec.kind == "regression":
        gold = np.asarray(gold) * prepared.spec.scale + prepared.spec.mean
    return _predictions(prepared.spec, logits, gold), total / max(units, 1)


@torch.inference_mode()
def predict_scores(
    model: Model,
    task: str,
    inputs: Sequence[Any] | np.ndarray,
    *,
    batch_size: int = PREDICTION_BATCH,
    progress: Callable[[int], None] = lambda done: None,
) -> Predictions:
    """Predictions for inputs without labels."""
    spec = model.specs[task]
    model.eval()
    rows = model.encoder.prepare(inputs, spec.form)
    unlabelled = Prepared(spec, rows, [])
    logits: list[Any] = [None] * len(rows)
    done = 0
    for positions in in_batches(unlabelled.lengths(), batch_size):
        batch = model.encoder.collate([rows[i] for i in positions])
        on_device = {key: value.to(model.device()) for key, value in batch.items()}
        output = model(on_device, {task: slice(0, len(positions))})[task].float()
        _scatter(logits, output, positions, rows, spec)
        done += len(positions)
        progress(done)
    return _predictions(spec, logits, None)


@torch.inference_mode()
def features_and_labels(model: Model, prepared: Prepared, limit: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Representations of up to `limit` examples (tagging: of words) and their labels, for a look before training."""
    was_training = model.training
    model.eval()
    task, device = prepared.spec.name, model.device()
    chosen = np.random.default_rng(seed).permutation(len(prepared))[:limit]
    features, labels = [], []
    for start in range(0, len(chosen), PREDICTION_BATCH):
        batch = make_batch(model.encoder, {task: prepared}, {task: chosen[start : start + PREDICTION_BATCH]}).to(device)
        vectors, own = model.encode(batch.inputs, batch.rows).read_by(prepared.spec.kind), batch.labels[task]
        if prepared.spec.kind == "tagging":
            counted = own != IGNORED
            vectors, own = vectors[counted], own[counted]
        features.append(vectors.float().cpu())
        labels.append(own.cpu())
    model.train(was_training)
    return torch.cat(features)[:limit], torch.cat(labels)[:limit]


def _scatter(
    logits: list[Any], output: Tensor, positions: np.ndarray, rows: Sequence[PreparedInput], spec: TaskSpec
) -> None:
    """Put a batch's logits where the examples stand; a word beyond the maximum length has none (nan)."""
    values = output.cpu().numpy()
    for place, i in enumerate(positions):
        if spec.kind == "tagging":
            where = rows[i]["word_positions"]
            logits[i] = np.where(where[:, None] >= 0, values[place, np.maximum(where, 0)], np.nan)
        else:
            logits[i] = values[place]


def _predictions(spec: TaskSpec, logits: list[Any], gold: Any) -> Predictions:
    if spec.kind == "tagging":
        probabilities = [_softmax(rows, spec) for rows in logits]
        return Predictions(spec, gold, [rows.argmax(-1) for rows in probabilities], probabilities)
    stacked = torch.from_numpy(np.stack(logits)).double() if logits else torch.zeros(0, spec.num_outputs)
    if spec.kind == "regression":
        return Predictions(spec, gold, stacked.reshape(-1).numpy() * spec.scale + spec.mean)
    scores = stacked.sigmoid() if spec.kind == "multilabel" else stacked.softmax(-1)
    return Predictions(spec, gold, scores.numpy())


def _softmax(logits: np.ndarray, spec: TaskSpec) -> np.ndarray:
    """Probabilities of each word's labels; a word that the model never saw gets the most common label for certain."""
    unseen = np.isnan(logits).any(-1)
    exponents = np.exp(np.nan_to_num(logits) - np.nan_to_num(logits).max(-1, keepdims=True))
    probabilities = exponents / exponents.sum(-1, keepdims=True)
    probabilities[unseen] = np.eye(len(spec.labels))[spec.common_label]
    return probabilities
