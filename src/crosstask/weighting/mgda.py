"""Weights of the minimum-norm convex combination of the tasks' gradients, along which no loss increases."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.gradients.simplex import min_norm_point
from crosstask.papers import MGDA as MGDA_PAPER
from crosstask.papers import Paper
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task
from crosstask.weighting.validation import check_choice, check_count, check_positive, renamed

NORMALIZATIONS = (None, "loss", "l2", "loss+")


def min_norm_weights(method: str, gram: Tensor, losses: Mapping[str, float], normalize: str | None) -> dict[str, float]:
    """Weights of the minimum-norm point of the gradients, divided first by what `normalize` says (problem 3).

    A gradient that is exactly zero would be the minimum-norm point by itself and stop all other tasks. It counts
    nothing, which does not change the sum.

    >>> weights = min_norm_weights("mgda", torch.diag(torch.tensor([1.0, 4.0])), {"a": 1.0, "b": 1.0}, None)
    >>> {task: round(weight, 6) for task, weight in weights.items()}
    {'a': 0.8, 'b': 0.2}
    """
    squares = gram.diagonal()
    nonzero = (squares > 0.0).nonzero()[:, 0].tolist()
    if not nonzero:
        return dict.fromkeys(losses, 1.0 / len(losses))
    divisors = torch.ones(len(nonzero), dtype=squares.dtype)
    if normalize in ("l2", "loss+"):
        divisors = squares[nonzero].sqrt()
    if normalize in ("loss", "loss+"):
        tasks = list(losses)
        divided_by = {tasks[row]: losses[tasks[row]] for row in nonzero}
        check_positive(method, divided_by, f"with `normalize: {normalize}`, which divides by them")
        divisors = divisors * torch.tensor(list(divided_by.values()), dtype=torch.float64)
    weights = torch.zeros(len(squares), dtype=torch.float64)  # [tasks]
    weights[nonzero] = min_norm_point(gram[nonzero][:, nonzero] / divisors / divisors[:, None])
    return by_task(list(losses), weights)


def check_normalize(method: str, normalize: str | None, normalise: str | None) -> str | None:
    """The option `normalize`, which is also accepted in its British spelling."""
    return check_choice(method, "normalize", renamed(normalize, normalise), NORMALIZATIONS)


class MGDA(Weighting):
    """The minimum-norm convex combination of the tasks' gradients: a step along it lowers all losses, if any can.

    The weights solve (Sener & Koltun 2018, problem 3)

        min over the simplex of  | sum_t alpha_t grad L_t |^2 .

    - `alpha_t`: `weights[t]`, on the simplex;
    - `grad L_t`: the gradient of task t on the shared parameters; their products are `gram`.

    In the code: problem 3 is `min_norm_weights`, exact by `simplex.min_norm_point`; Algorithm 2's updates of the task
    parameters by their own unweighted losses are `weighs_heads = False`.

    Args:
        normalize: None as in the paper, or gradients divided first by the loss ("loss"), by their norm ("l2") or by
            both ("loss+"), as in the authors' code. The weights apply to the plain losses, as there.
        every: steps from one inspection of gradients to the next; 1 in the paper. In between, heads are weighted too.
        normalise: the same as `normalize`.

    Differs from the paper: the exact point instead of Frank-Wolfe, whose gap stays at 1e-3; a task whose gradient is
    exactly zero is left out instead of stopping all others.

    Needs each task in each step; absent tasks keep their weights. With `normalize` "loss" or "loss+" it needs losses
    above zero. An inspection costs a backward pass per task, hardly more than one of their sum.

    >>> weighting = MGDA(tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(2))
    >>> weighting.backward({"a": parameter[0] ** 2 / 2, "b": parameter[1] ** 2}, shared=[parameter])
    >>> {task: round(weight, 6) for task, weight in weighting.weights.items()}  # orthogonal, of norms 1 and 2: 4 to 1
    {'a': 0.8, 'b': 0.2}
    >>> [round(entry, 6) for entry in parameter.grad.tolist()]
    [0.8, 0.4]
    """

    name: ClassVar[str] = "mgda"
    summary: ClassVar[str] = "the minimum-norm combination of the tasks' gradients, which lowers every loss"
    paper: ClassVar[Paper | None] = MGDA_PAPER
    weighs_heads: ClassVar[bool] = False
    inspects: ClassVar[Need] = Need.GRADIENTS | Need.PRODUCTS | Need.EVERY_TASK

    def __init__(
        self,
        *,
        normalize: str | None = None,
        every: int = 1,
        normalise: str | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.normalize = check_normalize(self.name, normalize, normalise)
        self.every = check_count(self.name, "every", every)
        super().__init__(tasks, target)

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The minimum-norm point of this step's gradients."""
        return min_norm_weights(self.name, evidence.gram, evidence.losses, self.normalize)
