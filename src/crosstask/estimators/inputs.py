"""X as scikit-learn's users hold it: numeric vectors, texts, pairs of texts, or lists of words."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data


def are_texts(inputs: Any) -> bool:
    """Whether X holds texts, in whatever container, and no numbers.

    >>> are_texts(["so good", "so bad"]), are_texts(np.array([["a", "b"]])), are_texts([[1.0, 2.0]])
    (True, True, False)
    """
    if isinstance(inputs, str | bytes):  # one text, which is no list of texts; named by the error that follows
        return True
    if hasattr(inputs, "iloc"):  # a series or a data frame
        inputs = inputs.to_numpy()
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiubc":
        return False
    if not isinstance(inputs, np.ndarray | list | tuple) or len(inputs) == 0:
        return False
    first = inputs[0]
    if isinstance(first, np.ndarray | list | tuple):
        # More than two texts in a row of an array are features that still have to be turned into numbers.
        is_row = isinstance(inputs, np.ndarray) and inputs.ndim == 2
        return len(first) > 0 and isinstance(first[0], str) and not (is_row and len(first) > 2)
    return isinstance(first, str)


def as_texts(inputs: Any) -> list[Any]:
    """Texts, pairs or lists of words in a list; a column of texts is taken as texts, two columns as pairs.

    >>> as_texts(np.array([["so good"], ["so bad"]])), as_texts(np.array([["a", "b"]], dtype=object))
    (['so good', 'so bad'], [('a', 'b')])
    """
    if hasattr(inputs, "iloc"):
        inputs = inputs.to_numpy(dtype=object)
    if not isinstance(inputs, np.ndarray):
        return list(inputs)
    if inputs.ndim == 2 and inputs.shape[1] == 1:
        inputs = inputs[:, 0]
    if inputs.ndim == 2 and inputs.shape[1] == 2:
        return [tuple(row) for row in inputs.tolist()]
    texts: list[Any] = inputs.tolist()
    return texts


def as_vectors(estimator: BaseEstimator, inputs: Any, *, is_first: bool) -> np.ndarray:
    """Vectors as an array, checked as scikit-learn checks them: finite, two-dimensional, the features of `fit`.

    Args:
        estimator: takes note of the number and names of features, or compares them.
        inputs: X.
        is_first: whether these are the training examples, which say what features there are.
    """
    vectors: np.ndarray = validate_data(estimator, inputs, reset=is_first, dtype=np.float32)
    return vectors
