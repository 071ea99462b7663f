"""Average ranks of methods over targets, and by how much two must differ (Friedman and Nemenyi, as in Demsar 2006)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.05
Scores = Mapping[str, float]
"""By method."""


@dataclass(frozen=True)
class Ranking:
    """Ranks of k methods on N targets: 1 is the best, ties share their mean rank.

    - `ranks`: the average over targets, by method, best first;
    - `critical_difference`: two methods whose average ranks differ by less are not told apart,
      `q sqrt(k (k + 1) / (6 N))`, where q is the studentized range of k means over the square root of two;
    - `p`: of Friedman's test that all methods are alike; None where there is nothing to test.
    """

    ranks: Scores
    num_targets: int
    critical_difference: float
    p: float | None

    @classmethod
    def of(cls, by_target: Mapping[str, Sequence[Scores]]) -> "Ranking | None":
        """From the scores of each target, of every number of labels; methods that one of them lacks are left out.

        Numbers of labels of one target are not independent: their ranks are averaged first.

        >>> scores = {"one": [{"a": 3.0, "b": 1.0}], "two": [{"a": 2.0, "b": 2.0}]}
        >>> dict(Ranking.of(scores).ranks)
        {'a': 1.25, 'b': 1.75}
        """
        methods = _common_methods(by_target)
        if len(methods) < 2:
            return None
        rows = []
        for settings in by_target.values():
            rows.append(np.mean([_ranks([scores[name] for name in methods]) for scores in settings], axis=0))
        table = np.array(rows)  # [targets, methods]
        means = dict(zip(methods, table.mean(axis=0).tolist(), strict=True))
        return cls(
            {name: means[name] for name in sorted(means, key=means.__getitem__)},
            len(table),
            critical_difference(len(methods), len(table)),
            friedman_test(table),
        )

    @property
    def best(self) -> list[str]:
        """The best method, and those that are not told apart from it."""
        lowest = min(self.ranks.values())
        return [name for name, rank in self.ranks.items() if rank - lowest <= self.critical_difference]


def critical_difference(num_methods: int, num_targets: int) -> float:
    """Of average ranks, at 5%.

    >>> round(critical_difference(5, 30), 2)
    1.11
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - LEVEL, num_methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(num_methods * (num_methods + 1) / (6 * num_targets))


def friedman_test(ranks: np.ndarray) -> float | None:
    """P-value that all columns of [targets, methods] are alike, by the F distribution (Iman and Davenport 1980).

    None for one target, and for ranks that are the same on all.
    """
    from scipy.stats import f

    num_targets, num_methods = ranks.shape
    if num_targets < 2:
        return None
    spread = ((ranks.mean(axis=0) - (num_methods + 1) / 2) ** 2).sum()
    statistic = 12 * num_targets / (num_methods * (num_methods + 1)) * spread
    rest = num_targets * (num_methods - 1) - statistic
    if rest <= 1e-9:
        return None
    freedom = num_methods - 1
    return float(f.sf((num_targets - 1) * statistic / rest, freedom, freedom * (num_targets - 1)))


def _ranks(scores: Sequence[float]) -> np.ndarray:
    from scipy.stats import rankdata

    return rankdata([-score for score in scores])


def _common_methods(by_target: Mapping[str, Sequence[Scores]]) -> list[str]:
    """The methods that every target has, in order of appearance."""
    all_scores = [scores for settings in by_target.values() for scores in settings]
    if not all_scores:
        return []
    return [name for name in all_scores[0] if all(name in scores for scores in all_scores)]
