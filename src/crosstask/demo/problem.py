"""What a demo is: a target with few labels, sources with many, and how they are trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crosstask.data.examples import Inputs
from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Examples, Task
from crosstask.methods import Named
from crosstask.progress import Progress
from crosstask.studies.method import Method, Section
from crosstask.training.config import Training
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

WEIGHTED_PARADIGM = "normalized-joint"
"""Where weightings are tried: its starting weights favor no task."""
AFTER_SOURCES = {"merging": "pretrain"}
"""The paradigm of a transfer that needs a phase in which sources train alone."""
PLAIN = ("uniform", "by-size", "fixed")
"""The paradigms' own weights, and those that somebody has to choose."""
OPTIONS: dict[str, Section] = {
    "tawt-samples": {"every": 5},
    "torchjd": {"method": "UPGrad"},
    "forkmerge": {"merges": 1, "parts": 2},  # the updates of a demo are few, and all branches share them
    "label-transfer": {"start": "model"},  # four sources, one of them noise: from nothing they would drown the target
}
ON_LAYERS = ("representation-transfer", "adapters", "adapter-fusion")
"""Transfers that need an encoder with layers to train; those of the demos have features that stay as they are."""


@dataclass(frozen=True)
class Problem:
    """A target, its sources, and settings that are the same for every method.

    - `training`: `updates` is the full budget of a method; its phases share it;
    - `make`: the target and the sources of a seed;
    - `prepare`: does once what takes long (features), with a bar;
    - `every_weighting`: for problems small enough to try them all;
    - `names`: whether labels are words that the encoder can embed;
    - `tawt_every`: updates from one inspection of gradients by TAWT to the next.
    """

    title: str
    question: str
    target: str
    num_labels: int
    summaries: Mapping[str, str]
    notes: Sequence[str]
    encoder: Section
    training: Training
    tawt_every: int
    make: Callable[[int], tuple[Task, list[Task]]]
    prepare: Callable[[Progress], None] = lambda progress: None
    every_weighting: bool = True
    names: bool = False

    def tasks(self, seed: int) -> list[Task]:
        """The target of a seed, then its sources."""
        target, sources = self.make(seed)
        return [target, *sources]

    def methods(self) -> dict[str, Method]:
        """By name, in the order of the table: paradigms, with TAWT, with a transfer each, and every other weighting."""
        # 1. Paradigms alone.
        paradigms = {name: paradigm for name, paradigm in PARADIGMS.items() if self.names or not paradigm.reads_names}
        methods = [Method(name, name, summary=paradigm.summary) for name, paradigm in paradigms.items()]
        # 2. Paradigms with TAWT, where there is something to weight.
        tawt = {"name": "tawt", "every": self.tawt_every}
        for name, paradigm in paradigms.items():
            if paradigm.takes_weights:
                summary = f"{name} with weights learned by TAWT"
                methods.append(Method(f"{name} + tawt", name, tawt, summary=summary))
        # 3. Transfers.
        for name, transfer in TRANSFERS.items():
            if name not in ON_LAYERS:
                transfers: tuple[Named, ...] = ({"name": name, **OPTIONS.get(name, {})},)
                paradigm_name = AFTER_SOURCES.get(name, WEIGHTED_PARADIGM)
                methods.append(Method(name, paradigm_name, transfer=transfers, summary=transfer.summary))
        # 4. Weightings.
        for name, weighting in WEIGHTINGS.items():
            if self.every_weighting and name not in PLAIN and name != "tawt":
                options = OPTIONS.get(name, {})
                label = f"{name} {options['method']}" if "method" in options else name
                section = {"name": name, **options}
                methods.append(Method(label, WEIGHTED_PARADIGM, section, summary=weighting.summary))
        return {method.name: method for method in methods}


@dataclass(frozen=True, eq=False)
class Pool:
    """Inputs with the labels of every task, divided once into a training pool and a test set.

    - `inputs`: texts, or an array with a row per example;
    - `target` and `sources`: labels of each example, by task;
    - `test`: positions that only measure; no task trains on them.
    """

    inputs: Inputs
    target: Sequence[str]
    sources: Mapping[str, Sequence[str]]
    test: Sequence[int]

    def tasks(self, name: str, num_labels: int, seed: int, labels: Sequence[str]) -> tuple[Task, list[Task]]:
        """The tasks of a seed: it samples the few labeled examples of the target; the sources train on all others.

        A source never sees an example of the target's, not even with another label: dev is to judge what is new.
        """
        # The positions that train, and among them those of the target.
        pool = sorted(set(range(len(self.target))) - set(self.test))
        sample = balanced_subset([self.target[i] for i in pool], num_labels, np.random.default_rng(seed))
        labeled = [pool[i] for i in sample]
        rest = sorted(set(pool) - set(labeled))
        examples = Examples(self.inputs, self.target)
        target = Task.assemble(name, examples.take(labeled), test=examples.take(self.test), labels=labels, seed=seed)
        sources: list[Task] = []
        for source, source_labels in self.sources.items():
            sources.append(Task.assemble(source, Examples(self.inputs, source_labels).take(rest), dev=False))
        return target, sources
