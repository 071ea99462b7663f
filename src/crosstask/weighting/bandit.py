"""Weights of an adversary that favors tasks with high losses, within a distance of uniform weights."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.papers import BANDIT, Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, by_task, to_vector
from crosstask.weighting.validation import check_number

MIN_WEIGHT = 1e-30
"""Lower bound inside the logarithm: a weight may recover from here, from zero it never would."""
DEFAULT_RHO = 1.2
NUM_BISECTIONS = 60


def distance_from_uniform(weights: Tensor) -> float:
    """`KL(p || uniform) = sum_t p_t log(T p_t)`, from 0 to log T.

    >>> distance_from_uniform(torch.tensor([0.5, 0.5])), round(distance_from_uniform(torch.tensor([1.0, 0.0])), 6)
    (0.0, 0.693147)
    """
    weights = weights.double()
    return float(torch.special.xlogy(weights, weights * len(weights)).sum())


def ascent_step(weights: Tensor, losses: Tensor, step_size: float, rho: float) -> tuple[Tensor, float]:
    """`p_t <- (p_t exp(step_size L_t))^(1 / (1 + lambda)) / normalizer`, and lambda.

    lambda >= 0 is the smallest that keeps `KL(p || uniform) <= rho`. The distance decreases in lambda, so that lambda
    is found by bisection on the power 1 / (1 + lambda), to the last digit.

    >>> ascent_step(torch.tensor([0.5, 0.5]), torch.tensor([math.log(3.0), 0.0]), 1.0, rho=1.0)
    (tensor([0.7500, 0.2500], dtype=torch.float64), 0.0)
    """
    exponents = weights.double().clamp(min=MIN_WEIGHT).log() + step_size * losses.double()
    unconstrained = torch.softmax(exponents, 0)
    if distance_from_uniform(unconstrained) <= rho:
        return unconstrained, 0.0
    low, high = 0.0, 1.0  # the power; at 0 all weights are equal
    for _ in range(NUM_BISECTIONS):
        middle = (low + high) / 2.0
        if distance_from_uniform(torch.softmax(middle * exponents, 0)) <= rho:
            low = middle
        else:
            high = middle
    # Without a digit to spare the power is 0: equal weights, an infinite multiplier.
    multiplier = math.inf
    if low > 0.0:
        multiplier = 1.0 / low - 1.0
    return torch.softmax(low * exponents, 0), multiplier


class BanditMTL(Weighting):
    """An adversary moves weight to the tasks with high losses, within a distance of uniform weights.

    The model and the adversary play (Mao et al. 2021)

        min over theta  max over p  sum_t p_t L_t(theta),     p on the simplex with KL(p || uniform) <= rho,

    which bounds the mean loss plus a multiple of the variance of the losses over tasks. The adversary's step is mirror
    ascent with the entropy, `p_t <- (p_t exp(eta L_t))^(1 / (1 + lambda)) / normalizer`.

    - `p_t`: `weights[t]`, on the simplex, at first 1 / T;
    - `eta`: `step_size`;
    - `lambda`: the multiplier of the constraint, the smallest >= 0 that keeps it.

    In the code: the adversary's step is `ascent_step`, the solution of max_p eta <p, L> - KL(p || p_old) under the
    constraint; the constraint is `distance_from_uniform`.

    Args:
        rho: largest distance from uniform weights; 0 keeps them uniform, log T and more sets no bound. By default 1.2,
            with which later work reports the method (the paper chooses it by data set), and log T / 2 for two or three
            tasks, for which 1.2 would be no bound.
        step_size: of the adversary; 0.5 by default, likewise.

    Differs from the paper: lambda by bisection to the last digit; the adversary moves first, and the model's step uses
    its new weights; a task that is absent from a step counts with its last loss (before the first, with the mean of
    the others).

    Needs nothing but the losses, of any sign. Costs nothing beside a plain step.

    >>> weighting = BanditMTL(rho=1.0, step_size=1.0, tasks=["easy", "hard"])
    >>> parameter = torch.ones((), dtype=torch.float64, requires_grad=True)
    >>> weighting.backward({"easy": 0.0 * parameter, "hard": math.log(3.0) * parameter})
    >>> {task: round(weight, 6) for task, weight in weighting.weights.items()}
    {'easy': 0.25, 'hard': 0.75}
    """

    name: ClassVar[str] = "bandit"
    summary: ClassVar[str] = "more weight to tasks with high losses, within a distance of uniform weights"
    paper: ClassVar[Paper | None] = BANDIT
    state_attributes: ClassVar[Mapping[str, str]] = {"last_losses": "last_losses"}

    def __init__(
        self,
        *,
        rho: float | None = None,
        step_size: float = 0.5,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        if rho is not None:
            check_number(self.name, "rho", rho, at_least=0.0)
        self._rho_option = rho
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """1 / T each."""
        super().start(problem)
        self.last_losses: dict[str, float] = {}
        max_distance = math.log(len(self.tasks))
        if self._rho_option is not None:
            self.rho = float(self._rho_option)
        elif max_distance > DEFAULT_RHO:
            self.rho = DEFAULT_RHO
        else:
            self.rho = max_distance / 2.0

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The adversary's step."""
        self.last_losses.update(evidence.losses)
        mean = sum(self.last_losses.values()) / len(self.last_losses)
        losses = to_vector(self.last_losses, self.tasks, default=mean)  # [tasks]
        weights, _ = ascent_step(to_vector(self._weights, self.tasks), losses, self.step_size, self.rho)
        return by_task(self.tasks, weights)
