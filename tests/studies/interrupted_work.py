"""Work whose process gets the signal of Ctrl-C while it imports this module."""

import multiprocessing
import os
import signal

if multiprocessing.current_process().name != "MainProcess":
    os.kill(os.getpid(), signal.SIGINT)


def square(number: int) -> int:
    return number * number
