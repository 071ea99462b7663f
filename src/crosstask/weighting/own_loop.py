"""What a loop of one's own has not given to its weighting, which would then learn nothing without a word."""

import warnings
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor, nn

from crosstask.errors import CrossTaskWarning, did_you_mean
from crosstask.quoting import brief

PATIENCE = 3
"""Updates without what a weighting waits for, until it says so."""
PATIENCE_WITH_TASKS = 20
"""Inspections in a row for which tasks were missing: a loop may draw some of its tasks in each step."""


class OwnLoop:
    """Sees, from call to call of `backward`, whether a weighting gets what it waits for; each warning comes once.

    The learner gives everything to every weighting, so this is for loops where `tasks` or `bind` named the tasks.
    """

    def __init__(self, method: str, tasks: Sequence[str], targets: Sequence[str]) -> None:
        self.method, self.tasks, self.targets = method, tasks, targets
        self._num_without: dict[str, int] = {}
        self._heard: set[str] = set()

    def hear(self, what: str) -> None:
        """This has come, and need not be waited for any more."""
        self._heard.add(what)

    def begin_step(
        self,
        losses: Mapping[str, Tensor],
        shared: Iterable[nn.Parameter],
        waits_for_after_step: bool,
        needs_target_loss: bool,
    ) -> None:
        """Take note of a call of `backward`.

        Args:
            losses: its losses.
            shared: its shared parameters, whose gradients tell a new update from one more step of the same.
            waits_for_after_step: whether the loop should have called it before this step.
            needs_target_loss: whether the weighting reads the loss of a target, which need not be one of its tasks.
        """
        if any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in shared):
            return
        if any(target in losses for target in self.targets):
            self.hear("target")
        elif needs_target_loss:
            target = brief(self.targets[0])
            sentence = f"there was no loss of the target '{target}', with which it compares every other task."
            if self.targets[0] not in self.tasks:
                sentence += f" No task has this name. {did_you_mean(self.targets[0], self.tasks)}"
            self._miss("target", sentence, PATIENCE)
        if waits_for_after_step:
            sentence = "it learns its weights in `after_step`, which this loop has not called, so they stay."
            self._miss("after_step", sentence, PATIENCE)

    def note_tasks(self, *, are_enough: bool) -> None:
        """An inspection was due; the step may have had too few tasks for it."""
        if are_enough:
            self.hear("tasks")
            return
        sentence = (
            "each time that it was to learn weights, tasks that it compares were missing, so weights stay. Pass the "
            "losses of all tasks in one call."
        )
        self._miss("tasks", sentence, PATIENCE_WITH_TASKS)

    def _miss(self, what: str, sentence: str, patience: int) -> None:
        if what in self._heard:
            return
        self._num_without[what] = self._num_without.get(what, 0) + 1
        if self._num_without[what] == patience:
            self.hear(what)  # once is enough
            unit = "inspections" if what == "tasks" else "updates"
            text = f"weighting '{self.method}', after {patience} {unit}: {sentence}"
            warnings.warn(text, CrossTaskWarning, stacklevel=4)
