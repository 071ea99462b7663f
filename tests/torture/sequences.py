"""A sequence: a command is started and stopped, goes on and is stopped again, and in the end must have lost nothing."""

import contextlib
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torture.disk import BLOCK, disk, less_room, may_mount
from torture.outcome import Outcome, differences, outcome
from torture.problems import OUTPUT, Problem
from torture.starts import Ended, Start, processes_of
from torture.tripwire import FULL_DISK, INTERRUPT, KILL, SIGNALS, TERMINATE, Wire, read_journal

SMALL_DISK = "small disk"
"""A real one that fills up; `FULL_DISK` is one that says so at a chosen call."""
EXIT_CODES = {KILL: 137, TERMINATE: 143, INTERRUPT: 130, FULL_DISK: 2, SMALL_DISK: 2}
"""Of a command that was stopped so; 0 where it was faster."""
MOST_STOPS = 4
COMMAND, WORKER, GROUP = "command", "worker", "group"
"""Who is stopped: the process of the command, one that it has started, or all of them."""
TWICE_EVERY = 10
"""Every so many sequences are gone on with by two processes at once."""
CHECKPOINT, RESULT = re.compile(r"/checkpoints/\d+$"), re.compile(r"/runs/.*metrics\.json$")
"""Paths that are written once: where one is written again, work that was done is lost."""
MOST_WORKER_SECONDS = 10.0
"""In which processes must have seen that they are alone."""


@dataclass(frozen=True)
class Stop:
    """What ends a start: a deed at a call of the storage layer, or at a moment, as a fraction of the time it takes."""

    deed: str
    call: int | None = None
    moment: float | None = None
    whom: str = COMMAND
    room: float | None = None  # of a small disk, as a fraction of what the command writes

    def __str__(self) -> str:
        when = f"call {self.call}" if self.call else f"{self.moment or self.room:.3f}"
        return f"{self.deed} ({self.whom}) at {when}"

    @property
    def code(self) -> int:
        """The exit code of a command that is stopped so; it goes on without one of its workers."""
        return 0 if self.whom == WORKER else EXIT_CODES[self.deed]


@dataclass(frozen=True)
class Reference:
    """The command without a stop: what it leaves, how long it takes, and how often it calls the storage layer."""

    outcome: Outcome
    seconds: float
    num_calls: int

    @property
    def num_bytes(self) -> int:
        """What it takes on a disk, in whole blocks."""
        return sum(BLOCK * (1 + len(content or b"") // BLOCK) for content in self.outcome.values())


@dataclass
class Verdict:
    """How a sequence came out. Each list is empty where all is well."""

    problem: str
    seed: str
    stops: list[str] = field(default_factory=list)  # that took place
    counts: dict[str, int] = field(default_factory=dict)  # of these, by deed
    failed: list[str] = field(default_factory=list)  # ends that are none of those promised
    different: list[str] = field(default_factory=list)  # files
    left_behind: list[str] = field(default_factory=list)  # files, processes
    lost: list[str] = field(default_factory=list)  # work that was done twice
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether it ended as if nobody had stopped it."""
        return not (self.failed or self.different or self.left_behind or self.lost)

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Workspace:
    """Folders of one kill test: the data, and a folder for each sequence, which is removed if all went well."""

    folder: Path

    @property
    def data(self) -> Path:
        """Where the recipes are."""
        return self.folder / "data"

    def new(self, name: str) -> Path:
        """An empty folder for a sequence, with one to work in and one for what the test writes down."""
        folder = self.folder / name
        for part in ("work", "log"):
            (folder / part).mkdir(parents=True)
        return folder


def random_stops(problem: Problem, reference: Reference, rng: random.Random) -> list[Stop]:
    """One to four stops. Half of them are aimed at calls of the storage layer, which fill little of the time."""
    stops: list[Stop] = []
    for _ in range(rng.randint(1, MOST_STOPS)):
        deed = rng.choices([KILL, TERMINATE, INTERRUPT, FULL_DISK, SMALL_DISK], [16, 1, 1, 1, 1])[0]
        whom = COMMAND
        if problem.has_workers and deed == KILL:
            whom = rng.choice([COMMAND, WORKER, GROUP])
        elif problem.has_workers and deed in SIGNALS:
            whom = rng.choice([COMMAND, GROUP])
        if deed == SMALL_DISK:
            stops.append(Stop(deed, room=rng.random()))
        elif deed == FULL_DISK or (whom != GROUP and rng.random() < 0.5):
            stops.append(Stop(deed, call=rng.randint(1, reference.num_calls), whom=whom))
        else:
            stops.append(Stop(deed, moment=rng.random(), whom=whom))
    return stops


def measure(problem: Problem, workspace: Workspace, name: str) -> Reference:
    """Run a command to its end, undisturbed."""
    folder = workspace.new(name)
    ended = _Sequence(problem, workspace, folder, Reference({}, 0.0, 0)).start(None)
    if ended.code != 0:
        raise RuntimeError(f"{problem.name} does not run even when nobody stops it ({ended.code}): {ended.err}")
    return Reference(outcome(folder / "work"), ended.seconds, len(read_journal(folder / "log" / "journal")))


def run_sequence(
    problem: Problem,
    reference: Reference,
    stops: Sequence[Stop],
    workspace: Workspace,
    seed: str,
    *,
    twice: bool = False,
) -> Verdict:
    """Start, stop and go on, until the command has ended by itself; then look at what there is."""
    started = time.monotonic()
    folder = workspace.new(seed.replace("/", "-"))
    stops = [stop for stop in stops if stop.deed != SMALL_DISK or may_mount()]
    verdict = Verdict(problem.name, seed)
    has_disk = any(stop.deed == SMALL_DISK for stop in stops)
    with disk(folder / "work") if has_disk else contextlib.nullcontext():
        _stop_and_go_on(_Sequence(problem, workspace, folder, reference), stops, verdict, twice)
        if has_disk and not verdict.is_good:
            shutil.copytree(folder / "work", folder / "work-on-disk")
    verdict.seconds = time.monotonic() - started
    if verdict.is_good:
        shutil.rmtree(folder)
    return verdict


def _stop_and_go_on(sequence: "_Sequence", stops: Sequence[Stop], verdict: Verdict, twice: bool) -> None:
    counts: Counter[str] = Counter()
    for stop in stops:
        ended = sequence.start(stop)
        verdict.failed += _complaints(ended, stop)
        if ended.code == stop.code and (stop.whom != WORKER or sequence.worker_was_stopped):
            verdict.stops.append(str(stop))
            counts[stop.deed] += 1
        if ended.code == 0 or verdict.failed:
            break
    # Also where it has ended already: called again it must say so, and change nothing.
    if twice:
        verdict.failed += sequence.go_on_twice()
    verdict.failed += _complaints(sequence.start(None), None)
    verdict.counts = dict(counts)
    verdict.left_behind = sequence.processes_left()
    verdict.different, more = differences(sequence.reference.outcome, outcome(sequence.folder / "work"))
    verdict.left_behind += more
    verdict.lost = sequence.work_done_twice()


class _Sequence:
    def __init__(self, problem: Problem, workspace: Workspace, folder: Path, reference: Reference) -> None:
        self.problem, self.workspace, self.folder, self.reference = problem, workspace, folder, reference
        self.starts: list[Start] = []

    def start(self, stop: Stop | None) -> Ended:
        """Begin, or go on with what there is."""
        if stop is not None and stop.room is not None:
            with less_room(self.folder / "work", int(stop.room * self.reference.num_bytes)):
                return self._begin(stop).wait()
        start = self._begin(stop)
        self.worker_was_stopped = False
        if stop is not None and stop.moment is not None:
            seconds, number = stop.moment * self.reference.seconds, SIGNALS[stop.deed]
            if stop.whom == WORKER:
                self.worker_was_stopped = start.stop_worker_after(seconds, number)
            elif stop.whom == GROUP:
                start.stop_all_after(seconds, number)
            else:
                start.stop_after(seconds, number)
        ended = start.wait()
        if stop is not None and stop.call is not None:
            self.worker_was_stopped = (self.folder / "log" / f"tripped-{len(self.starts)}").exists()
        return ended

    def go_on_twice(self) -> list[str]:
        """Two processes go on at once: one does, the other is refused in one sentence, or finds all done."""
        ends = [start.wait() for start in (self._begin(None), self._begin(None))]
        codes = sorted(ended.code for ended in ends)
        complaints: list[str] = []
        if codes not in ([0, 0], [0, 2]):
            complaints.append(f"two at once ended with {codes}: {[ended.err[-1000:] for ended in ends]}")
        for ended in ends:
            if ended.code == 2 and (ended.err.count("\n") != 1 or "Traceback" in ended.err):
                complaints.append(f"two at once: not one sentence but {ended.err[-1000:]}")
        return complaints

    def _begin(self, stop: Stop | None) -> Start:
        work, log = self.folder / "work", self.folder / "log"
        _let_hours_pass(work)
        idle = Wire(str(work), str(log / "journal"))
        wire, workers_wire = idle, idle
        if stop is not None:
            marker = str(log / f"tripped-{len(self.starts) + 1}")
            loaded = Wire(idle.folder, idle.journal, stop.call, stop.deed, marker)
            if stop.whom == WORKER:
                workers_wire = loaded
            else:
                wire = loaded
        arguments = self.problem.arguments(self.workspace.data, work / OUTPUT)
        start = Start(arguments, work, log / f"err-{len(self.starts) + 1}", wire, workers_wire)
        self.starts.append(start)
        return start

    def processes_left(self) -> list[str]:
        """Processes that outlived the commands that began them."""
        deadline = time.monotonic() + MOST_WORKER_SECONDS
        while True:
            alive = processes_of(self.folder / "work")
            if not alive or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for process in alive:
            process.kill()
        return [f"process {' '.join(process.cmdline())[:80]}" for process in alive]

    def work_done_twice(self) -> list[str]:
        """Checkpoints and results of runs that were whole on disk, and were made again.

        A run with checkpoints that was killed while it finished measures its last one again; that trains nothing.
        """
        counts: Counter[str] = Counter()
        for call, path in read_journal(self.folder / "log" / "journal"):
            if call in ("replace", "rename"):
                counts[path] += 1
        runs_with_checkpoints = {path.split("/checkpoints/")[0] for path in counts if CHECKPOINT.search(path)}
        lost: list[str] = []
        for path, count in counts.items():
            is_result = RESULT.search(path) and str(Path(path).parent) not in runs_with_checkpoints
            if count > 1 and (CHECKPOINT.search(path) or is_result):
                lost.append(path)
        return lost


WITHOUT = ("Features are not kept on disk", "The page could not be drawn")
"""How notes begin on what a command goes without where the disk is full."""


def _let_hours_pass(folder: Path) -> None:
    """Since the last stop: scratch so young that it could be of a live process is left alone by everybody."""
    long_ago = time.time() - 7200.0
    for path in folder.rglob(".*"):
        with contextlib.suppress(FileNotFoundError):  # of a worker that is still busy with its last run
            os.utime(path, (long_ago, long_ago))


def _complaints(ended: Ended, stop: Stop | None) -> list[str]:
    """What is wrong with the end of a start."""
    allowed = {0}
    if stop is not None:
        allowed.add(stop.code)
    if ended.code not in allowed:
        return [f"after {stop} it ended with {ended.code}: {ended.err[-2000:]}"]
    if "Traceback" in ended.err:
        return [f"after {stop} there is a traceback: {ended.err[-2000:]}"]
    if ended.code == 2:
        # Besides the error there may be a line for each thing that the command goes without: kept features, a page.
        lines = ended.err.splitlines()
        num_errors = sum(line.startswith("Error: ") for line in lines)
        notes = [line for line in lines if line.startswith(WITHOUT)]
        if num_errors != 1 or num_errors + len(notes) != len(lines):
            return [f"a full disk takes more than a sentence: {ended.err[-2000:]}"]
    return []
