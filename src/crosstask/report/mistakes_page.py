"""The sections of a page on predictions: label by label, confusions, mistakes, corrections."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from crosstask.report.charts import Chart, Dots, Side, charts_available, dots, heat_map
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

MAX_ROWS = 40
"""Of the table of labels."""
MAX_CONFUSIONS_IN_DESCRIPTION = 6


@dataclass(frozen=True)
class LabelRow:
    """The scores of a label, and its F1 in training alone where that is compared."""

    score: LabelScore
    f1_alone: float | None = None

    @property
    def difference(self) -> str:
        """In F1, against training alone."""
        return f"{self.score.f1 - (self.f1_alone or 0.0):+.3f}"


@dataclass(frozen=True)
class PredictionsView:
    """What the template shows of the predictions for one task; `is_compared` says whether next to training alone."""

    task: EvaluatedTask
    rows: Sequence[LabelRow]
    num_left_out: int
    is_compared: bool
    mistakes: Sequence[Prediction]
    confusion: Confusion | None
    chart: Chart | None

    @property
    def name(self) -> Markup:
        """The task's name as a heading."""
        return Markup("<bdi>{}</bdi>").format(self.task.task)

    @property
    def unit(self) -> str:
        """What is counted in the table of labels."""
        return "words" if self.task.kind == "tagging" else "examples"

    @property
    def coverage(self) -> str:
        """On how many examples the scores are."""
        task = self.task
        num_known = len(task.predictions)
        counted = f"{num_known:,} of {task.size:,}" if num_known < task.size else f"{task.size:,}"
        return f"On {counted} {task.unit} of {task.split}."


@dataclass(frozen=True)
class CorrectionsView:
    """What a method with sources predicts right that training alone does not; `examples` have inputs to show."""

    task: EvaluatedTask
    method: str
    corrections: Corrections
    examples: Sequence[tuple[Prediction, Prediction]]


def predictions_view(task: EvaluatedTask, alone: EvaluatedTask | None = None) -> PredictionsView:
    """The view of the predictions for a task, next to those of training alone where they are given."""
    if not task.has_labels:
        chart = numbers_chart(task) if charts_available() else None
        return PredictionsView(task, (), 0, False, shown_mistakes(task), None, chart)
    f1_alone = {score.label: score.f1 for score in label_scores(alone)} if alone is not None else {}
    scores = label_scores(task)
    rows = [LabelRow(score, f1_alone.get(score.label, 0.0)) for score in scores[:MAX_ROWS]]
    matrix = confusion(task)
    chart = None
    if matrix is not None and charts_available():
        chart = confusion_chart(matrix, f"confusion-{task.task}")
    return PredictionsView(task, rows, len(scores) - len(rows), alone is not None, shown_mistakes(task), matrix, chart)


def corrections_view(alone: EvaluatedTask, helped: EvaluatedTask, method: str) -> CorrectionsView | None:
    """The view of the corrections of a method; None where no example changed."""
    both = corrections(alone, helped)
    if both is None or both.num_corrected + both.num_spoiled == 0:
        return None
    examples = [(old, new) for old, new in both.examples if new.input is not None]
    return CorrectionsView(helped, method, both, examples)


def shown_mistakes(task: EvaluatedTask) -> list[Prediction]:
    """The surest mistakes whose inputs can be shown."""
    return [prediction for prediction in surest_mistakes(task) if prediction.input is not None]


def confusion_chart(matrix: Confusion, key: str) -> Chart:
    """A row per gold label, a column per predicted one."""
    values = []
    mistakes = []
    for gold, row in matrix.counts.items():
        total = sum(row.values()) or 1
        for predicted, count in row.items():
            fraction = round(count / total, 4)
            values.append({"gold": gold, "predicted": predicted, "share": fraction, "examples": count})
            if gold != predicted and count:
                mistakes.append((count, f"{gold} for {predicted} {count} times"))
    mistakes.sort(key=lambda mistake: -mistake[0])
    listed = ", ".join(text for _, text in mistakes[:MAX_CONFUSIONS_IN_DESCRIPTION]) or "none"
    description = f"Heat map of gold by predicted labels; most often confused: {listed}."
    caption = (
        "Rows are the true labels, columns what was predicted; a cell is the share of its row, so that the diagonal is "
        "what was right."
    )
    if matrix.is_cut:
        caption += " Only the labels that were confused the most are shown."
    across, down = Side("predicted", matrix.labels, "predicted"), Side("gold", matrix.labels, "true")
    return Chart(key, heat_map(values, across, down, counts=["examples"]), description, caption)


def numbers_chart(task: EvaluatedTask) -> Chart:
    """True against predicted values."""
    import altair as alt

    shown = evenly_spaced(task.predictions)
    values = [{"true": prediction.gold, "predicted": prediction.predicted} for prediction in shown]
    known = [value for row in values for value in row.values() if isinstance(value, float)]
    low, high = min(known), max(known)
    scale = alt.Scale(domain=[low, high], nice=True)
    tooltip = [alt.Tooltip("true:Q"), alt.Tooltip("predicted:Q", format=".4g")]
    spec = dots(
        values,
        alt.X("true:Q", scale=scale),
        alt.Y("predicted:Q", scale=scale),
        Dots(tooltip, size=26, opacity=0.5),
        diagonal=[{"true": value, "predicted": value} for value in (low, high)],
    )
    description = f"Scatter plot of true and predicted values of {len(values)} examples of {task.split}."
    caption = f"{len(values)} examples of {task.split}; on the dashed line the prediction is right."
    return Chart(f"values-{task.task}", spec, description, caption)
