"""CoNLL-U and its extensions with more columns."""

from collections.abc import Iterable, Iterator, Sequence

from crosstask.data.examples import Examples
from crosstask.data.plain_text import text_of
from crosstask.data.readers.columns import Row, is_word, sentences, up_to_first_word
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Column
from crosstask.errors import did_you_mean
from crosstask.quoting import brief, shown

NAMES: tuple[str, ...] = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_GLOBAL_COLUMNS = "# global.columns ="


def read_conllu(source: Source, *, token: Column = "form", label: Column = "upos") -> Examples:
    """Sentences of syntactic words; ranges such as `4-5` and empty nodes such as `8.1` are left out.

    Further columns may vary by sentence, as those of predicates and their arguments do in PropBank's files.

    Args:
        source: the file.
        token: the column with the word: a standard name (id, form, lemma, upos, ...), a name that the file's first line
            `# global.columns = ...` gives, or a number from 0 or from the end.
        label: the column with the label, likewise.
    """
    first_lines, lines = up_to_first_word(source.lines())
    names = NAMES
    if first_lines[0].startswith(_GLOBAL_COLUMNS):
        names = tuple(first_lines[0][len(_GLOBAL_COLUMNS) :].split())
    width = 0
    if is_word(first_lines[-1]):
        width = first_lines[-1].count("\t") + 1
    if names is NAMES and 0 < width < len(NAMES):
        raise source.error(
            f"is no CoNLL-U: its words have {width} columns separated by tabs, not 10; `format: columns` may fit."
        )
    token_index = _column_index(source, token, "token", names, width)
    label_index = _column_index(source, label, "label", names, width)
    may_vary = names is NAMES and not any(isinstance(column, int) and column < 0 for column in (token, label))
    return sentences(source, _rows(source, lines, width, may_vary=may_vary), token_index, label_index)


def _rows(source: Source, lines: Iterable[str], width: int, *, may_vary: bool) -> Iterator[Row | None]:
    """Line numbers and fields, None where a sentence ends; sentences may have columns beside the standard ones."""
    begins = True
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            begins = True
            yield None
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if begins and may_vary and len(fields) >= len(NAMES):
            width = len(fields)
        if len(fields) != width:
            hint = ""
            if begins and not may_vary and len(fields) >= len(NAMES):
                hint = " If columns vary by sentence, count both from the left."
            raise source.error(
                f"has {len(fields)} column{'s' * (len(fields) != 1)} separated by tabs; expected {width}.{hint}", number
            )
        begins = False
        if fields[0].isdigit():
            yield number, fields
        elif not fields[0].replace("-", "").replace(".", "").isdigit():  # neither a range nor an empty node
            raise source.error(
                f"begins with '{brief(fields[0])}'; a CoNLL-U line begins with the word's number.", number
            )


def _column_index(source: Source, column: Column, option: str, names: Sequence[str], width: int) -> int:
    if isinstance(column, int) and not isinstance(column, bool):
        if not -width <= column < width:
            raise source.error(
                f"has {width} columns, numbered from 0 to {width - 1}; `{option}` asks for {shown(column)}."
            )
        return column % width
    lowered = [name.lower() for name in names]
    column_name = text_of(column)
    if column_name.lower() not in lowered:
        raise source.error(f"has no column '{brief(column_name)}' (`{option}`). {did_you_mean(column_name, names)}")
    return lowered.index(column_name.lower())
