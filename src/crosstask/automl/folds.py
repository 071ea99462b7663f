"""Repeated stratified folds of a target's labels, and the tasks that each fold makes."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, Inputs, Kind
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError

NUM_FOLDS = 5
"""Subsets of the labels; one is held out at a time."""


def pooled(task: Task) -> Task:
    """A target with all its labels in `train`: cross-validation holds out what it needs, so dev labels train too."""
    if task.dev is None:
        return task
    train, dev = task.train, task.dev
    inputs: Inputs
    if isinstance(train.inputs, np.ndarray):
        inputs = np.concatenate([train.inputs, dev.inputs])
    else:
        inputs = [*train.inputs, *dev.inputs]
    # Without line numbers: these may be two files.
    both = Examples(inputs, [*train.labels, *dev.labels], train.source)
    note = f"dev ({len(dev)}) and train ({len(train)}) are one set: cross-validation chooses"
    return replace(task, train=both, dev=None, notes=(*task.notes, note))


def check_labels(task: Task) -> None:
    """There must be enough labels to hold some out, and more than one class."""
    count = len(task.train)
    if count < NUM_FOLDS:
        raise CrossTaskError(
            f"Task '{task.name}' has {count} labelled example{'s' * (count != 1)}, fewer than the {NUM_FOLDS} folds "
            "that choose its model: label some more, or choose a method yourself with `crosstask train`."
        )
    if task.kind in ("classification", "pair") and len(set(task.train.labels)) < 2:
        raise CrossTaskError(
            f"Task '{task.name}': all of its {count} labelled examples are '{task.train.labels[0]}', so there is "
            "nothing to learn: label examples of another class, or look whether this is the right label column."
        )


def deal(strata: Sequence[Hashable], generator: np.random.Generator, num_folds: int = NUM_FOLDS) -> np.ndarray:
    """The fold of each example, [examples]: sizes of folds differ by at most one, and so do those of a stratum in them.

    >>> folds = deal(["a"] * 10 + ["b"] * 5, np.random.default_rng(0))
    >>> [int((folds[:10] == fold).sum()) for fold in range(5)], sorted(folds[10:].tolist())
    ([2, 2, 2, 2, 2], [0, 1, 2, 3, 4])
    """
    names = list(dict.fromkeys(strata))
    # One stratum after the other, each in random order; then every fold takes each num_folds-th example.
    stratum_order = dict(zip(names, generator.permutation(len(names)).tolist(), strict=True))
    random_order = generator.permutation(len(strata))
    order = sorted(range(len(strata)), key=lambda i: (stratum_order[strata[i]], random_order[i]))
    folds = np.empty(len(strata), dtype=np.int64)
    folds[order] = np.arange(len(strata)) % num_folds
    return folds


def strata_of(kind: Kind, labels: Sequence[Any], num_folds: int = NUM_FOLDS) -> list[Hashable]:
    """What examples are stratified by.

    The class; for numbers, groups of as many neighbors in value as there are folds; for several labels (multilabel,
    tagging), the rarest one that the example has.

    >>> strata_of("regression", [0.1, 9.0, 0.2, 8.0], num_folds=2)
    [0, 1, 0, 1]
    >>> strata_of("tagging", [["O", "O"], ["O", "B-X"]])
    ['O', 'B-X']
    """
    if kind in ("classification", "pair"):
        return list(labels)
    if kind == "regression":
        # The rank of each value is the inverse permutation of their order.
        ranks = np.argsort(np.argsort(np.asarray(labels, dtype=np.float64), kind="stable"), kind="stable")
        return list((ranks // num_folds).tolist())
    counts: Counter[str] = Counter()
    for present in labels:
        counts.update(set(present))
    rarest: list[Hashable] = []
    for present in labels:
        rarest.append(min(present, key=lambda label: (counts[label], label), default=None))
    return rarest


class Folds:
    """The folds of a target, counted through all repeats: fold 7 of five is the third of the second repeat.

    Every candidate goes through them in this order, so that any two have been measured on the same ones.
    """

    def __init__(self, target: Task, seed: int) -> None:
        self.target, self.seed = target, seed
        self.strata = strata_of(target.kind, target.train.labels)

    def held_out(self, fold: int) -> np.ndarray:
        """Positions that this fold holds out."""
        repeat, index = divmod(fold, NUM_FOLDS)
        return np.flatnonzero(deal(self.strata, np.random.default_rng([self.seed, repeat])) == index)

    def tasks(self, fold: int, sources: Sequence[Task]) -> tuple[Task, list[Task]]:
        """The target with what is held out as its dev set, and the sources without those very inputs.

        A source that was trained on them would know them, as it will not know new ones.
        """
        train = self.target.train
        held_out = self.held_out(fold)
        others = np.setdiff1d(np.arange(len(train)), held_out)
        dev = train.take(held_out.tolist())
        hidden = {input_key(item) for item in dev.inputs}
        target = replace(self.target, train=train.take(others.tolist()), dev=dev, test=None)
        return target, [without_inputs(source, hidden) for source in sources]


def without_inputs(task: Task, hidden: set[Hashable]) -> Task:
    """A source's training examples alone, without those whose input is among `hidden`."""
    train = task.train
    positions: list[int] = []
    for i, item in enumerate(train.inputs):
        if input_key(item) not in hidden:
            positions.append(i)
    if len(positions) < len(train):
        train = train.take(positions)
    return replace(task, train=train, dev=None, test=None)


def input_key(item: Any) -> Hashable:
    """What two inputs must share to be the same: the text itself, white space at its ends aside."""
    if isinstance(item, str):
        return item.strip()
    if isinstance(item, np.ndarray):
        return item.tobytes()
    return tuple(text.strip() for text in item)
