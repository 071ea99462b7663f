"""Weights that are not negative and add up to one: steps on the simplex, projections onto it, the shortest mixture.

Pure functions of tensors, in float64 whatever comes in; nothing here knows of tasks or models.
"""

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError


def mirror_step(weights: Tensor, gradient: Tensor, step_size: float) -> Tensor:
    """One step of mirror descent with the entropy: `w_t <- w_t exp(-step_size * g_t) / normaliser`.

    Eq. 2.8 of Chen et al. (2022). Adding a constant to the gradient changes nothing, so the smallest entry of those
    that count is taken as zero: no exponent can overflow, and never do all vanish. A weight of zero stays zero.

    >>> mirror_step(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 0.6931472]), 1.0).round(decimals=4).tolist()
    [0.6667, 0.3333]
    """
    weights, gradient = weights.double(), gradient.double()
    counts = weights > 0.0
    exponents = -step_size * torch.where(counts, gradient - gradient[counts].min(), 0.0)
    raised = weights * torch.exp(exponents)
    return raised / raised.sum()


def mirror_step_of_logs(log_weights: Tensor, gradient: Tensor, step_size: float) -> Tensor:
    """The same step on the logarithms of the weights, up to a constant that makes the largest one zero.

    A weight that is too small for a float is still known here, and can come back; `softmax` turns logs into weights.

    >>> mirror_step_of_logs(torch.zeros(2), torch.tensor([0.0, 1000.0]), 1.0).tolist()
    [0.0, -1000.0]
    """
    moved = log_weights.double() - step_size * gradient.double()
    return moved - moved.max()


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
    """How far a mixture is from the shortest one: `w'Gw - min_t (Gw)_t`, zero exactly at the optimum.

    The variational inequality of the min-norm point: no vertex leads further down. Relative to the largest entry of the
    diagonal, so that the scale of the vectors does not matter.
    """
    gram, weights = gram.double(), weights.double()
    slopes = gram @ weights
    scale = float(gram.diagonal().max())
    return float(weights @ slopes - slopes.min()) / scale if scale > 0 else 0.0


def min_norm_point(gram: Tensor, tolerance: float = 1e-13) -> Tensor:
    """Weights on the simplex whose mixture of vectors is the shortest: `argmin_w w'Gw`, G their Gram matrix.

    Wolfe's method (1976) on the Gram matrix: keep a set of vectors that are affinely independent, minimise over their
    affine hull in closed form, step back to the simplex where that leaves it, take in the vector that leads furthest
    down. It ends after finitely many steps at the exact point, for hundreds of vectors within a second, where plain
    Frank-Wolfe still has a gap of 1e-3.

    All of it happens in units of the vectors' own lengths: a task that has all but converged keeps its say next to one
    whose gradient is a million times longer.

    >>> min_norm_point(torch.tensor([[1.0, 0.0], [0.0, 3.0]])).tolist()
    [0.75, 0.25]
    """
    gram = gram.detach().double().cpu()
    if not torch.isfinite(gram).all():
        raise CrossTaskError("The shortest mixture was asked for, but some of the products are not finite.")
    lengths = gram.diagonal().clamp(min=0.0).sqrt()
    if not lengths.min() > 0.0:  # nothing is shorter than a vector that is zero
        return (lengths == 0.0).double() / (lengths == 0.0).sum()
    lengths = torch.exp2(torch.frexp(lengths).exponent.double())  # powers of two: to divide by them rounds nothing
    # With u_t = w_t * length_t / shortest: minimise u'Cu, where the sum of a_t * u_t is one.
    scaled = gram / lengths / lengths[:, None]
    costs = lengths.min() / lengths
    found = _affine_minimum(scaled, costs)
    if found.min() <= 0.0 or _steepest(scaled, costs, found)[1] < -tolerance:  # often not so: then that was all
        found = _polish(scaled, costs, _wolfe(scaled, costs, tolerance), tolerance)
    weights = found * costs
    return weights / weights.sum()


def _wolfe(scaled: Tensor, costs: Tensor, tolerance: float) -> Tensor:
    """The search itself: minimise `u'Cu` over entries that are not negative, where the sum of `a_t * u_t` is one."""
    size = len(costs)
    found = torch.zeros(size, dtype=torch.float64)
    members = [int((scaled.diagonal() / costs**2).argmin())]  # the shortest vector, whose cost is one
    found[members] = 1.0
    best, best_slope = found.clone(), -torch.inf
    visited: set[frozenset[int]] = set()
    for _ in range(20 * size + 100):
        entering, slope = _steepest(scaled, costs, found)
        if slope > best_slope:
            best, best_slope = found.clone(), slope
        # No set of members comes twice, but for rounding: from there on it would go round in circles.
        if slope >= -tolerance or entering in members or frozenset(members) in visited:
            break
        visited.add(frozenset(members))
        members.append(entering)
        while True:
            candidate = _affine_minimum(scaled[members][:, members], costs[members])
            if candidate.min() > 0.0:
                found.zero_()
                found[members] = candidate
                break
            # Walk from the old entries towards the candidate until the first member is used up, and drop it.
            old = found[members]
            ratios = torch.where(candidate < old, old / (old - candidate).clamp(min=1e-300), torch.inf)
            share = min(1.0, float(ratios.min()))
            moved = (old + share * (candidate - old)).clamp(min=0.0)
            moved[int(ratios.argmin())] = 0.0
            found.zero_()
            found[members] = moved / (moved * costs[members]).sum()
            members = [member for member in members if found[member] > 0.0]
    return best


def _polish(scaled: Tensor, costs: Tensor, found: Tensor, tolerance: float) -> Tensor:
    """Shift weight between pairs of vectors until no shift leads down; at the optimum it does nothing.

    Among vectors that are almost the same, a linear system cannot tell which to take, but their slopes still do.
    """
    for _ in range(20 * len(costs)):
        slopes = scaled @ found
        reduced = slopes - costs * (found @ slopes)
        entering, leaving = int(reduced.argmin()), int(torch.where(found > 0.0, reduced, -torch.inf).argmax())
        if reduced[entering] >= -tolerance:
            break
        rate = float(costs[entering] / costs[leaving])  # what leaves for each unit that enters
        slope = float(reduced[entering] - rate * reduced[leaving])
        curvature = float(
            scaled[entering, entering] - 2.0 * rate * scaled[entering, leaving] + rate**2 * scaled[leaving, leaving]
        )
        limit = float(found[leaving]) / rate
        step = min(limit, -slope / curvature) if curvature > 0.0 else limit
        found[entering] += step
        found[leaving] = max(0.0, float(found[leaving]) - rate * step) if step < limit else 0.0
    return found


def _steepest(scaled: Tensor, costs: Tensor, found: Tensor) -> tuple[int, float]:
    """The vector that leads furthest down, and how steeply: its slope, less what its share of the sum is worth."""
    slopes = scaled @ found
    reduced = slopes - costs * (found @ slopes)
    return int(reduced.argmin()), float(reduced.min())


def _affine_minimum(scaled: Tensor, costs: Tensor) -> Tensor:
    """The same minimum over entries of any sign, in closed form."""
    size = len(costs)
    system = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    system[:size, :size] = scaled
    system[:size, size] = system[size, :size] = costs
    right = torch.zeros(size + 1, dtype=torch.float64)
    right[size] = 1.0
    solution, failed = torch.linalg.solve_ex(system, right)
    if failed or not torch.allclose(system @ solution, right, atol=1e-12):
        # Vectors that repeat each other make the system singular but not unsolvable.
        solution = torch.linalg.lstsq(system, right.unsqueeze(1), driver="gelsd").solution[:, 0]
    return solution[:size]


def frank_wolfe(gram: Tensor, steps: int = 250, tolerance: float = 1e-9) -> Tensor:
    """The shortest mixture by Frank-Wolfe with exact line search, as MGDA and MetaWeighting's Algorithm 2 have it.

    Kept for comparison with those papers: it starts at equal weights, moves towards the vertex that leads furthest
    down, and closes in on the optimum only slowly.
    """
    gram = gram.detach().double().cpu()
    weights = torch.full((len(gram),), 1.0 / len(gram), dtype=torch.float64)
    for _ in range(steps):
        slopes = gram @ weights
        vertex = int(slopes.argmin())
        # Mixture a = current, b = vertex: minimise |(1 - s) a + s b|^2 over s in [0, 1].
        aa, ab, bb = float(weights @ slopes), float(slopes[vertex]), float(gram[vertex, vertex])
        if aa - ab <= tolerance * float(gram.diagonal().max()):
            break
        share = min(1.0, max(0.0, (aa - ab) / max(aa - 2.0 * ab + bb, 1e-300)))
        weights = (1.0 - share) * weights
        weights[vertex] += share
    return weights
