"""What all studies take: encoder, settings of training, seeds, folder, processes; and one budget for every run."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crosstask.data.metrics import higher
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.runs.events import Row
from crosstask.storage import check_path
from crosstask.studies.executors import ExecutorName, check_executor
from crosstask.studies.grid import check_jobs
from crosstask.studies.method import Named, Section
from crosstask.training.config import Training, TrainingSettings, make_training
from crosstask.validation import Seed, check_value, items_of, name_and_options, shown

MAX_SEEDS = 100_000
"""Of a study."""
NUM_EVALUATIONS = 10
"""Evaluations on dev in every run of a study, unless the settings say otherwise."""


class RunOptions(TrainingSettings, total=False):
    """How each run is trained, beside single settings of training by name (`epochs=10`).

    - `encoder`: as a recipe names it;
    - `training`: settings of the loop. Epochs are those of the largest task;
    - `drop_overlap`: as for `Learner`;
    - `seeds`: how many, or which;
    - `progress`: show a bar; by default when the error stream is a terminal.
    """

    encoder: Named
    training: Training | Section | None
    drop_overlap: bool
    seeds: int | Sequence[int]
    progress: bool | None


class StudyOptions(RunOptions, total=False):
    """Options that `compare`, `transfer_matrix` and `capacity` share, beside those of each run.

    - `output`: folder for `cells.jsonl`, which grows run by run, and for the results. What it holds is not run again;
    - `jobs`: runs side by side: processes, or, where there are GPUs, runs that take turns in one process per card. When
      left out, all in this process: one after the other, or on a GPU in turns, as many as it has memory for, up to
      eight; on a Ray cluster as many as it has CPUs. A script that asks for several needs
      `if __name__ == "__main__":`;
    - `on`: "local", or "ray" for a Ray cluster: that of `RAY_ADDRESS`, or one on this machine. Its machines must see
      the same files.
    """

    output: str | Path | None
    jobs: int | None
    on: ExecutorName


@dataclass(frozen=True)
class Conditions:
    """The options of a study, read and checked."""

    encoder: Named
    training: Training
    seeds: tuple[int, ...]
    folder: Path | None = None
    jobs: int | None = None
    on: ExecutorName = "local"
    progress: bool | None = None
    drop_overlap: bool = True

    @classmethod
    def of(cls, options: RunOptions, *, encoder: Named, seeds: int) -> "Conditions":
        """From what was passed by name, with the study's defaults for what was not."""
        settings: Row = dict(options)  # what remains of it in the end are settings of training
        folder = settings.pop("output", None)
        if folder is not None:
            folder = check_path(folder, "`output`")
        progress = settings.pop("progress", None)
        check_value("study", "progress", bool | None, progress)
        drop_overlap = settings.pop("drop_overlap", True)
        check_value("study", "drop_overlap", bool, drop_overlap)
        jobs, on = settings.pop("jobs", None), settings.pop("on", "local")
        study_encoder = settings.pop("encoder", encoder)
        name_and_options("encoder", study_encoder)
        check_executor(on)
        check_jobs(jobs)
        return cls(
            encoder=study_encoder,
            seeds=seed_list(settings.pop("seeds", seeds)),
            folder=folder,
            jobs=jobs,
            on=on,
            progress=progress,
            drop_overlap=drop_overlap,
            training=make_training(settings.pop("training", None), settings),
        )


def same_budget(training: Training, tasks: Sequence[Task]) -> Training:
    """As many updates and evaluations on dev for every run, whichever tasks it has: the largest task's epochs.

    Without this a small task alone would get fewer updates than with a large source, and lose for that reason alone.
    """
    largest = max(len(task.train) for task in tasks)
    steps = math.ceil(largest / training.batch_size)
    updates = training.updates or training.epochs * math.ceil(steps / training.accumulate)
    evaluate_every = training.evaluate_every or max(1, updates // NUM_EVALUATIONS)
    return replace(training, updates=updates, evaluate_every=evaluate_every)


def overlap_fact(drop_overlap: bool) -> Row:
    """What a folder remembers of `drop_overlap`: nothing where it is the default, which older folders do not know."""
    if drop_overlap:
        return {}
    return {"drop_overlap": False}


def seed_list(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Seeds as they are, or so many from 0 on."""
    message = "`seeds` must be a number of at least 1 or different seeds of at least 0"
    listed: Sequence[int] = ()
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        listed = range(min(seeds, MAX_SEEDS + 1))
    elif isinstance(seeds, Sequence) and not isinstance(seeds, str):
        listed = seeds
    if not 0 < len(listed) <= MAX_SEEDS:
        raise CrossTaskError(f"{message}, at most {MAX_SEEDS:,} of them; found {shown(seeds)}.")
    for seed in listed:
        check_value("seeds", "seed", Seed, seed)
    if len(set(listed)) < len(listed):
        raise CrossTaskError(f"{message}, found {shown(seeds)}.")
    return tuple(listed)


def sign_of(metric: str) -> float:
    """By which a score is multiplied so that more is better."""
    return 1.0 if higher(metric) else -1.0


def tasks_by_name(tasks: Sequence[Task], beginning: str = "Two") -> dict[str, Task]:
    """Tasks by name, which must differ; `beginning` is that of the error otherwise."""
    checked_tasks = items_of("study", "tasks", tasks, Task)
    by_name = {task.name: task for task in checked_tasks}
    if len(by_name) < len(checked_tasks):
        raise CrossTaskError(f"{beginning} tasks have the same name; every task needs a name of its own.")
    return by_name


def content(task: Task) -> str:
    """A digest of the examples of a task: another one for other data."""
    # Arrays by their bytes: their text leaves out most values.
    digest = hashlib.sha256()
    for split, examples in task.splits.items():
        digest.update(split.encode())
        if isinstance(examples.inputs, np.ndarray):
            digest.update(np.ascontiguousarray(examples.inputs).tobytes())
        else:
            digest.update(repr(list(examples.inputs)).encode())
        digest.update(repr(list(examples.labels)).encode())
    return digest.hexdigest()[:16]
