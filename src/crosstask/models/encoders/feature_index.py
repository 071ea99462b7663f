"""Features that are on disk already, had without the encoder that made them: loading it takes longer than using them.

An encoder of files is known by their names, sizes and times; a note beside the features says which ones are its own.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from crosstask.data.task import Task
from crosstask.models.encoder import PreparedInput
from crosstask.models.encoders import ENCODERS
from crosstask.models.encoders.feature_cache import FeatureCache, cache_folder
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.encoders.hugging_face import minilm_folder
from crosstask.storage import write_text
from crosstask.validation import name_and_options


def remember(section: Mapping[str, Any], tasks: Sequence[Task], encoder: FrozenEncoder) -> None:
    """Note which features are those of this `encoder` section, for `recall`."""
    note = _note(section, tasks)
    if note is not None and encoder.cache is not None:
        write_text(note, json.dumps({"features": encoder.cache.folder.name}) + "\n")


def recall(
    section: Mapping[str, Any], tasks: Sequence[Task], wanted: Sequence[Task]
) -> dict[str, list[PreparedInput]] | None:
    """Features of all training examples of the wanted tasks, or None where one of them has to be computed.

    Args:
        section: the `encoder` section, with `freeze`.
        tasks: those that the encoder would be built for.
        wanted: those whose features are asked for, by name.
    """
    note = _note(section, tasks)
    if note is None or not note.is_file():
        return None
    cache = FeatureCache(cache_folder() / "features" / json.loads(note.read_text(encoding="utf-8"))["features"])
    found = {}
    for task in wanted:
        rows = cache.find(task.train.inputs, task.train.form)
        if rows is None:
            return None
        found[task.name] = rows
    return found


def _note(section: Mapping[str, Any], tasks: Sequence[Task]) -> Path | None:
    """Where the note on an encoder stands; None for one whose weights are no files at a known place."""
    name, options = name_and_options("encoder", section)
    if not options.get("freeze") or options.get("cache") is False or name in ENCODERS:
        return None
    folder = Path(minilm_folder() if name == "minilm" else name)
    if not folder.is_dir():
        return None
    files = sorted(
        (str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    )
    only_tags = all(task.kind == "tagging" for task in tasks)
    known_by = repr((metadata.version("crosstask"), str(folder.resolve()), sorted(options.items()), only_tags, files))
    return cache_folder() / "encoders" / f"{hashlib.sha256(known_by.encode()).hexdigest()[:32]}.json"
