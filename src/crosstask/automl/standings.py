"""How candidates stand: their scores by fold, and differences between them. Pure functions."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crosstask.automl.prior import Expectation
from crosstask.data.subsets import NUM_FOLDS
from crosstask.runs.estimate import Estimate

FIRST_FOLDS = 3
"""Folds that every candidate goes through, as time allows."""
OVERLAP = 1.0 / (NUM_FOLDS - 1)
"""n_test / n_train of a fold."""
COMMON_FOLDS = 3.0
"""Folds that the deviation of all candidates counts, when one candidate's is estimated from a few folds."""
LEVEL = 0.8
"""Of the interval that is shown."""
LEVEL_QUANTILE = statistics.NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
Scores = Mapping[int, float]
"""By fold; higher is better."""


@dataclass(frozen=True)
class Gain:
    """What a candidate is expected to be ahead of the base by, and the standard deviation of that."""

    mean: float
    deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """In which the gain lies with the probability `LEVEL`."""
        margin = LEVEL_QUANTILE * self.deviation
        return self.mean - margin, self.mean + margin


@dataclass(frozen=True)
class Standing:
    """What is known of one candidate.

    - `scores`: by fold; `expected`: of it before any;
    - `uses_sources`: whether it does; `learns`: whether it trains an encoder, or is a solver's.
    """

    name: str
    scores: Scores
    expected: Expectation
    uses_sources: bool
    learns: bool = True


def margin(scores: Scores, others: Scores) -> Estimate:
    """By how much one candidate beats another on the folds that both have been through.

    The standard error is the corrected one of Nadeau and Bengio (2003), `sd(d) sqrt(1 / n + n_test / n_train)` for
    paired differences d_1 .. d_n. It does not go to zero with more repeats: they tell nothing of other labels.

    >>> lead = margin({0: 0.8, 1: 0.7}, {0: 0.6, 1: 0.7, 2: 0.9})  # differences 0.2 and 0, times sqrt(1/2 + 1/4)
    >>> lead.mean, round(lead.standard_error, 4), lead.count
    (0.1, 0.1225, 2)
    """
    differences: list[float] = []
    for fold in sorted(scores.keys() & others.keys()):
        differences.append(scores[fold] - others[fold])
    lead = Estimate.of(differences, overlap=OVERLAP)
    return replace(lead, mean=round(lead.mean, 12))  # equal scores are a tie


def squared_error(lead: Estimate, deviation: float) -> float:
    """Of a mean difference over folds: `deviation^2 (1 / n + n_test / n_train)`."""
    return deviation**2 * (1.0 / lead.count + OVERLAP)


def leads_over(standings: Sequence[Standing], base: str) -> dict[str, Estimate]:
    """The difference of every candidate to the base on the folds of both."""
    of_base = next((standing.scores for standing in standings if standing.name == base), {})
    return {standing.name: margin(standing.scores, of_base) for standing in standings}


def common_variance(leads: Mapping[str, Estimate], base: str, floor: float) -> float:
    """Of a difference in one fold, as a mean over the candidates."""
    variances: list[float] = []
    for name, lead in leads.items():
        if name != base and lead.deviation is not None:
            variances.append(lead.deviation**2)
    return max(floor**2, statistics.fmean(variances) if variances else 0.0)


def fold_deviation(lead: Estimate, common: float, floor: float) -> float:
    """Of a difference in one fold, drawn to what is common: a standard deviation from three folds is itself a guess.

        deviation^2 = ((n - 1) sd^2 + k common) / (n - 1 + k)        k = COMMON_FOLDS

    >>> round(fold_deviation(Estimate(0.1, 0.2, 4), common=0.01, floor=0.05), 6)  # ((3 * 0.04 + 3 * 0.01) / 6) ** 0.5
    0.158114
    """
    folds = max(0, lead.count - 1)
    variance = (folds * (lead.deviation or 0.0) ** 2 + COMMON_FOLDS * common) / (folds + COMMON_FOLDS)
    return math.sqrt(max(variance, floor**2))
