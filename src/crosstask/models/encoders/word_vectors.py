"""Pretrained word vectors from files: the text format of GloVe, word2vec and fastText, and packed `.npz` files."""

import gzip
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crosstask.errors import CrossTaskError


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, row by row: `matrix` is float32, [words, dimension]."""

    words: list[str]
    matrix: np.ndarray

    @property
    def dimension(self) -> int:
        """Numbers per word."""
        return int(self.matrix.shape[1])


def load_word_vectors(path: str | Path, wanted: Collection[str] | None = None, limit: int | None = None) -> WordVectors:
    """Word vectors from a file; of a word that stands there twice, the first.

    Args:
        path: text with a word and its numbers per line, separated by single spaces or tabs, also gzipped, with or
            without a first line `count dimension`; or `.npz` with `vocab` (words joined by newlines, as bytes) and
            `matrix` (a row per word).
        wanted: words to keep wherever they stand; the numbers of words that are not kept are never read.
        limit: how many words to keep besides `wanted`, in the order of the file, which usually is that of frequency.
            When left out: all without `wanted`, none with it.
    """
    path = Path(path)
    if not path.is_file():
        raise CrossTaskError(f"encoder.vectors: there is no file '{path}'. Name a file with word vectors.")
    if path.suffix == ".bin":
        raise CrossTaskError(
            f"Word vectors: '{path}' is binary. Save it as text, with a word and its numbers per line."
        )
    keep = _Keeper(wanted, limit)
    found = _from_npz(path, keep) if path.suffix == ".npz" else _from_text(path, keep)
    if not np.isfinite(found.matrix).all():
        word = found.words[int(np.argwhere(~np.isfinite(found.matrix))[0][0])]
        raise CrossTaskError(f"Word vectors: {path} has a number that is not finite in the vector of '{word}'.")
    return found


class _Keeper:
    """Decides, word by word in the order of the file, which rows are kept."""

    def __init__(self, wanted: Collection[str] | None, limit: int | None) -> None:
        self.wanted = frozenset(wanted or ())
        self.room = (float("inf") if wanted is None else 0) if limit is None else limit
        self.missing = len(self.wanted)
        self.seen: set[str] = set()

    @property
    def done(self) -> bool:
        """Whether no row further down can be kept."""
        return self.missing == 0 and self.room <= 0

    def __call__(self, word: str) -> bool:
        if word in self.seen:
            return False
        if word in self.wanted:
            self.missing -= 1
        elif self.room > 0:
            self.room -= 1
        else:
            return False
        self.seen.add(word)
        return True


def _from_text(path: Path, keep: _Keeper) -> WordVectors:
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
        if dimension < 1 or len(fields) <= dimension:
            expected = f"a word and {dimension} numbers" if dimension else "a word and its numbers"
            raise CrossTaskError(f"Word vectors: {path}, line {number}: expected {expected}, found {_shown(line)}.")
        # GloVe has words with spaces inside (". . ."), so the numbers are counted from the end.
        word = " ".join(fields[:-dimension])
        if len(fields) > dimension + 1 and _number_of_floats(fields[1:]) == len(fields) - 1:
            raise CrossTaskError(
                f"Word vectors: {path}, line {number}: expected {dimension} numbers, found {len(fields) - 1} "
                f"after '{fields[0]}'."
            )
        if keep(word):
            try:
                rows.append(np.array([float(field) for field in fields[-dimension:]], dtype=np.float32))
            except ValueError as error:
                raise CrossTaskError(
                    f"Word vectors: {path}, line {number}: expected numbers after '{word}', found {_shown(line)}."
                ) from error
            words.append(word)
        if keep.done:
            break
    if dimension is None:
        raise CrossTaskError(f"Word vectors: {path} is empty.")
    return WordVectors(words, np.stack(rows) if rows else np.zeros((0, dimension), dtype=np.float32))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank. A byte that is no UTF-8 spoils its own word alone."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        # Split at "\n" alone: other line breaks of Unicode occur inside words.
        with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError) as error:
        raise CrossTaskError(f"Word vectors: {path} cannot be unpacked: {error}.") from error


def _from_npz(path: Path, keep: _Keeper) -> WordVectors:
    try:
        with np.load(path, allow_pickle=False) as archive:
            parts = {name: archive[name] for name in ("vocab", "matrix")}
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise CrossTaskError(
            f"Word vectors: {path} must hold `vocab` (words joined by newlines, as bytes) and `matrix`: {error}"
        ) from error
    vocab, matrix = parts["vocab"], parts["matrix"]
    if vocab.ndim != 0 or vocab.dtype.kind not in "SU" or matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise CrossTaskError(
            f"Word vectors: {path}: expected `vocab` as one string of bytes and `matrix` as rows of floats, found "
            f"shapes {vocab.shape} and {matrix.shape}, types {vocab.dtype.kind} and {matrix.dtype}."
        )
    text = vocab.item()
    words = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).split("\n")
    if len(words) != len(matrix):
        raise CrossTaskError(f"Word vectors: {path} has {len(words)} words but {len(matrix)} vectors.")
    kept = [row for row, word in enumerate(words) if keep(word)]
    return WordVectors([words[row] for row in kept], matrix[kept].astype(np.float32))


def _number_of_floats(fields: list[str]) -> int:
    count = 0
    for field in fields:
        try:
            float(field)
        except ValueError:
            break
        count += 1
    return count


def _shown(line: str) -> str:
    text = line.strip()
    return f"'{text[:40]}...'" if len(text) > 40 else f"'{text}'"
