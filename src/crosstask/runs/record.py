"""The record: everything that a run learns, one JSON line per event, as it happens; and the names of a run's files."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from crosstask.runs.event_types import find_damage
from crosstask.runs.events import Event, Row
from crosstask.storage import DamagedFileError, append_text, encoded, read_lines, read_text, write_text
from crosstask.validation import shown

RECIPE_FILE = "recipe.yaml"
ENVIRONMENT_FILE = "environment.json"
HISTORY_FILE = "history.jsonl"
METRICS_FILE = "metrics.json"
PREDICTIONS_FILE = "predictions.jsonl"
REPORT_FILE = "report.html"
CHECKPOINTS_FOLDER = "checkpoints"
MODEL_FOLDER = "model"
RUN_FILES = (
    RECIPE_FILE,
    ENVIRONMENT_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    PREDICTIONS_FILE,
    REPORT_FILE,
    CHECKPOINTS_FOLDER,
    MODEL_FOLDER,
)
"""Everything that a run folder can hold, but for `.lock` while it is written and what trackers put there."""

MAX_HISTORY_BYTES = 2**32
"""A weighting that writes down what it saw of a thousand tasks at every step comes to more than other files."""

SomeEvent = TypeVar("SomeEvent", bound=Event)
Json = TypeVar("Json")


class Record:
    """An append-only history, in memory and, given a path, on disk.

    Rows say what they are under `event`. A run that is resumed cuts the file back to the rows that it had at its
    checkpoint and goes on from there, so that the file reads as if nothing had happened. `readers` get every new event.
    """

    def __init__(self, path: Path | None = None, keep: int | None = None) -> None:
        self.path: Path | None = None
        self.rows: list[Row] = []
        self.readers: list[Callable[[Event], None]] = []
        self._sha256 = hashlib.sha256()  # of all lines
        if path is not None:
            self.open(path, keep)

    def open(self, path: Path, keep: int | None = None) -> None:
        """Go on in a file, after cutting it back to its first `keep` rows."""
        self.path = path
        if keep is not None and path.exists():
            lines, self.rows = read_first_rows(path, keep)
            write_text(path, "".join(lines))
            for line in lines:
                self._add_to_digest(line)

    @property
    def digest(self) -> str:
        """Of all rows, as they stand in the file."""
        return self._sha256.hexdigest()

    def flush_to_disk(self) -> None:
        """See to it that all rows so far outlive a power cut."""
        if self.path is not None and self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _add_to_digest(self, line: str) -> None:
        self._sha256.update(encoded(line))

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
            line = _as_line(row)
            append_text(self.path, line)
            self._add_to_digest(line)

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
    write_text(path, "".join(_as_line(row) for row in rows))


def _as_line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_history(path: Path) -> list[Row]:
    """The rows of a history file; a last line that a kill cut short is left out."""
    rows = read_rows(path)
    _check_events(path, rows)
    return rows


def read_rows(path: Path) -> list[Row]:
    """The objects in a file of JSON lines."""
    rows = read_lines(path, max_bytes=MAX_HISTORY_BYTES)
    _check_rows(path, rows)
    return rows


def read_first_rows(path: Path, count: int) -> tuple[list[str], list[Row]]:
    """The first lines of a history file, with their line breaks, and the rows in them."""
    if count == 0:  # whatever else is in it
        return [], []
    # Not splitlines: a text inside a row may hold other line separators of Unicode.
    texts = read_text(path, max_bytes=MAX_HISTORY_BYTES).split("\n")[:-1]
    if len(texts) < count:
        raise DamagedFileError(f"'{path}' has {len(texts)} lines, but its checkpoint was made after {count}.")
    lines: list[str] = []
    rows: list[Row] = []
    for number, text in enumerate(texts[:count], 1):
        lines.append(text + "\n")
        try:
            rows.append(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise DamagedFileError(f"'{path}, line {number}' is damaged: it holds no row.") from error
    _check_rows(path, rows)
    _check_events(path, rows)
    return lines, rows


def digest_of(lines: Iterable[str]) -> str:
    """What `Record.digest` is after these lines."""
    sha256 = hashlib.sha256()
    for line in lines:
        sha256.update(encoded(line))
    return sha256.hexdigest()


def _check_rows(path: Path, rows: Sequence[object]) -> None:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise DamagedFileError(f"'{path}, line {number}' is damaged: expected a mapping, found {shown(row)}.")


def _check_events(path: Path, rows: Sequence[Row]) -> None:
    damage = find_damage(rows)
    if damage is not None:
        number, problem = damage
        raise DamagedFileError(f"'{path}, line {number}' is damaged: {problem}.")
