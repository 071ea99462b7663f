"""Products of every task's gradient with the target's, directly or through the inverse Hessian of eq. 2.7 (TAWT).

On a CPU gradients other than the target's are never kept: each is multiplied while its backward pass puts it in place.
On an accelerator all are taken first, since a call per parameter costs more there than their memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.backward_products import MIN_FACTOR, MIN_FACTOR_IN_FLOAT16, ProductsInBackward
from crosstask.gradients.distributed import Ranks
from crosstask.gradients.hessian import Solution, conjugate_gradients, hessian_of
from crosstask.gradients.inner_products import pair_products

PairOfProducts = tuple[Tensor, Tensor]
"""Of a gradient with the target's, and with itself."""


def cosine_similarities(products: Tensor, squares: Tensor, target_square: Tensor) -> Tensor:
    """Cosines of the tasks' gradients with the target's, from products and squared lengths; zero for a zero gradient.

    >>> cosine_similarities(torch.tensor([6.0, 1.0]), torch.tensor([9.0, 0.0]), torch.tensor(16.0)).tolist()
    [0.5, 0.0]
    """
    lengths = squares.clamp(min=0.0).sqrt() * target_square.clamp(min=0.0).sqrt()
    return torch.where(lengths > 0.0, products / lengths, 0.0).clamp(-1.0, 1.0)


@dataclass(frozen=True)
class InverseHessian:
    """How to solve with `H = sum_t weight_t * Hessian of L_t`: lambda in `H + lambda` is `damping`."""

    weights: Mapping[str, float]
    damping: float
    steps: int


@dataclass(frozen=True)
class Placement:
    """Where gradients go while they are compared.

    - `factors`: what each loss counts in the step;
    - `observed`: tasks of which only parameters that are not shared get a gradient.
    """

    factors: Mapping[str, float]
    observed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparedLosses:
    """What is compared.

    - `losses`: by task, each with a graph of its own; at least one of `targets` is among them;
    - `shared`: the parameters on which gradients are compared;
    - `ranks`: each has a part of every loss;
    - `scale`: factor of every gradient that goes into `.grad`;
    - `placement`: the weighted sum goes into `.grad`; nothing does without it.
    """

    losses: Mapping[str, Tensor]
    targets: Sequence[str]
    shared: Sequence[nn.Parameter]
    ranks: Ranks
    scale: float = 1.0
    placement: Placement | None = None

    @property
    def target_tasks(self) -> list[str]:
        """The targets among the losses, in their order."""
        return [task for task in self.losses if task in self.targets]

    @property
    def source_tasks(self) -> list[str]:
        """All other tasks."""
        return [task for task in self.losses if task not in self.targets]

    def take(self, task: str, *, create_graph: bool = False) -> grads.TaskGradient:
        """One task's gradient on this rank, times `scale`."""
        return grads.take_gradient(self.losses[task] * self.scale, self.shared, create_graph=create_graph)

    def take_all(self, tasks: Iterable[str], *, create_graph: bool = False) -> dict[str, grads.TaskGradient]:
        """The gradients of several tasks."""
        return {task: self.take(task, create_graph=create_graph) for task in tasks}

    def slices(self, gradient: grads.TaskGradient) -> grads.Gradient:
        """This rank's slice of one task's gradient on the shared parameters, added up over ranks."""
        return self.ranks.slices(gradient.shared, self.shared)

    def put_in_place(self, task: str, gradient: grads.TaskGradient) -> None:
        """Add a task's weighted gradient to `.grad`, on the shared parameters and on its own."""
        if self.placement is None:
            return
        factor = self.placement.factors[task]
        grads.add_to_grad(gradient.head, factor, keep=True)
        if task not in self.placement.observed:
            grads.add_to_grad(zip(self.shared, gradient.shared, strict=True), factor, keep=True)

    def check_reached(self, target_gradients: Iterable[grads.Gradient]) -> None:
        """The target's loss must depend on shared parameters."""
        if not any(grads.reached(self.shared, gradient) for gradient in target_gradients):
            raise CrossTaskError(
                f"The loss of the target ({', '.join(self.targets)}) reaches none of the shared parameters, so that "
                "no task can be compared with it."
            )


@dataclass(frozen=True)
class TargetAlignment:
    """How each task's gradient stands to the target's; float64 on the CPU, one entry per task.

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
        """Whether nothing has overflowed."""
        solved = self.products if self.solved is None else self.solved
        return bool(torch.isfinite(torch.stack([self.products, self.squares, solved])).all())

    @property
    def cosines(self) -> Tensor:
        """Of the tasks' gradients with the target's."""
        return cosine_similarities(self.products, self.squares, self.target_square)

    def facts(self, targets: Sequence[str]) -> dict[str, Any]:
        """For the record; conflict here is the fraction of sources whose gradients oppose the target's."""
        cosines = dict(zip(self.tasks, self.cosines.tolist(), strict=True))
        similarities: dict[str, float] = {}
        num_opposed = 0
        for task, cosine in cosines.items():
            if task not in targets:
                similarities[task] = cosine
                if cosine < 0.0:
                    num_opposed += 1
        facts: dict[str, Any] = {
            "similarities": similarities,
            "gradient_norms": dict(zip(self.tasks, self.squares.sqrt().tolist(), strict=True)),
            "conflict_with_target": num_opposed / max(1, len(similarities)),
        }
        if self.solution is not None:
            facts["solve"] = {
                "residual": self.solution.residual,
                "steps": self.solution.steps,
                "negative_curvature": self.solution.negative_curvature,
            }
        return facts


def compare_with_targets(compared: ComparedLosses, solve: InverseHessian | None = None) -> TargetAlignment:
    """Take each task's gradient once, the targets' first, and its products with the target's.

    Args:
        compared: the losses, and where their gradients go.
        solve: also solve with the Hessian of the mixture.
    """
    if solve is not None:
        return _compare_through_hessian(compared, solve)
    if compared.shared[0].is_cuda:
        return _compare_by_gram_matrix(compared)
    # 1. Take the targets' gradients, which are kept: all others are compared with their mean.
    target_gradients = compared.take_all(compared.target_tasks)
    compared.check_reached(gradient.shared for gradient in target_gradients.values())
    slices = {task: compared.slices(gradient) for task, gradient in target_gradients.items()}
    direction = _mean(list(slices.values()))
    # 2. Multiply; the sources' gradients go into `.grad` on the way.
    pairs = _pairs(slices, direction)
    pairs |= _pairs_of_sources(compared, direction)
    # 3. The targets' gradients last: by now `.grad` exists, and they are added to it without a copy.
    for task, gradient in target_gradients.items():
        compared.put_in_place(task, gradient)
    return _alignment(compared, pairs, direction)


def _compare_by_gram_matrix(compared: ComparedLosses) -> TargetAlignment:
    """All gradients taken first, all products in few calls."""
    gradients = compared.take_all(compared.losses)
    compared.check_reached(gradients[task].shared for task in compared.target_tasks)
    shared_gradients = [gradient.shared for gradient in gradients.values()]
    # [tasks, tasks]; a product of two gradients has the scale twice
    gram = compared.ranks.gram(shared_gradients, compared.shared).cpu() / compared.scale**2
    for task, gradient in gradients.items():
        compared.put_in_place(task, gradient)
    return align_by_gram_matrix(list(gradients), compared.targets, gram)


def align_by_gram_matrix(tasks: Sequence[str], targets: Sequence[str], gram: Tensor) -> TargetAlignment:
    """How each task stands to the targets among them, by the products of all gradients, [tasks, tasks]."""
    target_rows = [row for row, task in enumerate(tasks) if task in targets]
    # The target's gradient is the mean over targets, and products with a mean are the mean of products.
    products, target_square = gram[:, target_rows].mean(1), gram[target_rows][:, target_rows].mean()
    return TargetAlignment(list(tasks), products, gram.diagonal(), target_square)


def _compare_through_hessian(compared: ComparedLosses, solve: InverseHessian) -> TargetAlignment:
    """The same with products through the inverse Hessian besides, for which all graphs are kept."""
    gradients = compared.take_all(compared.losses, create_graph=True)
    summed = _over_ranks(compared, gradients)
    target_gradients = [summed[task] for task in compared.target_tasks]
    compared.check_reached(target_gradients)
    direction = _mean(target_gradients)
    solution = _solve(compared, solve, gradients, direction)
    pairs = _pairs(summed, direction)
    for task, gradient in gradients.items():
        compared.put_in_place(task, gradient)
    vector: grads.Gradient = [*solution.vector]
    products = [crosswise for crosswise, _ in _pairs(summed, vector).values()]
    solved = _together(products).cpu() / compared.scale  # [tasks]; the solution itself has no scale
    alone = replace(compared, ranks=replace(compared.ranks, count=1))  # every rank has all of each gradient
    return replace(_alignment(alone, pairs, direction), solved=solved, solution=solution)


def _pairs(gradients: Mapping[str, grads.Gradient], direction: grads.Gradient) -> dict[str, PairOfProducts]:
    return {task: pair_products(gradient, direction) for task, gradient in gradients.items()}


def _pairs_of_sources(compared: ComparedLosses, direction: grads.Gradient) -> dict[str, PairOfProducts]:
    """Products of the gradients of all tasks but the targets, which go into `.grad`."""
    pairs: dict[str, PairOfProducts] = {}
    # Products need the sum over ranks, which a hook inside of one rank's backward pass does not have.
    if compared.placement is None or compared.ranks.count > 1:
        for task in compared.source_tasks:
            gradient = compared.take(task)
            pairs[task] = pair_products(compared.slices(gradient), direction)
            compared.put_in_place(task, gradient)
        return pairs
    smallest = MIN_FACTOR if compared.scale <= 1.0 else MIN_FACTOR_IN_FLOAT16
    with ProductsInBackward(compared.shared, direction) as passes, grads.one_graph_per_loss():
        for task in compared.source_tasks:
            loss, factor = compared.losses[task] * compared.scale, compared.placement.factors[task]
            pairs[task] = passes.backward(loss, factor, smallest=smallest)
    return pairs


def _alignment(
    compared: ComparedLosses, pairs: Mapping[str, PairOfProducts], direction: grads.Gradient
) -> TargetAlignment:
    """All products added up over ranks and fetched together, without the scale."""
    if len(compared.targets) > 1:
        target_pair = pair_products(direction, direction)
    else:
        target_pair = pairs[compared.targets[0]]
    flat = list(chain.from_iterable((*pairs.values(), target_pair)))  # 2 * (tasks + 1) scalars
    totals = compared.ranks.sum(_together(flat)).cpu()
    products, squares = totals.view(-1, 2).T / compared.scale**2  # [tasks + 1] each, the target's last
    return TargetAlignment(list(pairs), products[:-1], squares[:-1], squares[-1])


def _solve(
    compared: ComparedLosses,
    solve: InverseHessian,
    gradients: Mapping[str, grads.TaskGradient],
    direction: grads.Gradient,
) -> Solution:
    """`(H + damping)^-1 grad_0`, H over the tasks that are there, whose weights are made to add up to one."""
    # 1. H, from the gradients' graphs; these have the scale, H has none.
    mixed_gradients: list[grads.Gradient] = []
    weights: list[float] = []
    for task, weight in solve.weights.items():
        if task in gradients:
            mixed_gradients.append(gradients[task].shared)
            weights.append(weight)
    total = sum(weights)
    normalized = [weight / total / compared.scale for weight in weights]
    hessian = hessian_of(mixed_gradients, normalized, compared.shared)
    # 2. grad_0, without the scale and in float32 at least.
    target_gradient = []
    for on_parameter, parameter in zip(direction, compared.shared, strict=True):
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        dense = torch.zeros_like(parameter) if on_parameter is None else on_parameter.detach()
        target_gradient.append(dense.to(dtype) / compared.scale)

    def hessian_over_ranks(vector: list[Tensor]) -> list[Tensor]:
        return [compared.ranks.sum(entry) for entry in hessian(vector)]

    return conjugate_gradients(hessian_over_ranks, target_gradient, damping=solve.damping, steps=solve.steps)


def _over_ranks(compared: ComparedLosses, gradients: Mapping[str, grads.TaskGradient]) -> dict[str, grads.Gradient]:
    return {task: compared.ranks.sum_gradient(gradient.shared, compared.shared) for task, gradient in gradients.items()}


def _mean(gradients: Sequence[grads.Gradient]) -> grads.Gradient:
    """The gradient of the mean of several losses."""
    if len(gradients) == 1:
        return gradients[0]
    mean: grads.Gradient = []
    for by_target in zip(*gradients, strict=True):
        total: Tensor | None = None
        for gradient in by_target:
            if gradient is not None:
                total = gradient.detach() if total is None else total + gradient.detach()
        mean.append(None if total is None else total / len(gradients))
    return mean


def _together(scalars: Sequence[Tensor]) -> Tensor:
    """Scalars as one vector in float64."""
    # The products of a gradient that reaches no parameter are zeros on the CPU, also beside an accelerator.
    device = next((scalar.device for scalar in scalars if scalar.is_cuda), scalars[0].device)
    return torch.stack([scalar.to(device) for scalar in scalars]).double()
