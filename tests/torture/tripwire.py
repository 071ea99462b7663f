"""Stops a process at a chosen call of the storage layer: the n-th file opened, written, synced, renamed or removed."""

import builtins
import contextlib
import errno
import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
import safetensors.torch

VARIABLE = "CROSSTASK_TORTURE"
"""Of the environment: the wire of processes that the command starts itself."""
KILL, TERMINATE, INTERRUPT, FULL_DISK = "kill", "terminate", "interrupt", "full disk"
SIGNALS = {KILL: signal.SIGKILL, TERMINATE: signal.SIGTERM, INTERRUPT: signal.SIGINT}
TORN = ("write", "save")
"""Calls that a kill leaves half done."""
NEEDS_ROOM = (*TORN, "open", "mkdir")
"""Calls that fail where the disk is full."""
FILE_CALLS = ("mkdir", "rmdir", "unlink", "remove")
RENAMES = ("replace", "rename")


@dataclass(frozen=True)
class Wire:
    """What happens at which call.

    - `folder`: calls on files elsewhere do not count;
    - `journal`: file that gets a line for every call, and thus says what was done before a kill;
    - `call`: the number of the call, from 1; without one nothing happens;
    - `deed`: what happens there;
    - `marker`: file that the deed leaves: it happens in one process, once.
    """

    folder: str
    journal: str
    call: int | None = None
    deed: str = KILL
    marker: str = ""

    def for_workers(self) -> str:
        """As the environment holds it."""
        return json.dumps(asdict(self))


def arm_worker() -> None:
    """In a process that the command started: take the wire from the environment, where there is one."""
    text = os.environ.get(VARIABLE)
    if text:
        Tripwire(Wire(**json.loads(text))).arm()


class Tripwire:
    """Counts the calls of this process. Saving tensors is one call: that library opens and writes its files itself."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.count = 0
        self.disk_is_full = False
        self._journal = os.open(wire.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def arm(self) -> None:
        """From here on calls count."""
        for name in FILE_CALLS:
            setattr(os, name, self._watched(name, getattr(os, name)))
        for name in RENAMES:
            setattr(os, name, self._watched(name, getattr(os, name), path_index=1))
        os.fsync = self._watched("fsync", os.fsync)
        os.open = self._watched_descriptor(os.open)
        shutil.rmtree = self._watched("rmtree", shutil.rmtree)
        builtins.open = io.open = self._watched_open(io.open)
        save = self._watched_save(safetensors.serialize_file)
        for module in (safetensors, safetensors.numpy, safetensors.torch):
            module.serialize_file = save

    def _watched(self, name: str, call: Callable[..., Any], path_index: int = 0) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            # Where a path is relative to an open folder, that folder is being removed by rmtree.
            path = self._path(arguments[path_index])
            if path is None and options.get("dir_fd") is None:
                return call(*arguments, **options)
            self._before(name)
            result = call(*arguments, **options)
            self._write_down(name, path or str(arguments[0]))
            return result

        return watched

    def _watched_descriptor(self, call: Callable[..., int]) -> Callable[..., int]:
        watched = self._watched("open", call)

        def maybe_watched(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                return watched(path, flags, *arguments, **options)
            return call(path, flags, *arguments, **options)

        return maybe_watched

    def _watched_open(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            path = self._path(file)
            if path is None or not set(mode) & set("wax+"):
                return call(file, mode, *arguments, **options)
            if not isinstance(file, int):  # else it is open already
                self._before("open")
            stream = call(file, mode, *arguments, **options)
            write = stream.write

            def watched_write(content: Any) -> int:
                def half() -> None:
                    write(content[: len(content) // 2])
                    stream.flush()

                self._before("write", half)
                count = write(content)
                self._write_down("write", path)
                return count

            stream.write = watched_write
            return stream

        return watched

    def _watched_save(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(tensors: Any, path: Any, *arguments: Any, **options: Any) -> None:
            def half() -> None:
                call(tensors, path, *arguments, **options)
                os.truncate(path, os.path.getsize(path) // 2)

            if self._path(path) is not None:
                self._before("save", half)
            call(tensors, path, *arguments, **options)
            self._write_down("save", str(path))

        return watched

    def _before(self, name: str, half: Callable[[], None] | None = None) -> None:
        """Count a call, and do what is to be done if it is the one."""
        self.count += 1
        if self.count == self.wire.call and self._is_first():
            if half is not None and self.wire.deed in (KILL, FULL_DISK):
                half()
            if self.wire.deed == FULL_DISK:
                self.disk_is_full = True
            else:
                os.kill(os.getpid(), SIGNALS[self.wire.deed])
        if self.disk_is_full and name in NEEDS_ROOM:
            number = errno.ENOSPC
            if name == "save":  # as the library says it
                raise safetensors.SafetensorError(f"I/O error: {os.strerror(number)} (os error {number})")
            raise OSError(number, os.strerror(number))

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self.wire.marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _path(self, file: Any) -> str | None:
        """The path of a file inside the folder; None of any other."""
        if isinstance(file, int):
            with contextlib.suppress(OSError):  # there is no such folder but on Linux
                file = os.readlink(f"/proc/self/fd/{file}")
        if isinstance(file, int):
            return str(file)
        path = os.path.abspath(os.fspath(file))
        return path if path.startswith(self.wire.folder + os.sep) else None

    def _write_down(self, name: str, path: str) -> None:
        os.write(self._journal, f"{name} {os.path.relpath(path, self.wire.folder)}\n".encode())


def read_journal(path: Path) -> list[tuple[str, str]]:
    """Calls that came to their end, with their paths."""
    calls: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name, file = line.split(" ", 1)
        calls.append((name, file))
    return calls
