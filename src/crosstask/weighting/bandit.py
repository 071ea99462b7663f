"""Weights of an opponent who favours the tasks with high losses, within a distance of equal weights."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from crosstask.papers import BANDIT, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import LossWeighting

SMALLEST = 1e-30
"""A share may come back from here; from zero it never would."""
USUAL_RHO = 1.2


def distance_from_uniform(shares: Tensor) -> float:
    """`KL(p || uniform) = sum_t p_t log(T p_t)`, from 0 to log T.

    >>> distance_from_uniform(torch.tensor([0.5, 0.5])), round(distance_from_uniform(torch.tensor([1.0, 0.0])), 6)
    (0.0, 0.693147)
    """
    shares = shares.double()
    return float(torch.special.xlogy(shares, shares * len(shares)).sum())


def ascent_step(shares: Tensor, losses: Tensor, step_size: float, rho: float) -> tuple[Tensor, float]:
    """`p_t <- (p_t exp(step_size L_t))^(1 / (1 + lambda)) / normaliser`, and lambda.

    lambda >= 0 is the smallest that keeps `KL(p || uniform) <= rho`. The distance falls as lambda grows, since the
    power evens the shares out, so that lambda is found by bisection on the power, to the last digit.

    >>> ascent_step(torch.tensor([0.5, 0.5]), torch.tensor([math.log(3.0), 0.0]), 1.0, rho=1.0)
    (tensor([0.7500, 0.2500], dtype=torch.float64), 0.0)
    """
    exponents = shares.double().clamp(min=SMALLEST).log() + step_size * losses.double()
    free = torch.softmax(exponents, 0)
    if distance_from_uniform(free) <= rho:
        return free, 0.0
    low, high = 0.0, 1.0  # the power 1 / (1 + lambda); at 0 all shares are equal
    for _ in range(60):
        middle = (low + high) / 2.0
        if distance_from_uniform(torch.softmax(middle * exponents, 0)) <= rho:
            low = middle
        else:
            high = middle
    return torch.softmax(low * exponents, 0), 1.0 / low - 1.0 if low > 0.0 else math.inf


class BanditMTL(LossWeighting):
    """An opponent moves weight to the tasks with high losses, so that no task is left behind; he may not go too far.

    The model and the opponent play (Mao et al. 2021)

        min over theta  max over p  sum_t p_t L_t(theta),     p on the simplex with KL(p || uniform) <= rho,

    which bounds the mean loss plus a multiple of the variance of the losses over tasks. The opponent's step is mirror
    ascent with the entropy, `p_t <- (p_t exp(eta L_t))^(1 / (1 + lambda)) / normaliser`.

    - `p_t`: `weights[t]`, on the simplex, at first 1 / T;
    - `eta`: `step_size`;
    - `lambda`: the multiplier of the constraint, the smallest >= 0 that keeps it.

    In the code: the opponent's step is `ascent_step`, the solution of max_p eta <p, L> - KL(p || p_old) under the
    constraint; the constraint is `distance_from_uniform`.

    Args:
        rho: how far the weights may go from equal; 0 keeps them equal, log T and more sets no bound. By default 1.2,
            with which later work reports the method (the paper chooses it by data set), and log T / 2 for two or three
            tasks, to whom 1.2 would be no bound.
        step_size: of the opponent; 0.5 by default, likewise.

    Differs from the paper: lambda by bisection to the last digit; the opponent moves first, and the model's step uses
    his new weights; for a task that is absent from a step he takes the loss he saw last (before the first, the mean of
    the others).

    Needs nothing but the losses, of any sign. Costs nothing beside a plain step.

    >>> weighting = BanditMTL(rho=1.0, step_size=1.0, tasks=["easy", "hard"])
    >>> weighting.update({"easy": 0.0, "hard": math.log(3.0)})
    >>> {task: round(weight, 6) for task, weight in weighting.weights.items()}
    {'easy': 0.25, 'hard': 0.75}
    """

    name: ClassVar[str] = "bandit"
    summary: ClassVar[str] = "more weight to tasks with high losses, within a distance of equal weights"
    paper: ClassVar[Paper | None] = BANDIT

    def __init__(
        self,
        *,
        rho: float | None = None,
        step_size: float = 0.5,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self._given_rho = None if rho is None else checks.number(self.name, "rho", rho, at_least=0.0)
        self.step_size = checks.number(self.name, "step_size", step_size, above=0.0)
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 / T each."""
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))
        usual = USUAL_RHO if math.log(len(self.tasks)) > USUAL_RHO else math.log(len(self.tasks)) / 2.0
        self.rho = usual if self._given_rho is None else self._given_rho
        self.last_losses: dict[str, float] = {}

    def update(self, values: Mapping[str, float]) -> None:
        """The opponent's step."""
        self.last_losses.update(values)
        usual = sum(self.last_losses.values()) / len(self.last_losses)
        losses = torch.tensor([self.last_losses.get(task, usual) for task in self.tasks], dtype=torch.float64)
        shares = torch.tensor([self._weights[task] for task in self.tasks], dtype=torch.float64)
        shares, _ = ascent_step(shares, losses, self.step_size, self.rho)
        self._weights = dict(zip(self.tasks, shares.tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The weights, the losses last seen and the number of steps."""
        return {**super().state_dict(), "last_losses": dict(self.last_losses)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them over."""
        super().load_state_dict(state)
        self.last_losses = {task: float(loss) for task, loss in state["last_losses"].items()}
