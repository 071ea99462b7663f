"""The names of the package, from their docstrings."""

import inspect
from functools import cached_property
from typing import Any

import crosstask
from docstrings import cell, markdown, parse, table
from options_table import shown_default

INTRODUCTION = (
    "What `import crosstask as ct` offers beside the classes of all [weightings](../methods/weightings/index.md) and "
    "[transfers](../methods/transfers/index.md)."
)

PROPERTIES = (property, cached_property)


def python_page() -> str:
    """A section for every exported class and function."""
    names = [name for name in crosstask.__all__ if not name.startswith("_")]
    sections = [_section(name, getattr(crosstask, name)) for name in names]
    return "\n\n".join(["# Python", INTRODUCTION, *sections])


def _section(name: str, exported: Any) -> str:
    described = parse(exported)
    parts = [f"## {name}", markdown(described.summary), *map(markdown, (*described.body, *described.needs))]
    if described.arguments:
        parts.append(_arguments(exported, described.arguments))
    if inspect.isclass(exported) and not issubclass(exported, Exception):
        parts += _members(exported)
    if described.example:
        parts.append(f"```pycon\n{described.example}\n```")
    return "\n\n".join(parts)


def _arguments(exported: Any, meanings: dict[str, str]) -> str:
    """What the docstring says of each argument; types would be names of classes here, which say little."""
    parameters = inspect.signature(exported).parameters
    rows = [(f"`{name}`", shown_default(parameters[name].default), cell(text)) for name, text in meanings.items()]
    return table(("argument", "when left out", "meaning"), rows)


def _members(exported: type) -> list[str]:
    """Public methods and properties with what each does; fields of a data class are told by its docstring."""
    members = inspect.getmembers(exported, _is_own)
    rows = [
        (f"`{name}{'' if isinstance(member, PROPERTIES) else '()'}`", markdown(" ".join(parse(member).summary.split())))
        for name, member in members
        if not name.startswith("_") and parse(member).summary
    ]
    return [table(("member", "in a line"), rows)] if rows else []


def _is_own(item: object) -> bool:
    """Whether a member is a method or property of ours; what scikit-learn's classes add is described there."""
    if isinstance(item, PROPERTIES):
        return True
    return inspect.isroutine(item) and str(getattr(item, "__module__", "")).startswith("crosstask")
