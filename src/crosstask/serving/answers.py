"""From predictions to what a response says of each input."""

from typing import Any

from crosstask.data.metrics import Predictions
from crosstask.runs.predictor import Decision, decisions, probabilities_by_label

Answer = dict[str, Any]


def answers_of(predictions: Predictions) -> list[Answer]:
    """An answer per input, with the probabilities of all labels (`without_probabilities` leaves them out).

    Classification and pairs: `label` and its `probability`; several labels and tags: `labels`; a number: `value`.
    """
    spec = predictions.spec
    decided = decisions(predictions, spec.decisions)
    if spec.kind == "regression":
        return [{"value": value} for value in decided]
    probabilities = probabilities_by_label(predictions, spec.labels)
    answers: list[Answer] = []
    for decision, label_probabilities in zip(decided, probabilities, strict=True):
        answers.append({**_decision(decision, label_probabilities), "probabilities": label_probabilities})
    return answers


def _decision(decision: Decision, probabilities: Any) -> Answer:
    if isinstance(decision, list | tuple):
        return {"labels": list(decision)}
    return {"label": decision, "probability": max(probabilities.values())}


def without_probabilities(answer: Answer) -> Answer:
    """The answer alone."""
    return {key: value for key, value in answer.items() if key != "probabilities"}
