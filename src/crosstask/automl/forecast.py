"""What twice the labels would probably bring, by a learning curve from parts of them. Pure functions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from crosstask.automl.folds import WHOLE
from crosstask.automl.posterior import posterior
from crosstask.automl.prior import Expectation
from crosstask.automl.standings import OVERLAP, Gain, fold_deviation
from crosstask.automl.wording import amount, likely
from crosstask.runs.estimate import Estimate

QUARTERS = (1, 2, WHOLE)
"""Of the labels, at which a learning curve is measured: each twice the one before."""


@dataclass(frozen=True)
class Doublings:
    """What twice the labels brought elsewhere, see `benchmarks/label_forecast.py`.

    - `fall`, `deviation`: the part of the errors that went away, as mean and standard deviation over targets;
    - `flattening`: the gain over that of the two doublings before: 1 if scores grew with the logarithm of labels;
    - `luck`: of the labels that are drawn, a standard deviation as part of the errors, with which four of five gains of
      targets that had no part in these numbers were in the interval.
    """

    fall: float = 0.12
    deviation: float = 0.10
    flattening: float = 0.82
    luck: float = 0.06


ELSEWHERE = Doublings()


@dataclass(frozen=True)
class LabelCurve:
    """Scores of a candidate that learned from parts of the labels, on the same folds.

    - `labels`: how many trained it, by quarters, on average over the folds;
    - `scores`: by fold and then by quarters, higher being better; complete folds alone.
    """

    candidate: str
    labels: Mapping[int, int]
    scores: Mapping[int, Mapping[int, float]]

    def score(self, quarters: int) -> Estimate:
        """Over the folds."""
        return Estimate.of([scores[quarters] for scores in self.scores.values()], overlap=OVERLAP)

    @property
    def gain_of_doubling(self) -> Estimate:
        """The mean of the last two doublings, which is the slope of least squares over the logarithm of labels.

        >>> scores = {0: {1: 0.5, 2: 0.6, 4: 0.7}, 1: {1: 0.5, 2: 0.5, 4: 0.6}}
        >>> round(LabelCurve("probe", {1: 10, 2: 20, 4: 40}, scores).gain_of_doubling.mean, 3)
        0.075
        """
        doublings: list[float] = []
        for scores in self.scores.values():
            doublings.append((scores[WHOLE] - scores[1]) / 2.0)
        return Estimate.of(doublings, overlap=OVERLAP)


@dataclass(frozen=True)
class Forecast:
    """What twice the labels should bring; more labels are taken to do no harm.

    - `candidate`: whose learning curve tells;
    - `gain`: in the metric, higher being better.
    """

    candidate: str
    gain: Gain

    @property
    def mean(self) -> float:
        """Of the gain."""
        return max(0.0, self.gain.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """In which the gain lies four times of five."""
        low, high = self.gain.interval
        return max(0.0, low), max(0.0, high)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"candidate": self.candidate, "gain": self.mean, "interval": list(self.interval)}


def forecast_doubling(curve: LabelCurve, perfect: float, floor: float, elsewhere: Doublings = ELSEWHERE) -> Forecast:
    """What twice the labels brought elsewhere, and what the curve says.

    Errors E fall by a power of the number of labels, so that each doubling brings less than the one before:

        m ~ N(fall E, (deviation E)^2)        flattening b ~ N(m, (flattening e)^2)        g ~ N(m, (luck E)^2)

    - g: the gain of twice the labels; m: what it is on average over labels that might be drawn;
    - b: the gain of a doubling so far (`gain_of_doubling`); e: its error over the folds;
    - E: what the score with all labels lacks.

    >>> scores = {fold: {1: 0.60, 2: 0.65, 4: 0.70} for fold in range(5)}
    >>> forecast = forecast_doubling(LabelCurve("probe", {1: 10, 2: 20, 4: 40}, scores), perfect=1.0, floor=0.05)
    >>> round(forecast.mean, 3), [round(end, 3) for end in forecast.interval]
    (0.04, [0.009, 0.07])

    Args:
        curve: of the winner, or of something like it.
        perfect: the best score that there is: 1, or 0 of an error whose sign is turned.
        floor: the least deviation of a difference of scores in one fold.
        elsewhere: what is known beforehand.
    """
    doubling = curve.gain_of_doubling
    lacking = max(perfect - curve.score(WHOLE).mean, 0.0)
    # The slope is half a difference of scores, which is rarely more than twice as uncertain as it is at least.
    deviation = elsewhere.flattening * fold_deviation(doubling, floor**2, floor / 2.0)
    gain = posterior(
        Expectation(elsewhere.fall * lacking, elsewhere.deviation * lacking),
        replace(doubling, mean=elsewhere.flattening * doubling.mean),
        deviation,
    )
    return Forecast(curve.candidate, Gain(gain.mean, math.hypot(gain.deviation, elsewhere.luck * lacking)))


def labels_sentence(forecast: Forecast, curve: LabelCurve, num_labels: int, in_points: bool) -> str:
    """What twice the labels should bring.

    >>> curve = LabelCurve("probe", {1: 12, 2: 24, 4: 48}, {})
    >>> sentence = labels_sentence(Forecast("probe", Gain(0.015, 0.014)), curve, 60, in_points=True)
    >>> sentence.partition(", by")[0]
    'Twice the labels (120 instead of 60) would probably bring +1.5 points (80%: 0 to +3.3)'
    """
    counts = [str(curve.labels[quarters]) for quarters in QUARTERS]
    return (
        f"Twice the labels ({2 * num_labels} instead of {num_labels}) would probably bring "
        f"{amount(forecast.mean, in_points)} ({likely(forecast.interval, in_points)}), by the learning curve of "
        f"'{curve.candidate}' with {', '.join(counts[:-1])} and {counts[-1]} labels."
    )
