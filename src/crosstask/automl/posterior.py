"""The gains of candidates, given what was expected of them and what the folds say. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstask.automl.prior import Expectation
from crosstask.automl.standings import (
    FIRST_FOLDS,
    OVERLAP,
    Gain,
    Standing,
    common_variance,
    fold_deviation,
    leads_over,
    squared_error,
)
from crosstask.runs.estimate import Estimate

LIKE, UNLIKE = 0.85, 0.3
"""Correlation over targets of the gains of two candidates that both train the encoder, and of others: about what it is
on the bench, where a test measures it."""
COMMON = 0.6
"""Of the variance of a difference to the base in one fold, what all candidates have in common: the luck of the base,
and how hard the held-out examples are. So it was in sixteen searches."""


def posterior(expected: Expectation, lead: Estimate, deviation: float) -> Gain:
    """The gain over the base of one candidate by itself, given the folds.

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
    error_squared = squared_error(lead, deviation)
    precision = 1.0 / expected.deviation**2 + 1.0 / error_squared
    mean = (expected.gain / expected.deviation**2 + lead.mean / error_squared) / precision
    return Gain(mean, math.sqrt(1.0 / precision))


@dataclass(frozen=True, eq=False)
class JointGains:
    """The gains of several candidates over the base, a normal distribution.

    - `names`: of the candidates, the base among them; `means`: [candidates]; `covariance`: [candidates, candidates].
    """

    names: Sequence[str]
    means: np.ndarray
    covariance: np.ndarray

    def gain(self, name: str) -> Gain:
        """Of one candidate over the base."""
        index = self.names.index(name)
        return Gain(float(self.means[index]), math.sqrt(max(0.0, float(self.covariance[index, index]))))

    def lead(self, name: str, other: str) -> Gain:
        """Of one candidate over another."""
        contrast = np.zeros(len(self.names))
        contrast[self.names.index(name)] += 1.0
        contrast[self.names.index(other)] -= 1.0
        variance = float(contrast @ self.covariance @ contrast)
        return Gain(float(contrast @ self.means), math.sqrt(max(0.0, variance)))


def joint_gains(standings: Sequence[Standing], base: str, floor: float) -> JointGains:
    """The gains of all candidates at once: one tells of others like it, and a hard fold is hard for all of them.

        g ~ N(m, S)            S_ab = r_ab s_a s_b
        d_af = g_a + e_af      Cov(e_af, e_bh) = (1[f = h] + n_test / n_train) K_ab      K_ab = c_ab t_a t_b

    - g_a: gain of candidate a over the base; m_a, s_a: mean and deviation of what was expected of it; r_ab: `LIKE` for
      two that train the encoder, `UNLIKE` for others, 1 for a itself;
    - d_af: its difference to the base in fold f; t_a: the deviation of that, see `fold_deviation`; c_ab: `COMMON` for
      two candidates, 1 for a itself. With a single candidate this is `posterior`.

    Args:
        standings: of all candidates.
        base: name of the candidate that gains are over.
        floor: the least deviation of a difference in one fold; a few examples are never sure.
    """
    leads = leads_over(standings, base)
    common = common_variance(leads, base, floor)
    # 1. What was expected.
    learns = np.array([standing.learns for standing in standings])
    expected_means = np.array([standing.expected.gain for standing in standings])
    deviations = np.array([standing.expected.deviation for standing in standings])
    likeness = np.where(learns[:, None] & learns[None, :], LIKE, UNLIKE)
    np.fill_diagonal(likeness, 1.0)
    expected_covariance = likeness * np.outer(deviations, deviations)  # [candidates, candidates]
    # 2. What the folds say.
    base_scores = next((standing.scores for standing in standings if standing.name == base), {})
    rows: list[int] = []
    folds: list[int] = []
    differences: list[float] = []
    for index, standing in enumerate(standings):
        if standing.name != base:
            for fold in sorted(standing.scores.keys() & base_scores.keys()):
                rows.append(index)
                folds.append(fold)
                differences.append(standing.scores[fold] - base_scores[fold])
    names = [standing.name for standing in standings]
    if not rows:
        return JointGains(names, expected_means, expected_covariance)
    fold_deviations = np.array([fold_deviation(leads[name], common, floor) for name in names])
    shared = np.full((len(names), len(names)), COMMON)
    np.fill_diagonal(shared, 1.0)
    by_candidate = (shared * np.outer(fold_deviations, fold_deviations))[np.ix_(rows, rows)]
    is_same_fold = np.equal.outer(folds, folds)
    errors = (is_same_fold + OVERLAP) * by_candidate  # [differences, differences]
    # 3. Both together.
    of_differences = expected_covariance[:, rows]  # [candidates, differences]
    weights = np.linalg.solve(of_differences[rows] + errors, of_differences.T).T
    means = expected_means + weights @ (np.array(differences) - expected_means[rows])
    return JointGains(names, means, expected_covariance - weights @ of_differences.T)


def posteriors(standings: Sequence[Standing], base: str, floor: float) -> dict[str, Gain]:
    """The gain of every candidate over the base, which is one of them.

    One that scores as the base does on every fold gains nothing, whatever was expected: it is the same model, as
    stacking is where no source's answers tell anything. Arguments are those of `joint_gains`.
    """
    joint, leads = joint_gains(standings, base, floor), leads_over(standings, base)
    gains: dict[str, Gain] = {}
    for standing in standings:
        gain, lead = joint.gain(standing.name), leads[standing.name]
        if lead.count >= FIRST_FOLDS and lead.deviation == 0.0 and lead.mean == 0.0:
            gain = Gain(min(gain.mean, 0.0), gain.deviation)
        gains[standing.name] = gain
    return gains
