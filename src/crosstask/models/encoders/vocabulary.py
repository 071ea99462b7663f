"""Splitting texts into words, and the vocabulary that gives each word an id."""

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import repeat
from pathlib import Path

from crosstask.data.examples import Form
from crosstask.errors import CrossTaskError

PADDING, UNKNOWN, SEPARATOR = range(3)
NUM_SPECIAL = 3
CACHED_TEXTS, MAX_CACHED_CHARACTERS = 2**15, 10_000
"""Texts whose words stay in memory, and characters of one: keeping more costs more than splitting it again."""

CONTRACTION = r"(?i:n't|'(?:s|m|d|re|ve|ll))(?!\w)"
# Chinese characters and Japanese kana are written without spaces: each is a word by itself.
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


@cache
def _token_pattern() -> re.Pattern[str]:
    # To Python, combining marks are no word characters, yet many scripts write their vowels with them.
    marks = "\u200c\u200d"  # joiners inside words
    for code in range(0x300, 0x10000):
        if unicodedata.category(chr(code)).startswith("M"):
            marks += chr(code)
    return re.compile(rf"{CONTRACTION}|\d+(?:[.,]\d+)+(?!\w)|\w[\w{marks}]*|\S[{marks}]*")


def tokenize(text: str, *, lower: bool = True) -> list[str]:
    """Words, numbers and punctuation marks of a text, in any script.

    English contractions are split as in the texts that GloVe was trained on; hyphens separate words.

    >>> tokenize("I don't think it's worth $3.50: well-meant, though!")
    ['i', 'do', "n't", 'think', 'it', "'s", 'worth', '$', '3.50', ':', 'well', '-', 'meant', ',', 'though', '!']
    """
    if lower:
        text = text.lower()
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    if "'" in text:
        text = re.sub(rf"(?<=\w)({CONTRACTION})", r" \1", text)
    if not text.isascii():
        text = UNSPACED.sub(r" \g<0> ", text)
    return _token_pattern().findall(text)


@lru_cache(maxsize=CACHED_TEXTS)
def _cached_words(text: str, lower: bool) -> tuple[str, ...]:
    """Words of a text that is split again and again: for the vocabulary, for training, by the next run."""
    return tuple(map(sys.intern, tokenize(text, lower=lower)))


def split_words(item: str | Sequence[str], form: Form, lower: bool, *, cached: bool = True) -> list[Sequence[str]]:
    """The words of one input: one list, or two for a pair. The user's own tokens are never split.

    Where there are more texts than fit into the cache, each would push out one that is needed again: without
    `cached`, splitting twice is faster.
    """
    if form == "tokens":
        return [[token.lower() for token in item] if lower else list(item)]
    texts = item if form == "pair" else (item,)
    words: list[Sequence[str]] = []
    for text in texts:
        assert isinstance(text, str)
        if cached and len(text) <= MAX_CACHED_CHARACTERS:
            words.append(_cached_words(text, lower))
        else:
            words.append(tokenize(text, lower=lower))
    return words


class Vocabulary:
    """Words and their ids. Three ids are no words: 0 is padding, 1 any unknown word, 2 separates the texts of a pair.

    >>> Vocabulary.from_counts({'is': 1, 'rose': 2, 'a': 2}).words
    ('a', 'rose', 'is')
    """

    FILE = "vocabulary.txt"

    def __init__(self, words: Iterable[str]) -> None:
        # A word with a line break would be two in the file; none of ours has one, but the user's tokens may.
        self.words = tuple(dict.fromkeys(word for word in words if "\n" not in word))
        self.index = {word: number for number, word in enumerate(self.words, start=NUM_SPECIAL)}

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, min_count: int = 1, limit: int | None = None) -> "Vocabulary":
        """The most frequent words first, and by alphabet among equals, so that the order of tasks does not matter."""
        by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, count in by_frequency if count >= min_count][:limit])

    def __len__(self) -> int:
        return NUM_SPECIAL + len(self.words)

    def ids(self, words: Sequence[str]) -> list[int]:
        """The id of each word."""
        return list(map(self.index.get, words, repeat(UNKNOWN)))

    def save(self, folder: Path) -> None:
        """Write one word a line."""
        text = "".join(f"{word}\n" for word in self.words)
        (folder / self.FILE).write_bytes(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Read what `save` wrote."""
        path = folder / cls.FILE
        if not path.is_file():
            raise CrossTaskError(f"There is no vocabulary '{path}'; a saved word encoder needs it.")
        return cls(path.read_bytes().decode("utf-8", "surrogatepass").split("\n")[:-1])
