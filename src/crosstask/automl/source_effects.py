"""What sources brought, as far as it was measured: candidates with them beside the same without, on common folds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crosstask.automl.candidates import Candidate
from crosstask.automl.leads import interval_of_few
from crosstask.automl.prior import ALONE
from crosstask.automl.standings import (
    FIRST_FOLDS,
    Standing,
    common_variance,
    fold_deviation,
    leads_over,
    margin,
    squared_error,
)
from crosstask.automl.wording import ahead, likely, quoted


@dataclass(frozen=True)
class SourceEffect:
    """What a candidate is ahead of another one by that differs from it in its sources alone.

    - `sources`: those that the other one does not have;
    - `mean`, `error`: of the difference over the folds that both have been through, higher being better.
    """

    candidate: str
    without: str
    sources: tuple[str, ...]
    mean: float
    error: float
    folds: int

    @property
    def interval(self) -> tuple[float, float]:
        """In which the difference lies four times of five."""
        return interval_of_few(self.mean, self.error, self.folds)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "candidate": self.candidate,
            "without": self.without,
            "sources": list(self.sources),
            "difference": self.mean,
            "interval": list(self.interval),
            "folds": self.folds,
        }


def source_effects(
    candidates: Sequence[Candidate], standings: Sequence[Standing], base: str, floor: float
) -> list[SourceEffect]:
    """Of every candidate with sources: against what is left of it without them, and against one with fewer of them.

    Args:
        candidates: of one search.
        standings: of the same, with their scores.
        base: name of the candidate that gains are over.
        floor: the least deviation of a difference in one fold.
    """
    scores = {standing.name: standing.scores for standing in standings}
    common = common_variance(leads_over(standings, base), base, floor)
    effects: list[SourceEffect] = []
    for candidate in candidates:
        for other in candidates:
            sources = tuple(name for name in candidate.sources if name not in other.sources)
            if not sources or not _is_rest_of(other, candidate):
                continue
            difference = margin(scores[candidate.name], scores[other.name])
            if difference.count >= FIRST_FOLDS:
                error = math.sqrt(squared_error(difference, fold_deviation(difference, common, floor)))
                effect = SourceEffect(candidate.name, other.name, sources, difference.mean, error, difference.count)
                effects.append(effect)
    return effects


def _is_rest_of(other: Candidate, candidate: Candidate) -> bool:
    """Whether it is the same method with fewer sources, or what the method is without any."""
    if other.level != candidate.level:
        return False
    if other.sources:
        return other.prior_name == candidate.prior_name
    return other.prior_name == ALONE.get(candidate.prior_name)


def sources_sentence(effects: Sequence[SourceEffect], candidate: str | None, in_points: bool) -> str:
    """What the sources of this candidate brought; empty where that was not measured.

    >>> effect = SourceEffect("stacking", "probe", ("left", "up"), mean=0.031, error=0.02, folds=5)
    >>> sources_sentence([effect], "stacking", in_points=True).partition(" (")[0]
    "With 'left' and 'up' 'stacking' was 3.1 points ahead of 'probe', which goes without them"
    """
    of_candidate = [effect for effect in effects if effect.candidate == candidate]
    if not of_candidate:
        return ""
    effect = max(of_candidate, key=lambda effect: len(effect.sources))
    them = "it" if len(effect.sources) == 1 else "them"
    text = (
        f"With {quoted(effect.sources)} '{effect.candidate}' was {ahead(effect.mean, in_points)} "
        f"'{effect.without}', which goes without {them} ({likely(effect.interval, in_points)}, on {effect.folds} folds)"
    )
    if len(effect.sources) == 1:
        return f"{text}."
    return f"{text}; they learned together, so that no fold tells what each of them brought."
