"""Options by name: what a class or function takes, checked before it is called."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

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
    """An unknown option names the closest known one; a required one that is missing is named."""
    known = option_names(function, without=without)
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known) if known else "It takes no options."
            raise CrossTaskError(f"{where}: unknown key '{key}'. {hint}")
    for item in inspect.signature(function).parameters.values():
        if item.name in known and item.default is inspect.Parameter.empty and item.name not in options:
            raise CrossTaskError(f"{where}: the key '{item.name}' is missing.")


def name_and_options(where: str, given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """`tawt` or `{name: tawt, every: 50}`, taken apart.

    >>> name_and_options("weighting", {"name": "tawt", "every": 50})
    ('tawt', {'every': 50})
    """
    if isinstance(given, str):
        return given, {}
    options = dict(given)
    if not isinstance(options.get("name"), str):
        raise CrossTaskError(f"{where}: expected a name or a mapping with the key 'name', found {given!r}.")
    return options.pop("name"), options
