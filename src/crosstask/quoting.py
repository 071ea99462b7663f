"""Values and names as messages quote them: short, on one line, printable, whatever they are."""

import math
import re
from collections.abc import Iterable, Iterator

MAX_SHOWN = 60
"""Characters of a value or name."""
MAX_WORD, MAX_MESSAGE = 400, 4_000
"""Characters of one word or quotation, such as a path, and of a whole message."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a terminal would obey, and halves of characters, which no stream can write."""
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD},}}")
_QUOTATION = re.compile(r"(?<!\w)'([^']*)'(?!\w)")
"""What stands between two quotes that are no apostrophes."""


def readable(message: str) -> str:
    """A message that can be printed and read, on one line, whatever it quotes."""
    message = re.sub(r"\s*\n\s*", " ", message.strip())
    message = _LONG_WORD.sub(lambda word: ends_of(word[0]), message)
    message = _QUOTATION.sub(lambda quotation: f"'{ends_of(quotation[1])}'", message)
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 4 :]}"
    return _CONTROL.sub(lambda character: repr(character[0])[1:-1], message)


def ends_of(text: str) -> str:
    """A text, or only both ends of one that is too long to be read."""
    if len(text) < MAX_WORD:
        return text
    return f"{text[:MAX_SHOWN]}...{text[-MAX_SHOWN:]}"


def shown(value: object) -> str:
    """A value as an error message quotes it: on one line, and of limited length.

    >>> shown("many"), shown(list(range(1000)))
    ("'many'", '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...')
    """
    # Piece by piece, and no more than is shown: a few aliases of YAML can stand for billions of values.
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > MAX_SHOWN:
            return text[:40].rstrip() + " ..."
    return text


def _pieces(value: object) -> Iterator[str]:
    """The `repr` of a value in pieces of limited length; what holds other values begins with a piece of its own."""
    if isinstance(value, str | bytes):
        yield repr(value[: MAX_SHOWN + 1])
    elif isinstance(value, int) and value.bit_length() > 3 * MAX_SHOWN:
        # Python itself refuses to write thousands of digits.
        yield f"a whole number of about {round(value.bit_length() * math.log10(2)):,} digits"
    elif isinstance(value, list):
        yield from _pieces_of_items("[", value, "]")
    elif isinstance(value, tuple):
        yield from _pieces_of_items("(", value, ",)" if len(value) == 1 else ")")
    elif isinstance(value, set | frozenset) and value:
        yield from _pieces_of_items("{", value, "}")
    elif isinstance(value, dict):
        yield "{"
        for position, (key, item) in enumerate(value.items()):
            yield ", " * (position > 0)
            yield from _pieces(key)
            yield ": "
            yield from _pieces(item)
        yield "}"
    else:
        yield _safe_repr(value)


def _pieces_of_items(opening: str, items: Iterable[object], closing: str) -> Iterator[str]:
    yield opening
    for position, item in enumerate(items):
        yield ", " * (position > 0)
        yield from _pieces(item)
    yield closing


def _safe_repr(value: object) -> str:
    """The `repr` of an object of any class, on one line; a table, which takes several, begins with its class."""
    try:
        text = repr(value)
    except Exception:  # code of any class, which may fail in any way
        text = f"<{type(value).__name__}>"
    if "\n" in text and not text.startswith(type(value).__name__):
        text = f"{type(value).__name__}: {text}"
    return " ".join(text[:1_000].split())


def brief(name: object) -> str:
    """A name as it stands between quotes in a message: cut where it is long, and on one line.

    >>> brief("tawt"), brief("two\\nlines"), len(brief("x" * 5000))
    ('tawt', 'two\\\\nlines', 64)
    """
    if not isinstance(name, str):
        return shown(name)
    if len(name) > MAX_SHOWN:
        name = name[:MAX_SHOWN] + " ..."
    return name if name.isprintable() else repr(name)[1:-1]
