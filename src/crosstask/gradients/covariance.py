"""The covariance similarity score of two tasks' inputs. Pure functions of matrices."""

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError

EXPLAINED = 0.99
"""Fraction of the sum of a covariance's eigenvalues that its main directions hold, as in the paper."""


def covariance(inputs: Tensor) -> Tensor:
    """`X' X` of the rows of X, [dimension, dimension], in float64. Not centered and not divided, as in the paper.

    >>> covariance(torch.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    if inputs.dim() != 2:
        raise CrossTaskError(f"Expected a matrix with a row per example, found the shape {tuple(inputs.shape)}.")
    rows = inputs.double()
    return rows.T @ rows


def main_directions(matrix: Tensor, explained: float = EXPLAINED) -> Tensor:
    """`U_r D_r^{1/2}`, [dimension, r]: the fewest leading eigenvectors with the fraction `explained` of the variance.

    Each is scaled by the root of its eigenvalue, so that the product with its transpose is the best approximation of
    rank r to `matrix`, a covariance. A covariance of zeros has no direction (r = 0).

    >>> main_directions(torch.diag(torch.tensor([4.0, 0.0, 0.01]))).abs().tolist()
    [[2.0], [0.0], [0.0]]
    """
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
        raise CrossTaskError(f"Expected a covariance, which is square, found the shape {tuple(matrix.shape)}.")
    if not 0.0 < explained <= 1.0:
        raise CrossTaskError(f"The share of the eigenvalues to keep must lie above 0 and up to 1, found {explained:g}.")
    if not torch.isfinite(matrix).all():
        raise CrossTaskError("A covariance holds numbers that are not finite; look for extreme values in the inputs.")
    values, vectors = torch.linalg.eigh(matrix.double())
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    total = values.sum()
    if total == 0.0:
        return vectors[:, :0]
    # Slightly below `explained`, to absorb rounding: a sum of all eigenvalues must reach 1.
    too_few = values.cumsum(0) < explained * total * (1.0 - 1e-12)
    rank = int(too_few.sum()) + 1
    return vectors[:, :rank] * values[:rank].sqrt()


def similarity_of_covariances(
    first: Tensor, second: Tensor, *, normalize: bool = False, explained: float = EXPLAINED
) -> float:
    """The covariance similarity score of two covariances, [dimension, dimension]; see `covariance_similarity`."""
    if first.shape != second.shape:
        raise CrossTaskError(
            "The covariance similarity needs inputs of one dimension, since it compares directions; found "
            f"{first.shape[-1]} and {second.shape[-1]}. Take both from the same place of the same encoder."
        )
    return similarity_of_directions(
        main_directions(first, explained), main_directions(second, explained), normalize=normalize
    )


def similarity_of_directions(one: Tensor, two: Tensor, *, normalize: bool = False) -> float:
    """The covariance similarity score from the `main_directions` of both tasks, [dimension, r_i] each."""
    if normalize:
        scale = ((one.T @ one).norm() * (two.T @ two).norm()).sqrt()
    else:
        scale = one.norm() * two.norm()
    if scale <= 0.0:  # inputs that are all zero
        return 0.0
    return float((one.T @ two).norm() / scale)


def covariance_similarity(
    first: Tensor, second: Tensor, *, normalize: bool = False, explained: float = EXPLAINED
) -> float:
    """The covariance similarity score of two tasks' inputs (Wu, Zhang & Ré 2020, eq. 6).

        score = || F_1' F_2 ||_F / (|| F_1 ||_F || F_2 ||_F)        with  F_i = U_i D_i^{1/2}

    - `F_i`: `main_directions` of `X_i' X_i`, the r_i leading ones that hold 99% of its eigenvalues (`explained`);
    - `X_1`, `X_2`: `first` and `second`, a row per example, [examples, dimension]; they may differ in their number.

    The paper's score lies between 0, no direction in common, and 1, the same single direction. A task whose inputs
    spread over n directions alike has only `n^{-1/2}` with itself, so scores compare pairs of the same tasks (before
    and after an alignment) better than they compare pairs of other tasks. With `normalize` (ours, not the paper's) the
    score is over the geometric mean of both tasks' scores with themselves, and so 1 for the same covariance:

        || F_1' F_2 ||_F / (|| F_1' F_1 ||_F || F_2' F_2 ||_F)^{1/2}

    Neither depends on the unit of the inputs, on the order or rotation of the examples, or on a rotation of the space
    that both tasks go through. Inputs that are all zero have a score of 0 with everything.

    >>> eye = torch.eye(4)
    >>> covariance_similarity(eye[:2], eye[2:]), covariance_similarity(eye[:1], eye[:1])
    (0.0, 1.0)
    >>> covariance_similarity(eye, eye), covariance_similarity(eye, eye, normalize=True)
    (0.5, 1.0)
    """
    return similarity_of_covariances(covariance(first), covariance(second), normalize=normalize, explained=explained)
