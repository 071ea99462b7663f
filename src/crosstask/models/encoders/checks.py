"""Checks of encoder options; each error names the option as a recipe spells it."""

from crosstask.errors import CrossTaskError


def check_counts(least: int = 1, **counts: object) -> None:
    """Every option must be a whole number, at least `least`."""
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise CrossTaskError(f"encoder: `{name}` must be a whole number, at least {least}; found {value!r}.")


def check_dropout(dropout: object) -> None:
    """Dropout is a share below one."""
    if not isinstance(dropout, int | float) or isinstance(dropout, bool) or not 0.0 <= dropout < 1.0:
        raise CrossTaskError(
            f"encoder: `dropout` must be a number from 0 up to, but not including, 1; found {dropout!r}."
        )
