"""Data files of every local format with the options of their tasks."""

import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from crosstask.data.options import SplitOptions
from crosstask.data.readers import READERS
from crosstask.data.task import Task
from crosstask.validation import options_model
from fuzz.mutations import BINARY_CHANGES, CHANGES, Draw, change_json, mutate, sometimes
from fuzz.odd_values import ENCODINGS
from fuzz.oracle import WrongAnswer
from fuzz.samples import local_formats, samples
from fuzz.schemas import draw_from_schema


@dataclass(frozen=True)
class FileCase:
    """A file that is read as a task."""

    name: str
    content: bytes
    options: dict[str, Any]

    def run(self, folder: Path) -> None:
        """Read the task; what was read has labels, finite numbers and as many rows as it was limited to."""
        (folder / self.name).write_bytes(self.content)
        task = Task.read("tiny", self.name, folder=folder, **self.options)
        check_task(task)
        limit = self.options.get("limit")
        if isinstance(limit, int) and len(task.train) > limit:
            raise WrongAnswer("more examples than `limit`", f"{len(task.train)} > {limit}")


def check_task(task: Task) -> None:
    """What holds of every task that could be read."""
    for split, examples in task.splits.items():
        if len(examples) != len(examples.labels) or (split == "train" and not len(examples)):
            raise WrongAnswer("inputs and labels differ in number", f"{split}, {len(examples)}")
        if isinstance(examples.inputs, np.ndarray) and not np.isfinite(examples.inputs).all():
            raise WrongAnswer("features are not finite", split)
        if not np.isfinite(np.concatenate([np.ravel(item) for item in task.spec.encode(examples)] or [[0]])).all():
            raise WrongAnswer("labels are not finite", split)
    fewest = {"regression": 0, "multilabel": 1}.get(task.kind, 2)
    if len(task.labels) < fewest:
        raise WrongAnswer("too few labels", task.labels)
    if not (math.isfinite(task.spec.mean) and math.isfinite(task.spec.scale) and task.spec.scale > 0):
        raise WrongAnswer("labels cannot be standardized", f"{task.spec.mean}, {task.spec.scale}")


@st.composite
def file_cases(draw: Draw) -> FileCase:
    """A right file of a format, its content and its options changed."""
    format = draw(st.sampled_from(local_formats()))
    sample = draw(st.sampled_from(samples(format)))
    content = draw_content(draw, sample.content, format)
    options = {**sample.options, **draw_options(draw, format)}
    name = "data" + (READERS[format].suffixes or (".txt",))[0]
    if name.endswith(".txt") or sometimes(draw, 10):
        options["format"] = format
    if sometimes(draw, 12):
        name += ".gz"
        content = mutate(draw, gzip.compress(content, mtime=0), BINARY_CHANGES, most=1)
    return FileCase(name, content, options)


def draw_content(draw: Draw, content: bytes, format: str) -> bytes:
    """The bytes of a file after some changes, perhaps in another encoding."""
    if not READERS[format].is_text:
        return mutate(draw, content, BINARY_CHANGES, most=2)
    changes = CHANGES
    if format == "jsonl":
        changes = (*CHANGES, *[change_json] * 6)
    if sometimes(draw, 15):
        content = content.decode().encode(draw(st.sampled_from(["utf-16", "utf-8-sig", "utf-32", "utf-16-be"])))
    return mutate(draw, content, changes)


@cache
def _properties(function: Callable[..., object]) -> dict[str, Any]:
    """The schemas of a function's options by name."""
    properties: dict[str, Any] = options_model(function, ("source",)).model_json_schema()["properties"]
    return properties


def draw_options(draw: Draw, format: str) -> dict[str, Any]:
    """Some options of the format and of splits."""
    options: dict[str, Any] = {}
    for properties in (_properties(READERS[format].read), _properties(SplitOptions)):
        for name in draw(st.lists(st.sampled_from(list(properties)), max_size=2, unique=True)):
            if sometimes(draw, 2):
                options[name] = draw_from_schema(draw, properties[name], oddness=6)
    if sometimes(draw, 12):
        options["encoding"] = draw(st.sampled_from(ENCODINGS) | st.just(["utf-8", "latin-1"]) | st.just(5))
    if sometimes(draw, 20):
        options["dev"] = draw_from_schema(draw, {"type": "number"}, oddness=4)
    return options
