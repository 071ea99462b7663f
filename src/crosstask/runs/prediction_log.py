"""Predictions on the examples that a model was measured on, one row each, short enough to write beside every run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.metrics import Predictions
from crosstask.runs.events import Row
from crosstask.runs.predictor import present_labels, tags_of
from crosstask.runs.record import finite

MAX_EXAMPLES = 4000
"""Of one task; of more, this many at even distances."""
MAX_CHARACTERS = 400
MAX_WORDS = 80
"""Of one input. Tags are cut with their words."""

Label = str | float | list[str]


def prediction_rows(split: str, examples: Examples, predictions: Predictions) -> list[Row]:
    """A row per example: task, split (as `part`), its index, input, gold, predicted, and the probability of that.

    Numeric vectors are left out. Tagging has lists, with an entry per word; the probability of a multilabel row is that
    of its least certain decision; regression has none.
    """
    spec = predictions.spec
    num_rows = min(len(predictions), MAX_EXAMPLES)
    # Evenly over the split, which may be sorted by label.
    indices = np.unique(np.linspace(0, len(predictions) - 1, num_rows).round().astype(int))
    gold, predicted = predictions.truth, predictions.predicted
    rows = []
    for index in indices.tolist():
        row: Row = {"task": spec.name, "part": split, "example": index}
        if examples.form != "vector":
            row["input"] = _shortened(examples.inputs[index])
        row["gold"] = _label(spec, gold[index])
        row["predicted"] = _label(spec, predicted[index])
        probability = _probability(predictions, index)
        if probability is not None:
            row["probability"] = probability
        rows.append(finite(row))
    return rows


def measured_examples(rows: Sequence[Row], spec: TaskSpec) -> Examples | None:
    """The inputs and labels of a task among such rows, as far as they are whole; None without any, as for vectors."""
    inputs: list[Any] = []
    labels: list[Any] = []
    for row in rows:
        example: Any = row.get("input")
        gold = row.get("gold")
        if row.get("task") == spec.name and _is_input(example, spec) and _is_label(gold, example, spec):
            inputs.append(tuple(example) if spec.form == "pair" else example)
            labels.append(gold)
    return Examples(inputs, labels) if inputs else None


def _is_input(value: Any, spec: TaskSpec) -> bool:
    if spec.form == "text":
        return isinstance(value, str)
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        return False
    return spec.form != "pair" or len(value) == 2


def _is_label(value: Any, example: Any, spec: TaskSpec) -> bool:
    if spec.kind == "regression":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if spec.kind not in ("tagging", "multilabel"):
        return value in spec.labels
    if not isinstance(value, list) or not all(label in spec.labels for label in value):
        return False
    return spec.kind == "multilabel" or len(value) == len(example)


def _shortened(example: str | tuple[str, ...] | Sequence[str]) -> str | list[str]:
    """A text, two texts or the first words; what is cut off a text is shown by dots."""
    if isinstance(example, str):
        if len(example) <= MAX_CHARACTERS:
            return example
        return example[: MAX_CHARACTERS - 1].rstrip() + "…"
    if isinstance(example, tuple):  # a pair of texts
        return [str(_shortened(text)) for text in example]
    return list(example)[:MAX_WORDS]


def _label(spec: TaskSpec, value: Any) -> Label:
    """The label, number, tags or labels that an encoded label stands for."""
    if spec.kind == "regression":
        return float(f"{float(value):.6g}")
    if spec.kind == "tagging":
        return tags_of(spec.labels, value[:MAX_WORDS])
    if spec.kind == "multilabel":
        return present_labels(spec.labels, value)
    return spec.labels[int(value)]


def _probability(predictions: Predictions, index: int) -> float | list[float] | None:
    """The probability of the decision, or of each tag; None where there is none."""
    kind = predictions.spec.kind
    if kind == "tagging" and predictions.probabilities is not None:
        return [round(float(word.max()), 4) for word in predictions.probabilities[index][:MAX_WORDS]]
    if kind in ("regression", "tagging"):
        return None
    scores = np.asarray(predictions.scores[index])  # [labels]
    if kind == "multilabel":  # each label is a decision between present and absent
        return round(float(np.maximum(scores, 1.0 - scores).min()), 4)
    return round(float(scores.max()), 4)
