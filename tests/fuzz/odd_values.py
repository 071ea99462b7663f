"""Values that programs trip over, as texts, as plain data and as pieces of YAML."""

import math
from typing import Any

from hypothesis import strategies as st

DIGITS = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000

NUMBERS = (
    *("nan", "NaN", "inf", "-inf", "1e300", "-1e308", "1e999", "1e-320", "0", "-0", "-1", "0.5", "1_000", "0x10"),
    *("²", "٣", "1,5", "+1", "1e", ".", "--1", "9223372036854775807", "9223372036854775808", "18446744073709551615"),
    *(f"1{'0' * 30}", DIGITS, f"0.{DIGITS}"),
)
"""Numbers, and what looks like one."""
TEXTS = (
    *("", " ", "\t", "\n", "\r", "\r\n", "\0", "\x1a", "\x1c", "\x85", "\u2028", "\ufeff", "\u202e", "é", "e\u0301"),
    *(
        "🙂",
        "\ud800",
        "\udfff",
        "\\ud800",
        "'",
        '"',
        '""',
        '"a',
        "\\",
        "\\N",
        "a" * 5000,
        "?",
        "-",
        "_",
        "#",
        "%",
        "%c",
    ),
    *("%s%n", "{0}", "{", "}", "[", "]", "[]", "{}", "null", "None", "true", "yes", "*", "/", "/(/", "/(.)/", "x\\2"),
    *(
        "=1+1",
        "@SUM(A1)",
        "-1+1",
        "<script>",
        "../..",
        "/dev/zero",
        "con",
        "O",
        "B-",
        "I-X",
        "@data",
        "{² 1}",
        "1\t_\t_",
    ),
    *(
        "text",
        "label",
        "a",
        "b",
        "good",
        "bad",
        "*a",
        "&a [*a]",
        "!!int x",
        "!!python/name:os",
        "<<",
        "? [a, b]",
        "2020-13-45",
    ),
)
"""Texts that some layer gives a meaning of its own."""


def nested(depth: int) -> list[Any]:
    """Lists inside lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        0.5,
        0.0,
        -0.0,
        -0.5,
        1.0,
        1.5,
        math.nan,
        math.inf,
        -math.inf,
        1e300,
        1e-300,
        1e308,
    ),
    *(2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**12, 10**30, -(10**30)),
    *([], {}, [[]], [{}], [1], [[1]], ["a"], ["a", "a"], [None], [math.nan], {"a": 1}, {"a": {}}, {"": ""}, {"a": "x"}),
    *(
        {"*": "a"},
        {"/(.)/": "x\\2"},
        {"/(.)/": "x\\g<a>"},
        {"/(/": "x"},
        {1: 2},
        {None: None},
        [0.5, 0.5],
        [0.8, 0.1, 0.1],
    ),
    *(list(range(1000)), nested(50), "a" * 5000, ["a"] * 300),
)
"""Plain data of every type, as options, cells and JSON may hold."""
ENCODINGS = (
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "latin-1",
    "cp1252",
    "utf-7",
    "hex",
    "rot13",
    "idna",
    "punycode",
    "zlib",
    "utf-8\0",
    "undefined",
    "mbcs",
)


def odd_texts() -> st.SearchStrategy[str]:
    """A text of the lists above, or any."""
    return st.one_of(st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.text(max_size=8))


def odd_values() -> st.SearchStrategy[Any]:
    """Plain data."""
    return st.one_of(st.sampled_from(VALUES), st.sampled_from(TEXTS), st.integers(-9, 99), st.floats())
