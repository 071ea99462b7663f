"""Files that can be made again: their names carry size and checksum, so that damage of any kind is noticed in time.

A cache is written by whoever comes first, read by strangers, and killed in the middle; nothing in it is trusted.
"""

import contextlib
import mmap
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from pathlib import Path

from crosstask.storage.reading import DamagedFileError

SCRATCH = ".part-"
"""How the name of a file begins that is still being written."""
STALE_SECONDS = 3600.0
"""A file that nobody has written to for so long was left by a process that was killed."""
ATTEMPTS = 5
"""So often a file is written while others remove its folder."""

_NAME = re.compile(r".+-([0-9a-f]+)-([0-9a-f]{8})\.[a-z]+")


def write_checked(folder: Path, stem: str, suffix: str, content: bytes) -> Path:
    """Write a file at once, for its owner alone; its name is the stem, then the size and the checksum of the content.

    Raises `OSError` where that is not possible. Nothing is forced to disk: what a power failure leaves of the file is
    noticed when it is read.
    """
    name = f"{stem}-{len(content):x}-{zlib.crc32(content):08x}{suffix}"
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):  # another process has removed the folder meanwhile
            return _write_once(folder, name, content)
    return _write_once(folder, name, content)


def _write_once(folder: Path, name: str, content: bytes) -> Path:
    make_private_folder(folder)
    remove_stale_scratch(folder)
    handle, scratch = tempfile.mkstemp(dir=folder, prefix=SCRATCH)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(scratch, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
    return folder / name


def read_checked(path: Path) -> bytes:
    """The content of a file as it was written.

    Raises `DamagedFileError` for any other content, and `OSError` for a file that cannot be read, or not any more.
    """
    size, checksum = _expected(path)
    content = path.read_bytes()
    if len(content) != size or zlib.crc32(content) != checksum:
        raise DamagedFileError(f"'{path}' is damaged: its content has another checksum.")
    return content


def map_checked(path: Path) -> memoryview:
    """As `read_checked`, without a copy: several processes share the memory, and what is not read takes none."""
    size, checksum = _expected(path)
    content = memoryview(b"")
    with path.open("rb") as file:
        if size and os.fstat(file.fileno()).st_size == size:
            content = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    if len(content) != size or zlib.crc32(content) != checksum:
        raise DamagedFileError(f"'{path}' is damaged: its content has another checksum.")
    return content


def _expected(path: Path) -> tuple[int, int]:
    """Size and checksum of a file by its name; the size is right."""
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise DamagedFileError(f"'{path}' is damaged: it has no checksum in its name (files of version 0.2 had none).")
    size, checksum = int(name[1], 16), int(name[2], 16)
    try:
        status = path.stat()
    except OSError as error:
        if path.is_symlink():
            raise DamagedFileError(f"'{path}' is damaged: it is a link that leads nowhere.") from error
        raise
    if not stat.S_ISREG(status.st_mode):  # a folder, or a pipe or a device, which could have no end
        raise DamagedFileError(f"'{path}' is damaged: it is no plain file.")
    if status.st_size != size:  # before it is read: a damaged file may be larger than the memory
        raise DamagedFileError(f"'{path}' is damaged: it has {status.st_size:,} bytes instead of {size:,}.")
    return size, checksum


def make_private_folder(folder: Path) -> None:
    """Make a folder, with those above it, for its owner alone: features and texts may be confidential."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def discard(path: Path) -> bool:
    """Remove a file, a link or a folder of a cache, and say whether it is gone. A link's target stays."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return not os.path.lexists(path)


def remove_stale_scratch(folder: Path) -> None:
    """Remove what killed processes left in a folder: files half written, and the scratch folders of version 0.2."""
    for path in children(folder):
        if path.name.startswith((SCRATCH, "tmp")) and not path.suffix:
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > STALE_SECONDS:
                    discard(path)


def children(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where it cannot be read or is none."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
