"""Dual balancing: logarithms of the losses, and gradients of one length."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.papers import DB_MTL, Paper
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task, to_vector
from crosstask.weighting.validation import check_count, check_not_negative, check_number


def balanced_weights(norms: Tensor, losses: Tensor, floor: float) -> Tensor:
    """What each task's gradient counts, so that all become as long as the longest gradient of a logarithm of a loss.

    >>> balanced_weights(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([4.0, 1.0, 1.0]), floor=1e-8).tolist()
    [0.5, 1.0, 0.0]
    """
    log_norms = norms / losses.clamp(min=floor)  # of the gradients of log L_t
    return torch.where(norms > 0.0, log_norms.max() / norms, 0.0)


class DBMTL(Weighting):
    """Every task's gradient is made as long as the longest of all, on the logarithms of the losses.

    The step goes along (Lin et al. 2023)

        d = alpha sum_t g_t / |g_t|,      g_t = grad log L_t,      alpha = max_t |g_t| .

    - `g_t`: of the shared parameters; it is the gradient of the loss itself over `L_t`;
    - `weights[t]`: what the gradient of `L_t` counts in d, `alpha / |grad L_t|`.

    So all tasks move the shared part by the same amount, whatever the scales of their losses and of their gradients.

    In the code: the weights are `balanced_weights`.

    Args:
        floor: losses below it count as this large, 1e-8 in the authors' code.
        every: steps from one inspection of gradients to the next; 1 in the paper. In between, heads are weighted too.

    Differs from the paper: gradients are those of the step, without the moving average (its beta is 0), which takes the
    memory of a gradient per task and fades as training goes on; on an inspection heads get their own gradients as they
    are, where the paper's have those of the logarithms.

    Needs each task in each step, and losses that are not negative; absent tasks keep their weights. A task with a zero
    gradient has weight zero. An inspection costs a backward pass per task, hardly more than one of their sum.

    >>> weighting = DBMTL(tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(2))
    >>> weighting.backward({"a": 4.0 * parameter[0], "b": 3.0 * parameter[1] ** 2}, shared=[parameter])
    >>> weighting.weights  # log gradients 4 / 4 and 6 / 3, so that both become 2 long
    {'a': 0.5, 'b': 0.3333333333333333}
    """

    name: ClassVar[str] = "db-mtl"
    summary: ClassVar[str] = "gradients of one length for all tasks, on the logarithms of the losses"
    paper: ClassVar[Paper | None] = DB_MTL
    weighs_heads: ClassVar[bool] = False
    inspects: ClassVar[Need] = Need.GRADIENTS | Need.PRODUCTS | Need.EVERY_TASK

    def __init__(
        self,
        *,
        floor: float = 1e-8,
        every: int = 1,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.floor = check_number(self.name, "floor", floor, above=0.0)
        self.every = check_count(self.name, "every", every)
        super().__init__(tasks, target)

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The weights of this step."""
        check_not_negative(self.name, evidence.losses)
        losses = to_vector(evidence.losses, evidence.tasks)  # [tasks]
        return by_task(evidence.tasks, balanced_weights(evidence.gradient_norms, losses, self.floor))
