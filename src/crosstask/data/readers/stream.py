"""The bytes of a file as a stream: plain files, pipes and devices, unpacked if they are gzip, and never without end."""

import gzip
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

CHUNK = 2**20
"""Bytes that are read at a time."""
MAX_BYTES = 4 * 2**30
"""Of a file, unpacked, unless the option `max_bytes` says otherwise. More would hardly fit into memory as examples."""
MAX_LINE = 64 * 2**20
"""Characters of a line, or of a cell over several lines. With `max_bytes`, a 64th of it where that is more."""
MAX_RATIO, RATIO_FROM = 200, 16 * 2**20
"""Texts shrink to a tenth, tables of few values perhaps to a hundredth. What unpacks to more than 200 times its size,
from so many bytes on, was made to fill memory."""
PIPE_SECONDS = 10.0
"""How long a named pipe is given to find a writer."""

GZIP = b"\x1f\x8b"
HEAD = 8
"""Bytes that tell which kind of file it is."""


class TooLargeError(Exception):
    """More bytes than are allowed; the text goes on from the file's name."""


@dataclass(frozen=True)
class Limits:
    """How much of a file is read. `max_bytes` is the user's own number, which no ratio of packing lowers."""

    max_bytes: int | None = None

    @property
    def file(self) -> int:
        """Bytes of a file, unpacked."""
        return MAX_BYTES if self.max_bytes is None else self.max_bytes

    @property
    def line(self) -> int:
        """Characters of a line."""
        return max(MAX_LINE, self.file // 64)

    def check_file(self, num_bytes: int) -> None:
        """Fail if a file has more bytes than are allowed."""
        if num_bytes > self.file:
            raise TooLargeError(f"has more than {self.file:,} bytes; {raise_limit()}.")

    def check_unpacked(self, num_bytes: int, num_packed: int) -> None:
        """Fail if a packed file has become too large, or much larger than data does."""
        if num_bytes > self.file:
            raise TooLargeError(f"unpacks to more than {self.file:,} bytes; {raise_limit()}.")
        if self.max_bytes is None and num_bytes > max(RATIO_FROM, MAX_RATIO * num_packed):
            raise TooLargeError(f"unpacks to more than {MAX_RATIO} times its size, as no data does; {raise_limit()}.")

    def check_line(self, num_characters: int) -> None:
        """Fail if a line is longer than any line of data."""
        if num_characters > self.line:
            raise TooLargeError(
                f"has more than {self.line:,} characters without an end of line; is it a text file? If so, "
                f"{raise_limit()}."
            )


DEFAULT_LIMITS = Limits()


def raise_limit() -> str:
    """What to do about a file that is too large."""
    return "if it is meant to be, set `max_bytes` higher (predict, evaluate: --max-bytes)"


class Replayed:
    """A stream whose first bytes were read before, which counts what is read of it."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self.head = head
        self.file = file
        self.num_bytes = 0

    def read(self, size: int) -> bytes:
        """The next bytes: at most `size`, none at the end."""
        if self.head:
            piece, self.head = self.head[:size], self.head[size:]
        else:
            piece = self.file.read(size)
        self.num_bytes += len(piece)
        return piece


def unpacked_chunks(file: Replayed, limits: Limits) -> Iterator[bytes]:
    """The content in pieces, unpacked if its first bytes are those of gzip."""
    num_bytes = 0
    stream: Replayed | gzip.GzipFile = file
    is_packed = file.head.startswith(GZIP)
    if is_packed:
        stream = gzip.GzipFile(fileobj=cast(BinaryIO, file), mode="rb")
    while chunk := stream.read(CHUNK):
        num_bytes += len(chunk)
        limits.check_file(file.num_bytes)  # a pipe can also hold packed files of nothing without end
        if is_packed:
            limits.check_unpacked(num_bytes, file.num_bytes)
        yield chunk


@contextmanager
def opened(path: Path, limits: Limits) -> Iterator[tuple[Replayed, int]]:
    """A file, and its size on disk (0 for pipes and devices, which have none)."""
    status = path.stat()
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    limits.check_file(size)
    head = b""
    if stat.S_ISFIFO(status.st_mode):
        file, head = _opened_pipe(path)
    else:
        file = path.open("rb")
    with file:
        head += file.read(max(0, HEAD - len(head)))
        yield Replayed(head, file), size


def _opened_pipe(path: Path) -> tuple[BinaryIO, bytes]:
    """A named pipe and what is in it. One without a writer would keep the reader waiting for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    head = b""
    try:
        started = time.monotonic()
        while not head:
            try:
                head = os.read(handle, CHUNK)
            except BlockingIOError:  # there is a writer that has not written yet; it may take its time
                break
            if not head and time.monotonic() - started > PIPE_SECONDS:
                raise TimeoutError(f"it is a pipe that nobody wrote to in {PIPE_SECONDS:.0f} seconds")
            if not head:
                time.sleep(0.02)
        os.set_blocking(handle, True)
        return os.fdopen(handle, "rb"), head
    except BaseException:
        os.close(handle)
        raise
