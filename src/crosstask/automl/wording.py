"""Differences of scores and lists of names as the sentences of a search have them."""

from collections.abc import Sequence

MAX_NAMES = 3


def amount(value: float, in_points: bool) -> str:
    """A difference with its sign: in points where the score is a fraction, else in units of the metric.

    >>> amount(0.0152, in_points=True), amount(-0.25, in_points=False)
    ('+1.5 points', '-0.250')
    """
    return f"{_signed(value, in_points)} points" if in_points else _signed(value, in_points)


def ahead(difference: float, in_points: bool) -> str:
    """Of somebody, or behind them.

    >>> ahead(0.0152, in_points=True), ahead(-0.25, in_points=False)
    ('1.5 points ahead of', '0.250 behind')
    """
    text = amount(abs(difference), in_points).removeprefix("+")
    return f"{text} ahead of" if difference >= 0.0 else f"{text} behind"


def likely(interval: tuple[float, float], in_points: bool) -> str:
    """The interval in which a difference lies four times of five.

    >>> likely((0.0, 0.031), in_points=True), likely((-0.004, 0.0004), in_points=True)
    ('80%: 0 to +3.1', '80%: -0.4 to 0')
    """
    low, high = interval
    return f"80%: {_signed(low, in_points)} to {_signed(high, in_points)}"


def quoted(names: Sequence[str]) -> str:
    """The first names.

    >>> quoted(["a", "b"]), quoted(["a", "b", "c", "d", "e"])
    ("'a' and 'b'", "'a', 'b', 'c' and 2 more")
    """
    texts = [f"'{name}'" for name in names[:MAX_NAMES]]
    if len(names) > MAX_NAMES:
        texts.append(f"{len(names) - MAX_NAMES} more")
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _signed(value: float, in_points: bool) -> str:
    text = f"{100.0 * value:+.1f}" if in_points else f"{value:+.3f}"
    return "0" if float(text) == 0.0 else text
