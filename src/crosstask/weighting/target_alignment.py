"""A look at every task's gradient next to the target's: their products, and where asked for those of eq. 2.7 (TAWT)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.hessian import (
    SMALLEST_FACTOR,
    SMALLEST_FACTOR_IN_FLOAT16,
    ProductsOnTheWay,
    Solution,
    conjugate_gradients,
    hessian_of,
    pair_products,
)

Reduce = Callable[[Tensor], Tensor]


def cosine_similarities(products: Tensor, squares: Tensor, target_square: Tensor) -> Tensor:
    """Cosines of the tasks' gradients with the target's, from products and squared lengths; zero for a zero gradient.

    >>> cosine_similarities(torch.tensor([6.0, 1.0]), torch.tensor([9.0, 0.0]), torch.tensor(16.0)).tolist()
    [0.5, 0.0]
    """
    lengths = squares.clamp(min=0.0).sqrt() * target_square.clamp(min=0.0).sqrt()
    return torch.where(lengths > 0.0, products / lengths, 0.0).clamp(-1.0, 1.0)


@dataclass(frozen=True)
class Solve:
    """How to solve with `H = sum_t weight_t * Hessian of L_t`: lambda in `H + lambda` is `damping`."""

    weights: Mapping[str, float]
    damping: float
    steps: int


@dataclass(frozen=True)
class Look:
    """What was seen of each task; float64 on the CPU, one entry per task.

    - `products`, `squares`: of its gradient with the target's, and with itself;
    - `target_square`: the same for the target's gradient, which for several targets is the mean;
    - `solved`: of its gradient with `solution`, the target's gradient times the inverse of H.
    """

    tasks: list[str]
    products: Tensor
    squares: Tensor
    target_square: Tensor
    solved: Tensor | None = None
    solution: Solution | None = None

    @property
    def is_finite(self) -> bool:
        """Whether there is something to learn from it."""
        numbers = [self.products, self.squares, self.products if self.solved is None else self.solved]
        return bool(torch.isfinite(torch.stack(numbers)).all())

    @property
    def cosines(self) -> Tensor:
        """Of the tasks' gradients with the target's."""
        return cosine_similarities(self.products, self.squares, self.target_square)

    def facts(self, targets: Sequence[str]) -> dict[str, Any]:
        """For the record, as plain data; conflict here is the share of sources that point against the target."""
        cosines = dict(zip(self.tasks, self.cosines.tolist(), strict=True))
        similarities = {task: cosine for task, cosine in cosines.items() if task not in targets}
        facts: dict[str, Any] = {
            "similarities": similarities,
            "gradient_norms": dict(zip(self.tasks, self.squares.sqrt().tolist(), strict=True)),
            "conflict_with_target": sum(cosine < 0.0 for cosine in similarities.values()) / max(1, len(similarities)),
        }
        if self.solution is not None:
            solution = self.solution
            facts["solve"] = {
                "residual": solution.residual,
                "steps": solution.steps,
                "negative_curvature": solution.negative_curvature,
            }
        return facts


def compare_with_targets(
    losses: Mapping[str, Tensor],
    targets: Sequence[str],
    shared: Sequence[nn.Parameter],
    *,
    factors: Mapping[str, float] | None = None,
    observed: Sequence[str] = (),
    scale: float = 1.0,
    solve: Solve | None = None,
    reduce: Reduce | None = None,
) -> Look:
    """Take each task's gradient once, the target's first, and its products with the target's.

    Args:
        losses: by task; each with a graph of its own.
        targets: at least one of them is among the losses.
        shared: the parameters on which gradients are compared.
        factors: what each loss counts in the step; the weighted sum goes into `.grad` on the way. Nothing does without.
        observed: tasks of which only parameters that are not shared get a gradient.
        scale: factor of every gradient that goes into `.grad`.
        solve: also solve with the Hessian of the mixture.
        reduce: adds up over ranks, each of which has a part of every loss; needed where there are several.
    """
    if solve is None and shared[0].is_cuda:
        return _compare_at_once(losses, targets, shared, factors, observed, scale, reduce)
    held = {  # whole gradients: the targets', and all where graphs are needed once more
        task: _take(loss * scale, shared, create_graph=solve is not None)
        for task, loss in losses.items()
        if solve is not None or task in targets
    }
    whole = {task: _over_ranks(gradient.shared, shared, reduce) for task, gradient in held.items()}
    direction = _mean([whole[task] for task in whole if task in targets])
    if all(part is None for part in direction):
        raise _unreached(targets)
    solution = None if solve is None else _solve(solve, held, direction, shared, scale, reduce)
    pairs = {task: pair_products(gradient, direction) for task, gradient in whole.items()}
    others = {task: loss for task, loss in losses.items() if task not in held}
    if factors is not None and reduce is None:
        smallest = SMALLEST_FACTOR if scale <= 1.0 else SMALLEST_FACTOR_IN_FLOAT16
        with ProductsOnTheWay(shared, direction) as passes:
            for task, loss in others.items():
                pairs[task] = passes.backward(loss * scale, factors[task], smallest=smallest)
    else:
        for task, loss in others.items():
            gradient = _take(loss * scale, shared)
            pairs[task] = pair_products(_over_ranks(gradient.shared, shared, reduce), direction)
            if factors is not None:
                _put_in_place(gradient, shared, factors[task])
    if factors is not None:  # these last: by now `.grad` exists, and they are added to it without a copy
        for task, gradient in held.items():
            _put_in_place(gradient, () if task in observed else shared, factors[task])
    pairs_of_target = pair_products(direction, direction) if len(targets) > 1 else pairs[targets[0]]
    products, squares = (
        _numbers([number for pair in (*pairs.values(), pairs_of_target) for number in pair]).view(-1, 2).T
    )
    solved = None if solution is None else [pair_products(whole[task], [*solution.vector])[0] for task in pairs]
    return Look(
        list(pairs),
        products[:-1] / scale**2,
        squares[:-1] / scale**2,
        squares[-1] / scale**2,
        None if solved is None else _numbers(solved) / scale,
        solution,
    )


def _compare_at_once(
    losses: Mapping[str, Tensor],
    targets: Sequence[str],
    shared: Sequence[nn.Parameter],
    factors: Mapping[str, float] | None,
    observed: Sequence[str],
    scale: float,
    reduce: Reduce | None,
) -> Look:
    """The same from all gradients together: on an accelerator a call per parameter costs more than their memory."""
    taken = {task: _take(loss * scale, shared) for task, loss in losses.items()}
    at = [place for place, task in enumerate(taken) if task in targets]
    gradients = list(taken.values())
    if all(part is None for place in at for part in gradients[place].shared):
        raise _unreached(targets)
    whole = [_over_ranks(gradient.shared, shared, reduce) for gradient in gradients]
    gram = grads.gram_matrix(whole).cpu() / scale**2
    if factors is not None:
        for task, gradient in taken.items():
            _put_in_place(gradient, () if task in observed else shared, factors[task])
    # The target's gradient is the mean over targets, and products with a mean are the mean of products.
    return Look(list(taken), gram[:, at].mean(1), gram.diagonal(), gram[at][:, at].mean())


def _unreached(targets: Sequence[str]) -> CrossTaskError:
    return CrossTaskError(
        f"The loss of the target ({', '.join(targets)}) reaches none of the shared parameters, so that no task can be "
        "compared with it."
    )


def _take(loss: Tensor, shared: Sequence[nn.Parameter], *, create_graph: bool = False) -> grads.TaskGradient:
    """One task's gradient on this rank; a loss that depends on nothing, as on a rank without examples, has none."""
    if not loss.requires_grad:
        return grads.TaskGradient([None] * len(shared), [])
    return grads.take_gradient(loss, shared, create_graph=create_graph)


def _put_in_place(gradient: grads.TaskGradient, shared: Sequence[nn.Parameter], factor: float) -> None:
    """Add it to `.grad`, on the shared parameters that are named and on its own."""
    grads.add_to_grad(gradient.own, factor, keep=True)
    if shared:
        grads.add_to_grad(zip(shared, gradient.shared, strict=True), factor, keep=True)


def _over_ranks(
    gradient: Sequence[Tensor | None], shared: Sequence[nn.Parameter], reduce: Reduce | None
) -> grads.Gradient:
    """The same gradient added up over ranks; a rank that does not reach a parameter adds zero."""
    if reduce is None:
        return list(gradient)
    return [
        reduce(torch.zeros_like(parameter) if part is None else part.detach().clone())
        for part, parameter in zip(gradient, shared, strict=True)
    ]


def _mean(gradients: Sequence[grads.Gradient]) -> grads.Gradient:
    """The gradient of the mean of several losses."""
    if len(gradients) == 1:
        return gradients[0]
    mean: grads.Gradient = []
    for parts in zip(*gradients, strict=True):
        reached = [part.detach() for part in parts if part is not None]
        mean.append(sum(reached[1:], reached[0]) / len(gradients) if reached else None)
    return mean


def _solve(
    solve: Solve,
    held: Mapping[str, grads.TaskGradient],
    direction: grads.Gradient,
    shared: Sequence[nn.Parameter],
    scale: float,
    reduce: Reduce | None,
) -> Solution:
    """`(H + damping)^-1 grad_0`, H over the tasks that are there, whose weights are made to add up to one."""
    weights = {task: weight for task, weight in solve.weights.items() if task in held}
    shares = [weight / sum(weights.values()) / scale for weight in weights.values()]
    hessian = hessian_of([held[task].shared for task in weights], shares, shared)
    right = []
    for part, parameter in zip(direction, shared, strict=True):
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        right.append((torch.zeros_like(parameter) if part is None else part.detach()).to(dtype) / scale)
    return conjugate_gradients(
        lambda vector: [part for part in _over_ranks(hessian(vector), shared, reduce) if part is not None],
        right,
        damping=solve.damping,
        steps=solve.steps,
    )


def _numbers(values: Iterable[Tensor]) -> Tensor:
    """Scalars as one row on the CPU, fetched together."""
    numbers = list(values)
    device = next((value.device for value in numbers if value.is_cuda), numbers[0].device)
    return torch.stack([value.to(device) for value in numbers]).double().cpu()
