"""Several files that make one split: lists of them, patterns such as `parts/*.csv`, and their examples in a row."""

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.examples import FORM_WORDS, Examples, line_numbers
from crosstask.data.plain_text import one_line
from crosstask.errors import CrossTaskError
from crosstask.validation import shown

Files = str | Path | Sequence[str | Path]
"""A file, a pattern such as `parts/*.csv`, or a list of these."""
HUB = "hub"
"""The format whose names are no files: `owner/name:train[:100]` is no pattern."""


def file_paths(files: Files, *, format: str | None, folder: str | Path, task: str) -> list[str]:
    """The path of each file: a pattern stands for all files that it fits, in the order of their names."""
    paths: list[str] = []
    for path in listed_files(files, task):
        if not has_pattern(path, format, folder):
            paths.append(path)
            continue
        fitting = fitting_files(path, folder)
        if not fitting:
            raise CrossTaskError(
                f"Task '{one_line(task)}': no file fits {one_line(path)} in the folder "
                f"{one_line(str(Path(folder).resolve()))}."
            )
        paths += fitting
    for path in paths:
        if paths.count(path) > 1:
            raise CrossTaskError(
                f"Task '{one_line(task)}': {one_line(path)} is named twice among the files of a split."
            )
    return paths


def listed_files(files: Files, task: str) -> list[str]:
    """The files as a list, patterns as they are; an error for what is no path."""
    paths = [files] if isinstance(files, str | Path) else list(files)
    if not paths:
        raise CrossTaskError(f"Task '{one_line(task)}': the list of files is empty; name one at least.")
    for path in paths:
        if not isinstance(path, str | Path):
            raise CrossTaskError(f"Task '{one_line(task)}': a list of files holds paths; found {shown(path)}.")
    return [str(path) for path in paths]


def has_pattern(path: str, format: str | None, folder: str | Path) -> bool:
    """Whether a path is a pattern, and neither a file of that name nor a data set of the hub."""
    return format != HUB and glob.has_magic(path) and "\0" not in path and not os.path.lexists(Path(folder) / path)


def fitting_files(pattern: str, folder: str | Path) -> list[str]:
    """The files that a pattern fits, in the order of their names; relative to the folder, as the pattern is."""
    names = sorted(glob.glob(pattern, root_dir=folder, recursive=True))
    return [name for name in names if (Path(folder) / name).is_file()]


def joined(parts: Sequence[Examples], task: str) -> Examples:
    """The examples of several files in a row; each still knows its file and line."""
    first = parts[0]
    inputs: Any = []
    labels: list[Any] = []
    lines, file_numbers = line_numbers(), line_numbers()
    notes: dict[str, None] = {}  # files of one kind have the same ones
    for number, part in enumerate(parts):
        _check_alike(first, part, task)
        labels += part.labels
        notes |= dict.fromkeys(part.notes)
        lines.extend(part.lines if part.lines is not None else range(1, len(part) + 1))
        file_numbers.extend([number] * len(part))
        if first.form != "vector":
            inputs += part.inputs
    if first.form == "vector":
        inputs = np.concatenate([part.inputs for part in parts])
    files = tuple(part.source for part in parts)
    return replace(
        first,
        inputs=inputs,
        labels=labels,
        source=f"{files[0]} and {len(files) - 1} more",
        lines=lines,
        files=files,
        file_numbers=file_numbers,
        notes=tuple(notes),
    )


def _check_alike(first: Examples, other: Examples, task: str) -> None:
    if other.form != first.form:
        raise CrossTaskError(
            f"Task '{one_line(task)}': {one_line(other.source)} holds {FORM_WORDS[other.form]}, "
            f"{one_line(first.source)} holds {FORM_WORDS[first.form]}; files of one split hold the same."
        )
    if first.form == "vector" and np.shape(other.inputs)[1] != np.shape(first.inputs)[1]:
        raise CrossTaskError(
            f"Task '{one_line(task)}': {one_line(other.source)} has vectors of {np.shape(other.inputs)[1]} numbers, "
            f"{one_line(first.source)} of {np.shape(first.inputs)[1]}."
        )
    check_same_features(first, other, task)


def check_same_features(first: Examples, other: Examples, task: str) -> None:
    """Vectors are compared number by number, so their columns must be the same in the same order."""
    if not first.features or not other.features or first.features == other.features:
        return
    for position, (expected, name) in enumerate(zip(first.features, other.features, strict=False), start=1):
        if name != expected:
            raise CrossTaskError(
                f"Task '{one_line(task)}': feature {position} of {one_line(other.source)} is the column {shown(name)}, "
                f"that of {one_line(first.source)} is {shown(expected)}; list the columns under `features`."
            )
