"""Features of several subsets of the units, as a solver wants them: standardized, and along their principal axes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

LEAST_DEVIATION = 1e-15
"""Of a feature that says anything, beside the usual one's."""


@dataclass(frozen=True, eq=False)
class Designs:
    """The design matrices of several subsets, which have rows of zeros where a subset has fewer units than the largest.

    A rotation changes neither losses nor penalties, and the minimizer lies in the span of the rows: there are as many
    axes as rows where those are fewer than the features. Along these axes a solver's problem is almost diagonal.

    - `features`: along the axes, with a last column of ones for the bias, [subsets, rows, axes + 1];
    - `rows`: position of the unit in each row, [subsets, rows], 0 behind the last one;
    - `counts`: units of each subset, [subsets];
    - `axes`: weights times these are weights of the features as they are, [subsets, axes, width];
    - `mean`: of the features as they are, [subsets, width].
    """

    features: Tensor
    rows: Tensor
    counts: Tensor
    axes: Tensor
    mean: Tensor

    @classmethod
    def of(cls, features: Tensor, subsets: Sequence[np.ndarray], emphasis: Tensor) -> "Designs":
        """Of the units at these positions, with standardized features that are multiplied by `emphasis`, [width]."""
        rows, is_unit, counts = _padded(subsets, features.device)
        standardized = features[rows] * is_unit  # [subsets, rows, width]
        mean = standardized.sum(1) / counts[:, None]
        standardized.sub_(mean[:, None]).mul_(is_unit)
        deviation = (standardized.square().sum(1) / counts[:, None]).sqrt()
        factors = emphasis / usable_scale(mean, deviation)  # [subsets, width]
        standardized.mul_(factors[:, None])
        rotated, axes = _rotate(standardized)
        return cls(torch.cat([rotated, is_unit], 2), rows, counts, axes * factors[:, None], mean)

    def models(self, solutions: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the features as they are, [subsets, penalties, outputs, width], and biases, [subsets, penalties,
        outputs], of solutions along the axes, [subsets, penalties, outputs, axes + 1]."""
        shape = solutions.shape[1:3]
        weights = (solutions[..., :-1].flatten(1, 2) @ self.axes).unflatten(1, shape)
        return weights, solutions[..., -1] - (weights @ self.mean[:, None, :, None])[..., 0]


def _padded(subsets: Sequence[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and counts of `Designs`, and 1.0 where a row is a unit, [subsets, rows, 1]."""
    counts = np.array([len(positions) for positions in subsets])
    rows = np.zeros((len(subsets), counts.max()), dtype=np.int64)
    for row, positions in zip(rows, subsets, strict=True):
        row[: len(positions)] = positions
    is_unit = (np.arange(counts.max()) < counts[:, None]).astype(np.float64)[:, :, None]
    as_tensors = [torch.from_numpy(array).to(device) for array in (rows, is_unit, counts.astype(np.float64))]
    return as_tensors[0], as_tensors[1], as_tensors[2]


def usable_scale(mean: Tensor, deviation: Tensor) -> Tensor:
    """Standard deviations to divide by: a constant keeps one of rounding errors, which must not be blown up.

    Nor must a feature that is nothing beside the others, as where an encoder gives 1e-31 for what it does not use.
    """
    if not deviation.shape[-1]:
        return deviation
    positive = deviation.masked_fill(deviation == 0.0, torch.nan)
    usual = positive.nanmedian(-1, keepdim=True).values.nan_to_num(nan=0.0)
    is_constant = (deviation <= 1e-6 * mean.abs()) | (deviation <= LEAST_DEVIATION * usual)
    return deviation.masked_fill(is_constant, 1.0)


def _rotate(features: Tensor) -> tuple[Tensor, Tensor]:
    """Features along their principal axes, [subsets, rows, axes], and those axes as rows, [subsets, axes, width]."""
    if features.shape[1] >= features.shape[2]:
        _, eigenvectors = torch.linalg.eigh(features.mT @ features)
        return features @ eigenvectors, eigenvectors.mT
    variances, left_vectors = torch.linalg.eigh(features @ features.mT)  # [subsets, rows], [subsets, rows, rows]
    # Below this there is nothing but rounding errors: no axis.
    least = torch.finfo(features.dtype).eps * features.shape[1] * variances[:, -1:]
    lengths = variances.clamp(min=0.0).sqrt()
    inverse_lengths = torch.where(variances > least, 1.0 / lengths, 0.0)
    axes = (left_vectors * inverse_lengths[:, None]).mT @ features
    return left_vectors * (lengths * (variances > least))[:, None], axes
