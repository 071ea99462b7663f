"""What TorchJD's methods look at: rows of gradients, whole or turned into few dimensions, the primary one first."""

from collections.abc import Sequence

import torch
from torch import Tensor

from crosstask.gradients.task_gradients import Gradient


def jacobian_of(gradients: Sequence[Gradient], shared: Sequence[Tensor]) -> Tensor:
    """The tasks' gradients as rows, [tasks, parameters], in float32 at least; zero where a task reaches nothing.

    Only for methods that cannot do with products: this is the matrix that `gram_matrix` avoids.

    >>> jacobian_of([[torch.ones(2)], [None]], [torch.zeros(2)]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    rows = []
    for gradient in gradients:
        parts = [
            (torch.zeros_like(parameter) if part is None else part).detach().reshape(-1)
            for part, parameter in zip(gradient, shared, strict=True)
        ]
        rows.append(torch.cat(parts))
    jacobian = torch.stack(rows)
    return jacobian if jacobian.dtype == torch.float64 else jacobian.float()


def split_like(vector: Tensor, shared: Sequence[Tensor]) -> list[Tensor]:
    """A vector of all parameters' entries, cut into the parameters' shapes.

    >>> [part.tolist() for part in split_like(torch.arange(3.0), [torch.zeros(1), torch.zeros(2)])]
    [[0.0], [1.0, 2.0]]
    """
    parts = vector.split([parameter.numel() for parameter in shared])
    return [part.view_as(parameter) for part, parameter in zip(parts, shared, strict=True)]


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
