"""Tables of options: names, types and defaults from a signature, what they mean from its docstring."""

import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union, Unpack, get_args, get_origin, get_type_hints

from crosstask.validation import describe
from docstrings import cell, parse, table

HEAD = ("option", "value", "when left out", "meaning")


def option_rows(
    function: Callable[..., Any],
    *,
    without: tuple[str, ...] = (),
    meanings: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> list[tuple[str, ...]]:
    """A row for each option of a function, or of a class's constructor.

    Options by `**options: Unpack[...]` have rows if their defaults are given; the type documents them as arguments.
    """
    documented = parse(function).arguments | dict(meanings or {})
    annotated: Any = function
    hints = get_type_hints(annotated.__init__ if isinstance(function, type) else annotated)
    rows: list[tuple[str, ...]] = []
    for item in inspect.signature(function).parameters.values():
        if item.name in ("self", "cls", *without):
            continue
        if get_origin(item.annotation) is Unpack:
            rows += _keyword_rows(get_args(item.annotation)[0], defaults or {})
            continue
        more = item.kind is inspect.Parameter.VAR_KEYWORD
        default = "" if more else shown_default(item.default)
        meaning = cell(documented.get(item.name, ""))
        rows.append((f"`{item.name}`" if not more else "further ones", sort(hints[item.name]), default, meaning))
    return rows


def _keyword_rows(options: type, defaults: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows for the keys of a typed dictionary that have a default."""
    documented = parse(options).arguments
    hints = get_type_hints(options)
    return [
        (f"`{name}`", sort(hints[name]), shown_default(default), cell(documented.get(name, "")))
        for name, default in defaults.items()
        if name in hints
    ]


def option_table(function: Callable[..., Any], **choices: Any) -> str:
    """The rows as a table, or a sentence where there are none."""
    rows = option_rows(function, **choices)
    return table(HEAD, rows) if rows else "It has no options."


def sort(hint: Any) -> str:
    """An annotation in words, those of the error messages.

    >>> sort(int | None), sort(Any)
    ('a whole number', 'any')
    """
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words = [_word(part) for part in parts if part is not types.NoneType]
    return " or ".join(dict.fromkeys(words))


def _word(hint: Any) -> str:
    return "any" if hint in (Any, object) else cell(describe(hint))


def shown_default(default: Any) -> str:
    """A default as a recipe would write it."""
    if default is inspect.Parameter.empty:
        return "must be given"
    if default is None:
        return "–"
    if default == "\t":
        return "`tab`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple | list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{default}`" if isinstance(default, str | Path) else f"`{default!r}`"
