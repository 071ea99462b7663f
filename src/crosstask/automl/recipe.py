"""The recipe of a search: how its tasks are read, so that training by what it writes gives the same model."""

from collections.abc import Mapping
from typing import Any

from crosstask.data.readers.several import HUB
from crosstask.studies.method import Section

WHAT_A_LIMIT_DRAWS = ("seed", "class_weights")
"""Options with which a subset of a subset is not that of the whole: the file's own limit stays."""


def sections_to_read(tasks: Mapping[str, Section], target: str) -> tuple[dict[str, Section], dict[str, int]]:
    """The sections of tasks as a search reads them, and limits that it keeps to itself, by task.

    All labels of the target train: no dev set is cut from them, and those of a dev file are read after the others.
    Sources need no dev set. Where fewer examples fit into the time than a limit allows, they are drawn from all of the
    file, as the limit that is written down will draw them.
    """
    sections: dict[str, Section] = {}
    limits: dict[str, int] = {}
    for name, user_section in tasks.items():
        section = dict(user_section)
        limit = section.get("limit")
        count = _count(limit)
        if count is not None and not any(key in section for key in WHAT_A_LIMIT_DRAWS):
            limits[name] = count
            del section["limit"]
        if section.get("split") is None:
            _without_dev(section, is_target=name == target, is_limited=limit is not None)
        sections[name] = section
    return sections, limits


def _without_dev(section: dict[str, Any], *, is_target: bool, is_limited: bool) -> None:
    dev = section.get("dev")
    has_file = isinstance(dev, str | list)
    if is_target and has_file:
        if is_limited or "dev_limit" in section or section.get("format") == HUB:
            return  # what is limited is one of the files
        section["train"] = [*_files(section["train"]), *_files(dev)]
    section.pop("dev_limit", None)
    section["dev"] = False


def _files(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _count(limit: object) -> int | None:
    """How many examples a limit draws at random; None where it balances them, or there is none."""
    if isinstance(limit, Mapping):
        limit = None if limit.get("balanced") else limit.get("count")
    if isinstance(limit, bool) or not isinstance(limit, int):
        return None
    return limit


def limited_section(section: Section, num_examples: int) -> Section:
    """The section of a task that reads as many of its examples, drawn in the same way."""
    limit = section.get("limit")
    count = limit.get("count") if isinstance(limit, Mapping) else limit
    if isinstance(count, int) and count <= num_examples:
        return section
    if section.get("window") is not None:  # which reads a part of the rows at a time by itself
        return section
    return {**section, "limit": num_examples}
