"""Limits around one input: time, memory, warnings, and files outside its folder."""

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from crosstask.errors import CrossTaskWarning

SECONDS = 20
"""An input that takes longer hangs. Time in which others had all processors, or it was stopped, is not the input's."""
TICK = 4.0
"""Seconds between two looks at the time."""
MEMORY = 4 * 2**30
"""Bytes that a process of `make fuzz` may hold."""

_writable: list[str] = []
"""Folders that the input of the moment may write to; empty between inputs."""
_watches = False


@dataclass
class _Stopwatch:
    """How long the input of the moment has taken, and may take."""

    limit: float = SECONDS
    spent: float = 0.0
    seen: float = 0.0
    processor_seen: float = 0.0

    def start(self) -> None:
        """Go on from here."""
        self.seen, self.processor_seen = _clock(), time.thread_time()

    def look(self) -> None:
        """Add the time since the last look. Looks come often, so that more than two ticks without a processor's work
        are a process that was stopped."""
        seen, processor_seen = self.seen, self.processor_seen
        self.start()
        self.spent += max(self.processor_seen - processor_seen, min(self.seen - seen, 2 * TICK))


_stopwatch = _Stopwatch()


class Hang(Exception):
    """The input took more than its seconds."""


class OutsideWrite(Exception):
    """Something was about to be written outside the input's folder."""


@contextmanager
def guarded(folder: Path, seconds: float | None = None) -> Iterator[None]:
    """Work inside the folder, and turn a hang, a warning and a file outside of it into exceptions."""
    global _stopwatch
    _watch_writes()
    _stopwatch = _Stopwatch(seconds or SECONDS)
    _stopwatch.start()
    before = signal.signal(signal.SIGALRM, _on_alarm)
    # A hang is told again and again: an exception inside a destructor or a callback is swallowed.
    signal.setitimer(signal.ITIMER_REAL, min(TICK, _stopwatch.limit), min(TICK, _stopwatch.limit))
    folder_before = Path.cwd()
    os.chdir(folder)
    _writable[:] = [str(folder.resolve()) + os.sep, os.devnull]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", CrossTaskWarning)  # a sentence for the user, not a slip of the library
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        _writable.clear()
        os.chdir(folder_before)


@contextmanager
def paused() -> Iterator[None]:
    """Lift the limits: what is made once for all cases is no part of the case that needs it first."""
    writable = list(_writable)
    _stopwatch.look()
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    _writable.clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
    finally:
        _stopwatch.start()
        _writable[:] = writable
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)


def limit_memory() -> None:
    """Limit what this process can hold. Address space alone is free: charts reserve tens of gigabytes of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _on_alarm(number: int, frame: FrameType | None) -> None:
    _stopwatch.look()
    if _stopwatch.spent >= _stopwatch.limit:
        raise Hang("it takes too long")


def _clock() -> float:
    """Seconds, without those in which this thread was ready to run and no processor was free."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            waited = int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):  # another system
        waited = 0.0
    return time.monotonic() - waited


def _watch_writes() -> None:
    """Look at every file that Python opens for writing, moves or makes, from now on; an audit hook stays for good."""
    global _watches
    if not _watches:
        sys.addaudithook(_on_event)
        _watches = True


_MOVES = ("os.rename", "os.link", "os.symlink")
_CHANGES = ("os.mkdir", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree")
"""Events whose last argument is an open folder that the path starts at, or -1."""


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    if not _writable:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _check(event, path)
    elif arguments and isinstance(arguments[-1], int) and arguments[-1] >= 0:
        return  # inside a folder that was itself looked at when it was opened
    elif event in _CHANGES:
        _check(event, arguments[0])
    elif event in _MOVES:
        _check(event, arguments[1])


def _check(event: str, path: object) -> None:
    if not isinstance(path, str | bytes | os.PathLike):  # an open file
        return
    name = os.fsdecode(path)
    if "\0" in name:  # the system refuses it
        return
    full = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
    if not (full + os.sep).startswith(tuple(_writable)) and full not in _writable:
        raise OutsideWrite(f"{event} of {full}")
