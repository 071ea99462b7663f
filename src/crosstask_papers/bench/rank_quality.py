"""How good a ranking of sources is for somebody who takes the first of them, or the first three. Pure functions.

Scores of sources stand beside the gains that were measured with them, by the name of the source. Sources with the same
score come in any order; a figure is then the mean over all orders, so that equal scores for all are chance.

| figure | of a ranking | good |
|---|---|---|
| `regret` | points lost by taking the best of its first k sources, not of all | 0 |
| `ndcg` | gains in its order, discounted by place, next to the best order | 1 |
| `rank_correlation` | Spearman's correlation of scores and gains | 1 |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from crosstask.data.metrics import spearman

Scores = Mapping[str, float]
"""Of each source; the higher, the sooner it is taken."""
Gains = Mapping[str, float]
"""Points with a source over the target alone."""
ByTarget = Mapping[str, Sequence["Ranked"]]
"""Rankings of each target, one for each sample of its labels."""


@dataclass(frozen=True)
class Ranked:
    """The sources of one target: their scores by one ranking, and their gains."""

    scores: Scores
    gains: Gains


@dataclass(frozen=True)
class Quality:
    """Figures of a score: of one ranking, or means over many; None where there is no such figure."""

    regret_1: float
    regret_3: float
    ndcg: float | None
    correlation: float | None

    @classmethod
    def of(cls, scores: Scores, gains: Gains) -> "Quality":
        """Of one ranking."""
        return cls(
            regret(scores, gains, 1), regret(scores, gains, 3), ndcg(scores, gains), rank_correlation(scores, gains)
        )

    @classmethod
    def mean(cls, qualities: Sequence["Quality"]) -> "Quality":
        """Figure by figure, over those that have it."""
        return cls(
            fmean(quality.regret_1 for quality in qualities),
            fmean(quality.regret_3 for quality in qualities),
            _mean([quality.ndcg for quality in qualities]),
            _mean([quality.correlation for quality in qualities]),
        )


def regret(scores: Scores, gains: Gains, k: int) -> float:
    """Points that are lost by measuring the first k sources alone and taking the best (Poth et al. 2021).

        regret@k = max of g_s over all sources - max of g_s over the k sources with the highest scores

    - `g_s`: `gains[s]`.

    At least 0, and 0 is perfect. The paper divides by the best score, in percent; ours is in points of the metric.
    Where scores are equal at the k-th place, each choice among these sources is as likely: with m places left for n
    gains in rising order, the best of the chosen is the i-th with probability C(i - 1, m - 1) / C(n, m).

    >>> gains = {"a": 5.0, "b": 1.0, "c": 3.0}
    >>> regret({"a": 0.1, "b": 0.9, "c": 0.5}, gains, 1), regret({"a": 0.1, "b": 0.9, "c": 0.5}, gains, 2)
    (4.0, 2.0)
    >>> regret({"a": 0.0, "b": 0.0, "c": 0.0}, gains, 1)  # chance
    2.0
    """
    best = -math.inf
    places = k
    for names in _tied(scores):
        values = sorted(gains[name] for name in names)
        if len(values) < places:
            best = max(best, values[-1])
            places -= len(values)
            continue
        # The last places go to some of these.
        expected = 0.0
        num_choices = math.comb(len(values), places)
        for i, value in enumerate(values, 1):
            expected += math.comb(i - 1, places - 1) / num_choices * max(best, value)
        return max(gains.values()) - expected
    return max(gains.values()) - best


def ndcg(scores: Scores, gains: Gains) -> float | None:
    """Normalized discounted cumulative gain: 1 for the best order (Jarvelin and Kekalainen 2002).

        nDCG = DCG(order by scores) / DCG(order by gains),   DCG = sum_i r_i / log2(i + 1)
        r_s = (g_s - min g) / (max g - min g)

    - `r_i`: the relevance of the source in the i-th place, from 0 for the worst of the target to 1 for the best, since
      gains can be negative;
    - `g_s`: `gains[s]`.

    Sources with equal scores share the mean of their relevances. None where all gains are the same.

    >>> round(ndcg({"a": 2.0, "b": 1.0}, {"a": 0.0, "b": 4.0}), 4)  # the best in the second place: 1 / log2(3)
    0.6309
    """
    least, most = min(gains.values()), max(gains.values())
    if least == most:
        return None
    relevances = {name: (gain - least) / (most - least) for name, gain in gains.items()}
    total, place = 0.0, 1
    for names in _tied(scores):
        mean_relevance = fmean(relevances[name] for name in names)
        for _ in names:
            total += mean_relevance / math.log2(place + 1)
            place += 1
    ideal = 0.0
    for place, relevance in enumerate(sorted(relevances.values(), reverse=True), 1):
        ideal += relevance / math.log2(place + 1)
    return total / ideal


def rank_correlation(scores: Scores, gains: Gains) -> float | None:
    """Spearman's correlation; None where scores or gains are all the same.

    >>> rank_correlation({"a": 2.0, "b": 1.0}, {"a": 0.0, "b": 4.0})
    -1.0
    """
    names = list(scores)
    if len(set(scores.values())) < 2 or len({gains[name] for name in names}) < 2:
        return None
    return spearman([gains[name] for name in names], [scores[name] for name in names])


def _tied(scores: Scores) -> list[list[str]]:
    """Sources with the same score together, the highest scores first."""
    by_score: dict[float, list[str]] = {}
    for name, score in scores.items():
        by_score.setdefault(score, []).append(name)
    return [by_score[score] for score in sorted(by_score, reverse=True)]


def quality_by_target(rankings: ByTarget) -> dict[str, Quality]:
    """Of each target the mean over its rankings: samples of its labels are not independent of one another."""
    by_target: dict[str, Quality] = {}
    for target, ranked in rankings.items():
        if ranked:
            by_target[target] = Quality.mean([Quality.of(one.scores, one.gains) for one in ranked])
    return by_target


def chosen_score(qualities: Mapping[str, Mapping[str, Quality]], left_out: str) -> str | None:
    """The score that was best on all suites but one: leave-one-suite-out.

    Best is the highest mean nDCG over these suites, which counts every suite the same whatever its points; of two that
    are equal, the one with the lower regret@1.

    Args:
        qualities: by score and suite. A score that one of the suites lacks is no candidate.
        left_out: the suite that has no say.
    """
    suites = {suite for by_suite in qualities.values() for suite in by_suite} - {left_out}
    if not suites:
        return None
    merits: dict[str, tuple[float, float]] = {}
    for name, by_suite in qualities.items():
        values = [by_suite[suite].ndcg for suite in suites if suite in by_suite]
        known_values = [value for value in values if value is not None]
        if len(known_values) == len(suites):
            merits[name] = fmean(known_values), -fmean(by_suite[suite].regret_1 for suite in suites)
    return max(merits, key=merits.__getitem__, default=None)


def _mean(values: Sequence[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return fmean(known_values) if known_values else None
