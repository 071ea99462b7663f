"""Which predictions are held back: below a confidence that the user names, or so that few answers are wrong."""

import math
from dataclasses import dataclass

import numpy as np

from crosstask.data.examples import TaskSpec
from crosstask.data.metrics import Predictions
from crosstask.decisions.abstention import Answered
from crosstask.decisions.rule import DecisionRule
from crosstask.errors import CrossTaskError
from crosstask.validation import shown

KINDS = ("classification", "pair")
"""Kinds of task with one decision for each input."""


@dataclass(frozen=True)
class Abstention:
    """How sure a prediction must be.

    - `max_error`: answers are as many as possible of which no more than this fraction is expected to be wrong, by their
      calibrated probabilities, and was wrong on held-out examples;
    - `min_confidence`: answers have at least this probability.

    One of both at most; without any, everything is answered.
    """

    max_error: float | None = None
    min_confidence: float | None = None

    def __post_init__(self) -> None:
        if self.max_error is not None and self.min_confidence is not None:
            raise CrossTaskError("`abstain` and `min_confidence` exclude each other; give one of them.")
        for name, value in {"abstain": self.max_error, "min_confidence": self.min_confidence}.items():
            if value is None:
                continue
            is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not is_number or not 0.0 < value < 1.0:
                raise CrossTaskError(f"`{name}` must be a number between 0 and 1, such as 0.05; found {shown(value)}.")

    @property
    def is_wanted(self) -> bool:
        """Whether anything may be held back."""
        return self.max_error is not None or self.min_confidence is not None

    def rule(self, spec: TaskSpec, decision_rule: DecisionRule | None) -> Answered:
        """The threshold of confidence, and what it gave on held-out examples, as far as the model keeps some."""
        if spec.kind not in KINDS:
            raise CrossTaskError(
                f"Task '{spec.name}' is {spec.kind}; predictions are held back where each input has one class. "
                "Probabilities (--probabilities) tell how sure the others are."
            )
        held_out = None if decision_rule is None else decision_rule.held_out
        if self.min_confidence is not None:
            if held_out is None:
                return Answered(self.min_confidence, math.nan, math.nan, math.nan)
            return held_out.at(self.min_confidence)
        assert self.max_error is not None
        if held_out is None:
            raise CrossTaskError(
                f"Task '{spec.name}': the model keeps no predictions on held-out examples, which tell how often it is "
                "wrong: it was trained without a dev set, or by an older version. Use `min_confidence` "
                "(--min-confidence) instead."
            )
        return held_out.for_error(self.max_error)


def are_answered(predictions: Predictions, threshold: float) -> np.ndarray:
    """Which decisions are sure enough, [examples]."""
    decided = np.asarray(predictions.predicted, dtype=np.int64)
    confidences = np.take_along_axis(np.asarray(predictions.scores), decided[:, None], 1)[:, 0]
    return confidences >= threshold - 1e-6  # held-out probabilities are kept with six digits


def in_words(answered: Answered, num_held_back: int, num_inputs: int) -> str:
    """What was held back, and what that rule gave on held-out examples."""
    if math.isinf(answered.threshold):
        return (
            f"All {num_inputs:,} predictions are held back: on held-out examples no confidence was high enough for so "
            "few mistakes."
        )
    text = f"{num_held_back:,} of {num_inputs:,} predictions are held back: their probability is below "
    text += f"{answered.threshold:.3f}."
    if not math.isnan(answered.fraction):
        text += f" On held-out examples this leaves {answered.fraction:.0%} answered"
        if not math.isnan(answered.error):
            text += f", {answered.error:.1%} of these wrong ({answered.expected_error:.1%} by their probabilities)"
        text += "."
    return text
