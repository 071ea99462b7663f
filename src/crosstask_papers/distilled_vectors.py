"""Word vectors out of a pretrained encoder: its output for each word, alone and in context.

A sentence encoder knows more of words than a table that was trained on their neighbors alone, and a small network over
its word vectors is as fast as one over any others. The principal components keep what distinguishes words.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from crosstask.models.encoder import check_counts
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.word_vectors import WordVectors
from crosstask.progress import current
from crosstask.validation import check_options
from crosstask_papers.contextual_vectors import contextual_sums, sample_passages

SCALE = 0.4
"""Standard deviation of the values, about that of GloVe's: joined to such vectors neither dominates the other."""


@dataclass(frozen=True)
class Distilled:
    """Word vectors of a Hugging Face encoder, by name, folder or hub id, with this dimension at most.

    `texts` passages of the training texts, at most, show it the words in use; with 0 it sees each word alone.
    """

    encoder: str
    dimension: int = 200
    texts: int = 0

    def __post_init__(self) -> None:
        check_counts(dimension=self.dimension)
        check_counts(least=0, texts=self.texts)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "Distilled":
        """From an item of `vectors` in a recipe.

        >>> Distilled.from_options({"encoder": "minilm"})
        Distilled(encoder='minilm', dimension=200, texts=0)
        """
        check_options("encoder.vectors", cls, options)
        return cls(**options)

    def vectors(self, words: Sequence[str], texts: Sequence[Iterable[Sequence[str]]]) -> WordVectors:
        """A vector for each of the words; `texts` are those of every task, as words."""
        return distilled_vectors(words, self, texts)


def distilled_vectors(
    words: Sequence[str], source: Distilled, texts: Sequence[Iterable[Sequence[str]]] = ()
) -> WordVectors:
    """A vector per word, cut to principal components: the mean over its occurrences, of which the word alone is one.

    Alone, it is the mean over its pieces, and the marks at both ends, in the encoder's last layer; in a text, the mean
    over its pieces there. So the vector of a rare word is close to that of the word alone.

    On a GPU where there is one. The encoder's output is kept on disk, like any features.

    Args:
        words: those that get a vector.
        source: the encoder, the dimension, and how many passages.
        texts: of every task, as words.
    """
    encoder = HuggingFaceEncoder.from_tasks([], path=source.encoder, pooling="mean")
    frozen = FrozenEncoder(encoder)
    if torch.cuda.is_available():
        frozen.to("cuda")
    if not words:
        return WordVectors([], np.zeros((0, min(source.dimension, encoder.width)), dtype=np.float32))
    frozen.show_on(current(), "word vectors")
    vectors = np.concatenate([row["pooled"] for row in frozen.prepare(list(words), "text")])  # [words, width]
    passages = sample_passages(texts, source.texts)
    if passages:
        frozen.show_on(current(), "words in texts")
        sums, counts = contextual_sums(words, passages, encoder, frozen.progress)
        vectors = (vectors + sums) / (1 + counts[:, None])
    return WordVectors(list(words), principal_components(vectors, source.dimension))


def principal_components(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """The coordinates of largest variance, the largest first, all scaled by one factor, [words, dimension]."""
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centered.T @ centered)  # in ascending order
    components = centered @ directions[:, ::-1][:, :dimension]
    deviation = components.std()
    factor = SCALE / deviation if deviation > 0 else 0.0
    return (components * factor).astype(np.float32)
