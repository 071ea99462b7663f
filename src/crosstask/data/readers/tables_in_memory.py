"""Tables that are in memory: records, data frames of pandas, data sets of `datasets`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crosstask.data.examples import Examples
from crosstask.data.in_memory import is_missing, plain
from crosstask.data.options import SPLIT_OPTIONS
from crosstask.data.plain_text import text_of
from crosstask.data.readers.blocks import Blocks, DatasetBlocks
from crosstask.data.readers.column_roles import LABEL_NAMES, NestedTableOptions, TableOptions
from crosstask.data.readers.hub import dataset_table
from crosstask.data.readers.jsonl import ObjectRuns
from crosstask.data.readers.source import Source
from crosstask.data.readers.streamed import StreamBlocks, is_streamed, whole
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief
from crosstask.validation import shown

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset
    from pandas import DataFrame

DEV_NAMES = ("validation", "dev", "valid", "val")
"""Usual names of the split that chooses."""


def records_examples(task: str, role: str, records: object, options: NestedTableOptions) -> Examples:
    """Examples from a list of records, each a mapping from column to cell; a key that is missing is an empty cell."""
    source = _source(task, role)
    if isinstance(records, Mapping | str | bytes) or not isinstance(records, Sequence):
        raise source.option_error(
            f"{role} is a list of records, a mapping from column to value for each example; found {shown(records)}."
        )
    runs = ObjectRuns()
    for number, record in enumerate(records, start=1):
        if not isinstance(record, Mapping):
            raise source.error(f"is {shown(record)}; a record is a mapping from column to value.", number)
        runs.add({text_of(key): plain(value) for key, value in record.items()})
    names = list(runs.names)
    return _examples(source, names, lambda index: runs.column(names[index]), len(records), options)


def frame_examples(task: str, role: str, frame: "DataFrame", options: NestedTableOptions) -> Examples:
    """Examples from a data frame of pandas."""
    source = _source(task, role)
    if not (hasattr(frame, "iloc") and hasattr(frame, "columns")):
        raise source.option_error(
            f"{role} is a data frame of pandas; found {shown(frame)}. `Task.from_records` takes lists of mappings, "
            "`Task.from_arrays` takes inputs and labels."
        )

    def column(index: int) -> list[Any]:
        return [plain(value) for value in frame.iloc[:, index].tolist()]

    return _examples(source, [text_of(name) for name in frame.columns], column, len(frame), options)


def dataset_examples(task: str, role: str, dataset: "Dataset", options: NestedTableOptions) -> Examples:
    """Examples from a data set of the package `datasets`; numbers of classes become their names."""
    source = _source(task, role)
    if is_streamed(dataset):
        raise source.option_error(
            f"{role} is a data set that is streamed: `window=50_000` reads so many rows of a source at a time. For a "
            "target, `Dataset.from_list(list(data.take(1000)))` makes a data set."
        )
    if not (hasattr(dataset, "column_names") and hasattr(dataset, "features") and hasattr(dataset, "__len__")):
        raise source.option_error(f"{role} is a `datasets.Dataset` or a `DatasetDict`; found {shown(dataset)}.")
    table = dataset_table(source, dataset)
    return _examples(source, table.names, lambda index: list(map(plain, table.column(index))), len(table), options)


def dataset_blocks(
    task: str, dataset: "Dataset | IterableDataset", options: NestedTableOptions, *, window: int, seed: int
) -> Blocks | None:
    """Windows of a data set, streamed or not; None where it has no more rows than one of them, or is none."""
    read = partial(dataset_examples, task, "train", options=options)
    if is_streamed(dataset):
        return StreamBlocks.of(_source(task, "train"), dataset, read, window=window, seed=seed)
    if hasattr(dataset, "select"):  # else reading says what it is
        return DatasetBlocks.of(dataset, read, window=window, seed=seed)
    return None


def in_memory(task: str, role: str, dataset: Any) -> Any:
    """A data set that is streamed, as one that is not; anything else as it is."""
    return whole(_source(task, role), dataset) if is_streamed(dataset) else dataset


@dataclass(frozen=True)
class DatasetSplits:
    """Splits of a data set that train, choose and measure; `unused` are the names of others."""

    train: "Dataset"
    dev: "Dataset | float | bool | None"
    test: "Dataset | None"
    unused: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        task: str,
        data: "Dataset | DatasetDict",
        dev: "Dataset | str | float | bool | None",
        test: "Dataset | str | None",
    ) -> "DatasetSplits":
        """The splits that are named or have their usual names."""
        if not isinstance(data, Mapping):
            for role, split in {"dev": dev, "test": test}.items():
                if isinstance(split, str):
                    raise CrossTaskError(
                        f"Task '{task}': `{role}` names the split {shown(split)}, but the data set has no splits; give "
                        "a data set."
                    )
            return cls(data, dev, test)
        names = [str(name) for name in data]
        if "train" not in names and len(names) != 1:
            raise CrossTaskError(
                f"Task '{task}': the data set has no split 'train'; it has {', '.join(map(brief, names)) or 'none'}. "
                "Choose some, as in `from_dataset(name, data[...], test=data[...])`."
            )
        train = "train" if "train" in names else names[0]
        if dev is None or dev is True:
            dev = next((name for name in DEV_NAMES if name in names), dev)
        if test is None and "test" in names:
            test = "test"
        role_names = {train, *(split for split in (dev, test) if isinstance(split, str))}
        for split in role_names:
            if split not in names:
                raise CrossTaskError(
                    f"Task '{task}': the data set has no split {shown(split)}. {did_you_mean(split, names)}"
                )
        unused = tuple(name for name in names if name not in role_names)
        dev_split = data[dev] if isinstance(dev, str) else dev
        test_split = data[test] if isinstance(test, str) else test
        return cls(data[train], dev_split, test_split, unused)

    def with_held_out_in_memory(self, task: str) -> "DatasetSplits":
        """What chooses and measures is read as a whole, also where it is streamed."""
        return replace(self, dev=in_memory(task, "dev", self.dev), test=in_memory(task, "test", self.test))

    def without_secret_labels(self, options: NestedTableOptions) -> tuple["DatasetSplits", list[str]]:
        """The splits without a test set that has no labels, as that of a benchmark often has none; and notes."""
        splits, notes = self, []
        if self.unused:
            notes.append(f"splits of the data set that are not used: {', '.join(self.unused)}")
        if self.test is not None and not _has_labels(self.test, options):
            splits = replace(self, test=None)
            notes.append("the test set has no labels (all are -1 or missing) and was left out")
        return splits, notes


def _has_labels(dataset: "Dataset", options: NestedTableOptions) -> bool:
    """Whether some example has a label, as far as the column is plain."""
    label = options.get("label") or next((name for name in LABEL_NAMES if name in dataset.column_names), None)
    if not isinstance(label, str) or label not in dataset.column_names or not len(dataset):
        return True
    return any(value != -1 and not is_missing(value) for value in dataset[label][:])


def _source(task: str, role: str) -> Source:
    """What errors name where there is no file: the split, and examples by their number from 1."""
    return Source(task, f"{task}, {role}", Path(), unit="example")


def _examples(
    source: Source,
    names: Sequence[str],
    column: Callable[[int], Sequence[Any]],
    num_rows: int,
    options: NestedTableOptions,
) -> Examples:
    for key in options:
        if key not in NestedTableOptions.__annotations__:
            keys = (*NestedTableOptions.__annotations__, *SPLIT_OPTIONS)
            raise source.option_error(f"unknown option '{brief(key)}'. {did_you_mean(key, keys)}")
    table = Table(source, names, column, range(1, num_rows + 1), typed=True)
    return examples_from(table, cast(TableOptions, options))
