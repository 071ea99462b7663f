"""Tasks: a name, a kind, an ordered label set and the splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from crosstask.data.examples import KINDS, Cut, Examples, Form, Kind, TaskSpec
from crosstask.data.label_map import LabelMap
from crosstask.data.splits import assemble

__all__ = ["KINDS", "Examples", "Form", "Kind", "Task", "TaskSpec"]


@dataclass(frozen=True, eq=False)
class Task:
    """A task with its data. Make one with `Task.read`, a `Task.from_...` or `Task.from_arrays`.

    `notes` say in plain words what was done to the data on the way (a dev set cut, texts dropped), for the record.
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
        parts = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(part)}" for name, part in self.splits.items())
        return f"Task({self.name!r}, {self.kind}, {len(self.labels)} labels, {sizes})"

    @classmethod
    def assemble(
        cls,
        name: str,
        train: Examples,
        dev: Examples | float | bool | None = None,
        test: Examples | None = None,
        *,
        kind: Kind | None = None,
        labels: Sequence[object] | None = None,
        map: Mapping[object, object] | None = None,
        limit: int | None = None,
        dev_limit: int | None = None,
        seed: int = 0,
        split: Sequence[float] | None = None,
        cut: Cut = "random",
        drop_overlap: bool = False,
        metric: str | None = None,
    ) -> "Task":
        """A task from splits that are already in memory; every other way of making one ends here.

        Args:
            name: the task's name.
            train: training examples.
            dev: examples that choose the model; or the share of `train` to cut for it; None cuts a tenth (a fifth of
                fewer than 500); False goes without.
            test: examples that only measure.
            kind: one of classification, pair, tagging, regression, multilabel; inferred when left out.
            labels: the label set in order, where the data's own order is not wanted or the data lacks some.
            map: new names for labels; a key `/.../` is a regular expression, `*` is every label not named.
            limit: keep this many training examples, balanced over classes; for tagging every label is shown where
                possible. It is the number of labels you have: a dev set that is cut comes out of it.
            dev_limit: likewise for a dev set that is given.
            seed: of the subset and of the cut.
            split: shares of (train, dev, test), or (train, test), to cut a single set into.
            cut: which examples go into a dev or test set that is cut off: "random" ones, or the "latest", the last of
                every class in the order of the data. Where a model will meet later data, those choose it better.
            drop_overlap: take training examples out whose input also stands in dev or test.
            metric: score that chooses the model; each kind has its own when left out.
        """
        parts, spec, notes = assemble(
            name, train, dev, test, kind=kind, labels=labels, label_map=LabelMap(map), limit=limit, dev_limit=dev_limit,
            seed=seed, split=split, cut=cut, drop_overlap=drop_overlap, metric=metric,
        )  # fmt: skip
        return cls(spec, parts["train"], parts.get("dev"), parts.get("test"), tuple(notes))

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
        from crosstask.data.readers import read

        assembly = {key: options.pop(key) for key in ASSEMBLY_OPTIONS if key in options}
        parts = {
            role: read(path, format=format, folder=Path(folder), task=name, options=options)
            for role, path in {"train": train, "dev": dev, "test": test}.items()
            if isinstance(path, str | Path)
        }
        held_out = parts.get("dev", cast("float | bool | None", dev))
        return cls.assemble(name, parts["train"], held_out, parts.get("test"), **assembly)

    @classmethod
    def from_arrays(
        cls,
        name: str,
        inputs: Sequence[Any] | np.ndarray,
        labels: Sequence[Any] | np.ndarray,
        *,
        dev: tuple[Any, Any] | float | bool | None = None,
        test: tuple[Any, Any] | None = None,
        label_names: Sequence[object] | None = None,
        **options: Any,
    ) -> "Task":
        """A task from what is in memory: texts, pairs, token lists or an array of vectors, and their labels.

        `label_names` is the label set in order, `labels` of `Task.assemble`; the other options are those.

        >>> Task.from_arrays("mood", ["so good", "so bad", "great", "awful"], ["+", "-", "+", "-"], dev=False)
        Task('mood', classification, 2 labels, train 4)
        """

        def examples(inputs: Any, labels: Any, source: str) -> Examples:
            if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiub":
                inputs = inputs.astype(np.float32)
            if isinstance(labels, np.ndarray):
                labels = labels.tolist()
            return Examples(inputs, [_plain_label(label) for label in labels], source)

        held_out = examples(*dev, source=f"{name}, dev") if isinstance(dev, tuple) else dev
        measured = examples(*test, source=f"{name}, test") if test is not None else None
        train = examples(inputs, labels, f"{name}, train")
        return cls.assemble(name, train, held_out, measured, labels=label_names, **options)

    @classmethod
    def from_csv(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from comma-separated files: `Task.read(..., format="csv")`."""
        return cls.read(name, train, format="csv", **options)

    @classmethod
    def from_tsv(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from tab-separated files without quoting: `Task.read(..., format="tsv")`."""
        return cls.read(name, train, format="tsv", **options)

    @classmethod
    def from_jsonl(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from files with a JSON object a line: `Task.read(..., format="jsonl")`."""
        return cls.read(name, train, format="jsonl", **options)

    @classmethod
    def from_parquet(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from Parquet files: `Task.read(..., format="parquet")`."""
        return cls.read(name, train, format="parquet", **options)

    @classmethod
    def from_columns(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A tagging task from CoNLL-style columns: `Task.read(..., format="columns")`."""
        return cls.read(name, train, format="columns", **options)

    @classmethod
    def from_conllu(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A tagging task from CoNLL-U files: `Task.read(..., format="conllu")`."""
        return cls.read(name, train, format="conllu", **options)

    @classmethod
    def from_lines(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from lines of label, space or tab, text: `Task.read(..., format="lines")`."""
        return cls.read(name, train, format="lines", **options)

    @classmethod
    def from_arff(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from ARFF files: `Task.read(..., format="arff")`."""
        return cls.read(name, train, format="arff", **options)

    @classmethod
    def from_hub(cls, name: str, train: str, **options: Any) -> "Task":
        """A task from the Hugging Face hub: `Task.read(..., format="hub")`."""
        return cls.read(name, train, format="hub", **options)


ASSEMBLY_OPTIONS = (
    "kind",
    "labels",
    "map",
    "limit",
    "dev_limit",
    "seed",
    "split",
    "cut",
    "drop_overlap",
    "metric",
)

NOT_OF_READERS = (*ASSEMBLY_OPTIONS, "train", "dev", "test", "format")
"""Keys of a task's section in a recipe that are not options of its format."""


def _plain_label(label: Any) -> Any:
    if isinstance(label, float | np.floating):
        return float(label)
    if isinstance(label, list | tuple | set):
        return type(label)(str(item) for item in label)
    return str(label)
