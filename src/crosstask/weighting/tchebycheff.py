"""Train the task with the largest weighted loss, or a smooth maximum of the losses."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.papers import TCHEBYCHEFF, Paper
from crosstask.quoting import brief
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task, to_vector
from crosstask.weighting.validation import check_mapping, check_number


def tchebycheff_weights(losses: Tensor, preferences: Tensor, smooth: float | None = None) -> Tensor:
    """What each loss counts in the gradient of `max_t c_t L_t`, or of `mu log sum_t exp(c_t L_t / mu)`.

    Tasks with the same largest loss share the maximum.

    >>> tchebycheff_weights(torch.tensor([1.0, 2.0]), torch.ones(2)).tolist()
    [0.0, 1.0]
    >>> tchebycheff_weights(torch.tensor([0.0, 0.6931472]), torch.ones(2), smooth=1.0).round(decimals=4).tolist()
    [0.3333, 0.6667]
    """
    weighted = preferences.double() * losses.double()
    if smooth is not None:
        return preferences.double() * torch.softmax(weighted / smooth, 0)
    # The maximum has a kink where several tasks attain it; their mean is one of its subgradients.
    worst = (weighted == weighted.max()).double()
    return preferences.double() * worst / worst.sum()


class Tchebycheff(Weighting):
    """Each step trains the task whose loss is the largest, so that the worst gets better.

    The model minimizes (Mao et al. 2020)

        max_t  c_t L_t ,     or smoothly (Lin et al. 2024)     mu log sum_t exp(c_t L_t / mu) .

    - `c_t`: `preferences[t]`; a task with a larger one ends with a smaller loss;
    - `mu`: `smooth`;
    - `weights[t]`: what the loss of t counts in the gradient: `c_t` for the worst task and 0 for the others, or
      `c_t softmax(c L / mu)_t`.

    In the code: both gradients are `tchebycheff_weights`.

    Args:
        preferences: one number above 0 per task; 1 each if left out, and for tasks that are not named.
        smooth: the temperature mu, in units of the losses; None for the maximum itself. Towards 0 the smooth version
            becomes the maximum, and for large ones the mean.

    Differs from the paper: the ideal losses that are subtracted inside the maximum are 0, their bound, as in Mao et al.
    (the paper of the smooth version subtracts an estimate of them). The adversarial version is the transfer
    `tchebycheff-adversarial`.

    Needs each task in each step, since it compares them; the worst of those that are there is taken, and an absent task
    keeps the weight it had. Losses may be of any sign. Costs nothing beside a plain step.

    >>> weighting = Tchebycheff(preferences={"b": 3.0}, tasks=["a", "b"])
    >>> parameter = torch.ones((), requires_grad=True)
    >>> weighting.backward({"a": 2.0 * parameter, "b": 1.0 * parameter})
    >>> weighting.weights, parameter.grad.item()  # 3 * 1 is more than 1 * 2
    ({'a': 0.0, 'b': 3.0}, 3.0)
    """

    name: ClassVar[str] = "tchebycheff"
    summary: ClassVar[str] = "each step trains the task with the largest loss, or a smooth maximum of them"
    paper: ClassVar[Paper | None] = TCHEBYCHEFF
    inspects: ClassVar[Need] = Need.LOSSES | Need.EVERY_TASK

    def __init__(
        self,
        *,
        preferences: Mapping[str, float] | None = None,
        smooth: float | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.preferences: dict[str, float] = {}
        check_mapping(self.name, "preferences", {} if preferences is None else preferences)
        for task, value in (preferences or {}).items():
            self.preferences[task] = check_number(self.name, f"preferences.{brief(task)}", value, above=0.0)
        if smooth is not None:
            check_number(self.name, "smooth", smooth, above=0.0)
        self.smooth = smooth
        super().__init__(tasks, target)

    def named_tasks(self) -> dict[str, list[str]]:
        """Tasks that have a preference."""
        return {"preferences": list(self.preferences)}

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The gradient of the maximum by each loss of this step."""
        losses = to_vector(evidence.losses, evidence.tasks)  # [tasks]
        preferences = to_vector(self.preferences, evidence.tasks, default=1.0)
        return by_task(evidence.tasks, tchebycheff_weights(losses, preferences, self.smooth))
