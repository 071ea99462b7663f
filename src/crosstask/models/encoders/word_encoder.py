"""Encoders over word vectors: the vocabulary, a vector per word, and what all these encoders share."""

from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import Form
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.gradients.fused import Lookup
from crosstask.models.arrays import FlatRows, PreparedInput, Ragged, column, pad
from crosstask.models.encoder import (
    Config,
    Encoder,
    FeatureSection,
    Inputs,
    Options,
    Representation,
    check_counts,
    check_dropout,
    without_layers,
)
from crosstask.models.encoders.vocabulary import CACHED_TEXTS, PADDING, SEPARATOR, UNKNOWN, Vocabulary, split_words
from crosstask.models.encoders.word_vectors import (
    ComputedVectors,
    VectorSource,
    WordVectors,
    load_word_vectors,
    vector_sources,
)
from crosstask.models.hooks import Site
from crosstask.progress import in_bar
from crosstask.validation import option_names, shown

NEW_SCALE = 0.1
"""Standard deviation of new vectors without pretrained ones; larger initial values drown what is learned."""
NEW_DIMENSION = 100


class WordOptions(TypedDict, total=False):
    """Options of every encoder over word vectors that is trained.

    Args:
        vectors: file of pretrained word vectors (GloVe or word2vec text, also gzipped, or `.npz`); or
            `{encoder: minilm, dimension: 200, texts: 0}`, a Hugging Face encoder whose output for each word alone
            becomes its vector, cut to so many principal components, and with `texts` its output for the word in
            context, in so many passages of the training texts (needs crosstask_papers); or a list of these, joined.
        dimension: size of a word vector; that of `vectors` where they are given.
        train_vectors: whether word vectors learn too; when left out, only without `vectors`.
        vocabulary: how many words at most; the most frequent stay.
        min_count: words that occur less often in training are unknown.
        lower: take words without regard to case.
        max_length: longer texts are cut, in words.
        dropout: fraction of values that is set to zero in training, in word vectors and between layers.
    """

    vectors: VectorSource | Sequence[VectorSource] | None
    dimension: int | None
    train_vectors: bool | None
    vocabulary: int
    min_count: int
    lower: bool
    max_length: int
    dropout: float


WORD_DEFAULTS: WordOptions = {
    "vectors": None,
    "dimension": None,
    "train_vectors": None,
    "vocabulary": 100_000,
    "min_count": 1,
    "lower": True,
    "max_length": 256,
    "dropout": 0.1,
}


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
        check_counts(least=3, max_length=max_length)  # a pair needs a word of each text and the separator
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
    def from_tasks(cls, tasks: Sequence[Task], **options: Unpack[WordOptions]) -> Self:
        """Vocabulary and vectors for the training texts of these tasks; new vectors use torch's global generator."""
        settings = WORD_DEFAULTS | options
        lower, dimension = settings["lower"], settings["dimension"]
        check_counts(vocabulary=settings["vocabulary"], min_count=settings["min_count"])
        if dimension is not None:
            check_counts(dimension=dimension)
        sources = vector_sources(settings["vectors"])
        train_vectors = settings["train_vectors"]
        if train_vectors is None:
            train_vectors = not sources

        # 1. The words of the training texts.
        counts: Counter[str] = Counter()
        count_step = in_bar("count words", sum(len(task.train) for task in tasks))
        for task in tasks:
            for words in _training_texts(task, lower):
                counts.update(words)
                count_step()
        vocabulary = Vocabulary.from_counts(counts, min_count=settings["min_count"], limit=settings["vocabulary"])

        # 2. Pretrained vectors, and the words that their files add.
        room = 0 if train_vectors else settings["vocabulary"] - len(vocabulary.words)
        vocabulary, files = _read_files(vocabulary, sources, room=room, lower=lower)
        pretrained: list[WordVectors] = []
        for index, source in enumerate(sources):
            if isinstance(source, str | Path):
                pretrained.append(files[index])
            else:
                pretrained.append(source.vectors(vocabulary.words, [_training_texts(task, lower) for task in tasks]))
        total_dimension = sum(vectors.dimension for vectors in pretrained)
        if pretrained and dimension not in (None, total_dimension):
            raise CrossTaskError(
                f"encoder: `dimension` is {dimension}, but vectors from {shown(settings['vectors'])} have "
                f"{total_dimension}. Leave it out."
            )

        # 3. The table: one block of columns per source.
        tables = [initial_table(vocabulary, vectors, vectors.dimension) for vectors in pretrained]
        if not pretrained:
            tables = [initial_table(vocabulary, None, dimension or NEW_DIMENSION)]
        return cls(
            vocabulary,
            torch.cat(tables, dim=1),
            train_vectors=bool(train_vectors),
            lower=lower,
            max_length=settings["max_length"],
            dropout=settings["dropout"],
        )

    @property
    def dimension(self) -> int:
        """Size of a word vector."""
        return self.table.shape[1]

    def ids(self, item: str | Sequence[str], form: Form, *, cached: bool = True) -> list[int]:
        """The words of one input as ids; cut at `max_length`, a pair so that both texts keep their fraction."""
        texts: list[list[int]] = []
        for words in split_words(item, form, self.lower, cached=cached):
            texts.append(self.vocabulary.ids(words[: self.max_length]))
        if len(texts) == 1:
            return texts[0] or [UNKNOWN]  # an empty text still needs a position
        first, second = texts
        room = self.max_length - 1
        first = first[: max(room // 2, room - len(second))]
        return [*first, SEPARATOR, *second[: room - len(first)]]

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors of the words, [batch, length, dimension]; zero at padding."""
        return self.dropout(self.look_up(ids, self.table))

    def config(self) -> Config:
        """What `restore` needs besides the vocabulary's file."""
        return {
            "dimension": self.dimension,
            "train_vectors": self.train_vectors,
            "lower": self.lower,
            "max_length": self.max_length,
            "dropout": self.dropout.p,
        }

    @classmethod
    def restore(cls, config: Options, folder: Path) -> Self:
        """The same vocabulary with vectors of zeros."""
        options = dict(config)
        vocabulary = Vocabulary.load(folder)
        return cls(vocabulary, torch.zeros(len(vocabulary), options.pop("dimension")), **options)


class WordEncoder(Encoder):
    """An encoder over word vectors; a subclass computes representations from them.

    Args:
        words: the word vectors.
        architecture: the subclass' other parameters, which a saved model has to know.
    """

    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})
    option_defaults: ClassVar[Options] = WORD_DEFAULTS

    def __init__(self, words: WordEmbedding, **architecture: object) -> None:
        super().__init__()
        self.words = words
        self.architecture = architecture

    @classmethod
    def feature_section(cls, name: str, options: Options) -> FeatureSection:
        """The word vectors alone: layers over them would have to be trained first."""
        options = dict(options)
        for key in ("freeze", "cache", "precision"):
            options.pop(key, None)
        cls.check_options(options)
        if options.get("vectors") is None:
            raise CrossTaskError(
                f"encoder: '{name}' without `vectors` knows nothing before it is trained, so a linear model has "
                "nothing to read: give a file of word vectors, or use 'minilm' or another Hugging Face encoder."
            )
        readable = option_names(PlainWords.from_tasks, without=("tasks",))
        section = {key: value for key, value in options.items() if key in readable}
        return {"name": PlainWords.name, **section}, [without_layers(name)]

    def reading_identity(self) -> str:
        """The words in the order of their ids: vectors of random values alone do not show whose they are."""
        return "\n".join(self.words.vocabulary.words)

    def prepare(self, inputs: Inputs, form: Form) -> Sequence[PreparedInput]:
        """Word ids; for token lists also the position of each word (-1: cut off)."""
        if form not in self.forms:
            raise CrossTaskError(f"The encoder '{self.name}' reads words; it cannot take inputs of the form '{form}'.")
        if form != "tokens":
            return self._prepared_texts(inputs, form)
        rows: list[PreparedInput] = []
        for item in inputs:
            row = {"ids": np.asarray(self.words.ids(item, form), dtype=np.int64)}
            if form == "tokens" and self.gives_tokens:
                positions = np.arange(len(item), dtype=np.int64)
                row["word_positions"] = np.where(positions < self.words.max_length, positions, -1)
            rows.append(row)
        return rows

    def _prepared_texts(self, inputs: Inputs, form: Form) -> FlatRows:
        values, ends = array("i"), array("q", [0])
        cached = self.remembers_texts and len(inputs) <= CACHED_TEXTS
        count_step = in_bar("prepare texts", len(inputs))
        for item in inputs:
            values.extend(self.words.ids(item, form, cached=cached))
            ends.append(len(values))
            count_step()
        return FlatRows({"ids": Ragged(np.asarray(values), np.asarray(ends))})

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Padded `ids` and the `mask` of what is no padding, both [batch, length]."""
        ids = pad(column(rows, "ids"), PADDING)
        return {"ids": ids, "mask": ids != PADDING}

    def embed(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The word vectors of a batch, [batch, length, dimension]: the input of the shared part."""
        return self.words(inputs["ids"])

    @abstractmethod
    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch from its word vectors, [batch, length, dimension]. Padding must not matter."""

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        return self.represent(self.embed(inputs), inputs)

    def sites(self) -> list[Site]:
        """The word vectors."""
        return [Site(self.words, "output", self.words.dimension)]

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

    def _shared_with_copies(self) -> dict[int, object]:
        return {id(self.words): None}

    def config(self) -> Config:
        """Options of the encoder and, under `words`, of its vectors."""
        return {**self.architecture, "words": self.words.config()}

    def save_assets(self, folder: Path) -> None:
        """The vocabulary."""
        self.words.vocabulary.save(folder)

    @classmethod
    def restore(cls, config: Options, folder: Path, *, trust_remote_code: bool = False) -> Self:
        """The architecture and the vocabulary of a saved encoder."""
        options = dict(config)
        return cls(WordEmbedding.restore(options.pop("words"), folder), **options)


class PlainWords(WordEncoder):
    """Fixed word vectors as they are: one per word for tagging, their mean for everything else."""

    name: ClassVar[str] = "words"
    summary: ClassVar[str] = "fixed word vectors and their mean, without a shared layer"
    gives_tokens: ClassVar[bool] = True

    def __init__(self, words: WordEmbedding) -> None:
        super().__init__(words)
        self.width = words.dimension

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        vectors: VectorSource | Sequence[VectorSource],
        vocabulary: int = WORD_DEFAULTS["vocabulary"],
        min_count: int = WORD_DEFAULTS["min_count"],
        lower: bool = WORD_DEFAULTS["lower"],
        max_length: int = WORD_DEFAULTS["max_length"],
    ) -> Self:
        """Word vectors from a file for the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            vectors: file of pretrained word vectors (GloVe or word2vec text, also gzipped, or `.npz`), an encoder that
                gives them, or a list of these, joined; as for 'textcnn'.
            vocabulary: how many words at most; the most frequent stay.
            min_count: words that occur less often in training are unknown.
            lower: take words without regard to case.
            max_length: longer texts are cut, in words.
        """
        words = WordEmbedding.from_tasks(
            tasks,
            vectors=vectors,
            train_vectors=False,
            vocabulary=vocabulary,
            min_count=min_count,
            lower=lower,
            max_length=max_length,
            dropout=0.0,
        )
        return cls(words)

    @classmethod
    def feature_section(cls, name: str, options: Options) -> FeatureSection:
        """As it is: nothing in it is trained."""
        return {"name": name, **options}, []

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """The vectors of the words, [batch, length, dimension], and their mean, [batch, dimension]."""
        mask = inputs["mask"]  # [batch, length]
        mean = vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True)  # vectors of padding are zero
        return Representation(vectors, mean, mask)


def initial_table(vocabulary: Vocabulary, pretrained: WordVectors | None, dimension: int) -> Tensor:
    """Initial vectors, [words, dimension]: the pretrained one, or small random values of the same scale.

    The unknown word starts at the mean of the pretrained vectors, or at zero: it has no meaning of its own.
    """
    if pretrained is not None and not pretrained.words:
        pretrained = None
    scale = NEW_SCALE if pretrained is None else float(pretrained.matrix.std())
    table = torch.randn(len(vocabulary), dimension) * scale
    table[[PADDING, UNKNOWN]] = 0.0
    if pretrained is not None:
        table[UNKNOWN] = torch.from_numpy(pretrained.matrix.mean(axis=0))
        ids: list[int] = []
        rows: list[int] = []
        for row, word in enumerate(pretrained.words):
            if word in vocabulary.index:
                ids.append(vocabulary.index[word])
                rows.append(row)
        table[torch.tensor(ids, dtype=torch.long)] = torch.from_numpy(pretrained.matrix[rows])
    return table


def _training_texts(task: Task, lower: bool) -> Iterator[Sequence[str]]:
    """The words of one training text after the other; a pair is two texts."""
    if task.spec.form != "vector":
        cached = len(task.train) <= CACHED_TEXTS
        for item in task.train.inputs:
            yield from split_words(item, task.spec.form, lower, cached=cached)


def _read_files(
    vocabulary: Vocabulary, sources: Sequence[str | Path | ComputedVectors], *, room: int, lower: bool
) -> tuple[Vocabulary, dict[int, WordVectors]]:
    """Vectors of the sources that are files, by their index, and the vocabulary with the words that these add."""
    files: dict[int, WordVectors] = {}
    for index, source in enumerate(sources):
        if isinstance(source, str | Path):
            files[index] = load_word_vectors(source, vocabulary.index, room)
            if vocabulary.words and vocabulary.index.keys().isdisjoint(files[index].words):
                raise CrossTaskError(
                    f"encoder: none of the {len(vocabulary.words)} training words, such as '{vocabulary.words[0]}', "
                    f"has a vector in '{source}'. Is it of another language, or are its words not lower case (`lower`)?"
                )
    if not files:
        return vocabulary, files
    words = list(vocabulary.words)
    for vectors in files.values():
        words += [word for word in vectors.words if not lower or word == word.lower()]
    return Vocabulary(words), files
