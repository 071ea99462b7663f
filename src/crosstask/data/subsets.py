"""Few-shot subsets and held-out sets, as pure functions of labels and a seeded generator."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

NUM_FOLDS = 5
"""Subsets of the labels; one is held out at a time."""


def balanced_subset(labels: Sequence[Hashable], size: int, generator: np.random.Generator) -> list[int]:
    """Positions of `size` examples with classes as equal in number as the data allows, in their original order.

    Classes take turns, in random order; one that runs out leaves its turns to the others.

    >>> labels = ["a"] * 90 + ["b"] * 10
    >>> subset = balanced_subset(labels, 10, np.random.default_rng(0))
    >>> sum(labels[i] == "b" for i in subset)
    5
    """
    queues: dict[Hashable, list[int]] = defaultdict(list)
    for position in generator.permutation(len(labels)):
        queues[labels[position]].append(int(position))
    # Sorted before they are shuffled: the order must depend on the generator alone.
    turns = [queues[label] for label in sorted(queues, key=str)]
    generator.shuffle(turns)
    subset: list[int] = []
    while len(subset) < size and turns:
        turns = [queue for queue in turns if queue]
        for queue in turns[: size - len(subset)]:
            subset.append(queue.pop())
    return sorted(subset)


def covering_subset(label_sets: Sequence[Sequence[Hashable]], size: int, generator: np.random.Generator) -> list[int]:
    """Positions of `size` examples with every label where `size` allows it, rare labels first; the rest at random.

    For tagging and for several labels per example, where classes cannot simply be balanced.

    >>> sentences = [["O"]] * 50 + [["O", "B-X"]]
    >>> 50 in covering_subset(sentences, 3, np.random.default_rng(0))
    True
    """
    # 1. The examples of every label, in random order.
    order = generator.permutation(len(label_sets)).tolist()
    positions_of: dict[Hashable, list[int]] = defaultdict(list)
    for position in order:
        for label in set(label_sets[position]):
            positions_of[label].append(position)
    # 2. One example for each label that none has covered so far, the rarest label first.
    subset: dict[int, None] = {}  # a set that remembers its order
    covered: set[Hashable] = set()
    for label in sorted(positions_of, key=lambda item: (len(positions_of[item]), str(item))):
        if len(subset) == size:
            break
        if label not in covered:
            position = positions_of[label][0]
            subset[position] = None
            covered.update(label_sets[position])
    # 3. The rest at random.
    for position in order:
        if len(subset) >= size:
            break
        subset.setdefault(position)
    return sorted(subset)


def random_subset(count: int, size: int, generator: np.random.Generator) -> list[int]:
    """`size` of `count` positions at random, in their original order."""
    return sorted(generator.permutation(count)[:size].tolist())


def stratified_cut(
    labels: Sequence[Hashable] | None, count: int, held_out: int, generator: np.random.Generator | None
) -> tuple[list[int], list[int]]:
    """Cut `held_out` of `count` positions off, class by class in proportion; returns (remaining, held out).

    At random, or without a generator the last ones. Every class keeps at least one example on the side that trains.
    Without labels all are of one class.

    >>> remaining, cut = stratified_cut(["a"] * 8 + ["b"] * 2, 10, 5, np.random.default_rng(0))
    >>> len(remaining), len(cut), sum(i >= 8 for i in cut)
    (5, 5, 1)
    >>> stratified_cut(["a", "b", "a", "b"], 4, 2, None)
    ([0, 1], [2, 3])
    """
    order = list(reversed(range(count)))
    if generator is not None:
        order = generator.permutation(count).tolist()
    if labels is None:
        return sorted(order[held_out:]), sorted(order[:held_out])
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position in order:
        groups[labels[position]].append(position)
    # Largest remainders: the sizes of all classes add up to exactly `held_out` wherever classes are large enough.
    quotas: dict[Hashable, float] = {}
    sizes: dict[Hashable, int] = {}
    for label, group in groups.items():
        quotas[label] = len(group) * held_out / count
        sizes[label] = min(int(quotas[label]), len(group) - 1)
    by_remainder = sorted(quotas, key=lambda label: (sizes[label] - quotas[label], str(label)))
    for label in by_remainder * 2:  # twice, as a small class may have none to give in the first round
        if sum(sizes.values()) < held_out and sizes[label] < len(groups[label]) - 1:
            sizes[label] += 1
    cut: set[int] = set()
    for label, group in groups.items():
        cut.update(group[: sizes[label]])
    return sorted(set(range(count)) - cut), sorted(cut)


def deal(
    strata: Sequence[Hashable],
    generator: np.random.Generator,
    num_folds: int = NUM_FOLDS,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """The fold of each input, [inputs]: sizes of folds differ by at most one, and so do those of a stratum in them.

    `counts` are the examples of each input where some have several, [inputs]; sizes, which count examples, then are as
    equal as these allow.

    >>> folds = deal(["a"] * 10 + ["b"] * 5, np.random.default_rng(0))
    >>> [int((folds[:10] == fold).sum()) for fold in range(5)], sorted(folds[10:].tolist())
    ([2, 2, 2, 2, 2], [0, 1, 2, 3, 4])
    """
    if counts is None:
        counts = np.ones(len(strata), dtype=np.int64)
    names = list(dict.fromkeys(strata))
    # One stratum after the other, inputs with many examples first, and otherwise in random order.
    stratum_order = dict(zip(names, generator.permutation(len(names)).tolist(), strict=True))
    random_order = generator.permutation(len(strata))
    order = sorted(range(len(strata)), key=lambda i: (stratum_order[strata[i]], -counts[i], random_order[i]))
    # The next one goes to the fold with the fewest examples of its stratum, then to the one with the fewest of all.
    folds = np.empty(len(strata), dtype=np.int64)
    sizes = [0] * num_folds
    stratum_sizes: dict[Hashable, list[int]] = defaultdict(lambda: [0] * num_folds)
    for i in order:
        in_stratum = stratum_sizes[strata[i]]
        fold = min(range(num_folds), key=lambda number: (in_stratum[number], sizes[number]))
        folds[i] = fold
        in_stratum[fold] += int(counts[i])
        sizes[fold] += int(counts[i])
    return folds
