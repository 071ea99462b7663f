"""Which candidate wins: what is expected of it before any fold, and what the folds say. Pure functions."""

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
    """What is known of one candidate: its scores by fold, what was expected of it, and whether it uses sources."""

    name: str
    scores: Scores
    expected: Expectation
    uses_sources: bool


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


def posterior(expected: Expectation, lead: Estimate, deviation: float) -> Gain:
    """The gain over the base, given the folds.

        1 / v = 1 / s^2 + 1 / e^2      mean = v (m / s^2 + d / e^2)      e^2 = deviation^2 (1 / n + n_test / n_train)

    - m, s: `gain` and `deviation` of what was expected, a normal distribution;
    - d: the mean difference to the base over the n folds of `lead`;
    - `deviation`: of the difference in one fold. Without folds the expectation stands.

    >>> posterior(Expectation(gain=0.02, deviation=0.05), Estimate.of([]), 0.1)
    Gain(mean=0.02, deviation=0.05)
    >>> gain = posterior(Expectation(0.0, 0.05), Estimate.of([0.1], overlap=0.25), 0.05 / 1.25**0.5)
    >>> round(gain.mean, 6), round(gain.deviation, 6)
    (0.05, 0.035355)
    """
    if not lead.count:
        return Gain(expected.gain, expected.deviation)
    if expected.deviation == 0.0:  # the base itself
        return Gain(expected.gain, 0.0)
    error_squared = deviation**2 * (1.0 / lead.count + OVERLAP)
    precision = 1.0 / expected.deviation**2 + 1.0 / error_squared
    mean = (expected.gain / expected.deviation**2 + lead.mean / error_squared) / precision
    return Gain(mean, math.sqrt(1.0 / precision))


def posteriors(standings: Sequence[Standing], base: str, floor: float) -> dict[str, Gain]:
    """The gain of every candidate over the base, which is one of them.

    A standard deviation from three folds is itself a guess, so that each is drawn to the mean of all:

        deviation_c^2 = ((n_c - 1) sd_c^2 + k mean_c(sd_c^2)) / (n_c - 1 + k)        k = COMMON_FOLDS

    One that scores as the base does on every fold gains nothing, whatever was expected: it is the same model, as
    stacking is where no source's answers tell anything.

    Args:
        standings: of all candidates.
        base: name of the candidate that gains are over.
        floor: the least deviation; a few examples that a fold holds out are never sure.
    """
    scores = {standing.name: standing.scores for standing in standings}
    leads: dict[str, Estimate] = {}
    for standing in standings:
        leads[standing.name] = margin(standing.scores, scores.get(base, {}))
    variances: list[float] = []
    for name, lead in leads.items():
        if name != base and lead.deviation is not None:
            variances.append(lead.deviation**2)
    common = max(floor**2, statistics.fmean(variances) if variances else 0.0)
    gains: dict[str, Gain] = {}
    for standing in standings:
        lead = leads[standing.name]
        folds = max(0, lead.count - 1)
        variance = (folds * (lead.deviation or 0.0) ** 2 + COMMON_FOLDS * common) / (folds + COMMON_FOLDS)
        gain = posterior(standing.expected, lead, math.sqrt(max(variance, floor**2)))
        if lead.count >= FIRST_FOLDS and lead.deviation == 0.0 and lead.mean == 0.0:
            gain = Gain(min(gain.mean, 0.0), gain.deviation)
        gains[standing.name] = gain
    return gains


@dataclass(frozen=True)
class Choice:
    """The winner, the best of the target alone, and the sentence that says why; `gains` are those over the base."""

    winner: str
    target_only: str | None
    why: str
    gains: Mapping[str, Gain]

    @property
    def sources_help(self) -> bool:
        """Whether sources have earned their place."""
        return self.winner != self.target_only


def choose(standings: Sequence[Standing], base: str, floor: float) -> Choice | None:
    """The candidate of which most is expected, given what was known before and what its folds say.

    Candidates that no fold has measured take part only if none has been: what is expected of a method says nothing of
    how these data go with it. Of equal ones the simplest, which is the first. None without candidates.
    """
    if not standings:
        return None
    gains = posteriors(standings, base, floor)
    measured = [standing for standing in standings if standing.scores]
    candidates = measured or list(standings)
    winner = _best(candidates, gains)
    alone = [standing for standing in candidates if not standing.uses_sources]
    if not alone:
        return Choice(winner.name, None, "nothing was measured of the target alone.", gains)
    best_alone = _best(alone, gains)
    why = _why(winner, best_alone, candidates, gains, is_measured=bool(measured))
    return Choice(winner.name, best_alone.name, why, gains)


def _best(standings: Sequence[Standing], gains: Mapping[str, Gain]) -> Standing:
    return max(standings, key=lambda standing: round(gains[standing.name].mean, 9))  # the first of equal ones


def _why(
    winner: Standing,
    alone: Standing,
    candidates: Sequence[Standing],
    gains: Mapping[str, Gain],
    *,
    is_measured: bool,
) -> str:
    if not is_measured:
        return "there was no time to try anything: it is what has been best elsewhere, and could still be fitted."
    if winner.uses_sources:
        lead = margin(winner.scores, alone.scores)
        folds = f"{lead.text('standard_error', signed=True)} on {lead.count} folds" if lead.count else "no common folds"
        expected = gains[winner.name].mean - gains[alone.name].mean
        return (
            f"the sources earn their place: it should be ahead of the best model of the target alone ('{alone.name}') "
            f"by {expected:+.3f}, by what these folds say ({folds}) and what such methods have brought elsewhere."
        )
    helped = [standing for standing in candidates if standing.uses_sources]
    if not helped:
        return f"no candidate with sources was measured: '{alone.name}' learns from the target's labels alone."
    nearest = _best(helped, gains)
    lead = margin(nearest.scores, alone.scores)
    return (
        f"the sources do not help enough to earn a place: the best candidate with them ('{nearest.name}') differs from "
        f"'{alone.name}' by {lead.text('standard_error', signed=True)} on {lead.count} folds."
    )


def better_half(standings: Sequence[Standing], gains: Mapping[str, Gain], base: str) -> list[str]:
    """Names of the better half of those that were measured, with the base and the best of the target alone in it."""
    measured = [standing for standing in standings if standing.scores]
    order = sorted(measured, key=lambda standing: -gains[standing.name].mean)
    names = {standing.name for standing in order[: max(2, math.ceil(len(measured) / 2))]}
    alone = [standing for standing in measured if not standing.uses_sources]
    if alone:
        names.add(_best(alone, gains).name)
    names.add(base)  # gains are over it, on the folds of both
    return [standing.name for standing in measured if standing.name in names]
