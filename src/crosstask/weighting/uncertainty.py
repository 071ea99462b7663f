"""Weights from each task's learned uncertainty."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from crosstask.papers import UNCERTAINTY, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import LossWeighting, reduced_values, weighted_backward

LIMIT = 20.0
"""How far a log variance may go either way: a loss that stays zero would else send its weight to infinity."""


def weight_of(log_variance: float, *, regression: bool = False) -> float:
    """`exp(-s)`, and half of it for a regression.

    >>> weight_of(0.0), weight_of(0.0, regression=True)
    (1.0, 0.5)
    """
    return (0.5 if regression else 1.0) * math.exp(-log_variance)


def slope_of(log_variance: float, loss: float, *, regression: bool = False) -> float:
    """The derivative of `weight(s) * loss + s / 2` by s."""
    return 0.5 - weight_of(log_variance, regression=regression) * loss


def adam_step(slope: float, first: float, second: float, count: int, step_size: float) -> tuple[float, float, float]:
    """The change of one number by Adam (betas 0.9 and 0.999), and both of its moments after step number `count`."""
    first = 0.9 * first + 0.1 * slope
    second = 0.999 * second + 0.001 * slope**2
    steady = math.sqrt(second / (1.0 - 0.999**count)) + 1e-8
    return -step_size * first / (1.0 - 0.9**count) / steady, first, second


class Uncertainty(LossWeighting):
    """A task whose loss stays high counts less: each has a variance that is learned with the model.

    The model and the variances minimise (Kendall et al. 2018, eq. 10)

        sum_t  L_t / sigma_t^2 + log sigma_t        with  L_t / (2 sigma_t^2)  for a regression.

    - `sigma_t^2`: the variance of task t; kept as its logarithm `s_t`, `log_variances[t]`, which starts at 0;
    - `L_t`: `losses[t]`;
    - the weight of a task is what stands before its loss: `exp(-s_t)`, for a regression `exp(-s_t) / 2`.

    In the code: eq. 10's factors are `weight_of`, its derivative by `s_t` is `slope_of`, in closed form.

    Args:
        regression: names of the tasks whose loss is a squared error (eq. 7); the others are likelihoods of labels.
        step_size: of the steps on `s_t`. The paper learns `s_t` with the model's own optimizer and rate; the small
            rates of fine-tuning would hardly move it, so it has its own, 0.01.
        optimizer: "adam" or "sgd", for `s_t` alone.

    Differs from the paper: the step on `s_t` has its own optimizer and rate; `s_t` stays within 20 of zero. Some write
    `+ s_t` for the last term where the paper has `log sigma_t = s_t / 2`; we follow the paper, so that the weight tends
    to `1 / (2 L_t)` for both kinds of tasks.

    Needs losses that are not negative. Costs nothing beside a plain step. A task that is absent from a step keeps its
    `s_t`. The step on `s_t` does not depend on `scale`, and is made at each call of `backward`. Model and `s_t` move
    at once: a step uses the weights from before it.

    >>> import torch
    >>> weighting = Uncertainty(optimizer="sgd", step_size=0.1, tasks=["easy", "hard"])
    >>> parameter = torch.ones((), requires_grad=True)
    >>> weighting.backward({"easy": 0.5 * parameter, "hard": 1.5 * parameter})
    >>> parameter.grad.item()  # 1 * 0.5 + 1 * 1.5
    2.0
    >>> weighting.weights  # s = 0.1 * (L - 0.5): 0 and 0.1
    {'easy': 1.0, 'hard': 0.9048374180359595}
    """

    name: ClassVar[str] = "uncertainty"
    summary: ClassVar[str] = "each task's loss over a variance that is learned with the model"
    paper: ClassVar[Paper | None] = UNCERTAINTY

    def __init__(
        self,
        *,
        regression: Sequence[str] = (),
        step_size: float = 0.01,
        optimizer: str = "adam",
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.regression = (regression,) if isinstance(regression, str) else tuple(regression)
        self.step_size = checks.number(self.name, "step_size", step_size, above=0.0)
        self.optimizer = checks.choice(self.name, "optimizer", optimizer, ["adam", "sgd"])
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """Every variance is 1."""
        self.log_variances = dict.fromkeys(self.tasks, 0.0)
        self._moments: dict[str, list[float]] = {task: [0.0, 0.0, 0] for task in self.tasks}
        self._set_weights()

    def check_names(self, known: Iterable[str]) -> None:
        """Every task that is called a regression must exist."""
        checks.known_tasks(self.name, "regression", self.regression, list(known))

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """One plain backward pass with the weights as they are, then a step on the variances."""
        self.check_losses(losses)
        values = reduced_values(losses, self.reduce)
        checks.losses_not_negative(self.name, values)
        self.steps += 1
        weighted_backward(losses, self._weights, probabilities, scale)
        self.update(values)

    def update(self, values: Mapping[str, float]) -> None:
        """A step on the log variance of each task of this step."""
        for task, loss in values.items():
            slope = slope_of(self.log_variances[task], loss, regression=task in self.regression)
            change = -self.step_size * slope
            if self.optimizer == "adam":
                first, second, count = self._moments[task]
                change, first, second = adam_step(slope, first, second, int(count) + 1, self.step_size)
                self._moments[task] = [first, second, int(count) + 1]
            self.log_variances[task] = min(LIMIT, max(-LIMIT, self.log_variances[task] + change))
        self._set_weights()

    def _set_weights(self) -> None:
        self._weights = {
            task: weight_of(value, regression=task in self.regression) for task, value in self.log_variances.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """The log variances and their moments."""
        return {"log_variances": dict(self.log_variances), "moments": dict(self._moments), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them over."""
        self.log_variances = {task: float(value) for task, value in state["log_variances"].items()}
        self._moments = {task: list(moments) for task, moments in state["moments"].items()}
        self.steps = int(state["steps"])
        self._set_weights()
