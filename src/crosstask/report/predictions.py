"""Predictions of a model on an evaluated split, as plain data: scores of labels, confusions, mistakes, corrections."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crosstask.report.files import Label, Prediction, list_of
from crosstask.runs.events import TaskDescription

MAX_LABELS = 20
"""Of a confusion matrix: the labels that take part in the most mistakes."""
MAX_EXAMPLES = 12
MAX_CORRECTIONS = 12
MAX_DOTS = 600
"""Of a scatter plot."""


@dataclass(frozen=True)
class EvaluatedTask:
    """Predictions for one task."""

    task: str
    kind: str  # of the task
    split: str  # what was evaluated
    size: int  # how many examples the split has; there may be fewer predictions
    predictions: tuple[Prediction, ...]

    @property
    def has_labels(self) -> bool:
        """Whether the task has labels, and not numbers."""
        return self.kind != "regression"

    @property
    def unit(self) -> str:
        """What the examples are called."""
        if self.kind == "tagging":
            return "sentences"
        return "examples"

    def decisions(self) -> Iterator[tuple[Label, Label]]:
        """Gold and predicted label of each decision, for tagging word by word."""
        for prediction in self.predictions:
            if self.kind == "tagging":
                yield from zip(list_of(prediction.gold), list_of(prediction.predicted), strict=True)
            else:
                yield prediction.gold, prediction.predicted


@dataclass(frozen=True)
class LabelScore:
    """Scores of one label."""

    label: str
    count: int
    precision: float | None  # None where it was never predicted
    recall: float | None  # None where it was never true
    f1: float


@dataclass(frozen=True)
class Confusion:
    """How often each label was predicted for each label: `counts[gold, predicted]`; `labels` are those to show."""

    labels: tuple[str, ...]
    counts: Counter[tuple[str, str]]
    is_cut: bool


@dataclass(frozen=True)
class Corrections:
    """Two models on the same examples."""

    num_compared: int
    num_corrected: int  # wrong by the first model, right by the second
    num_spoiled: int  # the other way round
    examples: Sequence[tuple[Prediction, Prediction]]  # corrected ones by both models, the surest of the second first
    by_label: Mapping[tuple[str, str], int]  # how often a gold label was corrected, and what was predicted before


def group_predictions(predictions: Iterable[Prediction], tasks: Iterable[TaskDescription]) -> dict[str, EvaluatedTask]:
    """The predictions of a run by task."""
    by_task: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        by_task.setdefault(prediction.task, []).append(prediction)
    evaluated = {}
    for task in tasks:
        rows = by_task.get(task.name)
        if rows:
            split = rows[0].part
            size = (task.sizes or {}).get(split, len(rows))
            evaluated[task.name] = EvaluatedTask(task.name, task.kind, split, size, tuple(rows))
    return evaluated


def label_scores(task: EvaluatedTask) -> list[LabelScore]:
    """Of every label that is true or was predicted, the most common first."""
    gold: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for true, prediction in task.decisions():
        true_labels, predicted_labels = set(list_of(true)), set(list_of(prediction))
        gold.update(true_labels)
        predicted.update(predicted_labels)
        hits.update(true_labels & predicted_labels)
    scores = []
    for label in sorted({*gold, *predicted}, key=lambda label: (-gold[label], label)):
        precision = _ratio(hits[label], predicted[label])
        recall = _ratio(hits[label], gold[label])
        f1 = 2.0 * hits[label] / (gold[label] + predicted[label])
        scores.append(LabelScore(label, gold[label], precision, recall, f1))
    return scores


def confusion(task: EvaluatedTask) -> Confusion | None:
    """Of tasks with one label per decision; None where there is no more than one label."""
    if task.kind not in ("classification", "pair", "tagging"):
        return None
    counts: Counter[tuple[str, str]] = Counter()
    mistakes: Counter[str] = Counter()
    for gold, predicted in task.decisions():
        counts[str(gold), str(predicted)] += 1
        if gold != predicted:
            mistakes.update((str(gold), str(predicted)))
    labels = sorted({label for pair in counts for label in pair}, key=_natural)
    if len(labels) < 2:
        return None
    most_confused = set(sorted(labels, key=lambda label: -mistakes[label])[:MAX_LABELS])
    rows = tuple(label for label in labels if label in most_confused)
    return Confusion(rows, counts, len(rows) < len(labels))


def surest_mistakes(task: EvaluatedTask) -> list[Prediction]:
    """Wrong predictions, those with the highest probability first; numbers by their error."""
    wrong = [prediction for prediction in task.predictions if not prediction.is_right]
    return sorted(wrong, key=lambda prediction: -_sureness(prediction, task.kind))[:MAX_EXAMPLES]


def corrections(alone: EvaluatedTask, helped: EvaluatedTask) -> Corrections | None:
    """What the second model made right and wrong; None unless both were evaluated on the same examples."""
    by_example = {prediction.example: prediction for prediction in alone.predictions}
    num_compared = num_spoiled = 0
    corrected = []
    by_label: Counter[tuple[str, str]] = Counter()
    for new in helped.predictions:
        old = by_example.get(new.example)
        if old is None or old.gold != new.gold:  # other data
            continue
        num_compared += 1
        if new.is_right and not old.is_right:
            corrected.append((old, new))
            if isinstance(old.gold, str):
                by_label[old.gold, str(old.predicted)] += 1
        elif old.is_right and not new.is_right:
            num_spoiled += 1
    if num_compared == 0 or not helped.has_labels:
        return None
    surest = sorted(corrected, key=lambda pair: -_mean_probability(pair[1]))[:MAX_EXAMPLES]
    most_common = dict(by_label.most_common(MAX_CORRECTIONS))
    return Corrections(num_compared, len(corrected), num_spoiled, surest, most_common)


def _sureness(prediction: Prediction, kind: str) -> float:
    """The probability of a wrong prediction; the error of a number; of a sentence that of its surest wrong word."""
    if kind == "regression":
        if isinstance(prediction.gold, float) and isinstance(prediction.predicted, float):
            return abs(prediction.gold - prediction.predicted)
        return math.inf
    if kind != "tagging":
        return _mean_probability(prediction)
    gold, predicted = list_of(prediction.gold), list_of(prediction.predicted)
    probabilities = prediction.probability
    if not isinstance(probabilities, Sequence):
        probabilities = [0.0] * len(gold)
    words = zip(gold, predicted, probabilities, strict=True)
    return max(probability or 0.0 for true, label, probability in words if true != label)


def _mean_probability(prediction: Prediction) -> float:
    """Over the words of a sentence; 0 where it is unknown."""
    if isinstance(prediction.probability, Sequence):
        total = sum(probability or 0.0 for probability in prediction.probability)
        return total / max(1, len(prediction.probability))
    return prediction.probability or 0.0


def _ratio(count: int, total: int) -> float | None:
    if total == 0:
        return None
    return count / total


def _natural(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then names: "2" before "10".

    >>> sorted(["10", "b", "2", "a"], key=_natural)
    ['2', '10', 'a', 'b']
    """
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label


def evenly_spaced(predictions: Sequence[Prediction], max_count: int = MAX_DOTS) -> Sequence[Prediction]:
    """At most so many predictions, at even distances."""
    step = -(-len(predictions) // max_count) or 1
    return predictions[::step]
