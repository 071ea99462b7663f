"""A regressor as scikit-learn has them, whose `fit` takes sources."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from crosstask.estimators.base import CrossTaskEstimator, InputError


class CrossTaskRegressor(RegressorMixin, CrossTaskEstimator):
    """A regressor with few labels of its own, which learns from sources with other labels beside them.

    Parameters and sources are those of `CrossTaskClassifier`; y holds a number for each example. A source may have
    classes. `score` is R squared.

    After `fit`: `run_` with scores, weights and history, and for vectors `n_features_in_`.

    >>> rng = np.random.default_rng(0)
    >>> X, X_related = rng.normal(size=(30, 4)), rng.normal(size=(200, 4))
    >>> model = CrossTaskRegressor().fit(X, 100 + X[:, 0], sources={"signs": (X_related, X_related[:, 0] > 0)})
    >>> model.score(X, 100 + X[:, 0]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, sources: Any = None) -> Self:
        """Train on X and y, with the help of sources.

        Args:
            X: vectors [examples, features], or texts, or pairs of texts.
            y: a number for each.
            sources: as for `CrossTaskClassifier.fit`.
        """
        inputs = self._checked_inputs(X)
        if y is None:
            raise InputError("This estimator requires y to be passed, but the target y is None.")
        labels = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(inputs, labels)
        if len(labels) == 1:
            raise InputError("X and y hold one sample; a regressor needs at least two.")
        return self._fit(inputs, labels, sources, kind="regression")

    def predict(self, X: Any) -> np.ndarray:
        """A number for each example."""
        return np.asarray(self._predictions(X).scores)
