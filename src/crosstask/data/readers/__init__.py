"""Readers: from a file of any known format to `Examples`. A new format is a module here and a line in `READERS`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from crosstask.data.examples import Examples
from crosstask.data.options import TASK_KEYS
from crosstask.data.plain_text import one_line
from crosstask.data.readers.arff import read_arff
from crosstask.data.readers.blocks import Blocks, FileBlocks, check_window
from crosstask.data.readers.columns import read_columns
from crosstask.data.readers.conllu import read_conllu
from crosstask.data.readers.csv import read_csv, read_tsv
from crosstask.data.readers.hub import hub_blocks, read_hub
from crosstask.data.readers.jsonl import read_jsonl
from crosstask.data.readers.lines import read_lines
from crosstask.data.readers.parquet import read_parquet
from crosstask.data.readers.several import HUB, Files, file_paths, joined, listed_files
from crosstask.data.readers.source import Encoding, Source
from crosstask.data.readers.stream import Limits
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief
from crosstask.validation import check_values, shown

Count = Annotated[int, Field(ge=1)]

READ_BY_LINES = ("csv", "tsv", "jsonl", "lines")
"""Formats with a row on each line."""

__all__ = ["READERS", "Reader", "blocks_of", "check", "format_of", "read", "reader_for"]


@dataclass(frozen=True)
class Reader:
    """A format: its name, the function that reads it, the suffixes of its files, and a summary in one line.

    Files also have the option `max_bytes`, and those of text `encoding`, which `Source` applies.
    """

    name: str
    read: Callable[..., Examples]
    suffixes: tuple[str, ...]
    summary: str
    is_text: bool = True
    is_file: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        """The options of this format: the encoding of text, and the keyword parameters of its function."""
        names = ["encoding"] if self.is_text else []
        for parameter in inspect.signature(self.read).parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                names.append(parameter.name)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:  # annotated with the TypedDict of its keys
                names.extend(get_args(parameter.annotation)[0].__annotations__)
        if self.is_file:
            names.append("max_bytes")
        return tuple(names)


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("csv", read_csv, (".csv",), "comma-separated table, quoted as RFC 4180 says"),
        Reader("tsv", read_tsv, (".tsv", ".tab"), "tab-separated table without quoting"),
        Reader("jsonl", read_jsonl, (".jsonl", ".ndjson", ".json"), "a JSON object a line"),
        Reader("parquet", read_parquet, (".parquet",), "Parquet table", is_text=False),
        Reader("columns", read_columns, (".conll", ".iob", ".iob2", ".bio"), "a word and its labels a line"),
        Reader("conllu", read_conllu, (".conllu", ".conllulex", ".conllup"), "Universal Dependencies and extensions"),
        Reader("lines", read_lines, (), "label, space or tab, text on each line"),
        Reader("arff", read_arff, (".arff",), "numeric features with one or several labels"),
        Reader("hub", read_hub, (), "Hugging Face data set, owner/name:split, or a folder of that kind", False, False),
    )
}


def read(
    path: Files,
    *,
    format: str | None = None,
    folder: str | Path = ".",
    task: str = "task",
    options: Mapping[str, Any] | None = None,
) -> Examples:
    """The examples of a file, or of several in a row.

    Args:
        path: the file, a list of files, or a pattern such as `parts/*.csv`; relative paths start at `folder`.
        format: a key of `READERS`; inferred from the file's name when left out.
        folder: where relative paths start.
        task: the name of the task, for error messages.
        options: those of the format's reader.
    """
    check(path, format=format, task=task, options=options)
    reader_options = dict(options or {})
    encoding = reader_options.pop("encoding", "utf-8")
    limits = Limits(reader_options.pop("max_bytes", None))
    parts = []
    for file in file_paths(path, format=format, folder=folder, task=task):
        source = Source(task, file, Path(folder) / file, encoding, limits)
        parts.append(reader_for(file, format, task).read(source, **reader_options))
    return parts[0] if len(parts) == 1 else joined(parts, task)


def blocks_of(
    path: Files,
    format: str | None,
    folder: str | Path,
    task: str,
    options: Mapping[str, Any],
    split_options: Mapping[str, Any],
) -> Blocks | None:
    """What is read a window at a time; None where it has no more rows than a window."""
    check_window(task, split_options)
    reader = check(path, format=format, task=task, options=options)
    names = file_paths(path, format=format, folder=folder, task=task)
    window, seed = split_options["window"], split_options.get("seed", 0)
    if reader.name == HUB and len(names) == 1:
        return hub_blocks(Source(task, names[0], Path(folder) / names[0]), window=window, seed=seed, **options)
    if reader.name not in READ_BY_LINES or len(names) > 1:
        what_is_named = f"{len(names)} files" if len(names) > 1 else f"the format {reader.name}"
        raise CrossTaskError(
            f"Task '{task}': `window` reads one file of the format {', '.join(READ_BY_LINES)}, or one data set of the "
            f"hub; found {what_is_named}. Others become a data set of the package `datasets`, and `Task.from_dataset` "
            "takes a window of that."
        )
    reader_options = dict(options)
    encoding = reader_options.pop("encoding", "utf-8")
    if not isinstance(encoding, str) or encoding.lower().replace("-", "").startswith(("utf16", "utf32")):
        raise CrossTaskError(
            f"Task '{task}': `window` needs one `encoding` in which a byte ends a line, such as utf-8."
        )
    limits = Limits(reader_options.pop("max_bytes", None))
    return FileBlocks.of(
        Source(task, names[0], Path(folder) / names[0], encoding, limits),
        reader.read,
        reader_options,
        has_header=reader.name in ("csv", "tsv") and reader_options.get("header", True) is True,
        window=window,
        seed=seed,
    )


def file_options(*, encoding: Encoding = "utf-8", max_bytes: Count | None = None) -> None:
    """Options of all files.

    Args:
        encoding: how text is coded; of several the first that fits is taken.
        max_bytes: how many bytes of a file, unpacked, are read at most; 4 GiB when left out. A line may take a 64th of
            it, at least 64 MiB.
    """


def check(path: Files, *, format: str | None, task: str, options: Mapping[str, Any] | None = None) -> Reader:
    """The reader of a file, or of the first of several, and an error for options that it does not have.

    No file is touched.
    """
    first, *others = listed_files(path, task)
    for other in others:
        check(other, format=format, task=task, options=options)
    reader = reader_for(first, format, task)
    values = dict(options or {})
    _check_options(reader, values, task)
    check_values(f"Task '{one_line(task)}'", file_options, values)
    check_values(f"Task '{one_line(task)}'", reader.read, values)
    Source(task, first, Path(first), values.get("encoding", "utf-8")).check_encoding()
    return reader


def reader_for(path: str, format: str | None, task: str) -> Reader:
    """The reader of a format that is named, or inferred from the file's name."""
    if format is not None:
        if not isinstance(format, str):
            raise CrossTaskError(f"Task '{one_line(task)}': `format` is a name such as csv; found {shown(format)}.")
        if format not in READERS:
            name = brief(format)
            raise CrossTaskError(f"Task '{one_line(task)}': unknown format '{name}'. {did_you_mean(name, READERS)}")
        return READERS[format]
    inferred = format_of(path)
    if inferred is not None:
        return READERS[inferred]
    raise CrossTaskError(
        f"Task '{task}': the format of {one_line(path)} cannot be told from its name; name it with `format`, one of "
        f"{', '.join(READERS)}."
    )


def format_of(path: str) -> str | None:
    """The name of the format that a file's name implies.

    >>> format_of("a.JSONL.gz"), format_of("a.txt")
    ('jsonl', None)
    """
    name = path.lower().removesuffix(".gz")
    for reader in READERS.values():
        if name.endswith(reader.suffixes):
            return reader.name
    return None


def _check_options(reader: Reader, options: Mapping[str, Any], task: str) -> None:
    for key in options:
        if key in reader.options:
            continue
        # An option of another format is worth a hint of its own.
        others = [other.name for other in READERS.values() if key in other.options]
        if others:
            raise CrossTaskError(
                f"Task '{task}': the format {reader.name} has no option '{key}' (it belongs to {', '.join(others)}); "
                f"its options: {', '.join(reader.options)}."
            )
        keys = (*reader.options, *TASK_KEYS)
        raise CrossTaskError(
            f"Task '{task}': unknown option '{brief(key)}' for the format {reader.name}. {did_you_mean(str(key), keys)}"
        )
