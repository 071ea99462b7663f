"""Which candidate wins: paired differences over the same folds, and what sources have to show. Pure functions."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crosstask.automl.folds import NUM_FOLDS

FIRST_FOLDS = 3
"""Folds that a candidate must have been through before it can win."""
TRUSTED_MARGIN, NETWORK_MARGIN, OTHER_MARGIN = 0.5, 1.0, 2.0
"""Standard errors by which a candidate must be ahead: with sources that the ranking called helpful, for which there is
evidence already, of the best without sources; a network without sources, of the simplest such model; with any other
sources, of the best without. As `margin` corrects them, one is about two of the plain ones after ten folds."""
Scores = Mapping[int, float]
"""By fold; higher is better."""


@dataclass(frozen=True)
class Margin:
    """By how much one candidate beats another on the folds that both have been through."""

    mean: float
    error: float
    count: int

    def exceeds(self, errors: float) -> bool:
        """Whether it is above zero by more than so many standard errors."""
        return self.count >= 2 and self.mean > errors * self.error and self.mean > 0.0


def margin(ours: Scores, theirs: Scores, num_folds: int = NUM_FOLDS) -> Margin:
    """The mean of paired differences and its standard error.

    Training sets of different folds overlap, so that differences d_1 .. d_n are no independent draws. Nadeau and Bengio
    (2003) correct for it: `error = sd(d) sqrt(1/n + n_test/n_train)`, with `n_test/n_train = 1 / (num_folds - 1)`. It
    does not go to zero with more repeats: they tell nothing of other labels.

    >>> found = margin({0: 0.8, 1: 0.7}, {0: 0.6, 1: 0.7, 2: 0.9})  # differences 0.2 and 0, times sqrt(1/2 + 1/4)
    >>> found.mean, round(found.error, 4), found.count
    (0.1, 0.1225, 2)
    """
    differences = [ours[fold] - theirs[fold] for fold in sorted({*ours} & {*theirs})]
    count = len(differences)
    if not count:
        return Margin(math.nan, math.inf, 0)
    deviation = statistics.stdev(differences) if count > 1 else math.inf
    error = deviation * math.sqrt(1.0 / count + 1.0 / (num_folds - 1))
    return Margin(round(statistics.fmean(differences), 12), error, count)


def stopped(curves: Mapping[int, Sequence[float]]) -> tuple[dict[int, float], int]:
    """The score of each fold where the other folds say that training should stop, and where all of them say so.

    A fold that chose its own stop would be too good. Looks are counted from 0; of equal ones the latest counts, since
    the last model has more examples to learn from.

    >>> stopped({0: [0.1, 0.9, 0.5], 1: [0.2, 0.3, 0.8]})
    ({0: 0.5, 1: 0.3}, 2)
    """
    scores = {}
    for fold, curve in curves.items():
        others = [other for name, other in curves.items() if name != fold]
        scores[fold] = curve[_best_look(others) if others else len(curve) - 1]
    return scores, _best_look(list(curves.values()))


def _best_look(curves: Sequence[Sequence[float]]) -> int:
    means = [statistics.fmean(looks) for looks in zip(*curves, strict=True)]
    return max(range(len(means)), key=lambda look: (round(means[look], 12), look))


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


@dataclass(frozen=True)
class Choice:
    """The winner, the best of the target alone, and the sentence that says why.

    `margins` are those of every candidate over the best of the target alone.
    """

    winner: str
    target_only: str | None
    why: str
    margins: Mapping[str, Margin]

    @property
    def sources_help(self) -> bool:
        """Whether sources have earned their place."""
        return self.winner != self.target_only


def best_alone(standings: Sequence[Standing]) -> Standing | None:
    """The best candidate without sources: the simplest, which is the first, unless others are ahead of it by enough."""
    alone = [standing for standing in _ready(standings) if not standing.uses_sources]
    if not alone:
        return None
    simplest, *others = alone
    ahead = [one for one in others if margin(one.scores, simplest.scores).exceeds(one.margin_needed)]
    return max(ahead, key=lambda standing: _lead(standing, simplest), default=simplest)


def choose(standings: Sequence[Standing]) -> Choice | None:
    """The choice among candidates, from simple to complex; None if nothing has been measured.

    The best of the target alone is kept, unless a candidate with sources is ahead of it by more than its margin, in
    standard errors of the paired difference; of those that are, the one that is ahead by most.
    """
    alone = best_alone(standings)
    helped = [standing for standing in _ready(standings) if standing.uses_sources]
    if alone is None:
        if not helped:
            return None
        best = max(helped, key=lambda standing: statistics.fmean(standing.scores.values()))
        return Choice(best.name, None, "nothing was measured of the target alone.", {})
    margins = {standing.name: margin(standing.scores, alone.scores) for standing in standings}
    earned = [standing for standing in helped if margins[standing.name].exceeds(standing.margin_needed)]
    if earned:
        best = max(earned, key=lambda standing: margins[standing.name].mean)
        found = margins[best.name]
        evidence = "the ranking calls them helpful, and " if best.trusted else ""
        why = (
            f"the sources earn their place: {evidence}it is ahead of the best model of the target alone "
            f"('{alone.name}') by {found.mean:.3f} ± {found.error:.3f} on {found.count} folds."
        )
        return Choice(best.name, alone.name, why, margins)
    return Choice(alone.name, alone.name, _why_alone(alone, helped, margins), margins)


def _why_alone(alone: Standing, helped: Sequence[Standing], margins: Mapping[str, Margin]) -> str:
    if not helped:
        return f"no candidate with sources was measured: '{alone.name}' learns from the target's labels alone."
    nearest = max(helped, key=lambda standing: margins[standing.name].mean)
    found = margins[nearest.name]
    asked = f", where more than {nearest.margin_needed:g} standard error{'s' * (nearest.margin_needed != 1)} are asked"
    return (
        f"the sources do not help enough to earn a place: the best candidate with them ('{nearest.name}') differs from "
        f"the best model of the target alone ('{alone.name}') by {found.mean:+.3f} ± {found.error:.3f} on "
        f"{found.count} folds{asked if found.mean > 0 else ''}."
    )


def better_half(standings: Sequence[Standing], least: int = 2) -> list[str]:
    """Names of the better half, by the lead over the best of the target alone, which is always among them.

    The best candidate with sources is among them too: those two are what the choice is about.
    """
    alone = best_alone(standings)
    ready = _ready(standings)
    if alone is None or len(ready) <= least:
        return [standing.name for standing in ready]
    order = sorted(ready, key=lambda standing: -_lead(standing, alone))
    best_helped = [standing for standing in order if standing.uses_sources][:1]
    must = [alone, *best_helped]
    kept = must + [standing for standing in order if standing not in must]
    names = {standing.name for standing in kept[: max(least, math.ceil(len(ready) / 2))]}
    return [standing.name for standing in ready if standing.name in names]


def _ready(standings: Sequence[Standing]) -> list[Standing]:
    """Those that have been through enough folds; if none has, those that have been through most."""
    enough = min(FIRST_FOLDS, max((len(standing.scores) for standing in standings), default=0))
    return [standing for standing in standings if standing.scores and len(standing.scores) >= enough]


def _lead(ours: Standing, reference: Standing) -> float:
    """The mean lead over a reference on the folds that both have been through."""
    return margin(ours.scores, reference.scores).mean
