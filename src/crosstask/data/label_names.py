"""What labels mean, as texts: their descriptions, or the words of their names."""

import re
from collections.abc import Mapping, Sequence

from crosstask.data.examples import Kind, TaskSpec
from crosstask.data.metrics import SPAN_PREFIXES
from crosstask.data.plain_text import has_lone_surrogate, text_of
from crosstask.errors import CrossTaskError, unknown
from crosstask.quoting import brief
from crosstask.validation import shown

NAMED_KINDS: tuple[Kind, ...] = ("classification", "multilabel", "tagging")
"""Kinds of task whose labels say something of one text or word: those of pairs say how two texts relate."""
_SEPARATORS = re.compile(r"[\s_\-./\\:|]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LETTERS = re.compile(r"[^\W\d_]+")
_FIRST_UNSPACED = "\u2e80"
"""From here on are scripts in which one character can be a word."""


def words_of(label: str) -> str:
    """A label as words: names of programs are taken apart.

    >>> words_of("card_not_working"), words_of("cardArrival"), words_of("sci.space"), words_of("HTTPError 404")
    ('card not working', 'card Arrival', 'sci space', 'HTTP Error 404')
    """
    pieces: list[str] = []
    for piece in _SEPARATORS.split(label):
        pieces += _HUMP.split(piece)
    return " ".join(piece for piece in pieces if piece)


def has_words(text: str) -> bool:
    """Whether there is a word in a text: two letters in a row, or one of a script that writes words so.

    >>> has_words("card lost"), has_words("5"), has_words("+"), has_words("B"), has_words("猫")
    (True, False, False, False, True)
    """
    return any(len(letters) > 1 or letters >= _FIRST_UNSPACED for letters in _LETTERS.findall(text))


def span_type(tag: str) -> str:
    """What a tag of a span says of it, without the prefix.

    >>> span_type("B-PER"), span_type("NOUN"), span_type("O")
    ('PER', 'NOUN', 'O')
    """
    if tag[:1] in SPAN_PREFIXES and tag[1:2] == "-":
        return tag[2:]
    return tag


def label_texts(spec: TaskSpec) -> list[str | None]:
    """What each label means: its description, or the words of its name; None where there is nothing to read.

    A tag without words, such as O, says nothing; the name of a class can be a code that an encoder knows.

    >>> label_texts(TaskSpec("stars", "classification", "text", ("very_bad", "5"), descriptions=("", "excellent")))
    ['very bad', 'excellent']
    """
    descriptions = spec.descriptions or ("",) * len(spec.labels)
    texts: list[str | None] = []
    for label, description in zip(spec.labels, descriptions, strict=True):
        name = span_type(label) if spec.kind == "tagging" else label
        text = description or words_of(name)
        is_readable = has_words(text) or (spec.kind != "tagging" and any(sign.isalnum() for sign in text))
        texts.append(text if is_readable else None)
    return texts


def check_label_texts(spec: TaskSpec) -> None:
    """Raise an error that says why the labels of a task mean nothing to an encoder of texts, if they do not.

    Most must have words; of tags at least one.
    """
    if spec.kind not in NAMED_KINDS:
        raise CrossTaskError(
            f"Task '{spec.name}' is of the kind {spec.kind}: only labels of texts and words have names that say "
            "something of a text. Use `head: probe`, or another paradigm than 'names'."
        )
    texts = label_texts(spec)
    missing: list[str] = []
    for label, text in zip(spec.labels, texts, strict=True):
        if text is None or not has_words(text):
            missing.append(label)
    if spec.kind == "tagging":
        is_refused = len(missing) == len(spec.labels)
    else:
        is_refused = None in texts or 2 * len(missing) >= len(spec.labels)
    if is_refused:
        verb = "is no word" if len(missing) == 1 else "are no words"
        raise CrossTaskError(
            f"Task '{spec.name}': what the labels mean is to be read from their names, but {_listed(missing)} {verb}. "
            f"Say it with `descriptions`, as in {{{brief(missing[0])}: what it means}}, or leave names out."
        )


def has_label_texts(spec: TaskSpec) -> bool:
    """Whether labels mean something to an encoder of texts."""
    try:
        check_label_texts(spec)
    except CrossTaskError:
        return False
    return True


def ordered_descriptions(
    task: str, kind: Kind, labels: Sequence[str], descriptions: Mapping[object, object] | None
) -> tuple[str, ...]:
    """A description for each label, or "" where there is none; nothing where there are none at all.

    Tags of spans may be described by their type, without B- and I-.
    """
    if not descriptions:
        return ()
    texts: dict[str, str] = {}
    for key, value in descriptions.items():
        label = text_of(key)
        if not isinstance(value, str) or not has_words(value) or has_lone_surrogate(value):
            raise CrossTaskError(
                f"Task '{task}': `descriptions` says in words what a label means; found {shown(value)} for "
                f"{shown(label)}."
            )
        texts[label] = " ".join(value.split())
    types = [span_type(label) if kind == "tagging" else label for label in labels]
    for label in texts:
        if label not in labels and label not in types:
            raise CrossTaskError(f"Task '{task}': `descriptions`: {unknown('label', label, dict.fromkeys(labels))}")
    return tuple(texts.get(label, texts.get(type_, "")) for label, type_ in zip(labels, types, strict=True))


def _listed(labels: Sequence[str]) -> str:
    """A few labels for people."""
    names = ", ".join(brief(label) for label in labels[:5])
    return f"{names} and {len(labels) - 5} more" if len(labels) > 5 else names
