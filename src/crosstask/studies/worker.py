"""What a process that works for a study does before it begins."""

import os
import signal
import sys
import threading
import time
import warnings

from crosstask.errors import CrossTaskWarning


def block_interrupts() -> None:
    """In the thread that starts processes, which inherit it: Ctrl-C while they import would end in a traceback each."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def start_worker(parent: int) -> None:
    """In the new process, which ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent decides
    use_one_thread()
    warnings.simplefilter("ignore", CrossTaskWarning)  # the study's table and page say it
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def use_one_thread() -> None:
    """For torch in this process, loaded or not: processes side by side would slow each other down."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    else:
        os.environ["OMP_NUM_THREADS"] = "1"


def _end_with(parent: int) -> None:
    """A parent that was killed cannot say so; its workers would wait for it forever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
