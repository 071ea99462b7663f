"""Weights that are not negative and add up to one: steps on the simplex, projections onto it, the shortest mixture.

Pure functions of tensors, in float64 whatever comes in; nothing here knows of tasks or models.
"""

import torch
from torch import Tensor


def mirror_step(weights: Tensor, gradient: Tensor, step_size: float) -> Tensor:
    """One step of mirror descent with the entropy: `w_t <- w_t exp(-step_size * g_t) / normaliser`.

    Eq. 2.8 of Chen et al. (2022). Adding a constant to the gradient changes nothing, so the smallest entry is taken as
    zero and no exponent can overflow.

    >>> mirror_step(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 0.6931472]), 1.0).round(decimals=4).tolist()
    [0.6667, 0.3333]
    """
    exponents = -step_size * (gradient.double() - gradient.double().min())
    raised = weights.double() * torch.exp(exponents)
    return raised / raised.sum()


def project_onto_simplex(point: Tensor) -> Tensor:
    """The nearest point with entries that are not negative and add up to one (Euclidean distance).

    Sort, find how many entries stay positive, shift them by the same amount (Held, Wolfe and Crowder 1974).

    >>> project_onto_simplex(torch.tensor([1.0, 0.5, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    ordered = point.double().sort(descending=True).values
    shifts = (ordered.cumsum(0) - 1.0) / torch.arange(1, len(ordered) + 1, dtype=torch.float64, device=point.device)
    num_positive = int((ordered > shifts).sum())
    return (point.double() - shifts[num_positive - 1]).clamp(min=0.0)


def min_norm_gap(gram: Tensor, weights: Tensor) -> float:
    """How far a mixture is from the shortest one: `w'Gw - min_t (Gw)_t`, zero exactly at the optimum.

    The variational inequality of the min-norm point: no vertex leads further down. Relative to the largest entry of the
    diagonal, so that the scale of the vectors does not matter.
    """
    gram, weights = gram.double(), weights.double()
    slopes = gram @ weights
    scale = float(gram.diagonal().max())
    return float(weights @ slopes - slopes.min()) / scale if scale > 0 else 0.0


def min_norm_point(gram: Tensor, tolerance: float = 1e-12) -> Tensor:
    """Weights on the simplex whose mixture of vectors is the shortest: `argmin_w w'Gw`, G their Gram matrix.

    Wolfe's method (1976) on the Gram matrix: keep a set of vectors that are affinely independent, minimise over their
    affine hull in closed form, step back to the simplex where that leaves it, take in the vector that leads furthest
    down. It ends after finitely many steps at the exact point, for hundreds of vectors in milliseconds, where plain
    Frank-Wolfe still has a gap of 1e-3.

    >>> min_norm_point(torch.tensor([[1.0, 0.0], [0.0, 3.0]])).tolist()
    [0.75, 0.25]
    """
    gram = gram.detach().double().cpu()
    size = len(gram)
    scale = float(gram.diagonal().max())
    weights = torch.zeros(size, dtype=torch.float64)
    if not scale > 0.0:  # every vector is zero: any mixture is
        return torch.full((size,), 1.0 / size, dtype=torch.float64)
    gram = gram / scale
    everyone = _affine_minimum(gram)
    if everyone.min() > 0.0 and min_norm_gap(gram, everyone) <= tolerance:  # often so, and then no search is needed
        return everyone / everyone.sum()
    start = int(gram.diagonal().argmin())
    members = [start]
    weights[start] = 1.0
    for _ in range(20 * size + 100):
        slopes = gram @ weights
        entering = int(slopes.argmin())
        if weights @ slopes - slopes[entering] <= tolerance or entering in members:
            break
        members.append(entering)
        while True:
            candidate = _affine_minimum(gram[members][:, members])
            if candidate.min() > 0.0:
                weights.zero_()
                weights[members] = candidate
                break
            # Walk from the old weights towards the candidate until the first member is used up, and drop it.
            old = weights[members]
            falling = candidate < old
            ratios = torch.where(falling, old / (old - candidate).clamp(min=1e-300), torch.inf)
            share = min(1.0, float(ratios.min()))
            moved = (old + share * (candidate - old)).clamp(min=0.0)
            moved[int(ratios.argmin())] = 0.0
            weights.zero_()
            weights[members] = moved / moved.sum()
            members = [member for member in members if weights[member] > 0.0]
    return weights


def _affine_minimum(gram: Tensor) -> Tensor:
    """Weights that add up to one, of any sign, whose mixture is the shortest."""
    size = len(gram)
    system = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    system[:size, :size] = gram
    system[:size, size] = system[size, :size] = 1.0
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
