"""Many runs that belong together: each is written down as soon as it is done, and what is written is not run again."""

import json
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from crosstask.errors import CrossTaskError
from crosstask.progress import make_progress, shown
from crosstask.runs.environment import environment
from crosstask.runs.events import Row
from crosstask.runs.record import Record, finite, read_history
from crosstask.storage import explain_write_errors, remove_scratch
from crosstask.studies.executors import Place, finished

CELLS_FILE = "cells.jsonl"
Cell = TypeVar("Cell", bound=Hashable)
Fact = tuple[str, str, Mapping[str, Any]]
"""What a row of the file must agree with to be used again: its sort, its name, and its values."""


def open_cells(folder: Path | None, facts: Sequence[Fact], *, sort: str, names: Mapping[str, str]) -> Record:
    """The rows that a folder holds already, or the beginning of new ones.

    Facts can be added later, such as one more method; what changed since under the same name is refused.

    Args:
        folder: where `cells.jsonl` is or will be; without one nothing is written.
        facts: what can change a result.
        sort: what such a folder holds, in a word for people.
        names: how to call a fact of each sort, with a place for its name.
    """
    if folder is None:
        record = Record()
    else:
        path = folder / CELLS_FILE
        rows = read_history(path) if path.is_file() else []
        known = {(row["event"], row["key"]): row for row in rows if "key" in row}
        _check_folder(folder, rows, {event for event, _ in known}, {event for event, _, _ in facts}, sort)
        for event, key, fact in facts:
            before = known.get((event, key))
            if before is not None and any(before.get(name) != as_written(value) for name, value in fact.items()):
                raise CrossTaskError(
                    f"The {sort} in '{folder}' was begun with other settings: {names[event].format(key)} changed "
                    "since. Change it back to go on, or start anew with another --output."
                )
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            remove_scratch(path)
        record = Record(path, keep=len(rows))  # a last line that a kill cut short goes
        facts = [fact for fact in facts if fact[:2] not in known]
    for event, key, fact in facts:
        record.append({"event": event, "key": key, **as_written(fact)})
    return record


def run_cells(
    work: Callable[[Cell], Row],
    cells: Sequence[Cell],
    record: Record,
    read: Callable[[Row], Cell],
    *,
    jobs: int | None = 1,
    on: Place = "local",
    minutes: float | None = None,
    progress: bool | None = None,
) -> dict[Cell, Row]:
    """The rows of all cells; those that the record holds already are not run again.

    A row with `refused` is no finished one: it is not written, and tried again the next time.

    Args:
        work: trains one cell and returns its row.
        cells: what to run, in this order.
        record: where rows are kept.
        read: the cell that a row is about.
        jobs: processes side by side, on one thread each; 1 stays in this process, None takes all there is room for.
        on: "local" for this machine, "ray" for a Ray cluster.
        minutes: after which no further cell is begun; what is missing then is missing in the result.
        progress: show a bar; by default when the error stream is a terminal.
    """
    if jobs is not None and jobs < 1:
        raise CrossTaskError(f"`jobs` must be at least 1, found {jobs}.")
    wanted = list(dict.fromkeys(cells))
    rows = {read(row): _without_event(row) for row in record.of("cell")}
    left = [cell for cell in wanted if cell not in rows]
    num_done, started = len(wanted) - len(left), time.perf_counter()
    with shown(make_progress(progress)) as bar:
        bar.start("runs", len(wanted), num_done)
        for number, (cell, row) in enumerate(finished(work, left, jobs, on=on, minutes=minutes), 1):
            if number == 1:
                # Versions and machine of the lines that follow.
                record.append({"event": "session", "environment": environment(), "jobs": jobs})
            if "refused" not in row:
                record.append({"event": "cell", **row})
            rows[cell] = as_written(row)
            seconds = (time.perf_counter() - started) / number * (len(left) - number)
            bar.advance(num_done + number, f"{duration(seconds)} left, last: {cell}")
    return {cell: rows[cell] for cell in wanted if cell in rows}


def as_written(value: Any) -> Any:
    """As it comes back from the file."""
    return json.loads(json.dumps(finite(value), default=str))


def duration(seconds: float) -> str:
    """A time as one says it.

    >>> duration(42), duration(90), duration(7300)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{math.ceil(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _without_event(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "event"}


def _check_folder(folder: Path, rows: Sequence[Row], known: set[str], wanted: set[str], sort: str) -> None:
    is_other = folder.exists() and (not folder.is_dir() or any(path.name != CELLS_FILE for path in folder.iterdir()))
    if (rows and not known & wanted) or (not rows and is_other):
        raise CrossTaskError(
            f"'{folder}' exists and holds no {sort}; nothing was written over. Choose another folder with --output."
        )
