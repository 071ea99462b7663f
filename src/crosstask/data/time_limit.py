"""A time limit around code of a library that can take forever, such as a regular expression of the user's."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` inside the block after so many seconds.

    By an alarm of the system: Python's regular expressions, which nothing else ends, heed signals. Signals reach the
    main thread alone, and Windows has no such alarm; there the block runs without a limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    handler_before = signal.signal(signal.SIGALRM, _on_alarm)
    started = time.monotonic()
    remaining_before, interval_before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
        if remaining_before > 0:  # an alarm that somebody else has set comes when it would have come, or now
            remaining = remaining_before - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(remaining, 1e-3), interval_before)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
