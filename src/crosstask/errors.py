"""Errors that a person can act on: what was expected, what was found, where, and what to do."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType


class CrossTaskError(Exception):
    """A mistake that the user can mend. The command line shows its text alone, without a traceback."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the closest known name, or lists what there is when nothing comes close.

    >>> did_you_mean("tawtt", ["tawt", "uniform"])
    "Did you mean 'tawt'?"
    >>> did_you_mean("xyz", ["tawt", "uniform"])
    'Known: tawt, uniform.'
    """
    names = [str(item) for item in known]
    lowered = {item.lower(): item for item in names}
    close = difflib.get_close_matches(str(name).lower(), list(lowered), n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{lowered[close[0]]}'?"
    return f"Known: {', '.join(names)}." if names else "There is none."


def unknown(what: str, name: object, known: Iterable[str]) -> CrossTaskError:
    """The error for a name that is not among the known ones.

    >>> str(unknown("weighting", "unifrom", ["uniform", "by-size"]))
    "Unknown weighting 'unifrom'. Did you mean 'uniform'?"
    """
    return CrossTaskError(f"Unknown {what} '{name}'. {did_you_mean(str(name), known)}")


def import_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package where it is used, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise CrossTaskError(
            f"{purpose} needs the package '{module.split('.')[0]}', which is not installed. "
            f'Install it with: pip install "crosstask[{extra}]"'
        ) from error


def import_papers(module: str, *, purpose: str) -> ModuleType:
    """Import a module of `crosstask_papers`, which stands beside this package, or say how to install it."""
    try:
        return import_module(f"crosstask_papers.{module}" if module else "crosstask_papers")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("crosstask_papers"):
            raise
        raise CrossTaskError(
            f"{purpose} is part of crosstask_papers, which is not installed. "
            "In a clone of the repository: pip install ./src/crosstask_papers"
        ) from error
