"""Tasks: a name, a kind, an ordered label set and the splits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from crosstask.data.examples import KINDS, Examples, Form, Inputs, Kind, Labels, TaskSpec
from crosstask.data.in_memory import array_examples
from crosstask.data.options import SPLIT_OPTIONS, ArrayKeywords, SplitKeywords, SplitOptions
from crosstask.data.readers import blocks_of, read
from crosstask.data.readers.blocks import Blocks, check_window
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.keywords import (
    ColumnsKeywords,
    ConlluKeywords,
    CsvKeywords,
    MemoryKeywords,
    ReadKeywords,
)
from crosstask.data.readers.several import Files
from crosstask.data.readers.tables_in_memory import (
    DatasetSplits,
    dataset_blocks,
    dataset_examples,
    frame_examples,
    in_memory,
    records_examples,
)
from crosstask.data.splits import assemble, assemble_unlabeled, check_name
from crosstask.data.windows import Windows
from crosstask.errors import CrossTaskError
from crosstask.notebook import html_table
from crosstask.validation import check_values, shown

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
    from pandas import DataFrame

SHOWN_LABELS = 10
"""Of a task in a notebook."""

__all__ = ["KINDS", "Examples", "Form", "Kind", "Task", "TaskSpec"]


@dataclass(frozen=True, eq=False)
class Task:
    """A task with its data. Make one with `Task.read`, a `Task.from_...` or `Task.from_arrays`.

    `notes` say in plain words how the data was changed (a dev set cut, texts dropped), for the record. `windows` are
    further training examples, where there are more than fit into memory.
    """

    spec: TaskSpec
    train: Examples
    dev: Examples | None = None
    test: Examples | None = None
    notes: tuple[str, ...] = field(default=())
    windows: Windows | None = None

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
    def num_examples(self) -> int:
        """Training examples, with those that are not in memory."""
        return len(self.train) if self.windows is None else self.windows.num_examples

    @property
    def splits(self) -> dict[str, Examples]:
        """The splits that there are, by name."""
        by_name = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: examples for name, examples in by_name.items() if examples is not None}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(examples)}" for name, examples in self.splits.items())
        return f"Task({self.name!r}, {self.kind}, {len(self.labels)} labels, {sizes})"

    def _repr_html_(self) -> str:
        """For notebooks: how many examples each split has, the labels, and how the data was changed."""
        rows: list[list[object]] = [[name, len(examples)] for name, examples in self.splits.items()]
        if self.labels:
            rows.append(["labels", _first_few(self.labels)])
        return html_table(f"{self.name}: {self.kind}", ["split", "examples"], rows, self.notes)

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
    def unlabeled(
        cls,
        name: str,
        *,
        dev: tuple[Inputs, Labels | np.ndarray] | Examples | None = None,
        test: tuple[Inputs, Labels | np.ndarray] | Examples | None = None,
        label_names: Sequence[object] | None = None,
        **options: Unpack[ArrayKeywords],
    ) -> "Task":
        """A task of texts without training examples, for the paradigm `names`: its labels are known by what they mean.

        Args:
            name: the task's name.
            dev: (texts, labels) that choose the model, where sources train one.
            test: (texts, labels) that only measure.
            label_names: the label set in order; the labels that `descriptions` names when left out.
            options: `descriptions` of the labels, `map`, `metric`; see `SplitOptions`.

        >>> Task.unlabeled("mood", descriptions={"+": "a happy text", "-": "a sad text"})
        Task('mood', classification, 2 labels, train 0)
        """
        check_name(name)
        splits: dict[str, Examples | None] = {}
        for role, split in {"dev": dev, "test": test}.items():
            splits[role] = _array_split(name, role, split, label_names) if isinstance(split, tuple) else split
        split_options = SplitOptions(**options, labels=label_names)
        examples_of, spec, notes = assemble_unlabeled(name, splits["dev"], splits["test"], split_options)
        return cls(spec, examples_of["train"], examples_of.get("dev"), examples_of.get("test"), tuple(notes))

    @classmethod
    def read(
        cls,
        name: str,
        train: Files | None = None,
        dev: Files | float | bool | None = None,
        test: Files | None = None,
        *,
        format: str | None = None,
        folder: str | Path = ".",
        **options: Unpack[ReadKeywords],
    ) -> "Task":
        """A task from files.

        Args:
            name: the task's name.
            train: a file, a list of files, or a pattern such as `parts/*.csv`, in the order of the names. A task
                of which nothing but `labels` or `descriptions` is known has none, see `Task.unlabeled`.
            dev: likewise; or the fraction of `train` to cut for it; None cuts a tenth (a fifth of fewer than 500);
                False goes without.
            test: files with examples that only measure.
            format: one of csv, tsv, jsonl, parquet, columns, conllu, lines, arff, hub; inferred from the file name
                (`.csv`, `.tsv`, `.jsonl`, `.parquet`, `.conllu`, `.arff`, each also with `.gz`) when left out.
            folder: where relative paths start.
            options: those of the format's reader (`text`, `label`, `features`, ...) and those of `SplitOptions`
                (`limit`, `map`, `split`, ...).
        """
        check_name(name)
        files = {"train": train, "dev": dev, "test": test, "format": format, "folder": folder}
        check_values(f"Task '{name}'", cls.read, files)
        split_options, reader_options = _apart(options)
        if reader_options.get("streaming") is True and train is not None and split_options.get("window") is None:
            raise CrossTaskError(
                f"Task '{name}': `streaming` reads a part of the rows at a time: set `window`, how many, or leave "
                "`streaming` out to fetch the whole data set."
            )

        def examples(paths: Files) -> Examples:
            return read(paths, format=format, folder=folder, task=name, options=reader_options)

        if isinstance(dev, str | Path | list | tuple):
            dev_split: Examples | float | bool | None = examples(dev)
        else:  # how much of the training set to cut off
            dev_split = dev  # type: ignore[assignment]
        test_examples = examples(test) if test is not None else None
        if train is None:
            label_names = split_options.pop("labels", None)
            dev_examples = dev_split if isinstance(dev_split, Examples) else None
            array_options = cast(ArrayKeywords, split_options)
            return cls.unlabeled(name, dev=dev_examples, test=test_examples, label_names=label_names, **array_options)
        if split_options.get("window") is not None:
            blocks = blocks_of(train, format, folder, name, reader_options, split_options)
            if blocks is not None:
                return cls._windowed(name, blocks, dev_split, test_examples, split_options)
            split_options["window"] = None
        train_examples = examples(train)
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
        """A task from inputs and labels in memory: lists, arrays of NumPy, tensors, columns of a data frame.

        Predictions have the types that labels have here: 5, not "5".

        Args:
            name: the task's name.
            inputs: texts, pairs of texts, lists of words, or vectors.
            labels: one for each input: a text, a number, true or false; a list for each where there are several, or a
                matrix of zeros and ones with a column per label.
            dev: (inputs, labels) that choose the model; or the fraction to cut for it, as for `Task.assemble`.
            test: (inputs, labels) that only measure.
            label_names: the label set in order, `labels` of `Task.assemble`.
            options: see `SplitOptions`.

        >>> Task.from_arrays("mood", ["so good", "so bad", "great", "awful"], ["+", "-", "+", "-"], dev=False)
        Task('mood', classification, 2 labels, train 4)
        """
        check_name(name)
        train = _array_split(name, "train", (inputs, labels), label_names)
        dev_split = _array_split(name, "dev", dev, label_names) if isinstance(dev, tuple) else dev
        test_examples = _array_split(name, "test", test, label_names) if test is not None else None
        return cls.assemble(name, train, dev_split, test_examples, labels=label_names, **options)

    @classmethod
    def from_records(
        cls,
        name: str,
        train: Sequence[Mapping[str, object]],
        *,
        dev: Sequence[Mapping[str, object]] | float | bool | None = None,
        test: Sequence[Mapping[str, object]] | None = None,
        **options: Unpack[MemoryKeywords],
    ) -> "Task":
        """A task from a list of records, each a mapping from column to value. Labels keep their types.

        Args:
            name: the task's name.
            train: records that train.
            dev: records that choose the model; or the fraction of `train` to cut for it, as for `Task.assemble`.
            test: records that only measure.
            options: which columns are `text`, `label`, `tokens` or `features` and how they are read, see
                `NestedTableOptions`; and `SplitOptions`.

        >>> records = [{"review": "so good", "stars": 5}, {"review": "so bad", "stars": 1}]
        >>> Task.from_records("stars", records, text="review", label="stars", dev=False).spec.decisions
        (1, 5)
        """
        check_name(name)
        return cls._from_tables(name, records_examples, train, dev, test, options)

    @classmethod
    def from_pandas(
        cls,
        name: str,
        train: "DataFrame",
        *,
        dev: "DataFrame | float | bool | None" = None,
        test: "DataFrame | None" = None,
        **options: Unpack[MemoryKeywords],
    ) -> "Task":
        """A task from data frames of pandas. Labels keep their types; a cell that is None, NaN or NA is missing.

        Args:
            name: the task's name.
            train: a frame with a row for each example.
            dev: a frame that chooses the model; or the fraction of `train` to cut for it, as for `Task.assemble`.
            test: a frame that only measures.
            options: which columns are `text`, `label`, `tokens` or `features` and how they are read, see
                `NestedTableOptions`; and `SplitOptions`.
        """
        check_name(name)
        return cls._from_tables(name, frame_examples, train, dev, test, options)

    @classmethod
    def from_dataset(
        cls,
        name: str,
        train: "Dataset | DatasetDict | IterableDataset | IterableDatasetDict",
        *,
        dev: "Dataset | IterableDataset | str | float | bool | None" = None,
        test: "Dataset | IterableDataset | str | None" = None,
        **options: Unpack[MemoryKeywords],
    ) -> "Task":
        """A task from a data set of the package `datasets`. Classes that it stores as numbers get their names.

        Args:
            name: the task's name.
            train: a data set; or several by the names of their splits, of which `train`, `validation` and `test` are
                found, and a note says which others are not used. A test set whose labels are secret is left out. One
                that is streamed needs `window`; its dev and test sets are read as a whole.
            dev: a data set, or the name of a split, that chooses the model; or the fraction of `train` to cut for it,
                as for `Task.assemble`.
            test: a data set, or the name of a split, that only measures.
            options: which columns are `text`, `label`, `tokens` or `features` and how they are read, see
                `NestedTableOptions`; and `SplitOptions`.
        """
        check_name(name)
        splits = DatasetSplits.of(name, train, dev, test).with_held_out_in_memory(name)
        splits, notes = splits.without_secret_labels(options)
        if options.get("window") is not None:
            task = cls._from_large_dataset(name, splits, options)
            return replace(task, notes=(*notes, *task.notes))
        task = cls._from_tables(name, dataset_examples, splits.train, splits.dev, splits.test, options)
        return replace(task, notes=(*notes, *task.notes))

    @classmethod
    def _from_large_dataset(cls, name: str, splits: DatasetSplits, options: MemoryKeywords) -> "Task":
        """A task from a data set of which a window is read at a time."""
        split_options, reader_options = _apart(options)
        table_options = cast(NestedTableOptions, reader_options)
        check_window(name, split_options)
        window, seed = split_options.pop("window", None) or 1, split_options.get("seed", 0)
        blocks = dataset_blocks(name, splits.train, table_options, window=window, seed=seed)
        if blocks is None:
            remaining = cast(MemoryKeywords, {key: value for key, value in options.items() if key != "window"})
            train = in_memory(name, "train", splits.train)
            return cls._from_tables(name, dataset_examples, train, splits.dev, splits.test, remaining)
        dev = splits.dev
        if dev is not None and not isinstance(dev, Real):
            dev = dataset_examples(name, "dev", dev, table_options)
        test = None if splits.test is None else dataset_examples(name, "test", splits.test, table_options)
        return cls._windowed(name, blocks, dev, test, split_options)  # type: ignore[arg-type]

    @classmethod
    def _from_tables(
        cls,
        name: str,
        read_table: Callable[[str, str, Any, NestedTableOptions], Examples],
        train: object,
        dev: object,
        test: object,
        options: MemoryKeywords,
    ) -> "Task":
        """A task from tables in memory, whatever holds them."""
        split_options, reader_options = _apart(options)
        table_options = cast(NestedTableOptions, reader_options)
        train_examples = read_table(name, "train", train, table_options)
        dev_split = dev
        if dev is not None and not isinstance(dev, Real):  # no share to cut
            dev_split = read_table(name, "dev", dev, table_options)
        test_examples = read_table(name, "test", test, table_options) if test is not None else None
        return cls.assemble(name, train_examples, dev_split, test_examples, **split_options)  # type: ignore[arg-type]

    @classmethod
    def _windowed(
        cls,
        name: str,
        blocks: Blocks,
        dev: Examples | float | bool | None,
        test: Examples | None,
        options: SplitKeywords,
    ) -> "Task":
        """A task whose training set is read a window at a time; the first says what the task is."""
        settings = replace(SplitOptions(**options), window=None)
        first = blocks.window(0)
        splits, spec, notes = assemble(name, first, dev, test, settings)
        num_examples = num_in_memory = len(splits["train"])
        if blocks.num_windows is None:
            note = f"{num_in_memory:,} training examples of a stream are in memory at a time"
        else:
            num_examples = round(blocks.num_windows * num_in_memory)
            note = f"{num_in_memory:,} of about {num_examples:,} training examples are in memory at a time"
        windows = Windows(blocks, spec, settings, num_examples)
        return cls(spec, splits["train"], splits.get("dev"), splits.get("test"), (*notes, note), windows)

    @classmethod
    def from_csv(
        cls,
        name: str,
        train: Files,
        *,
        dev: Files | float | bool | None = None,
        test: Files | None = None,
        **options: Unpack[CsvKeywords],
    ) -> "Task":
        """A task from comma-separated files: `Task.read(..., format="csv")`.

        Args:
            name: the task's name.
            train: a file, a list of files, or a pattern such as `parts/*.csv`.
            dev: likewise, or the fraction of `train` to cut for it, or False; see `Task.read`.
            test: likewise.
            options: `text`, `label`, `features`, `where`, ... as `TableOptions` has them; `delimiter`, `quoting`,
                `header`, `encoding`; and `SplitOptions`.
        """
        return cls.read(name, train, dev, test, format="csv", **options)

    @classmethod
    def from_columns(
        cls,
        name: str,
        train: Files,
        *,
        dev: Files | float | bool | None = None,
        test: Files | None = None,
        **options: Unpack[ColumnsKeywords],
    ) -> "Task":
        """A tagging task from CoNLL-style columns: `Task.read(..., format="columns")`.

        Args:
            name: the task's name.
            train: a file, a list of files, or a pattern such as `parts/*.conll`.
            dev: likewise, or the fraction of `train` to cut for it, or False; see `Task.read`.
            test: likewise.
            options: `token` and `label`, the columns of the word and of its label by number or name; `separator`,
                `comment`, `header`, `names`, `encoding`; and `SplitOptions`.
        """
        return cls.read(name, train, dev, test, format="columns", **options)

    @classmethod
    def from_conllu(
        cls,
        name: str,
        train: Files,
        *,
        dev: Files | float | bool | None = None,
        test: Files | None = None,
        **options: Unpack[ConlluKeywords],
    ) -> "Task":
        """A tagging task from CoNLL-U files: `Task.read(..., format="conllu")`.

        Args:
            name: the task's name.
            train: a file, a list of files, or a pattern such as `parts/*.conllu`.
            dev: likewise, or the fraction of `train` to cut for it, or False; see `Task.read`.
            test: likewise.
            options: `token` and `label`, the columns of the word and of its label by number or name, `encoding`; and
                `SplitOptions`.
        """
        return cls.read(name, train, dev, test, format="conllu", **options)


def _array_split(name: str, role: str, split: object, label_names: Sequence[object] | None) -> Examples:
    """A split of inputs and labels in memory."""
    if not isinstance(split, tuple) or len(split) != 2:
        raise CrossTaskError(f"Task '{name}': {role} is a tuple of inputs and labels; found {shown(split)}.")
    return array_examples(name, role, *split, label_names)


def _apart(options: Mapping[str, Any]) -> tuple[SplitKeywords, dict[str, Any]]:
    """The options of the splits, and those of the format."""
    split_options: dict[str, Any] = {}
    reader_options: dict[str, Any] = {}
    for key, value in options.items():
        if key in SPLIT_OPTIONS:
            split_options[key] = value
        else:
            reader_options[key] = value
    return cast(SplitKeywords, split_options), reader_options


def _first_few(labels: Sequence[str]) -> str:
    """As many labels as one reads, and how many there are."""
    text = ", ".join(labels[:SHOWN_LABELS])
    if len(labels) > SHOWN_LABELS:
        text += f", ... ({len(labels)})"
    return text
