"""CoNLL-style columns: a word a line with its labels, sentences apart by empty lines."""

from collections.abc import Callable, Iterable, Sequence

from crosstask.errors import did_you_mean
from crosstask.readers.files import Encoding, Source
from crosstask.tasks import Examples

Column = str | int
Row = tuple[int, list[str]]


def read_columns(
    source: Source,
    *,
    token: Column = 0,
    label: Column = -1,
    separator: str | None = None,
    comment: str | None = "auto",
    header: bool = False,
    names: Sequence[str] | None = None,
    encoding: Encoding = "utf-8",
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
        encoding: of the text; of several the first that fits.
    """
    if comment is not None and (not isinstance(comment, str) or not comment):
        raise source.option_error(f"`comment` is how a comment begins, such as '#', or null; found {comment!r}.")
    lines = source.lines(encoding)
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator) if isinstance(separator, str) else separator
    if separator is None:
        first = next((line for line in lines if line.strip() and not line.startswith("#")), lines[0])
        separator = "\t" if "\t" in first else ""
    elif not isinstance(separator, str) or not separator:
        raise source.option_error(f"`separator` is what stands between columns; found {separator!r}.")
    if comment == "auto":
        is_comment = _is_untabbed_comment if separator == "\t" else None
    else:
        is_comment = None if comment is None else (lambda line: line.startswith(comment))
    rows = _rows(lines, separator, is_comment)
    if not rows:
        raise source.error("holds no sentences.")
    if header:
        _, names = rows.pop(0)
    places = tuple(_place(source, column, option, names) for option, column in {"token": token, "label": label}.items())
    _check_widths(source, rows, separator, negative=min(places) < 0)
    return sentences(source, (row if row[1] else None for row in rows), *places)


def sentences(source: Source, rows: "Iterable[Row | None]", token: int, label: int) -> Examples:
    """Examples from the rows of a file, None where a sentence ends; two empty lines in a row make no sentence."""
    inputs: list[list[str]] = []
    labels: list[list[str]] = []
    starts: list[int] = []
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
        if row is None:
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
            raise source.error(f"has no label: column {label} of the word '{word}' is empty.", number)
        if not words:
            start = number
        words.append(word)
        tags.append(tag)
    close()
    if not inputs:
        raise source.error("holds no sentences.")
    return Examples(inputs, labels, source.name, starts)


def _is_untabbed_comment(line: str) -> bool:
    return line.startswith("#") and "\t" not in line


def _rows(lines: Sequence[str], separator: str, is_comment: Callable[[str], bool] | None) -> list[Row]:
    """Line numbers and fields; no fields where a sentence ends."""
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            rows.append((number, []))
        elif is_comment is not None and is_comment(line):
            continue
        elif separator:
            rows.append((number, line.split(separator)))
        else:
            # Not `str.split()`, which would also cut at no-break spaces and other characters inside words.
            rows.append((number, [field for field in line.replace("\t", " ").split(" ") if field]))
    while rows and not rows[0][1]:
        rows.pop(0)
    return rows


def _place(source: Source, column: Column, option: str, names: Sequence[str] | None) -> int:
    if isinstance(column, int) and not isinstance(column, bool):
        return column
    if names is None:
        raise source.option_error(
            f"`{option}: {column}` names a column, but the columns of {source.name} have no names; use a number from "
            "0, list them under `names`, or set `header: true`."
        )
    known = [str(name) for name in names]
    if str(column) not in known:
        raise source.error(f"has no column '{column}' (`{option}`). {did_you_mean(str(column), known)}")
    return known.index(str(column))


def _check_widths(source: Source, rows: Sequence[Row], separator: str, negative: bool) -> None:
    if separator == "\t" and not negative:
        return
    first, width = next(((number, len(fields)) for number, fields in rows if fields), (0, 0))
    for number, fields in rows:
        if fields and len(fields) != width:
            hint = ' If it is a comment, set `comment: "#"`.' if fields[0].startswith("#") else ""
            if len(fields) == 1 and width > 1:
                raise source.error(f"has no label: '{fields[0]}' is its only column, line {first} has {width}.", number)
            raise source.error(f"has {len(fields)} columns; expected {width}, as in line {first}.{hint}", number)


def _too_few(source: Source, number: int, fields: Sequence[str], token: int, label: int) -> Exception:
    if len(fields) == 1:
        return source.error(f"has no label: '{fields[0]}' is its only column; column {label} was expected.", number)
    needed = max(token, label, -token - 1, -label - 1)
    return source.error(
        f"has {len(fields)} columns, numbered from 0 to {len(fields) - 1}; column {needed} was expected.", number
    )
