"""By how much the winner should be ahead of the other candidates, and how sure that is. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crosstask.automl.posterior import joint_gains
from crosstask.automl.standings import COMMON_FOLDS, LEVEL, Standing
from crosstask.automl.wording import amount, likely

MAX_LEADS = 2
"""Candidates that the sentence is about."""


@dataclass(frozen=True)
class Lead:
    """What the winner is expected to be ahead of another candidate by.

    - `mean`, `deviation`: of what is expected, as of a `Gain`;
    - `folds`: that both have been through.
    """

    candidate: str
    mean: float
    deviation: float
    folds: int

    @property
    def interval(self) -> tuple[float, float]:
        """In which the lead lies with the probability `LEVEL`."""
        return interval_of_few(self.mean, self.deviation, self.folds)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"candidate": self.candidate, "lead": self.mean, "interval": list(self.interval), "folds": self.folds}


def interval_of_few(mean: float, deviation: float, folds: int) -> tuple[float, float]:
    """With the probability `LEVEL`, by Student's t: a deviation as `standings.fold_deviation` gives it is a guess too.

    >>> low, high = interval_of_few(0.02, 0.01, folds=3)  # 5 degrees of freedom: 1.4759 deviations
    >>> round(low, 4), round(high, 4)
    (0.0052, 0.0348)
    """
    from scipy.stats import t

    margin = float(t.ppf(0.5 + LEVEL / 2.0, folds - 1 + COMMON_FOLDS)) * deviation
    return mean - margin, mean + margin


def leads_of(winner: str, standings: Sequence[Standing], base: str, floor: float) -> list[Lead]:
    """The lead of the winner over every other candidate that was measured, the nearest first.

    Args:
        winner: name of the candidate that was chosen.
        standings: of all candidates.
        base: name of the candidate that gains are over.
        floor: the least deviation of a difference in one fold.
    """
    joint = joint_gains(standings, base, floor)
    scores = {standing.name: standing.scores for standing in standings}
    leads: list[Lead] = []
    for name in scores:
        num_folds = len(scores[winner].keys() & scores[name].keys())
        if name != winner and num_folds:
            lead = joint.lead(winner, name)
            leads.append(Lead(name, lead.mean, lead.deviation, num_folds))
    return sorted(leads, key=lambda lead: lead.mean)


def lead_sentence(leads: Sequence[Lead], in_points: bool) -> str:
    """On the nearest candidates; empty where no other one was measured.

    >>> lead_sentence([Lead("stacking", 0.004, 0.01, 5)], in_points=True)
    "It should be ahead of 'stacking' by +0.4 points (80%: -1.0 to +1.8)."
    """
    texts: list[str] = []
    for lead in leads[:MAX_LEADS]:
        texts.append(f"of '{lead.candidate}' by {amount(lead.mean, in_points)} ({likely(lead.interval, in_points)})")
    if not texts:
        return ""
    return f"It should be ahead {' and '.join(texts)}."
