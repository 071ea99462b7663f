"""What a score has to be held against: answering what is most common in training, whatever the input is."""

import numpy as np

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.metrics import Predictions, score


def majority_scores(spec: TaskSpec, train: Examples, measured: Examples) -> dict[str, float]:
    """Every metric of always answering alike: the most common label or tag, the labels of at least half of the examples
    (multilabel), or the mean (regression).

    >>> spec = TaskSpec("mood", "classification", "text", ("+", "-"))
    >>> train, test = Examples(["a"] * 3, ["+", "+", "-"]), Examples(["b"] * 4, ["+", "-", "+", "+"])
    >>> majority_scores(spec, train, test)["accuracy"]
    0.75
    """
    return score(_same_for_all(spec, train, measured))


def _same_for_all(spec: TaskSpec, train: Examples, measured: Examples) -> Predictions:
    """The same prediction for every example."""
    if spec.kind == "regression":
        labels = np.asarray(measured.labels, dtype=np.float64)
        return Predictions(spec, labels, np.full(len(labels), np.mean(np.asarray(train.labels, dtype=np.float64))))
    train_labels, gold = spec.encode(train), spec.encode(measured)
    if spec.kind == "tagging":
        counts = np.bincount(np.concatenate([np.asarray(tags, dtype=np.int64) for tags in train_labels]))
        tags = [np.full(len(sentence), counts.argmax()) for sentence in gold]
        return Predictions(spec, gold, tags)
    if spec.kind == "multilabel":
        frequencies = np.asarray(train_labels).mean(axis=0)  # [labels]
    else:
        frequencies = np.bincount(np.asarray(train_labels), minlength=len(spec.labels)) / len(train)
    return Predictions(spec, gold, np.tile(frequencies, (len(measured), 1)))
