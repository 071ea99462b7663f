"""The tasks of a run, checked, with the paradigm that trains on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crosstask.data.metrics import check_metric, default_metric
from crosstask.data.overlap import positions_outside
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.training.paradigms import Paradigm, default_paradigm, find_paradigm
from crosstask.validation import items_of, shown


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """Targets, sources and a paradigm."""

    targets: tuple[Task, ...]
    sources: tuple[Task, ...]
    paradigm: Paradigm

    @classmethod
    def of(
        cls, target: Task | Sequence[Task], sources: Task | Sequence[Task] | None, paradigm: str | None
    ) -> "LearningProblem":
        """Check that there is a target, that names differ, and that every metric goes with its task."""
        targets = items_of("fit", "target", target, Task)
        sources = items_of("fit", "sources", sources, Task)
        if not targets:
            raise CrossTaskError(f"fit: `target` must be a `Task`, or a list of them; found {shown(target)}.")
        names: set[str] = set()
        for task in (*targets, *sources):
            if task.name in names:
                raise CrossTaskError(f"Two tasks are called '{task.name}'; every task needs a name of its own.")
            check_metric(task.spec.metric or default_metric(task.spec), task.spec)
            names.add(task.name)
        way = default_paradigm(len(targets), len(sources)) if paradigm is None else find_paradigm(paradigm)
        _check_labeled(targets if way.needs_labels else (), sources)
        return cls(targets, sources, way)

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

    def without_overlap(self) -> "LearningProblem":
        """The problem without training examples whose input is in dev or test of a target that is another task."""
        sources = self.sources
        if self.paradigm.uses_sources:
            sources = tuple(without_overlap(sources, self.targets))
        return replace(self, targets=tuple(without_overlap(self.targets, self.targets)), sources=sources)

    def limited(self, seed: int) -> "LearningProblem":
        """The problem with sources cut down to what the paradigm reads of them."""
        limit_source = self.paradigm.limit_source
        if limit_source is None:
            return self
        return replace(self, sources=tuple(limit_source(task, seed) for task in self.sources))


def _check_labeled(targets: Sequence[Task], sources: Sequence[Task]) -> None:
    """A source has training examples, and so has a target, but for a paradigm that needs none."""
    for task in (*targets, *sources):
        if not len(task.train):
            advice = "leave it out" if task in sources else "label some, or use the paradigm 'names', which needs none"
            raise CrossTaskError(f"Task '{task.name}' has no training examples: {advice}.")


def without_overlap(tasks: Sequence[Task], targets: Sequence[Task]) -> list[Task]:
    """The tasks without training examples whose input is in dev or test of a target that is another task.

    A model that was trained on them, by whatever labels, knows them as it will not know new ones. Each task has a note
    on how many there were.
    """
    remaining: list[Task] = []
    for task in tasks:
        for target in targets:
            if target.name == task.name:
                continue
            positions = _positions_outside(task, target)
            num_examples = len(task.train)
            if not positions and num_examples:
                raise CrossTaskError(
                    f"Task '{task.name}' has nothing left to train on: the inputs of all its {num_examples} training "
                    f"examples stand in dev or test of the target '{target.name}'. Leave the task out, or keep them "
                    "with `drop_overlap: false`."
                )
            if len(positions) < num_examples:
                note = _left_out(num_examples - len(positions), target)
                task = replace(task, train=task.train.take(positions), notes=(*task.notes, note))
        remaining.append(task)
    return remaining


def overlap_notes(tasks: Sequence[Task], targets: Sequence[Task]) -> list[str]:
    """What `without_overlap` leaves out of the tasks for each target, in a sentence."""
    notes: list[str] = []
    for target in targets:
        counts: list[str] = []
        for task in tasks:
            count = len(task.train) - len(_positions_outside(task, target))
            if task.name != target.name and count:
                counts.append(f"{count:,} of '{task.name}'")
        if counts:
            notes.append(
                f"Training examples were left out whose inputs stand in dev or test of the target '{target.name}': "
                f"{', '.join(counts)}."
            )
    return notes


def _positions_outside(task: Task, target: Task) -> list[int]:
    held_out = [examples for examples in (target.dev, target.test) if examples is not None]
    return positions_outside(task.train, held_out)


def _left_out(count: int, target: Task) -> str:
    where = f"in dev or test of the target '{target.name}'"
    if count == 1:
        return f"1 training example was left out: its input stands {where}"
    return f"{count:,} training examples were left out: their inputs stand {where}"
