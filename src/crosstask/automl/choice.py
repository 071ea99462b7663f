"""Which candidate wins: that of which most is expected, given the folds. Pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crosstask.automl.posterior import posteriors
from crosstask.automl.standings import Gain, Standing, margin


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
