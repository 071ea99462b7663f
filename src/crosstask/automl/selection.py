"""Which candidate wins: paired differences over the same folds, and what sources have to show. Pure functions."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crosstask.data.subsets import NUM_FOLDS
from crosstask.runs.estimate import Estimate

FIRST_FOLDS = 3
"""Folds that a candidate must have been through before it can win."""
TRUSTED_MARGIN, NETWORK_MARGIN, OTHER_MARGIN = 0.5, 1.0, 2.0
"""Standard errors by which a candidate must be ahead: with sources that the ranking called helpful, for which there is
evidence already, of the best without sources; a network without sources, of the simplest such model; with any other
sources, of the best without. As `margin` corrects them, one is about two of the plain ones after ten folds."""
OVERLAP = 1.0 / (NUM_FOLDS - 1)
"""n_test / n_train of a fold."""
Scores = Mapping[int, float]
"""By fold; higher is better."""


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


def exceeds(lead: Estimate, num_errors: float) -> bool:
    """Whether a margin is above zero by more than so many standard errors; one fold alone has none."""
    return lead.standard_error is not None and lead.mean > max(0.0, num_errors * lead.standard_error)


def stopped(curves: Mapping[int, Sequence[float]]) -> tuple[dict[int, float], int]:
    """The score of each fold where the other folds say that training should stop, and where all of them say so.

    A fold that chose its own stop would be too good. Evaluations are counted from 0; of equal ones the latest counts,
    since the last model has more examples to learn from.

    >>> stopped({0: [0.1, 0.9, 0.5], 1: [0.2, 0.3, 0.8]})
    ({0: 0.5, 1: 0.3}, 2)
    """
    scores: dict[int, float] = {}
    for fold, curve in curves.items():
        others = [other for name, other in curves.items() if name != fold]
        stop = len(curve) - 1  # one fold alone has no others to ask
        if others:
            stop = _best_evaluation(others)
        scores[fold] = curve[stop]
    return scores, _best_evaluation(list(curves.values()))


def _best_evaluation(curves: Sequence[Sequence[float]]) -> int:
    means = [round(statistics.fmean(scores), 12) for scores in zip(*curves, strict=True)]
    return max(range(len(means)), key=lambda index: (means[index], index))


@dataclass(frozen=True)
class Standing:
    """What is known of one candidate: its scores by fold, whether it uses sources, whether all of them are trusted."""

    name: str
    scores: Scores
    uses_sources: bool
    trusted: bool = False

    @property
    def margin_needed(self) -> float:
        """Standard errors by which it has to be ahead, see `TRUSTED_MARGIN`."""
        if not self.uses_sources:
            return NETWORK_MARGIN
        return TRUSTED_MARGIN if self.trusted else OTHER_MARGIN

    def lead(self, other: "Standing") -> float:
        """The mean lead over another on the folds that both have been through."""
        return margin(self.scores, other.scores).mean


@dataclass(frozen=True)
class Choice:
    """The winner, the best of the target alone, and the sentence that says why.

    `margins` are those of every candidate over the best of the target alone.
    """

    winner: str
    target_only: str | None
    why: str
    margins: Mapping[str, Estimate]

    @property
    def sources_help(self) -> bool:
        """Whether sources have earned their place."""
        return self.winner != self.target_only


def best_alone(standings: Sequence[Standing]) -> Standing | None:
    """The best candidate without sources: the simplest, which is the first, unless others are ahead of it by enough."""
    simplest: Standing | None = None
    best: Standing | None = None
    for standing in _measured(standings):
        if standing.uses_sources:
            continue
        if simplest is None or best is None:
            simplest = best = standing
            continue
        is_ahead = exceeds(margin(standing.scores, simplest.scores), standing.margin_needed)
        # Of several that are ahead, the one that is ahead by most.
        if is_ahead and standing.lead(simplest) > best.lead(simplest):
            best = standing
    return best


def choose(standings: Sequence[Standing]) -> Choice | None:
    """The choice among candidates, from simple to complex; None if nothing has been measured.

    The best of the target alone is kept, unless a candidate with sources is ahead of it by more than its margin, in
    standard errors of the paired difference; of those that are, the one that is ahead by most.
    """
    alone = best_alone(standings)
    helped = [standing for standing in _measured(standings) if standing.uses_sources]
    if alone is None:
        if not helped:
            return None
        # Nothing to be ahead of: the best mean score wins.
        best = max(helped, key=lambda standing: statistics.fmean(standing.scores.values()))
        return Choice(best.name, None, "nothing was measured of the target alone.", {})
    margins = {standing.name: margin(standing.scores, alone.scores) for standing in standings}
    # Sources have to earn their place.
    earned: list[Standing] = []
    for standing in helped:
        if exceeds(margins[standing.name], standing.margin_needed):
            earned.append(standing)
    if not earned:
        return Choice(alone.name, alone.name, _why_alone(alone, helped, margins), margins)
    best = max(earned, key=lambda standing: margins[standing.name].mean)
    lead = margins[best.name]
    evidence = ""
    if best.trusted:
        evidence = "the ranking calls them helpful, and "
    why = (
        f"the sources earn their place: {evidence}it is ahead of the best model of the target alone "
        f"('{alone.name}') by {lead.text('standard_error')} on {lead.count} folds."
    )
    return Choice(best.name, alone.name, why, margins)


def _why_alone(alone: Standing, helped: Sequence[Standing], margins: Mapping[str, Estimate]) -> str:
    if not helped:
        return f"no candidate with sources was measured: '{alone.name}' learns from the target's labels alone."
    nearest = max(helped, key=lambda standing: margins[standing.name].mean)
    lead = margins[nearest.name]
    condition = ""
    if lead.mean > 0:
        plural = "s" * (nearest.margin_needed != 1)
        condition = f", where more than {nearest.margin_needed:g} standard error{plural} are asked"
    return (
        f"the sources do not help enough to earn a place: the best candidate with them ('{nearest.name}') differs from "
        f"the best model of the target alone ('{alone.name}') by {lead.text('standard_error', signed=True)} on "
        f"{lead.count} folds{condition}."
    )


def better_half(standings: Sequence[Standing], min_count: int = 2) -> list[str]:
    """Names of the better half, by the lead over the best of the target alone, which is always among them.

    The best candidate with sources is among them too: those two are what the choice is about.
    """
    alone = best_alone(standings)
    measured = _measured(standings)
    if alone is None or len(measured) <= min_count:
        return [standing.name for standing in measured]
    # The two that must stay, then the others by their lead.
    order = sorted(measured, key=lambda standing: -standing.lead(alone))
    first = [alone]
    for standing in order:
        if standing.uses_sources:
            first.append(standing)
            break
    order.sort(key=lambda standing: standing not in first)
    count = max(min_count, math.ceil(len(measured) / 2))
    names: list[str] = []
    for standing in measured:
        if standing in order[:count]:
            names.append(standing.name)
    return names


def _measured(standings: Sequence[Standing]) -> list[Standing]:
    """Those that have been through enough folds; if none has, those that have been through most."""
    num_folds = max((len(standing.scores) for standing in standings), default=0)
    enough = max(1, min(FIRST_FOLDS, num_folds))
    return [standing for standing in standings if len(standing.scores) >= enough]
