"""The record: everything that a run learns, one JSON line per fact, as it happens."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from crosstask.errors import CrossTaskError
from crosstask.runs.events import Event, Row
from crosstask.storage import explain_write_errors, write_text

RECIPE_FILE, ENVIRONMENT_FILE, HISTORY_FILE, METRICS_FILE = (
    "recipe.yaml",
    "environment.json",
    "history.jsonl",
    "metrics.json",
)
CHECKPOINTS_FOLDER, MODEL_FOLDER, REPORT_FILE = "checkpoints", "model", "report.html"
PREDICTIONS_FILE = "predictions.jsonl"


SomeEvent = TypeVar("SomeEvent", bound=Event)


class Record:
    """An append-only history, in memory and, given a path, on disk.

    Rows say what they are under `event`. A run that is resumed cuts the file back to where its checkpoint was and goes
    on from there, so that the file reads as if nothing had happened. `readers` are shown every new row.
    """

    def __init__(self, path: Path | None = None, keep: int | None = None) -> None:
        self.path = path
        self.rows: list[Row] = []
        self.readers: list[Callable[[Row], None]] = []
        if path is not None and keep is not None and path.exists():
            lines = path.read_text(encoding="utf-8").split("\n")[:keep]
            if len(lines) < keep:
                raise CrossTaskError(f"'{path}' has {len(lines)} lines, but its checkpoint was made after {keep}.")
            self.rows = [json.loads(line) for line in lines]
            with explain_write_errors(path):
                write_text(path, "".join(line + "\n" for line in lines))

    def write(self, event: Event) -> None:
        """Add an event."""
        self.append(event.to_json())

    def append(self, row: Row) -> None:
        """Add a row that has its name under `event`."""
        row = finite(row)
        self.rows.append(row)
        if self.path is not None:
            with explain_write_errors(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        for reader in self.readers:
            reader(row)

    def write_all(self, path: Path) -> None:
        """Write a history that was kept in memory into a file, and go on there."""
        write_rows(path, self.rows)
        self.path = path

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, event: str) -> list[Row]:
        """The rows of one name."""
        return [row for row in self.rows if row["event"] == event]

    def events(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        """The events of one type."""
        return [kind.from_json(row) for row in self.of(kind.event)]


def finite(value: Any) -> Any:
    """JSON has no word for nan and infinity; both become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Rows as JSON lines, all at once."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_history(path: Path) -> list[Row]:
    """The rows of a history file; a last line that a kill cut short is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
