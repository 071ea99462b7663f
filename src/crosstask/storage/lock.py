"""One writer per folder: a lock that the system takes back when its process ends, however it ends.

The lock is the system's lock on a file `.lock` in the folder, not the file itself: a file that a kill left behind holds
nobody up. Who holds the lock is written into the file, for the message to the second who comes. The file is removed
when the lock is given back.

- Linux and macOS lock by `flock`, Windows by `msvcrt`. A file system that has no locks (some network ones) is written
  to without one: `FolderLock.note` says so.
- A child made by `fork` closes its copy at once, so that it cannot keep the lock of a parent that was killed.
"""

import contextlib
import errno
import getpass
import json
import os
import socket
import sys
import time
import weakref
from datetime import datetime
from pathlib import Path

from typing_extensions import TypedDict

from crosstask.errors import CrossTaskError
from crosstask.storage.reading import DamagedFileError, read_json

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_FILE = ".lock"
PATIENCE = 0.25
"""Seconds for which a lock is tried again: a look at who holds it takes it for a moment."""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
"""What a file system that has no locks answers; network ones may lock files that are open for writing alone."""
MAX_COMMAND_LENGTH = 200
WINDOWS_OFFSET = 2**30
"""Windows locks bytes against reading too; this one is never written, so that the holder's name can be read."""


class Holder(TypedDict):
    """Who holds a lock, as the file says."""

    pid: int
    host: str
    user: str
    started: str
    command: str


class FolderLock:
    """The right to write to a folder. Only the process that took it gives it back; its end does so as well.

    - `note`: what to tell the user where the file system has no locks.
    """

    def __init__(self, folder: Path, handle: int, note: str | None = None) -> None:
        self.folder = folder
        self.note = note
        self._handle: int | None = handle
        _locks.add(self)

    @property
    def path(self) -> Path:
        """The lock's file."""
        return self.folder / LOCK_FILE

    def release(self) -> None:
        """Remove the file and give the lock back; a second time nothing happens."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        # While the lock is held, so that the file that is removed is the one that was locked. Windows removes no open
        # file: there it goes after, if nobody else has opened it.
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                self.path.unlink()
        with contextlib.suppress(OSError):
            os.close(handle)
        if sys.platform == "win32":
            with contextlib.suppress(OSError):
                self.path.unlink()

    def leave_to_parent(self) -> None:
        """In a child: close the copy of the handle. The parent's lock stays as it is."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.release()


_locks: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for lock in list(_locks):
        lock.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def lock_folder(folder: Path, *, patience: float = PATIENCE) -> FolderLock:
    """Take the lock of a folder that exists, or say who holds it.

    Args:
        folder: to be written to.
        patience: seconds to wait for a process that may be about to end.
    """
    path = folder / LOCK_FILE
    deadline = time.monotonic() + patience
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            is_locked = try_lock(handle)
            # The holder before may have removed the file after it was opened here: then the lock is on nothing.
            if is_locked is not False and _is_file(path, handle):
                _write_holder(handle)
                note = None
                if is_locked is None:
                    note = "the file system has no locks: see to it that no other process writes to this folder"
                return FolderLock(folder, handle, note)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if is_locked is False and time.monotonic() > deadline:
            raise _held_error(folder)
        time.sleep(0.01)


def check_not_locked(folder: Path) -> None:
    """Refuse a folder that somebody writes to now; nothing in it is touched."""
    deadline = time.monotonic() + PATIENCE
    while is_locked(folder / LOCK_FILE):
        if time.monotonic() > deadline:
            raise _held_error(folder)
        time.sleep(0.01)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file or folder; False where that cannot be known."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # not there, or of somebody else
        return False
    try:
        return try_lock(handle, shared=True) is False
    finally:
        os.close(handle)  # which gives back what was taken for the look


def try_lock(handle: int, *, shared: bool = False) -> bool | None:
    """Lock an open file, until the handle is closed: whether it worked, or None where there are no locks."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, WINDOWS_OFFSET, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            return False
        if error.errno in NO_LOCKS:
            return None
        raise
    return True


def _is_file(path: Path, handle: int) -> bool:
    """Whether the open file is the one at this path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _write_holder(handle: int) -> None:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this user's number, as in some containers
        user = "?"
    holder: Holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "user": user,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": " ".join(sys.argv)[:MAX_COMMAND_LENGTH],
    }
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, 0)
    os.write(handle, (json.dumps(holder) + "\n").encode())  # in ASCII


def _held_error(folder: Path) -> CrossTaskError:
    advice = "wait for it, or choose another folder with --output"
    try:
        holder = read_json(folder / LOCK_FILE, Holder, max_bytes=2**14)
    except DamagedFileError:  # the holder is just about to write its name
        return CrossTaskError(f"'{folder}' is being written by another process; {advice}.")
    if (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname()):
        who = "by this process, in another place of it"
    else:
        who = f"by process {holder['pid']} of {_short(holder['user'])} on {_short(holder['host'])}"
    since = _short(holder["started"][:16].replace("T", " "))  # to the minute
    return CrossTaskError(f"'{folder}' is being written {who} since {since}; {advice}.")


def _short(text: str) -> str:
    """As much of a text as a message has room for, on one line."""
    return " ".join(text[:40].split()) or "?"
