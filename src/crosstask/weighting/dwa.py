"""More weight to tasks whose losses decrease more slowly than the others'."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.papers import DWA as DWA_PAPER
from crosstask.papers import Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, by_task
from crosstask.weighting.validation import check_count, check_not_negative, check_number


def average_weights(ratios: Tensor, temperature: float) -> Tensor:
    """`T softmax(r / temperature)` (eq. 7).

    >>> average_weights(torch.tensor([0.5, 0.5, 0.5]), 2.0).round(decimals=6).tolist()
    [1.0, 1.0, 1.0]
    """
    return len(ratios) * torch.softmax(ratios.double() / temperature, 0)


class DWA(Weighting):
    """Dynamic weight average: a task whose loss decreases more slowly than the others' counts more.

    The weights in window k are (Liu, Johns & Davison 2019, eq. 7)

        w_t(k) = T exp(r_t(k-1) / temperature) / sum_j exp(r_j(k-1) / temperature),    r_t(k-1) = L_t(k-1) / L_t(k-2) .

    - `w_t`: `weights[t]`; they add up to T, and are 1 in the first two windows;
    - `L_t(k)`: the mean loss of task t over window k, `averages[t]` of the last two;
    - `r_t`: relative loss after a window, `ratio(t)`.

    In the code: eq. 7 is `average_weights`, the ratios are `DWA.ratio`.

    Args:
        temperature: 2 in the paper; the larger, the more even.
        window: steps of a window; the paper's is an epoch.

    Differs from the paper: windows of a number of steps; a task with no loss in one of the last two windows, or with
    one of zero, has ratio 1.

    Needs losses that are not negative. Costs nothing beside a plain step. A task may be absent: its mean is over the
    steps that had it.

    >>> weighting = DWA(window=1, tasks=["fast", "slow"])
    >>> parameter = torch.ones((), requires_grad=True)
    >>> for loss in (1.0, 0.5, 0.25):
    ...     weighting.backward({"fast": loss * parameter, "slow": parameter})
    >>> {task: round(weight, 6) for task, weight in weighting.weights.items()}  # 2 exp(0.25), 2 exp(0.5), over the sum
    {'fast': 0.875647, 'slow': 1.124353}
    """

    name: ClassVar[str] = "dwa"
    summary: ClassVar[str] = "more weight to tasks whose losses decrease more slowly than the others'"
    paper: ClassVar[Paper | None] = DWA_PAPER
    state_attributes: ClassVar[Mapping[str, str]] = {"sums": "_sums", "averages": "averages"}

    def __init__(
        self,
        *,
        temperature: float = 2.0,
        window: int = 100,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.temperature = check_number(self.name, "temperature", temperature, above=0.0)
        self.window = check_count(self.name, "window", window)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Start with a weight of 1 per task."""
        super().start(problem)
        self._weights = dict.fromkeys(self.tasks, 1.0)
        self._sums: dict[str, list[float]] = {}  # by task: sum and number of the losses of this window
        self.averages: list[dict[str, float]] = []

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """New weights when a window has ended; then this step's losses belong to the next."""
        check_not_negative(self.name, evidence.losses)
        weights = self._weights
        num_steps = self.steps - 1  # before this one
        if num_steps and num_steps % self.window == 0:
            self._end_window()
            if len(self.averages) == 2:
                ratios = torch.tensor([self.ratio(task) for task in self.tasks])
                weights = by_task(self.tasks, average_weights(ratios, self.temperature))
        for task, loss in evidence.losses.items():
            total, number = self._sums.get(task, [0.0, 0])
            self._sums[task] = [total + loss, number + 1]
        return weights

    def _end_window(self) -> None:
        means = {task: total / number for task, (total, number) in self._sums.items()}
        self.averages = [*self.averages, means][-2:]  # older ones play no part
        self._sums = {}

    def ratio(self, task: str) -> float:
        """A task's mean loss in the last window, relative to the one before."""
        older, newer = self.averages
        before, after = older.get(task, 0.0), newer.get(task, 0.0)
        if before <= 0.0 or after <= 0.0:
            return 1.0
        return after / before
