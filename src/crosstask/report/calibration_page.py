"""The section of a run's page on its probabilities: how often they came true, before and after calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crosstask.report.charts import PALETTE, Chart, Dots, Spec, charts_available, dots
from crosstask.runs.events import Calibrated

BEFORE, AFTER = "before", "calibrated"
COLORS = {AFTER: PALETTE[0], BEFORE: PALETTE[1]}
BIN_KEYS = ("low", "high", "count", "probability", "accuracy")
MAX_BINS = 100
MAX_THRESHOLDS = 40
"""Labels whose thresholds are listed."""


@dataclass(frozen=True)
class CalibrationView:
    """What the template shows of a target's calibration."""

    facts: Calibrated
    chart: Chart | None

    @property
    def changes_probabilities(self) -> bool:
        """Whether calibration did anything."""
        return self.facts.isotonic or self.facts.temperature != 1.0

    @property
    def is_fitted_there(self) -> bool:
        """Whether the figures are of the units that calibration was fitted to, and so look better than they are."""
        return self.facts.split == self.facts.fitted_on

    @property
    def decisions(self) -> Mapping[str, float]:
        """Thresholds, or else offsets, by label; of many the first."""
        values = self.facts.thresholds or self.facts.offsets or {}
        return dict(list(values.items())[:MAX_THRESHOLDS])


def calibration_views(events: Sequence[Calibrated]) -> list[CalibrationView]:
    """The view of each target that was calibrated; of a run that was measured twice the last one.

    A history may be anybody's: a row that lacks something is left out.
    """
    views: dict[str, CalibrationView] = {}
    for event in events:
        if None in (event.task, event.units, event.split, event.temperature, event.error, event.error_before):
            continue
        event = replace(event, bins=_complete(event.bins), bins_before=_complete(event.bins_before))
        chart = None
        if charts_available() and event.bins:
            chart = Chart(f"reliability-{event.task}", reliability_diagram(event), legend=dict(COLORS))
        views[event.task] = CalibrationView(event, chart)
    return list(views.values())


def _complete(bins: Sequence[Mapping[str, float]] | None) -> list[dict[str, float]]:
    """The bins that have all of their numbers."""
    complete: list[dict[str, float]] = []
    for one in (bins or ())[:MAX_BINS]:
        if all(one.get(key) is not None for key in BIN_KEYS):
            complete.append(dict(one))
    return complete


def reliability_diagram(event: Calibrated) -> Spec:
    """How often predictions of a probability came true, beside that probability; right ones lie on the diagonal."""
    import altair as alt

    values = []
    for series, bins in ((BEFORE, event.bins_before), (AFTER, event.bins)):
        for one in bins:
            values.append(
                {
                    "series": series,
                    "probability": one["probability"],
                    "came true": one["accuracy"],
                    "predictions": one["count"],
                }
            )
    scale = alt.Scale(domain=[0, 1])
    axis = alt.Axis(format="%")
    tooltip = [
        alt.Tooltip("series:N", title=" "),
        alt.Tooltip("probability:Q", format=".1%"),
        alt.Tooltip("came true:Q", format=".1%"),
        alt.Tooltip("predictions:Q"),
    ]
    return dots(
        values,
        alt.X("probability:Q", title="probability of the prediction", scale=scale, axis=axis),
        alt.Y("came true:Q", title="came true", scale=scale, axis=axis),
        Dots(tooltip, COLORS, size=70),
        diagonal=[{"probability": 0.0, "came true": 0.0}, {"probability": 1.0, "came true": 1.0}],
    )
