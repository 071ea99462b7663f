"""The roles of a table's columns: as the options say, or guessed from the names that such columns usually have."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from crosstask.data.examples import Form
from crosstask.data.readers.table import Column, Table
from crosstask.errors import CrossTaskError
from crosstask.quoting import brief

# Usual names of columns in lower case, the more telling ones first.
TEXT_NAMES = ("text", "sentence", "review", "content", "document", "message", "comment", "utterance", "tweet")
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("#1 string", "#2 string"),
)
LABEL_NAMES = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "target",
    "sentiment",
    "stars",
    "rating",
    "quality",
)
TOKEN_NAMES = ("tokens", "words")
TAG_NAMES = ("tags", "ner_tags", "pos_tags", "chunk_tags", "upos", "labels", "label")


class TableOptions(TypedDict, total=False):
    """Options that every table takes.

    - `text`: the column with the text, or a list of two columns for pairs;
    - `label`: the column with the label, or a list of columns that hold 0 or 1, a label each;
    - `label_separator`: what stands between the labels of a column that holds several;
    - `features`: instead of `text`, a list of columns with numbers, or "rest" for all but the label;
    - `where`: {column: value}, the rows to take;
    - `empty`: what to do about empty texts: "error", "keep" or "drop";
    - `strip`: parts of newsgroup messages to take out of texts: a list of "headers", "quotes", "footers" (needs
      crosstask_papers).
    """

    text: Column | Sequence[Column] | None
    label: Column | Sequence[Column] | None
    label_separator: str | None
    features: Column | Sequence[Column] | None
    where: Mapping[Column, object] | None
    empty: str
    strip: str | Sequence[str] | None


class NestedTableOptions(TableOptions, total=False):
    """Options of tables whose cells may hold lists.

    - `tokens`: instead of `text`, the column with a list of words; the label column then holds a list of tags;
    - `features` may name a single column that holds a list of numbers.
    """

    tokens: Column | None


@dataclass(frozen=True)
class InputColumns:
    """Indices of the columns that make an input, and its form: one text, two (pair), a list of words, or a vector."""

    form: Form
    columns: tuple[int, ...]


@dataclass(frozen=True)
class ColumnRoles:
    """The columns of inputs and labels. `label` has one column, or several that hold 0 or 1 (`indicators`)."""

    inputs: InputColumns
    label: tuple[int, ...]
    indicators: bool = False


def find_roles(table: Table, options: NestedTableOptions) -> ColumnRoles:
    """The role of each column that is used."""
    named = [name for name in ("text", "tokens", "features") if options.get(name) is not None]
    if len(named) > 1:
        raise table.source.option_error(f"`{named[0]}` and `{named[1]}` exclude each other; give one of them.")
    text, tokens, features = options.get("text"), options.get("tokens"), options.get("features")
    label = options.get("label")
    indicators = isinstance(label, list | tuple)
    label_columns = table.find_all(label, "label")
    if indicators and not label_columns:
        raise table.source.option_error("`label` is an empty list; name a column.")
    if features is not None:  # "rest" depends on the label's columns
        label_columns = label_columns or (_guess_label(table, LABEL_NAMES, ()),)
        inputs = InputColumns("vector", _feature_columns(table, features, label_columns, options.get("where")))
        return ColumnRoles(inputs, label_columns, indicators)
    if tokens is not None:
        inputs = InputColumns("tokens", (table.find(tokens, "tokens"),))
    elif text is not None:
        inputs = _text_columns(table, text)
    else:
        inputs = _guess_inputs(table, label_columns)
    label_names = TAG_NAMES if inputs.form == "tokens" else LABEL_NAMES
    label_columns = label_columns or (_guess_label(table, label_names, inputs.columns),)
    return ColumnRoles(inputs, label_columns, indicators)


def guess_columns(table: Table, form: Form, excluded: Collection[int] = ()) -> tuple[int, ...]:
    """The columns with the usual names of texts, pairs or lists of words; none where no name is usual."""
    index_of = _unique_names(table)
    if form == "pair":
        for first, second in PAIR_NAMES:
            if first in index_of and second in index_of:
                columns = (index_of[first], index_of[second])
                if not set(columns) & set(excluded):
                    return columns
        return ()
    for name in TOKEN_NAMES if form == "tokens" else TEXT_NAMES:
        if name in index_of and index_of[name] not in excluded:
            return (index_of[name],)
    return ()


def _text_columns(table: Table, text: Column | Sequence[Column]) -> InputColumns:
    columns = table.find_all(text, "text")
    if len(columns) == 1:
        return InputColumns("text", columns)
    if len(columns) == 2:
        return InputColumns("pair", columns)
    raise table.source.option_error(f"`text` names one column, or two for pairs; found {len(columns)}.")


def _feature_columns(
    table: Table,
    features: Column | Sequence[Column],
    label_columns: tuple[int, ...],
    where: Mapping[Column, object] | None,
) -> tuple[int, ...]:
    if features == "rest":
        excluded = {*label_columns, *table.find_all(list(where or ()), "where")}
        rest = table.columns_but(excluded)
        if not rest:
            raise table.source.error("has no columns but the label's; `features: rest` finds none.")
        return rest
    columns = table.find_all(features, "features")
    if not columns:
        raise table.source.option_error("`features` is an empty list; name columns, or `rest` for all but the label.")
    for index in columns:
        if index in label_columns:
            raise table.source.option_error(f"the column '{brief(table.names[index])}' is both label and feature.")
    return columns


def _guess_inputs(table: Table, label_columns: tuple[int, ...]) -> InputColumns:
    """A pair, a text, tokens, or, of two columns, the one that is not the label."""
    # Pairs first: "sentence" is the name of a text, and of the second text of a pair.
    forms: tuple[Form, ...] = ("pair", "text", "tokens")
    for form in forms:
        columns = guess_columns(table, form, label_columns)
        if columns:
            return InputColumns(form, columns)
    index_of = _unique_names(table)
    excluded = label_columns or [index_of[name] for name in LABEL_NAMES if name in index_of]
    others = table.columns_but(excluded)
    if len(table.names) == 2 and len(others) == 1:
        return InputColumns("text", others)
    raise _unclear(table, "text")


def _guess_label(table: Table, names: Sequence[str], input_columns: tuple[int, ...]) -> int:
    index_of = _unique_names(table)
    for name in names:
        if name in index_of and index_of[name] not in input_columns:
            return index_of[name]
    others = table.columns_but(input_columns)
    if input_columns and len(others) == 1:
        return others[0]
    raise _unclear(table, "label")


def _unique_names(table: Table) -> dict[str, int]:
    """The index of each column by its name in lower case; a name that occurs twice is nothing to guess by."""
    names = [name.lower() for name in table.names]
    counts = Counter(names)
    return {name: index for index, name in enumerate(names) if counts[name] == 1}


def _unclear(table: Table, option: str) -> CrossTaskError:
    what = {"text": "text (or, for numbers, `features`)", "label": "label"}[option]
    return table.source.error(
        f"has no column that is plainly the {what}; name it with `{option}`. Its columns: {table.listing()}."
        f"{table.delimiter_hint()}"
    )
