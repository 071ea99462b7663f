"""A step near the mean gradient that is better for the task it serves worst."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.gradients.simplex import min_norm_point
from crosstask.papers import GETMTL, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import GradientWeighting

LARGEST = 0.5
"""The most that eps |g_0| may be: at 1 the direction has no end, beyond it the sign turns."""
NOTHING = 1e-3
"""A mixture shorter than this, next to the longest of its vectors, is as good as zero and has no direction."""


def worst_mixture(gram: Tensor, slopes: Tensor, pull: float) -> tuple[Tensor, float]:
    """Weights w on the simplex that minimise `slopes . w + pull |g_w|` (eq. 14), and `|g_w|`, or 0 if that is nothing.

    `gram` holds the products of the vectors that g_w mixes, `slopes` their products with g_0. With the length s of the
    mixture held fixed, `pull |g_w| <= pull (|g_w|^2 / s + s) / 2` makes a quadratic problem of it: the shortest mixture
    of the vectors `g_i + (s / pull) g_0`. The s that is wanted is where the mixture found has that very length, and on
    either side of it the length is on the other side of s, so that a root finder cannot miss.

    >>> weights, length = worst_mixture(torch.eye(2), torch.tensor([0.0, 0.0]), pull=1.0)
    >>> weights.tolist(), round(length, 6)
    ([0.5, 0.5], 0.707107)
    """
    gram, slopes = gram.double(), slopes.double()
    longest = math.sqrt(max(float(gram.diagonal().max()), 0.0))
    if longest == 0.0 or pull <= 0.0:
        weights = torch.zeros(len(gram), dtype=torch.float64)
        weights[int(slopes.argmin())] = 1.0
        return weights, _length(gram, weights)

    def mixture(length: float) -> tuple[Tensor, float]:
        tilt = length / pull * slopes
        # Any constant may be added on the simplex; this one keeps the diagonal positive and the entries small.
        weights = min_norm_point(gram + tilt + tilt[:, None] + 2.0 * tilt.abs().max())
        return weights, _length(gram, weights) - length

    low, high = NOTHING * longest, longest
    (at_low, above), (at_high, below) = mixture(low), mixture(high)
    if above <= 0.0:
        return at_low, 0.0
    for weights in (at_low, at_high):
        exact = _on_support(gram, slopes, pull, weights)
        if exact is not None:
            return exact
    middle = high
    while high - low > 1e-12 * longest and below < 0.0:
        # The secant, with the end that stays halved in weight (Illinois): as safe as bisection and much faster.
        middle = low + (high - low) * min(max(above / (above - below), 1e-2), 1.0 - 1e-2)
        weights, excess = mixture(middle)
        exact = _on_support(gram, slopes, pull, weights)
        if exact is not None:
            return exact
        if excess > 0.0:
            low, above, below = middle, excess, below / 2.0
        else:
            high, below, above = middle, excess, above / 2.0
    return weights, middle


def _length(gram: Tensor, weights: Tensor) -> float:
    return math.sqrt(max(float(weights @ gram @ weights), 0.0))


def _on_support(gram: Tensor, slopes: Tensor, pull: float, weights: Tensor) -> tuple[Tensor, float] | None:
    """The solution in closed form if it lies on the same vectors as `weights`, and None otherwise.

    There `slopes + pull G w / |g_w| = level` for every vector that counts; with y = w / |g_w|, whose mixture has length
    1, that is a linear system for y given the level, and `y'Gy = 1` a quadratic equation for the level.
    """
    members = (weights > 1e-9).nonzero()[:, 0]
    inner = gram[members][:, members]
    right = torch.stack([torch.ones(len(members), dtype=torch.float64), slopes[members]], 1)
    solved, failed = torch.linalg.solve_ex(inner, right)
    a, c, e = (float(right[:, i] @ solved[:, j]) for i, j in ((0, 0), (0, 1), (1, 1)))
    inside = c * c - a * (e - pull * pull)
    if failed or not (a > 0.0 and inside > 0.0):
        return None
    level = (c + math.sqrt(inside)) / a
    scaled = (level * solved[:, 0] - solved[:, 1]) / pull
    if not (torch.isfinite(scaled).all() and scaled.min() >= 0.0 and scaled.sum() > 0.0):
        return None
    found = torch.zeros_like(weights)
    found[members] = scaled / scaled.sum()
    length = _length(gram, found)
    if length <= 0.0:
        return None
    steepness = slopes + pull * (gram @ found) / length
    gap = float(found @ steepness - steepness.min())  # zero exactly at the optimum: no vector leads further down
    return (found, length) if gap <= 1e-10 * (float(steepness.abs().max()) + pull * length) else None


def getmtl_coefficients(gram: Tensor, eps: float) -> Tensor:
    """What each task's gradient counts in the direction of eq. 13.

    >>> getmtl_coefficients(torch.eye(2), eps=0.1).round(decimals=4).tolist()  # (0.5 + 0.05 * sqrt(0.5)) / (1 - 0.005)
    [0.538, 0.538]
    """
    gram = gram.double()
    size = len(gram)
    beta = min_norm_point(gram)
    mean_square = max(float(gram.mean()), 0.0)  # |g_0|^2
    mean = torch.full((size,), 1.0 / size, dtype=torch.float64)
    if mean_square == 0.0:
        return mean
    eps = min(eps, LARGEST / math.sqrt(mean_square))
    weights, length = worst_mixture(gram * beta * beta[:, None], beta * gram.mean(0), eps * mean_square)
    extra = eps * mean_square / length * weights * beta if length > 0.0 else 0.0 * mean
    return (mean + extra) / (1.0 - eps**2 * mean_square)


class GetMTL(GradientWeighting):
    """The mean gradient, bent a little towards the task that it serves worst.

    The direction is (Chai et al. 2023, eq. 13)

        d = (g_0 + eps |g_0|^2 g_w / |g_w|) / (1 - eps^2 |g_0|^2),      g_w = sum_t w_t beta_t g_t,

    where w on the simplex minimises `g_0 . g_w + eps |g_0|^2 |g_w|` (eq. 14).

    - `g_t`: the gradient of task t on the shared parameters, `g_0` their mean; their products are `gram`;
    - `beta_t`: the weights of the shortest mixture (eq. 5), those of `MGDA`;
    - `weights[t]`: what g_t counts in d, which is never negative.

    In the code: eq. 5 is `simplex.min_norm_point`, eq. 14 `worst_mixture`, eq. 13 `getmtl_coefficients`, as printed.

    Args:
        eps: how far d may go from the mean gradient; 0.0075 for Amazon reviews, 0.025 for newsgroups. It has the unit
            of one over a gradient, so what it means depends on the scale of the losses.
        every: steps from one look to the next; 1 in the paper. In between, heads are weighted too.

    Differs from the paper: beta and w are exact; `eps |g_0|` is held at 0.5 where it would be more (from 1 on the
    formula turns its sign); where the best g_w is zero and has no direction, d is the first term alone (so it is when
    some beta_t is zero and g_0 conflicts with no task). `g_0` is the mean, as in the text; Algorithm 1 there has a sum.
    The authors' code differs from their paper (another objective, a softmax over w); we follow the paper, but leave the
    heads unweighted as the code does.

    Needs each task in each step; those that are there are taken, and an absent task keeps the weight it had. Costs a
    backward pass per task on a look, hardly more than one of their sum, and about a millisecond for w.

    >>> weighting = GetMTL(eps=0.1, tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(2))
    >>> weighting.backward({"a": parameter[0], "b": parameter[1]}, shared=[parameter])
    >>> {task: round(weight, 4) for task, weight in weighting.weights.items()}  # (0.5 + 0.05 * sqrt(0.5)) / (1 - 0.005)
    {'a': 0.538, 'b': 0.538}
    """

    name: ClassVar[str] = "getmtl"
    summary: ClassVar[str] = "the mean gradient, bent a little towards the task that it serves worst"
    paper: ClassVar[Paper | None] = GETMTL
    weighs_heads: ClassVar[bool] = False
    needs_every_task = True
    takes_fused_losses = True

    def __init__(
        self,
        *,
        eps: float = 0.0075,
        every: int = 1,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.eps = checks.number(self.name, "eps", eps, at_least=0.0)
        self.every = checks.count(self.name, "every", every)
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 / T each, until the first look."""
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))

    def coefficients(self, gram: Tensor, tasks: Sequence[str], values: Mapping[str, float]) -> Sequence[float]:
        """The direction of this step."""
        chosen = getmtl_coefficients(gram, self.eps).tolist()
        self._weights.update(zip(tasks, chosen, strict=True))
        return chosen
