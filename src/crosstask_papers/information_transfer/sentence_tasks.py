"""Six sentence tasks, split by the seed, none of which trains on what another one is measured with."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Task
from crosstask_papers.data import SENTENCE_FILES, sentence_task

TASKS = tuple(SENTENCE_FILES)
SPLIT = (0.8, 0.1, 0.1)


@cache
def separate_tasks(data: Path, seed: int, limit: int | None) -> dict[str, Task]:
    """All six by name; a run takes those that it needs, so that a task has the same texts alone and with others."""
    tasks = apart([split_task(data, name, seed, limit) for name in TASKS])
    return {task.name: task for task in tasks}


@cache
def split_task(data: Path, name: str, seed: int, limit: int | None) -> Task:
    """A task cut into train, dev and test by the seed; of at most `limit` texts."""
    examples = sentence_task(data, name).train
    if limit is not None and limit < len(examples):
        examples = examples.take(balanced_subset(examples.labels, limit, np.random.default_rng(seed)))
    return Task.assemble(name, examples, split=SPLIT, seed=seed, labels=sentence_task(data, name).labels)


def apart(tasks: Sequence[Task]) -> list[Task]:
    """The tasks without training texts that another one has in dev or test."""
    held_out = {task.name: {letters(text) for text in [*task.dev.inputs, *task.test.inputs]} for task in tasks}  # type: ignore[union-attr]
    cleaned = []
    for task in tasks:
        others = set().union(*(texts for name, texts in held_out.items() if name != task.name))
        positions = [position for position, text in enumerate(task.train.inputs) if letters(text) not in others]
        cleaned.append(replace(task, train=task.train.take(positions)))
    return cleaned


def letters(text: str) -> str:
    """What two copies of a text have in common, however each set cut it into words.

    >>> letters("It 's a film .") == letters("it's a film")
    True
    """
    return re.sub(r"\W+", "", text.lower())
