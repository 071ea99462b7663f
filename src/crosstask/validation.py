"""Options by name: what a class or function takes, checked before it is called."""

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from crosstask.errors import CrossTaskError, did_you_mean


def option_names(function: Callable[..., Any], *, without: tuple[str, ...] = ()) -> list[str]:
    """Names of the options that a function takes by keyword.

    >>> option_names(lambda tasks, *, width, depth=1: None, without=("tasks",))
    ['width', 'depth']
    """
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [item.name for item in parameters if item.kind in kinds and item.name not in ("self", "cls", *without)]


def check_options(
    where: str, function: Callable[..., Any], options: Mapping[str, Any], *, without: tuple[str, ...] = ()
) -> None:
    """An unknown option names the closest known one; one that is missing or of the wrong sort is named."""
    known = option_names(function, without=without)
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters)  # and checks them itself
    for key in options:
        if key not in known and (key in without or not takes_any):
            hint = did_you_mean(str(key), known) if known else "It takes no options."
            raise CrossTaskError(f"{where}: unknown key '{key}'. {hint}")
    for item in parameters:
        if item.name in known and item.default is inspect.Parameter.empty and item.name not in options:
            raise CrossTaskError(f"{where}: the key '{item.name}' is missing.")
    check_values(where, function, options)


def check_values(where: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """A value must be of the sort that the function's annotation says; what is inside a list or mapping is its own."""
    annotated: Any = function
    hints = get_type_hints(annotated.__init__ if isinstance(function, type) else annotated)
    for key, value in options.items():
        hint = hints.get(key, Any)
        if fits(value, hint):
            continue
        choices = [str(choice) for choice in _choices(hint)]
        if choices and isinstance(value, str) and _is_choice(hint):
            raise CrossTaskError(f"{where}: `{key}` cannot be '{value}'. {did_you_mean(value, choices)}")
        raise CrossTaskError(f"{where}: `{key}` must be {describe(hint)}; found {shown(value)}.")


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of the sort that an annotation says.

    >>> fits(3, int | None), fits("3", int), fits(3, float), fits(True, int), fits([1], Sequence[int]), fits("a", Any)
    (True, False, True, False, True, True)
    """
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return any(value == choice and isinstance(value, type(choice)) for choice in get_args(hint))
    sort = origin or hint
    if sort in (Any, object):
        return True
    if isinstance(value, bool):
        return sort is bool
    if sort in (int, float, Path, Mapping, Sequence):
        wanted = {int: Integral, float: Real, Path: str | Path, Mapping: Mapping, Sequence: list | tuple}
        return isinstance(value, wanted[sort])
    return isinstance(value, sort) if isinstance(sort, type) else True


def describe(hint: Any) -> str:
    """An annotation in words.

    >>> describe(int), describe(str | Path | float | None), describe(Literal["best", "last"])
    ('a whole number', 'a text or a number', "'best' or 'last'")
    """
    if get_origin(hint) in (Union, types.UnionType):
        parts = [describe(part) for part in get_args(hint) if part is not types.NoneType]
        return " or ".join(dict.fromkeys(parts))
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a text"}
    words |= {list: "a list", Sequence: "a list", dict: "a mapping", Mapping: "a mapping"}
    return words.get(get_origin(hint) or hint, str(hint))


def shown(value: object) -> str:
    """A value as an error message quotes it: on one line, and not for ever.

    >>> shown("many"), shown(list(range(1000)))
    ("'many'", '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...')
    """
    text = repr(value)
    return text if len(text) <= 60 else text[:40].rstrip() + " ..."


def _choices(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        return [choice for part in get_args(hint) for choice in _choices(part)]
    return list(get_args(hint)) if get_origin(hint) is Literal else []


def _is_choice(hint: Any) -> bool:
    """Whether nothing but choices, or nothing at all, will do."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return all(part is types.NoneType or get_origin(part) is Literal for part in parts)


def name_and_options(where: str, given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """`tawt` or `{name: tawt, every: 50}`, taken apart.

    >>> name_and_options("weighting", {"name": "tawt", "every": 50})
    ('tawt', {'every': 50})
    """
    if isinstance(given, str):
        return given, {}
    options = dict(given)
    if not isinstance(options.get("name"), str):
        raise CrossTaskError(f"{where}: expected a name or a mapping with the key 'name', found {shown(given)}.")
    return options.pop("name"), options
