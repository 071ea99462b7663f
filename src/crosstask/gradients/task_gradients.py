"""Gradients of each task: taken one graph at a time, mixed, and put in place. Only torch is needed here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import sharded
from crosstask.gradients.inner_products import Gradient


@dataclass
class TaskGradient:
    """The gradient of one task: on the shared parameters, and on those that it reaches besides (its head)."""

    shared: Gradient
    head: list[tuple[Tensor, Tensor]]


@runtime_checkable
class HasTaskGradients(Protocol):
    """Losses of one graph with a method for each task's gradient, see `fused.FusedLosses`."""

    def gradients(self, shared: Sequence[nn.Parameter], scale: float = 1.0) -> dict[str, TaskGradient]:
        """By task."""


@runtime_checkable
class PlacesGradients(Protocol):
    """Losses of a step whose gradients the training loop takes and puts in place itself, as `training.graphs` does."""

    def numbers(self) -> dict[str, float]:
        """The losses by task."""

    def gram(self, tasks: Sequence[str]) -> Tensor:
        """Products of these tasks' gradients on the shared parameters, [tasks, tasks], in float64 on the CPU."""

    def put_in_place(self, factors: Mapping[str, float], head_factors: Mapping[str, float]) -> None:
        """Put gradients into `.grad`: on the shared parameters and on heads, each task's times its factor there."""


def leaves_of(loss: Tensor, *, until: Tensor | None = None) -> list[Tensor]:
    """The parameters that a loss depends on, by a walk through its graph; `until`: not those behind this tensor."""
    if loss.grad_fn is None:
        return []
    leaves: list[Tensor] = []
    visited: set[Any] = {None, loss.grad_fn}
    if until is not None:
        visited.add(until.grad_fn)
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if not node.next_functions and hasattr(node, "variable"):
            leaves.append(node.variable)
        for following, _ in node.next_functions:
            if following not in visited:
                visited.add(following)
                waiting.append(following)
    return leaves


def ids_of(tensors: Iterable[Tensor]) -> set[int]:
    """For membership tests: `in` and `==` compare tensors entry by entry."""
    return {id(tensor) for tensor in tensors}


def num_entries(tensors: Iterable[Tensor]) -> int:
    """Of all tensors together."""
    return sum(tensor.numel() for tensor in tensors)


def leaves_beside(loss: Tensor, shared: Iterable[Tensor]) -> list[Tensor]:
    """The parameters that a loss depends on besides the shared ones: its head."""
    shared = list(shared)
    # A graph leads to the whole of a sharded parameter.
    beside = ids_of(shared) | sharded.whole_parameters(shared).keys()
    return [leaf for leaf in leaves_of(loss) if id(leaf) not in beside]


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

    No two entries share memory, so that each may be changed in place. A loss that depends on no parameter has none.
    """
    if not loss.requires_grad:
        return TaskGradient([None] * len(shared), [])
    if any(map(sharded.is_sharded, shared)):
        return _take_sharded_gradient(loss, shared, retain_graph=retain_graph, create_graph=create_graph)
    head_parameters = leaves_beside(loss, shared)
    with one_graph_per_loss():
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            loss,
            [*shared, *head_parameters],
            allow_unused=True,
            retain_graph=retain_graph or create_graph,
            create_graph=create_graph,
        )
    if not create_graph:
        gradients = apart(gradients)
    return TaskGradient(list(gradients[: len(shared)]), reached(head_parameters, gradients[len(shared) :]))


def _take_sharded_gradient(
    loss: Tensor, shared: Sequence[nn.Parameter], *, retain_graph: bool, create_graph: bool
) -> TaskGradient:
    """The same where parameters are sharded: on these added up over ranks, of which each has its rows."""
    if create_graph:
        raise CrossTaskError(
            "Gradients of sharded parameters are not differentiable: take them within `gradients.sharded.gathered`."
        )
    head_parameters = leaves_beside(loss, shared)
    with one_graph_per_loss():
        gradients = sharded.take_gradient(loss, [*shared, *head_parameters], retain_graph=retain_graph)
    separate = apart(gradients)
    return TaskGradient(separate[: len(shared)], reached(head_parameters, separate[len(shared) :]))


def reached(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
    """The parameters that have a gradient, with it."""
    pairs = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            pairs.append((parameter, gradient))
    return pairs


def each_gradient(
    losses: Mapping[str, Tensor],
    shared: Sequence[nn.Parameter],
    scale: float = 1.0,
    *,
    check: Callable[[Mapping[str, Tensor]], None] = lambda losses: None,
) -> Iterator[tuple[str, Tensor, TaskGradient]]:
    """Task by task its name, its loss, and the gradient of that times `scale`.

    From a mapping that computes losses on access, one is computed at a time, so that one graph exists at a time.
    `check` is called with every loss before its gradient is taken.

    >>> weight = nn.Parameter(torch.ones(1))
    >>> gradients = each_gradient({"a": 2 * weight.sum(), "b": weight.sum() ** 3}, [weight])
    >>> [(task, loss.item(), gradient.shared[0].item()) for task, loss, gradient in gradients]
    [('a', 2.0, 2.0), ('b', 1.0, 3.0)]
    """
    if isinstance(losses, HasTaskGradients):
        check(losses)
        for task, gradient in losses.gradients(shared, scale).items():
            yield task, losses[task].detach(), gradient
        return
    for task in losses:
        loss = losses[task]
        check({task: loss})
        yield task, loss.detach(), take_gradient(loss * scale, shared)


def apart(gradients: Sequence[Tensor | None]) -> Gradient:
    """The same tensors without memory in common.

    The backward pass of a sum hands one tensor to all its terms, or a single entry that is expanded.
    """
    addresses: set[int] = set()
    separate: Gradient = []
    for gradient in gradients:
        if gradient is not None:
            address = gradient.data_ptr()
            if address in addresses or 0 in gradient.stride():
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            addresses.add(address)
        separate.append(gradient)
    return separate


def flatten(gradient: Gradient, parameters: Sequence[Tensor]) -> Tensor:
    """A copy of a gradient as one vector, with zeros where a parameter is not reached.

    One message between ranks instead of many. Of sharded parameters it has this rank's rows.

    >>> flatten([torch.ones(1, 2), None], [nn.Parameter(torch.ones(1, 2)), nn.Parameter(torch.ones(2))]).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    pieces = []
    for on_parameter, parameter in zip(gradient, parameters, strict=True):
        dense = torch.zeros_like(sharded.rows_here(parameter)) if on_parameter is None else on_parameter
        pieces.append(dense.detach().reshape(-1))
    return torch.cat(pieces)  # [entries of all parameters]


@torch.no_grad()
def mix(gradients: Sequence[Gradient], weights: Sequence[float]) -> Gradient:
    """The weighted sum, all parameters at once. Overwrites the gradients in place."""
    mixture: Gradient = [None] * len(gradients[0])
    for gradient, weight in zip(gradients, weights, strict=True):
        totals, terms, first_terms = [], [], []
        for index, term in enumerate(gradient):
            total = mixture[index]
            if term is None:
                continue
            if total is None:  # the first task that reaches a parameter lends its memory to the sum
                first_terms.append(term)
                mixture[index] = term
            else:
                totals.append(total)
                terms.append(term)
        if totals:
            torch._foreach_add_(totals, terms, alpha=weight)
        if first_terms:
            torch._foreach_mul_(first_terms, weight)
    return mixture


@torch.no_grad()
def add_to_grad(pairs: Iterable[tuple[Tensor, Tensor | None]], scale: float = 1.0, *, keep: bool = False) -> None:
    """Add gradients to `.grad`, as `backward` would.

    Args:
        pairs: parameters, each once, with their gradients; of sharded ones this rank's rows.
        scale: factor of every gradient.
        keep: whether the gradients are still needed; otherwise one may become `.grad` itself.
    """
    totals, terms = [], []
    without_grad, first_terms = [], []
    for parameter, gradient in pairs:
        if gradient is None:
            continue
        if parameter.grad is None:
            without_grad.append(parameter)
            first_terms.append(gradient.detach())
        else:
            totals.append(sharded.rows_here(parameter.grad))
            terms.append(gradient.detach())
    if totals:
        torch._foreach_add_(totals, terms, alpha=scale)
    if first_terms and scale != 1.0:
        first_terms, keep = list(torch._foreach_mul(first_terms, scale)), False
    for parameter, gradient in zip(without_grad, first_terms, strict=True):
        parameter.grad = sharded.like(parameter, gradient.to(parameter.dtype, copy=keep))
