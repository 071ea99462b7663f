"""Signals that ask a command to end: it stops as at Ctrl-C, with one sentence and the exit code that a shell expects.

Only the command line does this; a program that imports the library keeps its own ways with signals.

A command may end at any moment, since what it writes is whole at any moment. So it ends by an exception, which lets it
tidy up, but at once where an exception would get lost: an import that is interrupted can fail in any other way. C code
may turn the exception into another one; whatever ends the command after a signal, the signal has ended it.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import typer

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Those of them that the system has."""
GRACE_SECONDS = 10.0
"""After which a command ends that has not ended by itself."""
RETRY_SECONDS = 0.05
"""From an exception that got lost to the next."""
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""The file that Python's code for imports claims to be from."""
SHOW_CURSOR = "\x1b[?25h"
"""For a terminal: a progress bar hides the cursor."""
RESUMABLE_COMMANDS = ("auto", "compare", "transfer-matrix", "capacity", "reproduce")
"""Called again, they go on where they were stopped."""


class Stopped(SystemExit):
    """A signal asked the command to end, with this exit code: that of a process that the signal has ended."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.sentence = "Stopped."
        if number != signal.SIGINT:
            self.sentence = f"Stopped by {signal.Signals(number).name}."
        command = _command()
        if command == "train":
            self.sentence += " A run that had begun goes on with --resume."
        elif command in RESUMABLE_COMMANDS:
            self.sentence += " The same command goes on from here."


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """End the command inside when the first signal comes, with a sentence; a second one ends the process at once."""
    received: list[Stopped] = []
    try:
        with _handlers(received):
            yield
    except KeyboardInterrupt:
        _say_and_exit(Stopped(signal.SIGINT))
    except Stopped as stopped:
        _say_and_exit(stopped)
    except (Exception, SystemExit):
        if not received:
            raise
        _say_and_exit(received[0])


@contextlib.contextmanager
def _handlers(received: list[Stopped]) -> Iterator[None]:
    """End the command inside by an exception, which is also added to `received`."""
    before: dict[int, Any] = {}
    timers: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_DFL)
        stopped = Stopped(number)
        received.append(stopped)
        if _is_import(frame):
            _end(stopped)
        if not timers:  # however often it has to be raised, there is an end
            later(GRACE_SECONDS, lambda: _end(stopped))
        raise stopped

    def later(seconds: float, work: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, work)
        timer.daemon = True
        timer.start()
        timers.append(timer)

    def raise_again(unraisable: Any) -> None:
        # The exception came where no code may fail, as in a destructor or a callback of C code, and was lost.
        if not isinstance(unraisable.exc_value, Stopped):
            hook_before(unraisable)
            return
        number = unraisable.exc_value.number
        signal.signal(number, stop)
        later(RETRY_SECONDS, lambda: os.kill(os.getpid(), number))

    hook_before = sys.unraisablehook
    if threading.current_thread() is threading.main_thread():  # handlers belong to the main one
        for name in SIGNAL_NAMES:
            number = getattr(signal, name, None)
            # What is ignored stays so, as SIGHUP under nohup.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
        sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = hook_before
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in timers:
            timer.cancel()


def wait_for_signal() -> int:
    """Wait until a signal asks the command to end, and return its number; the next one ends it as any other command.

    For a command that has to end something in order, which no exception in the middle of it could do.
    """
    received: list[int] = []
    has_come = threading.Event()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        for other, handler in before.items():
            signal.signal(other, handler)
        received.append(number)
        has_come.set()

    for name in SIGNAL_NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, note)
    has_come.wait()
    return received[0]


def _command() -> str:
    """The command that runs, where a stop has something to say of it; options stand before it."""
    for argument in sys.argv[1:]:
        if argument in ("train", *RESUMABLE_COMMANDS):
            return argument
    return ""


def _is_import(frame: FrameType | None) -> bool:
    """Whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


def _say_and_exit(stopped: Stopped) -> None:
    try:
        typer.echo(stopped.sentence, err=True)
    except OSError:  # the terminal is gone, which is what SIGHUP says
        forget_output()
    sys.exit(stopped.code)


def _end(stopped: Stopped) -> None:
    """Without asking anybody; what workers do is of no use any more either."""
    for child in multiprocessing.active_children():
        child.kill()
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)
        sys.stderr.write(f"{stopped.sentence}\n")
        sys.stderr.flush()
    os._exit(128 + stopped.number)


def forget_output() -> None:
    """Where what is still in the buffers has no reader."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream without a file
            os.dup2(nowhere, stream.fileno())
