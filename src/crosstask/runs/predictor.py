"""A trained model in use: labels and probabilities for new inputs, scores on labelled ones."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.examples import FORM_WORDS, Examples, TaskSpec
from crosstask.data.label_map import LabelMap
from crosstask.data.metrics import Predictions, score
from crosstask.errors import CrossTaskError, unknown
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import evaluate, predict_scores
from crosstask.models.multitask import Model
from crosstask.validation import shown


class Predictor:
    """A model of one or several tasks. With several, `task` says which one is meant; the target by default."""

    def __init__(self, model: Model, targets: Sequence[str] | None = None) -> None:
        self.model = model
        self.targets = tuple(targets or list(model.specs)[:1])

    @property
    def tasks(self) -> dict[str, TaskSpec]:
        """The tasks that there is a head for."""
        return dict(self.model.specs)

    def spec(self, task: str | None = None) -> TaskSpec:
        """Kind and labels of a task."""
        if task is None:
            if len(self.targets) > 1:
                raise CrossTaskError(
                    f"There are several targets ({', '.join(self.targets)}): name one with `task` (--task)."
                )
            task = self.targets[0]
        if task not in self.model.specs:
            raise unknown("task", task, self.model.specs)
        return self.model.specs[task]

    def predictions(
        self,
        inputs: Sequence[Any] | np.ndarray,
        task: str | None = None,
        *,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Predictions:
        """Scores of every label for every input."""
        spec = self.spec(task)
        items = _as_form(inputs, spec)
        if spec.form != "tokens":
            return predict_scores(self.model, spec.name, items, progress=progress)
        # A sentence without words has no tags; encoders need not know of such.
        full = [i for i, words in enumerate(items) if len(words)]
        words = [items[i] for i in full]
        found = predict_scores(self.model, spec.name, words, progress=progress) if full else None
        return _with_empty(spec, found, full, len(items))

    def predict(self, inputs: Sequence[Any] | np.ndarray, task: str | None = None) -> list[Any]:
        """The label of each input: a string, a list of tags, a tuple of labels, or a number."""
        if len(inputs) == 0:
            return []
        return decisions(self.predictions(inputs, task))

    def predict_probabilities(self, inputs: Sequence[Any] | np.ndarray, task: str | None = None) -> list[Any]:
        """The probability of each label by its name; for tagging a list of these, one per word."""
        spec = self.spec(task)
        if spec.kind == "regression":
            raise CrossTaskError(f"Task '{spec.name}' predicts numbers, which have no probabilities.")
        if len(inputs) == 0:
            return []
        found = self.predictions(inputs, task)
        if spec.kind == "tagging":
            return [[by_name(spec, row) for row in rows] for rows in found.probabilities or []]
        return [by_name(spec, row) for row in found.scores]

    def score(self, examples: Examples | None, task: str | None = None) -> dict[str, float]:
        """Metrics on labelled examples, the task's own one first."""
        spec = self.spec(task)
        if examples is None or not len(examples):
            raise CrossTaskError(f"Task '{spec.name}': there are no examples to score (no such split?).")
        if examples.form != spec.form:
            raise CrossTaskError(
                f"Task '{spec.name}' was trained on {FORM_WORDS[spec.form]}; {examples.source} holds "
                f"{FORM_WORDS[examples.form]}."
            )
        labelled = LabelMap(None).apply(spec.name, spec.kind, examples)
        prepared = Prepared.of(self.model.encoder, spec, labelled)
        return score(evaluate(self.model, prepared)[0])

    def export(self, folder: str | Path, task: str | None = None, *, card: Mapping[str, Any] | None = None) -> Path:
        """Write a plain model of one task; see `crosstask.models.export.export`."""
        from crosstask.models.export import export

        return export(self.model, self.spec(task).name, Path(folder), card=card)


def decisions(predictions: Predictions) -> list[Any]:
    """Decisions as people name them."""
    spec = predictions.spec
    if spec.kind == "regression":
        return [float(value) for value in predictions.scores]
    if spec.kind == "tagging":
        return [[spec.labels[int(i)] for i in tags] for tags in predictions.scores]
    if spec.kind == "multilabel":
        return [tuple(np.array(spec.labels)[row.astype(bool)].tolist()) for row in predictions.predicted]
    return [spec.labels[int(i)] for i in predictions.predicted]


def by_name(spec: TaskSpec, row: np.ndarray) -> dict[str, float]:
    """Scores of one example by the labels' names."""
    return {label: float(value) for label, value in zip(spec.labels, row, strict=True)}


def _as_form(inputs: Sequence[Any] | np.ndarray, spec: TaskSpec) -> Sequence[Any] | np.ndarray:
    """Inputs in the form that the task was trained on, or an error that says which form that is."""
    if isinstance(inputs, str):
        raise CrossTaskError("`predict` takes a list of inputs; put the text into a list: [text].")
    if spec.form == "vector":
        return _as_vectors(inputs, spec)
    wanted = {"text": "a text", "pair": "two texts", "tokens": "a list of words"}[spec.form]
    items: list[Any] = []
    for number, item in enumerate(inputs, start=1):
        words = item.split() if spec.form == "tokens" and isinstance(item, str) else item
        parts = [words] if spec.form == "text" else list(words) if isinstance(words, list | tuple) else [None]
        if not all(isinstance(part, str) for part in parts) or (spec.form == "pair" and len(parts) != 2):
            raise CrossTaskError(f"Task '{spec.name}' takes {wanted} per example; example {number} is {shown(item)}.")
        items.append(words if spec.form == "text" else tuple(parts) if spec.form == "pair" else parts)
    return items


def _as_vectors(inputs: Sequence[Any] | np.ndarray, spec: TaskSpec) -> np.ndarray:
    try:
        vectors = np.asarray(inputs, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise CrossTaskError(
            f"Task '{spec.name}' takes vectors, a row of as many numbers for every example; found {shown(inputs)}."
        ) from error
    if vectors.ndim != 2:
        raise CrossTaskError(f"Task '{spec.name}' takes vectors, a row per example; found shape {vectors.shape}.")
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise CrossTaskError(f"Task '{spec.name}' takes finite vectors; example {int(bad.argmax()) + 1} is not.")
    return vectors


def _with_empty(spec: TaskSpec, found: Predictions | None, full: Sequence[int], count: int) -> Predictions:
    """Predictions for all sentences, where only those at the positions `full` had words."""
    tags: list[Any] = [np.zeros(0, dtype=np.int64)] * count
    chances: list[Any] = [np.zeros((0, len(spec.labels)))] * count
    if found is not None and found.probabilities is not None:
        for place, i in enumerate(full):
            tags[i], chances[i] = found.scores[place], found.probabilities[place]
    return Predictions(spec, None, tags, chances)
