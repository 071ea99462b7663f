"""Methods of others: TF-IDF here; the rest in environments of their own, on problems as plain files.

A problem is a JSON file: the target's few labels, the test inputs without theirs, and the budget. An opponent writes a
file of the same name with its predictions, and the bench scores them as it scores its own (`benchmarks/opponents/`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from crosstask.data.metrics import accuracy
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.runs.events import Row
from crosstask.storage import check_shape, write_text
from crosstask_papers.bench.problems import Problem
from crosstask_papers.bench.suites import Suite

OPPONENTS = {
    "setfit": "SetFit itself, with as many updates as all",
    "setfit-own": "SetFit itself, with an epoch of all its pairs",
}
"""Those that are measured elsewhere, and what they are."""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Inverse ones of the logistic regression, for cross-validation on the few labels to choose from."""
NUM_FOLDS = 5


class Predicted(TypedDict):
    """What an opponent writes.

    - `opponent`: its name;
    - `predictions`: a label for each test input;
    - `updates`: of its training; `seconds`: of training and predicting.
    """

    opponent: str
    predictions: list[str]
    updates: int
    seconds: float


def tfidf(target: Task, seed: int) -> dict[str, float]:
    """Accuracy of a logistic regression on TF-IDF of words and pairs of words, its penalty by cross-validation."""
    from sklearn.model_selection import KFold

    assert target.test is not None
    texts, labels = np.array(target.train.inputs, dtype=object), np.array(target.train.labels)
    folds = list(KFold(min(NUM_FOLDS, len(texts)), shuffle=True, random_state=seed).split(texts))
    hits: dict[float, float] = {}
    for penalty in PENALTIES:
        hits[penalty] = 0.0
        for kept, held_out in folds:
            predictions = _predict(texts[kept], labels[kept], texts[held_out], penalty)
            hits[penalty] += (predictions == labels[held_out]).sum()
    best = max(PENALTIES, key=hits.__getitem__)
    predictions = _predict(texts, labels, np.array(target.test.inputs, dtype=object), best)
    return {"accuracy": accuracy(np.array(target.test.labels), predictions)}


def _predict(texts: np.ndarray, labels: np.ndarray, new_texts: np.ndarray, penalty: float) -> np.ndarray:
    """What a model that is fitted to some texts says of others; with a single class there is nothing to fit."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    if len(set(labels)) == 1:
        return np.repeat(labels[:1], len(new_texts))
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\S+")
    model = LogisticRegression(C=penalty, max_iter=1000).fit(words.fit_transform(texts), labels)
    return model.predict(words.transform(new_texts))


def write_problem(problem: Problem, path: Path) -> None:
    """What an opponent may know of a problem: everything but the labels of the test set."""
    assert problem.target.test is not None
    data = {
        "target": problem.target.name,
        "seed": problem.seed,
        "labels": list(problem.target.labels),
        "budget": _budget(problem.suite),
        "train": {"texts": list(problem.target.train.inputs), "labels": list(problem.target.train.labels)},
        "test": {"texts": list(problem.target.test.inputs)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(data, ensure_ascii=False, indent=0) + "\n")


def _budget(suite: Suite) -> Row:
    """What every method that is trained has, and how much of a text the encoder reads; None where it says nothing."""
    max_length = None if isinstance(suite.encoder, str) else suite.encoder.get("max_length")
    return {"updates": suite.updates, "batch_size": suite.batch_size, "max_length": max_length}


def read_predictions(path: Path) -> Predicted:
    """An opponent's file."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CrossTaskError(f"'{path}' holds no predictions in JSON: {error}.") from error
    check_shape(data, Predicted, str(path))
    return data


def score(problem: Problem, predictions: Sequence[str], path: Path) -> dict[str, float | None]:
    """Accuracy of predictions on a problem's test set."""
    assert problem.target.test is not None
    labels = problem.target.test.labels
    if len(predictions) != len(labels):
        raise CrossTaskError(f"'{path}' holds {len(predictions):,} predictions for {len(labels):,} test examples.")
    return {"accuracy": accuracy(np.array(labels), np.array(predictions))}
