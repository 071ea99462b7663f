"""Signals that ask a command to end: it stops as at Ctrl-C, with one sentence and the exit code that a shell expects.

Only the command line does this; a program that imports the library keeps its own ways with signals.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Those of them that the system has."""
GRACE_SECONDS = 10.0
"""After which a command ends that has not ended by itself: what it has written is whole at every moment."""


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As a shell reports a process that this signal has ended."""
        return 128 + self.number

    def __str__(self) -> str:
        if self.number == signal.SIGINT:
            return "Stopped."
        return f"Stopped by {signal.Signals(self.number).name}."


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise `Stopped` inside when the first signal comes; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():  # handlers belong to the main one
        yield
        return
    watch: list[threading.Timer] = []

    def stop(number: int, _: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_DFL)
        # The exception can get lost where no code may fail: in a destructor, or in C code that imports a module.
        timer = threading.Timer(GRACE_SECONDS, _end, args=(number,))
        timer.daemon = True
        timer.start()
        watch.append(timer)
        raise Stopped(number)

    before = {}
    for name in SIGNAL_NAMES:
        number = getattr(signal, name, None)
        # What is ignored stays so, as SIGHUP under nohup.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in watch:
            timer.cancel()


def _end(number: int) -> None:
    """Without asking anybody; what the workers do is of no use any more either."""
    for child in multiprocessing.active_children():
        child.kill()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{Stopped(number)}\n")
        sys.stderr.flush()
    os._exit(Stopped(number).exit_code)
