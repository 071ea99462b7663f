"""Every task's gradient from one backward pass over all tasks.

In a fused pass the batch holds the examples of all tasks, one task after another. What a layer contributes to the
gradient of task t depends on the task's rows alone: of the layer's inputs X and of the gradient G on its outputs, such
as `G_t' X_t` for a linear layer. So one backward pass down to the layers' outputs and a product per layer give the
gradients of all tasks. A pass per task gives the same numbers with many times the kernel launches, which dominate the
time of a small model on a GPU.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crosstask.gradients.inner_products import Gradient
from crosstask.gradients.task_gradients import TaskGradient, reached

DEVICES = {"cuda"}
"""Where kernel launches cost more than their work. On a CPU a pass per task is as fast."""
MAX_ENTRIES = 2**29
"""Tasks times shared parameters: gradients of all tasks are in memory together."""
TOLERANCE = 0.02
"""Relative difference from plain autograd: rounding of 16-bit dtypes is less, a layer that was missed is more."""


class RowsMixedError(Exception):
    """A layer does not treat the rows of a batch one by one, as far as can be seen."""


class Lookup(nn.Module):
    """Rows of an embedding table, zero gradient for padding. It has no parameters: hooks see the table as an input."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, ids: Tensor, table: Tensor) -> Tensor:
        """From [batch, length] to [batch, length, dimension]."""
        return F.embedding(ids, table, padding_idx=self.padding)


Stacked = Iterator[tuple[Tensor, Tensor]]
"""Parameters with the gradients of all tasks, [tasks, *shape]."""


def _linear(layer: nn.Linear, inputs: Sequence[Tensor], gradient: Tensor) -> Stacked:
    rows = inputs[0].flatten(1, -2)  # [tasks, rows, inputs]
    gradient = gradient.flatten(1, -2)  # [tasks, rows, outputs]
    yield layer.weight, gradient.transpose(1, 2) @ rows.to(gradient.dtype)
    if layer.bias is not None:
        yield layer.bias, gradient.sum(1, dtype=layer.bias.dtype)


def _convolution(layer: nn.Conv1d, inputs: Sequence[Tensor], gradient: Tensor) -> Stacked:
    windows = inputs[0].unfold(-1, layer.kernel_size[0], 1)  # [tasks, batch, inputs, positions, width]
    rows = windows.permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)  # [tasks, batch * positions, inputs * width]
    gradient = gradient.transpose(2, 3).flatten(1, 2)  # [tasks, batch * positions, outputs]
    weight = gradient.transpose(1, 2) @ rows.to(gradient.dtype)
    yield layer.weight, weight.view(-1, *layer.weight.shape)
    if layer.bias is not None:
        yield layer.bias, gradient.sum(1, dtype=layer.bias.dtype)


def _layer_norm(layer: nn.LayerNorm, inputs: Sequence[Tensor], gradient: Tensor) -> Stacked:
    last = -1 - len(layer.normalized_shape)
    normalized = F.layer_norm(inputs[0].to(gradient.dtype), layer.normalized_shape, eps=layer.eps)
    yield layer.weight, (normalized * gradient).flatten(1, last).sum(1)
    if layer.bias is not None:
        yield layer.bias, gradient.flatten(1, last).sum(1)


def _embedding(layer: nn.Embedding, inputs: Sequence[Tensor], gradient: Tensor) -> Stacked:
    yield layer.weight, _table_gradients(inputs[0], layer.weight, layer.padding_idx, gradient)


def _lookup(layer: Lookup, inputs: Sequence[Tensor], gradient: Tensor) -> Stacked:
    ids, table = inputs
    yield table, _table_gradients(ids, table, layer.padding, gradient)


def _table_gradients(ids: Tensor, table: Tensor, padding: int | None, gradient: Tensor) -> Tensor:
    """As if every task had a copy of the table, with all copies in one: [tasks, *table]."""
    num_tasks, size = len(ids), len(table)
    offsets = size * torch.arange(num_tasks, device=ids.device).view(-1, *[1] * (ids.dim() - 1))
    gradients = torch.ops.aten.embedding_dense_backward(
        gradient.reshape(-1, table.shape[1]), (ids + offsets).reshape(-1), num_tasks * size, -1, False
    ).view(num_tasks, size, -1)
    if padding is not None:
        gradients[:, padding] = 0.0
    return gradients


RULES: dict[type[nn.Module], Callable[[Any, Sequence[Tensor], Tensor], Stacked]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    Lookup: _lookup,
}
"""From a layer, its inputs and the gradient on its output, each [tasks, batch, ...]."""


@dataclass(eq=False)
class Call:
    """A layer, its inputs and its output."""

    layer: nn.Module
    inputs: tuple[Tensor, ...]
    output: Tensor


def layers_to_record(module: nn.Module) -> list[nn.Module] | None:
    """The layers with trainable parameters, or None where a layer has no rule or mixes the rows of a batch."""
    layers: list[nn.Module] = []
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) or getattr(layer, "gradient_checkpointing", False):
            return None
        trainable = any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        if isinstance(layer, nn.Conv1d) and trainable and not _is_plain_convolution(layer):
            return None
        if type(layer) in RULES and (trainable or isinstance(layer, Lookup)):
            layers.append(layer)
        elif trainable and not any(isinstance(child, Lookup) for child in layer.children()):
            return None
    return layers


def _is_plain_convolution(layer: nn.Conv1d) -> bool:
    return (layer.stride, layer.padding, layer.dilation, layer.groups) == ((1,), (0,), (1,), 1)


@contextmanager
def recorded(layers: Sequence[nn.Module], size: int) -> Iterator[list[Call]]:
    """The calls of these layers, with a batch of this size."""
    calls: list[Call] = []

    def record(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        first = inputs[0] if inputs else None
        if not isinstance(first, Tensor) or not first.dim():
            raise RowsMixedError(type(layer).__name__)
        if len(first) == 1 < size:  # position ids, the same for all rows: each row gets a copy
            first = first.expand(size, *first.shape[1:])
            output = output.expand(size, *output.shape[1:])
        if len(first) != size:
            raise RowsMixedError(type(layer).__name__)
        if output.requires_grad:
            calls.append(Call(layer, (first.detach(), *inputs[1:]), output))
        return output

    # Before all other hooks: the output must be the one that the layer itself computed.
    handles = []
    for layer in layers:
        handles.append(layer.register_forward_hook(record, prepend=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


class FusedLosses(dict[str, Tensor]):
    """Losses of one fused pass, and what it takes to compute each task's gradient.

    Args:
        losses: by task.
        rows: each task's rows of the batch.
        calls: of the layers that hold shared parameters.
        head_parameters: each task's parameters that no other task has.
    """

    def __init__(
        self,
        losses: Mapping[str, Tensor],
        rows: Mapping[str, slice],
        calls: Sequence[Call],
        head_parameters: Mapping[str, Sequence[nn.Parameter]],
    ) -> None:
        super().__init__(losses)
        self.rows, self.calls, self.head_parameters = dict(rows), calls, head_parameters

    def only(self, tasks: Sequence[str]) -> "FusedLosses":
        """Of these tasks alone."""
        return FusedLosses({task: self[task] for task in tasks}, self.rows, self.calls, self.head_parameters)

    def gradients(
        self, shared: Sequence[nn.Parameter], scale: float = 1.0, *, retain_graph: bool = False
    ) -> dict[str, TaskGradient]:
        """Each task's gradient, as `task_gradients.take_gradient` would take it from a separate pass."""
        stacked, heads = self.stacked_gradients(scale, retain_graph=retain_graph)
        index_of = {task: index for index, task in enumerate(self.rows)}
        by_task: dict[str, TaskGradient] = {}
        for task in self:
            on_shared: Gradient = []
            for parameter in shared:
                stack = stacked.get(id(parameter))
                on_shared.append(None if stack is None else stack[index_of[task]])
            by_task[task] = TaskGradient(on_shared, heads[task])
        return by_task

    def stacked_gradients(
        self, scale: float = 1.0, *, retain_graph: bool = False
    ) -> tuple[dict[int, Tensor], dict[str, list[tuple[Tensor, Tensor]]]]:
        """By the id of a shared parameter all tasks' gradients, [tasks, *shape]; and by task those on its head."""
        outputs = [call.output for call in self.calls]
        heads: list[nn.Parameter] = []
        for task in self:
            heads.extend(self.head_parameters[task])
        loss = scale * torch.stack(list(self.values())).sum()
        gradients = torch.autograd.grad(loss, [*outputs, *heads], allow_unused=True, retain_graph=retain_graph)
        stacked = self._stacked_gradients(gradients[: len(outputs)])
        head_gradients = iter(gradients[len(outputs) :])
        by_task: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for task in self:
            parameters = self.head_parameters[task]
            by_task[task] = reached(parameters, list(islice(head_gradients, len(parameters))))
        return stacked, by_task

    @torch.no_grad()
    def _stacked_gradients(self, output_gradients: Sequence[Tensor | None]) -> dict[int, Tensor]:
        """By the id of a shared parameter the gradients of all tasks, [tasks, *shape]."""
        stacked: dict[int, Tensor] = {}
        for call, output_gradient in zip(self.calls, output_gradients, strict=True):
            if output_gradient is None:
                continue
            for parameter, gradients in self._call_gradients(call, output_gradient):
                if not parameter.requires_grad:
                    continue
                if id(parameter) in stacked:  # a layer that is called several times
                    stacked[id(parameter)].add_(gradients)
                else:
                    stacked[id(parameter)] = gradients.to(parameter.dtype)
        return stacked

    def _call_gradients(self, call: Call, output_gradient: Tensor) -> Stacked:
        """Of all tasks at once where their batches have the same size, else task by task."""
        rule, (first, *others) = RULES[type(call.layer)], call.inputs
        sizes = {rows.stop - rows.start for rows in self.rows.values()}
        if len(sizes) == 1:
            shape = (len(self.rows), sizes.pop())
            inputs = (first.unflatten(0, shape), *others)  # [tasks, batch, ...]
            yield from rule(call.layer, inputs, output_gradient.unflatten(0, shape))
            return
        by_task = []
        for rows in self.rows.values():
            inputs = (first[rows].unsqueeze(0), *others)  # [1, batch, ...]
            by_task.append(list(rule(call.layer, inputs, output_gradient[rows].unsqueeze(0))))
        for pairs in zip(*by_task, strict=True):
            parameters, gradients = zip(*pairs, strict=True)  # the same parameter for every task
            yield parameters[0], torch.cat(gradients)  # [tasks, *shape]


def agree(losses: FusedLosses, shared: Sequence[nn.Parameter]) -> bool:
    """Whether plain autograd gives the same gradients, of all tasks together and of the first one alone.

    It does not where a parameter is used outside its layer, where a layer's output is changed in place, or where the
    first dimension of an input is not the batch.
    """
    gradients = losses.gradients(shared, retain_graph=True)
    first = next(iter(losses))
    total = torch.stack(list(losses.values())).sum()
    return _is_sum(losses[first], [gradients[first]], shared) and _is_sum(total, list(gradients.values()), shared)


def _is_sum(loss: Tensor, gradients: Sequence[TaskGradient], shared: Sequence[nn.Parameter]) -> bool:
    """Whether these gradients add up to that of the loss."""
    expected = torch.autograd.grad(loss, shared, allow_unused=True, retain_graph=True, materialize_grads=True)
    # A gradient that is zero but for rounding, as that of a bias before a softmax, has no relative error.
    rounding = TOLERANCE**3 * max(float(gradient.norm()) for gradient in expected)
    for index, full in enumerate(expected):
        difference = -full
        sizes = 0.0  # tasks may cancel out, their rounding errors do not
        for gradient in gradients:
            on_parameter = gradient.shared[index]
            if on_parameter is not None:
                difference = difference + on_parameter
                sizes += float(on_parameter.norm())
        if not float(difference.norm()) <= TOLERANCE * sizes + rounding:
            return False
    return True
