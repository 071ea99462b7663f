"""Whether the rows of a history hold what their events say, so that whoever reads one can rely on its types."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from crosstask.runs.events import EVENTS, Event, Row
from crosstask.validation import shown

REQUIRED_FIELDS = ("name", "kind", "phase", "update", "updates", "losses", "scores", "tasks")
"""Fields that no version has left out, where an event has them; others may be missing in rows of another version."""
FACT_TYPES: dict[str, Any] = {
    "conflict": float,
    "conflict_with_target": float,
    "effective_sample_size": float,
    "similarities": dict[str, float],
    "label_map": dict[str, dict[str, dict[str, dict[str, float]]]],  # target, source, source label, target label
    "similarity": dict[str, dict[str, float]],
    "similarity_before": dict[str, dict[str, float]],
    "attention": dict[str, dict[str, list[float]]],
    "merge_weights": dict[str, float],
    "branch_losses": dict[str, float],
    "merged_loss": float,
}
"""Those facts of weightings and transfers that others read."""


def find_damage(rows: Sequence[Row]) -> tuple[int, str] | None:
    """The number, from 1, of the first row that its event could not have written, and what is wrong with it."""
    types_by_event: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows, start=1):
        name = row.get("event", "")
        if not isinstance(name, str):
            return number, f"`event` is {shown(name)}"
        if name not in EVENTS:  # of another version
            continue
        if name not in types_by_event:
            types_by_event[name] = _field_types(EVENTS[name])
        problem = _problem(row, types_by_event[name])
        if problem is not None:
            return number, f"a row '{name}' {problem}"
    return None


def _problem(row: Row, field_types: Mapping[str, Any]) -> str | None:
    for name, hint in field_types.items():
        value = row.get(name)
        if value is None:
            if name in REQUIRED_FIELDS:
                return f"has no '{name}'"
        elif not _fits(value, hint):
            return f"has {shown(value)} as '{name}'"
    return None


def _field_types(kind: type[Event]) -> dict[str, Any]:
    """The types of an event's fields and, where it has any, of its facts."""
    hints = get_type_hints(kind)
    field_types = {item.name: hints[item.name] for item in fields(kind)}
    if field_types.pop("facts", None) is None:
        return field_types
    return {**FACT_TYPES, **field_types}


def _fits(value: object, hint: Any) -> bool:
    """Whether a value of a JSON file is of this type; null stands for a number that is not finite."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in arguments)
    if origin in (list, Sequence):
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    if hint is float:
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
