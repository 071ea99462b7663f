"""Gradients of each task: taken one graph at a time, multiplied parameter by parameter, mixed, and put in place.

Only torch is needed here. Products are added up in float64: a float32 sum over millions of entries loses three digits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError

CHUNK = 4096
"""Entries whose products are added up in float32 before float64 takes over."""

Gradient = list[Tensor | None]
"""One entry per shared parameter; None where a task does not reach it."""


@dataclass
class TaskGradient:
    """The gradient of one task: on the shared parameters, and on those that it reaches besides (its head)."""

    shared: Gradient
    own: list[tuple[Tensor, Tensor]]


def leaves_of(loss: Tensor) -> list[Tensor]:
    """The parameters that a loss depends on, found by walking its graph."""
    found: dict[int, Tensor] = {}
    seen = set()
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        waiting.extend(following for following, _ in node.next_functions)
    return list(found.values())


def take_gradient(
    loss: Tensor, shared: Sequence[nn.Parameter], *, retain_graph: bool = False, create_graph: bool = False
) -> TaskGradient:
    """The gradient of one task's loss; its graph is freed at once unless it is still needed."""
    known = {id(parameter) for parameter in shared}
    own = [leaf for leaf in leaves_of(loss) if id(leaf) not in known]
    taken = torch.autograd.grad(
        loss, [*shared, *own], allow_unused=True, retain_graph=retain_graph or create_graph, create_graph=create_graph
    )
    return TaskGradient(
        list(taken[: len(shared)]),
        [(leaf, part) for leaf, part in zip(own, taken[len(shared) :], strict=True) if part is not None],
    )


def gram_matrix(gradients: Sequence[Gradient]) -> Tensor:
    """All products of the tasks' gradients, [tasks, tasks] in float64.

    Parameter by parameter: the tasks' parts are stacked, multiplied and forgotten, so that no matrix of tasks times all
    parameters ever exists.

    >>> gram_matrix([[torch.tensor([1.0, 2.0]), None], [torch.tensor([3.0, 0.0]), torch.ones(1)]]).tolist()
    [[5.0, 3.0], [3.0, 10.0]]
    """
    total: Tensor | None = None
    size = len(gradients)
    for parts in zip(*gradients, strict=True):
        reached = [i for i, part in enumerate(parts) if part is not None]
        if not reached:
            continue
        rows = torch.stack([parts[i].detach().reshape(-1) for i in reached])
        block = _products(rows)
        if total is None:
            total = block.new_zeros(size, size)
        if len(reached) == size:
            total += block
        else:
            where = torch.tensor(reached, device=block.device)
            total[where[:, None], where] += block
    if total is None:
        raise CrossTaskError("None of the tasks reaches any of the shared parameters.")
    return total


def _products(rows: Tensor) -> Tensor:
    """`rows @ rows.T` in float64, [tasks, tasks]."""
    if rows.is_cuda or rows.dtype == torch.float64:
        wide = rows.double()
        return wide @ wide.T
    rows = rows.float()
    whole = rows.shape[1] // CHUNK * CHUNK
    blocks = rows[:, :whole].reshape(len(rows), -1, CHUNK).transpose(0, 1)  # [chunks, tasks, CHUNK]
    rest = rows[:, whole:].double()
    return torch.bmm(blocks, blocks.transpose(1, 2)).double().sum(0) + rest @ rest.T


def product(first: Gradient, second: Gradient) -> Tensor:
    """The product of two gradients, in float64."""
    parts = [
        (one.detach() * two.detach()).sum(dtype=torch.float64)
        for one, two in zip(first, second, strict=True)
        if one is not None and two is not None
    ]
    if parts:
        return torch.stack(parts).sum()
    return torch.zeros((), dtype=torch.float64)


def cosines(gram: Tensor) -> Tensor:
    """Cosines of all pairs; a gradient that is zero has cosine zero with every other."""
    norms = gram.diagonal().clamp(min=0.0).sqrt()
    scales = torch.where(norms > 0, 1.0 / norms.clamp(min=1e-300), 0.0)
    return (gram * scales[:, None] * scales).clamp(-1.0, 1.0)


def conflict(gram: Tensor) -> float:
    """Share of the pairs of tasks whose gradients point against each other."""
    size = len(gram)
    if size < 2:
        return 0.0
    above = torch.triu(torch.ones(size, size, dtype=torch.bool, device=gram.device), diagonal=1)
    return float((gram[above] < 0).double().mean())


def mix(gradients: Sequence[Gradient], weights: Sequence[float]) -> Gradient:
    """The weighted sum, parameter by parameter. The first gradient's memory is reused: it is not what it was."""
    mixed: Gradient = []
    for parts in zip(*gradients, strict=True):
        total: Tensor | None = None
        for part, weight in zip(parts, weights, strict=True):
            if part is None:
                continue
            total = part.detach().mul_(weight) if total is None else total.add_(part.detach(), alpha=weight)
        mixed.append(total)
    return mixed


def add_to_grad(pairs: Iterable[tuple[Tensor, Tensor | None]], scale: float = 1.0) -> None:
    """Add gradients to what stands in `.grad`, as `backward` would."""
    for parameter, gradient in pairs:
        if gradient is None:
            continue
        scaled = gradient.detach() if scale == 1.0 else gradient.detach() * scale
        if parameter.grad is None:
            parameter.grad = scaled.to(parameter.dtype)
        else:
            parameter.grad.add_(scaled)
