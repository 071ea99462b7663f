"""Gradients of each task: taken one graph at a time, multiplied parameter by parameter, mixed, and put in place.

Only torch is needed here. Products are added up in float64: a float32 sum over millions of entries loses three digits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError

CHUNK = 1024
"""Entries whose products are added up in float32 before float64 takes over."""
SLICE = 256 * CHUNK
"""Entries of a parameter that are looked at together on the CPU: they stay in its cache."""
SLICE_ON_ACCELERATOR = 2**24
"""The same for an accelerator, over all tasks: few enough to keep in float64, many enough to keep it busy."""
MAX_PACKED_ENTRIES = 2**21
"""Entries of a small model, whose gradient is copied into one vector even on the CPU."""

Gradient = list[Tensor | None]
"""One entry per shared parameter; None where a task does not reach it."""


@dataclass
class TaskGradient:
    """The gradient of one task: on the shared parameters, and on those that it reaches besides (its head)."""

    shared: Gradient
    own: list[tuple[Tensor, Tensor]]


@runtime_checkable
class TellsApart(Protocol):
    """Losses of one graph that know each task's gradient, see `blockwise.FusedLosses`."""

    def gradients(self, shared: Sequence[nn.Parameter], scale: float = 1.0) -> dict[str, TaskGradient]:
        """By task."""


def leaves_of(loss: Tensor, *, until: Tensor | None = None) -> list[Tensor]:
    """The parameters that a loss depends on, found by walking its graph; `until`: not those behind this tensor."""
    found: list[Tensor] = []
    seen: set[Any] = {None, loss.grad_fn}
    if until is not None:
        seen.add(until.grad_fn)
    waiting: list[Any] = [loss.grad_fn] if loss.grad_fn is not None else []
    while waiting:
        node = waiting.pop()
        before = node.next_functions
        if not before and hasattr(node, "variable"):
            found.append(node.variable)
        for following, _ in before:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


@contextmanager
def one_graph_per_loss() -> Iterator[None]:
    """Explain torch's error about a graph that is walked again after it was freed."""
    try:
        yield
    except RuntimeError as error:
        if "second time" not in str(error):
            raise
        raise CrossTaskError(
            "Each task's gradient is taken by itself on this step, but losses share a graph. Where the weighting's "
            "`inspects_gradients` says so, run the model once for every task."
        ) from error


def take_gradient(
    loss: Tensor, shared: Sequence[nn.Parameter], *, retain_graph: bool = False, create_graph: bool = False
) -> TaskGradient:
    """The gradient of one task's loss; its graph is freed at once unless it is still needed.

    Each part has memory of its own, so that it may be changed in place. A loss that depends on no parameter has none.
    """
    if not loss.requires_grad:
        return TaskGradient([None] * len(shared), [])
    known = {id(parameter) for parameter in shared}
    own = [leaf for leaf in leaves_of(loss) if id(leaf) not in known]
    keep = retain_graph or create_graph
    with one_graph_per_loss():
        taken = torch.autograd.grad(
            loss, [*shared, *own], allow_unused=True, retain_graph=keep, create_graph=create_graph
        )
    parts: Gradient = list(taken) if create_graph else apart(taken)
    return TaskGradient(
        parts[: len(shared)],
        [(leaf, part) for leaf, part in zip(own, parts[len(shared) :], strict=True) if part is not None],
    )


def each_gradient(
    losses: Mapping[str, Tensor],
    shared: Sequence[nn.Parameter],
    scale: float = 1.0,
    *,
    check: Callable[[Mapping[str, Tensor]], None] = lambda losses: None,
) -> Iterator[tuple[str, Tensor, TaskGradient]]:
    """Task by task its name, its loss, and the gradient of that times `scale`.

    A mapping that computes losses when asked is asked for one at a time, so that one graph exists at a time. `check` is
    shown every loss before its gradient is taken.

    >>> weight = nn.Parameter(torch.ones(1))
    >>> found = each_gradient({"a": 2 * weight.sum(), "b": weight.sum() ** 3}, [weight])
    >>> [(task, loss.item(), gradient.shared[0].item()) for task, loss, gradient in found]
    [('a', 2.0, 2.0), ('b', 1.0, 3.0)]
    """
    if isinstance(losses, TellsApart):
        check(losses)
        taken = losses.gradients(shared, scale)
        yield from ((task, losses[task].detach(), gradient) for task, gradient in taken.items())
        return
    for task in losses:
        loss = losses[task]
        check({task: loss})
        yield task, loss.detach(), take_gradient(loss * scale, shared)


def apart(parts: Sequence[Tensor | None]) -> Gradient:
    """The same parts without memory in common: a sum hands one tensor to all that it adds up, or one entry repeated."""
    used: set[int] = set()
    apart: Gradient = []
    for part in parts:
        if part is not None:
            place = part.data_ptr()
            if place in used or 0 in part.stride():
                part = part.clone(memory_format=torch.contiguous_format)
            used.add(place)
        apart.append(part)
    return apart


def flatten(gradient: Gradient, parameters: Sequence[nn.Parameter]) -> Tensor:
    """A copy of a gradient as one vector, with zeros where a parameter is not reached.

    One message between ranks instead of many, few kernels on an accelerator.

    >>> flatten([torch.ones(1, 2), None], [nn.Parameter(torch.ones(1, 2)), nn.Parameter(torch.ones(2))]).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    return torch.cat(
        [
            (torch.zeros_like(parameter) if part is None else part).detach().reshape(-1)
            for part, parameter in zip(gradient, parameters, strict=True)
        ]
    )


def pack(gradient: Gradient, parameters: Sequence[nn.Parameter], num_ranks: int) -> Gradient:
    """A gradient as one vector where many small parts are slow: between ranks, on an accelerator, for a small model."""
    if num_ranks > 1 or parameters[0].is_cuda or sum(p.numel() for p in parameters) < MAX_PACKED_ENTRIES:
        return [flatten(gradient, parameters)]
    return gradient


def gram_matrix(gradients: Sequence[Gradient]) -> Tensor:
    """All products of the tasks' gradients, [tasks, tasks] in float64.

    Parameter by parameter: the tasks' parts are stacked, multiplied and forgotten, so that no matrix of tasks times all
    parameters ever exists. Small parameters are taken together: for them a call costs more than its work.

    >>> gram_matrix([[torch.tensor([1.0, 2.0]), None], [torch.tensor([3.0, 0.0]), torch.ones(1)]]).tolist()
    [[5.0, 3.0], [3.0, 10.0]]
    """
    total: Tensor | None = None
    for rows in _blocks(gradients):
        block = _products(rows)
        total = block if total is None else total.add_(block)
    if total is None:
        raise CrossTaskError("None of the tasks reaches any of the shared parameters.")
    return (total + total.T) / 2.0  # float32 products may differ in their last digit


def _blocks(gradients: Sequence[Gradient]) -> Iterator[list[Tensor]]:
    """The tasks' gradients some parameters at a time, each a vector with zeros where a task does not reach."""
    waiting: list[list[Tensor]] = []
    entries = 0
    for parts in zip(*gradients, strict=True):
        reached = next((part for part in parts if part is not None), None)
        if reached is None:
            continue
        columns = [(torch.zeros_like(reached) if part is None else part).detach().reshape(-1) for part in parts]
        room = SLICE_ON_ACCELERATOR if reached.is_cuda else SLICE
        if waiting and (entries + len(parts) * reached.numel() > room or _differ(waiting[0], columns)):
            yield _joined(waiting)
            waiting, entries = [], 0
        waiting.append(columns)
        entries += len(parts) * reached.numel()
    if waiting:
        yield _joined(waiting)


def _joined(blocks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return list(blocks[0]) if len(blocks) == 1 else [torch.cat(row) for row in zip(*blocks, strict=True)]


def _differ(one: Sequence[Tensor], two: Sequence[Tensor]) -> bool:
    return one[0].device != two[0].device or one[0].dtype != two[0].dtype


def _products(rows: Sequence[Tensor]) -> Tensor:
    """`rows @ rows.T` in float64, [tasks, tasks]."""
    width = max(CHUNK, SLICE_ON_ACCELERATOR // len(rows)) if rows[0].is_cuda else SLICE
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows[0].device)
    with _without_tf32(rows[0]):
        for start in range(0, len(rows[0]), width):
            part = torch.stack([row[start : start + width] for row in rows])
            whole = 0 if part.dtype == torch.float64 else part.shape[1] // CHUNK * CHUNK
            if whole:
                blocks = part[:, :whole].float().reshape(len(rows), -1, CHUNK).transpose(0, 1)  # [chunks, tasks, CHUNK]
                total += torch.bmm(blocks, blocks.transpose(1, 2)).double().sum(0)
            if whole < part.shape[1]:
                rest = part[:, whole:].double()
                total += rest @ rest.T
    return total


@contextmanager
def _without_tf32(like: Tensor) -> Iterator[None]:
    """Products of float32 as such: the shorter type that an accelerator may be told to use has three digits."""
    backend = torch.backends.cuda.matmul
    if not like.is_cuda or not hasattr(backend, "fp32_precision"):
        yield
        return
    before = backend.fp32_precision
    backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.fp32_precision = before


def product(first: Gradient, second: Gradient) -> Tensor:
    """The product of two gradients, in float64.

    >>> product([torch.tensor([1.0, 2.0]), None], [torch.tensor([3.0, 1.0]), torch.ones(1)]).item()
    5.0
    """
    parts = [
        dot(one.detach().reshape(-1), two.detach().reshape(-1))
        for one, two in zip(first, second, strict=True)
        if one is not None and two is not None
    ]
    if parts:
        return torch.stack(parts).sum()
    return torch.zeros((), dtype=torch.float64)


def dot(one: Tensor, two: Tensor) -> Tensor:
    """The product of two vectors in float64, without a copy of either in float64."""
    if one.dtype != two.dtype or one.dtype not in (torch.float32, torch.float64):
        one, two = one.float(), two.float()
    if one.is_cuda:
        whole = len(one) // CHUNK * CHUNK
        with _without_tf32(one):
            chunks = torch.bmm(one[:whole].view(-1, 1, CHUNK), two[:whole].view(-1, CHUNK, 1))
        return chunks.sum(dtype=torch.float64) + (one[whole:] * two[whole:]).sum(dtype=torch.float64)
    # Within a slice torch adds up in pairs, which loses next to nothing and is faster than float64.
    slices = zip(one.split(SLICE), two.split(SLICE), strict=True)
    return torch.tensor(sum(float((here * there).sum()) for here, there in slices), dtype=torch.float64)


def rows_times(rows: Tensor, vector: Tensor) -> Tensor:
    """Products of each row with a vector in float64, [rows], in one call; both at least float32, as `dot` makes them.

    >>> rows_times(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([1.0, 10.0])).tolist()
    [21.0, 30.0]
    """
    whole = len(vector) // CHUNK * CHUNK
    with _without_tf32(rows):
        chunks = rows[:, :whole].unflatten(1, (-1, CHUNK)).transpose(0, 1)  # [chunks, rows, CHUNK]
        sums = torch.bmm(chunks, vector[:whole].view(-1, CHUNK, 1))  # [chunks, rows, 1]
    return sums.sum((0, 2), dtype=torch.float64) + rows[:, whole:].double() @ vector[whole:].double()


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


@torch.no_grad()
def mix(gradients: Sequence[Gradient], weights: Sequence[float]) -> Gradient:
    """The weighted sum, all parameters at once. Memory of the gradients is reused: they are not what they were."""
    mixed: Gradient = [None] * len(gradients[0])
    for gradient, weight in zip(gradients, weights, strict=True):
        parts = [(i, mixed[i], part) for i, part in enumerate(gradient) if part is not None]
        known = [(total, part) for _, total, part in parts if total is not None]
        fresh = [(i, part) for i, total, part in parts if total is None]
        if known:
            torch._foreach_add_([total for total, _ in known], [part for _, part in known], alpha=weight)
        if fresh:
            torch._foreach_mul_([part for _, part in fresh], weight)
            for i, part in fresh:
                mixed[i] = part
    return mixed


@torch.no_grad()
def add_to_grad(pairs: Iterable[tuple[Tensor, Tensor | None]], scale: float = 1.0, *, keep: bool = False) -> None:
    """Add gradients to what stands in `.grad`, as `backward` would.

    Args:
        pairs: parameters, each once, with their gradients.
        scale: factor of every gradient.
        keep: whether the gradients are still needed; otherwise one may become `.grad` itself.
    """
    reached = [(parameter, gradient.detach()) for parameter, gradient in pairs if gradient is not None]
    known = [(parameter.grad, gradient) for parameter, gradient in reached if parameter.grad is not None]
    fresh = [(parameter, gradient) for parameter, gradient in reached if parameter.grad is None]
    if known:
        torch._foreach_add_([grad for grad, _ in known], [gradient for _, gradient in known], alpha=scale)
    if not fresh:
        return
    gradients = [gradient for _, gradient in fresh]
    if scale != 1.0:
        gradients, keep = list(torch._foreach_mul(gradients, scale)), False
    for (parameter, _), gradient in zip(fresh, gradients, strict=True):
        parameter.grad = gradient.to(parameter.dtype, copy=keep)
