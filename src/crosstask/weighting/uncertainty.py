"""Weights from a learned variance per task."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crosstask.papers import UNCERTAINTY, Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence
from crosstask.weighting.validation import check_choice, check_not_negative, check_number, check_task_names

MAX_LOG_VARIANCE = 20.0
"""Bound of a log variance on either side: the weight of a loss that stays zero would grow without limit."""


def weight_of(log_variance: float, *, regression: bool = False) -> float:
    """`exp(-s)`, and half of it for a regression.

    >>> weight_of(0.0), weight_of(0.0, regression=True)
    (1.0, 0.5)
    """
    factor = 0.5 if regression else 1.0
    return factor * math.exp(-log_variance)


def log_variance_gradient(log_variance: float, loss: float, *, regression: bool = False) -> float:
    """The derivative of `weight(s) * loss + s / 2` by s."""
    return 0.5 - weight_of(log_variance, regression=regression) * loss


def adam_step(gradient: float, first: float, second: float, count: int, step_size: float) -> tuple[float, float, float]:
    """The change of one number by Adam (betas 0.9 and 0.999), and both of its moments after step number `count`."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient**2
    denominator = math.sqrt(second / (1.0 - 0.999**count)) + 1e-8
    return -step_size * first / (1.0 - 0.9**count) / denominator, first, second


class Uncertainty(Weighting):
    """A task whose loss stays high counts less: each has a variance that is learned with the model.

    The model and the variances minimize (Kendall et al. 2018, eq. 10)

        sum_t  L_t / sigma_t^2 + log sigma_t        with  L_t / (2 sigma_t^2)  for a regression.

    - `sigma_t^2`: the variance of task t; kept as its logarithm `s_t`, `log_variances[t]`, which starts at 0;
    - `L_t`: `losses[t]`;
    - the weight of a task is what stands before its loss: `exp(-s_t)`, for a regression `exp(-s_t) / 2`.

    In the code: eq. 10's factors are `weight_of`, its derivative by `s_t` is `log_variance_gradient`, in closed form.

    Args:
        regression: names of the tasks whose loss is a squared error (eq. 7); the others are likelihoods of labels.
        step_size: of the steps on `s_t`. The paper learns `s_t` with the model's own optimizer and rate; the small
            rates of fine-tuning would hardly move it, so it has its own, 0.01.
        optimizer: "adam" or "sgd", for `s_t` alone.

    Differs from the paper: the step on `s_t` has its own optimizer and rate; `|s_t|` is at most 20. Some write
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
    is_delayed: ClassVar[bool] = True
    state_attributes: ClassVar[Mapping[str, str]] = {"log_variances": "log_variances", "moments": "_moments"}

    def __init__(
        self,
        *,
        regression: Sequence[str] = (),
        step_size: float = 0.01,
        optimizer: str = "adam",
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        if isinstance(regression, str):
            regression = [regression]
        self.regression = tuple(check_task_names(self.name, "regression", regression))
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        self.optimizer = check_choice(self.name, "optimizer", optimizer, ["adam", "sgd"])
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Every variance is 1."""
        super().start(problem)
        self.log_variances = dict.fromkeys(self.tasks, 0.0)
        # By task: first and second moment of Adam, and its number of steps.
        self._moments: dict[str, list[float]] = {task: [0.0, 0.0, 0] for task in self.tasks}
        self._set_weights()

    def named_tasks(self) -> dict[str, list[str]]:
        """Tasks that are regressions."""
        return {"regression": list(self.regression)}

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """A step on the log variance of each task of this step."""
        check_not_negative(self.name, evidence.losses)
        for task, loss in evidence.losses.items():
            gradient = log_variance_gradient(self.log_variances[task], loss, regression=task in self.regression)
            change = -self.step_size * gradient  # by plain gradient descent
            if self.optimizer == "adam":
                first, second, count = self._moments[task]
                change, first, second = adam_step(gradient, first, second, int(count) + 1, self.step_size)
                self._moments[task] = [first, second, int(count) + 1]
            moved = self.log_variances[task] + change
            self.log_variances[task] = min(MAX_LOG_VARIANCE, max(-MAX_LOG_VARIANCE, moved))
        self._set_weights()
        return self._weights

    def _set_weights(self) -> None:
        self._weights = {
            task: weight_of(value, regression=task in self.regression) for task, value in self.log_variances.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the log variances, which the weights follow from, and their moments."""
        super().load_state_dict({"weights": {}, **state})
        self._set_weights()
