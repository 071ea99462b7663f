"""What a search says at the end: the winner's lead, what the sources brought, what more labels or minutes would."""

from collections.abc import Mapping

from crosstask.automl.choice import Choice
from crosstask.automl.fine_tuning import FineTuningPlan
from crosstask.automl.forecast import QUARTERS, LabelCurve, forecast_doubling, labels_sentence
from crosstask.automl.label_curves import LabelCurves
from crosstask.automl.leads import Lead, lead_sentence, leads_of
from crosstask.automl.more_minutes import more_minutes
from crosstask.automl.search import Search
from crosstask.automl.source_effects import source_effects, sources_sentence
from crosstask.automl.standings import Gain
from crosstask.methods import Named
from crosstask.studies.method import Section


def conclusions(
    search: Search, choice: Choice, label_curves: LabelCurves, plan: FineTuningPlan | None, encoder: Named
) -> Section:
    """In numbers, and under `conclusions` in sentences, of which those with nothing to say are empty.

    Args:
        search: that has ended.
        choice: its winner.
        label_curves: with parts of the labels, as far as there was time.
        plan: how a pretrained encoder was fine-tuned, None where that was not done.
        encoder: as the user named it.
    """
    in_points = search.evaluator.metric.greater_is_better
    num_labels = len(search.evaluator.target.train)
    standings = search.standings()
    leads: list[Lead] = []
    if search.scores(choice.winner):
        leads = leads_of(choice.winner, standings, search.base, search.floor)
    effects = source_effects(list(search.candidates.values()), standings, search.base, search.floor)
    # The curve of the winner is the last one.
    curves, forecast = label_curves.curves(), None
    on_labels = f"What twice the labels would bring cannot be told: {label_curves.why_none()}."
    if curves:
        forecast = forecast_doubling(curves[-1], 1.0 if in_points else 0.0, search.floor)
        on_labels = labels_sentence(forecast, curves[-1], num_labels, in_points)
    return {
        "greater_is_better": in_points,
        "leads": [lead.to_json() for lead in leads],
        "source_effects": [effect.to_json() for effect in effects],
        "learning_curves": [curve_json(curve, in_points) for curve in curves],
        "forecast": None if forecast is None else forecast.to_json(),
        "conclusions": {
            "lead": lead_sentence(leads, in_points),
            "sources": sources_sentence(effects, _nearest_with_sources(search, choice.gains, choice.winner), in_points),
            "labels": on_labels,
            "minutes": more_minutes(search, plan, encoder),
        },
    }


def _nearest_with_sources(search: Search, gains: Mapping[str, Gain], winner: str) -> str | None:
    """The winner, if it has sources, else the candidate with sources that came nearest to it."""
    if search.candidates[winner].sources:
        return winner
    measured = [name for name, candidate in search.candidates.items() if candidate.sources and search.scores(name)]
    return max(measured, key=lambda name: gains[name].mean, default=None)


def curve_json(curve: LabelCurve, in_points: bool) -> Section:
    """With scores as the metric counts them."""
    sign = 1.0 if in_points else -1.0
    points: list[Section] = []
    for quarters in QUARTERS:
        score = curve.score(quarters)
        points.append(
            {
                "labels": curve.labels[quarters],
                "score": sign * score.mean,
                "standard_error": score.standard_error,
                "folds": score.count,
            }
        )
    return {"candidate": curve.candidate, "points": points}
