"""What a demo is: a target with few labels, sources with many, and how they are trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Examples, Task
from crosstask.progress import Progress
from crosstask.training.config import Training


@dataclass(frozen=True)
class Problem:
    """A target, its sources, and settings that are the same for every method.

    `training.updates` is the whole budget of a method; one that trains in two phases has half of it for each. `make`
    gives the target and the sources of a seed; `prepare` does once what takes long (features), with a bar.
    `every_weighting` is for problems small enough to try them all; `tawt_every` is how often TAWT looks.
    """

    title: str
    question: str
    target: str
    num_labels: int
    summaries: Mapping[str, str]
    notes: Sequence[str]
    encoder: Mapping[str, Any]
    training: Training
    tawt_every: int
    make: Callable[[int], tuple[Task, list[Task]]]
    prepare: Callable[[Progress], None] = lambda progress: None
    every_weighting: bool = True


@dataclass(frozen=True, eq=False)
class Pool:
    """Inputs with the labels of every task, cut once and for all into a training pool and a test set.

    - `inputs`: texts, or an array with a row per example;
    - `target` and `sources`: labels of each example, by task;
    - `test`: positions that only measure; no task trains on them.
    """

    inputs: Any
    target: Sequence[str]
    sources: Mapping[str, Sequence[str]]
    test: Sequence[int]

    def tasks(self, name: str, num_labels: int, seed: int, labels: Sequence[str]) -> tuple[Task, list[Task]]:
        """The tasks of a seed: it draws the few labelled examples of the target; all others are the sources' own.

        A source never sees an example of the target's, not even with another label: dev is to judge what is new.
        """
        held_out = set(self.test)
        pool = [i for i in range(len(self.target)) if i not in held_out]
        drawn = balanced_subset([self.target[i] for i in pool], num_labels, np.random.default_rng(seed))
        few = [pool[i] for i in drawn]
        rest = sorted(set(pool) - set(few))
        everything = Examples(self.inputs, self.target)
        target = Task.assemble(name, everything.take(few), test=everything.take(self.test), labels=labels, seed=seed)
        sources = [
            Task.assemble(source, Examples(self.inputs, given).take(rest), dev=False)
            for source, given in self.sources.items()
        ]
        return target, sources
