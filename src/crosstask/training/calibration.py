"""Decision rules of a trained model's targets: fitted to dev, and shown on test."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.decisions.calibration import Bin, missing_classes, reliability
from crosstask.decisions.fit import (
    CALIBRATED_KINDS,
    HeldOutLogits,
    calibration_error,
    decisions_of,
    fit_rule,
)
from crosstask.decisions.rule import DecisionRule
from crosstask.models.evaluate import Outputs
from crosstask.models.multitask import Model
from crosstask.runs.events import Calibrated, Note
from crosstask.runs.record import Record
from crosstask.training.config import Training

PAGE_BINS = 10
"""Of a reliability diagram: enough to see, few enough that each has some decisions."""
DEV, CROSS_VALIDATION = "dev", "cross-validation"


@dataclass(frozen=True, eq=False)
class RuleFitter:
    """Gives the targets of a model their decision rules, and writes down what these change.

    `held_out` are logits of training examples that did not train, from solvers that cross-validate, by task.
    """

    model: Model
    targets: Sequence[str]
    settings: Training
    record: Record
    held_out: Mapping[str, HeldOutLogits] = field(default_factory=dict)

    def fit(self, task: Task, outputs: Mapping[str, Outputs]) -> None:
        """Fit the rule to dev, or else to what cross-validation held out; test only shows what it does."""
        settings = self.settings
        if task.name not in self.targets or task.kind not in CALIBRATED_KINDS:
            return
        fitted_on, held_out = self._held_out(task, outputs)
        if held_out is None:
            return
        metric = chosen_metric(task.spec).name if settings.thresholds else None
        weights = None
        if task.spec.class_weights:
            weights = np.asarray(task.spec.class_weights)
            if task.kind == "multilabel":
                weights = weights.reshape(2, -1)  # of a label that is absent, and of one that is present
        rule = fit_rule(held_out, calibration=settings.calibration, metric=metric, class_weights=weights)
        self.model.rules[task.name] = rule
        if held_out.problem is not None:
            if settings.calibration != "none":
                self.record.write(Note(f"probabilities are not calibrated: {held_out.problem}", task=task.name))
            return
        measured, split = held_out, fitted_on
        if "test" in outputs:
            measured, split = outputs["test"].held_out() or held_out, "test"
        self.record.write(_calibrated(task, rule, held_out, fitted_on, measured, split))

    def _held_out(self, task: Task, outputs: Mapping[str, Outputs]) -> tuple[str, HeldOutLogits | None]:
        """What fits the rule, and where it is from: dev, what a solver's cross-validation held out, or both."""
        parts: dict[str, HeldOutLogits] = {}
        dev = outputs[DEV].held_out() if DEV in outputs else None
        if dev is not None:
            parts[DEV] = dev
        if task.name in self.held_out and len(self.held_out[task.name]):
            parts[CROSS_VALIDATION] = self.held_out[task.name]
        if not parts:
            return DEV, None
        logits = np.concatenate([part.logits for part in parts.values()])
        labels = np.concatenate([part.labels for part in parts.values()])
        missing = None
        if task.kind in ("classification", "pair"):
            trained = np.asarray(task.spec.encode(task.train))
            if trained.ndim == 2:  # soft labels of a teacher
                trained = trained.argmax(axis=1)
            missing = missing_classes(trained, labels, len(task.labels))
        return " and ".join(parts), HeldOutLogits(task.kind, logits, labels, missing)


def _calibrated(
    task: Task, rule: DecisionRule, held_out: HeldOutLogits, fitted_on: str, measured: HeldOutLogits, split: str
) -> Calibrated:
    """What a rule is, and what it does to the probabilities of a split."""
    plain = DecisionRule(rule.kind)
    return Calibrated(
        task=task.name,
        fitted_on=fitted_on,
        units=len(held_out),
        temperature=rule.temperature,
        isotonic=bool(rule.isotonic),
        thresholds=dict(zip(task.labels, rule.thresholds, strict=False)),
        offsets=dict(zip(task.labels, rule.offsets, strict=False)),
        split=split,
        error_before=calibration_error(plain, measured),
        error=calibration_error(rule, measured),
        bins_before=_rows(plain, measured),
        bins=_rows(rule, measured),
    )


def _rows(rule: DecisionRule, measured: HeldOutLogits) -> list[dict[str, float]]:
    bins: list[Bin] = reliability(*decisions_of(rule, measured), num_bins=PAGE_BINS)
    return [asdict(one) for one in bins]
