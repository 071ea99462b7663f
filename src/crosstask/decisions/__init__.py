"""Decisions: calibrated probabilities, thresholds for a metric, and what is left to people.

From logits and labels of examples that did not train a model:

>>> import numpy as np
>>> sure = np.log(np.array([[0.99, 0.01], [0.01, 0.99]] * 10))
>>> labels = np.array([0, 1] * 8 + [1, 0] * 2)  # a fifth is wrong
>>> rule = fit_rule(HeldOutLogits("classification", sure, labels))
>>> rule.probabilities(sure[:1]).round(1).tolist()
[[0.8, 0.2]]
>>> rule.decide(rule.probabilities(sure[:2])).tolist()
[0, 1]
"""

from crosstask.decisions.abstention import Answered, HeldOutDecisions
from crosstask.decisions.calibration import (
    expected_calibration_error,
    fit_isotonic,
    fit_temperature,
    negative_log_likelihood,
    reliability,
)
from crosstask.decisions.fit import CALIBRATED_KINDS, Calibration, HeldOutLogits, calibration_error, fit_rule
from crosstask.decisions.rule import DecisionRule, SavedRule
from crosstask.decisions.thresholds import choose_offsets, choose_thresholds, f1_threshold

__all__ = [
    "CALIBRATED_KINDS",
    "Answered",
    "Calibration",
    "DecisionRule",
    "HeldOutDecisions",
    "HeldOutLogits",
    "SavedRule",
    "calibration_error",
    "choose_offsets",
    "choose_thresholds",
    "expected_calibration_error",
    "f1_threshold",
    "fit_isotonic",
    "fit_rule",
    "fit_temperature",
    "negative_log_likelihood",
    "reliability",
]
