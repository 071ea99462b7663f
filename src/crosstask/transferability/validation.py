"""Arrays that scores can trust: finite, with a row per example; or an error that says what was found."""

import numpy as np
from numpy.typing import ArrayLike

from crosstask.errors import CrossTaskError


def feature_matrix(values: ArrayLike, what: str = "features") -> np.ndarray:
    """A matrix in float64 with a row per example, [examples, width]."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise CrossTaskError(f"Expected {what} as a matrix with a row per example, found the shape {matrix.shape}.")
    is_finite = np.isfinite(matrix).all(axis=1)
    if not is_finite.all():
        raise CrossTaskError(
            f"Expected {what} that are finite, found {int((~is_finite).sum())} of {len(matrix)} rows with NaN or "
            "infinity. Look for extreme values in the inputs, or leave those examples out."
        )
    return matrix


def check_same_length(first: np.ndarray, second: np.ndarray, what: str) -> None:
    """Both must have a row for each of the same examples."""
    if len(first) != len(second):
        raise CrossTaskError(f"Expected {what} of the same examples, found {len(first)} and {len(second)} rows.")


def class_indices(labels: ArrayLike, what: str = "labels") -> np.ndarray:
    """Classes as indices from 0, without gaps, [examples]; which class has which index plays no part."""
    values = np.asarray(labels)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "biu":
        raise CrossTaskError(
            f"Expected {what} as one whole number per example, found the type {values.dtype} and the shape "
            f"{values.shape}. This score is for tasks with classes."
        )
    return np.unique(values, return_inverse=True)[1]


def several_classes(labels: ArrayLike) -> np.ndarray:
    """Classes as `class_indices` gives them, at least two of them."""
    classes = class_indices(labels)
    if not classes.any():
        raise CrossTaskError(
            f"Expected labels of at least two classes, found one class for all {len(classes)} examples: there is "
            "nothing to tell apart. Use more examples, or leave this task out."
        )
    return classes


def label_matrix(labels: ArrayLike) -> np.ndarray:
    """Labels as columns of numbers, [examples, columns], by what they are.

    Whole numbers are classes and get a column of zeros and ones for each class that occurs. Other numbers are values to
    predict, one column. A matrix stays as it is, but for columns without variation: those have nothing to tell.
    """
    values = np.asarray(labels)
    if values.ndim == 1 and values.dtype.kind in "biu":
        classes = several_classes(values)
        return np.eye(int(classes.max()) + 1)[classes]
    if values.ndim == 1:
        values = values[:, None]
    matrix = feature_matrix(values, "labels")
    matrix = matrix[:, matrix.min(axis=0) < matrix.max(axis=0)]
    if not matrix.shape[1]:
        raise CrossTaskError(
            f"Expected labels that differ between examples, found the same for all {len(matrix)}. Use more examples, "
            "or leave this task out."
        )
    return matrix
