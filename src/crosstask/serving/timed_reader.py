"""Reading requests from a connection within a time and a size, however slowly and however much the other side sends."""

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEAD_BYTES = 2**16
"""Of the first line and the headers of a request."""


class HeadTooLongError(Exception):
    """A request has more than so many bytes before its body."""


class TimedReader(io.RawIOBase):
    """What a connection sends; a request has to arrive within a time from its first byte.

    A limit for each call alone would be kept by whoever sends a byte now and then.

    Args:
        connection: to read from.
        idle_seconds: for the first byte of a request.
        reading_seconds: from there for all of it.
    """

    def __init__(self, connection: socket.socket, idle_seconds: float, reading_seconds: float) -> None:
        self.connection = connection
        self.idle_seconds = idle_seconds
        self.reading_seconds = reading_seconds
        self.expect_request()

    def expect_request(self) -> None:
        """The next byte is the first of a request."""
        self.has_begun = self.is_late = False
        self._deadline = time.monotonic() + self.idle_seconds
        self._bytes_left = HEAD_BYTES

    def expect_body(self, length: int) -> None:
        """So many bytes may follow the headers."""
        self._bytes_left = length

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: "Buffer") -> int:
        """Whatever has arrived; `TimeoutError` when the time is over."""
        if self._bytes_left <= 0:
            raise HeadTooLongError
        remaining = self._deadline - time.monotonic()
        try:
            if remaining <= 0:
                raise TimeoutError
            self.connection.settimeout(remaining)
            count = self.connection.recv_into(buffer)
        except TimeoutError:
            self.is_late = True
            raise
        self._bytes_left -= count
        if not self.has_begun:
            self.has_begun = True
            self._deadline = time.monotonic() + self.reading_seconds
        return count
