"""Labels as they stand in files: which kind of task they make, their order, and how they are renamed."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from crosstask.data.examples import Examples, Kind, Labels
from crosstask.errors import CrossTaskError


def infer_kind(examples: Examples) -> Kind:
    """The kind of task that inputs and labels make.

    Token lists are tagging; several labels per example are multilabel; labels that are all numbers, at least one of
    them not an integer, are regression (so 1 to 5 stars are classes); two texts are a pair; the rest is classification.
    """
    if examples.form == "tokens":
        return "tagging"
    if isinstance(examples.labels[0], tuple | list | set):
        return "multilabel"
    if _are_real_numbers(examples.labels):
        return "regression"
    if examples.form == "pair":
        return "pair"
    return "classification"


def _are_real_numbers(labels: Labels) -> bool:
    has_fraction = False
    for label in labels:
        number = as_number(label)
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
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The label set in an order that people expect: alphabetical, but numbers, alone or inside a name, by value.

    >>> ordered_labels(["10", "9", "-1", "10"]), ordered_labels(["pos", "neg"]), ordered_labels(["C10", "C9"])
    (('-1', '9', '10'), ('neg', 'pos'), ('C9', 'C10'))
    """
    names = set(labels)
    if all(as_number(name) is not None for name in names):
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    return tuple(sorted(names, key=_natural_order))


def _natural_order(name: str) -> list[str | int]:
    pieces: list[str | int] = list(re.split(r"(\d+)", name))
    # Every second piece is a run of digits.
    pieces[1::2] = [int(digits) for digits in pieces[1::2]]
    return pieces


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
        for item, value in (names or {}).items():
            key, replacement = str(item), str(value)
            if key == "*":
                self.fallback = replacement
            elif len(key) > 2 and key[0] == key[-1] == "/":
                self.patterns.append((_compiled(key), replacement))
            else:
                self.exact[key] = replacement

    def rename(self, label: str) -> str:
        """The new name of one label."""
        if label in self.exact:
            return self.exact[label]
        for pattern, replacement in self.patterns:  # in the order of the recipe
            match = pattern.fullmatch(label)
            if match:
                return match.expand(replacement)
        if self.fallback is not None:
            return self.fallback
        return label

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
            labels = self._renamed(examples.labels, {})
        return Examples(examples.inputs, labels, examples.source, examples.lines)

    def _renamed(self, labels: Iterable[object], cache: dict[str, str]) -> list[str]:
        """`cache` holds new names by old ones: patterns are slow, and a data set has few labels many times."""
        names = []
        for label in labels:
            # 1.0 and 1 are the same class.
            text = f"{label:g}" if isinstance(label, float) else str(label)
            if text not in cache:
                cache[text] = self.rename(text)
            names.append(cache[text])
        return names

    def _renamed_tags(self, task: str, examples: Examples) -> list[list[str]]:
        cache: dict[str, str] = {}
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
        cache: dict[str, str] = {}
        renamed = []
        for labels in label_sets:
            if isinstance(labels, str):  # an example with one label
                labels = [labels]
            names = self._renamed(labels, cache)
            renamed.append(tuple(dict.fromkeys(names)))  # two labels may have got the same name
        return renamed


def _compiled(key: str) -> re.Pattern[str]:
    try:
        return re.compile(key[1:-1])
    except re.error as error:
        raise CrossTaskError(f"`map`: '{key}' is no regular expression: {error}.") from error


def _numbers(task: str, examples: Examples) -> Sequence[float]:
    numbers = []
    for position, label in enumerate(examples.labels):
        number = as_number(label)
        if number is None:
            raise CrossTaskError(
                f"Task '{task}': {examples.where(position)} has the label '{label}'; "
                "a regression task needs a finite number."
            )
        numbers.append(number)
    return numbers
