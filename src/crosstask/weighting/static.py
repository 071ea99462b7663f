"""Weights that do not change: uniform, by size, or those of the user."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from crosstask.errors import CrossTaskError, unknown
from crosstask.limits import MAX_NUMBER, limit_text
from crosstask.papers import TAWT, Paper
from crosstask.quoting import brief, shown
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, Need
from crosstask.weighting.validation import check_counts, check_mapping


class StaticWeighting(Weighting):
    """Weights that no step changes; one plain backward pass of the weighted sum."""

    inspects: ClassVar[Need] = Need.NOTHING

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The weights as they are."""
        return self.weights


class Uniform(StaticWeighting):
    """Every task counts the same: `omega_t = 1 / T`.

    The weights of normalized joint training (Chen et al. 2022, Sec. 4): since each loss is a mean over its own task's
    examples, a small task counts as much as a large one.

    >>> Uniform(tasks=["ner", "pos"]).weights
    {'ner': 0.5, 'pos': 0.5}
    """

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "every task counts the same"
    paper: ClassVar[Paper | None] = TAWT


class BySize(StaticWeighting):
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
        self.sizes = check_counts(self.name, "sizes", sizes)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Each task's fraction of all examples."""
        super().start(problem)
        sizes = self.sizes or problem.sizes
        for task in self.tasks:
            if sizes.get(task, 0) < 1:
                raise CrossTaskError(f"weighting 'by-size': the number of examples of task '{task}' is not known.")
        total = sum(sizes[task] for task in self.tasks)
        self._weights = {task: sizes[task] / total for task in self.tasks}


class Fixed(StaticWeighting):
    """The weights that you give. They are not normalized; a task left out counts nothing.

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
        check_mapping(self.name, "weights", weights)
        for task, weight in weights.items():
            is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not is_number or not 0 <= weight <= MAX_NUMBER:
                raise CrossTaskError(
                    f"weighting 'fixed': the weight of '{brief(task)}' must be a number of at least 0 and at most "
                    f"{limit_text(MAX_NUMBER)}, found {shown(weight)}."
                )
        self.fixed_weights = {task: float(weight) for task, weight in weights.items()}
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """The weights of this phase's tasks."""
        super().start(problem)
        self._weights = {task: self.fixed_weights.get(task, 0.0) for task in self.tasks}
        if not any(self._weights.values()):
            raise CrossTaskError(
                f"weighting 'fixed': no task of this phase has a weight above 0 (tasks: {', '.join(self.tasks)})."
            )

    def named_tasks(self) -> dict[str, list[str]]:
        """Tasks that have a weight."""
        return {"weights": list(self.fixed_weights)}

    def check_names(self, all_tasks: Iterable[str]) -> None:
        """Every task that has a weight must exist."""
        names = list(all_tasks)
        for task in self.fixed_weights:
            if task not in names:
                raise unknown("task in `weighting.weights`:", task, names)
