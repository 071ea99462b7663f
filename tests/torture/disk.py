"""A disk of its own for a sequence, that is too small and then grows; where this process may mount one."""

import contextlib
import functools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOM = 64 * 2**20
"""Bytes that are enough for any command of the test."""
BLOCK = 4096


@functools.cache
def may_mount() -> bool:
    """Whether this process has the right to."""
    with tempfile.TemporaryDirectory() as folder:
        is_mounted = _mount(Path(folder), ROOM)
        if is_mounted:
            _unmount(Path(folder))
    return is_mounted


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Put a disk with plenty of room at this folder."""
    if not _mount(folder, ROOM):
        raise RuntimeError(f"no disk can be mounted at {folder}")
    try:
        yield
    finally:
        _unmount(folder)


@contextlib.contextmanager
def less_room(folder: Path, num_bytes: int) -> Iterator[None]:
    """The disk at this folder is small; where more is on it already, it stays as it is."""
    _mount(folder, max(num_bytes, BLOCK), "remount,")
    try:
        yield
    finally:
        _mount(folder, ROOM, "remount,")


def _mount(folder: Path, num_bytes: int, options: str = "") -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"{options}size={num_bytes}", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:  # there is no such program
        return False


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], capture_output=True, check=True)
