"""Weights that bring the tasks' gradients to a common norm, larger for tasks that learn slowly."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.papers import GRADNORM, Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task, to_vector
from crosstask.weighting.validation import check_count, check_not_negative, check_number, check_positive

MIN_WEIGHT = 1e-3
"""Lower bound of a weight before renormalization: after too long a step it would be negative."""


def training_rates(losses: Tensor, initial: Tensor) -> Tensor:
    """`r_t`: each loss relative to its first value, over the mean of that; above 1 for a task that learns slowly.

    >>> training_rates(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0])).tolist()
    [0.5, 1.5]
    """
    ratios = losses / initial
    if ratios.mean() <= 0.0:
        return torch.ones_like(ratios)
    return ratios / ratios.mean()


def gradnorm_gradient(weights: Tensor, norms: Tensor, rates: Tensor, alpha: float) -> Tensor:
    """The gradient of `sum_t |G_t - mean(G) r_t^alpha|` by the weights, the targets held constant (eq. 2).

    `G_t = w_t norm_t`, so that the derivative by a weight is its task's norm with the sign of the difference.

    >>> ones = torch.ones(2)
    >>> gradnorm_gradient(ones, torch.tensor([1.0, 3.0]), rates=ones, alpha=1.5).tolist()
    [-1.0, 3.0]
    """
    weighted_norms = weights * norms
    targets = weighted_norms.mean() * rates**alpha
    return torch.sign(weighted_norms - targets) * norms


def renormalize(weights: Tensor, total: float) -> Tensor:
    """Weights that add up to `total`, after a lower bound of `MIN_WEIGHT`."""
    bounded = weights.clamp(min=MIN_WEIGHT)
    return bounded * (total / bounded.sum())


class GradNorm(Weighting):
    """Gradients of all tasks are brought to one norm, times more for a task that learns more slowly than the others.

    The weights follow the gradient of (Chen et al. 2018, eq. 2)

        sum_t | G_t - mean(G) r_t^alpha |,    G_t = w_t |grad L_t|,    r_t = (L_t / L_t(0)) / mean of the same,

    with the targets `mean(G) r_t^alpha` (eq. 1) held constant, and are renormalized to add up to T.

    - `w_t`: `weights[t]`, which start at 1;
    - `|grad L_t|`: norm of the gradient on the shared parameters that are compared (`norms`);
    - `L_t(0)`: `initial_losses[t]`, the loss of the first step that had the task;
    - `r_t`: `training_rates`.

    In the code: eq. 1 and the gradient of eq. 2 are `gradnorm_gradient`; the last line of Algorithm 1 is `renormalize`.

    Args:
        alpha: how strongly slow tasks are pulled up; 1.5 in the paper's main experiment, 0.12 for tasks that are alike.
        step_size: of the weights; 0.025.
        last_shared: compare gradients on the last so many tensors of `shared` alone (in the order of the model's
            parameters; a linear layer has two). The paper uses the last shared layer. By default we use all shared
            parameters, since the last of them need not be what the tasks use last.
        every: steps from one inspection of gradients to the next.

    Differs from the paper: all shared parameters by default, see `last_shared`; plain gradient steps on the weights; no
    weight falls below 0.001 before renormalization, where the paper allows negative ones. Tasks that are absent keep
    their weights and those present keep their sum, so that all add up to T.

    Needs losses that are not negative, above zero in a task's first step, and each task in each step to compare them.
    An inspection costs a backward pass per task, hardly more than one of their sum. As in Algorithm 1 the model's step
    uses the weights from before it.

    >>> weighting = GradNorm(step_size=0.1, tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> weighting.backward({"a": parameter.sum(), "b": 3.0 * parameter.sum()}, shared=[parameter])
    >>> weighting.weights  # 1 + 0.1 and 1 - 0.3, times 2 / 1.8
    {'a': 1.2222222222222223, 'b': 0.7777777777777778}
    """

    name: ClassVar[str] = "gradnorm"
    summary: ClassVar[str] = "brings the tasks' gradients to one norm, larger for tasks that learn slowly"
    paper: ClassVar[Paper | None] = GRADNORM
    inspects: ClassVar[Need] = Need.GRADIENTS | Need.SEVERAL_TASKS
    is_delayed: ClassVar[bool] = True
    state_attributes: ClassVar[Mapping[str, str]] = {"initial_losses": "initial_losses"}

    def __init__(
        self,
        *,
        alpha: float = 1.5,
        step_size: float = 0.025,
        last_shared: int | None = None,
        every: int = 1,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.alpha = check_number(self.name, "alpha", alpha, at_least=0.0)
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        if last_shared is not None:
            check_count(self.name, "last_shared", last_shared)
        self.last_shared = last_shared
        self.every = check_count(self.name, "every", every)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Start with a weight of 1 per task."""
        super().start(problem)
        self._weights = dict.fromkeys(self.tasks, 1.0)
        self.initial_losses: dict[str, float] = {}

    def needs(self, step: int) -> Need:
        """Gradients on every `every`-th step; products of them will do unless only the last parameters count."""
        need = super().needs(step)
        if Need.GRADIENTS in need and self.last_shared is None:
            return need | Need.PRODUCTS
        return need

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """A gradient step on the weights."""
        if self.last_shared is not None:
            evidence.compare_last(self.last_shared)
        norms = evidence.gradient_norms  # first: where gradients have overflowed, losses must not be noted
        self._note_first_losses(evidence.losses)
        tasks = evidence.tasks
        rates = training_rates(to_vector(evidence.losses, tasks), to_vector(self.initial_losses, tasks))
        weights = to_vector(self._weights, tasks)  # [tasks]
        gradient = gradnorm_gradient(weights, norms, rates, self.alpha)
        # The tasks of this step keep the sum of their weights.
        updated = renormalize(weights - self.step_size * gradient, float(weights.sum()))
        return by_task(tasks, updated)

    def _note_first_losses(self, losses: Mapping[str, float]) -> None:
        check_not_negative(self.name, losses)
        first = {task: loss for task, loss in losses.items() if task not in self.initial_losses}
        check_positive(self.name, first, "at the start, since it compares later ones with them")
        self.initial_losses.update(first)
