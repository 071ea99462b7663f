"""Word vectors out of a pretrained encoder: what it makes of each word, alone and where it stands in the texts.

A sentence encoder knows more of words than a table that was trained on their neighbours alone, and a small network over
its words is still as fast as one over any others. The principal components keep what tells words apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosstask.errors import CrossTaskError
from crosstask.models.encoders.checks import check_counts
from crosstask.models.encoders.word_vectors import WordVectors
from crosstask.progress import current
from crosstask.validation import check_options, shown

SCALE = 0.4
"""Deviation of the numbers, about that of GloVe's: joined to such vectors neither drowns the other."""

VectorSource = str | Path | Mapping[str, Any]
"""A file of word vectors, or `{encoder: minilm}`, an encoder that gives them."""


@dataclass(frozen=True)
class Distilled:
    """Word vectors of a Hugging Face encoder, by name, folder or hub id, with this many numbers at most.

    `texts` passages of the training texts, at most, show it the words in use; with 0 it sees each word alone.
    """

    encoder: str
    dimension: int = 200
    texts: int = 0

    def __post_init__(self) -> None:
        check_counts(dimension=self.dimension)
        check_counts(least=0, texts=self.texts)


def vector_sources(given: VectorSource | Sequence[VectorSource] | None) -> list[str | Path | Distilled]:
    """Where word vectors come from, one after another.

    >>> vector_sources(["glove.txt", {"encoder": "minilm"}])
    ['glove.txt', Distilled(encoder='minilm', dimension=200, texts=0)]
    """
    if given is None:
        return []
    listed: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not listed or not all(isinstance(source, str | Path | Mapping) for source in listed):
        raise CrossTaskError(
            "encoder: `vectors` is a file, an encoder such as {encoder: minilm}, or a list of these; "
            f"found {shown(given)}."
        )
    for source in listed:
        if isinstance(source, Mapping):
            check_options("encoder.vectors", Distilled, source)
    return [Distilled(**source) if isinstance(source, Mapping) else source for source in listed]


def distilled_vectors(
    words: Sequence[str], source: Distilled, texts: Sequence[Iterable[Sequence[str]]] = ()
) -> WordVectors:
    """A vector per word, cut to principal components: the mean over its places, of which the word alone is one.

    Alone, it is the mean over its pieces, and the marks at both ends, in the encoder's last layer; in a text, the mean
    over its pieces there. So a word that is rare, or never met, leans on what it says alone.

    On a GPU where there is one. What the encoder says is kept on disk, like any features.

    Args:
        words: those that get a vector.
        source: the encoder, how many numbers, and how many passages.
        texts: of every task, as words.
    """
    from crosstask.models.encoders.contextual_vectors import draw_passages, places_of
    from crosstask.models.encoders.frozen import FrozenEncoder  # they know all encoders, those over words among them
    from crosstask.models.encoders.hugging_face import HuggingFaceEncoder

    encoder = HuggingFaceEncoder.from_tasks([], path=source.encoder, pooling="mean")
    frozen = FrozenEncoder(encoder)
    if torch.cuda.is_available():
        frozen.to("cuda")
    if not words:
        return WordVectors([], np.zeros((0, min(source.dimension, encoder.width)), dtype=np.float32))
    frozen.show_on(current(), "word vectors")
    whole = np.concatenate([row["pooled"] for row in frozen.prepare(list(words), "text")])  # [words, width]
    passages = draw_passages(texts, source.texts)
    if passages:
        frozen.show_on(current(), "words in texts")
        sums, counts = places_of(words, passages, encoder, frozen.progress)
        whole = (whole + sums) / (1 + counts[:, None])
    return WordVectors(list(words), _components(whole, source.dimension))


def _components(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """The coordinates along which the rows differ most, the largest first, scaled alike."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)  # in rising order
    found = centred @ directions[:, ::-1][:, :dimension]
    deviation = found.std()
    return (found * (SCALE / deviation if deviation > 0 else 0.0)).astype(np.float32)
