"""Many small runs under the same conditions: these targets with the help of those sources, from this start."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from typing_extensions import TypedDict

from crosstask.baton import clock
from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named, make_transfer, make_weighting
from crosstask.runs.events import Row
from crosstask.studies.grid import Fact, RunKey, as_written, open_grid
from crosstask.studies.method import Method
from crosstask.studies.options import Conditions, content, overlap_fact, same_budget, tasks_by_name
from crosstask.training.config import Training
from crosstask.training.paradigms import find_paradigm
from crosstask.training.problem import without_overlap
from crosstask.validation import name_and_options

AXES = ("targets", "sources", "seed", "width")


class TaskRow(TypedDict):
    """The row of a run: its key, and its targets' scores by task, split and metric."""

    targets: list[str]
    sources: list[str]
    seed: int
    width: int | None
    scores: dict[str, dict[str, dict[str, float | None]]]
    seconds: float


def task_key(targets: Sequence[str], sources: Sequence[str], seed: int, width: int | None = None) -> RunKey:
    """One run: these targets with the help of those sources; `width` is that of the encoder, where it is varied."""
    return RunKey.of(targets=tuple(targets), sources=tuple(sources), seed=seed, width=width)


def is_single(key: RunKey) -> bool:
    """Whether a task is trained alone."""
    return len(key["targets"]) == 1 and not key["sources"]


@dataclass(frozen=True, eq=False)
class TaskStudy:
    """What all runs of a study have in common.

    - `training`: with a budget of updates that is the same for every run, see `same_budget`;
    - `method`: of the runs with several tasks. A task alone is trained with nothing but its own labels;
    - `width_option`: what the width is called in the encoder's section, where it is varied;
    - `drop_overlap`: as for `Learner`.
    """

    tasks: Mapping[str, Task]
    encoder: Named
    training: Training
    method: Method
    width_option: str = "hidden"
    drop_overlap: bool = True

    @classmethod
    def of(
        cls, tasks: Sequence[Task], method: Method, conditions: Conditions, purpose: str, width_option: str = "hidden"
    ) -> "TaskStudy":
        """A study of these tasks, checked: different names, a dev set each, methods that exist, one budget for all."""
        # 1. Tasks that can be compared.
        by_name = tasks_by_name(tasks, f"{purpose}: two")
        if len(tasks) < 2:
            raise CrossTaskError(f"{purpose} needs at least two tasks, found {len(tasks)}.")
        for task in tasks:
            if task.dev is None:
                raise CrossTaskError(
                    f"{purpose} compares dev scores, but task '{task.name}' has no dev set: give one, or more examples."
                )
        # 2. A method for any combination of them.
        weighting = make_weighting(method.weighting)
        if weighting is not None and weighting.named_tasks():
            raise CrossTaskError(
                f"{purpose} trains tasks in several combinations, so weights by task name do not fit: leave the "
                "weighting out, or use one that learns the weights."
            )
        for item in method.transfer:
            make_transfer(item)
        # 3. The same number of updates for every run.
        training = same_budget(conditions.training, tasks)
        return cls(by_name, conditions.encoder, training, method, width_option, conditions.drop_overlap)

    def apart(self) -> "TaskStudy":
        """The study without training examples whose input another task has in dev or test.

        Where tasks are trained together, each of them a target, a run leaves these out; a task alone, which is compared
        with it, must not have more to learn from.
        """
        if not self.drop_overlap:
            return self
        tasks = list(self.tasks.values())
        return replace(self, tasks={task.name: task for task in without_overlap(tasks, tasks)})

    def run(self, key: RunKey) -> Row:
        """Train one run; returns its scores and how long it took."""
        started = clock()
        method = self.method
        # A task alone is the reference for all others: no weighting, no transfer.
        if is_single(key):
            method = Method("alone", find_paradigm(self.method.paradigm).without_sources)
        targets = [self.tasks[name] for name in key["targets"]]
        sources = [self.tasks[name] for name in key["sources"]]
        try:
            learner = method.learner(
                self._encoder(key), self._training(method), key["seed"], drop_overlap=self.drop_overlap
            )
            run = learner.fit(targets, sources)
        except CrossTaskError as error:
            raise CrossTaskError(f"{key}: {error}") from error
        scores: Row = {}
        for name in key["targets"]:
            if name in run.scores:
                scores[name] = run.scores[name]
        return {"scores": scores, "seconds": round(clock() - started, 2)}

    def _encoder(self, key: RunKey) -> Named:
        if key["width"] is None:
            return self.encoder
        name, options = name_and_options("encoder", self.encoder)
        return {"name": name, **options, self.width_option: key["width"]}

    def _training(self, method: Method) -> Training:
        if method.paradigm != "pretrain":
            return self.training
        # Two phases share the budget.
        return replace(self.training, updates=max(1, (self.training.updates or 2) // 2))

    def describe(self) -> Row:
        """All that can change a result but the seed, as plain data."""
        tasks: Row = {}
        for name, task in self.tasks.items():
            sizes = {split: len(examples) for split, examples in task.splits.items()}
            tasks[name] = {"kind": task.kind, "labels": len(task.labels), "sizes": sizes, "content": content(task)}
        return as_written(
            {
                "encoder": self.encoder,
                "paradigm": self.method.paradigm,
                "weighting": self.method.weighting,
                "transfer": list(self.method.transfer),
                "training": asdict(self.training),
                **overlap_fact(self.drop_overlap),
                "tasks": tasks,
            }
        )

    def run_all(self, keys: Sequence[RunKey], conditions: Conditions) -> "TaskResults":
        """The results of these runs; those that the folder holds already are not run again.

        Each row is written as soon as it is known, so a study that was killed goes on where it stopped when it is
        started again in the same way.
        """
        facts = [Fact("study", name, {"is": value}) for name, value in self.describe().items()]
        with open_grid(
            conditions.folder, facts, kind="study", names={"study": "`{}`"}, axes=AXES, results=TaskRow
        ) as grid:
            rows = grid.run(self.run, keys, jobs=conditions.jobs, on=conditions.on, progress=conditions.progress)
        metrics = {name: chosen_metric(task.spec).name for name, task in self.tasks.items()}
        return TaskResults(rows, metrics, conditions.seeds)


@dataclass(frozen=True, eq=False)
class TaskResults:
    """The rows of a study, and the metric of each task."""

    rows: Mapping[RunKey, Row]
    metrics: Mapping[str, str]
    seeds: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Of all runs together."""
        return round(sum(row["seconds"] for row in self.rows.values()), 1)

    def scores(
        self,
        task: str,
        targets: Sequence[str],
        sources: Sequence[str] = (),
        width: int | None = None,
        split: str = "dev",
    ) -> list[float | None]:
        """Of a task in the runs with these targets and sources, seed by seed; None where it is not defined."""
        scores: list[float | None] = []
        for seed in self.seeds:
            row = self.rows[task_key(targets, sources, seed, width)]
            scores.append(row["scores"].get(task, {}).get(split, {}).get(self.metrics[task]))
        return scores
