"""A trained model measured: decision rules fitted to dev, scores of every split, and the predictions behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from crosstask.data.metrics import chosen_metric, score
from crosstask.data.task import Task
from crosstask.decisions.calibration import Bin, reliability
from crosstask.decisions.fit import (
    CALIBRATED_KINDS,
    MIN_UNITS,
    HeldOutLogits,
    calibration_error,
    decisions_of,
    fit_rule,
)
from crosstask.decisions.rule import DecisionRule
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import Outputs, labeled_outputs
from crosstask.models.multitask import Model
from crosstask.runs.events import Calibrated, Note, Row
from crosstask.runs.prediction_log import prediction_rows
from crosstask.runs.record import Record
from crosstask.runs.run import Scores
from crosstask.training.config import Training

PAGE_BINS = 10
"""Of a reliability diagram: enough to see, few enough that each has some decisions."""
DEV, CROSS_VALIDATION = "dev", "cross-validation"


@dataclass(eq=False)
class Measurement:
    """Measures the tasks of a run one after the other.

    - `held_out`: logits of training examples that did not train, from solvers that cross-validate, by task;
    - `scores`: by task, split and metric;
    - `rows`: predictions of the targets for each test, or else dev, example.
    """

    model: Model
    targets: Sequence[str]
    settings: Training
    record: Record
    held_out: Mapping[str, HeldOutLogits] = field(default_factory=dict)
    scores: Scores = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def measure(self, task: Task, dev: Prepared | None) -> None:
        """Fit the task's decision rule, if it is a target, and measure it on dev and test."""
        outputs: dict[str, Outputs] = {}
        if dev is not None:
            outputs[DEV], _ = labeled_outputs(self.model, dev)
        if task.test is not None:
            test = Prepared.of(self.model.encoder, task.spec, task.test)
            outputs["test"], _ = labeled_outputs(self.model, test)
        if task.name in self.targets:
            self._fit_rule(task, outputs)
        rule = self.model.rules.get(task.name)
        predictions = {split: one.predictions(rule) for split, one in outputs.items()}
        self.scores[task.name] = {split: score(predicted) for split, predicted in predictions.items()}
        if task.name in self.targets and predictions:
            split = "test" if "test" in predictions else DEV
            self.rows += prediction_rows(split, task.splits[split], predictions[split])

    def _fit_rule(self, task: Task, outputs: Mapping[str, Outputs]) -> None:
        """Fit the rule to dev, or else to what cross-validation held out; test only shows what it does."""
        settings = self.settings
        if task.kind not in CALIBRATED_KINDS:
            return
        fitted_on, held_out = DEV, None
        if DEV in outputs:
            held_out = outputs[DEV].held_out()
        if held_out is None or len(held_out) < MIN_UNITS:
            fitted_on, held_out = CROSS_VALIDATION, self.held_out.get(task.name, held_out)
        if held_out is None:
            return
        metric = chosen_metric(task.spec).name if settings.thresholds else None
        weights = task.spec.class_weights or None
        if weights is not None and task.kind == "multilabel":
            weights = np.reshape(weights, (2, -1))
        rule = fit_rule(held_out, calibration=settings.calibration, metric=metric, class_weights=weights)
        self.model.rules[task.name] = rule
        if len(held_out) < MIN_UNITS and settings.calibration != "none":
            text = f"probabilities are not calibrated: {len(held_out)} held-out examples are too few"
            self.record.write(Note(text, task=task.name))
            return
        measured, split = held_out, fitted_on
        if "test" in outputs:
            measured, split = outputs["test"].held_out() or held_out, "test"
        self.record.write(_calibrated(task, rule, held_out, fitted_on, measured, split))


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
