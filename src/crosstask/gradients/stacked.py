"""The gradients of all tasks on the shared parameters, each parameter's in one tensor: few kernels for many tasks.

Nothing here waits for the device. Only torch is needed.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from crosstask.gradients.inner_products import products_of_rows, without_tf32

MAX_SMALL_ENTRIES = 2**14
"""Parameters up to this size, biases and normalizations, are joined: for them a kernel costs more than its work."""


class StackedGradients:
    """Gradients of all tasks on the shared parameters.

    Args:
        stacks: by the id of a parameter, [tasks, *shape]; parameters that no task reaches are left out.
        shared: the shared parameters.
    """

    def __init__(self, stacks: Mapping[int, Tensor], shared: Sequence[nn.Parameter]) -> None:
        self.large: dict[nn.Parameter, Tensor] = {}  # [tasks, entries] each
        self.small: dict[nn.Parameter, Tensor] = {}
        for parameter in shared:
            stack = stacks.get(id(parameter))
            if stack is not None:
                group = self.large if parameter.numel() > MAX_SMALL_ENTRIES else self.small
                group[parameter] = stack.flatten(1)

    def gram(self) -> Tensor:
        """Products of the tasks' gradients, [tasks, tasks] in float64 on the device."""
        return self.products_with(self)

    def products_with(self, other: "StackedGradients") -> Tensor:
        """Products of these gradients with others, [tasks, other tasks] in float64, on the parameters of both."""
        blocks: list[Tensor] = []
        for parameter, rows in self.large.items():
            if parameter in other.large:
                blocks.append(products_of_rows(rows, other.large[parameter]))
        common = [parameter for parameter in self.small if parameter in other.small]
        if common:
            blocks.append(products_of_rows(_joined(self.small, common), _joined(other.small, common)))
        return torch.stack(blocks).sum(0)

    def put_mixture_in_place(self, factors: Tensor) -> None:
        """Make the sum of the tasks' gradients, each times its factor, [tasks], the parameters' `.grad`."""
        with without_tf32(factors):
            for parameter, rows in self.large.items():
                parameter.grad = (factors.to(rows.dtype) @ rows).view_as(parameter)
            if not self.small:
                return
            joined = _joined(self.small, self.small)
            mixture = factors.to(joined.dtype) @ joined  # [entries of all small parameters]
        pieces = mixture.split([parameter.numel() for parameter in self.small])
        for parameter, piece in zip(self.small, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)


HeadGradients = Mapping[str, Sequence[tuple[Tensor, Tensor]]]
"""By task the parameters of its head, with their gradients."""


def head_products(heads: HeadGradients, others: HeadGradients) -> Tensor:
    """Products of two gradients of the same task on the parameters of its head, a task after another, in float64."""
    products: list[Tensor] = []
    for task, head in heads.items():
        other = {id(parameter): gradient for parameter, gradient in others[task]}
        terms = [(gradient * other[id(parameter)]).sum(dtype=torch.float64) for parameter, gradient in head]
        products.append(torch.stack(terms).sum())
    return torch.stack(products)


def _joined(rows: Mapping[nn.Parameter, Tensor], parameters: Iterable[nn.Parameter]) -> Tensor:
    """[tasks, entries of these parameters]."""
    return torch.cat([rows[parameter] for parameter in parameters], 1)
