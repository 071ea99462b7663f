"""Inputs that occur more than once: what makes two inputs the same, and examples dealt out by their inputs.

Whatever trains on one copy of an input and is judged by another one is judged by what it has memorized.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from crosstask.data.examples import Examples, Inputs
from crosstask.data.subsets import deal, stratified_cut

Label = TypeVar("Label", bound=Hashable)


def input_key(item: Any) -> Hashable:
    """What two inputs of one form share if they are the same: the text itself, white space at its ends aside.

    >>> input_key("so good ") == input_key(" so good"), input_key(["so", "good"]) == input_key(["so good"])
    (True, False)
    """
    if isinstance(item, str):
        return item.strip()
    if isinstance(item, np.ndarray):
        # A digest: copies of a million wide vectors would fill the memory. Plus zero, since -0.0 is 0.0.
        return blake2b((item + 0.0).tobytes(), digest_size=16).digest()
    return tuple(text.strip() for text in item)


def input_keys(inputs: Inputs) -> Iterator[Hashable]:
    """The key of each input; vectors are compared in single precision, as models read them."""
    if isinstance(inputs, np.ndarray):
        with np.errstate(over="ignore"):
            inputs = inputs.astype(np.float32, copy=False)
    return map(input_key, inputs)


def positions_outside(examples: Examples, held_out: Iterable[Examples]) -> list[int]:
    """Positions of the examples whose input is in none of the held-out sets; those of another form are others."""
    held_out_keys: set[Hashable] = set()
    for other in held_out:
        if other.form == examples.form:
            held_out_keys.update(input_keys(other.inputs))
    if not held_out_keys:
        return list(range(len(examples)))
    positions: list[int] = []
    for position, key in enumerate(input_keys(examples.inputs)):
        if key not in held_out_keys:
            positions.append(position)
    return positions


@dataclass(frozen=True, eq=False)
class DistinctInputs:
    """The different inputs of some examples.

    - `first`: position of the first example of each input, [inputs];
    - `numbers`: the input of each example, as an index into `first`, [examples].
    """

    first: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of(cls, inputs: Inputs) -> "DistinctInputs":
        """Inputs in the order in which they first occur.

        >>> DistinctInputs.of(["a", "b", "a ", "c"]).numbers.tolist()
        [0, 1, 0, 2]
        """
        number_of: dict[Hashable, int] = {}
        first: list[int] = []
        numbers = np.empty(len(inputs), dtype=np.int64)
        for position, key in enumerate(input_keys(inputs)):
            number = number_of.setdefault(key, len(first))
            if number == len(first):
                first.append(position)
            numbers[position] = number
        return cls(np.asarray(first, dtype=np.int64), numbers)

    @classmethod
    def all_of(cls, count: int) -> "DistinctInputs":
        """Of so many examples, every one of which has an input of its own."""
        return cls(np.arange(count), np.arange(count))

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def counts(self) -> np.ndarray:
        """Examples of each input, [inputs]."""
        return np.bincount(self.numbers, minlength=len(self))

    @property
    def num_repeated(self) -> int:
        """Inputs that more than one example has."""
        return int((self.counts > 1).sum())

    def rarest(self, labels: Sequence[Label]) -> list[Label]:
        """A label of each input: of several that its examples have, the one that is rarest over all.

        >>> DistinctInputs.of(["a", "b", "a", "c"]).rarest(["yes", "yes", "no", "yes"])
        ['no', 'yes', 'yes']
        """
        if not self.num_repeated:
            return list(labels)
        frequencies = Counter(labels)
        rarest = [labels[position] for position in self.first]
        for number, label in zip(self.numbers.tolist(), labels, strict=True):
            rarest[number] = min(rarest[number], label, key=lambda one: (frequencies[one], str(one)))
        return rarest

    def deal(self, labels: Sequence[Hashable] | None, num_parts: int, generator: np.random.Generator) -> np.ndarray:
        """The part of each example, [examples], with all examples of an input in the same one; labels are stratified.

        >>> parts = DistinctInputs.of(["a", "b", "a", "c"]).deal(None, 2, np.random.default_rng(0))
        >>> bool(parts[0] == parts[2])
        True
        """
        strata: Sequence[Hashable] = [0] * len(self)
        if labels is not None:
            strata = self.rarest(labels)
        return deal(strata, generator, num_parts, self.counts)[self.numbers]

    def cut(
        self, labels: Sequence[Hashable] | None, held_out: int, generator: np.random.Generator | None
    ) -> tuple[list[int], list[int]]:
        """Positions of the examples that remain and of those that are cut off: all of `held_out` inputs.

        Inputs are cut as `stratified_cut` cuts examples; without a generator, those that first occur last.

        >>> DistinctInputs.of(["a", "b", "a", "c"]).cut(None, 1, None)
        ([0, 1, 2], [3])
        """
        classes = None
        if labels is not None:
            classes = self.rarest(labels)
        _, cut = stratified_cut(classes, len(self), held_out, generator)
        is_cut = np.isin(self.numbers, cut)
        return np.flatnonzero(~is_cut).tolist(), np.flatnonzero(is_cut).tolist()
