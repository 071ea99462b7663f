"""Pretrained word vectors from files: the text format of GloVe, word2vec and fastText, and packed `.npz` files."""

import gzip
import math
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from crosstask.errors import CrossTaskError, import_papers
from crosstask.storage import check_path
from crosstask.validation import shown

VectorSource = str | Path | Mapping[str, Any]
"""A file of word vectors, or `{encoder: minilm}`, an encoder that computes them."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, row by row: `matrix` is float32, [words, dimension]."""

    words: list[str]
    matrix: np.ndarray

    @property
    def dimension(self) -> int:
        """Size of a vector."""
        return int(self.matrix.shape[1])


class ComputedVectors(Protocol):
    """Word vectors that are computed for a vocabulary, by a pretrained encoder for instance."""

    def vectors(self, words: Sequence[str], texts: Sequence[Iterable[Sequence[str]]]) -> WordVectors:
        """A vector for each of the words; `texts` are the training texts of every task, as words."""


def vector_sources(
    vectors: VectorSource | Sequence[VectorSource] | None,
) -> list[str | Path | ComputedVectors]:
    """Where word vectors come from, one source after another.

    >>> vector_sources(["glove.txt", "more.txt.gz"])
    ['glove.txt', 'more.txt.gz']
    """
    if vectors is None:
        return []
    listed: list[VectorSource] = [vectors]  # type: ignore[list-item]  # checked below
    if isinstance(vectors, list | tuple):
        listed = list(vectors)
    if not listed or not all(isinstance(source, str | Path | Mapping) for source in listed):
        raise CrossTaskError(
            "encoder: `vectors` is a file, an encoder such as {encoder: minilm}, or a list of these; "
            f"found {shown(vectors)}."
        )
    sources: list[str | Path | ComputedVectors] = []
    for source in listed:
        if isinstance(source, Mapping):
            papers = import_papers("distilled_vectors", purpose="encoder.vectors: word vectors out of an encoder")
            sources.append(papers.Distilled.from_options(source))
        else:
            sources.append(source)
    return sources


def load_word_vectors(path: str | Path, words: Collection[str] | None = None, limit: int | None = None) -> WordVectors:
    """Word vectors from a file; of a word that occurs twice, the first.

    Args:
        path: text with a word and its numbers per line, separated by single spaces or tabs, also gzipped, with or
            without a first line `count dimension`; or `.npz` with `vocab` (words joined by newlines, as bytes) and
            `matrix` (a row per word).
        words: those to read wherever they stand; the numbers of other words are never parsed.
        limit: how many words to read besides `words`, in the order of the file, which usually is that of frequency.
            When left out: all without `words`, none with it.
    """
    path = check_path(path, "encoder.vectors")
    if not path.is_file():
        raise CrossTaskError(f"encoder.vectors: there is no file '{path}'. Name a file with word vectors.")
    if path.suffix == ".bin":
        raise CrossTaskError(
            f"Word vectors: '{path}' is binary. Save it as text, with a word and its numbers per line."
        )
    room: float = 0
    if limit is not None:
        room = limit
    elif words is None:
        room = math.inf
    selection = _Selection(words or (), room)
    vectors = _from_npz(path, selection) if path.suffix == ".npz" else _from_text(path, selection)
    if not np.isfinite(vectors.matrix).all():
        word = vectors.words[int(np.argwhere(~np.isfinite(vectors.matrix))[0][0])]
        raise CrossTaskError(f"Word vectors: {path} has a number that is not finite in the vector of '{word}'.")
    return vectors


class _Selection:
    """Decides, word by word in the order of the file, which rows are read: these words, and `limit` others."""

    def __init__(self, words: Collection[str], limit: float) -> None:
        self.words = frozenset(words)
        self.num_missing = len(self.words)
        self.room = limit
        self.selected: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether no row further down can be selected."""
        return self.num_missing == 0 and self.room <= 0

    def __call__(self, word: str) -> bool:
        if word in self.selected:
            return False
        if word in self.words:
            self.num_missing -= 1
        elif self.room > 0:
            self.room -= 1
        else:
            return False
        self.selected.add(word)
        return True


def _from_text(path: Path, selects: _Selection) -> WordVectors:
    words: list[str] = []
    rows: list[np.ndarray] = []
    dimension = None
    for number, line in _lines(path):
        fields = line.replace("\t", " ").rstrip().split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            dimension = int(fields[1])
            continue
        if dimension is None:
            dimension = len(fields) - 1
        word = _word_of(path, number, line, fields, dimension)
        if selects(word):
            try:
                rows.append(np.array([float(field) for field in fields[-dimension:]], dtype=np.float32))
            except ValueError as error:
                raise CrossTaskError(
                    f"Word vectors: {path}, line {number}: expected numbers after '{word}', found {_quoted(line)}."
                ) from error
            words.append(word)
        if selects.is_complete:
            break
    if dimension is None:
        raise CrossTaskError(f"Word vectors: {path} is empty.")
    return WordVectors(words, np.stack(rows) if rows else np.zeros((0, dimension), dtype=np.float32))


def _word_of(path: Path, number: int, line: str, fields: list[str], dimension: int) -> str:
    """The word of a line, or an error where the line has too few numbers or too many."""
    if dimension < 1 or len(fields) <= dimension:
        expected = f"a word and {dimension} numbers" if dimension else "a word and its numbers"
        raise CrossTaskError(f"Word vectors: {path}, line {number}: expected {expected}, found {_quoted(line)}.")
    if len(fields) > dimension + 1 and _leading_numbers(fields[1:]) == len(fields) - 1:
        raise CrossTaskError(
            f"Word vectors: {path}, line {number}: expected {dimension} numbers, found {len(fields) - 1} "
            f"after '{fields[0]}'."
        )
    # GloVe has words with spaces inside (". . ."), so the numbers are counted from the end.
    return " ".join(fields[:-dimension])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank. A byte that is no UTF-8 spoils one word alone."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        # Split at "\n" alone: other line breaks of Unicode occur inside words.
        with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError) as error:
        raise CrossTaskError(f"Word vectors: {path} cannot be unpacked: {error}.") from error


def _from_npz(path: Path, selects: _Selection) -> WordVectors:
    try:
        with np.load(path, allow_pickle=False) as archive:
            vocab, matrix = archive["vocab"], archive["matrix"]
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise CrossTaskError(
            f"Word vectors: {path} must hold `vocab` (words joined by newlines, as bytes) and `matrix`: {error}"
        ) from error
    if vocab.ndim != 0 or vocab.dtype.kind not in "SU" or matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise CrossTaskError(
            f"Word vectors: {path}: expected `vocab` as one string of bytes and `matrix` as rows of floats, found "
            f"shapes {vocab.shape} and {matrix.shape}, types {vocab.dtype.kind} and {matrix.dtype}."
        )
    text = vocab.item()
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    words = text.split("\n")
    if len(words) != len(matrix):
        raise CrossTaskError(f"Word vectors: {path} has {len(words)} words but {len(matrix)} vectors.")
    rows: list[int] = []
    selected: list[str] = []
    for row, word in enumerate(words):
        if selects(word):
            rows.append(row)
            selected.append(word)
    return WordVectors(selected, matrix[rows].astype(np.float32))


def _leading_numbers(fields: list[str]) -> int:
    """How many fields are numbers, up to the first that is not."""
    for count, field in enumerate(fields):
        try:
            float(field)
        except ValueError:
            return count
    return len(fields)


def _quoted(line: str) -> str:
    text = line.strip()
    if len(text) > 40:
        text = f"{text[:40]}..."
    return f"'{text}'"
