"""What task weights did to losses on other examples through one step of the model, and where they should go.

Pure functions of tensors, and the gradients that wait for the step to be taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from crosstask.gradients import task_gradients as grads
from crosstask.gradients.simplex import frank_wolfe, min_norm_point, project_onto_simplex

STACKED = 2**29
"""Entries of gradients that are copied into one matrix, at most."""

Solver = Literal["exact", "frank-wolfe", "mean"]


def _equal_shares(gram: Tensor) -> Tensor:
    return torch.full((len(gram),), 1.0 / len(gram), dtype=gram.dtype)


SOLVERS: dict[Solver, Callable[[Tensor], Tensor]] = {
    "exact": min_norm_point,
    "frank-wolfe": frank_wolfe,
    "mean": _equal_shares,
}


def hypergradients(products: Tensor, learning_rate: float) -> Tensor:
    """What each weight did to each query loss through one step of gradient descent (eq. 10), [query tasks, tasks].

    Args:
        products: of the gradient of query loss t after the step with that of support loss i before it.
        learning_rate: of that step, which went along the mean of the weighted gradients.

    >>> hypergradients(torch.tensor([[1.0, -2.0], [3.0, 4.0]]), learning_rate=0.5).tolist()
    [[-0.25, 0.5], [-0.75, -1.0]]
    """
    return -(learning_rate / products.shape[1]) * products


def common_direction(slopes: Tensor, solver: Solver = "exact") -> tuple[Tensor, Tensor]:
    """The shortest mixture of the rows (eq. 11), and what each row counts in it (eq. 12).

    A step against it lowers every query loss, or leaves it as it is; it is zero where no such step exists. A row that
    is exactly zero, which nothing can lower, or that is not finite counts nothing: else it would stop all others. With
    the solver "mean" it is the mean of the rows instead, and a step lowers the mean query loss.

    >>> direction, shares = common_direction(torch.tensor([[-1.0, 0.0], [0.0, -2.0]]))
    >>> direction.tolist(), shares.tolist()
    ([-0.8, -0.4], [0.8, 0.2])
    """
    slopes = slopes.double()
    shares = torch.zeros(len(slopes), dtype=torch.float64)
    counts = torch.isfinite(slopes).all(1) & (slopes != 0.0).any(1)
    if not counts.any():
        return torch.zeros(slopes.shape[1], dtype=torch.float64), shares
    rows = slopes[counts]
    unit = rows.abs().max()  # so that no square of a small rate times small gradients is lost
    shares[counts] = SOLVERS[solver]((rows / unit) @ (rows / unit).T)
    return shares[counts] @ rows, shares


def step_weights(weights: Tensor, direction: Tensor, step_size: float, keep_sum: bool = False) -> Tensor:
    """A step against the direction (eq. 13), and back to weights that are not negative.

    >>> step_weights(torch.ones(2), torch.tensor([-1.0, 4.0]), 0.5).tolist()
    [1.5, 0.0]
    >>> step_weights(torch.ones(2), torch.tensor([-1.0, 1.0]), 0.5, keep_sum=True).tolist()
    [1.5, 0.5]
    """
    moved = weights.double() - step_size * direction.double()
    if keep_sum:
        return len(moved) * project_onto_simplex(moved / len(moved))
    return moved.clamp(min=0.0)


@dataclass
class Support:
    """The support gradients of one update, until the query losses are known.

    - `parameters`: the shared parameters;
    - `scale`: the factor of all gradients here, added up over the steps that make one update;
    - `shared`: each task's gradient on the shared parameters;
    - `own`: the same on each other parameter that it reaches;
    - `factors`: by how much more of a task the step had than its weight: one over its probability;
    - `stack`: all of `shared` as one matrix, where that is faster.
    """

    parameters: list[nn.Parameter]
    scale: float = 0.0
    shared: dict[str, grads.Gradient] = field(default_factory=dict)
    own: dict[str, dict[Tensor, Tensor]] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    stack: Tensor | None = None

    def add(self, task: str, shared: grads.Gradient, own: dict[Tensor, Tensor], factor: float) -> None:
        """Take in a task's gradient; over several steps that make one update they add up."""
        self.factors[task] = factor
        if task not in self.shared:
            self.shared[task], self.own[task] = shared, own
            return
        self.shared[task] = [_sum(*parts) for parts in zip(self.shared[task], shared, strict=True)]
        for leaf, part in own.items():
            self.own[task][leaf] = part + self.own[task].get(leaf, 0.0)

    def products(self, tasks: Sequence[str], shared: grads.Gradient, own: Mapping[Tensor, Tensor]) -> Tensor:
        """Products of a query gradient with each task's support gradient, on all parameters that both reach.

        A task that was not in the step has zero: its weight did nothing.
        """
        device = self.parameters[0].device
        zero = torch.zeros((), dtype=torch.float64, device=device)
        found = dict.fromkeys(tasks, zero) | dict(zip(self.shared, self._shared_products(shared), strict=True))
        for task, mine in self.own.items():
            both = [leaf for leaf in own if leaf in mine]
            if both:
                on_heads = grads.product([own[leaf] for leaf in both], [mine[leaf] for leaf in both])
                found[task] = found[task] + on_heads.to(device)
        factors = [self.factors.get(task, 0.0) / self.scale for task in tasks]
        products = torch.stack([found[task].to(device) for task in tasks])
        return products * torch.tensor(factors, device=device, dtype=torch.float64)

    def _shared_products(self, shared: grads.Gradient) -> Sequence[Tensor]:
        """In the order of `self.shared`; where gradients are vectors and there is room, all of them in one call."""
        one = shared[0]
        if len(shared) > 1 or one is None or len(self.shared) * one.numel() > STACKED:
            return [grads.product(shared, mine) for mine in self.shared.values()]
        if self.stack is None:
            stack = torch.stack([mine[0] for mine in self.shared.values() if mine[0] is not None])
            self.stack = stack.to(torch.promote_types(stack.dtype, torch.float32))
            self.shared = {task: [row] for task, row in zip(self.shared, self.stack, strict=True)}
        return list(grads.rows_times(self.stack, one.to(self.stack.dtype)))


def _sum(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    if one is None or two is None:
        return two if one is None else one
    return one.add_(two)
