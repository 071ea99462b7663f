"""What options and losses must be: one place for the errors that several methods share."""

import math
from collections.abc import Iterable, Mapping, Sequence

from crosstask.errors import CrossTaskError, unknown


def number(
    method: str,
    option: str,
    value: float,
    *,
    above: float | None = None,
    at_least: float | None = None,
    what: str = "weighting",
) -> float:
    """The option as a number, or an error that says what it must be.

    >>> number("gradnorm", "alpha", 1.5, at_least=0.0)
    1.5
    """
    limit = "" if above is None and at_least is None else f" above {above}" if above is not None else f" >= {at_least}"
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or (above is not None and value <= above) or (at_least is not None and value < at_least):
        raise CrossTaskError(f"{what} '{method}': `{option}` must be a number{limit}, found {value!r}.")
    return float(value)


def count(method: str, option: str, value: int, *, at_least: int = 1, what: str = "weighting") -> int:
    """The option as a whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise CrossTaskError(f"{what} '{method}': `{option}` must be a whole number >= {at_least}, found {value!r}.")
    return value


def choice(
    method: str, option: str, value: str | None, known: Iterable[str | None], *, what: str = "weighting"
) -> str | None:
    """The option, if it is among those known."""
    names = list(known)
    if value not in names:
        raise unknown(f"`{option}` of {what} '{method}':", value, [str(name) for name in names])
    return value


def known_tasks(method: str, option: str, named: Iterable[str], tasks: Sequence[str]) -> None:
    """Every task that an option names must exist."""
    for task in named:
        if task not in tasks:
            raise unknown(f"task in `{option}` of weighting '{method}':", task, tasks)


def losses_not_negative(method: str, values: Mapping[str, float]) -> None:
    """For methods whose formula has no meaning for losses below zero."""
    for task, value in values.items():
        if value < 0.0:
            raise CrossTaskError(
                f"weighting '{method}' needs losses that are not negative, but that of '{task}' is {value:.6g}. "
                "Add a constant to it, or choose a weighting that does not divide by losses."
            )


def losses_positive(method: str, values: Mapping[str, float], why: str) -> None:
    """For methods that divide by a loss."""
    for task, value in values.items():
        if not value > 0.0:
            raise CrossTaskError(
                f"weighting '{method}' needs losses above zero {why}, but that of '{task}' is {value:.6g}."
            )
