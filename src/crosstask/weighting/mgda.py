"""Weights whose mixture of the tasks' gradients is the shortest: a step that no task has to pay for."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.gradients.simplex import min_norm_point
from crosstask.papers import MGDA as MGDA_PAPER
from crosstask.papers import Paper
from crosstask.weighting import checks
from crosstask.weighting.base import GradientWeighting

NORMALISATIONS = (None, "loss", "l2", "loss+")


def shortest_mixture(method: str, gram: Tensor, values: Mapping[str, float], normalise: str | None) -> list[float]:
    """The weights of the shortest mixture, of the gradients or of what `normalise` makes of them (problem 3).

    A gradient that is exactly zero would be the shortest mixture by itself and stop all other tasks: it counts nothing,
    which changes nothing about the sum.

    >>> shortest_mixture("mgda", torch.diag(torch.tensor([1.0, 4.0])), {"a": 1.0, "b": 1.0}, None)
    [0.8, 0.2]
    """
    squares = gram.diagonal()
    moving = (squares > 0.0).nonzero()[:, 0].tolist()
    if not moving:
        return [1.0 / len(squares)] * len(squares)
    if normalise is not None:
        lengths = squares[moving].sqrt() if normalise in ("l2", "loss+") else torch.ones_like(squares[moving])
        if normalise in ("loss", "loss+"):
            chosen = {task: value for i, (task, value) in enumerate(values.items()) if i in moving}
            checks.losses_positive(method, chosen, f"with `normalise: {normalise}`, which divides by them")
            lengths = lengths * torch.tensor(list(chosen.values()), dtype=torch.float64)
        gram = gram[moving][:, moving] / lengths / lengths[:, None]
    else:
        gram = gram[moving][:, moving]
    weights = torch.zeros(len(squares), dtype=torch.float64)
    weights[moving] = min_norm_point(gram)
    return weights.tolist()


class MGDA(GradientWeighting):
    """The mixture of the tasks' gradients that is the shortest: it lowers all losses, or shows that nothing can.

    The weights solve (Sener & Koltun 2018, problem 3)

        min over the simplex of  | sum_t alpha_t grad L_t |^2 .

    - `alpha_t`: `weights[t]`, on the simplex;
    - `grad L_t`: the gradient of task t on the shared parameters; their products are `gram`.

    In the code: problem 3 is `shortest_mixture`, exact by `simplex.min_norm_point`; Algorithm 2's updates of the task
    parameters by their own unweighted losses are `weighs_heads = False`.

    Args:
        normalise: None as in the paper, or gradients divided first by the loss ("loss"), by their length ("l2") or by
            both ("loss+"), as in the authors' code. The weights found so apply to the plain losses, as there.
        every: steps from one look to the next; 1 in the paper. In between, heads are weighted too.

    Differs from the paper: the exact point instead of Frank-Wolfe, whose gap stays at 1e-3; a task whose gradient is
    exactly zero is left out instead of stopping all others.

    Needs each task in each step; of those that are there the shortest mixture is taken, and an absent task keeps the
    weight it had. With `normalise` "loss" or "loss+" it needs losses above zero. Costs a backward pass per task on a
    look, hardly more than one of their sum.

    >>> weighting = MGDA(tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(2))
    >>> weighting.backward({"a": parameter[0] ** 2 / 2, "b": parameter[1] ** 2}, shared=[parameter])
    >>> weighting.weights  # lengths 1 and 2 at a right angle: 4 to 1
    {'a': 0.8, 'b': 0.2}
    >>> [round(entry, 6) for entry in parameter.grad.tolist()]
    [0.8, 0.4]
    """

    name: ClassVar[str] = "mgda"
    summary: ClassVar[str] = "the shortest mixture of the tasks' gradients, which lowers every loss"
    paper: ClassVar[Paper | None] = MGDA_PAPER
    weighs_heads: ClassVar[bool] = False
    needs_every_task = True
    takes_fused_losses = True

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

    def coefficients(self, gram: Tensor, tasks: Sequence[str], values: Mapping[str, float]) -> Sequence[float]:
        """The shortest mixture of this step."""
        chosen = shortest_mixture(self.name, gram, {task: values[task] for task in tasks}, self.normalise)
        self._weights.update(zip(tasks, chosen, strict=True))
        return chosen
