"""Weights that stay as they are: uniform, by size, or given."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from crosstask.errors import CrossTaskError, unknown
from crosstask.papers import TAWT, Paper
from crosstask.weighting.base import LossWeighting


class Uniform(LossWeighting):
    """Every task counts the same: `omega_t = 1 / T`.

    The weights of normalized joint training (Chen et al. 2022, Sec. 4): since each loss is a mean over its own task's
    examples, a small task counts as much as a large one.

    >>> Uniform(tasks=["ner", "pos"]).weights
    {'ner': 0.5, 'pos': 0.5}
    """

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "every task counts the same"
    paper: ClassVar[Paper | None] = TAWT

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 / T each."""
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))


class BySize(LossWeighting):
    """Every example counts the same: `omega_t = n_t / sum n`.

    The weights of joint training and of pre-training (Chen et al. 2022, Sec. 4).

    Args:
        sizes: number of training examples of each task, where the learner does not tell.

    >>> BySize(tasks=["ner", "pos"], sizes={"ner": 100, "pos": 300}).weights
    {'ner': 0.25, 'pos': 0.75}
    """

    name: ClassVar[str] = "by-size"
    summary: ClassVar[str] = "every example counts the same, so a task counts by its size"
    paper: ClassVar[Paper | None] = TAWT

    def __init__(
        self,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.sizes = dict(sizes) if sizes is not None else None
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """Each task's share of all examples."""
        known = self.sizes if self.sizes is not None else sizes
        for task in self.tasks:
            if known.get(task, 0) < 1:
                raise CrossTaskError(f"weighting 'by-size': the number of examples of task '{task}' is not known.")
        total = sum(known[task] for task in self.tasks)
        self._weights = {task: known[task] / total for task in self.tasks}


class Fixed(LossWeighting):
    """The weights that you give. They are used as they are; a task left out counts nothing.

    Args:
        weights: what each task counts, by name; not below 0.

    >>> Fixed({"ner": 2.0, "pos": 0.5}, tasks=["ner", "pos"]).weights
    {'ner': 2.0, 'pos': 0.5}
    """

    name: ClassVar[str] = "fixed"
    summary: ClassVar[str] = "the weights that you give"

    def __init__(
        self,
        weights: Mapping[str, float],
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        for task, weight in weights.items():
            if not (isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0):
                raise CrossTaskError(
                    f"weighting 'fixed': the weight of '{task}' must be a number of at least 0, found {weight!r}."
                )
        self.given = {task: float(weight) for task, weight in weights.items()}
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """As given."""
        present = {task: self.given.get(task, 0.0) for task in self.tasks}
        if not any(present.values()):
            raise CrossTaskError(
                f"weighting 'fixed': no task of this phase has a weight above 0 (tasks: {', '.join(self.tasks)})."
            )
        self._weights = present

    def check_names(self, known: Iterable[str]) -> None:
        """Every task that has a weight must exist."""
        names = list(known)
        for task in self.given:
            if task not in names:
                raise unknown("task in `weighting.weights`:", task, names)
