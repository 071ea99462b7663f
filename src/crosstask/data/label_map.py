"""Labels as they stand in files: which kind of task they make, their order, and how they are renamed."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from crosstask.data.examples import Examples, Kind, Labels, LabelValue
from crosstask.data.in_memory import first_and_count, is_missing
from crosstask.data.plain_text import has_lone_surrogate, text_of
from crosstask.data.time_limit import time_limit
from crosstask.errors import CrossTaskError
from crosstask.quoting import brief
from crosstask.validation import shown

LARGEST_NUMBER = 1e30
"""Of a regression task: errors are squared, and squares of squares still have to be finite numbers."""
MAX_SECONDS = 5.0
"""For the patterns of a `map` on one label, which take microseconds."""


def infer_kind(examples: Examples) -> Kind:
    """The kind of task that inputs and labels make.

    Token lists are tagging; several labels per example are multilabel; labels that are all numbers, at least one of
    them not an integer, are regression (so 1 to 5 stars are classes); two texts are a pair; the rest is classification.
    """
    if examples.form == "tokens":
        return "tagging"
    if has_label_sets(examples.labels):
        return "multilabel"
    if _are_real_numbers(examples.labels):
        return "regression"
    if examples.form == "pair":
        return "pair"
    return "classification"


def has_label_sets(labels: Labels) -> bool:
    """Whether some example has several labels, or a list of one."""
    return any(issubclass(label_type, tuple | list | set) for label_type in set(map(type, labels)))


def _are_real_numbers(labels: Labels) -> bool:
    has_fraction = False
    for label in set(zip(map(type, labels), labels, strict=True)):  # each label once, and true apart from 1
        number = None if isinstance(label[1], bool) else as_number(label[1])
        if number is None:
            return False
        has_fraction = has_fraction or number != int(number)
    return has_fraction


def as_number(label: object) -> float | None:
    """The label as a finite number, or None.

    >>> as_number("3.5"), as_number("good"), as_number("nan")
    (3.5, None, None)
    """
    try:
        number = float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The label set in an order that people expect: alphabetical, but numbers, alone or inside a name, by value.

    >>> ordered_labels(["10", "9", "-1", "10"]), ordered_labels(["pos", "neg"]), ordered_labels(["C10", "C9"])
    (('-1', '9', '10'), ('neg', 'pos'), ('C9', 'C10'))
    """
    names = set(labels)
    if all(as_number(name) is not None for name in names):
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    return tuple(sorted(names, key=lambda name: (_natural_order(name), name)))


def _natural_order(name: str) -> list[str | tuple[int, str]]:
    pieces: list[str | tuple[int, str]] = list(re.split(r"(\d+)", name))
    for position in range(1, len(pieces), 2):  # every second piece is a run of digits
        pieces[position] = _by_value(str(pieces[position]))
    return pieces


def _by_value(digits: str) -> tuple[int, str]:
    """Orders runs of digits by their value, in any script and of any length: `int` refuses thousands of digits."""
    if not digits.isascii():
        digits = "".join(str(int(digit)) for digit in digits)
    digits = digits.lstrip("0")
    return len(digits), digits


class LabelMap:
    r"""New names for labels. Exact names take precedence over patterns `/.../`, patterns over the catch-all `*`.

    A pattern must match the full label; its replacement may refer to groups. YAML reads 0 and true as no strings, so
    keys and values are compared as text.

    >>> LabelMap({"/([^-]*)-.*/": r"\1", "_": "O"}).rename("B-V.VID")
    'B'
    >>> LabelMap({"_": "O", "*": "PRED"}).rename("say.01")
    'PRED'
    """

    def __init__(self, names: Mapping[object, object] | None) -> None:
        self.exact: dict[str, str] = {}
        self.patterns: list[tuple[re.Pattern[str], str]] = []
        self.fallback: str | None = None
        self.values: dict[str, LabelValue] = {}  # what was not renamed, as it was before it became a text
        if names is not None and not isinstance(names, Mapping):
            raise CrossTaskError(f"`map` maps labels to new names, as in {{pos: good}}; found {shown(names)}.")
        for item, value in (names or {}).items():
            key, replacement = _name(item), _name(value)
            if key == "*":
                self.fallback = replacement
            elif len(key) > 2 and key[0] == key[-1] == "/":
                self.patterns.append((_compiled(key, replacement), replacement))
            else:
                self.exact[key] = replacement

    def rename(self, label: str) -> str:
        """The new name of one label."""
        if label in self.exact:
            return self.exact[label]
        name = self._renamed_by_pattern(label)
        if name is None:
            name = self.fallback
        return label if name is None else name

    def _renamed_by_pattern(self, label: str) -> str | None:
        """What the first pattern that matches makes of a label."""
        if not self.patterns:
            return None
        try:
            with time_limit(MAX_SECONDS):
                for pattern, replacement in self.patterns:  # in the order of the recipe
                    match = pattern.fullmatch(label)
                    if match:
                        return match.expand(replacement)
        except TimeoutError:
            raise CrossTaskError(
                f"`map`: /{brief(pattern.pattern)}/ takes too long for the label {shown(label)}. A repetition inside a "
                "repetition, as in (a+)+, is tried in every way in which the label can be cut; write it without."
            ) from None
        return None

    def apply(self, task: str, kind: Kind, examples: Examples) -> Examples:
        """The examples with renamed labels, each of the type that its kind wants."""
        labels: Labels
        if kind == "regression":
            labels = _numbers(task, examples)
        elif kind == "tagging":
            labels = self._renamed_tags(task, examples)
        elif kind == "multilabel":
            labels = self._renamed_sets(examples.labels)
        else:
            _check_present(task, examples)
            labels = self._renamed(examples.labels, {})
        return replace(examples, labels=labels)

    def value_of(self, name: str) -> LabelValue:
        """A label as it was in Python, by its name: 5 for "5" where the data held numbers.

        >>> labels = LabelMap(None)
        >>> labels.apply("stars", "classification", Examples(["good", "bad"], [5, 1])).labels
        ['5', '1']
        >>> labels.value_of("5")
        5
        """
        return self.values.get(name, name)

    def _renamed(self, labels: Iterable[object], cache: dict[object, str]) -> list[str]:
        """`cache` holds new names by old ones: patterns are slow, and a data set has few labels many times."""
        names = []
        for label in labels:
            key = label if isinstance(label, str) else (type(label), text_of(label))  # 1 is not True
            if key not in cache:
                cache[key] = self._named(label)
            names.append(cache[key])
        return names

    def _named(self, label: object) -> str:
        """The new name of a label of any type; what it stands for is remembered."""
        text = label if isinstance(label, str) else _class_name(label)
        name = self.rename(text)
        value: LabelValue = name
        if name == text and isinstance(label, bool | int | float):
            value = label
        if type(self.values.setdefault(name, value)) is not type(value):  # 5 and "5" are one class
            self.values[name] = name
        return name

    def _renamed_tags(self, task: str, examples: Examples) -> list[list[str]]:
        cache: dict[object, str] = {}
        sentences = []
        for position, tags in enumerate(examples.labels):
            num_tokens = len(examples.inputs[position])
            if num_tokens != len(tags):
                raise CrossTaskError(
                    f"Task '{task}': {examples.where(position)} has {num_tokens} tokens but {len(tags)} labels."
                )
            sentences.append(self._renamed(tags, cache))
        return sentences

    def _renamed_sets(self, label_sets: Labels) -> list[tuple[str, ...]]:
        cache: dict[object, str] = {}
        renamed = []
        for labels in label_sets:
            if not isinstance(labels, list | tuple | set):  # an example with one label
                labels = [labels]
            names = self._renamed(labels, cache)
            renamed.append(tuple(dict.fromkeys(names)))  # two labels may have got the same name
        return renamed


def _name(item: object) -> str:
    """A label or a new name as text."""
    if isinstance(item, Mapping | list | tuple | set):
        raise CrossTaskError(f"`map` maps labels to new names, each a text or a number; found {shown(item)}.")
    name = text_of(item)
    if has_lone_surrogate(name):
        raise CrossTaskError(f"`map`: {shown(name)} holds half of a surrogate pair, which is no text.")
    return name


def _class_name(label: object) -> str:
    """The name of a class that is no text: 1.0 and 1 are the same class."""
    if not isinstance(label, float):
        return text_of(label)
    text = f"{label:g}"
    # Six digits do not tell larger numbers apart.
    return text if float(text) == label or math.isnan(label) else repr(label)


def _compiled(key: str, replacement: str) -> re.Pattern[str]:
    """The pattern of a key, after a trial of its replacement."""
    pattern = key[1:-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about patterns that a later Python may read otherwise
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise CrossTaskError(f"`map`: {shown(key)} is no regular expression: {error}.") from error
        # With an alternative that matches nothing, the same groups can be referred to without a label that matches.
        match = re.compile(pattern + "\n|").match("")
    try:
        assert match is not None
        match.expand(replacement)
    except (re.error, IndexError) as error:
        raise CrossTaskError(
            f"`map`: {shown(replacement)} is no replacement for {shown(key)}: {error}. A backslash refers to a group "
            "of the pattern, as in \\1, and is written twice if it is meant itself."
        ) from error
    return compiled


def _check_present(task: str, examples: Examples) -> None:
    """A class has a name: a number that is none stands for a label that is missing."""
    if float not in set(map(type, examples.labels)):
        return
    missing = first_and_count(examples.labels, is_missing)
    if missing is not None:
        position, count = missing
        others = f" (as have {count - 1:,} more)" if count > 1 else ""
        raise CrossTaskError(f"Task '{task}': {examples.where(position)} has no label but nan{others}.")


def _is_no_number(label: object) -> bool:
    return as_number(label) is None


def _numbers(task: str, examples: Examples) -> Sequence[float]:
    numbers = []
    for position, label in enumerate(examples.labels):
        number = as_number(label)
        if number is None:
            _, count = first_and_count(examples.labels, _is_no_number) or (position, 1)
            others = f" ({count:,} labels are none)" if count > 1 else ""
            raise CrossTaskError(
                f"Task '{task}': {examples.where(position)} has the label '{brief(text_of(label))}'; "
                f"a regression task needs a finite number{others}."
            )
        if abs(number) > LARGEST_NUMBER:
            raise CrossTaskError(
                f"Task '{task}': {examples.where(position)} has the label {number:g}; a regression task takes numbers "
                f"from {-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}. Give them in another unit."
            )
        numbers.append(number)
    return numbers
