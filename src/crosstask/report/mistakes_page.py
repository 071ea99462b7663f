"""The sections of a page on predictions: label by label, confusions, mistakes, corrections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crosstask.report.charts import Chart, Dots, Spec, charts_available, dots, heat_map
from crosstask.report.files import Prediction
from crosstask.report.predictions import (
    Confusion,
    Corrections,
    EvaluatedTask,
    LabelScore,
    confusion,
    corrections,
    evenly_spaced,
    label_scores,
    surest_mistakes,
)
from crosstask.report.series import can_be_shown

MAX_ROWS = 40
"""Of the table of labels."""


@dataclass(frozen=True)
class PredictionsView:
    """What the template shows of the predictions for one task."""

    task: EvaluatedTask
    scores: Sequence[LabelScore]  # of the most common labels
    num_left_out: int  # labels beside them
    f1_alone: Mapping[str, float] | None  # F1 of labels in training alone, where that is compared
    mistakes: Sequence[Prediction]  # the surest ones whose inputs can be shown
    confusion: Confusion | None
    chart: Chart | None


@dataclass(frozen=True)
class CorrectionsView:
    """What a method with sources predicts right that training alone does not; `examples` have inputs to show."""

    task: EvaluatedTask
    method: str
    corrections: Corrections
    examples: Sequence[tuple[Prediction, Prediction]]


def predictions_view(task: EvaluatedTask, alone: EvaluatedTask | None = None) -> PredictionsView:
    """The view of the predictions for a task, next to those of training alone where they are given."""
    mistakes = [prediction for prediction in surest_mistakes(task) if prediction.input is not None]
    if not task.has_labels:
        chart = None
        plot = numbers_plot(task) if charts_available() else None
        if plot is not None:
            chart = Chart(f"values-{task.task}", plot)
        return PredictionsView(task, (), 0, None, mistakes, None, chart)
    f1_alone = None
    if alone is not None:
        f1_alone = {score.label: score.f1 for score in label_scores(alone)}
    matrix = confusion(task)
    chart = None
    if matrix is not None and charts_available():
        chart = Chart(f"confusion-{task.task}", confusion_plot(matrix))
    scores = label_scores(task)
    num_left_out = max(0, len(scores) - MAX_ROWS)
    return PredictionsView(task, scores[:MAX_ROWS], num_left_out, f1_alone, mistakes, matrix, chart)


def corrections_view(alone: EvaluatedTask, helped: EvaluatedTask, method: str) -> CorrectionsView | None:
    """The view of the corrections of a method; None where no example changed."""
    both = corrections(alone, helped)
    if both is None or both.num_corrected + both.num_spoiled == 0:
        return None
    examples = [(old, new) for old, new in both.examples if new.input is not None]
    return CorrectionsView(helped, method, both, examples)


def confusion_plot(matrix: Confusion) -> Spec:
    """A row per gold label, a column per predicted one."""
    values = []
    for gold in matrix.labels:
        total = sum(matrix.counts[gold, label] for label in matrix.labels) or 1
        for predicted in matrix.labels:
            count = matrix.counts[gold, predicted]
            fraction = round(count / total, 4)
            values.append({"gold": gold, "predicted": predicted, "share": fraction, "examples": count})
    return heat_map(values, "predicted", "gold", ("predicted", "true"), count="examples")


def numbers_plot(task: EvaluatedTask) -> Spec | None:
    """True against predicted values; None where there are none that an axis can show."""
    import altair as alt

    values = []
    numbers: list[float] = []
    for prediction in evenly_spaced(task.predictions):
        gold, predicted = prediction.gold, prediction.predicted
        if isinstance(gold, float) and isinstance(predicted, float) and can_be_shown(gold) and can_be_shown(predicted):
            values.append({"true": gold, "predicted": predicted})
            numbers += [gold, predicted]
    if not values:
        return None
    low, high = min(numbers), max(numbers)
    scale = alt.Scale(domain=[low, high], nice=True)
    tooltip = [alt.Tooltip("true:Q"), alt.Tooltip("predicted:Q", format=".4g")]
    return dots(
        values,
        alt.X("true:Q", scale=scale),
        alt.Y("predicted:Q", scale=scale),
        Dots(tooltip, size=26, opacity=0.5),
        diagonal=[{"true": low, "predicted": low}, {"true": high, "predicted": high}],
    )
