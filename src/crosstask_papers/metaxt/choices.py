"""What trials choose for MetaXT's experiments: each arm's options and learning rate, never by a test set.

A trial has labels of its own, of a seed that no table shows, and is judged by training examples that it does not use.
Every arm chooses from the same rates; the paper has no rate, and leaves them to validation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from crosstask.data.overlap import positions_outside
from crosstask.data.task import Task
from crosstask.studies.grid import RunKey, Scalar
from crosstask_papers.experiment import Rows
from crosstask_papers.rates import CHOOSING_SEED, trials

NUM_JUDGES = 1000
"""Training examples that judge a trial."""
Setting = Mapping[str, Scalar]
"""Where an arm is tried: the number of labels, and the pair of tasks where there are several."""


class Choice(NamedTuple):
    """Options of a method, by their name, and the model's learning rate."""

    options: str
    rate: float


def trial_keys(
    options_of: Mapping[str, Sequence[str]], settings: Sequence[Setting], rates: Sequence[float]
) -> list[RunKey]:
    """The trials of all methods: each of a method's options with each rate, in each setting.

    >>> [str(key) for key in trial_keys({"joint": [""]}, [{"k": 20}], [1e-4])]
    ['trial joint, k 20, rate 0.0001, seed 100']
    """
    keys: list[RunKey] = []
    for name, options in options_of.items():
        arms = [{"trial": name, "options": option, **setting} for setting in settings for option in options]
        keys += trials(arms, rates)
    return keys


def choose(
    rows: Rows, name: str, options: Sequence[str], settings: Sequence[Setting], rates: Sequence[float]
) -> Choice | None:
    """The options and the rate with the best mean dev score over the settings; None while a trial is missing."""
    means = trial_means(rows, name, options, settings, rates)
    if len(means) < len(options) * len(rates):
        return None
    return max(means, key=means.__getitem__)


def trial_means(
    rows: Rows, name: str, options: Sequence[str], settings: Sequence[Setting], rates: Sequence[float]
) -> dict[Choice, float]:
    """The mean dev score over the settings, of the choices that have been tried in all of them."""
    means: dict[Choice, float] = {}
    for option in options:
        for rate in rates:
            scores: list[float] = []
            for setting in settings:
                tried = rows.of(trial=name, options=option, rate=rate, seed=CHOOSING_SEED, **setting)
                scores += [row["dev"] for row in tried.rows]
            if len(scores) == len(settings):
                means[Choice(option, rate)] = fmean(scores)
    return means


def judged_by_others(target: Task, all_examples: Task, seed: int) -> Task:
    """The target with examples of the training set that it does not use, instead of the test set."""
    known_examples = [target.train]
    if target.dev is not None:
        known_examples.append(target.dev)
    rest = positions_outside(all_examples.train, known_examples)
    positions = np.random.default_rng(seed).permutation(rest)[:NUM_JUDGES].tolist()
    return replace(target, test=all_examples.train.take(positions))
