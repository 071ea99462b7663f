"""Processes that run a command. They are forks of this one, which has everything imported: a start takes no time."""

import contextlib
import gc
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch

from crosstask.report import write_page
from torture.problems import OUTPUT
from torture.tripwire import VARIABLE, Tripwire, Wire

PATIENCE = 600.0
"""Seconds after which a start hangs."""
CRASHED = 70
"""Exit code of a fork whose command raised an exception."""


@dataclass(frozen=True)
class Ended:
    """How a start came to its end: the exit code as a shell says it, and what stood on its error stream."""

    code: int
    err: str
    seconds: float


class Start:
    """A command that runs in a fork of this process."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, err: Path, wire: Wire, workers_wire: Wire | None = None
    ) -> None:
        self.err = err
        err.touch()
        ready, is_ready = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _run(arguments, folder, err, wire, workers_wire or wire, is_ready)  # never returns
        # What a fork does to be like a process of its own is no part of the command: nobody stops it there.
        os.close(is_ready)
        os.read(ready, 1)
        os.close(ready)
        self.started = time.monotonic()

    def stop_after(self, seconds: float, stop: signal.Signals) -> None:
        """Send a signal when so much time has gone, unless the command has ended before."""
        time.sleep(max(0.0, self.started + seconds - time.monotonic()))
        os.kill(self.pid, stop)  # nobody has waited for it yet, so that the number is still its own

    def stop_all_after(self, seconds: float, stop: signal.Signals) -> None:
        """Likewise, to the command and all processes that it has started, as a terminal or a cluster does."""
        time.sleep(max(0.0, self.started + seconds - time.monotonic()))
        os.killpg(self.pid, stop)

    def stop_worker_after(self, seconds: float, stop: signal.Signals) -> bool:
        """Likewise, to one process that the command has started; whether there was one."""
        time.sleep(max(0.0, self.started + seconds - time.monotonic()))
        for process in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "spawn_main" in " ".join(process.cmdline()):
                    process.send_signal(stop)
                    return True
        return False

    def wait(self) -> Ended:
        """Until it has ended."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - self.started > PATIENCE:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return Ended(-1, f"It hung: no end after {PATIENCE} seconds.", PATIENCE)
            time.sleep(0.003)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            code = 128 - code
        return Ended(code, self.err.read_text(encoding="utf-8"), time.monotonic() - self.started)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that commands in this folder have started and left; they are known by the wire in their environment."""
    members: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            wire = process.environ().get(VARIABLE, "")
            if f'"{folder}"' in wire and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def _run(arguments: Sequence[str], folder: Path, err: Path, wire: Wire, workers_wire: Wire, is_ready: int) -> None:
    code = CRASHED
    try:
        os.setsid()  # so that a signal can be sent to it and all that it starts
        # A terminal's signals, whatever this process was told to do with them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        errors = os.open(err, os.O_WRONLY | os.O_APPEND)
        for stream, handle in enumerate((nowhere, nowhere, errors)):
            os.dup2(handle, stream)
        os.chdir(folder)
        os.environ["CROSSTASK_CACHE"] = str(folder / "cache")
        # A process of its own would have other numbers than its siblings, too.
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(int.from_bytes(os.urandom(4), "big"))
        os.environ[VARIABLE] = workers_wire.for_workers()
        Tripwire(wire).arm()
        os.close(is_ready)
        code = _exit_code(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _exit_code(arguments: Sequence[str]) -> int:
    from crosstask.cli import main

    sys.argv = ["crosstask", *arguments]
    try:
        main()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0


def in_fork(work: Callable[[], list[str]]) -> list[str]:
    """What a function returns, without a trace of it in this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            with open(writer, "w", encoding="utf-8") as file:
                json.dump(work(), file)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def run_and_import(commands: Mapping[Path, Sequence[str]]) -> None:
    """Run commands, each in its folder, in a process aside; then import here what they imported late."""
    torch.set_num_threads(1)

    def modules() -> list[str]:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        for folder, arguments in commands.items():
            os.chdir(folder)
            os.environ["CROSSTASK_CACHE"] = str(folder / "cache")
            _exit_code(arguments)
        return list(sys.modules)

    for name in in_fork(modules):
        try:
            importlib.import_module(name)
        except Exception:  # some cannot be imported by name: whoever needs them imports them as always
            continue
    # A page of this process's own, so that forks have templates and the charts' library at hand.
    with tempfile.TemporaryDirectory() as scratch:
        write_page(next(iter(commands)) / OUTPUT, Path(scratch) / "page.html")
    gc.collect()
    gc.freeze()
