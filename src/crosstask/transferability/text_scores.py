"""How alike the words and lengths of two tasks' texts are. Pure functions of counts."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crosstask.data.examples import Form
from crosstask.errors import CrossTaskError
from crosstask.models.encoders.vocabulary import split_words

BINS_PER_DOUBLING = 2


def words_of(inputs: Iterable[Any], form: Form) -> list[list[str]]:
    """The words of each text in lower case, punctuation marks apart; both texts of a pair together.

    >>> words_of([("Good shoes!", "Really good?")], "pair")
    [['good', 'shoes', '!', 'really', 'good', '?']]
    """
    if form == "vector":
        raise CrossTaskError(
            "Expected texts, pairs of texts or lists of words, found numeric vectors: they have no words."
        )
    return [[word for part in split_words(item, form, lower=True) for word in part] for item in inputs]


def word_counts(texts: Iterable[Sequence[str]]) -> Counter[str]:
    """How often each word occurs in all texts together; marks and figures are no words.

    >>> word_counts([["good", ",", "good", "shoes", "4.5"]])
    Counter({'good': 2, 'shoes': 1})
    """
    counts = Counter(chain.from_iterable(texts))
    return Counter({word: count for word, count in counts.items() if any(sign.isalpha() for sign in word)})


def vocabulary_overlap(target: Mapping[str, int], source: Container[str]) -> float:
    """The share of the target's word occurrences that the source's texts have too, from 0 to 1; higher is better.

        sum of n_w over words w of both / sum of n_w over all words w of the target

    - `n_w`: `target[w]`, how often the word occurs in the target's texts (`word_counts`);
    - `source`: the words of the source, such as its `word_counts`.

    Asymmetric: a large source covers a small target, seldom the other way round. Frequent words weigh what they occur,
    so that the overlap of two sets of texts in one language starts far above 0.

    >>> vocabulary_overlap({"good": 3, "shoe": 1}, {"good": 1, "film": 7})
    0.75
    """
    total = sum(target.values())
    if not total:
        raise CrossTaskError("Expected texts with words for the target, found none. Are its texts empty?")
    return sum(count for word, count in target.items() if word in source) / total


def length_overlap(target: ArrayLike, source: ArrayLike) -> float:
    """The overlap of two histograms of lengths, from 0 to 1; higher is better, and symmetric.

        sum_b min(p_b, q_b)

    - `p_b`, `q_b`: the shares of target and source texts with a length in bin b. Bins grow with the length, two for
      each doubling, since 4 and 8 words are a difference and 204 and 208 are none. Length 0 has its own.

    The fewer texts, the rougher the shares, and the lower the overlap even of two samples of one kind.

    >>> length_overlap([4, 4, 20, 20], [4, 100, 100, 100])
    0.25
    """
    shares = []
    for lengths, what in ((np.asarray(target), "target"), (np.asarray(source), "source")):
        if lengths.ndim != 1 or not len(lengths) or lengths.dtype.kind not in "iu" or lengths.min() < 0:
            raise CrossTaskError(
                f"Expected the lengths of the {what}'s texts as whole numbers from 0, found the type {lengths.dtype} "
                f"and the shape {lengths.shape}."
            )
        bins = np.where(lengths > 0, 1 + np.floor(BINS_PER_DOUBLING * np.log2(np.maximum(lengths, 1)) + 1e-9), 0)
        shares.append(np.bincount(bins.astype(np.int64), minlength=BINS_PER_DOUBLING * 64) / len(lengths))
    return float(np.minimum(*shares).sum())
