"""Which column of a table is what: as the user says, or by the names that such columns usually have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from crosstask.data.readers.table import Column, Table
from crosstask.errors import CrossTaskError

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
    - `strip`: parts of newsgroup messages to take out of texts: a list of "headers", "quotes", "footers".
    """

    text: Column | Sequence[Column] | None
    label: Column | Sequence[Column] | None
    label_separator: str | None
    features: Column | Sequence[Column] | None
    where: Mapping[Column, Any] | None
    empty: str
    strip: str | Sequence[str] | None


class NestedTableOptions(TableOptions, total=False):
    """Options of tables whose cells may hold lists.

    - `tokens`: instead of `text`, the column with a list of words; the label column then holds a list of tags;
    - `features` may name a single column that holds a list of numbers.
    """

    tokens: Column | None


@dataclass(frozen=True)
class Roles:
    """Columns by number. One of `text` (one, or two for pairs), `tokens` and `features` is given.

    `label` has one column, or several that hold 0 or 1 (`indicators`).
    """

    label: tuple[int, ...]
    indicators: bool = False
    text: tuple[int, ...] = ()
    tokens: int | None = None
    features: tuple[int, ...] = ()


def find_roles(table: Table, options: NestedTableOptions) -> Roles:
    """The role of each column that is used."""
    text, label = options.get("text"), options.get("label")
    features, tokens = options.get("features"), options.get("tokens")
    given = [name for name in ("text", "tokens", "features") if options.get(name) is not None]
    if len(given) > 1:
        raise table.source.option_error(f"`{given[0]}` and `{given[1]}` exclude each other; give one of them.")
    if not given:
        text, tokens = _guess_inputs(table, options)
    indicators = isinstance(label, list | tuple)
    labels = tuple(table.find(column, "label") for column in _listed(label))
    if indicators and not labels:
        raise table.source.option_error("`label` is an empty list; name a column.")
    if tokens is not None:
        words = table.find(tokens, "tokens")
        return Roles(labels or (_guess_label(table, TAG_NAMES, (words,)),), indicators, tokens=words)
    if text is not None:
        texts = tuple(table.find(column, "text") for column in _listed(text))
        if len(texts) not in (1, 2):
            raise table.source.option_error(f"`text` names one column, or two for pairs; found {len(texts)}.")
        return Roles(labels or (_guess_label(table, LABEL_NAMES, texts),), indicators, text=texts)
    labels = labels or (_guess_label(table, LABEL_NAMES, ()),)
    return Roles(labels, indicators, features=_features(table, features, labels, options))


def _features(table: Table, features: Any, labels: tuple[int, ...], options: NestedTableOptions) -> tuple[int, ...]:
    if features == "rest":
        chosen = {table.find(column, "where") for column in options.get("where") or {}}
        rest = tuple(place for place in range(len(table.names)) if place not in chosen and place not in labels)
        if not rest:
            raise table.source.error("has no columns but the label's; `features: rest` finds none.")
        return rest
    places = tuple(table.find(column, "features") for column in _listed(features))
    if not places:
        raise table.source.option_error("`features` is an empty list; name columns, or `rest` for all but the label.")
    shared = [place for place in places if place in labels]
    if shared:
        raise table.source.option_error(f"the column '{table.names[shared[0]]}' is both label and feature.")
    return places


def _listed(columns: Any) -> list[Any]:
    if columns is None:
        return []
    return list(columns) if isinstance(columns, list | tuple) else [columns]


def _guess_inputs(table: Table, options: NestedTableOptions) -> tuple[Any, Any]:
    """Text and token columns where the user names neither: a pair, a text, tokens, or all that the label leaves."""
    names = _by_lower_case(table)
    taken = {table.names[table.find(column, "label")] for column in _listed(options.get("label"))}
    for first, second in PAIR_NAMES:
        if first in names and second in names and not taken & {names[first], names[second]}:
            return [names[first], names[second]], None
    for candidates, as_tokens in ((TEXT_NAMES, False), (TOKEN_NAMES, True)):
        for candidate in candidates:
            if candidate in names and names[candidate] not in taken:
                return (None, names[candidate]) if as_tokens else (names[candidate], None)
    taken = taken or {names[name] for name in LABEL_NAMES if name in names}
    others = [name for name in table.names if name not in taken]
    if len(table.names) == 2 and len(others) == 1:
        return others[0], None
    raise _unclear(table, "text")


def _guess_label(table: Table, candidates: Sequence[str], inputs: tuple[int, ...]) -> int:
    names = _by_lower_case(table)
    for candidate in candidates:
        if candidate in names and table.names.index(names[candidate]) not in inputs:
            return table.names.index(names[candidate])
    others = [place for place in range(len(table.names)) if place not in inputs]
    if inputs and len(others) == 1:
        return others[0]
    raise _unclear(table, "label")


def _by_lower_case(table: Table) -> dict[str, str]:
    """Names that occur once, by their lower-case form; a name that occurs twice is nothing to guess by."""
    lowered = [name.lower() for name in table.names]
    return {low: name for low, name in zip(lowered, table.names, strict=True) if lowered.count(low) == 1}


def _unclear(table: Table, option: str) -> CrossTaskError:
    what = {"text": "text (or, for numbers, `features`)", "label": "label"}[option]
    return table.source.error(
        f"has no column that is plainly the {what}; name it with `{option}`. Its columns: {table.listing()}."
        f"{table.hint()}"
    )
