"""Many runs that belong together: each is written down as soon as it is done, and what is written is not run again."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, Self

from pydantic import Field
from typing_extensions import TypedDict

from crosstask.errors import CrossTaskError
from crosstask.progress import make_progress, shown
from crosstask.quoting import brief
from crosstask.runs.environment import environment
from crosstask.runs.events import Row
from crosstask.runs.record import Record, finite, read_rows
from crosstask.storage import (
    LOCK_FILE,
    DamagedFileError,
    FolderLock,
    check_shape,
    explain_write_errors,
    lock_folder,
    remove_all_scratch,
    remove_scratch,
)
from crosstask.studies.executors import ExecutorName, finished, num_workers
from crosstask.validation import check_value

Jobs = Annotated[int, Field(ge=1, le=10_000)]

CELLS_FILE = "cells.jsonl"
NESTED = "cell"
"""Under which the rows of an experiment hold their key."""
Scalar = str | int | float | bool | None
Value = Scalar | tuple[str, ...]


@dataclass(frozen=True)
class RunKey:
    """What distinguishes one run of a study from the others: a value on each of the study's axes, in order.

    >>> key = RunKey.of(method="joint", sources=("a", "b"), seed=0, width=None)
    >>> key["method"], str(key), RunKey.from_json(key.to_json()) == key
    ('joint', 'method joint, sources a b, seed 0', True)
    """

    values: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, **values: Value) -> "RunKey":
        """From axes and values."""
        return cls(tuple(values.items()))

    @classmethod
    def from_json(cls, data: Row) -> "RunKey":
        """Read what `to_json` wrote; JSON has lists where a key has tuples."""
        values: list[tuple[str, Value]] = []
        for axis, value in data.items():
            if isinstance(value, list):
                value = tuple(value)
            values.append((axis, value))
        return cls(tuple(values))

    def to_json(self) -> dict[str, Value]:
        """As plain data."""
        return dict(self.values)

    def __getitem__(self, axis: str) -> Any:
        return dict(self.values)[axis]

    def __str__(self) -> str:
        texts: list[str] = []
        for axis, value in self.values:
            if isinstance(value, tuple):
                value = " ".join(value)
            if value is not None and value != "":
                texts.append(f"{axis} {value}")
        return ", ".join(texts)


@dataclass(frozen=True)
class Fact:
    """Something that can change results, written to the file before them: a study goes on only if it is still so.

    - `event`: kind of fact, such as "settings" or "method";
    - `key`: which one of that kind;
    - `values`: what must be the same.
    """

    event: str
    key: str
    values: Row


class StoredRow(TypedDict):
    """What every row of the file has: its kind, and a fact's key."""

    event: str
    key: NotRequired[str]


class Grid:
    """The runs of a study by their keys, in memory and, given a folder, in its file `cells.jsonl`.

    Args:
        record: the rows of the file.
        axes: of the keys, where rows hold them beside the results; without any, rows hold the key under `cell`.
        lock: of the folder, given back at the end of a `with` block.
    """

    def __init__(self, record: Record | None = None, axes: Sequence[str] = (), lock: FolderLock | None = None) -> None:
        self.record = Record() if record is None else record
        self.axes = tuple(axes)
        self.lock = lock
        self.has_session = False
        self.rows: dict[RunKey, Row] = {}
        for row in self.record.of("cell"):
            results = dict(row)
            del results["event"]
            self.rows[self.key_of(row)] = results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock is not None:
            self.lock.release()

    def key_of(self, row: Row) -> RunKey:
        """The run that a row is about."""
        try:
            if not self.axes:
                return RunKey.from_json(row[NESTED])
            return RunKey.from_json({axis: row[axis] for axis in self.axes})
        except (KeyError, AttributeError) as error:
            raise DamagedFileError(f"'{self.record.path}' is damaged: a row of it names no run.") from error

    def run(
        self,
        work: Callable[[RunKey], Row],
        keys: Sequence[RunKey],
        *,
        jobs: int | None = 1,
        on: ExecutorName = "local",
        minutes: float | None = None,
        progress: bool | None = None,
    ) -> dict[RunKey, Row]:
        """The rows of these keys; those that the grid holds already are not run again.

        A row with `refused` says why there is no result: it is not written, and tried again the next time.

        Args:
            work: trains one run and returns its results.
            keys: what to run, in this order.
            jobs: runs side by side, see `executors.finished`; 1 and None stay in this process.
            on: "local" for this machine, "ray" for a Ray cluster.
            minutes: after which no further run is begun; what is missing then is missing in the result.
            progress: show a bar; by default when the error stream is a terminal.
        """
        check_jobs(jobs)
        keys = list(dict.fromkeys(keys))  # each once
        missing = [key for key in keys if key not in self.rows]
        refused: dict[RunKey, Row] = {}
        num_before, started = len(keys) - len(missing), time.perf_counter()
        with shown(make_progress(progress)) as bar:
            bar.start("runs", len(keys), num_before)
            rows = self.finished(work, missing, jobs=jobs, on=on, minutes=minutes)
            for count, (key, row) in enumerate(rows, 1):
                if "refused" in row:
                    refused[key] = row
                seconds = (time.perf_counter() - started) / count * (len(missing) - count)
                bar.advance(num_before + count, f"{duration(seconds)} left, last: {key}")
        # In the order of the keys, whichever order they were done in.
        available = {**self.rows, **refused}
        ordered: dict[RunKey, Row] = {}
        for key in keys:
            if key in available:
                ordered[key] = available[key]
        return ordered

    def finished(
        self,
        work: Callable[[RunKey], Row],
        keys: Sequence[RunKey],
        *,
        jobs: int | None = 1,
        on: ExecutorName = "local",
        minutes: float | None = None,
        may_begin: Callable[[RunKey], bool] | None = None,
    ) -> Iterator[tuple[RunKey, Row]]:
        """Keys that the grid does not hold with their rows, as they are done; see `run` and `executors.finished`."""
        # Each row is on disk before the next one is waited for: a kill or a power cut loses no finished run.
        for key, results in finished(work, keys, jobs, on=on, minutes=minutes, may_begin=may_begin):
            if not self.has_session:
                num_processes = num_workers(jobs) if on == "local" else jobs
                self._begin_session(environment(), num_processes)
            yield key, self._write(key, results)

    def add(self, rows: Mapping[RunKey, Row], machine: Row, jobs: int) -> None:
        """Rows of runs that were made elsewhere; those that the grid holds already stay.

        Args:
            rows: as `run` returns them.
            machine: its `environment()`.
            jobs: how many runs shared it.
        """
        missing = {key: results for key, results in rows.items() if key not in self.rows}
        if missing:
            self._begin_session(machine, jobs)
        for key, results in missing.items():
            self._write(key, results)
        self.has_session = False  # of this machine

    def _begin_session(self, machine: Row, jobs: int | None) -> None:
        """Versions and machine of the lines that follow."""
        self.record.append({"event": "session", "environment": machine, "jobs": jobs})
        self.has_session = True

    def _write(self, key: RunKey, results: Row) -> Row:
        """The row as it will be read back, so that a study that goes on gives the same results to the last digit."""
        row = as_written({**self._key_fields(key), **results})
        if "refused" not in row:
            self.record.append({"event": "cell", **row})
            self.record.flush_to_disk()
            self.rows[key] = row
        return row

    def _key_fields(self, key: RunKey) -> Row:
        if self.axes:
            return dict(key.to_json())
        return {NESTED: key.to_json()}


def open_grid(
    folder: Path | None,
    facts: Sequence[Fact],
    *,
    kind: str,
    names: Mapping[str, str],
    axes: Sequence[str] = (),
    results: Any = Row,
) -> Grid:
    """The runs that a folder holds already, or the beginning of new ones; nobody else writes to it until they end.

    Facts can be added later, such as one more method; one that changed since is refused.

    Args:
        folder: where `cells.jsonl` is or will be; without one nothing is written.
        facts: what can change a result.
        kind: what such a folder holds, in a word for people.
        names: how to call a fact in an error, by its event, with `{}` for its key.
        axes: of the keys, see `Grid`.
        results: the type of the rows of runs, such as a `TypedDict`; what is not of it in the file is damage.
    """
    if folder is None:
        return _open(None, [], facts, kind=kind, names=names, axes=axes)
    # Before anything is written, the lock included; and again inside, for the folder may change until it is locked.
    _read_rows(folder, facts, kind, results)
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(folder)
    try:
        remove_all_scratch(folder)
        remove_scratch(folder / CELLS_FILE)  # as version 0.2 named it
        rows = _read_rows(folder, facts, kind, results)
        return _open(folder, rows, facts, kind=kind, names=names, axes=axes, lock=lock)
    except BaseException:
        lock.release()
        raise


def _open(
    folder: Path | None,
    rows: Sequence[Row],
    facts: Sequence[Fact],
    *,
    kind: str,
    names: Mapping[str, str],
    axes: Sequence[str],
    lock: FolderLock | None = None,
) -> Grid:
    record = Record()
    # What the facts were when the study was begun must still hold.
    before: dict[tuple[str, str], Row] = {}
    for row in rows:
        if "key" in row:
            before[row["event"], row["key"]] = row
    for fact in facts:
        if (fact.event, fact.key) in before and _has_changed(fact, before[fact.event, fact.key]):
            raise CrossTaskError(
                f"The {kind} in '{folder}' was begun with other settings: {names[fact.event].format(fact.key)} changed "
                "since. Change it back to go on, or start anew with another --output."
            )
    if folder is not None:
        record.open(folder / CELLS_FILE, keep=len(rows))  # without a last line that a kill cut short
    for fact in facts:
        if (fact.event, fact.key) not in before:
            record.append({"event": fact.event, "key": fact.key, **as_written(fact.values)})
    return Grid(record, axes, lock)


def _read_rows(folder: Path, facts: Sequence[Fact], kind: str, results: Any) -> list[Row]:
    """The rows of a folder that may be written to: it is new, or holds a study of the same kind."""
    path = folder / CELLS_FILE
    rows: list[Row] = []
    try:
        if path.is_file():
            rows = read_rows(path)
        _check_rows(path, rows, StoredRow)
        _check_folder(folder, rows, {fact.event for fact in facts}, kind)
        _check_rows(path, rows, results, event="cell")
    except DamagedFileError as error:
        raise DamagedFileError(
            f"{error} Remove that line to do its run again, or start anew with another --output."
        ) from error
    return rows


def _check_rows(path: Path, rows: Sequence[Row], shape: Any, event: str | None = None) -> None:
    """Whether all rows, or those of an event, are of this type."""
    numbered = {number: row for number, row in enumerate(rows, 1) if event is None or row["event"] == event}
    try:
        check_shape(list(numbered.values()), list[shape], str(path))  # all at once, which is quick
    except DamagedFileError:
        for number, row in numbered.items():  # one after the other, to name the line
            check_shape(row, shape, f"{path}, line {number}")
        raise


def _has_changed(fact: Fact, before: Row) -> bool:
    """Whether a value differs from the one in the file."""
    return any(before.get(name) != as_written(value) for name, value in fact.values.items())


def _check_folder(folder: Path, rows: Sequence[Row], events: set[str], kind: str) -> None:
    """A folder may be written to if it is new, or holds a study of the same kind."""
    is_foreign = False
    if rows:
        is_foreign = not any("key" in row and row["event"] in events for row in rows)
    elif folder.is_dir():
        # A kill can leave an empty file, scratch of it and the lock's file, and nothing else.
        for path in folder.iterdir():
            if path.name not in (CELLS_FILE, LOCK_FILE) and not path.name.startswith(f".{CELLS_FILE}."):
                is_foreign = True
    else:
        is_foreign = folder.exists()
    if is_foreign:
        raise CrossTaskError(
            f"'{folder}' exists and holds no {kind}; nothing was written over. Choose another folder with --output."
        )


def check_jobs(jobs: int | None) -> None:
    """At least one."""
    if jobs is not None:
        check_value("study", "jobs", Jobs, jobs)


def as_written(value: Any) -> Any:
    """As it comes back from the file."""
    try:
        return json.loads(json.dumps(finite(value), default=str))
    except RecursionError:
        raise CrossTaskError(
            f"A study writes its settings down, and these hold lists or mappings too deep inside one another: "
            f"{brief(value)}."
        ) from None


def duration(seconds: float) -> str:
    """A time as one says it.

    >>> duration(42), duration(90), duration(7300)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{math.ceil(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
