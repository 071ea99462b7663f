"""The contract of a weighting: losses in, gradients in place, and word of how much each task counted."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from crosstask.errors import CrossTaskError, unknown
from crosstask.papers import Paper


class Weighting(ABC):
    """How much each task counts.

    In a loop of one's own, `backward(losses, shared=...)` stands where `.backward()` stood. The tasks may be named at
    once or later with `bind`, as the learner does.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    needs_held_out: ClassVar[bool] = False
    """Whether `after_step` wants losses on held-out examples."""
    every: int = 1
    """Steps from one look at the gradients to the next."""

    def __init__(self, tasks: Sequence[str] | None = None, target: str | Sequence[str] | None = None) -> None:
        self.tasks: tuple[str, ...] = ()
        self.targets: tuple[str, ...] = ()
        if tasks is not None:
            self.bind(tasks, target)

    def bind(
        self,
        tasks: Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Name the tasks that take part, those that matter most, and how many examples each has."""
        if not tasks:
            raise CrossTaskError(f"weighting '{self.name}': there must be at least one task.")
        if len(set(tasks)) != len(tasks):
            raise CrossTaskError(f"weighting '{self.name}': a task is named twice in {list(tasks)}.")
        self.tasks = tuple(tasks)
        self.targets = (target,) if isinstance(target, str) else tuple(target or ())
        self.start(dict(sizes or {}))

    @abstractmethod
    def start(self, sizes: Mapping[str, int]) -> None:
        """Set the first weights; `sizes` is empty when the number of examples is not known."""

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """What each task counts now."""

    @abstractmethod
    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
    ) -> None:
        """Put the gradient of the weighted loss into the parameters' `.grad`.

        Args:
            losses: a scalar per task; tasks that are absent from this step may be missing.
            shared: the parameters that all tasks train, for weightings that look at gradients.
            probabilities: how likely each task was to be part of this step; a loss counts `weight / probability`.
        """

    def after_step(  # noqa: B027 - most weightings need none
        self, held_out_losses: Mapping[str, Tensor], *, shared: Iterable[nn.Parameter] | None = None
    ) -> None:
        """Learn from losses on held-out examples after the update, where `needs_held_out` says so."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while training."""
        return {"weights": self.weights}

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""

    def check_tasks(self, losses: Mapping[str, Tensor]) -> None:
        """Every loss must belong to a task that was named."""
        if not self.tasks:
            raise CrossTaskError(
                f"weighting '{self.name}' does not know its tasks: pass `tasks=[...]` or call `bind` first."
            )
        for task in losses:
            if task not in self.tasks:
                raise unknown("task", task, self.tasks)
        if not losses:
            raise CrossTaskError(f"weighting '{self.name}': `losses` is empty.")
