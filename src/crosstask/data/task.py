"""Tasks: a name, a kind, an ordered label set and the splits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from crosstask.data.examples import KINDS, Examples, Form, Inputs, Kind, Labels, TaskSpec
from crosstask.data.options import SPLIT_OPTIONS, ArrayKeywords, SplitKeywords, SplitOptions
from crosstask.data.plain_text import text_of
from crosstask.data.readers import read
from crosstask.data.splits import assemble, check_name
from crosstask.errors import CrossTaskError
from crosstask.validation import check_values, shown

__all__ = ["KINDS", "Examples", "Form", "Kind", "Task", "TaskSpec"]


@dataclass(frozen=True, eq=False)
class Task:
    """A task with its data. Make one with `Task.read`, a `Task.from_...` or `Task.from_arrays`.

    `notes` say in plain words how the data was changed (a dev set cut, texts dropped), for the record.
    """

    spec: TaskSpec
    train: Examples
    dev: Examples | None = None
    test: Examples | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """The task's name."""
        return self.spec.name

    @property
    def kind(self) -> Kind:
        """What is predicted, and from what."""
        return self.spec.kind

    @property
    def labels(self) -> tuple[str, ...]:
        """The ordered label set; empty for regression."""
        return self.spec.labels

    @property
    def splits(self) -> dict[str, Examples]:
        """The splits that there are, by name."""
        by_name = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: examples for name, examples in by_name.items() if examples is not None}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(examples)}" for name, examples in self.splits.items())
        return f"Task({self.name!r}, {self.kind}, {len(self.labels)} labels, {sizes})"

    @classmethod
    def assemble(
        cls,
        name: str,
        train: Examples,
        dev: Examples | float | bool | None = None,
        test: Examples | None = None,
        **options: Unpack[SplitKeywords],
    ) -> "Task":
        """A task from splits that are already in memory; every other way of making one ends here.

        Args:
            name: the task's name.
            train: training examples.
            dev: examples that choose the model; or the fraction of `train` to cut for it; None cuts a tenth (a fifth of
                fewer than 500); False goes without.
            test: examples that only measure.
            options: see `SplitOptions`.
        """
        splits, spec, notes = assemble(name, train, dev, test, SplitOptions(**options))
        return cls(spec, splits["train"], splits.get("dev"), splits.get("test"), tuple(notes))

    @classmethod
    def read(
        cls,
        name: str,
        train: str | Path,
        dev: str | Path | float | bool | None = None,
        test: str | Path | None = None,
        *,
        format: str | None = None,
        folder: str | Path = ".",
        **options: Any,
    ) -> "Task":
        """A task from files. `options` are those of `Task.assemble` and those of the format's reader.

        The format is inferred from the file name (`.csv`, `.tsv`, `.jsonl`, `.parquet`, `.conllu`, `.arff`, each also
        with `.gz`) or named. Relative paths start at `folder`.
        """
        check_name(name)
        files = {"train": train, "dev": dev, "test": test, "format": format, "folder": folder}
        check_values(f"Task '{name}'", cls.read, files)
        split_options: SplitKeywords = {}
        for key in SPLIT_OPTIONS:
            if key in options:
                split_options[key] = options.pop(key)  # type: ignore[literal-required]

        def examples(path: str | Path) -> Examples:
            return read(path, format=format, folder=folder, task=name, options=options)

        train_examples = examples(train)
        if isinstance(dev, str | Path):
            dev_split: Examples | float | bool | None = examples(dev)
        else:  # how much of the training set to cut off
            dev_split = dev
        test_examples = examples(test) if test is not None else None
        return cls.assemble(name, train_examples, dev_split, test_examples, **split_options)

    @classmethod
    def from_arrays(
        cls,
        name: str,
        inputs: Inputs,
        labels: Labels | np.ndarray,
        *,
        dev: tuple[Inputs, Labels | np.ndarray] | float | bool | None = None,
        test: tuple[Inputs, Labels | np.ndarray] | None = None,
        label_names: Sequence[object] | None = None,
        **options: Unpack[ArrayKeywords],
    ) -> "Task":
        """A task from what is in memory: texts, pairs, token lists or an array of vectors, and their labels.

        `label_names` is the label set in order, `labels` of `Task.assemble`; the other options are those.

        >>> Task.from_arrays("mood", ["so good", "so bad", "great", "awful"], ["+", "-", "+", "-"], dev=False)
        Task('mood', classification, 2 labels, train 4)
        """
        check_name(name)
        train = _in_memory(name, "train", (inputs, labels))
        if isinstance(dev, tuple):
            dev_split: Examples | float | bool | None = _in_memory(name, "dev", dev)
        else:
            dev_split = dev
        test_examples = _in_memory(name, "test", test) if test is not None else None
        return cls.assemble(name, train, dev_split, test_examples, labels=label_names, **options)

    @classmethod
    def from_csv(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from comma-separated files: `Task.read(..., format="csv")`."""
        return cls.read(name, train, format="csv", **options)

    @classmethod
    def from_columns(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A tagging task from CoNLL-style columns: `Task.read(..., format="columns")`."""
        return cls.read(name, train, format="columns", **options)

    @classmethod
    def from_conllu(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A tagging task from CoNLL-U files: `Task.read(..., format="conllu")`."""
        return cls.read(name, train, format="conllu", **options)


def _in_memory(name: str, role: str, split: object) -> Examples:
    """The examples of inputs and labels, whatever holds them."""
    if not isinstance(split, tuple) or len(split) != 2:
        raise CrossTaskError(f"Task '{name}': {role} is a tuple of inputs and labels; found {shown(split)}.")
    inputs, labels = _plain_inputs(name, role, split[0]), _plain_values(name, role, "labels", split[1])
    plain = [_plain_label(name, role, position, label) for position, label in enumerate(labels, start=1)]
    return Examples(inputs, plain, f"{name}, {role}")


def _plain_inputs(name: str, role: str, inputs: Any) -> Inputs:
    """Texts, pairs and lists of words as a list; numbers as an array of single precision."""
    if hasattr(inputs, "__array__") and not isinstance(inputs, np.ndarray):  # a tensor, or a column of a data frame
        inputs = np.asarray(inputs)
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # too large for single precision becomes infinite, which is refused
            return inputs.astype(np.float32)
    return _plain_values(name, role, "inputs", inputs)


def _plain_values(name: str, role: str, what: str, values: Any) -> Sequence[Any]:
    if hasattr(values, "__array__"):
        values = np.asarray(values).tolist()
    if isinstance(values, list | tuple):
        return values
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    raise CrossTaskError(
        f"Task '{name}': the {what} of {role} are a list or an array with an item per example; found {shown(values)}."
    )


def _plain_label(name: str, role: str, position: int, label: object) -> float | str | Sequence[str] | set[str]:
    """A number, a text, or texts in a container of the same type."""
    if isinstance(label, float | np.floating):
        return float(label)
    if isinstance(label, np.ndarray):
        label = label.tolist()
    items: Sequence[object] | set[object] = (label,)
    if isinstance(label, list | tuple | set):
        items = label
    for item in items:
        if item is None or isinstance(item, bytes | dict | list | tuple | set):
            raise CrossTaskError(
                f"Task '{name}': {role}, example {position} has the label {shown(label)}; a label is a text or a "
                "number, or a list of these."
            )
    if isinstance(label, list | tuple | set):
        return type(label)(text_of(item) for item in label)
    return text_of(label)
