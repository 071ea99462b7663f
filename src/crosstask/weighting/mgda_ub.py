"""The shortest mixture of the gradients on the representation: MGDA at the price of a plain step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads
from crosstask.papers import MGDA as MGDA_PAPER
from crosstask.papers import Paper
from crosstask.weighting import checks
from crosstask.weighting.base import LossWeighting, reduced_values, weighted_backward
from crosstask.weighting.mgda import NORMALISATIONS, shortest_mixture


def representation_gram(gradients: Sequence[Tensor | None], device: torch.device | None = None) -> Tensor:
    """Products of gradients on representations, [tasks, tasks] in float64 on `device`.

    Where shapes agree, position by position; gradients of different shapes have product zero, as if they stood on
    examples apart. None stands for a gradient of zero.

    >>> representation_gram([torch.ones(1, 2), 2.0 * torch.ones(1, 2), torch.ones(3, 2)]).tolist()
    [[2.0, 4.0, 0.0], [4.0, 8.0, 0.0], [0.0, 0.0, 6.0]]
    """
    shapes: dict[torch.Size, list[int]] = {}
    for i, gradient in enumerate(gradients):
        if gradient is not None:
            shapes.setdefault(gradient.shape, []).append(i)
    gram = torch.zeros(len(gradients), len(gradients), dtype=torch.float64, device=device)
    for members in shapes.values():
        where = torch.tensor(members, device=device)
        gram[where[:, None], where] = grads.gram_matrix([[gradients[i]] for i in members])
    return gram


class MGDAUB(LossWeighting):
    """The shortest mixture of the tasks' gradients on the representation, an upper bound of MGDA's problem.

    The weights solve (Sener & Koltun 2018, problem MGDA-UB)

        min over the simplex of  | sum_t alpha_t dL_t/dZ |^2 ,

    which bounds MGDA's problem up to the norm of dZ/dtheta, the same for all weights.

    - `alpha_t`: `weights[t]`, on the simplex;
    - `Z`: the representation, what the encoder hands to the heads: `representations[t]` for task t;
    - `dL_t/dZ`: found by walking back through the head alone; their products are `representation_gram`.

    In the code: the problem is `mgda.shortest_mixture` on those products; then ONE backward pass through the encoder
    starts from `alpha_t dL_t/dZ_t` at all representations. Heads train on their own unweighted losses, as in
    Algorithm 2; parameters in `shared` that a head uses besides the representation get the weighted gradient.

    Args:
        normalise: as in `MGDA`; None in the paper, "loss+" in much later work.
        every: steps from one look to the next; 1 in the paper. In between, without representations, heads are weighted.

    Differs from the paper: there all tasks have the same inputs and so one Z. Here each task has its own examples:
    where representations have the same shape they are multiplied position by position, as authors of text experiments
    did with separate batches; where shapes differ, products of different tasks are zero and the weights go by the
    inverse squared lengths. The exact point instead of Frank-Wolfe; a task whose gradient is exactly zero is left out.

    Needs `backward(..., representations={task: tensor})` with the very tensors that the heads were given, and each task
    in each step (an absent task keeps the weight it had). Costs about a plain step, also with one graph for all tasks.

    >>> weighting = MGDAUB(tasks=["a", "b"])
    >>> encoder = torch.nn.Parameter(torch.ones(2))
    >>> z = 3.0 * encoder
    >>> weighting.backward({"a": z[0] ** 2 / 6, "b": z[1] ** 2 / 3}, representations={"a": z, "b": z})
    >>> weighting.weights  # dL/dZ is (1, 0) and (0, 2)
    {'a': 0.8, 'b': 0.2}
    """

    name: ClassVar[str] = "mgda-ub"
    summary: ClassVar[str] = "the shortest mixture of the tasks' gradients on the representation; costs a plain step"
    paper: ClassVar[Paper | None] = MGDA_PAPER
    needs_every_task = True
    needs_representation = True

    def __init__(
        self,
        *,
        normalise: str | None = None,
        every: int = 1,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.normalise = checks.choice(self.name, "normalise", normalise, NORMALISATIONS)
        self.every = checks.count(self.name, "every", every)
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 / T each, until the first look."""
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
        representations: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Back through each head; then the weights; then one pass back through the encoder.

        Args:
            representations: for each task of `losses` the tensor that its head was given, part of its graph.
        """
        self.check_losses(losses)
        looks = self.steps % self.every == 0
        if representations is None:
            if looks:
                raise CrossTaskError(
                    "weighting 'mgda-ub' looks at gradients on the representation: pass "
                    "`representations={task: tensor}` with what each task's head was given, or use `mgda`."
                )
            self.steps += 1
            weighted_backward(losses, self._weights, probabilities, scale)
            return
        ends = {task: self._representation(task, representations) for task in losses}
        known = {id(parameter) for parameter in shared or ()}
        taken = {task: self._take(task, loss * scale, ends[task], known) for task, loss in losses.items()}
        self.steps += 1
        if looks:
            device = next(iter(losses.values())).device
            products = representation_gram([gradient for gradient, _ in taken.values()], device)
            gram = self.reduce(products).cpu() / scale**2
            if torch.isfinite(gram).all():  # not so after an overflow under a GradScaler: then the weights stay
                self._look(gram, reduced_values(losses, self.reduce))

        drawn = probabilities or {}
        cotangents: dict[int, tuple[Tensor, Tensor]] = {}  # one per tensor: tasks on the same inputs share theirs
        for task, (gradient, beside) in taken.items():
            share = self._weights[task] / drawn.get(task, 1.0)
            for leaf, part in beside:
                grads.add_to_grad([(leaf, part)], share if id(leaf) in known else 1.0)
            end = ends[task]
            if end is not None and gradient is not None:
                weighted = share * gradient
                before = cotangents.get(id(end))
                cotangents[id(end)] = (end, weighted if before is None else before[1] + weighted)
        if cotangents:
            tensors, weighted_gradients = zip(*cotangents.values(), strict=True)
            torch.autograd.backward(tensors, weighted_gradients)

    def _look(self, gram: Tensor, values: Mapping[str, float]) -> None:
        """The weights of this step, and norms and conflict for the record."""
        norms = gram.diagonal().clamp(min=0.0).sqrt().tolist()
        self._facts = {
            "gradient_norms": dict(zip(values, norms, strict=True)),
            "conflict": grads.conflict(gram),
        }
        chosen = shortest_mixture(self.name, gram, values, self.normalise)
        self._weights.update(zip(values, chosen, strict=True))

    def _representation(self, task: str, representations: Mapping[str, Tensor]) -> Tensor | None:
        end = representations.get(task)
        if end is not None and end.requires_grad:
            return end
        if self.num_ranks > 1:  # this rank may have no example of the task
            return None
        found = "none was passed" if end is None else "it does not need a gradient"
        raise CrossTaskError(
            f"weighting 'mgda-ub' needs the representation of '{task}' as part of its graph, but {found}; with a "
            "frozen encoder use another weighting."
        )

    def _take(
        self, task: str, loss: Tensor, end: Tensor | None, known: set[int]
    ) -> tuple[Tensor | None, list[tuple[Tensor, Tensor]]]:
        """The gradient on a task's representation, and on the parameters that it reaches otherwise."""
        beside = [leaf for leaf in grads.leaves_of(loss, until=end) if leaf is not end]
        tied: list[Tensor] = []
        if end is not None and (not known or any(id(leaf) in known for leaf in beside)):
            behind = {id(leaf) for leaf in grads.leaves_of(end)}
            tied = [leaf for leaf in beside if id(leaf) in behind]
            beside = [leaf for leaf in beside if id(leaf) not in behind]
        wanted = ([] if end is None else [end]) + beside
        taken = torch.autograd.grad(loss, wanted, allow_unused=True, retain_graph=True)
        gradient = None if end is None else taken[0]
        if gradient is None and self.num_ranks == 1:
            raise CrossTaskError(
                f"weighting 'mgda-ub': the loss of '{task}' does not depend on the representation that was passed for "
                "it; pass the very tensor that its head was given."
            )
        parts = list(taken[0 if end is None else 1 :])
        if tied and end is not None:
            # Only what does not come through the representation: that part follows in the pass through the encoder.
            blocked = end.register_hook(torch.zeros_like)
            parts += torch.autograd.grad(loss, tied, allow_unused=True, retain_graph=True)
            blocked.remove()
        return gradient, [(leaf, part) for leaf, part in zip([*beside, *tied], parts, strict=True) if part is not None]
