"""Errors that a user can act on: what was expected, what was found instead, where, and what to do."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType


class CrossTaskError(Exception):
    """A mistake that the user can correct. The command line shows its text alone, without a traceback."""


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """A sentence that suggests the closest known name, or lists what there is when nothing comes close.

    >>> did_you_mean("tawtt", ["tawt", "uniform"])
    "Did you mean 'tawt'?"
    >>> did_you_mean("xyz", ["tawt", "uniform"])
    'Known: tawt, uniform.'
    """
    # Upper and lower case are the most common slip, so they do not count.
    names = [str(known_name) for known_name in known_names]
    by_lower_case = {known_name.lower(): known_name for known_name in names}
    close = difflib.get_close_matches(str(name).lower(), list(by_lower_case), n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{by_lower_case[close[0]]}'?"
    if not names:
        return "There is none."
    return f"Known: {', '.join(names)}."


def unknown(what: str, name: object, known_names: Iterable[str]) -> CrossTaskError:
    """The error for a name that is not among the known ones.

    >>> str(unknown("weighting", "unifrom", ["uniform", "by-size"]))
    "Unknown weighting 'unifrom'. Did you mean 'uniform'?"
    """
    return CrossTaskError(f"Unknown {what} '{name}'. {did_you_mean(str(name), known_names)}")


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
        return import_module(f"crosstask_papers.{module}".removesuffix("."))
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("crosstask_papers"):
            raise  # what is missing is a package that the experiments need
        raise CrossTaskError(
            f"{purpose} is part of crosstask_papers, which is not installed. "
            "In a clone of the repository: pip install ./src/crosstask_papers"
        ) from error
