"""Labels as they stand in files: which kind of task they make, in what order they go, how they are renamed."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from crosstask.data.examples import Examples, Kind
from crosstask.errors import CrossTaskError


def infer_kind(examples: Examples) -> Kind:
    """The kind of task that inputs and labels make.

    Token lists are tagging; several labels per example are multilabel; two texts are a pair; labels that are all
    numbers, at least one of them not whole, are regression (so 1 to 5 stars are classes); the rest is classification.
    """
    if examples.form == "tokens":
        return "tagging"
    first = examples.labels[0]
    if isinstance(first, tuple | list | set):
        return "multilabel"
    numbers = [as_number(label) for label in examples.labels]
    if all(number is not None for number in numbers) and any(number != int(number) for number in numbers if number):
        return "regression"
    return "pair" if examples.form == "pair" else "classification"


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
    """The label set in an order that people expect: by alphabet, but numbers, alone or inside a name, by value.

    >>> ordered_labels(["10", "9", "-1", "10"]), ordered_labels(["pos", "neg"]), ordered_labels(["C10", "C9"])
    (('-1', '9', '10'), ('neg', 'pos'), ('C9', 'C10'))
    """
    names = set(labels)
    if all(as_number(name) is not None for name in names):
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    # Odd parts of the split are runs of digits.
    keys = {name: [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))] for name in names}
    return tuple(sorted(names, key=lambda name: keys[name]))


class LabelMap:
    r"""New names for labels. Exact names win over patterns `/.../`, patterns over the catch-all `*`.

    A pattern must match the whole label; its replacement may refer to groups. YAML reads 0 and true as no strings, so
    keys and values are compared as text.

    >>> LabelMap({"/([^-]*)-.*/": r"\1", "_": "O"}).rename("B-V.VID")
    'B'
    >>> LabelMap({"_": "O", "*": "PRED"}).rename("say.01")
    'PRED'
    """

    def __init__(self, names: Mapping[object, object] | None) -> None:
        texts = {str(key): str(value) for key, value in (names or {}).items()}
        self.fallback = texts.pop("*", None)
        self.patterns = []
        for key in [key for key in texts if len(key) > 2 and key[0] == key[-1] == "/"]:
            try:
                self.patterns.append((re.compile(key[1:-1]), texts.pop(key)))
            except re.error as error:
                raise CrossTaskError(f"`map`: '{key}' is no regular expression: {error}.") from error
        self.exact = texts

    def rename(self, label: str) -> str:
        """The new name of one label."""
        if label in self.exact:
            return self.exact[label]
        for pattern, replacement in self.patterns:
            match = pattern.fullmatch(label)
            if match:
                return match.expand(replacement)
        return label if self.fallback is None else self.fallback

    def apply(self, task: str, kind: Kind, examples: Examples) -> Examples:
        """The examples with renamed labels, each in the shape that its kind wants."""
        if kind == "regression":
            return Examples(examples.inputs, _numbers(task, examples), examples.source, examples.lines)
        cache: dict[str, str] = {}

        def rename(label: object) -> str:
            text = _as_class(label)
            if text not in cache:
                cache[text] = self.rename(text)
            return cache[text]

        labels: list[object]
        if kind == "tagging":
            labels = [[rename(tag) for tag in tags] for tags in examples.labels]
            for position, (tokens, tags) in enumerate(zip(examples.inputs, labels, strict=True)):
                if len(tokens) != len(tags):  # type: ignore[arg-type]
                    raise CrossTaskError(
                        f"Task '{task}': {examples.where(position)} has {len(tokens)} tokens but {len(tags)} labels."  # type: ignore[arg-type]
                    )
        elif kind == "multilabel":
            labels = [
                tuple(dict.fromkeys(rename(tag) for tag in ([tags] if isinstance(tags, str) else tags)))
                for tags in examples.labels
            ]
        else:
            labels = [rename(label) for label in examples.labels]
        return Examples(examples.inputs, labels, examples.source, examples.lines)


def _as_class(label: object) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)


def _numbers(task: str, examples: Examples) -> list[float]:
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
