"""Several ranks in a training loop of the user, through torch.distributed alone. The learner does all this by itself.

A weighting takes gradients task by task and combines them, so that DistributedDataParallel (DDP), which waits for one
plain `.backward()` of everything, must not add them up. Under `torchrun`, after `init_process_group`:

    model = DistributedDataParallel(model)                   # here it only makes all ranks start with the same model
    share_ranks(weighting)
    for batches in loader:                                   # each rank has other examples
        with model.no_sync():                                # around the forward pass too
            losses = {name: loss_of(model, name, batch) / weighting.num_ranks for name, batch in batches.items()}
            weighting.backward(losses, shared=model.module.encoder.parameters())
        sum_gradients(model.parameters())                    # what DDP would have done
        optimizer.step(); optimizer.zero_grad()
        if weighting.wants_held_out:
            with model.no_sync():
                weighting.after_step(held_out_losses(), shared=...)

Without the wrapper it is the same loop without `no_sync`; then the ranks must start from the same parameters, for
instance by the same seed. A model that is too large for one card is sharded with `gradients.sharded.shard` in place of
the wrapper; the rest of the loop stays as it is.

A loss here is this rank's term of the task's loss: added up over ranks they give the task's loss. Where all ranks have
the same number of examples that is its mean loss divided by `num_ranks`, as above; where not, the sum over its examples
divided by the number of all. Each rank must pass the same tasks in the same order, and its losses must reach the same
parameters: one without examples of a task passes 0.0 times its loss of any example.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor, distributed, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients.inner_products import Gradient, gram_matrix
from crosstask.gradients.sharded import is_sharded, like, whole
from crosstask.gradients.task_gradients import flatten, num_entries

Head = dict[Tensor, Tensor]
"""Gradients on the parameters that one task alone reaches."""


class Shareable(Protocol):
    """What has to reach the same values on every rank: any `Weighting`."""

    def connect(
        self,
        reduce: Callable[[Tensor], Tensor],
        num_ranks: int,
        scatter: Callable[[Tensor], Tensor] | None = None,
        rank: int | None = None,
    ) -> None:
        """Take part in sums over ranks."""


@dataclass(frozen=True)
class Ranks:
    """The processes that train one model.

    - `reduce`: a tensor added up over all of them, as a copy;
    - `count`: how many they are;
    - `scatter`: a vector added up over all of them, of which each gets as many entries, in the order of the ranks;
    - `number`: of this one.
    """

    reduce: Callable[[Tensor], Tensor]
    count: int
    scatter: Callable[[Tensor], Tensor] | None = None
    number: int | None = None

    def sum(self, values: Tensor) -> Tensor:
        """Added up over ranks; on a single one the tensor itself."""
        return values if self.count == 1 else self.reduce(values)

    def join(self, values: Tensor) -> Tensor:
        """The entries of all ranks' vectors, which may differ in length, in the order of the ranks."""
        if self.count == 1:
            return values
        assert self.number is not None
        lengths = values.new_zeros(self.count)
        lengths[self.number] = len(values)
        ends = self.reduce(lengths).cumsum(0).long().tolist()
        joined = values.new_zeros(ends[-1])
        joined[ends[self.number] - len(values) : ends[self.number]] = values
        return self.reduce(joined)

    # A gradient here is this rank's part of it, or on sharded parameters this rank's rows of the whole.

    def slices(self, gradient: Gradient, parameters: Sequence[Tensor]) -> Gradient:
        """This rank's slice of a gradient that is added up over ranks.

        The slices of all ranks make up the gradient, so products of slices, added up over ranks, are products of
        gradients: besides the pass that takes a gradient, as little is sent for them as there are products.
        """
        if self.count == 1:
            return gradient
        slices: Gradient = []
        apart: Gradient = []  # of which each rank has a part
        parameters_apart: list[Tensor] = []
        for on_parameter, parameter in zip(gradient, parameters, strict=True):
            if is_sharded(parameter):
                slices.append(on_parameter)
            else:
                apart.append(on_parameter)
                parameters_apart.append(parameter)
        if parameters_apart:
            slices.append(self._slice_of(flatten(apart, parameters_apart)))
        return slices

    def _slice_of(self, values: Tensor) -> Tensor:
        if self.scatter is None:
            # Each rank has all of it and takes an equal fraction of each product.
            return self.reduce(values) / self.count**0.5
        padding = -len(values) % self.count
        return self.scatter(torch.nn.functional.pad(values, (0, padding)))

    def gram(self, gradients: Sequence[Gradient], parameters: Sequence[Tensor]) -> Tensor:
        """All products of gradients that are added up over ranks, [gradients, gradients] in float64."""
        example = next((part for part in chain.from_iterable(gradients) if part is not None), None)
        if self.count == 1 or example is None:
            return gram_matrix(gradients)
        slices = [self.slices(gradient, parameters) for gradient in gradients]
        products = torch.zeros(len(gradients), len(gradients), dtype=torch.float64, device=example.device)
        if any(part is not None and part.numel() for part in chain.from_iterable(slices)):
            products = gram_matrix(slices)  # of small parameters this rank may have no rows
        return self.reduce(products)

    def sum_gradient(self, gradient: Gradient, parameters: Sequence[Tensor]) -> Gradient:
        """A gradient added up over ranks, each of which gets all of it, in one message; None is a gradient of zero."""
        if self.count == 1:
            return list(gradient)
        total: Gradient = [None] * len(gradient)
        apart: list[int] = []
        for index, (on_parameter, parameter) in enumerate(zip(gradient, parameters, strict=True)):
            if not is_sharded(parameter):
                apart.append(index)
            elif on_parameter is not None:
                total[index] = whole(like(parameter, on_parameter))
        if apart:
            shapes = [parameters[index] for index in apart]
            flat = self.reduce(flatten([gradient[index] for index in apart], shapes))
            pieces = flat.split([parameter.numel() for parameter in shapes])
            for index, parameter, piece in zip(apart, shapes, pieces, strict=True):
                total[index] = piece.view_as(parameter).to(parameter.dtype)
        return total

    def slice_heads(self, heads: Mapping[str, Head], device: torch.device) -> dict[str, Head]:
        """This rank's slices of the gradients on each task's head, added up over ranks.

        A rank without an example of a task may not reach its head. Then no rank counts it, for all must agree.
        """
        if self.count == 1:
            return dict(heads)
        sizes = []
        for head in heads.values():
            sizes.append(num_entries(head.values()))
        entries = torch.tensor(sizes, dtype=torch.float64, device=device)  # [tasks]
        reached_by_all = (self.reduce(entries) == self.count * entries).tolist()
        slices: dict[str, Head] = {}
        for (task, head), is_complete in zip(heads.items(), reached_by_all, strict=True):
            slices[task] = {}
            if is_complete:
                for leaf, gradient in head.items():
                    slices[task][leaf] = self._slice_of(gradient.detach().reshape(-1))
        return slices


def share_ranks(weighting: Shareable) -> None:
    """Let every rank reach the same weights; with one process nothing changes, so that a script can run either way."""
    num_ranks = _num_ranks()
    rank = distributed.get_rank() if num_ranks > 1 else 0
    weighting.connect(sum_over_ranks, num_ranks, scatter_over_ranks, rank)


def sum_over_ranks(values: Tensor) -> Tensor:
    """A copy, added up over all ranks."""
    if _num_ranks() == 1:
        return values
    total = values.detach().clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(total)
    return total


def scatter_over_ranks(values: Tensor) -> Tensor:
    """A vector added up over all ranks, of which each gets an equal part, in the order of the ranks."""
    num_ranks = _num_ranks()
    if num_ranks == 1:
        return values
    part = values.new_empty(len(values) // num_ranks)
    # Its name from torch 2.13 on, and the one before.
    reduce_scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    reduce_scatter(part, values.detach().contiguous())
    return part


def sum_gradients(parameters: Iterable[nn.Parameter], add_up: Callable[[Tensor], Tensor] = sum_over_ranks) -> None:
    """Add every `.grad` up over all ranks, in one message for each dtype; a rank that has none adds zero.

    Those of sharded parameters are left alone: the backward pass has added them up.

    Args:
        parameters: those of the optimizer, in the same order on every rank.
        add_up: how one tensor is added up over ranks.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
    for parameter in parameters:
        if not is_sharded(parameter):
            groups.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    for group in groups.values():
        gradient: Gradient = []
        has_grad: list[float] = []
        sizes: list[int] = []
        for parameter in group:
            gradient.append(parameter.grad)
            has_grad.append(float(parameter.grad is not None))
            sizes.append(parameter.numel())
        flat = add_up(flatten(gradient, group))  # [entries of the group]
        # How many ranks have a gradient: a parameter that none reaches keeps none, and the optimizer leaves it alone.
        counts = add_up(torch.tensor(has_grad, device=flat.device))  # [parameters of the group]
        pieces = flat.split(sizes)
        for parameter, piece, count in zip(group, pieces, counts.tolist(), strict=True):
            parameter.grad = piece.view_as(parameter).clone() if count else None


def _num_ranks() -> int:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    expected = os.environ.get("WORLD_SIZE", "1")
    if expected not in ("", "1"):
        raise CrossTaskError(
            f"{expected} ranks were started, but they do not know of each other yet: call "
            "`torch.distributed.init_process_group()` before the weighting is shared."
        )
    return 1
