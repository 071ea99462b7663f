"""Checks of options and losses, with the messages that several methods share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import TypeVar

from crosstask.errors import CrossTaskError, unknown
from crosstask.limits import MAX_COUNT, MAX_NUMBER, MAX_SEED, limit_text
from crosstask.quoting import brief, shown

Option = TypeVar("Option")


def check_number(
    method: str,
    option: str,
    value: float,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float = MAX_NUMBER,
    what: str = "weighting",
) -> float:
    """The option as a finite number, or an error that says what it must be.

    >>> check_number("gradnorm", "alpha", 1.5, at_least=0.0)
    1.5
    """
    limit = ""
    if above is not None:
        limit = f" above {above}"
    elif at_least is not None:
        limit = f" >= {at_least}"
    is_number = isinstance(value, Real) and not isinstance(value, bool) and -math.inf < value < math.inf
    if not is_number or (above is not None and value <= above) or (at_least is not None and value < at_least):
        raise CrossTaskError(f"{what} '{method}': `{option}` must be a number{limit}, found {shown(value)}.")
    if abs(value) > at_most:
        raise CrossTaskError(
            f"{what} '{method}': `{option}` must be a number of at most {limit_text(at_most)}, found {shown(value)}."
        )
    return float(value)


def check_count(
    method: str, option: str, value: int, *, at_least: int = 1, at_most: int = MAX_COUNT, what: str = "weighting"
) -> int:
    """The option as a whole number."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise CrossTaskError(
            f"{what} '{method}': `{option}` must be a whole number >= {at_least}, found {shown(value)}."
        )
    if value > at_most:
        raise CrossTaskError(
            f"{what} '{method}': `{option}` must be a whole number of at most {limit_text(at_most)}, "
            f"found {shown(value)}."
        )
    return int(value)


def check_seed(method: str, value: int) -> int:
    """The option `seed`."""
    return check_count(method, "seed", value, at_least=0, at_most=MAX_SEED)


def check_mapping(method: str, option: str, values: Mapping[str, float]) -> None:
    """The option must have a value for each of some tasks."""
    if not isinstance(values, Mapping):
        raise CrossTaskError(
            f"weighting '{method}': `{option}` must be a mapping from names of tasks, found {shown(values)}."
        )


def check_counts(method: str, option: str, values: Mapping[str, int] | None) -> dict[str, int] | None:
    """Whole numbers by task, or nothing."""
    if values is None:
        return None
    check_mapping(method, option, values)
    counts: dict[str, int] = {}
    for task, value in values.items():
        counts[task] = check_count(method, f"{option}.{brief(task)}", value)
    return counts


def check_task_names(method: str, option: str, names: Sequence[str], *, what: str = "weighting") -> list[str]:
    """Names of tasks, each once."""
    is_list = isinstance(names, Iterable) and not isinstance(names, str)
    if not is_list or not all(isinstance(name, str) for name in names):
        raise CrossTaskError(f"{what} '{method}': `{option}` must be a list of names of tasks, found {shown(names)}.")
    return list(dict.fromkeys(names))


def check_choice(
    method: str, option: str, value: str | None, choices: Iterable[str | None], *, what: str = "weighting"
) -> str | None:
    """The option, if it is one of the choices."""
    names = list(choices)
    if not isinstance(value, str | None) or value not in names:
        raise unknown(f"`{option}` of {what} '{method}':", value, [str(name) for name in names])
    return value


def renamed(value: Option, old_value: Option | None) -> Option:
    """An option that may still be passed by its old name."""
    return value if old_value is None else old_value


def check_known_tasks(method: str, option: str, tasks: Iterable[str], all_tasks: Sequence[str]) -> None:
    """Every task that an option names must exist."""
    for task in tasks:
        if task not in all_tasks:
            raise unknown(f"task in `{option}` of weighting '{method}':", task, all_tasks)


def check_not_negative(method: str, losses: Mapping[str, float]) -> None:
    """For methods whose formula has no meaning for losses below zero."""
    for task, loss in losses.items():
        if loss < 0.0:
            raise CrossTaskError(
                f"weighting '{method}' needs losses that are not negative, but that of '{task}' is {loss:.6g}. "
                "Add a constant to it, or choose a weighting that does not divide by losses."
            )


def check_positive(method: str, losses: Mapping[str, float], reason: str) -> None:
    """For methods that divide by a loss."""
    for task, loss in losses.items():
        if not loss > 0.0:
            raise CrossTaskError(
                f"weighting '{method}' needs losses above zero {reason}, but that of '{task}' is {loss:.6g}."
            )
