"""Data sets of the Hugging Face hub, and folders in its layouts, by the package `datasets`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack

from crosstask.data.examples import Examples
from crosstask.data.plain_text import one_line
from crosstask.data.readers.blocks import Blocks, DatasetBlocks
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.streamed import StreamBlocks, is_streamed, whole
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import CrossTaskError, import_extra
from crosstask.hub import hub_is_reachable
from crosstask.quoting import brief

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset

SAVED_BY_DATASETS = ("dataset_info.json", "dataset_dict.json")
Cell = Any
"""A value of a data set, of whatever type its author stored."""


def read_hub(
    source: Source, *, config: str | None = None, streaming: bool = False, **options: Unpack[NestedTableOptions]
) -> Examples:
    """Examples from "owner/name:split" on the hub, or from "folder:split" on disk. Rows count as lines, from 1.

    Classes that the data set stores as numbers get their names. No code of the data set is ever run: `datasets` from
    version 4 on has no way to.

    Args:
        source: the data set; its path is tried as a folder first.
        config: the configuration of a data set that has several.
        streaming: read rows as they are needed, a `window` of a source at a time, instead of fetching all of the data
            set to this machine first.
        options: see `NestedTableOptions`.
    """
    return examples_from(hub_table(source, config, streaming=streaming), options)


def hub_table(source: Source, config: str | None = None, *, streaming: bool = False) -> Table:
    """A data set of the hub, or in a folder, as a table."""
    data = hub_dataset(source, config, streaming=streaming)
    return dataset_table(source, whole(source, data) if is_streamed(data) else data)


def hub_blocks(
    source: Source,
    *,
    window: int,
    seed: int,
    config: str | None = None,
    streaming: bool = False,
    **options: Unpack[NestedTableOptions],
) -> Blocks | None:
    """Windows of a data set of the hub; None where it has no more rows than one of them."""
    source = replace(source, unit="row of those read")
    data = hub_dataset(source, config, streaming=streaming)
    read = partial(_examples, source, options)
    if is_streamed(data):
        return StreamBlocks.of(source, data, read, window=window, seed=seed)
    return DatasetBlocks.of(data, read, window=window, seed=seed)


def _examples(source: Source, options: NestedTableOptions, rows: "Dataset") -> Examples:
    return examples_from(dataset_table(source, rows), options)


def hub_dataset(source: Source, config: str | None, *, streaming: bool) -> "Dataset | IterableDataset":
    """A data set of the hub, or in a folder, of which nothing is read yet if it is streamed."""
    name, split = _name_and_split(source.name)
    datasets = import_extra("datasets", extra="hub", purpose="Reading data sets of the hub")
    folder = source.path
    if split:
        folder = Path(str(folder).removesuffix(f":{split}"))
    try:
        data = _load(datasets, name, folder, split, config, streaming=streaming)
    except Exception as error:  # the package raises errors of four others; whichever it is, the user gets a sentence
        raise _load_error(source, name, folder, error) from error
    if isinstance(data, dict):
        data = _one_split(source, data, name, split)
    return data


def dataset_table(source: Source, data: "Dataset") -> Table:
    """A data set as a table; classes have their names."""
    names = list(data.column_names)

    def column(index: int) -> list[Cell]:
        try:
            decode = _decoder(data.features[names[index]])
            return [decode(value) for value in data[names[index]][:]]
        except Exception as error:  # pictures and sounds are decoded here, by packages that may be missing or fail
            reason = one_line(str(error).strip().split("\n")[0]) or type(error).__name__
            raise source.error(f"cannot be read in the column '{brief(names[index])}' ({reason}).") from error

    return Table(source, names, column, range(1, len(data) + 1))


def _name_and_split(path: str) -> tuple[str, str | None]:
    """Name and split; the split may hold a colon itself, and so may a Windows drive.

    >>> _name_and_split("owner/name:train[:100]"), _name_and_split("owner/name")
    (('owner/name', 'train[:100]'), ('owner/name', None))
    """
    drive = re.match(r"[A-Za-z]:[/\\]|", path)  # always matches, for lack of a drive the empty text
    colon = path.find(":", drive.end())  # type: ignore[union-attr]
    if colon < 0:
        return path, None
    return path[:colon], path[colon + 1 :]


def _one_split(source: Source, data: "DatasetDict", name: str, split: str | None) -> "Dataset":
    if split is None and len(data) == 1:
        return next(iter(data.values()))
    if split not in data:
        problem = "names no split" if split is None else f"has no split '{split}'"
        raise source.error(f"{problem}; its splits: {', '.join(data)}. Write '{name}:{next(iter(data))}'.")
    return data[split]


def _load(
    datasets: ModuleType, name: str, folder: Path, split: str | None, config: str | None, *, streaming: bool
) -> "Dataset | DatasetDict":
    if folder.is_dir():
        if any((folder / file).exists() for file in SAVED_BY_DATASETS):
            return datasets.load_from_disk(str(folder))
        name = str(folder)
    elif not hub_is_reachable():  # what is in the cache can be read; do not wait for retries
        datasets.config.HF_HUB_OFFLINE = True
    if streaming:
        return datasets.load_dataset(name, name=config, split=split, streaming=True)
    return datasets.load_dataset(name, name=config, split=split)


def _load_error(source: Source, name: str, folder: Path, error: Exception) -> CrossTaskError:
    reason = (str(error).strip().split("\n") or [""])[0][:200] or type(error).__name__
    if folder.is_dir():
        return source.error(f"cannot be read as a data set of the hub's kind ({reason}).")
    if isinstance(error, ConnectionError | TimeoutError | OSError) and not isinstance(error, FileNotFoundError):
        return source.error(
            f"cannot be fetched from the Hugging Face hub ({reason}); check the network, or give a local folder."
        )
    return source.error(
        f"cannot be loaded from the Hugging Face hub ({reason}); check the name '{name}', the split and `config`."
    )


def _decoder(feature: Any) -> Callable[[Cell], Cell]:
    """A function from a stored value to the value that people know: the number of a class becomes its name."""
    inner = getattr(feature, "feature", None)
    if isinstance(feature, list) and len(feature) == 1:
        inner = feature[0]
    names: Sequence[str] | None = getattr(feature, "names", None)

    def class_name(index: int | None) -> str | None:
        # -1 stands for a label that is kept secret.
        if names is None or index is None or index < 0:
            return None
        return names[index]

    def each_of(values: Sequence[Cell] | None) -> list[Cell] | None:
        if values is None:
            return None
        decode = _decoder(inner)
        return [decode(value) for value in values]

    if inner is not None:
        return each_of
    if names is not None:
        return class_name
    return lambda value: value
