"""How good a trained model is, and what its score alone would hide."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crosstask.data.majority import majority_scores
from crosstask.data.metrics import METRICS, Predictions, chosen_metric, never_predicted, score
from crosstask.data.task import Task
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import Outputs, labeled_outputs
from crosstask.models.modes import evaluating
from crosstask.models.multitask import Model
from crosstask.quoting import brief
from crosstask.runs.events import DevEvaluation, Note, Row, Warned
from crosstask.runs.prediction_log import prediction_rows
from crosstask.runs.run_metrics import Scores
from crosstask.training.calibration import RuleFitter

MIN_EVALUATIONS = 4
"""Of a phase; fewer show no trend."""
SHOWN_SCORES = 3
SHOWN_LABELS = 5


@dataclass
class Measured:
    """How good the model is: scores by task and split, and of targets what these have to be held against.

    - `rows`: predictions of targets for each example of test, or else of dev;
    - `majority`: scores of always answering what is most common in training;
    - `never_predicted`: labels that occur in a split and are never predicted there.
    """

    scores: Scores = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    majority: Scores = field(default_factory=dict)
    never_predicted: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def add_target(self, task: Task, predictions: Mapping[str, Predictions]) -> None:
        """What a target's scores alone would hide."""
        self.majority[task.name] = {}
        for split, predicted in predictions.items():
            if len(task.train):  # else nothing is most common
                self.majority[task.name][split] = majority_scores(predicted.spec, task.train, task.splits[split])
            self.never_predicted.setdefault(task.name, {})[split] = never_predicted(predicted)
        split = "test" if "test" in predictions else "dev"
        self.rows += prediction_rows(split, task.splits[split], predictions[split])
        note = missed_labels(predictions[split], split)
        if note is not None:
            self.notes.append(note)


def measure(
    model: Model, tasks: Sequence[Task], dev: Mapping[str, Prepared], targets: Sequence[str], rules: RuleFitter
) -> Measured:
    """Scores on dev and test of each task, and more of targets, whose decision rules are fitted before."""
    measured = Measured()
    with evaluating(model):
        for task in tasks:
            outputs: dict[str, Outputs] = {}
            if task.name in dev:
                outputs["dev"], _ = labeled_outputs(model, dev[task.name])
            if task.test is not None:
                outputs["test"], _ = labeled_outputs(model, Prepared.of(model.encoder, task.spec, task.test))
            rules.fit(task, outputs)
            rule = model.rules.get(task.name)
            predictions = {split: one.predictions(rule) for split, one in outputs.items()}
            measured.scores[task.name] = {split: score(predicted) for split, predicted in predictions.items()}
            if task.name in targets and predictions:
                measured.add_target(task, predictions)
    return measured


def still_rising(evaluations: Sequence[DevEvaluation]) -> bool:
    """Whether the last evaluation of one task has a better score and a lower loss than every one before.

    Both, for the score of a small dev set jumps, and the loss of an overconfident model rises while its score does too.
    """
    if len(evaluations) < MIN_EVALUATIONS:
        return False
    *earlier, last = evaluations
    metric = next(iter(last.scores), None)
    values = [event.scores.get(metric) for event in evaluations if metric is not None]
    losses = [event.loss for event in evaluations]
    if not values or any(value is None for value in [*values, *losses]):  # one that is not defined says nothing
        return False
    sign = 1.0 if METRICS[str(metric)].greater_is_better else -1.0
    signed = [sign * float(value) for value in values if value is not None]
    return signed[-1] > max(signed[:-1]) and last.loss < min(event.loss for event in earlier)


def targets_still_rising(evaluations: Iterable[DevEvaluation], targets: Iterable[str]) -> list[str]:
    """The targets of which that holds in the last phase that evaluated."""
    events = list(evaluations)
    rising: list[str] = []
    for target in targets:
        of_target = [event for event in events if event.task == target]
        if of_target and still_rising([event for event in of_target if event.phase == of_target[-1].phase]):
            rising.append(target)
    return rising


def too_short(evaluations: Iterable[DevEvaluation], target: str) -> Warned:
    """The warning to a reader of the page."""
    of_target = [event for event in evaluations if event.task == target]
    values = [next(iter(event.scores.values())) for event in of_target[-SHOWN_SCORES:]]
    listing = ", ".join(f"{value:.3g}" for value in values)
    return Warned(
        f"perhaps trained too short: the dev score was still rising at the end ({listing}). Try more `updates` or "
        "`epochs`, or a larger `learning_rate`; `crosstask compare --search learning_rate=...` tries several",
        task=target,
    )


def missed_labels(predictions: Predictions, split: str) -> Note | None:
    """The note that labels are never predicted, or None where all are."""
    missed = never_predicted(predictions)
    if not missed:
        return None
    listing = ", ".join(f"'{brief(label)}'" for label in missed[:SHOWN_LABELS])
    if len(missed) > SHOWN_LABELS:
        listing += f" and {len(missed) - SHOWN_LABELS} more"
    text = f"never predicted on {split}, though they occur there: {listing}"
    if chosen_metric(predictions.spec).name == "accuracy":
        text += "; accuracy hides such labels, and `metric: macro_f1` of the task chooses models by all labels alike"
    return Note(text, task=predictions.spec.name)
