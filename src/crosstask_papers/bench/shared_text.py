"""Which inputs share text: what a source must not hold of a target, however it is cut into words.

Corpora copy one another with other tokens, cases and cuts. Of the training sentences of SST, 44% stand in MR as they
are, and 78% where letters and digits alone are compared; others are halves of its snippets.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np

from crosstask.data.examples import Inputs
from crosstask.data.overlap import input_keys

LENGTH = 40
"""Letters and digits in a row that two texts have in common if one copies the other: some eight words."""


def stretches(text: str) -> set[str]:
    """Every stretch of `LENGTH` letters and digits that begins with a word; all of a text that has no more.

    >>> stretches("It 's GOOD !") == stretches("it's good")
    True
    >>> half = "a film that has a point to make and makes it very well"
    >>> stretches(half) <= stretches("It is " + half.upper() + " twice , and then once more")
    True
    """
    words = re.findall(r"[^\W_]+", text.lower())
    letters = "".join(words)
    if len(letters) <= LENGTH:
        return {letters}
    starts = accumulate((len(word) for word in words), initial=0)
    return {letters[start : start + LENGTH] for start in starts if start + LENGTH <= len(letters)}


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Of some inputs: the hashes of their stretches, and the input that each is of, [stretches].

    A vector has one, of itself. Hashes are good for one process.
    """

    hashes: np.ndarray
    owners: np.ndarray
    count: int

    @classmethod
    def of(cls, inputs: Inputs) -> Self:
        """Those of each input: texts, words or vectors."""
        hashes: list[int] = []
        owners: list[int] = []
        for number, prints in enumerate(_prints(inputs)):
            hashes += [hash(item) for item in prints]
            owners += [number] * len(prints)
        return cls(np.array(hashes, dtype=np.int64), np.array(owners, dtype=np.int64), len(inputs))

    def apart_from(self, others: Iterable["Fingerprints"]) -> np.ndarray:
        """Whether each input shares text with none of the others, [inputs]."""
        known = np.concatenate([other.hashes for other in others])
        is_apart = np.ones(self.count, dtype=bool)
        is_apart[self.owners[np.isin(self.hashes, known)]] = False
        return is_apart


def _prints(inputs: Inputs) -> Iterable[set[Hashable]]:
    if isinstance(inputs, np.ndarray):
        for key in input_keys(inputs):
            yield {key}
        return
    for item in inputs:
        text = item if isinstance(item, str) else " ".join(item)
        yield set(stretches(text))
