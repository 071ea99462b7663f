"""The record: everything that a run learns, one JSON line per event, as it happens; and the names of a run's files."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from crosstask.errors import CrossTaskError
from crosstask.runs.events import Event, Row
from crosstask.storage import DamagedFileError, explain_write_errors, read_lines, write_text
from crosstask.validation import shown

RECIPE_FILE = "recipe.yaml"
ENVIRONMENT_FILE = "environment.json"
HISTORY_FILE = "history.jsonl"
METRICS_FILE = "metrics.json"
PREDICTIONS_FILE = "predictions.jsonl"
REPORT_FILE = "report.html"
CHECKPOINTS_FOLDER = "checkpoints"
MODEL_FOLDER = "model"

SomeEvent = TypeVar("SomeEvent", bound=Event)
Json = TypeVar("Json")


class Record:
    """An append-only history, in memory and, given a path, on disk.

    Rows say what they are under `event`. A run that is resumed cuts the file back to the rows that it had at its
    checkpoint and goes on from there, so that the file reads as if nothing had happened. `readers` get every new event.
    """

    def __init__(self, path: Path | None = None, keep: int | None = None) -> None:
        self.path = path
        self.rows: list[Row] = []
        self.readers: list[Callable[[Event], None]] = []
        if path is not None and keep is not None and path.exists():
            # Not splitlines: a text inside a row may hold other line separators of Unicode.
            lines = path.read_text(encoding="utf-8").split("\n")[:keep]
            if len(lines) < keep:
                raise CrossTaskError(f"'{path}' has {len(lines)} lines, but its checkpoint was made after {keep}.")
            self.rows = [json.loads(line) for line in lines]
            with explain_write_errors(path):
                write_text(path, "\n".join([*lines, ""]))

    def write(self, event: Event) -> None:
        """Add an event and hand it to the readers."""
        self.append(event.to_json())
        for reader in self.readers:
            reader(event)

    def append(self, row: Row) -> None:
        """Add a row that has its name under `event`."""
        row = finite(row)
        self.rows.append(row)
        if self.path is not None:
            # Opened for each row, so that a kill leaves all rows but the last one complete.
            with explain_write_errors(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def write_all(self, path: Path) -> None:
        """Write a history that was in memory alone into a file, and go on there."""
        write_rows(path, self.rows)
        self.path = path

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, event: str) -> list[Row]:
        """The rows of one name."""
        return [row for row in self.rows if row.get("event") == event]

    def events(self, kind: type[SomeEvent]) -> list[SomeEvent]:
        """The events of one type."""
        return [kind.from_json(row) for row in self.of(kind.event)]


def finite(value: Json) -> Json:
    """Plain data without nan and infinity, for which JSON has no word: both become null.

    >>> finite({"losses": [1.5, float("nan")]})
    {'losses': [1.5, None]}
    """
    plain: object = value
    if isinstance(value, float) and not math.isfinite(value):
        plain = None
    elif isinstance(value, dict):
        plain = {key: finite(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        plain = [finite(item) for item in value]
    return plain  # type: ignore[return-value]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Rows as JSON lines, all at once."""
    lines: list[str] = []
    for row in rows:
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def read_history(path: Path) -> list[Row]:
    """The rows of a history file; a last line that a kill cut short is left out."""
    rows: list[Row] = read_lines(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DamagedFileError(f"'{path}, line {number}' is damaged: expected a mapping, found {shown(row)}.")
    return rows
