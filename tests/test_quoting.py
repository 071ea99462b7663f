"""What messages quote is short, on one line and printable, and costs nothing however large it is."""

import ast
from pathlib import Path

import pytest

import crosstask
from crosstask.errors import CrossTaskError, did_you_mean, unknown
from crosstask.validation import shown


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def laughs() -> list:
    value: list = ["x"] * 9
    for _ in range(30):
        value = [value] * 9
    return value


def inside_itself() -> dict:
    value: dict = {}
    value["a"] = [value]
    return value


def deep() -> list:
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        *(laughs(), inside_itself(), Broken(), [Broken()], 10**5000, -(10**5000), {10**5000: [10**5000]}, "x" * 10**7),
        *(b"x" * 10**7, list(range(10**6)), {1, 2}, "\ud800", ["\ud800\x1b\n"], (1,), (), set(), frozenset({"a"})),
        *(object, {"a": {"b": (1, 2)}}, 1e300, float("nan")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_is_short_and_printable(value):
    text = shown(value)
    assert 0 < len(text) <= 60
    assert text.isprintable()
    text.encode()


def test_a_value_nested_without_end():
    value = deep()
    assert shown(value) == "[" * 40 + " ..."
    while value:  # Python frees it level by level only if it is taken apart
        value = value[0]


@pytest.mark.parametrize("value", ["many", [1, "a", None], (1,), (1, 2), (), {"a": [1.5]}, {1}, set(), True, 10**50])
def test_a_short_value_is_as_python_writes_it(value):
    assert shown(value) == repr(value)


def test_a_suggestion_is_found_among_long_and_many_names():
    names = [f"{'x' * 5000}{number}" for number in range(3000)]
    sentence = str(unknown("column", "y" * 5000, names))
    assert len(sentence) < 2000
    assert sentence.endswith(" more.")
    assert did_you_mean("TAWT", ["uniform", "tawt"]) == "Did you mean 'tawt'?"
    assert did_you_mean(10**5000, ["tawt"]) == "Known: tawt."


def test_an_error_can_be_printed_whatever_it_quotes():
    message = str(CrossTaskError(f"'{'x' * 5000}' and '\ud800\x1b[31m\0' are no names, {'y ' * 5000}."))
    assert len(message) < 4000
    assert "\\ud800\\x1b[31m\\x00' are no names" in message
    message.encode()
    assert str(CrossTaskError("two\nlines")) == "two lines"


def test_a_long_quotation_is_cut_and_the_sentence_around_it_is_not():
    name = "d    " * 250
    sentence = f"The recipe's task 'a b.' has no option '{name}', nor 'x'. {'The user reads on. ' * 25}"
    message = str(CrossTaskError(sentence))
    assert "d...d" in message.replace(" ", "")
    assert len(message) < len(sentence) - 1000
    assert message.startswith("The recipe's task 'a b.' has no option 'd    d")
    assert message.endswith("', nor 'x'. " + ("The user reads on. " * 25).strip())


def messages_with_values_in_full() -> list[str]:
    """`{value!r}` inside an error that is raised: a `repr` has no end."""
    places: list[str] = []
    for path in sorted(Path(crosstask.__file__).parent.rglob("*.py")):
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(statement, ast.Raise):
                continue
            for part in ast.walk(statement):
                if isinstance(part, ast.FormattedValue) and part.conversion == ord("r"):
                    places.append(f"{path.name}, line {part.lineno}: {ast.unparse(part.value)}")
    return places


def test_no_error_quotes_a_value_in_full():
    assert messages_with_values_in_full() == []
