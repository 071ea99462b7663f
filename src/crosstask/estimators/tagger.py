"""A tagger of words as scikit-learn would have it, whose `fit` takes sources."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from crosstask.data.examples import Examples
from crosstask.estimators.base import TARGET, CrossTaskEstimator, InputError, refusals


class CrossTaskTagger(CrossTaskEstimator):
    """A tagger of words with few sentences of its own, which learns from sources with other tags beside them.

    X is a list of sentences, each a list of words; y has a list of as many tags for each. Parameters and sources are
    those of `CrossTaskClassifier`. `score` is F1 of spans for tags such as B-PER, and else the fraction of words that
    are right.

    After `fit`: `classes_`, the tags, and `run_` with scores, weights and history.

    >>> X, y = [["a", "shoe"], ["so", "good"], ["the", "book"]], [["O", "THING"], ["O", "O"], ["O", "THING"]]
    >>> tagger = CrossTaskTagger({"name": "lstm", "dimension": 8, "hidden": 8}, updates=30, learning_rate=0.02)
    >>> tagger.fit(X, y).predict([["the", "shoe"]])
    [['O', 'THING']]
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sources: Any = None) -> Self:
        """Train on X and y, with the help of sources.

        Args:
            X: sentences as lists of words.
            y: a list of tags for each, one for each word.
            sources: tasks that may help, as a mapping from names to pairs (X, y) or to `Task`s: sentences with tags of
                another kind, or texts with classes.
        """
        sentences, tags = _as_lists("X", X), _as_lists("y", y)
        check_consistent_length(sentences, tags)
        self._fit(sentences, tags, sources, kind="tagging")
        self.classes_ = np.array(self.run_.spec(TARGET).decisions)
        return self

    def predict(self, X: Any) -> list[list[Any]]:
        """A list of tags for each sentence."""
        indices = self._predictions(_as_lists("X", X)).predicted
        return [self.classes_[sentence].tolist() for sentence in indices]

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """Probabilities for each sentence, [words, tags], in the order of `classes_`."""
        return list(self._predictions(_as_lists("X", X)).probabilities or [])

    def score(self, X: Any, y: Any) -> float:
        """The task's metric on labeled sentences."""
        sentences, tags = _as_lists("X", X), _as_lists("y", y)
        check_consistent_length(sentences, tags)
        check_is_fitted(self, "run_")
        with refusals():
            scores = self.run_.score(Examples(sentences, tags), TARGET)
        return next(iter(scores.values()))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        return tags


def _as_lists(name: str, sentences: Any) -> list[list[Any]]:
    """Sentences, or their tags, as lists of lists, whatever container holds them."""
    if hasattr(sentences, "tolist"):  # an array, or a series
        sentences = sentences.tolist()
    if not isinstance(sentences, Sequence) or isinstance(sentences, str):
        raise InputError(f"{name} must be a list with a list for each sentence; found {type(sentences).__name__}.")
    return [sentence.tolist() if isinstance(sentence, np.ndarray) else sentence for sentence in sentences]
