"""Scores that decide on a source, from features of an encoder as it is. Each is a pure function.

| score | of | range, good | needs |
|---|---|---|---|
| `gradient_cosine` | `shared_gradient` of both tasks | -1 to 1, high | one encoder |
| `label_cka` | features (or a source's outputs) of the target's inputs, its labels | 0 to 1, high | any labels |
| `cka` | two sets of features of the same inputs | 0 to 1, alike is high | one set of inputs |

Gain and disturbance stand in `verdict`, the similarity of covariances in `crosstask.gradients.covariance`. Scores
without a part in the ranking are in `more_scores`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crosstask.errors import CrossTaskError
from crosstask.probing.linear_models import NUM_FOLDS, LinearModel, Units, fit_subsets, fold_numbers
from crosstask.transferability.validation import check_same_length, feature_matrix, label_matrix


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A linear head, and the positions of the units that it was not fitted on."""

    head: LinearModel
    positions: np.ndarray


def cross_fit(
    units: Units, *, strength: float | None = None, num_folds: int = NUM_FOLDS, seed: int = 0
) -> list[HeldOut]:
    """Heads fitted on all folds but one, each with the fold that it has not seen (`linear_models.fit_subsets`).

    `shared_gradient` and `more_scores.label_noise` need them, and they are what costs: fit once, use twice.

    Args:
        strength: C of the heads, by default `1 / width`, the middle of `penalty_grid`.
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
    if strength is None:
        strength = 1.0 / units.features.shape[1]
    # Fewer folds than there are numbers: some share one.
    folds = fold_numbers(units, np.random.default_rng(seed)) % num_folds
    numbers = range(int(folds.max()) + 1)
    models = fit_subsets(units, [np.flatnonzero(folds != number) for number in numbers], [strength])
    heads = []
    for number, (head,) in zip(numbers, models, strict=True):
        heads.append(HeldOut(head, np.flatnonzero(folds == number)))
    return heads


def held_out_logits(units: Units, heads: Sequence[HeldOut]) -> np.ndarray:
    """Outputs for each unit of the head that has not seen it, [units, outputs]."""
    logits = np.empty((len(units), units.num_outputs))
    for fold in heads:
        logits[fold.positions] = fold.head(units.features[fold.positions])
    return logits


def held_out_predictions(units: Units, heads: Sequence[HeldOut]) -> np.ndarray:
    """Probabilities, for regression values, of each unit by the head that has not seen it; [units, outputs]."""
    logits = held_out_logits(units, heads)
    if units.kind == "regression":
        return logits
    if units.kind == "multilabel":
        return np.exp(-np.logaddexp(0.0, -logits))  # the sigmoid, without overflow
    return softmax(logits)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of exclusive classes, [units, classes]."""
    return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def shared_gradient(units: Units, heads: Sequence[HeldOut] | None = None) -> np.ndarray:
    """The gradient of a task's held-out loss by a linear map that all tasks share, at the identity; [width, width].

    Between frozen features and heads stands a map M, `logits = (x M) W' + b`. At M = identity

        G = E[ x (p - y)' ] W

    - `x`, `y`: features and labels of a unit, y as a row of zeros and ones;
    - `p`: the probabilities that the head gives; `W`: its weights, [outputs, width].

    `(p - y)` is the derivative of the loss by the logits, as in training: divided by the number of labels for
    multilabel, `2 (prediction - y)` for regression. No pass through an encoder is needed.

    The mean is over units that the head was not fitted on (`cross_fit`), for this reason: on the units of the fit, with
    its penalty, `E[ x (p - y)' ]` is minus a multiple of W' (standardized features), so that G is a multiple of
    `-W' W` whatever the head has learned, signal or chance, and two tasks never conflict. On new units a direction that
    holds keeps that sign, more of it helps; one that the head had by chance turns it, less of it helps. What a complete
    sample holds by chance no fold can tell, so conflicts show less than there are.
    """
    if heads is None:
        heads = cross_fit(units)
    predictions = held_out_predictions(units, heads)
    # (p - y), [units, outputs]
    if units.kind == "regression":
        logit_gradients = 2.0 * (predictions - units.labels[:, None])
    elif units.kind == "multilabel":
        logit_gradients = (predictions - units.labels) / units.num_outputs
    else:
        logit_gradients = predictions - np.eye(units.num_outputs)[units.labels]
    width = units.features.shape[1]
    total = np.zeros((width, width))
    for fold in heads:  # each unit counts with the weights of the head that has not seen it
        total += units.features[fold.positions].T @ logit_gradients[fold.positions] @ fold.head.weights
    return total / len(units)


def gradient_cosine(first: ArrayLike, second: ArrayLike) -> float:
    """The cosine of two tasks' gradients, from -1 to 1: `<G_1, G_2> / (|G_1| |G_2|)`; higher is better.

    Above 0, a step on a shared map that helps one task helps the other too; below 0 it hurts; a gradient of zeros has 0
    with everything. With `shared_gradient` it describes the start of joint training, where heads are fitted and
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
    norms = np.linalg.norm(one) * np.linalg.norm(two)  # Frobenius
    if norms == 0.0:
        return 0.0
    return float((one * two).sum() / norms)


def cka(first: ArrayLike, second: ArrayLike) -> float:
    """Linear centered kernel alignment of features of the same inputs (Kornblith et al. 2019; `papers.CKA`).

        CKA = |X' Y|_F^2 / (|X' X|_F |Y' Y|_F)        with X and Y centered by column

    - `X`, `Y`: `first` and `second`, [examples, width] each; widths may differ.

    From 0, nothing in common, to 1, the same up to a rotation and a unit; higher is more alike. For other inputs than
    the same, see `covariance_similarity`. Features without variance have 0 with everything.

    >>> round(cka([[1.0], [2.0], [4.0]], [[2.0], [4.0], [8.0]]), 12)
    1.0
    """
    X, Y = feature_matrix(first), feature_matrix(second)
    check_same_length(X, Y, "features")
    if not (varies(X, X.var(axis=0).max()) and varies(Y, Y.var(axis=0).max())):
        return 0.0
    X, Y = _centered(X), _centered(Y)
    # Products of the width by width, never of the examples by examples.
    return float(((X.T @ Y) ** 2).sum() / (np.linalg.norm(X.T @ X) * np.linalg.norm(Y.T @ Y)))


def label_cka(features: ArrayLike, labels: ArrayLike) -> float:
    """`cka` of features with labels: columns of zeros and ones for classes, values for numbers.

    From 0 to 1, and higher is better: nearness in the features is nearness in the labels. Unlike
    the H-score it asks for labels along the directions in which the features vary most.

    >>> round(label_cka([[0.0], [0.0], [1.0], [1.0]], [0, 0, 1, 1]), 12)
    1.0
    """
    return cka(features, label_matrix(labels))


def varies(features: np.ndarray, variance: float) -> bool:
    """Whether the largest variance is more than what rounding leaves of a constant."""
    return bool(variance > (1e-10 * np.abs(features).max()) ** 2)


def _centered(features: np.ndarray) -> np.ndarray:
    """Centered by column, with a Frobenius norm of 1."""
    centered = features - features.mean(axis=0)
    return centered / np.linalg.norm(centered)
