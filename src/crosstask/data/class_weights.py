"""How much each class counts in the loss of its task: as much as any other, or as the user says."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.plain_text import text_of
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief
from crosstask.validation import shown

ClassWeights = str | Mapping[object, object]
BALANCED = "balanced"
LARGEST_WEIGHT = 1e6


def with_class_weights(spec: TaskSpec, train: Examples, class_weights: ClassWeights | None) -> TaskSpec:
    """The task with weights of its classes; their mean over the training units is 1, so the task counts what it did.

    With "balanced" class k of K counts `n / (K n_k)`, where n_k of n units have it; each label of a multilabel task is
    a task of two classes.
    """
    if class_weights is None:
        return spec
    if spec.kind == "regression":
        raise CrossTaskError(f"Task '{spec.name}': `class_weights` are for classes, and a regression task has none.")
    factors = _factors(spec, class_weights)
    if spec.kind == "multilabel":
        return replace(spec, class_weights=_of_label_sets(spec, train, factors))
    encoded = spec.encode(train)
    labels = np.concatenate([np.asarray(part) for part in encoded]) if spec.kind == "tagging" else np.asarray(encoded)
    counts = np.bincount(labels.astype(np.int64), minlength=len(spec.labels))
    weights = np.ones(len(spec.labels)) if factors is None else factors
    if factors is None:
        weights[counts > 0] = 1.0 / counts[counts > 0]
    weights = weights * counts.sum() / (weights * counts).sum()
    if factors is None:
        weights[counts == 0] = 1.0  # which no unit of training has
    return replace(spec, class_weights=tuple(weights.tolist()))


def _factors(spec: TaskSpec, class_weights: ClassWeights) -> np.ndarray | None:
    """The weights that the user names, 1 for the others; None for balanced ones."""
    if class_weights == BALANCED:
        return None
    if not isinstance(class_weights, Mapping):
        raise CrossTaskError(
            f"Task '{spec.name}': `class_weights` is 'balanced' or maps labels to weights, as in {{rare: 5}}; found "
            f"{shown(class_weights)}."
        )
    factors = np.ones(len(spec.labels))
    for key, weight in class_weights.items():
        label = text_of(key)
        if label not in spec.labels:
            raise CrossTaskError(
                f"Task '{spec.name}': `class_weights` names '{brief(label)}', which is none of the labels. "
                f"{did_you_mean(label, spec.labels)}"
            )
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not 0.0 < weight <= LARGEST_WEIGHT:  # type: ignore[operator]
            raise CrossTaskError(
                f"Task '{spec.name}': the class weight of '{brief(label)}' is {shown(weight)}; expected a number above "
                f"0 and up to {LARGEST_WEIGHT:,.0f}."
            )
        factors[spec.labels.index(label)] = cast(float, weight)
    return factors


def _of_label_sets(spec: TaskSpec, train: Examples, factors: np.ndarray | None) -> tuple[float, ...]:
    """Weights where a label is absent, one for each label, and then those where it is present."""
    present = np.asarray(spec.encode(train)).sum(0)  # [labels]
    absent = len(train) - present
    weights = np.ones((2, len(spec.labels)))  # absent, present
    for index, (num_absent, num_present) in enumerate(zip(absent, present, strict=True)):
        if factors is not None:
            weights[1, index] = factors[index]
        elif num_absent and num_present:
            weights[:, index] = 1.0 / num_absent, 1.0 / num_present
        total = weights[0, index] * num_absent + weights[1, index] * num_present
        weights[:, index] *= len(train) / total
    assert all(map(math.isfinite, weights.ravel()))
    return tuple(weights.ravel().tolist())
