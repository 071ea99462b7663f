"""Weights that bring the tasks' gradients to a common size, larger for tasks that learn slowly."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError
from crosstask.gradients.task_gradients import Gradient
from crosstask.papers import GRADNORM, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import GradientWeighting

FLOOR = 1e-3
"""The least that a task counts before renormalising: a step too long would else turn its sign."""


def training_rates(losses: Tensor, initial: Tensor) -> Tensor:
    """`r_t`: what is left of each loss, over the mean of that; a task that learns slowly has more than 1.

    >>> training_rates(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0])).tolist()
    [0.5, 1.5]
    """
    left = losses / initial
    return left / left.mean() if left.mean() > 0.0 else torch.ones_like(left)


def gradnorm_slopes(weights: Tensor, norms: Tensor, rates: Tensor, alpha: float) -> Tensor:
    """The gradient of `sum_t |G_t - mean(G) r_t^alpha|` by the weights, the targets held constant (eq. 2).

    `G_t = w_t norm_t`, so that a weight's slope is its gradient's norm with the sign of what is too much.

    >>> ones = torch.ones(2)
    >>> gradnorm_slopes(ones, torch.tensor([1.0, 3.0]), rates=ones, alpha=1.5).tolist()
    [-1.0, 3.0]
    """
    sizes = weights * norms
    targets = sizes.mean() * rates**alpha
    return torch.sign(sizes - targets) * norms


def renormalise(weights: Tensor, total: float) -> Tensor:
    """Weights of at least `FLOOR` that add up to `total`."""
    bounded = weights.clamp(min=FLOOR)
    return bounded * (total / bounded.sum())


class GradNorm(GradientWeighting):
    """Gradients of all tasks are brought to one size, times more for a task that learns more slowly than the others.

    The weights follow the gradient of (Chen et al. 2018, eq. 2)

        sum_t | G_t - mean(G) r_t^alpha |,    G_t = w_t |grad L_t|,    r_t = (L_t / L_t(0)) / mean of the same,

    with the targets `mean(G) r_t^alpha` (eq. 1) held constant, and are renormalised to add up to T.

    - `w_t`: `weights[t]`, which start at 1;
    - `|grad L_t|`: norm of the gradient on the shared parameters that are looked at (`norms`);
    - `L_t(0)`: `initial_losses[t]`, the loss of the first step that had the task;
    - `r_t`: `training_rates`.

    In the code: eq. 1 and the gradient of eq. 2 are `gradnorm_slopes`; the last line of Algorithm 1 is `renormalise`.

    Args:
        alpha: how strongly slow tasks are pulled up; 1.5 in the paper's main experiment, 0.12 for tasks that are alike.
        step_size: of the weights; 0.025.
        last_shared: look at the last so many tensors of `shared` alone (in the order of the model's parameters; a
            linear layer has two). The paper looks at the last shared layer; by default we look at all of it, since
            what comes last among a model's parameters need not be what the tasks use last.
        every: steps from one look to the next.

    Differs from the paper: the whole shared part by default, see `last_shared`; plain gradient steps on the weights; no
    weight falls below 0.001 before renormalising, where the paper has nothing against negative ones. Tasks that are
    absent keep their weights and those present share what they had, so that all add up to T.

    Needs losses that are not negative, above zero when first seen, and each task in each step to compare them. Costs a
    backward pass per task on a look, which is hardly more than one of their sum. As in Algorithm 1 the model's step
    uses the weights from before it.

    >>> weighting = GradNorm(step_size=0.1, tasks=["a", "b"])
    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> weighting.backward({"a": parameter.sum(), "b": 3.0 * parameter.sum()}, shared=[parameter])
    >>> weighting.weights  # 1 + 0.1 and 1 - 0.3, times 2 / 1.8
    {'a': 1.2222222222222223, 'b': 0.7777777777777778}
    """

    name: ClassVar[str] = "gradnorm"
    summary: ClassVar[str] = "brings the tasks' gradients to one size, larger for tasks that learn slowly"
    paper: ClassVar[Paper | None] = GRADNORM
    needs_every_task = True
    takes_fused_losses = True

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
        self.alpha = checks.number(self.name, "alpha", alpha, at_least=0.0)
        self.step_size = checks.number(self.name, "step_size", step_size, above=0.0)
        self.last_shared = None if last_shared is None else checks.count(self.name, "last_shared", last_shared)
        self.every = checks.count(self.name, "every", every)
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 each."""
        self._weights = dict.fromkeys(self.tasks, 1.0)
        self.initial_losses: dict[str, float] = {}

    def products(self, gradients: Sequence[Gradient]) -> Tensor:
        """On the last shared tensors alone, where asked for."""
        if self.last_shared is None:
            return super().products(gradients)
        if self.last_shared > len(gradients[0]):
            raise CrossTaskError(
                f"weighting 'gradnorm': `last_shared` is {self.last_shared}, but there are only {len(gradients[0])} "
                "shared parameter tensors that learn."
            )
        return super().products([gradient[-self.last_shared :] for gradient in gradients])

    def coefficients(self, gram: Tensor, tasks: Sequence[str], values: Mapping[str, float]) -> Sequence[float]:
        """The weights as they were; then a step on them."""
        checks.losses_not_negative(self.name, values)
        fresh = {task: value for task, value in values.items() if task not in self.initial_losses}
        checks.losses_positive(self.name, fresh, "at the start, since it compares later ones with them")
        self.initial_losses.update(fresh)

        old = torch.tensor([self._weights[task] for task in tasks], dtype=torch.float64)
        norms = gram.diagonal().clamp(min=0.0).sqrt()
        losses = torch.tensor([values[task] for task in tasks], dtype=torch.float64)
        initial = torch.tensor([self.initial_losses[task] for task in tasks], dtype=torch.float64)
        slopes = gradnorm_slopes(old, norms, training_rates(losses, initial), self.alpha)
        new = renormalise(old - self.step_size * slopes, float(old.sum()))
        self._weights.update(zip(tasks, new.tolist(), strict=True))
        return old.tolist()

    def state_dict(self) -> dict[str, Any]:
        """The weights, the first losses and the number of steps."""
        return {**super().state_dict(), "initial_losses": dict(self.initial_losses)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them over."""
        super().load_state_dict(state)
        self.initial_losses = {task: float(loss) for task, loss in state["initial_losses"].items()}
