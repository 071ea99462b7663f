"""Every task's gradient from one pass over all of them.

In a fused pass the examples of all tasks stand one task after another. What a layer adds to the gradient of task t is
told by the task's rows alone, of what entered the layer and of the gradient that came back to it: `G_t' X_t` for a
linear layer. So one backward pass down to the layers' outputs and a product per layer give the gradients of all tasks.
A pass per task gives the same numbers from as many times the launches, which is what a small model costs on a GPU.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crosstask.gradients.task_gradients import TaskGradient

DEVICES = {"cuda"}
"""Where launches cost more than work. On a CPU a pass per task is as fast."""
MOST_ENTRIES = 2**29
"""Tasks times shared parameters: gradients of all tasks are in memory together."""
TOLERANCE = 0.02
"""Between both ways, relative: what short number formats do is less, a layer that was missed is more."""


class RowsMixedError(Exception):
    """A layer does not treat the rows of a batch one by one, as far as can be seen."""


class Lookup(nn.Module):
    """Rows of a table by number, zero gradient for padding. It holds nothing: hooks can see what passes here."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, numbers: Tensor, table: Tensor) -> Tensor:
        """From [batch, length] to [batch, length, dimension]."""
        return F.embedding(numbers, table, padding_idx=self.padding)


Parts = Iterator[tuple[Tensor, Tensor]]
"""Parameters with their gradients, [tasks, *shape]."""


def _linear(layer: nn.Linear, given: Sequence[Tensor], back: Tensor) -> Parts:
    entered, back = given[0].flatten(1, -2), back.flatten(1, -2)  # [tasks, rows, inputs], [tasks, rows, outputs]
    yield layer.weight, back.transpose(1, 2) @ entered.to(back.dtype)
    if layer.bias is not None:
        yield layer.bias, back.sum(1, dtype=layer.bias.dtype)


def _convolution(layer: nn.Conv1d, given: Sequence[Tensor], back: Tensor) -> Parts:
    windows = given[0].unfold(-1, layer.kernel_size[0], 1)  # [tasks, batch, inputs, places, width]
    entered = windows.permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)  # [tasks, batch * places, inputs * width]
    back = back.transpose(2, 3).flatten(1, 2)  # [tasks, batch * places, outputs]
    weight = back.transpose(1, 2) @ entered.to(back.dtype)
    yield layer.weight, weight.view(-1, *layer.weight.shape)
    if layer.bias is not None:
        yield layer.bias, back.sum(1, dtype=layer.bias.dtype)


def _normalisation(layer: nn.LayerNorm, given: Sequence[Tensor], back: Tensor) -> Parts:
    last = -1 - len(layer.normalized_shape)
    normed = F.layer_norm(given[0].to(back.dtype), layer.normalized_shape, eps=layer.eps)
    yield layer.weight, (normed * back).flatten(1, last).sum(1)
    if layer.bias is not None:
        yield layer.bias, back.flatten(1, last).sum(1)


def _embedding(layer: nn.Embedding, given: Sequence[Tensor], back: Tensor) -> Parts:
    yield layer.weight, _of_table(given[0], layer.weight, layer.padding_idx, back)


def _lookup(layer: Lookup, given: Sequence[Tensor], back: Tensor) -> Parts:
    numbers, table = given
    yield table, _of_table(numbers, table, layer.padding, back)


def _of_table(numbers: Tensor, table: Tensor, padding: int | None, back: Tensor) -> Tensor:
    """As if every task had a table of its own, all of them in one."""
    tasks, size = len(numbers), len(table)
    first = size * torch.arange(tasks, device=numbers.device).view(-1, *[1] * (numbers.dim() - 1))
    found = torch.ops.aten.embedding_dense_backward(
        back.reshape(-1, table.shape[1]), (numbers + first).reshape(-1), tasks * size, -1, False
    ).view(tasks, size, -1)
    if padding is not None:
        found[:, padding] = 0.0
    return found


RULES: dict[type[nn.Module], Callable[[Any, Sequence[Tensor], Tensor], Parts]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.LayerNorm: _normalisation,
    nn.Embedding: _embedding,
    Lookup: _lookup,
}
"""From a layer, what it was given and the gradient of what it returned, each [tasks, batch, ...]."""


@dataclass(eq=False)
class Call:
    """A layer, what it was given, and what it returned."""

    layer: nn.Module
    given: tuple[Tensor, ...]
    returned: Tensor


def layers_to_record(module: nn.Module) -> list[nn.Module] | None:
    """The layers that hold what learns, or None where a rule is missing or rows of a batch do not stay apart."""
    found: list[nn.Module] = []
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) or getattr(part, "gradient_checkpointing", False):
            return None
        learns = any(parameter.requires_grad for parameter in part.parameters(recurse=False))
        if isinstance(part, nn.Conv1d) and learns and not _slides_plainly(part):
            return None
        if type(part) in RULES and (learns or isinstance(part, Lookup)):
            found.append(part)
        elif learns and not any(isinstance(child, Lookup) for child in part.children()):
            return None
    return found


def _slides_plainly(layer: nn.Conv1d) -> bool:
    return (layer.stride, layer.padding, layer.dilation, layer.groups) == ((1,), (0,), (1,), 1)


@contextmanager
def recorded(layers: Sequence[nn.Module], size: int) -> Iterator[list[Call]]:
    """The calls of these layers, with a batch of this size."""
    calls: list[Call] = []

    def record(layer: nn.Module, given: tuple[Any, ...], returned: Tensor) -> Tensor:
        first = given[0] if given else None
        if not isinstance(first, Tensor) or not first.dim():
            raise RowsMixedError(type(layer).__name__)
        if len(first) == 1 < size:  # positions, the same for all rows: now each row has its own
            first, returned = (part.expand(size, *part.shape[1:]) for part in (first, returned))
        if len(first) != size:
            raise RowsMixedError(type(layer).__name__)
        if returned.requires_grad:
            calls.append(Call(layer, (first.detach(), *given[1:]), returned))
        return returned

    # First of all hooks: it has to see what the layer itself returned.
    handles = [layer.register_forward_hook(record, prepend=True) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


class FusedLosses(dict[str, Tensor]):
    """Losses of one fused pass, and what it takes to tell the tasks' gradients apart.

    Args:
        losses: by task.
        rows: whose examples stand where in the batch.
        calls: of the layers that hold shared parameters.
        own: each task's parameters that no other task has.
    """

    def __init__(
        self,
        losses: Mapping[str, Tensor],
        rows: Mapping[str, slice],
        calls: Sequence[Call],
        own: Mapping[str, Sequence[nn.Parameter]],
    ) -> None:
        super().__init__(losses)
        self.rows, self.calls, self.own_parameters = dict(rows), calls, own

    def only(self, tasks: Sequence[str]) -> "FusedLosses":
        """Of these tasks alone."""
        return FusedLosses({task: self[task] for task in tasks}, self.rows, self.calls, self.own_parameters)

    def gradients(
        self, shared: Sequence[nn.Parameter], scale: float = 1.0, *, retain_graph: bool = False
    ) -> dict[str, TaskGradient]:
        """Each task's gradient, as `gradients.take_gradient` would have it from a pass of its own."""
        own = [(task, parameter) for task in self for parameter in self.own_parameters[task]]
        wanted = [*(call.returned for call in self.calls), *(parameter for _, parameter in own)]
        taken = torch.autograd.grad(
            scale * torch.stack(list(self.values())).sum(), wanted, allow_unused=True, retain_graph=retain_graph
        )
        found: dict[int, Tensor] = {}
        with torch.no_grad():
            for call, back in zip(self.calls, taken, strict=False):
                if back is not None:
                    for parameter, part in self._parts(call, back):
                        before = found.get(id(parameter))
                        found[id(parameter)] = part.to(parameter.dtype) if before is None else before.add_(part)
        places = {task: place for place, task in enumerate(self.rows)}
        heads: dict[str, list[tuple[Tensor, Tensor]]] = {task: [] for task in self}
        for (task, parameter), part in zip(own, taken[len(self.calls) :], strict=True):
            if part is not None:
                heads[task].append((parameter, part))
        return {
            task: TaskGradient([_at(found.get(id(parameter)), places[task]) for parameter in shared], heads[task])
            for task in self
        }

    def _parts(self, call: Call, back: Tensor) -> Parts:
        """Of all tasks at once where their batches have the same size, else task by task."""
        rule, (first, *others) = RULES[type(call.layer)], call.given
        sizes = {rows.stop - rows.start for rows in self.rows.values()}
        if len(sizes) == 1:
            tasks = len(self.rows)
            blocks = (part.reshape(tasks, -1, *part.shape[1:]) for part in (first, back))
            yield from _learning(rule(call.layer, (next(blocks), *others), next(blocks)))
            return
        by_task = [
            list(_learning(rule(call.layer, (first[rows].unsqueeze(0), *others), back[rows].unsqueeze(0))))
            for rows in self.rows.values()
        ]
        for parts in zip(*by_task, strict=True):
            yield parts[0][0], torch.cat([part for _, part in parts])


def _learning(parts: Parts) -> Parts:
    return ((parameter, part) for parameter, part in parts if parameter.requires_grad)


def _at(stack: Tensor | None, place: int) -> Tensor | None:
    return None if stack is None else stack[place]


def agree(losses: FusedLosses, shared: Sequence[nn.Parameter]) -> bool:
    """Whether plain autograd says the same, of all tasks together and of the first one alone.

    It does not where a parameter is used outside its layer, where a layer's answer is changed in place, or where what
    looks like rows of the batch is something else.
    """
    taken = losses.gradients(shared, retain_graph=True)
    first = next(iter(losses))
    everything = torch.stack(list(losses.values())).sum()
    return _same(losses[first], [taken[first]], shared) and _same(everything, list(taken.values()), shared)


def _same(loss: Tensor, gradients: Sequence[TaskGradient], shared: Sequence[nn.Parameter]) -> bool:
    """Whether these gradients add up to that of the loss."""
    whole = torch.autograd.grad(loss, shared, allow_unused=True, retain_graph=True, materialize_grads=True)
    # What is zero but for rounding, as the gradient of a bias that attention does not see, is not looked at closely.
    rounding = TOLERANCE**3 * max(float(part.norm()) for part in whole)
    for place, expected in enumerate(whole):
        parts = [part for gradient in gradients if (part := gradient.shared[place]) is not None]
        found = sum(parts[1:], parts[0]) if parts else torch.zeros_like(expected)
        sizes = sum(float(part.norm()) for part in parts)  # tasks may cancel out, their rounding errors do not
        if not float((found - expected).norm()) <= TOLERANCE * sizes + rounding:
            return False
    return True
