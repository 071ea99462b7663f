"""Candidates that are better together: what each counts, by what it said of labels that trained none of its models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstask.automl.evaluator import Evaluator
from crosstask.automl.standings import FIRST_FOLDS, Gain
from crosstask.data.metrics import Predictions
from crosstask.ensembles.out_of_fold import OutOfFold
from crosstask.ensembles.weights import cross_fitted, learn_weights, metric_of

MAX_MEMBERS = 4
"""Each has to be fitted on all labels, and to run whenever something is predicted."""
LEAST_WEIGHT = 0.1
"""What counts less changes no answer, and costs as much."""

Outputs = Mapping[int, Sequence[Any]]
"""What a candidate said of the examples that each fold held out."""


@dataclass(frozen=True)
class Members:
    """The candidates of an ensemble.

    - `weights`: what each counts, the largest first;
    - `score`: the metric of the ensemble on labels that trained none of its models nor its weights, higher being
      better; `winner_score`: of the candidate that won alone, on the same labels.
    """

    weights: Mapping[str, float]
    score: float
    winner_score: float


def choose_members(
    evaluator: Evaluator, outputs: Mapping[str, Outputs], gains: Mapping[str, Gain], winner: str
) -> Members | None:
    """Weigh the winner and the candidates after it; None where no other one counts.

    The weights are those of a mixture that makes the held-out labels most likely (`ensembles.weights`).

    Args:
        evaluator: knows which examples a fold holds out.
        outputs: by candidate and fold.
        gains: by candidate.
        winner: has to be among them.
    """
    measured = [name for name in outputs if len(outputs[name]) >= FIRST_FOLDS]
    if winner not in measured:
        return None
    order = sorted(measured, key=lambda name: (name != winner, -gains[name].mean))[:MAX_MEMBERS]
    collected = OutOfFold(evaluator.target.spec, evaluator.target.train)
    folds = set.intersection(*(set(outputs[name]) for name in order))
    fold_of = np.full(len(evaluator.target.train), -1)
    for fold in sorted(folds, reverse=True):  # of repeats the first
        positions = evaluator.folds.held_out(fold)
        fold_of[positions] = fold
        for name in order:
            collected.add(name, positions, outputs[name][fold])
    predictions = collected.predictions(order)
    weights = _counting(learn_weights(predictions))
    if len(weights) < 2:
        return None
    counting = {name: predictions[name] for name in weights}
    mixed = cross_fitted(counting, fold_of[fold_of >= 0])
    return Members(weights, _score(mixed), _score(predictions[winner]))


def _counting(weights: Mapping[str, float]) -> dict[str, float]:
    """Those that count enough, the largest first; their weights add up to one."""
    large = {name: weight for name, weight in weights.items() if weight >= LEAST_WEIGHT}
    total = sum(large.values())
    return {name: large[name] / total for name in sorted(large, key=lambda name: -large[name])}


def _score(predictions: Predictions) -> float:
    return float(metric_of(predictions))
