"""Repeated stratified folds of a target's labels, and the tasks that each fold makes."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, Inputs, Kind
from crosstask.data.overlap import DistinctInputs, positions_outside
from crosstask.data.subsets import NUM_FOLDS, deal
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError

WHOLE = 4
"""Quarters of the labels that a fold leaves to train on."""


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
    num_inputs = len(DistinctInputs.of(task.train.inputs))
    if num_inputs < NUM_FOLDS:
        raise CrossTaskError(
            f"Task '{task.name}' has {num_inputs} different input{'s' * (num_inputs != 1)} in its {count} labelled "
            f"examples, fewer than the {NUM_FOLDS} folds that choose its model: label some more, or choose a method "
            "yourself with `crosstask train`."
        )
    if task.kind in ("classification", "pair") and len(set(task.train.labels)) < 2:
        raise CrossTaskError(
            f"Task '{task.name}': all of its {count} labelled examples are '{task.train.labels[0]}', so there is "
            "nothing to learn: label examples of another class, or look whether this is the right label column."
        )


def with_note_on_repeats(task: Task) -> Task:
    """The target with a note on how many of its inputs are repeated, if any is."""
    distinct = DistinctInputs.of(task.train.inputs)
    if not distinct.num_repeated:
        return task
    num_examples = int(distinct.counts[distinct.counts > 1].sum())
    note = (
        f"{distinct.num_repeated:,} of its {len(distinct):,} inputs are repeated ({num_examples:,} of "
        f"{len(task.train):,} examples): a fold holds out all examples of an input, or none"
    )
    return replace(task, notes=(*task.notes, note))


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
        self.inputs = DistinctInputs.of(target.train.inputs)
        self.strata = self.inputs.rarest(strata_of(target.kind, target.train.labels))
        self._dealt: dict[int, np.ndarray] = {}  # by repeat

    def held_out(self, fold: int) -> np.ndarray:
        """Positions that this fold holds out: of an input that is repeated, all examples or none."""
        repeat, index = divmod(fold, NUM_FOLDS)
        if repeat not in self._dealt:
            generator = np.random.default_rng([self.seed, repeat])
            self._dealt[repeat] = deal(self.strata, generator, counts=self.inputs.counts)
        return np.flatnonzero(self._dealt[repeat][self.inputs.numbers] == index)

    def remaining(self, fold: int, quarters: int = WHOLE) -> np.ndarray:
        """Positions that a fold leaves to train on, or so many quarters of them, stratified like the folds.

        Two quarters have the first one in them, and of an input that is repeated all examples or none.
        """
        others = np.setdiff1d(np.arange(len(self.target.train)), self.held_out(fold))
        if quarters == WHOLE:
            return others
        numbers, indices = np.unique(self.inputs.numbers[others], return_inverse=True)
        strata = [self.strata[number] for number in numbers]
        generator = np.random.default_rng([self.seed, fold, WHOLE])
        quarter_of = deal(strata, generator, WHOLE, self.inputs.counts[numbers])
        return others[quarter_of[indices] < quarters]

    def tasks(self, fold: int, sources: Sequence[Task], quarters: int = WHOLE) -> tuple[Task, list[Task]]:
        """The target with what is held out as its dev set, and the sources without those very inputs.

        A source that was trained on them would know them, as it will not know new ones.
        """
        train = self.target.train
        held_out = self.held_out(fold)
        others = self.remaining(fold, quarters)
        dev = train.take(held_out.tolist())
        target = replace(self.target, train=train.take(others.tolist()), dev=dev, test=None)
        return target, [_without_inputs(source, dev) for source in sources]


def _without_inputs(task: Task, held_out: Examples) -> Task:
    """A source's training examples alone, without those whose input is held out."""
    train = task.train
    positions = positions_outside(train, [held_out])
    if not positions:
        raise CrossTaskError(
            f"Source '{task.name}' has nothing left to train on: a fold of the target holds out all of its "
            f"{len(train)} inputs."
        )
    if len(positions) < len(train):
        train = train.take(positions)
    return replace(task, train=train, dev=None, test=None)
