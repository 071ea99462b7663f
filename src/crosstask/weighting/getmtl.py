"""A step near the mean gradient, corrected towards the task that the mean serves worst."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.gradients.simplex import min_norm_point
from crosstask.papers import GETMTL, Paper
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task
from crosstask.weighting.validation import check_count, check_number

MAX_EPS_NORM = 0.5
"""Bound of eps |g_0|: at 1 the direction is infinite, beyond it the sign changes."""
MIN_RELATIVE_NORM = 1e-3
"""A mixture shorter than this, relative to the longest of its vectors, counts as zero: it has no direction."""


def worst_mixture(gram: Tensor, mean_products: Tensor, penalty: float) -> tuple[Tensor, float]:
    """Weights w on the simplex that minimize `mean_products . w + penalty |g_w|` (eq. 14), and `|g_w|`, or 0 if small.

    `gram` holds the products of the vectors that g_w mixes, `mean_products` their products with g_0. For a fixed norm s
    of the mixture, `penalty |g_w| <= penalty (|g_w|^2 / s + s) / 2` makes a quadratic problem of it: the minimum-norm
    point of the vectors `g_i + (s / penalty) g_0`. The s we need equals the norm of its own solution. Below
    it the norm is larger than s and above it smaller, so that bracketing finds it.

    >>> weights, norm = worst_mixture(torch.eye(2), torch.tensor([0.0, 0.0]), penalty=1.0)
    >>> weights.tolist(), round(norm, 6)
    ([0.5, 0.5], 0.707107)
    """
    gram, mean_products = gram.double(), mean_products.double()
    max_norm = math.sqrt(max(float(gram.diagonal().max()), 0.0))
    if max_norm == 0.0 or penalty <= 0.0:
        weights = torch.zeros(len(gram), dtype=torch.float64)
        weights[int(mean_products.argmin())] = 1.0
        return weights, _norm(gram, weights)

    def solve(norm: float) -> tuple[Tensor, float]:
        """The quadratic problem for this s, and by how much the norm of its solution exceeds s."""
        tilt = norm / penalty * mean_products
        # Any constant may be added on the simplex; this one keeps the diagonal positive and the entries small.
        weights = min_norm_point(gram + tilt + tilt[:, None] + 2.0 * tilt.abs().max())
        return weights, _norm(gram, weights) - norm

    # 1. Bracket s.
    low, high = MIN_RELATIVE_NORM * max_norm, max_norm
    (at_low, excess_low), (at_high, excess_high) = solve(low), solve(high)
    if excess_low <= 0.0:
        return at_low, 0.0
    # 2. If an end of the bracket mixes the right vectors, the solution on these is known in closed form.
    for weights in (at_low, at_high):
        exact = _on_support(gram, mean_products, penalty, weights)
        if exact is not None:
            return exact
    # 3. The secant, with the end that stays halved in weight (Illinois): as safe as bisection and much faster.
    middle = high
    while high - low > 1e-12 * max_norm and excess_high < 0.0:
        fraction = excess_low / (excess_low - excess_high)
        middle = low + (high - low) * min(max(fraction, 1e-2), 1.0 - 1e-2)
        weights, excess = solve(middle)
        exact = _on_support(gram, mean_products, penalty, weights)
        if exact is not None:
            return exact
        if excess > 0.0:
            low, excess_low, excess_high = middle, excess, excess_high / 2.0
        else:
            high, excess_high, excess_low = middle, excess, excess_low / 2.0
    return weights, middle


def _norm(gram: Tensor, weights: Tensor) -> float:
    return math.sqrt(max(float(weights @ gram @ weights), 0.0))


def _on_support(gram: Tensor, mean_products: Tensor, penalty: float, weights: Tensor) -> tuple[Tensor, float] | None:
    """The solution in closed form if it mixes the same vectors as `weights`, and None otherwise.

    There `mean_products + penalty G w / |g_w| = level` for every vector that counts; with y = w / |g_w|, whose mixture
    has norm 1, that is a linear system for y given the level, and `y'Gy = 1` a quadratic equation for the level.
    """
    support = (weights > 1e-9).nonzero()[:, 0]
    right = torch.stack([torch.ones(len(support), dtype=torch.float64), mean_products[support]], 1)
    solved, failed = torch.linalg.solve_ex(gram[support][:, support], right)
    quadratic = right.T @ solved  # [2, 2]: the coefficients of the equation for the level
    a, c, e = float(quadratic[0, 0]), float(quadratic[0, 1]), float(quadratic[1, 1])
    discriminant = c * c - a * (e - penalty * penalty)
    if failed or not (a > 0.0 and discriminant > 0.0):
        return None
    level = (c + math.sqrt(discriminant)) / a
    y = (level * solved[:, 0] - solved[:, 1]) / penalty
    if not (torch.isfinite(y).all() and y.min() >= 0.0 and y.sum() > 0.0):
        return None
    candidate = torch.zeros_like(weights)
    candidate[support] = y / y.sum()
    norm = _norm(gram, candidate)
    if norm <= 0.0:
        return None
    # The gap is zero exactly at the optimum: no other vector would lower the objective.
    gradient = mean_products + penalty * (gram @ candidate) / norm
    gap = float(candidate @ gradient - gradient.min())
    tolerance = 1e-10 * (float(gradient.abs().max()) + penalty * norm)
    if gap > tolerance:
        return None
    return candidate, norm


def getmtl_coefficients(gram: Tensor, eps: float) -> Tensor:
    """What each task's gradient counts in the direction of eq. 13.

    >>> getmtl_coefficients(torch.eye(2), eps=0.1).round(decimals=4).tolist()  # (0.5 + 0.05 * sqrt(0.5)) / (1 - 0.005)
    [0.538, 0.538]
    """
    gram = gram.double()
    size = len(gram)
    beta = min_norm_point(gram)  # [tasks]
    mean_square = max(float(gram.mean()), 0.0)  # |g_0|^2
    mean = torch.full((size,), 1.0 / size, dtype=torch.float64)
    if mean_square == 0.0:
        return mean
    eps = min(eps, MAX_EPS_NORM / math.sqrt(mean_square))
    # The vectors that g_w mixes are beta_t g_t.
    weights, norm = worst_mixture(gram * beta * beta[:, None], beta * gram.mean(0), eps * mean_square)
    direction = mean
    if norm > 0.0:
        direction = mean + eps * mean_square / norm * weights * beta
    return direction / (1.0 - eps**2 * mean_square)


class GetMTL(Weighting):
    """The mean gradient, corrected a little towards the task that it serves worst.

    The direction is (Chai et al. 2023, eq. 13)

        d = (g_0 + eps |g_0|^2 g_w / |g_w|) / (1 - eps^2 |g_0|^2),      g_w = sum_t w_t beta_t g_t,

    where w on the simplex minimizes `g_0 . g_w + eps |g_0|^2 |g_w|` (eq. 14).

    - `g_t`: the gradient of task t on the shared parameters, `g_0` their mean; their products are `gram`;
    - `beta_t`: the weights of the minimum-norm point (eq. 5), those of `MGDA`;
    - `weights[t]`: what g_t counts in d, which is never negative.

    In the code: eq. 5 is `simplex.min_norm_point`, eq. 14 `worst_mixture`, eq. 13 `getmtl_coefficients`, as printed.

    Args:
        eps: how far d may go from the mean gradient; 0.0075 for Amazon reviews, 0.025 for newsgroups. It has the unit
            of one over a gradient, so what it means depends on the scale of the losses.
        every: steps from one inspection of gradients to the next; 1 in the paper. In between, heads are weighted too.

    Differs from the paper: beta and w are exact; `eps |g_0|` is at most 0.5 (from 1 on the formula changes its sign);
    where the best g_w is zero and has no direction, d is the first term alone (so it is when
    some beta_t is zero and g_0 conflicts with no task). `g_0` is the mean, as in the text; Algorithm 1 there has a sum.
    The authors' code differs from their paper (another objective, a softmax over w); we follow the paper, but leave the
    heads unweighted as the code does.

    Needs each task in each step; absent tasks keep their weights. An inspection costs a backward pass per task, hardly
    more than one of their sum, and about a millisecond for w.

    >>> weighting = GetMTL(eps=0.1, tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(2))
    >>> weighting.backward({"a": parameter[0], "b": parameter[1]}, shared=[parameter])
    >>> {task: round(weight, 4) for task, weight in weighting.weights.items()}  # (0.5 + 0.05 * sqrt(0.5)) / (1 - 0.005)
    {'a': 0.538, 'b': 0.538}
    """

    name: ClassVar[str] = "getmtl"
    summary: ClassVar[str] = "the mean gradient, corrected a little towards the task that it serves worst"
    paper: ClassVar[Paper | None] = GETMTL
    weighs_heads: ClassVar[bool] = False
    inspects: ClassVar[Need] = Need.GRADIENTS | Need.PRODUCTS | Need.EVERY_TASK

    def __init__(
        self,
        *,
        eps: float = 0.0075,
        every: int = 1,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.eps = check_number(self.name, "eps", eps, at_least=0.0)
        self.every = check_count(self.name, "every", every)
        super().__init__(tasks, target)

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The direction of this step."""
        return by_task(evidence.tasks, getmtl_coefficients(evidence.gram, self.eps))
