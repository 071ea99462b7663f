"""What a model said of the examples that it was measured on, one row each, short enough to keep beside every run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crosstask.data.examples import Examples
from crosstask.data.metrics import Predictions
from crosstask.runs.events import Row
from crosstask.runs.record import finite

MOST_EXAMPLES = 4000
"""Of one task; of more, as many at even distances."""
MOST_CHARACTERS = 400
MOST_WORDS = 80
"""Of one input. Tags are cut with their words."""


def measured_rows(part: str, examples: Examples, found: Predictions) -> list[Row]:
    """A row per example: task, part, its number from 0, input, gold, predicted, and how probable that seemed.

    Numeric vectors are left out. Tagging has lists, with an entry per word; the probability of a multilabel row is that
    of its least sure decision; regression has none.
    """
    spec = found.spec
    gold, predicted = found.truth, found.predicted
    places = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_EXAMPLES)).round().astype(int))
    rows = []
    for place in places.tolist():
        row: Row = {"task": spec.name, "part": part, "example": place}
        if examples.form != "vector":
            row["input"] = _short(examples.inputs[place])
        row["gold"] = _named(spec.kind, spec.labels, gold[place])
        row["predicted"] = _named(spec.kind, spec.labels, predicted[place])
        row["probability"] = _probability(found, place)
        rows.append(finite({key: value for key, value in row.items() if value is not None}))
    return rows


def _short(given: Any) -> Any:
    """A text, two texts or the first words; what is cut off a text is shown by dots."""
    if isinstance(given, str):
        return given if len(given) <= MOST_CHARACTERS else given[: MOST_CHARACTERS - 1].rstrip() + "…"
    return [_short(text) for text in given] if isinstance(given, tuple) else list(given)[:MOST_WORDS]


def _named(kind: str, labels: Sequence[str], value: Any) -> Any:
    if kind == "regression":
        return float(f"{float(value):.6g}")
    if kind == "tagging":
        return [labels[int(i)] for i in value[:MOST_WORDS]]
    if kind == "multilabel":
        return [label for label, present in zip(labels, value, strict=True) if present]
    return labels[int(value)]


def _probability(found: Predictions, place: int) -> Any:
    if found.spec.kind == "regression":
        return None
    if found.spec.kind == "tagging":
        if found.probabilities is None:
            return None
        return [round(float(row.max()), 4) for row in found.probabilities[place][:MOST_WORDS]]
    scores = found.scores[place]
    sure = np.maximum(scores, 1.0 - scores).min() if found.spec.kind == "multilabel" else scores.max()
    return round(float(sure), 4)
