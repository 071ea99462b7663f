"""What TorchJD's methods look at: rows of gradients, whole or turned into few dimensions, the primary one first."""

from collections.abc import Sequence

import torch
from torch import Tensor


def root_of(gram: Tensor) -> Tensor:
    """A square matrix R with `R R' = gram`: the Jacobian with its rows turned together into as many dimensions.

    >>> root = root_of(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> (root @ root.T).round(decimals=4).tolist()
    [[4.0, 2.0], [2.0, 5.0]]
    """
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values.clamp(min=0.0).sqrt()


def primary_first(tasks: Sequence[str], targets: Sequence[str]) -> tuple[list[str], Tensor]:
    """Names of the rows and the matrix that makes them: the mean of the targets first, then every other task.

    >>> rows, making = primary_first(["pos", "ner", "chunk"], ["ner"])
    >>> rows, making.tolist()
    (['ner', 'pos', 'chunk'], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    """
    primary = [task for task in tasks if task in targets]
    others = [task for task in tasks if task not in targets]
    making = torch.zeros(1 + len(others), len(tasks), dtype=torch.float64)
    for column, task in enumerate(tasks):
        row = 1 + others.index(task) if task in others else 0
        making[row, column] = 1.0 if row else 1.0 / len(primary)
    return ["+".join(primary), *others], making


def blank(like: Tensor) -> Tensor:
    """What every method can be called with: losses of one, gradients of length one at right angles."""
    return torch.ones_like(like) if like.dim() == 1 else torch.eye(*like.shape).to(like)
