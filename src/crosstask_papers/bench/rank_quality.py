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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from crosstask.data.metrics import spearman

Scores = Mapping[str, float]
"""Of each source; the higher, the sooner it is taken."""
Gains = Mapping[str, float]
"""Points with a source over the target alone."""
ByTarget = Mapping[str, Sequence["Ranked"]]
"""Rankings of each target, one for each sample of its labels."""
QualityByScore = Mapping[str, Mapping[str, "Quality"]]
"""By score and suite, or group of suites."""
CHANCE, OTHER_SAMPLES = "any order", "gains of other samples"
"""References that are no scores."""


@dataclass(frozen=True)
class Ranked:
    """The sources of one target: their scores by one ranking, and their gains."""

    scores: Scores
    gains: Gains


@dataclass(frozen=True)
class Quality:
    """Figures of a score: of one ranking, or means over many; None where there is no such figure.

    Where a target has no more than three sources, to try three says nothing.
    """

    regret_1: float
    regret_3: float | None
    ndcg: float | None
    correlation: float | None

    @classmethod
    def of(cls, scores: Scores, gains: Gains) -> "Quality":
        """Of one ranking."""
        regret_3 = regret(scores, gains, 3) if len(gains) > 3 else None
        return cls(regret(scores, gains, 1), regret_3, ndcg(scores, gains), rank_correlation(scores, gains))

    def regret(self, k: int) -> float | None:
        """With the first one or three sources."""
        return {1: self.regret_1, 3: self.regret_3}[k]

    @classmethod
    def mean(cls, qualities: Sequence["Quality"]) -> "Quality":
        """Figure by figure, over those that have it."""
        return cls(
            fmean(quality.regret_1 for quality in qualities),
            _mean([quality.regret_3 for quality in qualities]),
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

    >>> round(rank_correlation({"a": 2.0, "b": 1.0}, {"a": 0.0, "b": 4.0}), 6)
    -1.0
    """
    names = list(scores)
    if len(set(scores.values())) < 2 or len({gains[name] for name in names}) < 2:
        return None
    return spearman(np.array([gains[name] for name in names]), np.array([scores[name] for name in names]))


def _tied(scores: Scores) -> list[list[str]]:
    """Sources with the same score together, the highest scores first."""
    by_score: dict[float, list[str]] = {}
    for name, score in scores.items():
        by_score.setdefault(score, []).append(name)
    return [by_score[score] for score in sorted(by_score, reverse=True)]


def rankings_by_score(
    gains: Mapping[str, Gains], scored: Iterable[tuple[str, Mapping[str, Mapping[str, float | None]]]]
) -> dict[str, dict[str, list[Ranked]]]:
    """By name of a score and target, the rankings by it; sources whose gain was not measured have no part.

    A ranking in which a source has no such score is left out.

    Args:
        gains: by target and source.
        scored: a target, and by source all its scores by name; a pair for each sample of its labels.
    """
    by_score: dict[str, dict[str, list[Ranked]]] = {}
    for target, by_source in scored:
        measured = {source: gain for source, gain in gains.get(target, {}).items() if source in by_source}
        if len(measured) < 2:
            continue
        names = dict.fromkeys(name for source in measured for name in by_source[source])
        for name in names:
            scores: dict[str, float] = {}
            for source in measured:
                value = by_source[source].get(name)
                if value is not None:
                    scores[source] = value
            if len(scores) == len(measured):
                by_score.setdefault(name, {}).setdefault(target, []).append(Ranked(scores, measured))
    return by_score


def reference_rankings(gains: Mapping[str, Mapping[str, Mapping[int, float]]]) -> dict[str, dict[str, list[Ranked]]]:
    """What to compare a score with: any order, and the order of the gains themselves by other samples.

    The latter is what a perfect ranking would seem to be, for gains have noise: it is judged by the gains of a sample
    that had no part in it.

    Args:
        gains: by target, source and seed.
    """
    references: dict[str, dict[str, list[Ranked]]] = {CHANCE: {}, OTHER_SAMPLES: {}}
    for target, by_source in gains.items():
        if len(by_source) < 2:
            continue
        means = {source: fmean(by_seed.values()) for source, by_seed in by_source.items()}
        references[CHANCE][target] = [Ranked(dict.fromkeys(means, 0.0), means)]
        seeds = set.intersection(*(set(by_seed) for by_seed in by_source.values()))
        if len(seeds) < 2:
            continue
        references[OTHER_SAMPLES][target] = []
        for seed in sorted(seeds):
            others: dict[str, float] = {}
            for source, by_seed in by_source.items():
                others[source] = fmean(by_seed[other] for other in seeds if other != seed)
            judged = {source: by_seed[seed] for source, by_seed in by_source.items()}
            references[OTHER_SAMPLES][target].append(Ranked(others, judged))
    return references


def quality_by_target(rankings: ByTarget) -> dict[str, Quality]:
    """Of each target the mean over its rankings: samples of its labels are not independent of one another."""
    by_target: dict[str, Quality] = {}
    for target, ranked in rankings.items():
        if ranked:
            by_target[target] = Quality.mean([Quality.of(one.scores, one.gains) for one in ranked])
    return by_target


def chosen_score(qualities: QualityByScore, groups: Iterable[str]) -> str | None:
    """The score with the highest mean nDCG over these groups of suites, each of which counts the same.

    Points of different suites cannot be compared, nDCG can. Of two scores that are equal, the one with the lower mean
    regret@1.

    Args:
        qualities: by score and group. A score that one of the groups lacks is no candidate.
        groups: those that choose: for leave-one-suite-out all but one.
    """
    groups = list(groups)
    merits: dict[str, tuple[float, float]] = {}
    for name, by_group in qualities.items():
        if name in (CHANCE, OTHER_SAMPLES):
            continue
        values = [by_group[group].ndcg for group in groups if group in by_group]
        known_values = [value for value in values if value is not None]
        if groups and len(known_values) == len(groups):
            merits[name] = fmean(known_values), -fmean(by_group[group].regret_1 for group in groups)
    return max(merits, key=merits.__getitem__, default=None)


def _mean(values: Sequence[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return fmean(known_values) if known_values else None
