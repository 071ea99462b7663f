"""Which examples to keep: few-shot subsets and held-out parts, as pure functions of labels and a seeded generator."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np


def balanced_subset(labels: Sequence[Hashable], size: int, generator: np.random.Generator) -> list[int]:
    """Positions of `size` examples with classes as equal in number as the data allows, in their original order.

    Classes take turns, in random order; one that runs out leaves its turns to the others.

    >>> labels = ["a"] * 90 + ["b"] * 10
    >>> kept = balanced_subset(labels, 10, np.random.default_rng(0))
    >>> sum(labels[i] == "b" for i in kept)
    5
    """
    queues: dict[Hashable, list[int]] = defaultdict(list)
    for position in generator.permutation(len(labels)):
        queues[labels[position]].append(int(position))
    kept: list[int] = []
    turns = [queues[label] for label in sorted(queues, key=str)]
    generator.shuffle(turns)
    while len(kept) < size and turns:
        turns = [queue for queue in turns if queue]
        kept.extend(queue.pop() for queue in turns[: size - len(kept)])
    return sorted(kept)


def covering_subset(label_sets: Sequence[Sequence[Hashable]], size: int, generator: np.random.Generator) -> list[int]:
    """Positions of `size` examples that show every label where `size` allows it, rare labels first; the rest at random.

    Made for tagging and for several labels per example, where classes cannot simply be balanced.

    >>> sentences = [["O"]] * 50 + [["O", "B-X"]]
    >>> 50 in covering_subset(sentences, 3, np.random.default_rng(0))
    True
    """
    order = [int(position) for position in generator.permutation(len(label_sets))]
    holders: dict[Hashable, list[int]] = defaultdict(list)
    for position in order:
        for label in set(label_sets[position]):
            holders[label].append(position)
    kept: dict[int, None] = {}
    covered: set[Hashable] = set()
    for label in sorted(holders, key=lambda item: (len(holders[item]), str(item))):
        if len(kept) == size:
            break
        if label not in covered:
            position = holders[label][0]
            kept[position] = None
            covered.update(label_sets[position])
    for position in order:
        if len(kept) >= size:
            break
        kept.setdefault(position)
    return sorted(kept)


def random_subset(count: int, size: int, generator: np.random.Generator) -> list[int]:
    """`size` of `count` positions at random, in their original order."""
    return sorted(int(position) for position in generator.permutation(count)[:size])


def stratified_cut(
    labels: Sequence[Hashable] | None, count: int, held_out: int, generator: np.random.Generator | None
) -> tuple[list[int], list[int]]:
    """Cut `held_out` of `count` positions away, class by class in proportion; returns (kept, held out).

    At random, or without a generator the last ones. Every class keeps at least one example on the side that trains.
    Without labels all are of one class.

    >>> kept, cut = stratified_cut(["a"] * 8 + ["b"] * 2, 10, 5, np.random.default_rng(0))
    >>> len(kept), len(cut), sum(i >= 8 for i in cut)
    (5, 5, 1)
    >>> stratified_cut(["a", "b", "a", "b"], 4, 2, None)
    ([0, 1], [2, 3])
    """
    order = [*reversed(range(count))] if generator is None else [int(place) for place in generator.permutation(count)]
    if labels is None:
        return sorted(order[held_out:]), sorted(order[:held_out])
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position in order:
        groups[labels[position]].append(position)
    # Largest remainders: the shares of all classes add up to exactly `held_out` wherever classes are large enough.
    quotas = {label: len(group) * held_out / count for label, group in groups.items()}
    taken = {label: min(int(quota), len(groups[label]) - 1) for label, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda label: (taken[label] - quotas[label], str(label)))
    for label in by_remainder * 2:
        if sum(taken.values()) < held_out and taken[label] < len(groups[label]) - 1:
            taken[label] += 1
    cut = {position for label, group in groups.items() for position in group[: taken[label]]}
    return [i for i in range(count) if i not in cut], sorted(cut)
