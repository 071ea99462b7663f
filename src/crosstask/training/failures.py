"""Losses and gradients that are not finite never reach the weights; a task that keeps failing is set aside."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.runs.events import SetAside, SkippedStep
from crosstask.runs.record import Record
from crosstask.training.devices import Devices
from crosstask.training.sharding import gradient_norm
from crosstask.training.state import TrainingState

FAILURES_TO_SET_ASIDE = 10
"""A task whose loss or gradient is not finite this many times in a row takes no further part."""
ADVICE = "Lower `learning_rate`, use `precision: float32`, and look for extreme values in its data."

Gradient = list[Tensor | None]
"""What stands in `.grad` of some parameters."""


class Failures:
    """Counts what each task failed in a row, writes it down, and decides when a task takes no further part."""

    def __init__(self, state: TrainingState, record: Record, targets: Sequence[str]) -> None:
        self.state = state
        self.record = record
        self.targets = targets

    def finite_losses(self, values: Mapping[str, float]) -> list[str]:
        """The tasks whose losses may reach the weights."""
        tasks: list[str] = []
        for task, value in values.items():
            if math.isfinite(value):
                tasks.append(task)
                self.state.failures[task] = 0  # only failures in a row count
            else:
                self._count(task, self.state.failures.get(task, 0), f"the loss is {value}", "loss")
        return tasks

    def add_gradients(self, tasks: Iterable[str], before: Mapping[str, int]) -> None:
        """Tasks whose gradients failed though their losses were finite; `before` is the count before this update."""
        for task in sorted(tasks):
            if task not in self.state.set_aside:
                self._count(task, before.get(task, 0), "the gradient is not finite", "gradient")

    def _count(self, task: str, num_before: int, reason: str, failing: str) -> None:
        self.state.failures[task] = num_before + 1
        self.record.write(SkippedStep(reason, [task]))
        if self.state.failures[task] < FAILURES_TO_SET_ASIDE:
            return
        if task in self.targets:
            raise CrossTaskError(
                f"The {failing} of the target '{task}' was not finite {FAILURES_TO_SET_ASIDE} times in a row. {ADVICE}"
            )
        self.state.set_aside.add(task)
        plural = {"loss": "losses", "gradient": "gradients"}[failing]
        self.record.write(SetAside(task, f"{FAILURES_TO_SET_ASIDE} {plural} that are not finite"))

    def skip_update(self, tasks: Sequence[str]) -> None:
        """Each task's gradient is finite, but not their sum: nothing can be learned from this update."""
        self.state.skipped_updates += 1
        self.record.write(SkippedStep("the gradient of all tasks together is not finite", sorted(tasks)))
        if self.state.skipped_updates >= FAILURES_TO_SET_ASIDE:
            raise CrossTaskError(
                f"{FAILURES_TO_SET_ASIDE} updates in a row were skipped: the gradient of all tasks together is not "
                "finite, though that of each task is. Lower `learning_rate`, use `precision: float32`, and look for "
                "extreme values in the data."
            )


class FiniteParts:
    """The gradient of an update put together from those parts of it, each of one task and step, that are finite.

    Args:
        devices: ranks that add up their gradients, and so decide alike.
        parameters: those of the model's optimizer.
        separate: parameters that transfers train themselves, whose gradients the transfers add up over ranks.
    """

    def __init__(self, devices: Devices, parameters: Sequence[nn.Parameter], separate: Sequence[nn.Parameter]) -> None:
        self.devices = devices
        self.parameters = list(parameters)
        self.all_parameters = [*parameters, *separate]
        self.total: Gradient = [None] * len(self.all_parameters)
        self.failing_tasks: set[str] = set()
        self.num_finite = 0

    def add(self, task: str, put_in_place: Callable[[], None]) -> None:
        """Add the gradient that `put_in_place` leaves in `.grad`, or count the task as failing."""
        for parameter in self.all_parameters:
            parameter.grad = None
        put_in_place()
        self.devices.sum_gradients(self.parameters)
        # Entries whose squares overflow would spoil a step, too.
        if not torch.isfinite(gradient_norm(self.parameters, self.devices)):
            self.failing_tasks.add(task)
            return
        self.num_finite += 1
        for index, parameter in enumerate(self.all_parameters):
            if parameter.grad is None:
                continue
            before = self.total[index]
            self.total[index] = parameter.grad if before is None else before.add_(parameter.grad)

    def put_in_place(self) -> None:
        """Leave the sum of the finite parts in `.grad`, added up over ranks."""
        for parameter, gradient in zip(self.all_parameters, self.total, strict=True):
            parameter.grad = gradient
