"""Numbers and answers as people read them, the same on the page and in the terminal."""

from dataclasses import dataclass
from typing import Literal

from crosstask.report.comparison_view import TargetView
from crosstask.runs.estimate import DASH, Estimate

SINGLE = "single"
METRIC_NAMES = {"macro_f1": "macro F1", "span_f1": "span F1", "token_f1": "token F1", "auc": "AUC", "rmse": "RMSE"}


def metric_name(metric: str) -> str:
    """A metric as one writes it in a sentence."""
    return METRIC_NAMES.get(metric, metric)


def number(value: float | None, digits: int = 3) -> str:
    """A score as text; a dash where there is none.

    >>> number(0.84567), number(None), number(12345.6)
    ('0.846', '–', '12,346')
    """
    if value is None:
        return DASH
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}"


def spread(value: Estimate | None, *, signed: bool = False) -> str:
    """Mean and standard deviation.

    >>> spread(Estimate(0.8, 0.02, 5)), spread(Estimate(0.05, None, 1), signed=True)
    ('0.800 ± 0.020', '+0.050')
    """
    if value is None:
        return DASH
    return value.text(signed=signed)


@dataclass(frozen=True)
class Phrase:
    """A part of a sentence: text, the name of a task, the score that matters, or one to compare it with."""

    text: str
    role: Literal["text", "name", "score", "other"] = "text"


def answer(view: TargetView) -> list[Phrase]:
    """One sentence that says whether the sources helped the target."""
    alone, best = view.reference, view.chosen
    if best is None or best.score is None:
        return [Phrase("Nothing was measured with sources.")]
    target = Phrase(view.target, "name")
    score = Phrase(f"{spread(best.score)} {metric_name(view.metric)}", "score")
    opening = f"With {view.labels}, cross-task training of " if view.labels else "Cross-task training of "
    if alone is None or alone.score is None or best.verdict is None:
        return [Phrase(opening), target, Phrase(" reached "), score, Phrase(f" ({best.method}).")]

    how = " alone" if alone.method == SINGLE else f" alone ({alone.method})"
    against = [Phrase(" against "), Phrase(spread(alone.score), "other"), Phrase(how)]
    if best.verdict in ("hurts", "may hurt", "unclear"):
        opening = "The sources did harm: " if best.verdict == "hurts" else "The sources did not help: "
        return [Phrase(opening), target, Phrase(" reached "), score, Phrase(" with them"), *against, Phrase(".")]

    ending = [*against]
    if best.verdict == "may help":
        ending.append(Phrase(", a difference that may be chance"))
    if view.heaviest is not None:
        ending += [Phrase("; "), Phrase(view.heaviest, "name"), Phrase(" counted most")]
    return [Phrase(opening), target, Phrase(" reached "), score, *ending, Phrase(".")]


def plain_sentence(view: TargetView) -> str:
    """The answer as plain text."""
    return "".join(phrase.text for phrase in answer(view))
