"""CoNLL-style columns: a word a line with its labels, sentences separated by empty lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain, islice
from typing import Any

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.plain_text import one_line, text_of
from crosstask.data.readers.column_layout import HEAD_LINES, Layout, find_layout
from crosstask.data.readers.source import TAB, Source
from crosstask.data.readers.table import Column
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief
from crosstask.validation import shown

Row = tuple[int, list[str]]
"""The number of a line, and its fields."""
AUTO = "auto"
MIN_WORDS = 10
"""Of fewer words all may be the same."""


class Widths(Enum):
    """Where lines may differ in how many columns they have."""

    CONSTANT = "nowhere"
    BY_SENTENCE = "from one sentence to the next"
    ANY = "anywhere"


def read_columns(
    source: Source,
    *,
    token: Column | None = None,
    label: Column | None = None,
    separator: str | None = None,
    comment: str | None = AUTO,
    header: bool = False,
    names: Sequence[str] | None = None,
) -> Examples:
    """Sentences from a file with a word a line.

    Where the first column counts the words of each sentence (1, 2, 3, ...), words are read from the second one; lines
    between words, such as `4-5` or `8.1`, and lines that begin with `#` are left out.

    Columns that are counted from the left may be followed by more or fewer columns: in a file with tabs anywhere, in
    any other from one sentence to the next, as with the arguments of predicates. Otherwise a change in number is an
    error.

    Args:
        source: the file.
        token: the column with the word: a number from 0, a negative one from the end, or a name. When left out, the
            first one, or the second where the first counts words.
        label: the column with the label, likewise. When left out, the last one; where the first column counts words,
            the only column beside the words, or the only one with tags of spans such as B-PER, and otherwise an error.
        separator: what stands between columns; when left out, tabs if the first line has one, else any spaces and tabs.
        comment: how lines begin that are no words; None for no comments. "auto" takes lines as comments that begin with
            `#` and have no tab in a file with tabs, and none in any other file, since `#` can be a word.
        header: whether the first line names the columns.
        names: the names of the columns, where the file has no header.
    """
    return _read(source, ColumnOptions(token, label, separator, comment, header, names), labeled=True)


def read_words(source: Source, **options: Any) -> Sequence[Sequence[str]]:
    """The words of sentences that are still to be labeled; options are those of `read_columns`, without `label`."""
    return list(_read(source, ColumnOptions(**options), labeled=False).inputs)


@dataclass(frozen=True)
class ColumnOptions:
    """The options of `read_columns`."""

    token: Column | None = None
    label: Column | None = None
    separator: str | None = None
    comment: str | None = AUTO
    header: bool = False
    names: Sequence[str] | None = None


def _read(source: Source, options: ColumnOptions, *, labeled: bool) -> Examples:
    comment, names = options.comment, options.names
    if comment is not None and (not isinstance(comment, str) or not comment):
        raise source.option_error(f"`comment` is how a comment begins, such as '#', or null; found {shown(comment)}.")
    # 1. What the first lines show.
    first_lines, lines = up_to_first_word(source.lines())
    separator = _separator(source, options.separator, first_lines)
    head = list(islice(lines, HEAD_LINES))
    numbered = _without_comments(chain(head, lines), _comment_test(comment, separator))
    if options.header:
        for _, line in numbered:
            if line.strip():
                names = _fields(line, separator)
                break
    rows_of_head = _head_rows(head, separator, comment, skip_first=options.header)
    token = _column_index(source, options.token, "token", names)
    label = _column_index(source, options.label, "label", names)
    layout = find_layout(source, rows_of_head, token, label, labeled=labeled)
    if layout.numbered and comment == AUTO:  # no word begins a line
        numbered = ((number, line) for number, line in numbered if not line.startswith("#"))
    # 2. All lines. Rows of different width are no problem as long as both columns are counted from the left.
    widths = Widths.CONSTANT
    if min(layout.token, layout.label) >= 0:
        widths = Widths.ANY if separator == "\t" else Widths.BY_SENTENCE
    rows = _rows(source, numbered, separator, widths)
    if layout.numbered:
        rows = _words(source, rows, layout)
    examples = sentences(source, rows, layout.token, layout.label)
    if comment == AUTO and not separator and not layout.numbered:
        _check_comments(source, examples)
    return examples if layout.note is None else replace(examples, notes=(layout.note,))


def _head_rows(head: Sequence[str], separator: str, comment: str | None, *, skip_first: bool) -> list[list[str] | None]:
    """The fields of the first lines without comments and header; None for one that is empty."""
    rows: list[list[str] | None] = []
    is_comment = _comment_test("#" if comment == AUTO else comment, separator)
    for line in head:
        if is_comment(line):
            continue
        if not line.strip():
            rows.append(None)
        elif skip_first:
            skip_first = False
        else:
            rows.append(_fields(line, separator))
    return rows


def _words(source: Source, rows: Iterable[Row | None], layout: Layout) -> Iterator[Row | None]:
    """The rows of a file whose first column counts words, without those that are none."""
    for row in rows:
        if row is None:
            yield None
            continue
        number, fields = row
        if not fields[0].isdigit() and layout.holds_word(fields):
            raise source.error(
                f"begins with '{brief(fields[0])}' where lines before begin with the number of the word.", number
            )
        if layout.holds_word(fields):
            yield row


def _check_comments(source: Source, examples: Examples) -> None:
    """Where every sentence begins with a hash, that is hardly a word."""
    if len(examples) > 1 and all(words[0].startswith("#") for words in examples.inputs):
        first = examples.inputs[0][0]
        raise source.error(
            f"begins every sentence with a line such as '{brief(first)} ...'. If these are comments, set "
            '`comment: "#"`; if they are words, `comment: null`.'
        )


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
    if comment == AUTO and separator == "\t":
        # A word may be `#`, but then a tab and its label follow.
        return lambda line: line.startswith("#") and "\t" not in line
    if comment is None or comment == AUTO:
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
    unlabeled: list[tuple[int, str]] = []

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
            unlabeled.append((number, word))
        if not words:
            start = number
        words.append(pool.setdefault(word, word))
        tags.append(pool.setdefault(tag, tag))
    close()
    if unlabeled:
        number, word = unlabeled[0]
        others = f" (as have {len(unlabeled) - 1:,} more words)" if len(unlabeled) > 1 else ""
        raise source.error(f"has no label: column {label} of the word '{brief(word)}' is empty{others}.", number)
    if not inputs:
        raise source.error("holds no sentences.")
    _check_words(source, inputs, token)
    return Examples(inputs, labels, source.name, starts)


def _check_words(source: Source, inputs: Sequence[Sequence[str]], token: int) -> None:
    """A column that has one value in each sentence holds the name of a document, or nothing, and no words."""
    longest = max(inputs, key=len)
    if sum(map(len, inputs)) >= MIN_WORDS and len(longest) > 1 and all(len(set(words)) == 1 for words in inputs):
        raise source.error(
            f"has one value in column {token} for all words of a sentence, such as '{brief(longest[0])}': that column "
            "holds no words. Name the one that does with `token`."
        )


def _fields(line: str, separator: str) -> list[str]:
    if separator:
        return line.split(separator)
    # Not `str.split()`, which would also cut at no-break spaces and other characters inside words.
    return [field for field in line.replace("\t", " ").split(" ") if field]


def _rows(source: Source, lines: Iterable[tuple[int, str]], separator: str, widths: "Widths") -> Iterator[Row | None]:
    """Line numbers and fields, None where a sentence ends; a line with another number of columns may be an error."""
    first = width = 0
    begins = True
    for number, line in lines:
        if not line.strip():
            begins = True
            yield None
            continue
        fields = _fields(line, separator)
        if begins and widths is Widths.BY_SENTENCE:
            width = 0
        if widths is not Widths.ANY and len(fields) != width:
            if width:
                raise _other_width(source, number, fields, first, width, begins=begins)
            first, width = number, len(fields)
        begins = False
        yield number, fields


def _column_index(source: Source, column: Column | None, option: str, names: Sequence[str] | None) -> int | None:
    if column is None:
        return None
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


def _other_width(
    source: Source, number: int, fields: Sequence[str], first: int, width: int, *, begins: bool
) -> CrossTaskError:
    if len(fields) == 1:
        return source.error(f"has no label: '{brief(fields[0])}' is its only column, line {first} has {width}.", number)
    hint = ""
    if fields[0].startswith("#"):
        hint = ' If it is a comment, set `comment: "#"`.'
    elif begins:
        hint = " If columns vary by sentence, count both from the left, as in `label: 3`."
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
