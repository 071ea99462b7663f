"""Which columns of a CoNLL-like file hold words and labels: as the user says, or as the first lines show, or asked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstask.data.metrics import looks_like_spans
from crosstask.data.readers.source import Source
from crosstask.quoting import brief

HEAD_LINES = 2_000
"""Lines that show what the columns hold."""
MIN_NUMBERED_PAIRS = 2
"""Neighboring words with consecutive numbers; fewer may be chance."""
MAX_SHOWN_COLUMNS = 12
_BETWEEN_WORDS = re.compile(r"\d+[-.]\d+")
"""Numbers of lines that are no words: a range such as `4-5`, or an empty node such as `8.1`."""

Head = Sequence[Sequence[str] | None]
"""The fields of the first lines, None for one that is empty; without comments."""


@dataclass(frozen=True)
class Layout:
    """Where words and labels stand, and a note on what nobody asked for.

    - `numbered`: column 0 holds the number of each word in its sentence;
    - `label`: of words that are still to be labeled, that of the words.
    """

    token: int
    label: int
    numbered: bool = False
    note: str | None = None

    def holds_word(self, fields: Sequence[str]) -> bool:
        """Whether a line of a numbered file is a word."""
        return _BETWEEN_WORDS.fullmatch(fields[0]) is None


def find_layout(source: Source, head: Head, token: int | None, label: int | None, *, labeled: bool = True) -> Layout:
    """The layout of a file.

    Args:
        source: the file.
        head: its first lines.
        token: the column of the words as the user says.
        label: that of the labels, likewise.
        labeled: whether there have to be labels.
    """
    if not is_numbered(head):
        token = 0 if token is None else token
        if not labeled:
            return Layout(token, token)
        if label is not None:
            return Layout(token, label)
        return Layout(token, -1, note=_note_on_the_last(head))
    if token == 0:
        raise source.error(
            "counts the words of each sentence in column 0: 1, 2, 3, ...; the words may be in column 1 (`token: 1`)."
        )
    notes: list[str] = []
    if token is None:
        token = 1
        notes.append("column 0 counts the words, which are read from column 1")
    if not labeled:
        return Layout(token, token, numbered=True)
    if label is None:
        label = _label_column(source, head, token)
        notes.append(f"labels are read from column {label}")
    return Layout(token, label, numbered=True, note=", ".join(notes) or None)


def is_numbered(head: Head) -> bool:
    """Whether the first column counts the words of each sentence.

    >>> is_numbered([["1", "So", "O"], ["2", "what", "O"], ["3", "?", "O"], None, ["1", "Yes", "O"]])
    True
    >>> is_numbered([["7", "CD"], ["8", "CD"], ["2", "CD"]])
    False
    """
    last: int | None = None
    first_numbers: set[int] = set()
    num_words = num_pairs = 0
    for fields in head:
        if fields is None:
            last = None
            continue
        if len(fields) < 2:
            return False
        if _BETWEEN_WORDS.fullmatch(fields[0]):
            continue
        if not (fields[0].isascii() and fields[0].isdigit() and len(fields[0]) < 10):
            return False
        number = int(fields[0])
        if last is None:
            first_numbers.add(number)
        elif number == last + 1:
            num_pairs += 1
        else:
            return False
        last = number
        num_words += 1
    # Numbers that go on from one sentence to the next count words too, if there are enough of them.
    return num_pairs >= MIN_NUMBERED_PAIRS or (num_words > 1 and first_numbers == {1})


def _label_column(source: Source, head: Head, token: int) -> int:
    """The only column beside number and word, or the only one with tags of spans; an error where neither is."""
    words = [fields for fields in head if fields]
    width = max(map(len, words))
    columns = [column for column in range(1, width) if column != token % width]
    if len(columns) == 1:
        return columns[0]
    span_columns = [column for column in columns if _holds_spans(words, column)]
    if len(span_columns) == 1:
        return span_columns[0]
    fullest = next(fields for fields in words if len(fields) == width)
    cells = ", ".join(f"{column}: '{brief(fullest[column])}'" for column in columns[:MAX_SHOWN_COLUMNS])
    hint = ""
    if width >= 10 and token == 1:
        hint = "; `format: conllu` reads CoNLL-U"
    raise source.error(
        f"counts the words of each sentence in column 0, and any of {len(columns)} columns may hold the labels; name "
        f"it with `label`{hint}. One of its words has {cells}{', ...' * (len(columns) > MAX_SHOWN_COLUMNS)}."
    )


def _holds_spans(words: Sequence[Sequence[str]], column: int) -> bool:
    values = {fields[column] for fields in words if len(fields) > column}
    return looks_like_spans(sorted(values))


def _note_on_the_last(head: Head) -> str | None:
    """Of several columns beside the words, which one was read."""
    width = max((len(fields) for fields in head if fields), default=0)
    if width < 3:
        return None
    return f"labels are read from the last of {width} columns: `label` names another"
