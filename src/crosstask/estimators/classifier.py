"""A classifier as scikit-learn has them, whose `fit` takes sources."""

from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags, check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from crosstask.data.examples import Kind
from crosstask.estimators.base import CrossTaskEstimator, InputError
from crosstask.quoting import shown


class CrossTaskClassifier(ClassifierMixin, CrossTaskEstimator):
    """A classifier with few labels of its own, which learns from sources with other labels beside them.

    It goes wherever an estimator of scikit-learn goes: `cross_val_score`, `GridSearchCV`, `Pipeline`, `clone`,
    `pickle`. X holds vectors, texts, or pairs of texts; y a class for each, or a matrix of zeros and ones with a column
    per label.

    Args:
        encoder: as for `Learner`. When left out, one layer of 100 units over vectors; of texts, features of MiniLM,
            which are computed once, under a layer of 128 units.
        paradigm: as for `Learner`: normalized-joint when left out, or single where there is no source.
        weighting: how much each task counts, as an object, a name, or a mapping.
        transfer: what else passes between tasks, likewise.
        updates: number of updates. Without it and `epochs`, 200, or as many as four passes over the largest task take.
        epochs: passes over the data, instead of `updates`.
        batch_size: examples of one task in one step.
        learning_rate: of the model; 0.005 with the encoder that is taken when none is named.
        training: further settings of the loop, as a recipe's section `training` has them.
        dev: fraction of X that is held back to choose the best epoch; with False everything trains.
        random_state: seed of the start, the order and dropout.
        verbose: show a bar.

    After `fit`: `classes_`, `run_` with scores, weights and history, and for vectors `n_features_in_`.

    >>> rng = np.random.default_rng(0)
    >>> X, X_related = rng.normal(size=(20, 4)), rng.normal(size=(200, 4))
    >>> y, y_related = X[:, 0] > 0, np.where(X_related[:, 0] > 0.5, "high", "low")
    >>> model = CrossTaskClassifier(weighting="tawt").fit(X, y, sources={"related": (X_related, y_related)})
    >>> model.classes_.tolist(), sorted(model.run_.weights), model.predict(X[:2]).tolist() == y[:2].tolist()
    ([False, True], ['related', 'target'], True)
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sources: Any = None) -> Self:
        """Train on X and y, with the help of sources.

        Args:
            X: vectors [examples, features], or texts, or pairs of texts.
            y: a class for each, or a matrix of zeros and ones.
            sources: tasks that may help, as a mapping from names to pairs (X, y) or to `Task`s. What kind of task it is
                is inferred from y, as by `Task.from_arrays`: its labels are its own.
        """
        inputs = self._checked_inputs(X)
        labels = _checked_labels(y)
        check_consistent_length(inputs, labels)
        if labels.ndim == 2:
            self.classes_ = np.arange(labels.shape[1])
            self._label_type = labels.dtype
            return self._fit(inputs, labels, sources, kind="multilabel", label_names=self.classes_.tolist())
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y has only one class, {shown(self.classes_[0])}; a classifier needs at least two.")
        names = _names(self.classes_)
        kind: Kind = "pair" if isinstance(inputs[0], tuple) else "classification"
        return self._fit(inputs, [names[index] for index in indices], sources, kind=kind, label_names=names)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each example, or a row of zeros and ones."""
        predicted = np.asarray(self._predictions(X).predicted)
        if self._is_multilabel:
            return predicted.astype(self._label_type)
        return self.classes_[predicted]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, [examples, classes], in the order of `classes_`."""
        return np.asarray(self._predictions(X).scores)

    @property
    def _is_multilabel(self) -> bool:
        return self.run_.spec().kind == "multilabel"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _checked_labels(labels: Any) -> np.ndarray:
    """Classes, [examples], or zeros and ones, [examples, labels]."""
    if labels is None:
        raise InputError("This estimator requires y to be passed, but the target y is None.")
    if issparse(labels):
        labels = labels.toarray()
    array = check_array(labels, ensure_2d=False, dtype=None, input_name="y")
    if array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    check_classification_targets(array)
    if array.ndim == 2 and type_of_target(array) != "multilabel-indicator":
        raise InputError("y has several columns, which must hold zeros and ones; fit an estimator for each column.")
    return array


def _names(classes: np.ndarray) -> list[Any]:
    """Classes as values of Python; a float that is a whole number is written without a point."""
    names: list[Any] = []
    for value in classes.tolist():
        names.append(int(value) if isinstance(value, float) else value)
    return names
