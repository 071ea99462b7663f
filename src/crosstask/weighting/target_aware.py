"""Weights that follow how well each task's gradient agrees with the target's: what the methods of TAWT share."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError
from crosstask.gradients.simplex import mirror_step_of_logs
from crosstask.gradients.target_alignment import TargetAlignment
from crosstask.papers import TAWT as TAWT_PAPER
from crosstask.papers import Paper
from crosstask.weighting.base import Initial, Problem, State, Weighting
from crosstask.weighting.evidence import by_task, to_vector
from crosstask.weighting.validation import check_choice, check_count, check_number

MIN_WEIGHT = 1e-20
"""A weight below this counts as zero in a step: it could not change a float, and denormal numbers are slow."""
DEFAULT_EVERY = 50
"""Steps from one inspection to the next in a loop that says neither this nor how long it is."""


def effective_sample_size(weights: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """`N_omega = 1 / sum_t (omega_t^2 / n_t)`: how many examples weighted training is worth (Sec. 3, Theorem 3.1).

    >>> round(effective_sample_size({"a": 0.5, "b": 0.5}, {"a": 100, "b": 300}), 6)
    300.0
    """
    return 1.0 / sum(weight**2 / sizes[task] for task, weight in weights.items())


class TargetAware(Weighting):
    """Weights on the simplex that take a step of mirror descent a few times in a run (Chen et al. 2022, eq. 2.8).

    A method says when it can compare tasks with the target, and calls `_mirror_step` with what it found.
    """

    paper: ClassVar[Paper | None] = TAWT_PAPER
    is_delayed: ClassVar[bool] = True

    def __init__(
        self,
        *,
        step_size: float,
        sharpness: float,
        inspections: int,
        every: int | None,
        average: bool,
        smoothing: float,
        initial: Initial | None,
        tasks: Sequence[str] | None,
        target: str | Sequence[str] | None,
    ) -> None:
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        self.sharpness = check_number(self.name, "sharpness", sharpness, above=0.0)
        self.inspections = check_count(self.name, "inspections", inspections)
        self.has_fixed_distance = every is not None
        self.every = check_count(self.name, "every", DEFAULT_EVERY if every is None else every)
        self.average = bool(average)
        self.smoothing = check_number(self.name, "smoothing", smoothing, at_least=0.0, at_most=1.0)
        self.initial = check_choice(self.name, "initial", initial, (None, *get_args(Initial)))
        self.last_inspection = 0
        self.num_steps: float = math.inf  # of the run, where that is known
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """By size or uniform, as `initial` says."""
        super().start(problem)
        if not self.targets:
            raise CrossTaskError(
                f"weighting '{self.name}' compares every task with the target, but no target is named: pass "
                "`target=...`."
            )
        self.sizes = {task: problem.sizes.get(task, 0) for task in self.tasks}
        without_size = [task for task, size in self.sizes.items() if size < 1]
        initial = self.initial or problem.initial
        if initial == "by-size" and without_size:
            raise CrossTaskError(
                f"weighting '{self.name}': `initial` is 'by-size', but the number of examples of task "
                f"'{without_size[0]}' is not known. Pass `sizes` to `bind`, or choose 'uniform'."
            )
        self._has_sizes = not without_size
        log_weights = torch.zeros(len(self.tasks), dtype=torch.float64)  # [tasks], the largest zero
        if initial != "uniform" and self._has_sizes:
            counts = to_vector(self.sizes, self.tasks)
            log_weights = (counts / counts.max()).log()
        self._weight_sums = torch.zeros(len(self.tasks), dtype=torch.float64)  # [tasks], over all inspections
        self._num_inspections = 0
        self._set_log_weights(log_weights)
        self.last_inspection = 0

    def expect(self, num_steps: int) -> None:
        """Place the inspections at equal distances from each other and from both ends of the run."""
        self.num_steps = num_steps
        if not self.has_fixed_distance:
            self.every = max(1, num_steps // (self.inspections + 1))

    @property
    def next_inspection(self) -> int:
        """The number of the step, counted from 1, at which the next one is due."""
        return (self.last_inspection // self.every + 1) * self.every

    def _mirror_step(self, alignment: TargetAlignment, agreement: Tensor) -> None:
        """Eq. 2.8 among the tasks that were compared, whose weights keep their sum.

        Args:
            alignment: how they stand to the target.
            agreement: of each of them, [compared tasks]; times `sharpness` it stands for the derivative of the target's
                loss by the weight, with the opposite sign.
        """
        self.last_inspection = self.steps
        # 1. The derivative of the target's loss by each weight. A target outside the simplex has none.
        derivatives = by_task(alignment.tasks, -self.sharpness * agreement)
        gradient = {task: derivatives[task] for task in self.tasks if task in derivatives}
        # 2. The step, on the logarithms of the weights of these tasks.
        rows = [self.tasks.index(task) for task in gradient]
        before = self._log_weights[rows]  # [compared tasks]
        after = mirror_step_of_logs(before, to_vector(gradient, list(gradient)), self.step_size)
        updated = self._log_weights.clone()  # [tasks]
        updated[rows] = after + before.logsumexp(0) - after.logsumexp(0)
        self._weight_sums += torch.softmax(updated, 0)
        self._num_inspections += 1
        self._set_log_weights(updated - updated.max())
        # 3. The record.
        self._facts = {**alignment.facts(self.targets), "weight_gradient": gradient}
        if self._has_sizes:
            self._facts["effective_sample_size"] = effective_sample_size(self.weights, self.sizes)

    def _set_log_weights(self, log_weights: Tensor) -> None:
        """Take these as the point of mirror descent, and weigh tasks by it, by the mean of all points, or smoothed."""
        self._log_weights = log_weights
        weights = torch.softmax(log_weights, 0)  # [tasks]
        if self.average and self._num_inspections:
            weights = self._weight_sums / self._num_inspections
        if self.smoothing:
            weights = (1.0 - self.smoothing) * weights + self.smoothing / len(self.tasks)
        self._weights = by_task(self.tasks, weights)

    def _step_weights(self) -> Mapping[str, float]:
        step_weights = dict(self._weights)
        for task, weight in self._weights.items():
            if weight < MIN_WEIGHT:
                step_weights[task] = 0.0
        return step_weights

    def state_dict(self) -> State:
        """The logarithms of the weights, the largest zero; the number of steps, and of that at the last inspection.

        With `average` also the sum of the weights over inspections, and their number.
        """
        log_weights = by_task(self.tasks, self._log_weights)
        state: State = {"log_weights": log_weights, "steps": self.steps, "last_look": self.last_inspection}
        if self.average:
            state["weight_sums"] = by_task(self.tasks, self._weight_sums)
            state["num_inspections"] = self._num_inspections
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if self.average:
            self._weight_sums = to_vector(state["weight_sums"], self.tasks)
            self._num_inspections = int(state["num_inspections"])
        self._set_log_weights(to_vector(state["log_weights"], self.tasks))
        self.steps, self.last_inspection = int(state["steps"]), int(state["last_look"])
