"""Errors that a user can act on: what was expected, what was found instead, where, and what to do."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from crosstask.quoting import brief, readable, shown

MAX_LISTED = 400
"""Characters of a list of names."""
MAX_COMPARED, MAX_COMPARED_LETTERS = 2_000, 100
"""Names, and letters of each, among which the closest is looked for: the time grows with the square of both."""


class CrossTaskError(Exception):
    """A mistake that the user can correct. The command line shows its text alone, without a traceback.

    Whatever the message quotes, it can be printed and read: a word of thousands of letters is cut.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(readable(str(message)))


class MissingPackageError(CrossTaskError):
    """An optional package is needed that is not installed."""


class RemoteCodeError(CrossTaskError):
    """A model needs code that comes with it, which is not run without the user's word."""


class RemoteCodeWarning(UserWarning):
    """Code that comes with a model is about to run, because the user has asked for it."""


class CrossTaskWarning(UserWarning):
    """Something about a result that its user should know, such as a source that took no part in the end."""


def did_you_mean(name: object, known_names: Iterable[object]) -> str:
    """A sentence that suggests the closest known name, or lists what there is when nothing comes close.

    >>> did_you_mean("tawtt", ["tawt", "uniform"])
    "Did you mean 'tawt'?"
    >>> did_you_mean("xyz", ["tawt", "uniform"])
    'Known: tawt, uniform.'
    """
    # Upper and lower case are the most common slip, so they do not count.
    names = [_full_name(known_name) for known_name in known_names]
    by_lower_case: dict[str, str] = {}
    for known_name in names[:MAX_COMPARED]:
        by_lower_case[known_name[:MAX_COMPARED_LETTERS].lower()] = known_name
    letters = _full_name(name)[:MAX_COMPARED_LETTERS].lower()
    close = difflib.get_close_matches(letters, list(by_lower_case), n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{brief(by_lower_case[close[0]])}'?"
    if not names:
        return "There is none."
    return f"Known: {_listed(names)}."


def _full_name(name: object) -> str:
    return name if isinstance(name, str) else shown(name)


def _listed(names: list[str]) -> str:
    """Names in a row; those that are too many are counted."""
    texts: list[str] = []
    num_characters = 0
    for name in names:
        if num_characters > MAX_LISTED:
            return f"{', '.join(texts)} and {len(names) - len(texts):,} more"
        texts.append(brief(name))
        num_characters += len(texts[-1]) + 2
    return ", ".join(texts)


def unknown(what: str, name: object, known_names: Iterable[object]) -> CrossTaskError:
    """The error for a name that is not among the known ones.

    >>> str(unknown("weighting", "unifrom", ["uniform", "by-size"]))
    "Unknown weighting 'unifrom'. Did you mean 'uniform'?"
    """
    return CrossTaskError(f"Unknown {what} '{brief(name)}'. {did_you_mean(name, known_names)}")


def import_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package where it is used, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs the package '{module.split('.')[0]}', which is not installed. "
            f'Install it with: pip install "crosstask[{extra}]"'
        ) from error


def import_papers(module: str, *, purpose: str) -> ModuleType:
    """Import a module of `crosstask_papers`, which stands beside this package, or say how to install it."""
    try:
        return import_module(f"crosstask_papers.{module}".removesuffix("."))
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("crosstask_papers"):
            raise  # what is missing is a package that the experiments need
        raise CrossTaskError(
            f"{purpose} is part of crosstask_papers, which is not installed. "
            "In a clone of the repository: pip install ./src/crosstask_papers"
        ) from error
