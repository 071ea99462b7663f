"""TAWT on four tagging tasks: what its experiments have in common.

Chen et al. (2022), Sec. 4: parts of speech, chunking, predicates and entities, each the target in turn with few
sentences and the three others as sources with 9,000 sentences each; batch 32, 4 epochs, learning rate 5e-5, weights
updated once an epoch from 64 examples, and the target's head reset before fine-tuning.

Arms differ by their weights alone: the same start, heads, batches and updates, and each has the learning rate that dev
sentences choose for it. What it gives to learn the weights is told from the same paradigm with weights that stay as
they start (plain) and with weights drawn at random; "frozen weights" is plain training by TAWT's own code.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.papers import TAWT, Paper
from crosstask.runs.events import Row
from crosstask_papers.data import TAGGING, few, tagging_task, without
from crosstask_papers.experiment import Estimate, Experiment, Options

LABELS = {"PoS": 100, "chunking": 100, "predicates": 300, "NER": 500}
"""Sentences of each target."""
SOURCE, QUICK_SOURCE = 9_000, 500
TRAINING = {"epochs": 4, "batch_size": 32, "keep": "last", "head": "reset", "precision": "bfloat16"}
QUICK_TRAINING = {"epochs": 4, "batch_size": 16, "keep": "last", "head": "reset"}
QUICK_ENCODER = {"name": "minilm", "freeze": True, "hidden": 128, "max_length": 64}
PUBLISHED_RATE = 5e-5
RATES = (PUBLISHED_RATE, 2e-4, 5e-4)
QUICK_RATE = 1e-3
"""Of a frozen encoder with a shared layer."""
FRESH_EXAMPLES = 64
WEIGHTED, RANDOM, FROZEN = "TAWT", "random weights", "frozen weights"
"""What stands after a paradigm in the name of a method; plain training has nothing there."""
FROZEN_STEP = 1e-15
"""A step size with which weights stay as they start."""


class TaggingExperiment(Experiment):
    """Four tasks, one of them the target with few sentences."""

    paper: ClassVar[Paper] = TAWT
    quick_seeds: ClassVar[int] = 1

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.training: dict[str, Any] = dict(TRAINING)
        self.source = SOURCE
        self.rates: tuple[float, ...] = RATES
        default_encoder: dict[str, Any] = {"name": "minilm", "max_length": 128}
        if options.quick:
            self.training, self.source, self.rates = dict(QUICK_TRAINING), QUICK_SOURCE, (QUICK_RATE,)
            default_encoder = QUICK_ENCODER
        self.encoder = options.encoder or default_encoder
        self.published_rate = self.rates[0]

    def settings(self) -> dict[str, Any]:
        return {
            "encoder": self.encoder,
            "training": self.training,
            "learning rates": list(self.rates),
            "source": self.source,
            "labels": LABELS,
        }

    def tasks(
        self,
        target: str,
        seed: int,
        *,
        count: int | None = None,
        source: int | None = None,
        sources: Sequence[str] | None = None,
    ) -> tuple[Task, list[Task]]:
        """The target with few sentences and as many for dev; sources without any of its sentences."""
        data, labels = self.options.data, count or LABELS[target]
        target_task = few(tagging_task(data, target), labels, seed, dev=labels)
        names = sources or [name for name in TAGGING if name != target]
        others = [few(without(tagging_task(data, name), target_task), source or self.source, seed) for name in names]
        return target_task, others

    def fit(
        self,
        method: str,
        target: Task,
        sources: Sequence[Task],
        seed: int,
        *,
        rate: float,
        sharpness: float = 1.0,
        weights: Mapping[str, float] | None = None,
        updates: int | None = None,
    ) -> Row:
        """One run of a method: a paradigm, and what is done about its weights; or with fixed `weights`."""
        paradigm, _, kind = method.partition(" + ")
        if kind == RANDOM:
            weights = random_weights(paradigm, target, sources, seed)
        weighting: dict[str, Any] | None = None
        if weights is not None:
            weighting = {"name": "fixed", "weights": dict(weights)}
        elif kind:
            weighting = {"name": "tawt", "every": self._epoch(sources), "fresh": FRESH_EXAMPLES, "sharpness": sharpness}
            if kind == FROZEN:
                weighting["step_size"] = FROZEN_STEP
        training = {**self.training, "learning_rate": rate}
        if updates is not None:
            training["updates"] = updates
        learner = Learner(
            self.encoder, paradigm=paradigm, weighting=weighting, training=training, seed=seed, progress=False
        )
        run = learner.fit(target, [] if paradigm == "single" else sources)
        scores, metric = run.scores[target.name], chosen_metric(target.spec).name
        return {
            "score": 100 * scores["test"][metric],
            "dev": 100 * scores["dev"][metric],
            "metric": metric,
            "weights": run.weights,
        }

    def _epoch(self, sources: Sequence[Task]) -> int:
        """Updates of an epoch, from one inspection of gradients by TAWT to the next."""
        return max(1, -(-max(len(task.train) for task in sources) // int(self.training["batch_size"])))

    def updates(self, sources: Sequence[Task]) -> int:
        """Of a joint run."""
        return int(self.training["epochs"]) * self._epoch(sources)


def random_weights(paradigm: str, target: Task, sources: Sequence[Task], seed: int) -> dict[str, float]:
    """Weights drawn evenly from the simplex of the tasks that the paradigm weighs."""
    names = [task.name for task in sources]
    if paradigm != "pretrain":
        names.insert(0, target.name)
    drawn = np.random.default_rng([seed, 1]).dirichlet(np.ones(len(names)))
    return dict(zip(names, drawn.tolist(), strict=True))


def average(means: Sequence[Estimate | None]) -> float | None:
    """Over all four targets; None where one is missing."""
    values = [mean.mean for mean in means if mean is not None]
    return statistics.fmean(values) if len(values) == len(TAGGING) else None
