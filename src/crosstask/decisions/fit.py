"""Decision rules from held-out logits and labels: what is calibrated how, and which decisions a metric wants."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from crosstask.data.examples import Kind
from crosstask.data.subsets import deal
from crosstask.decisions.abstention import HeldOutDecisions
from crosstask.decisions.calibration import (
    apply_isotonic,
    expected_calibration_error,
    fit_isotonic,
    fit_temperature,
    log_probabilities,
    negative_log_likelihood,
)
from crosstask.decisions.rule import DecisionRule
from crosstask.decisions.thresholds import choose_offsets, choose_thresholds
from crosstask.errors import CrossTaskError, unknown

Calibration = Literal["auto", "temperature", "isotonic", "none"]
CALIBRATED_KINDS: tuple[Kind, ...] = ("classification", "pair", "tagging", "multilabel")
MIN_UNITS = 10
"""Held-out units that a temperature needs at least."""
MIN_ISOTONIC_UNITS = 1_000
"""Fewer are not enough for isotonic regression (Niculescu-Mizil and Caruana 2005)."""
NUM_FOLDS = 5
STEADY = 2.0
"""Standard errors by which isotonic regression must be better than a temperature to be chosen."""
METRICS_OF_RARE_LABELS = ("macro_f1",)
"""Metrics for which the most probable decision is not the best one."""


@dataclass(frozen=True)
class HeldOutLogits:
    """What a model says of units that did not train it, and what is true.

    - `logits`: [units, labels]; a unit is an example or, for tagging, a word;
    - `labels`: classes [units], or rows of zeros and ones [units, labels];
    - `missing`: how probable classes are of which these units tell nothing, [classes], as `missing_classes` says.
    """

    kind: Kind
    logits: np.ndarray
    labels: np.ndarray
    missing: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def problem(self) -> str | None:
        """Why nothing can be learned from these units about probabilities, if nothing can."""
        if len(self) < MIN_UNITS:
            return f"{len(self)} held-out examples are too few"
        if self.labels.ndim == 1 and (self.labels == self.labels[0]).all():
            return "all held-out examples have the same label"
        return None


def fit_rule(
    held_out: HeldOutLogits,
    *,
    calibration: Calibration = "auto",
    metric: str | None = None,
    class_weights: Sequence[float] | np.ndarray | None = None,
) -> DecisionRule:
    """The rule that fits held-out logits.

    Args:
        held_out: of a dev set, or of the held-out parts of a cross-validation.
        calibration: "temperature", "isotonic", "none", or "auto": a temperature, or isotonic regression where there are
            1,000 units and more and it is better on parts that did not fit it.
        metric: that decisions are made for; macro F1 gets thresholds or offsets.
        class_weights: those of training, [classes], or of absent and present labels, [2, labels]. Their effect on
            probabilities is taken back where that fits better, and decisions stay those that were trained.
    """
    if calibration not in get_args(Calibration):
        raise unknown("calibration", calibration, get_args(Calibration))
    if held_out.kind not in CALIBRATED_KINDS:
        raise CrossTaskError(f"A task of the kind {held_out.kind} has no probabilities to calibrate.")
    rule = DecisionRule(held_out.kind)
    if calibration != "none" and held_out.problem is None:
        rule = _calibrated(held_out, calibration, class_weights)
    if metric in METRICS_OF_RARE_LABELS and held_out.problem is None:
        rule = _for_rare_labels(held_out, rule)
    return with_held_out(rule, held_out)


def _calibrated(
    held_out: HeldOutLogits, calibration: Calibration, class_weights: Sequence[float] | np.ndarray | None
) -> DecisionRule:
    temperature = fit_temperature(held_out.logits, held_out.labels, missing=held_out.missing)
    rule = DecisionRule(held_out.kind, temperature)
    if class_weights is not None:
        shifted = _without_class_weights(held_out, np.log(np.asarray(class_weights, dtype=np.float64)))
        if _loss(shifted, held_out) < _loss(rule, held_out):
            rule = shifted
    if calibration == "isotonic" or (calibration == "auto" and _isotonic_is_better(held_out)):
        probabilities = rule.probabilities(held_out.logits)
        rule = replace(rule, isotonic=fit_isotonic(probabilities, held_out.labels))
    return rule


def _without_class_weights(held_out: HeldOutLogits, log_weights: np.ndarray) -> DecisionRule:
    """The rule that takes the logarithms of class weights out of the logits, whose decisions are as trained.

    A model that counts class k w_k times learns probabilities proportional to w_k p(k | x) (Elkan 2001).
    """
    if held_out.kind == "multilabel":
        shift = log_weights[1] - log_weights[0]
    else:
        shift = log_weights - log_weights.mean()
    temperature = fit_temperature(held_out.logits - shift, held_out.labels, missing=held_out.missing)
    rule = DecisionRule(held_out.kind, temperature, tuple(shift.tolist()))
    as_trained = shift / temperature
    if held_out.kind == "multilabel":
        thresholds = 1.0 / (1.0 + np.exp(as_trained))
        return replace(rule, thresholds=tuple(thresholds.tolist()))
    return replace(rule, offsets=tuple(as_trained.tolist()))


def _loss(rule: DecisionRule, held_out: HeldOutLogits) -> float:
    return negative_log_likelihood(rule.calibrated_logits(held_out.logits), held_out.labels)


def _isotonic_is_better(held_out: HeldOutLogits) -> bool:
    """Whether isotonic regression is steadily better than a temperature on units that fitted neither."""
    if len(held_out) < MIN_ISOTONIC_UNITS or held_out.kind == "tagging":
        return False
    exclusive = held_out.labels.ndim == 1
    strata = held_out.labels.tolist() if exclusive else [0] * len(held_out)
    folds = deal(strata, np.random.default_rng(0), NUM_FOLDS)
    gains = np.zeros(len(held_out))
    for number in range(NUM_FOLDS):
        fitted, judged = folds != number, folds == number
        temperature = fit_temperature(held_out.logits[fitted], held_out.labels[fitted])
        logarithms = log_probabilities(held_out.logits / temperature, exclusive=exclusive)
        functions = fit_isotonic(np.exp(logarithms[fitted]), held_out.labels[fitted])
        corrected = apply_isotonic(functions, np.exp(logarithms[judged]), exclusive=exclusive)
        before = _truth_log_likelihood(np.exp(logarithms[judged]), held_out.labels[judged])
        gains[judged] = _truth_log_likelihood(corrected, held_out.labels[judged]) - before
    return bool(gains.mean() > STEADY * gains.std() / np.sqrt(len(gains)))


def _truth_log_likelihood(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log likelihood of each unit's truth, [units]."""
    tiny = np.finfo(np.float64).tiny
    if labels.ndim == 2:
        of_truth = np.where(labels > 0, probabilities, 1.0 - probabilities)
        return np.log(np.maximum(of_truth, tiny)).sum(1)
    of_truth = np.take_along_axis(probabilities, labels.astype(np.int64)[:, None], 1)[:, 0]
    return np.log(np.maximum(of_truth, tiny))


def _for_rare_labels(held_out: HeldOutLogits, rule: DecisionRule) -> DecisionRule:
    """The rule with the decisions of the highest macro F1."""
    probabilities = rule.probabilities(held_out.logits)
    if held_out.kind == "multilabel":
        return replace(rule, thresholds=choose_thresholds(probabilities, held_out.labels))
    if held_out.kind == "tagging":
        return rule
    with np.errstate(divide="ignore"):
        logarithms = np.log(probabilities)
    return replace(rule, offsets=choose_offsets(logarithms, held_out.labels))


def with_held_out(rule: DecisionRule, held_out: HeldOutLogits) -> DecisionRule:
    """The rule with its decisions between classes, by which abstention is checked."""
    if held_out.kind not in ("classification", "pair") or not len(held_out):
        return rule
    probabilities, is_right = decisions_of(rule, held_out)
    return replace(rule, held_out=HeldOutDecisions.of(probabilities, is_right))


def decisions_of(rule: DecisionRule, held_out: HeldOutLogits) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each decision that a rule makes, and whether it is right; of labels that each one is there."""
    probabilities = rule.probabilities(held_out.logits)
    if held_out.kind == "multilabel":
        return probabilities.ravel(), held_out.labels.ravel() > 0
    decided = rule.decide(probabilities)
    return np.take_along_axis(probabilities, decided[:, None], 1)[:, 0], decided == held_out.labels


def calibration_error(rule: DecisionRule, held_out: HeldOutLogits) -> float:
    """The expected calibration error of a rule's decisions."""
    return expected_calibration_error(*decisions_of(rule, held_out))
