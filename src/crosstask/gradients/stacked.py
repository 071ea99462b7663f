"""The gradients of all tasks on the shared parameters, each parameter's in one tensor: few kernels for many tasks.

Nothing here waits for the device. Only torch is needed.
"""

from collections.abc import Mapping, Sequence

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
        self.large: list[tuple[nn.Parameter, Tensor]] = []  # with [tasks, entries]
        self.small: list[nn.Parameter] = []
        rows: list[Tensor] = []
        for parameter in shared:
            stack = stacks.get(id(parameter))
            if stack is None:
                continue
            if parameter.numel() > MAX_SMALL_ENTRIES:
                self.large.append((parameter, stack.flatten(1)))
            else:
                self.small.append(parameter)
                rows.append(stack.flatten(1))
        self.joined = torch.cat(rows, 1) if rows else None  # [tasks, entries of all small parameters]

    def gram(self) -> Tensor:
        """Products of the tasks' gradients, [tasks, tasks] in float64 on the device."""
        rows = [stack for _, stack in self.large]
        if self.joined is not None:
            rows.append(self.joined)
        total = products_of_rows(rows[0])
        for stack in rows[1:]:
            total = total + products_of_rows(stack)
        return (total + total.T) / 2.0  # float32 products may differ in their last digit

    def put_mixture_in_place(self, factors: Tensor) -> None:
        """Make the sum of the tasks' gradients, each times its factor, [tasks], the parameters' `.grad`."""
        with without_tf32(factors):
            for parameter, stack in self.large:
                parameter.grad = (factors.to(stack.dtype) @ stack).view_as(parameter)
            if self.joined is None:
                return
            mixture = factors.to(self.joined.dtype) @ self.joined
        pieces = mixture.split([parameter.numel() for parameter in self.small])
        for parameter, piece in zip(self.small, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)
