"""Gradients on what the encoder hands to the heads: taken through each head alone, multiplied, and passed on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError
from crosstask.gradients.inner_products import gram_matrix
from crosstask.gradients.task_gradients import add_to_grad, ids_of, leaves_of, reached


@dataclass(frozen=True)
class RepresentationGradient:
    """One task's gradient as far as it is known without a pass through the encoder.

    - `representation`: what the task's head was given; None on a rank without examples of the task;
    - `on_representation`: the gradient on it;
    - `on_parameters`: gradients on the parameters that the loss reaches besides, the head's above all.
    """

    representation: Tensor | None
    on_representation: Tensor | None
    on_parameters: list[tuple[Tensor, Tensor]]


def take_gradient(
    loss: Tensor, representation: Tensor | None, shared: set[int], *, where: tuple[str, str], num_ranks: int
) -> RepresentationGradient:
    """The gradient of a loss on its representation and on the parameters that it reaches otherwise.

    Args:
        loss: of one task; its graph is kept for the pass through the encoder.
        representation: part of that graph.
        shared: ids of the shared parameters, empty if they are not known.
        where: names of the method and of the task, for messages.
        num_ranks: with several, this one may have no example of the task.
    """
    method, task = where
    if representation is None or not representation.requires_grad:
        if num_ranks == 1:
            problem = "none was passed" if representation is None else "it does not need a gradient"
            raise CrossTaskError(
                f"weighting '{method}' needs the representation of '{task}' as part of its graph, but {problem}; with "
                "a frozen encoder use another weighting."
            )
        beside = leaves_of(loss)
        gradients = torch.autograd.grad(loss, beside, allow_unused=True, retain_graph=True)
        return RepresentationGradient(None, None, reached(beside, gradients))
    beside, tied = _leaves_beside(loss, representation, shared)
    gradient, *head_gradients = torch.autograd.grad(
        loss, [representation, *beside], allow_unused=True, retain_graph=True
    )
    if gradient is None and num_ranks == 1:
        raise CrossTaskError(
            f"weighting '{method}': the loss of '{task}' does not depend on the representation that was passed for "
            "it; pass the very tensor that its head was given."
        )
    if tied:
        # Without the gradient that comes through the representation: it follows in the pass through the encoder.
        block = representation.register_hook(torch.zeros_like)
        head_gradients += torch.autograd.grad(loss, tied, allow_unused=True, retain_graph=True)
        block.remove()
    return RepresentationGradient(representation, gradient, reached([*beside, *tied], head_gradients))


def _leaves_beside(loss: Tensor, representation: Tensor, shared: set[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters that the loss reaches beside the representation, and those of them that stand behind it too."""
    beside = [leaf for leaf in leaves_of(loss, until=representation) if leaf is not representation]
    # Only shared parameters can stand behind a representation; without one of them the second walk is saved.
    if shared and shared.isdisjoint(ids_of(beside)):
        return beside, []
    behind = ids_of(leaves_of(representation))
    separate: list[Tensor] = []
    tied: list[Tensor] = []
    for leaf in beside:
        if id(leaf) in behind:
            tied.append(leaf)
        else:
            separate.append(leaf)
    return separate, tied


def num_examples(gradients: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """How many examples the gradients on representations are of, [tasks]; a gradient of zero is of none."""
    counts = torch.zeros(len(gradients), device=device)
    for row, gradient in enumerate(gradients):
        if gradient is not None:
            counts[row] = len(gradient) * gradient.any()
    return counts


def representation_gram(
    gradients: Sequence[Tensor | None], device: torch.device | None = None, counts: Sequence[float] | None = None
) -> Tensor:
    """Products of gradients on representations, [tasks, tasks] in float64 on `device`.

    Where shapes agree, position by position; gradients of different shapes have product zero, as if they stood on
    different examples. None stands for a gradient of zero. On several ranks `counts` are the numbers of examples on all
    of them, which must agree, too: so it does not matter how examples are dealt to ranks.

    >>> representation_gram([torch.ones(1, 2), 2.0 * torch.ones(1, 2), torch.ones(3, 2)]).tolist()
    [[2.0, 4.0, 0.0], [4.0, 8.0, 0.0], [0.0, 0.0, 6.0]]
    """
    rows_by_shape: dict[tuple[object, ...], list[int]] = {}
    for row, gradient in enumerate(gradients):
        if gradient is not None:
            count = None if counts is None else counts[row]
            rows_by_shape.setdefault((gradient.shape, count), []).append(row)
    gram = torch.zeros(len(gradients), len(gradients), dtype=torch.float64, device=device)
    for rows in rows_by_shape.values():
        index = torch.tensor(rows, device=device)  # [tasks of this shape]
        gram[index[:, None], index] = gram_matrix([[gradients[row]] for row in rows])
    return gram


def put_in_place(
    gradients: Mapping[str, RepresentationGradient], factors: Mapping[str, float], shared: set[int]
) -> None:
    """Add the weighted sum to `.grad` with one backward pass through the encoder; heads get their gradient as it is.

    Args:
        gradients: by task.
        factors: of each task's gradient on shared parameters.
        shared: ids of the shared parameters; those that a head reaches directly are weighted too.
    """
    cotangents: dict[int, tuple[Tensor, Tensor]] = {}  # one per tensor: tasks on the same inputs share theirs
    for task, gradient in gradients.items():
        for leaf, on_leaf in gradient.on_parameters:
            add_to_grad([(leaf, on_leaf)], factors[task] if id(leaf) in shared else 1.0)
        representation = gradient.representation
        if representation is None or gradient.on_representation is None:
            continue
        weighted = factors[task] * gradient.on_representation
        if id(representation) in cotangents:
            weighted = cotangents[id(representation)][1] + weighted
        cotangents[id(representation)] = (representation, weighted)
    if cotangents:
        representations, weighted_gradients = zip(*cotangents.values(), strict=True)
        torch.autograd.backward(representations, weighted_gradients)
