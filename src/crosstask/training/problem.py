"""The tasks of a run, checked, with the paradigm that trains on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crosstask.data.metrics import check_metric, default_metric
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.training.paradigms import Paradigm, default_paradigm, find_paradigm
from crosstask.validation import items_of


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """Targets, sources and a paradigm."""

    targets: tuple[Task, ...]
    sources: tuple[Task, ...]
    paradigm: Paradigm

    @classmethod
    def of(cls, target: Task | Sequence[Task], sources: Sequence[Task], paradigm: str | None) -> "LearningProblem":
        """Check that there is a target, that names differ, and that every metric goes with its task."""
        targets = (target,) if isinstance(target, Task) else items_of("fit", "target", target, Task)
        sources = items_of("fit", "sources", sources, Task)
        if not targets:
            raise CrossTaskError("There is no target task.")
        names: set[str] = set()
        for task in (*targets, *sources):
            if task.name in names:
                raise CrossTaskError(f"Two tasks are called '{task.name}'; every task needs a name of its own.")
            check_metric(task.spec.metric or default_metric(task.spec), task.spec)
            names.add(task.name)
        if paradigm is None:
            return cls(targets, sources, default_paradigm(len(targets), len(sources)))
        return cls(targets, sources, find_paradigm(paradigm))

    @property
    def target_names(self) -> list[str]:
        """Names of the targets."""
        return [task.name for task in self.targets]

    @property
    def source_names(self) -> list[str]:
        """Names of the sources."""
        return [task.name for task in self.sources]

    @property
    def tasks(self) -> dict[str, Task]:
        """All tasks by name, the targets first."""
        return {task.name: task for task in (*self.targets, *self.sources)}

    @property
    def trained_tasks(self) -> list[Task]:
        """The tasks that the paradigm uses: without the sources for one that trains on targets alone."""
        if self.paradigm.uses_sources:
            return [*self.targets, *self.sources]
        return list(self.targets)

    def limited(self, seed: int) -> "LearningProblem":
        """The problem with sources cut down to what the paradigm reads of them."""
        limit_source = self.paradigm.limit_source
        if limit_source is None:
            return self
        return replace(self, sources=tuple(limit_source(task, seed) for task in self.sources))
