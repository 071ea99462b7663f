"""CoNLL-style columns: a word a line with its labels, sentences separated by empty lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.plain_text import one_line, text_of
from crosstask.data.readers.source import TAB, Source
from crosstask.data.readers.table import Column
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief
from crosstask.validation import shown

Row = tuple[int, list[str]]
"""The number of a line, and its fields."""


def read_columns(
    source: Source,
    *,
    token: Column = 0,
    label: Column = -1,
    separator: str | None = None,
    comment: str | None = "auto",
    header: bool = False,
    names: Sequence[str] | None = None,
) -> Examples:
    """Sentences from a file with a word a line.

    Tab-separated lines may differ in how many columns they have as long as both columns are counted from the left
    (files that leave trailing columns out are common); otherwise a change in number is an error.

    Args:
        source: the file.
        token: the column with the word: a number from 0, a negative one from the end, or a name.
        label: the column with the label, likewise.
        separator: what stands between columns; when left out, tabs if the first line has one, else any spaces and tabs.
        comment: how lines begin that are no words; None for no comments. "auto" takes lines as comments that begin with
            `#` and have no tab in a file with tabs, and none in any other file, since `#` can be a word.
        header: whether the first line names the columns.
        names: the names of the columns, where the file has no header.
    """
    if comment is not None and (not isinstance(comment, str) or not comment):
        raise source.option_error(f"`comment` is how a comment begins, such as '#', or null; found {shown(comment)}.")
    first_lines, lines = up_to_first_word(source.lines())
    separator = _separator(source, separator, first_lines)
    numbered = _without_comments(lines, _comment_test(comment, separator))
    if header:
        for _, line in numbered:
            if line.strip():
                names = _fields(line, separator)
                break
    token_index = _column_index(source, token, "token", names)
    label_index = _column_index(source, label, "label", names)
    # Rows of different width are no problem as long as both columns are counted from the left.
    ragged = separator == "\t" and min(token_index, label_index) >= 0
    return sentences(source, _rows(source, numbered, separator, ragged), token_index, label_index)


def _separator(source: Source, separator: str | None, lines: Sequence[str]) -> str:
    """What stands between columns; an empty text for any number of spaces and tabs."""
    if separator is None:
        # The first line that is no comment decides for the file; in a file of comments the first.
        first = lines[-1] if is_word(lines[-1]) else lines[0]
        return "\t" if "\t" in first else ""
    if not isinstance(separator, str) or not separator:
        raise source.option_error(f"`separator` is what stands between columns; found {shown(separator)}.")
    return TAB.get(separator, separator)


def up_to_first_word(lines: Iterator[str]) -> tuple[list[str], Iterator[str]]:
    """The lines up to the first that holds a word (all, if none does), and all lines from the start."""
    first_lines: list[str] = []
    for line in lines:
        first_lines.append(line)
        if is_word(line):
            break
    return first_lines, chain(first_lines, lines)


def is_word(line: str) -> bool:
    """Whether a line is neither empty nor, as it seems, a comment."""
    return bool(line.strip()) and not line.startswith("#")


def _comment_test(comment: str | None, separator: str) -> Callable[[str], bool]:
    if comment == "auto" and separator == "\t":
        # A word may be `#`, but then a tab and its label follow.
        return lambda line: line.startswith("#") and "\t" not in line
    if comment is None or comment == "auto":
        return lambda line: False
    return lambda line: line.startswith(comment)


def _without_comments(lines: Iterable[str], is_comment: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if not is_comment(line):
            yield number, line


def sentences(source: Source, rows: Iterable[Row | None], token: int, label: int) -> Examples:
    """Examples from the rows of a file, None where a sentence ends; two empty lines in a row make no sentence."""
    inputs: list[list[str]] = []
    labels: list[list[str]] = []
    starts = line_numbers()
    pool: dict[str, str] = {}  # each word and tag once, as files repeat them
    words: list[str] = []
    tags: list[str] = []
    start = 0

    def close() -> None:
        nonlocal words, tags
        # CoNLL-2003 begins each document with a sentence of this one word.
        if words and words != ["-DOCSTART-"]:
            inputs.append(words)
            labels.append(tags)
            starts.append(start)
        words, tags = [], []

    for row in rows:
        if row is None:  # an empty line
            close()
            continue
        number, fields = row
        try:
            word, tag = fields[token], fields[label]
        except IndexError:
            raise _too_few(source, number, fields, token, label) from None
        if not word:
            raise source.error(f"has an empty word in column {token}.", number)
        if not tag:
            raise source.error(f"has no label: column {label} of the word '{brief(word)}' is empty.", number)
        if not words:
            start = number
        words.append(pool.setdefault(word, word))
        tags.append(pool.setdefault(tag, tag))
    close()
    if not inputs:
        raise source.error("holds no sentences.")
    return Examples(inputs, labels, source.name, starts)


def _fields(line: str, separator: str) -> list[str]:
    if separator:
        return line.split(separator)
    # Not `str.split()`, which would also cut at no-break spaces and other characters inside words.
    return [field for field in line.replace("\t", " ").split(" ") if field]


def _rows(source: Source, lines: Iterable[tuple[int, str]], separator: str, ragged: bool) -> Iterator[Row | None]:
    """Line numbers and fields, None where a sentence ends; unless `ragged`, all with as many columns as the first."""
    first = width = 0
    for number, line in lines:
        if not line.strip():
            yield None
            continue
        fields = _fields(line, separator)
        if not ragged and len(fields) != width:
            if width:
                raise _other_width(source, number, fields, first, width)
            first, width = number, len(fields)
        yield number, fields


def _column_index(source: Source, column: Column, option: str, names: Sequence[str] | None) -> int:
    if isinstance(column, int) and not isinstance(column, bool):
        return column
    column_name = text_of(column)
    if names is None:
        raise source.option_error(
            f"`{option}: {brief(column_name)}` names a column, but the columns of {one_line(source.name)} have no "
            "names; use a number from 0, list them under `names`, or set `header: true`."
        )
    texts = [text_of(name) for name in names]
    if column_name not in texts:
        raise source.error(f"has no column '{brief(column_name)}' (`{option}`). {did_you_mean(column_name, texts)}")
    return texts.index(column_name)


def _other_width(source: Source, number: int, fields: Sequence[str], first: int, width: int) -> CrossTaskError:
    if len(fields) == 1:
        return source.error(f"has no label: '{brief(fields[0])}' is its only column, line {first} has {width}.", number)
    hint = ' If it is a comment, set `comment: "#"`.' if fields[0].startswith("#") else ""
    return source.error(f"has {len(fields)} columns; expected {width}, as in line {first}.{hint}", number)


def _too_few(source: Source, number: int, fields: Sequence[str], token: int, label: int) -> CrossTaskError:
    if len(fields) == 1:
        return source.error(
            f"has no label: '{brief(fields[0])}' is its only column; column {shown(label)} was expected.", number
        )
    needed = max(token, label, -token - 1, -label - 1)
    return source.error(
        f"has {len(fields)} columns, numbered from 0 to {len(fields) - 1}; column {shown(needed)} was expected.", number
    )
