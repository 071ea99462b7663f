"""Data sets of the Hugging Face hub, and folders in its layouts, by the package `datasets`."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.data.task import Examples
from crosstask.errors import CrossTaskError, import_extra
from crosstask.hub import hub_is_reachable

_SAVED = ("dataset_info.json", "dataset_dict.json")


def read_hub(source: Source, *, config: str | None = None, **options: Unpack[NestedTableOptions]) -> Examples:
    """Examples from "owner/name:split" on the hub, or from "folder:split" on disk. Rows count as lines, from 1.

    Classes that the data set stores as numbers get their names. No code of the data set's is ever run: `datasets` from
    version 4 on has no way to.

    Args:
        source: the data set; its path is tried as a folder first.
        config: the configuration of a data set that has several.
        options: see `NestedTableOptions`.
    """
    name, split = _parts(source.name)
    datasets = import_extra("datasets", extra="hub", purpose="Reading data sets of the hub")
    folder = Path(str(source.path).removesuffix(f":{split}")) if split else source.path
    try:
        data = _load(datasets, name, folder, split, config)
    except Exception as error:  # the package raises errors of four others; whichever it is, the user gets a sentence
        raise _load_error(source, name, folder, error) from error
    if isinstance(data, dict):
        if split is None and len(data) == 1:
            split = next(iter(data))
        if split not in data:
            found = "names no split" if split is None else f"has no split '{split}'"
            raise source.error(f"{found}; its splits: {', '.join(data)}. Write '{name}:{next(iter(data))}'.")
        data = data[split]
    names = list(data.column_names)

    def column(place: int) -> list[Any]:
        decode = _decoder(data.features[names[place]])
        return [decode(value) for value in data[names[place]][:]]

    return examples_from(Table(source, names, column, range(1, len(data) + 1)), options)


def _parts(path: str) -> tuple[str, str | None]:
    """Name and split; the split may hold a colon itself, and so may a Windows drive.

    >>> _parts("owner/name:train[:100]"), _parts("owner/name")
    (('owner/name', 'train[:100]'), ('owner/name', None))
    """
    cut = path.find(":", 2 if re.match(r"[A-Za-z]:[/\\]", path) else 0)
    return (path, None) if cut < 0 else (path[:cut], path[cut + 1 :])


def _load(datasets: Any, name: str, folder: Path, split: str | None, config: str | None) -> Any:
    if folder.is_dir():
        if any((folder / file).exists() for file in _SAVED):
            return datasets.load_from_disk(str(folder))
        name = str(folder)
    elif not hub_is_reachable():  # what was fetched before is still there; do not wait for retries
        datasets.config.HF_HUB_OFFLINE = True
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


def _decoder(feature: Any) -> Callable[[Any], Any]:
    """What turns a stored value into what people call it: the number of a class into its name."""
    inner = getattr(feature, "feature", None)
    if isinstance(feature, list) and len(feature) == 1:
        inner = feature[0]
    if inner is not None:
        decode = _decoder(inner)
        return lambda values: None if values is None else [decode(value) for value in values]
    names: Sequence[str] | None = getattr(feature, "names", None)
    if names is None:
        return lambda value: value
    # -1 stands for a label that is kept secret.
    return lambda value: None if value is None or value < 0 else names[value]
