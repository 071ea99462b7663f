"""Fixed weights of the sources, searched by short runs: the baseline that learned weights have to beat.

Weights tuned by search do as well as learned ones in several independent tests (Xin et al. 2022, Royer et al. 2023), at
a cost that can be stated beforehand: here so many trials, each of a fraction of the run's updates.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import qmc

from crosstask.data.overlap import DistinctInputs
from crosstask.data.subsets import deal
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.runs.events import DevEvaluation
from crosstask.training.config import Training

NUM_TRIALS = 8
"""Unless a method says otherwise."""
UPDATES_OF_TRIAL = 4
"""A trial takes one in so many of the run's updates."""
NUM_PARTS = 3
"""Of a target's labels, each of which judges once, where there is no dev set."""
SMALLEST, LARGEST = 1 / 16, 4.0
"""Weights of a source that are tried, relative to the target's."""

Weights = dict[str, float]
MakeLearner = Callable[[Weights, Training], Learner]
"""The learner of a trial, by its weights and settings."""


@dataclass(frozen=True)
class WeightTrial:
    """Weights that were tried, and the target's mean loss on examples that did not train."""

    weights: Weights
    loss: float


def candidate_weights(target: str, sources: Sequence[str], num_trials: int, seed: int) -> list[Weights]:
    """Weights to try, each set with a sum of one: equal ones first, the others spread evenly on a logarithmic scale.

    >>> [round(weights["source"], 2) for weights in candidate_weights("target", ["source"], 4, seed=0)]
    [0.5, 0.09, 0.43, 0.21]
    """
    points = qmc.Halton(len(sources), seed=seed).random(num_trials - 1)  # [trials - 1, sources]
    relative = SMALLEST * (LARGEST / SMALLEST) ** points
    candidates: list[Weights] = []
    for row in [[1.0] * len(sources), *relative.tolist()]:
        candidates.append(normalized(target, dict(zip(sources, row, strict=True))))
    return candidates


def normalized(target: str, relative: Mapping[str, float]) -> Weights:
    """Weights with a sum of one, from those of the sources relative to the target's.

    >>> normalized("target", {"source": 3.0})
    {'target': 0.25, 'source': 0.75}
    """
    total = 1.0 + sum(relative.values())
    weights = {target: 1.0 / total}
    for source, weight in relative.items():
        weights[source] = weight / total
    return weights


def judging_tasks(target: Task) -> list[Task]:
    """The target as trials have it: with its dev set, or else with each part of its labels as dev in turn."""
    if target.dev is not None:
        return [replace(target, test=None)]
    train = target.train
    distinct = DistinctInputs.of(train.inputs)
    classes: Sequence[object] = [0] * len(train)
    if target.kind in ("classification", "pair"):
        classes = list(train.labels)
    parts = deal(distinct.rarest(classes), np.random.default_rng(0), NUM_PARTS, distinct.counts)[distinct.numbers]
    tasks: list[Task] = []
    for part in range(NUM_PARTS):
        judging, training = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        if len(judging) and len(training):
            dev = train.take(judging.tolist())
            tasks.append(replace(target, train=train.take(training.tolist()), dev=dev, test=None))
    return tasks


def tune_weights(
    make_learner: MakeLearner,
    training: Training,
    target: Task,
    sources: Sequence[Task],
    candidates: Sequence[Weights],
) -> list[WeightTrial]:
    """Try weights in short runs, and return them, the best first.

    The loss judges and not the metric, in which few examples tie. The test set plays no part.

    Args:
        make_learner: the learner of a trial, by its weights and settings.
        training: settings of the run that the weights are for, with a number of `updates`.
        target: with a dev set that judges, or without one, so that its labels judge in parts.
        sources: those that are weighted.
        candidates: weights to try.
    """
    updates = max(1, (training.updates or 1) // UPDATES_OF_TRIAL)
    settings = replace(training, updates=updates, evaluate_every=updates, patience=None, keep="last")
    judges = judging_tasks(target)
    trials: list[WeightTrial] = []
    for weights in candidates:
        total = 0.0
        num_examples = 0
        for judge in judges:
            assert judge.dev is not None
            learner = make_learner(weights, settings)
            total += _dev_loss(learner, judge, sources) * len(judge.dev)
            num_examples += len(judge.dev)
        trials.append(WeightTrial(weights, total / num_examples))
    return sorted(trials, key=lambda trial: trial.loss)


def search_updates(updates: int, num_trials: int, has_dev: bool) -> int:
    """How many updates all trials take together.

    >>> search_updates(300, 8, has_dev=True), search_updates(300, 8, has_dev=False)
    (600, 1800)
    """
    return max(1, updates // UPDATES_OF_TRIAL) * num_trials * (1 if has_dev else NUM_PARTS)


def _dev_loss(learner: Learner, target: Task, sources: Sequence[Task]) -> float:
    """The target's loss on dev at the end of a run; infinite where the run diverged."""
    try:
        run = learner.fit(target, sources)
    except CrossTaskError:  # what is wrong with the method rather than with weights, the run itself will say
        return math.inf
    losses = [event.loss for event in run.record.events(DevEvaluation) if event.task == target.name]
    if losses[-1] is None or not math.isfinite(losses[-1]):
        return math.inf
    return losses[-1]
