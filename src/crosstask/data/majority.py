"""What a score has to be held against: answering what is most common in training, whatever the input is."""

from collections.abc import Sequence

import numpy as np

from crosstask.data.examples import EncodedLabels, Examples, TaskSpec
from crosstask.data.metrics import Predictions, one_hot, score


def majority_scores(spec: TaskSpec, train: Examples, measured: Examples) -> dict[str, float]:
    """Every metric of always answering alike: the most common label or tag, the labels of at least half of the examples
    (multilabel), or the mean (regression).

    >>> spec = TaskSpec("mood", "classification", "text", ("+", "-"))
    >>> train, test = Examples(["a"] * 3, ["+", "+", "-"]), Examples(["b"] * 4, ["+", "-", "+", "+"])
    >>> majority_scores(spec, train, test)["accuracy"]
    0.75
    """
    return score(_same_for_all(spec, train, measured))


def _as_rows(labels: Sequence[int] | EncodedLabels, num_labels: int) -> np.ndarray:
    """Indices as rows of zeros and ones; soft labels, and labels that go together, are rows already."""
    values = np.asarray(labels)
    if values.ndim == 2:
        return values
    return one_hot(values.astype(np.int64), num_labels).astype(np.float64)


def _same_for_all(spec: TaskSpec, train: Examples, measured: Examples) -> Predictions:
    """The same prediction for every example."""
    if spec.kind == "regression":
        labels = np.asarray(measured.labels, dtype=np.float64)
        return Predictions(spec, labels, np.full(len(labels), np.mean(np.asarray(train.labels, dtype=np.float64))))
    train_labels, gold = spec.encode(train), spec.encode(measured)
    if spec.kind == "tagging":
        words = np.concatenate([_as_rows(tags, len(spec.labels)) for tags in train_labels])  # [words, labels]
        tags = [np.full(len(sentence), words.sum(axis=0).argmax()) for sentence in gold]
        return Predictions(spec, gold, tags)
    frequencies = _as_rows(train_labels, len(spec.labels)).mean(axis=0)  # [labels]
    return Predictions(spec, gold, np.tile(frequencies, (len(measured), 1)))
