"""Equal weights on the logarithms of the losses."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from crosstask.papers import NASH_MTL, Paper
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, by_task, to_vector
from crosstask.weighting.validation import check_not_negative, check_number


def log_weights(losses: Tensor, num_tasks: int, floor: float) -> Tensor:
    """What each loss counts in the gradient of `1/T sum_t log L_t`.

    >>> import torch
    >>> log_weights(torch.tensor([2.0, 0.5, 0.0]), 4, floor=0.1).tolist()
    [0.125, 0.5, 2.5]
    """
    return 1.0 / (num_tasks * losses.double().clamp(min=floor))


class ScaleInvariant(Weighting):
    """Every task counts the same on the logarithms of the losses, so that no loss counts more for its unit or size.

    The model minimizes (the baseline SI of Navon et al. 2022)

        1/T sum_t log L_t ,     so that the gradient of L_t counts     omega_t = 1 / (T L_t) .

    - `L_t`: the task's loss in this step; `omega_t`: `weights[t]`.

    A loss in other units, or ten times as large, trains the model in the same way, and a task counts more as its loss
    gets smaller. The geometric mean of the losses (Chennupati et al. 2019) has the same direction in every step and
    another length, which Adam does not see. Among the weightings that cost nothing this is the one to beat beside
    `uniform`: Kurin et al. (2022) and Xin et al. (2022) found nothing to be gained over fixed weights by most others.

    In the code: omega_t is `log_weights`.

    Args:
        floor: losses below it count as this large: with a loss near zero, that of a task whose examples are memorized,
            `1 / L_t` grows without limit.

    Differs from the paper: `floor`; the mean of the logarithms in place of their sum.

    Needs losses that are not negative. Costs nothing beside a plain step. A task that is absent from a step keeps the
    weight that it had.

    >>> import torch
    >>> weighting = ScaleInvariant(tasks=["small", "large"])
    >>> parameter = torch.ones((), requires_grad=True)
    >>> weighting.backward({"small": 0.5 * parameter, "large": 10.0 * parameter})
    >>> {task: round(weight, 6) for task, weight in weighting.weights.items()}
    {'small': 1.0, 'large': 0.05}
    >>> round(parameter.grad.item(), 6)  # half of either logarithm, whatever their scales
    1.0
    """

    name: ClassVar[str] = "scale-invariant"
    summary: ClassVar[str] = "every task counts the same on the logarithm of its loss"
    paper: ClassVar[Paper | None] = NASH_MTL

    def __init__(
        self,
        *,
        floor: float = 1e-8,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.floor = check_number(self.name, "floor", floor, above=0.0)
        super().__init__(tasks, target)

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The derivative of the mean logarithm by each loss of this step."""
        check_not_negative(self.name, evidence.losses)
        losses = to_vector(evidence.losses, evidence.tasks)  # [tasks]
        return by_task(evidence.tasks, log_weights(losses, len(self.tasks), self.floor))
