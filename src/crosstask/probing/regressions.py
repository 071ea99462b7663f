"""Penalized linear models of several designs and penalties at once: ridge, binary and multinomial logistic regression.

Each takes labels [subsets, rows, ...] and inverse penalties C, and gives weights and biases along the axes of the
designs, [subsets, penalties, outputs, axes + 1], in double precision.
"""

import torch
from torch import Tensor

from crosstask.gradients.inner_products import without_tf32
from crosstask.probing.designs import Designs
from crosstask.probing.newton import Problems, minimize

ABSENT_LOGIT = -20.0
"""Logit of a class that never occurs in training: all but impossible, and yet of finite loss."""
SINGLE_PRECISION = 1e-4
"""A tolerance from which on single precision will do."""


def ridge_regression(designs: Designs, labels: Tensor, inverse_penalties: Tensor) -> Tensor:
    """For labels [subsets, rows]: along principal axes every weight has a closed form of its own."""
    features, is_unit = designs.features[:, :, :-1], designs.features[:, :, -1]
    mean = (labels * is_unit).sum(1) / designs.counts  # [subsets]
    products = ((labels - mean[:, None]) * is_unit)[:, None] @ features  # [subsets, 1, axes]
    variances = features.square().sum(1)[:, None]  # [subsets, 1, axes]
    weights = products / (variances + 1.0 / inverse_penalties[:, None])  # [subsets, penalties, axes]
    biases = mean[:, None, None].expand(-1, len(inverse_penalties), -1)
    return torch.cat([weights, biases], 2)[:, :, None]


def binary_regressions(
    designs: Designs,
    labels: Tensor,
    inverse_penalties: Tensor,
    tolerance: float,
    weights: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """One model for each column of zeros and ones, [subsets, rows, columns]; the outputs are logits of a one.

    `weights` are what each unit counts in the loss of each column, [subsets, rows, columns]. Logits are added to
    `offsets`, [subsets, rows, columns], if there are any.
    """
    num_penalties, num_columns = len(inverse_penalties), labels.shape[2]
    weighted_labels, unit_weights = labels, None
    if weights is not None:
        weighted_labels = labels * weights
        unit_weights = weights.mT.repeat(1, num_penalties, 1)[:, :, None]  # [subsets, penalties * columns, 1, rows]
    moments = (weighted_labels.mT @ designs.features).repeat(1, num_penalties, 1)[:, :, None]
    by_problem = inverse_penalties.repeat_interleave(num_columns).expand(len(labels), -1)
    if offsets is not None:
        offsets = offsets.mT.repeat(1, num_penalties, 1)[:, :, None]  # [subsets, penalties * columns, 1, rows]
    # [subsets, penalties * columns, 1, axes + 1]
    solutions = _minimize(designs, moments, by_problem, tolerance, unit_weights, offsets)
    return solutions[:, :, 0].unflatten(1, (num_penalties, num_columns))


def softmax_regression(
    designs: Designs,
    labels: Tensor,
    inverse_penalties: Tensor,
    tolerance: float,
    weights: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """For classes as rows of zeros with a one, [subsets, rows, classes].

    `weights` are what each unit counts in the loss, [subsets, rows]. Logits are added to `offsets`,
    [subsets, rows, classes], if there are any. Without, classes that do not occur are all but impossible.
    """
    unit_weights = None
    if weights is not None:
        labels = labels * weights[:, :, None]
        unit_weights = weights[:, None, None]
    moments = (labels.mT @ designs.features)[:, None]  # [subsets, 1, classes, axes + 1]
    if offsets is not None:
        moments, offsets = moments.expand(-1, len(inverse_penalties), -1, -1), offsets.mT[:, None]
        offsets = offsets.expand(-1, len(inverse_penalties), -1, -1)
        by_problem = inverse_penalties.expand(len(labels), -1)
        return _minimize(designs, moments, by_problem, tolerance, unit_weights, offsets)
    is_present = moments[..., -1:] > 0.0  # [subsets, 1, classes, 1]
    num_present = is_present.sum(2, keepdim=True)
    # Two classes share one vector of weights, half of it each: half of its penalty.
    by_problem = inverse_penalties / torch.where(num_present == 2, 2.0, 1.0)[:, 0, 0]
    moments = moments.expand(-1, len(inverse_penalties), -1, -1)
    solutions = _minimize(designs, moments, by_problem, tolerance, unit_weights)
    # The same number added to all logits changes nothing; biases that occur have the mean zero.
    weights, biases = solutions[..., :-1] * is_present, solutions[..., -1:]
    biases = biases - (biases * is_present).sum(2, keepdim=True) / num_present
    return torch.cat([weights, torch.where(is_present, biases, ABSENT_LOGIT)], 3)


def _minimize(
    designs: Designs,
    moments: Tensor,
    inverse_penalties: Tensor,
    tolerance: float,
    unit_weights: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Solutions of the problems with these moments and inverse penalties, [subsets, problems]."""
    precision = torch.float64
    if tolerance >= SINGLE_PRECISION:
        precision = torch.float32
    counts = designs.counts[:, None]
    if unit_weights is not None:
        unit_weights = unit_weights * designs.features[:, None, None, :, -1]  # a row that is no unit counts nothing
        counts = unit_weights.sum((2, 3))
        unit_weights = unit_weights.to(precision)
    problems = Problems.of(
        designs.features.to(precision),
        moments.to(precision),
        inverse_penalties.to(precision),
        counts.to(precision),
        unit_weights,
        offsets if offsets is None else offsets.to(precision),
    )
    with without_tf32(problems.features):
        return minimize(problems, tolerance).double()
