"""Formulas for the weights of single examples: a mirror step among some of them, within bounds; what they are worth."""

import math

import torch
from torch import Tensor

BISECTIONS = 100


def relative_products(products: Tensor) -> Tensor:
    """Products over their root mean square: which examples agree more than others, whatever the gradients' lengths.

    >>> relative_products(torch.tensor([7.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])).tolist()
    [2.8, -0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    size = products.double().square().mean().sqrt()
    return products.double() / size if size > 0.0 else torch.zeros_like(products, dtype=torch.float64)


def mirror_step_within(log_weights: Tensor, exponents: Tensor, floor: float = 0.0, cap: float = math.inf) -> Tensor:
    """Eq. 2.8 on logarithms, `w_i <- w_i exp(e_i) / normaliser`, where the sum of the weights stays what it was.

    Where a weight would leave `[floor, cap]`, the result is the point with that sum and within these bounds that is
    nearest to eq. 2.8's in the sense of mirror descent (Kullback-Leibler): all weights times one factor, then cut.

    >>> mirror_step_within(torch.zeros(2), torch.tensor([math.log(3.0), 0.0])).exp().round(decimals=4).tolist()
    [1.5, 0.5]
    >>> mirror_step_within(torch.zeros(3), torch.tensor([9.0, 0.0, 0.0]), cap=2.0).exp().round(decimals=4).tolist()
    [2.0, 0.5, 0.5]
    """
    before = log_weights.double()
    moved = before + exponents.double()
    total = before.exp().sum()
    lowest, highest = math.log(floor) if floor > 0.0 else -math.inf, math.log(cap)
    shift = float(total.log() - moved.logsumexp(0))
    if moved.min() + shift >= lowest and moved.max() + shift <= highest:
        return moved + shift
    # The sum after cutting grows with the shift: bisect, then solve exactly for the weights that were not cut.
    low = lowest - float(moved.max()) if floor > 0.0 else shift
    high = highest - float(moved.min()) if cap < math.inf else shift
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        if (moved + middle).clamp(lowest, highest).exp().sum() < total:
            low = middle
        else:
            high = middle
    cut = (moved + high).clamp(lowest, highest)
    free = (cut > lowest) & (cut < highest)
    rest = total - cut[~free].exp().sum()
    if free.any() and rest > 0.0:
        cut[free] += rest.log() - cut[free].logsumexp(0)
    return cut.clamp(lowest, highest)


def effective_number(log_weights: Tensor) -> float:
    """How many examples these weights are worth: `1 / sum_i p_i^2`, with p the weights over their sum.

    >>> round(effective_number(torch.tensor([0.0, 0.0, -1e9])), 6)
    2.0
    """
    return float(torch.exp(2.0 * log_weights.logsumexp(0) - (2.0 * log_weights).logsumexp(0)))
