"""Tests for paired scores, as pure functions: is one method better than another over the same seeds?

Each takes the differences of the pairs. None stands for what the data cannot tell: fewer than two pairs have no test.
"""

import statistics
from collections.abc import Sequence

import numpy as np

DIGITS = 12
"""Decimals of a difference that count; 0.8 - 0.7 and 0.7 - 0.6 are meant to be a tie."""


def paired_t_test(differences: Sequence[float]) -> float | None:
    """Two-sided p-value of Student's t-test for a mean difference of zero, with n - 1 degrees of freedom.

    It is 1 when all differences are zero, and None when all are equal to another value: without any deviation the test
    is not defined.

    >>> round(paired_t_test([1.0, 2.0, 3.0]), 4), paired_t_test([0.0, 0.0]), paired_t_test([0.5, 0.5])
    (0.0742, 1.0, None)
    """
    from scipy.stats import ttest_1samp

    values = _rounded(differences)
    if len(values) < 2:
        return None
    if not any(values):
        return 1.0
    if statistics.stdev(values) <= 1e-9 * abs(statistics.fmean(values)):
        return None
    return float(ttest_1samp(values, 0.0).pvalue)


def signed_rank_test(differences: Sequence[float]) -> float | None:
    """Two-sided p-value of Wilcoxon's signed-rank test, exact also with ties.

    Zeros are left out, ties share their mean rank, and all 2^n sign patterns of the ranks are equally likely. The
    p-value is twice the fraction of those whose sum of positive ranks is as extreme on its side as the observed one; so
    n pairs never give less than 2^(1 - n).

    >>> signed_rank_test([1.0, 2.0, 3.0, 4.0, 5.0]), signed_rank_test([1.0, -1.0]), signed_rank_test([1.0])
    (0.0625, 1.0, None)
    """
    from scipy.stats import rankdata

    values = np.array(_rounded(differences))
    if len(values) < 2:
        return None
    signed = values[values != 0]
    if not signed.size:
        return 1.0
    # scipy.stats.wilcoxon has no exact p-value with ties but by PermutationMethod, which goes through all patterns: 71
    # s for 19 pairs, where adding one rank after the other takes 0.2 ms.
    doubled = np.rint(2 * rankdata(np.abs(signed))).astype(int)  # mean ranks are halves at worst
    fractions = np.zeros(doubled.sum() + 1)  # of sign patterns, by their sum of positive ranks
    fractions[0] = 1.0
    for rank in doubled:
        fractions[rank:] = (fractions[rank:] + fractions[: len(fractions) - rank]) / 2
        fractions[:rank] /= 2
    observed = doubled[signed > 0].sum()
    tail = min(fractions[: observed + 1].sum(), fractions[observed:].sum())
    return float(min(1.0, 2.0 * tail))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values corrected for their number by Holm's step-down method; None stays None and does not count.

    With m values in rising order, the k-th becomes max over j <= k of (m - j + 1) p_j, at most 1.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    order: list[tuple[float, int]] = []
    for i, value in enumerate(p_values):
        if value is not None:
            order.append((value, i))
    order.sort()
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for position, (p_value, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - position) * p_value))
        corrected[i] = largest
    return corrected


def _rounded(differences: Sequence[float]) -> list[float]:
    return [round(float(value), DIGITS) for value in differences]
