"""Encoders over word vectors: a vector per word of a vocabulary, and what all of them share."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.task import Form, Task
from crosstask.errors import CrossTaskError
from crosstask.gradients.fused import Lookup
from crosstask.models.encoder import Encoder, PreparedInput, Representation, pad
from crosstask.models.encoders.checks import check_counts, check_dropout
from crosstask.models.encoders.distilled_vectors import Distilled, VectorSource, distilled_vectors, vector_sources
from crosstask.models.encoders.vocabulary import PADDING, SEPARATOR, UNKNOWN, Vocabulary, split_words, tokenise
from crosstask.models.encoders.word_vectors import WordVectors, load_word_vectors
from crosstask.models.hooks import Site
from crosstask.validation import shown

__all__ = [
    "VectorSource", "Vocabulary", "WordEmbedding", "WordEncoder", "WordVectors", "load_word_vectors", "tokenise",
]  # fmt: skip

FRESH_SCALE = 0.1  # deviation of new vectors without pretrained ones; wider starts drown what is learned
FRESH_DIMENSION = 100


class WordEmbedding(nn.Module):
    """A vocabulary with a vector per word, `table`, [words, dimension].

    Which words: those of the training texts of all tasks, the most frequent first. Where pretrained vectors stay fixed,
    all words of their file follow, as far as there is room: a word that only turns up later then still has a meaning,
    because its vector lies in the same space as those that the model has learned to read. Vectors that are trained
    leave that space, so there a word never seen in training is better off unknown.

    Fixed vectors are a buffer: saved with the model, but no parameter that an optimizer, a task's gradient or a later
    `requires_grad_(True)` could touch.
    """

    table: Tensor

    def __init__(
        self,
        vocabulary: Vocabulary,
        table: Tensor,
        *,
        train_vectors: bool,
        lower: bool,
        max_length: int,
        dropout: float,
    ) -> None:
        super().__init__()
        check_counts(least=3, max_length=max_length)  # a pair needs a word of each text and what parts them
        check_dropout(dropout)
        self.vocabulary = vocabulary
        self.train_vectors = train_vectors
        self.lower = lower
        self.max_length = max_length
        self.look_up = Lookup(PADDING)
        self.dropout = nn.Dropout(dropout)
        if train_vectors:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        vectors: VectorSource | Sequence[VectorSource] | None,
        dimension: int | None,
        train_vectors: bool | None,
        vocabulary: int,
        min_count: int,
        lower: bool,
        max_length: int,
        dropout: float,
    ) -> Self:
        """Vocabulary and vectors for the training texts of these tasks; new vectors use torch's global generator."""
        check_counts(vocabulary=vocabulary, min_count=min_count)
        if dimension is not None:
            check_counts(dimension=dimension)
        sources = vector_sources(vectors)
        trained = not sources if train_vectors is None else bool(train_vectors)
        counts = Counter(word for task in tasks for words in _texts(task, lower) for word in words)
        known = Vocabulary.from_counts(counts, min_count=min_count, limit=vocabulary)
        room = 0 if trained else vocabulary - len(known.words)
        known, parts = _pretrained(known, sources, tasks, room=room, lower=lower)
        width = sum(part.dimension for part in parts)
        if parts and dimension not in (None, width):
            raise CrossTaskError(
                f"encoder: `dimension` is {dimension}, but vectors from {shown(vectors)} have {width}. Leave it out."
            )
        tables = [fresh_table(known, part, part.dimension) for part in parts]
        table = torch.cat(tables, dim=1) if parts else fresh_table(known, None, dimension or FRESH_DIMENSION)
        return cls(known, table, train_vectors=trained, lower=lower, max_length=max_length, dropout=dropout)

    @property
    def dimension(self) -> int:
        """Numbers per word."""
        return self.table.shape[1]

    def numbers(self, item: Any, form: Form) -> list[int]:
        """The words of one input as numbers; cut at `max_length`, a pair so that both texts keep their share."""
        parts = [self.vocabulary.numbers(words[: self.max_length]) for words in split_words(item, form, self.lower)]
        if len(parts) == 1:
            return parts[0][: self.max_length] or [UNKNOWN]  # an empty text still needs a position
        first, second = parts
        room = self.max_length - 1
        first = first[: max(room // 2, room - len(second))]
        return [*first, SEPARATOR, *second[: room - len(first)]]

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors of the words, [batch, length, dimension]; zero at padding."""
        return self.dropout(self.look_up(ids, self.table))

    def config(self) -> dict[str, Any]:
        """What `restore` needs besides the vocabulary's file."""
        return {
            "dimension": self.dimension,
            "train_vectors": self.train_vectors,
            "lower": self.lower,
            "max_length": self.max_length,
            "dropout": self.dropout.p,
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """The same vocabulary with vectors of zeros."""
        options = dict(config)
        vocabulary = Vocabulary.load(folder)
        return cls(vocabulary, torch.zeros(len(vocabulary), options.pop("dimension")), **options)


class WordEncoder(Encoder):
    """An encoder over word vectors. A subclass says what it makes of them: `represent` and `architecture`."""

    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})

    def __init__(self, words: WordEmbedding) -> None:
        super().__init__()
        self.words = words

    def prepare(self, inputs: Sequence[Any] | np.ndarray, form: Form) -> list[PreparedInput]:
        """Word numbers; for token lists also the position of each word (-1: cut off)."""
        if form not in self.forms:
            raise CrossTaskError(f"The encoder '{self.name}' reads words; it cannot take inputs of the form '{form}'.")
        rows = [{"ids": np.asarray(self.words.numbers(item, form), dtype=np.int64)} for item in inputs]
        if form == "tokens" and self.gives_tokens:
            for row, tokens in zip(rows, inputs, strict=True):
                positions = np.arange(len(tokens), dtype=np.int64)
                row["word_positions"] = np.where(positions < self.words.max_length, positions, -1)
        return rows

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Padded `ids` and the `mask` of what is no padding, both [batch, length]."""
        ids = pad([row["ids"] for row in rows], PADDING)
        return {"ids": ids, "mask": ids != PADDING}

    def sites(self) -> list[Site]:
        """The word vectors."""
        return [Site(self.words, "output", self.words.dimension)]

    def embed(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The word vectors of a batch, [batch, length, dimension]: what enters the shared part."""
        return self.words(inputs["ids"])

    @torch.no_grad()
    def fold_input(self, matrix: Tensor, head: nn.Module) -> bool:
        """Word vectors E become E R; padding stays zero."""
        self.words.table.copy_(self.words.table @ matrix)
        return True

    def shared_embedding(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """The word vectors of a batch: private copies read the one table."""
        return self.embed(inputs)

    def represent_privately(self, embedding: Tensor | None, inputs: Mapping[str, Tensor]) -> Representation:
        """From the word vectors of the original."""
        assert embedding is not None
        return self.represent(embedding, inputs)

    def _shared_with_copies(self) -> dict[int, Any]:
        return {id(self.words): None}

    @abstractmethod
    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch from its word vectors, [batch, length, dimension]. Padding must not matter."""

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch."""
        return self.represent(self.embed(inputs), inputs)

    @abstractmethod
    def architecture(self) -> dict[str, Any]:
        """The keyword parameters of the constructor, besides `words`."""

    def config(self) -> dict[str, Any]:
        """Options of the encoder and, under `words`, of its vectors."""
        return {**self.architecture(), "words": self.words.config()}

    def save_assets(self, folder: Path) -> None:
        """The vocabulary."""
        self.words.vocabulary.save(folder)

    @classmethod
    def restore(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """The architecture and the vocabulary of a saved encoder."""
        options = dict(config)
        return cls(WordEmbedding.restore(options.pop("words"), folder), **options)


def fresh_table(vocabulary: Vocabulary, found: WordVectors | None, dimension: int) -> Tensor:
    """A start for every vector: the pretrained one, or small random numbers that spread alike.

    The unknown word starts at the mean of the pretrained vectors, or at zero: it says nothing in particular.
    """
    scale = float(found.matrix.std()) if found is not None and found.words else FRESH_SCALE
    table = torch.randn(len(vocabulary), dimension) * scale
    table[[PADDING, UNKNOWN]] = 0.0
    if found is not None and found.words:
        table[UNKNOWN] = torch.from_numpy(found.matrix.mean(axis=0))
        pairs = [(vocabulary.index[word], row) for row, word in enumerate(found.words) if word in vocabulary.index]
        numbers, rows = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        table[torch.from_numpy(numbers)] = torch.from_numpy(found.matrix[rows])
    return table


def _texts(task: Task, lower: bool) -> Iterator[Sequence[str]]:
    """The words of one training text after the other; a pair is two texts."""
    if task.spec.form != "vector":
        for item in task.train.inputs:
            yield from split_words(item, task.spec.form, lower)


def _pretrained(
    known: Vocabulary,
    sources: Sequence[str | Path | Distilled],
    tasks: Sequence[Task],
    *,
    room: int,
    lower: bool,
) -> tuple[Vocabulary, list[WordVectors]]:
    """What each source has on the words, in order, and the words with those that files had room to add."""
    parts: dict[int, WordVectors] = {}
    for place, source in enumerate(sources):
        if not isinstance(source, Distilled):
            parts[place] = load_word_vectors(source, wanted=known.index, limit=room)
            _check_vectors(parts[place], source, known)
    if parts:
        added = (word for part in parts.values() for word in part.words if not lower or word == word.lower())
        known = Vocabulary(list(dict.fromkeys([*known.words, *added])))
    for place, source in enumerate(sources):
        if isinstance(source, Distilled):
            parts[place] = distilled_vectors(known.words, source, [_texts(task, lower) for task in tasks])
    return known, [parts[place] for place in sorted(parts)]


def _check_vectors(found: WordVectors, path: str | Path, known: Vocabulary) -> None:
    if known.words and not any(word in known.index for word in found.words):
        raise CrossTaskError(
            f"encoder: none of the {len(known.words)} training words, such as '{known.words[0]}', has a vector in "
            f"'{path}'. Is it of another language, or are its words not lower case (`lower`)?"
        )
