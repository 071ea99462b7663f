"""Scores from linear heads on frozen features that never saw what they are judged on: label noise, gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crosstask.errors import CrossTaskError
from crosstask.probing.linear_models import NUM_FOLDS, LinearModel, Units, fit, fold_numbers
from crosstask.transferability.validation import check_same_length, feature_matrix, several_classes


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A head, and the positions of the units that it was not fitted on."""

    head: LinearModel
    positions: np.ndarray


def cross_fit(
    units: Units, *, strength: float | None = None, num_folds: int = NUM_FOLDS, seed: int = 0
) -> list[HeldOut]:
    """Heads fitted on all folds but one, each with the fold that it has not seen; `linear_models.fit` is the solver.

    Both scores below need them, and they are what costs: fit once, use twice.

    Args:
        strength: C of the heads, by default `1 / width`, the middle of `strengths_for`.
        num_folds: two are the cheapest and leave half of the data to each head; five at most.
        seed: of the folds.
    """
    if not 2 <= num_folds <= NUM_FOLDS:
        raise CrossTaskError(f"Expected from 2 to {NUM_FOLDS} folds, found {num_folds}.")
    check_same_length(feature_matrix(units.features), units.labels, "features and labels")
    if units.is_constant:
        raise CrossTaskError(
            f"Expected labels that differ between examples, found the same for all {len(units)}: there is nothing to "
            "learn. Use more examples, or leave this task out."
        )
    if len(np.unique(units.examples)) < 2:
        raise CrossTaskError("Expected at least 2 examples, so that one can be held out, found 1. Use more examples.")
    strength = 1.0 / units.features.shape[1] if strength is None else strength
    folds = fold_numbers(units, np.random.default_rng(seed)) % num_folds
    return [
        HeldOut(fit(units.take(folds != fold), [strength], tolerance=1e-4)[0], np.flatnonzero(folds == fold))
        for fold in range(int(folds.max()) + 1)
    ]


def held_out_predictions(units: Units, heads: Sequence[HeldOut]) -> np.ndarray:
    """Probabilities, for regression values, of each unit by the head that has not seen it; [units, outputs]."""
    logits = np.empty((len(units), units.num_outputs))
    for held in heads:
        logits[held.positions] = held.head(units.features[held.positions])
    if units.kind == "regression":
        return logits
    if units.kind == "multilabel":
        return np.exp(-np.logaddexp(0.0, -logits))
    return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def label_noise(units: Units, heads: Sequence[HeldOut] | None = None) -> float:
    """An estimate of the share of wrong labels, from 0 to 1; lower is better. A heuristic: read it as a warning.

    For classes, `confident_disagreement` of held-out predictions. For multilabel the mean over labels that occur and
    are absent, with two classes each. For regression there is no right and wrong, and it is the share of the variance
    that held-out predictions leave, at most 1: noise and whatever a linear head cannot know.

    What a linear head on these features cannot tell at all looks like noise too: unrelated features make clean labels
    look random. It compares sources on the same encoder, and a high value says "noisy, or beyond these features".

    Args:
        units: features and labels of the source.
        heads: of `cross_fit`; fitted here where none are given.
    """
    predictions = held_out_predictions(units, cross_fit(units) if heads is None else heads)
    if units.kind == "regression":
        errors = ((predictions[:, 0] - units.labels) ** 2).sum()
        return float(min(1.0, errors / ((units.labels - units.labels.mean()) ** 2).sum()))
    if units.kind == "multilabel":
        labels = units.labels > 0
        columns = np.flatnonzero(labels.any(axis=0) & ~labels.all(axis=0))
        return float(
            np.mean(
                [
                    confident_disagreement(np.stack([1 - predictions[:, j], predictions[:, j]], 1), labels[:, j])
                    for j in columns
                ]
            )
        )
    return confident_disagreement(predictions, units.labels)


def confident_disagreement(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The share of labels that held-out predictions contradict with confidence (Northcutt et al. 2021), from 0 to 1.

        t_j = mean of p_ij over examples with label j;   example i speaks for the j with the highest p_ij >= t_j, if any
        noise = sum_j P(j) (share of those examples with label j that speak, but for another class)

    - `p_ij`: `probabilities[i, j]`, from a model that has not seen example i, [examples, classes];
    - `t_j`: how sure the model usually is of class j where that is the label; `P(j)`: the share of label j.

    Plain disagreement counts every example that is hard; here one that the model is unsure of does not speak at all.

    Differs from the paper (`papers.CONFIDENT_LEARNING`): we take the sum of the off-diagonal of its joint only. A label
    with one example has no model that knows it and does not count.

    >>> confident_disagreement([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]], [0, 0, 1, 1])  # the last one
    0.25
    """
    p, given = feature_matrix(probabilities, "probabilities"), np.asarray(labels).astype(np.int64)
    check_same_length(p, given, "probabilities and labels")
    several_classes(given)
    if given.min() < 0 or given.max() >= p.shape[1]:
        raise CrossTaskError(
            f"Expected labels from 0 to {p.shape[1] - 1}, the columns of the probabilities, found {given.min()} to "
            f"{given.max()}. Number them as the model does."
        )
    counts = np.bincount(given, minlength=p.shape[1])
    usual = np.array([p[given == j, j].mean() if counts[j] > 1 else np.inf for j in range(p.shape[1])])
    confident = np.where(p >= usual - 1e-12, p, -1.0)
    speaks, said = confident.max(axis=1) >= 0.0, confident.argmax(axis=1)
    noise = [(said[speaks & (given == j)] != j).mean() * counts[j] for j in np.flatnonzero(np.isfinite(usual))]
    if not noise:
        raise CrossTaskError(
            "Expected at least one label with two examples or more, found none: no label can be checked against "
            "another example of it. Use more examples."
        )
    return float(np.sum(noise) / counts[np.isfinite(usual)].sum())


def shared_gradient(units: Units, heads: Sequence[HeldOut] | None = None) -> np.ndarray:
    """The gradient of a task's held-out loss by a linear map that all tasks share, at the identity; [width, width].

    Between frozen features and heads stands a map M, `logits = (x M) W' + b`. At M = identity

        G = E[ x (p - y)' ] W

    - `x`, `y`: features and labels of a unit, y as a row of zeros and ones;
    - `p`: the probabilities that the head gives; `W`: its weights, [outputs, width].

    `(p - y)` is the derivative of the loss by the logits, as in training: divided by the number of labels for
    multilabel, `2 (prediction - y)` for regression. No pass through an encoder is needed.

    The mean is over units that the head was not fitted on (`cross_fit`), for this reason: on the units of the fit, with
    its penalty, `E[ x (p - y)' ]` is minus a multiple of W' (standardised features), so that G is a multiple of
    `-W' W` whatever the head has learned, signal or chance, and two tasks never conflict. On new units a direction that
    holds keeps that sign, more of it helps; one that the head had by chance turns it, less of it helps. What a whole
    sample holds by chance no fold can tell, so conflicts show less than there are.
    """
    heads = cross_fit(units) if heads is None else heads
    predictions = held_out_predictions(units, heads)
    if units.kind == "regression":
        slopes = 2.0 * (predictions - units.labels[:, None])
    elif units.kind == "multilabel":
        slopes = (predictions - units.labels) / units.num_outputs
    else:
        slopes = predictions - np.eye(units.num_outputs)[units.labels]
    width = units.features.shape[1]
    total = np.zeros((width, width))
    for held in heads:
        total += units.features[held.positions].T @ slopes[held.positions] @ held.head.weights
    return total / len(units)


def gradient_cosine(first: ArrayLike, second: ArrayLike) -> float:
    """The cosine of two tasks' gradients, from -1 to 1: `<G_1, G_2> / (|G_1| |G_2|)`; higher is better.

    Above 0, a step on a shared map that helps one task helps the other too; below 0 it hurts; a gradient of zeros has 0
    with everything. With `shared_gradient` it is a look at the start of joint training, where heads are fitted and
    features still those of the encoder; values near 0, nothing shared, are far more usual there than conflicts. Labels
    turned round are no conflict, since each task has its own head. Its size falls with the number of features and grows
    with that of examples: compare sources of one target, not targets.

    >>> gradient_cosine([[1.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 4.0]])
    0.6
    """
    one, two = feature_matrix(first, "gradients"), feature_matrix(second, "gradients")
    if one.shape != two.shape:
        raise CrossTaskError(
            f"Expected gradients by the same shared map, found the shapes {one.shape} and {two.shape}. Take the "
            "features of both tasks from the same place of the same encoder."
        )
    size = np.linalg.norm(one) * np.linalg.norm(two)
    return float((one * two).sum() / size) if size > 0.0 else 0.0
