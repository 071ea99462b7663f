"""The probability simplex: mirror descent steps, Euclidean projection, and the min-norm point of a set of vectors.

Pure functions of tensors, in float64 whatever the dtype of their arguments; nothing here knows of tasks or models.
"""

import math

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError

NUM_BISECTIONS = 100


def mirror_step_of_logs(log_weights: Tensor, gradient: Tensor, step_size: float) -> Tensor:
    """One step of mirror descent with the entropy: `w_t <- w_t exp(-step_size * g_t) / normalizer`, on logarithms.

    Eq. 2.8 of Chen et al. (2022). The logarithms are up to a constant that makes the largest one zero; `softmax` turns
    them into weights. A weight that is too small for a float is still known here, and can grow again.

    >>> mirror_step_of_logs(torch.zeros(2), torch.tensor([0.0, 1000.0]), 1.0).tolist()
    [0.0, -1000.0]
    """
    updated = log_weights.double() - step_size * gradient.double()
    return updated - updated.max()


def mirror_step_within(log_weights: Tensor, exponents: Tensor, floor: float = 0.0, cap: float = math.inf) -> Tensor:
    """Eq. 2.8 on logarithms, `w_i <- w_i exp(e_i) / normalizer`, with the sum of the weights unchanged.

    Where a weight would leave `[floor, cap]`, the result is the point with that sum and within these bounds that is
    nearest to eq. 2.8's in Kullback-Leibler divergence: all weights times one factor, then clipped.

    >>> mirror_step_within(torch.zeros(2), torch.tensor([math.log(3.0), 0.0])).exp().round(decimals=4).tolist()
    [1.5, 0.5]
    >>> mirror_step_within(torch.zeros(3), torch.tensor([9.0, 0.0, 0.0]), cap=2.0).exp().round(decimals=4).tolist()
    [2.0, 0.5, 0.5]
    """
    before = log_weights.double()
    moved = before + exponents.double()
    total = before.exp().sum()
    log_floor, log_cap = -math.inf, math.log(cap)
    if floor > 0.0:
        log_floor = math.log(floor)
    shift = float(total.log() - moved.logsumexp(0))
    if moved.min() + shift >= log_floor and moved.max() + shift <= log_cap:
        return moved + shift
    # The sum after clipping grows with the shift: bisect, then solve exactly for the weights that were not clipped.
    low = high = shift
    if floor > 0.0:
        low = log_floor - float(moved.max())
    if cap < math.inf:
        high = log_cap - float(moved.min())
    for _ in range(NUM_BISECTIONS):
        middle = (low + high) / 2.0
        if (moved + middle).clamp(log_floor, log_cap).exp().sum() < total:
            low = middle
        else:
            high = middle
    clipped = (moved + high).clamp(log_floor, log_cap)
    is_free = (clipped > log_floor) & (clipped < log_cap)
    rest = total - clipped[~is_free].exp().sum()
    if is_free.any() and rest > 0.0:
        clipped[is_free] += rest.log() - clipped[is_free].logsumexp(0)
    return clipped.clamp(log_floor, log_cap)


def effective_number(log_weights: Tensor) -> float:
    """Effective number of examples: `1 / sum_i p_i^2`, with p the weights over their sum.

    >>> round(effective_number(torch.tensor([0.0, 0.0, -1e9])), 6)
    2.0
    """
    return float(torch.exp(2.0 * log_weights.logsumexp(0) - (2.0 * log_weights).logsumexp(0)))


def project_onto_simplex(point: Tensor) -> Tensor:
    """The nearest point with entries that are not negative and add up to one (Euclidean distance).

    Sort, find how many entries stay positive, shift them by the same amount (Held, Wolfe and Crowder 1974).

    >>> project_onto_simplex(torch.tensor([1.0, 0.5, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    point = point.double() - point.double().max()  # a shift of all entries changes nothing, and no entry is too large
    ordered = point.sort(descending=True).values
    shifts = (ordered.cumsum(0) - 1.0) / torch.arange(1, len(ordered) + 1, dtype=torch.float64, device=point.device)
    num_positive = int((ordered > shifts).sum())
    return (point - shifts[num_positive - 1]).clamp(min=0.0)


def min_norm_gap(gram: Tensor, weights: Tensor) -> float:
    """Duality gap of a mixture as the shortest one: `w'Gw - min_t (Gw)_t`, zero exactly at the optimum.

    The variational inequality of the min-norm point: no vertex is a descent direction. Relative to the largest entry of
    the diagonal, so that the scale of the vectors does not matter.
    """
    gram, weights = gram.double(), weights.double()
    scale = float(gram.diagonal().max())
    if scale <= 0.0:
        return 0.0
    gradient = gram @ weights
    return float(weights @ gradient - gradient.min()) / scale


def min_norm_point(gram: Tensor) -> Tensor:
    """Weights on the simplex whose mixture of vectors is the shortest: `argmin_w w'Gw`, G their Gram matrix.

    With `R'R = G`, the least-squares problem `R u = 0, sum_t u_t = 1` over entries that are not negative has a solution
    in the direction of w: for `u = s w` the best factor s leaves the error `|Rw|^2 / (1 + |Rw|^2)`, which grows with
    `|Rw|`. It is solved exactly by an active-set method (`scipy.optimize.nnls`), for hundreds of vectors within a
    second, where plain Frank-Wolfe still has a gap of 1e-3.

    Entries are in units of the vectors' lengths, so that a task that has all but converged counts next to one whose
    gradient is a million times longer.

    >>> min_norm_point(torch.tensor([[1.0, 0.0], [0.0, 3.0]])).round(decimals=12).tolist()
    [0.75, 0.25]
    """
    from scipy.optimize import nnls  # it takes 0.5 s to load, and few methods need it

    gram = gram.detach().double().cpu()
    if not torch.isfinite(gram).all():
        raise CrossTaskError("The shortest mixture was asked for, but some of the products are not finite.")
    lengths = gram.diagonal().clamp(min=0.0).sqrt()
    is_zero = lengths == 0.0
    if is_zero.any():  # nothing is shorter than a vector that is zero
        return is_zero.double() / is_zero.sum()
    lengths = torch.exp2(torch.frexp(lengths).exponent.double())  # powers of two: to divide by them rounds nothing
    # With u_t = w_t * length_t / shortest: minimize u'Cu, where the sum of costs_t * u_t is one.
    scaled = gram / lengths / lengths[:, None]
    costs = lengths.min() / lengths
    eigenvalues, eigenvectors = torch.linalg.eigh(scaled)
    root = eigenvalues.clamp(min=0.0).sqrt()[:, None] * eigenvectors.T  # rounding may leave eigenvalues below zero
    right = torch.zeros(len(gram) + 1, dtype=torch.float64)
    right[-1] = 1.0
    solution, _ = nnls(torch.cat([root, costs[None]]).numpy(), right.numpy())
    weights = torch.from_numpy(solution) * costs
    return weights / weights.sum()


def frank_wolfe(gram: Tensor, steps: int = 250, tolerance: float = 1e-9) -> Tensor:
    """The shortest mixture by Frank-Wolfe with exact line search, as MGDA and MetaWeighting's Algorithm 2 have it.

    For comparison with those papers: it starts at equal weights, moves towards the vertex of steepest descent, and
    converges to the optimum only slowly.
    """
    gram = gram.detach().double().cpu()
    weights = torch.full((len(gram),), 1.0 / len(gram), dtype=torch.float64)
    for _ in range(steps):
        gradient = gram @ weights
        vertex = int(gradient.argmin())
        # Mixture a = current, b = vertex: minimize |(1 - s) a + s b|^2 over s in [0, 1].
        aa, ab, bb = float(weights @ gradient), float(gradient[vertex]), float(gram[vertex, vertex])
        if aa - ab <= tolerance * float(gram.diagonal().max()):
            break
        step = min(1.0, max(0.0, (aa - ab) / max(aa - 2.0 * ab + bb, 1e-300)))
        weights = (1.0 - step) * weights
        weights[vertex] += step
    return weights
