"""Files as text and lines: limits, encodings, and every way in which a file can fail to be read."""

import codecs
import difflib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from crosstask.data.plain_text import has_lone_surrogate, one_line
from crosstask.data.readers.stream import DEFAULT_LIMITS, Limits, Replayed, TooLargeError, opened, unpacked_chunks
from crosstask.errors import CrossTaskError
from crosstask.progress import reading_bar
from crosstask.quoting import brief
from crosstask.validation import shown

Encoding = str | Sequence[str]
TAB = {"tab": "\t", "\\t": "\t"}
"""How recipes write a tab; YAML takes `\\t` as two characters unless it stands in double quotes."""

# First bytes of archives that would otherwise end as an error about the encoding.
_OTHER_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstandard"}
# Text encodings of Python's that are for names of hosts or for source code, not for files.
_NOT_FOR_FILES = ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape")


@dataclass(frozen=True)
class Source:
    """One file to read: the task that it belongs to, the name that the user gave it, its path, and how text is coded.

    Of several encodings the first that fits is taken. `limits` say how much is read. `unit` is what errors count.
    """

    task: str
    name: str
    path: Path
    encoding: Encoding = "utf-8"
    limits: Limits = DEFAULT_LIMITS
    unit: str = "line"

    def error(self, problem: str, line: int | None = None) -> CrossTaskError:
        """The error for a problem of this file; `problem` goes on from the file's name: "has 3 columns, ..."."""
        where = one_line(self.name)
        if line is not None:
            where += f", {self.unit} {line}"
        return CrossTaskError(f"Task '{one_line(self.task)}': {where} {problem}")

    def option_error(self, problem: str) -> CrossTaskError:
        """The error for an option that makes no sense, whatever the file holds."""
        return CrossTaskError(f"Task '{one_line(self.task)}': {problem}")

    def check(self) -> None:
        """Fail if the file is missing or is no file, with the nearest name that exists."""
        if self.path.is_dir():
            raise self.error(f"is a folder; name a file in it{_first_file(self.path)}.")
        if not self.path.exists():
            folder = self.path.parent
            if not folder.is_dir():
                raise self.error(f"does not exist: there is no folder {one_line(str(folder))}.")
            raise self.error(
                f"does not exist in the folder {one_line(str(folder.resolve()))}.{_nearest_file(self.path)}"
            )

    def open(self) -> AbstractContextManager[tuple[Replayed, int]]:
        """The file as it is on disk, and its size."""
        self.check()
        return opened(self.path, self.limits)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Whatever the system says of a file that cannot be read, as a sentence."""
        try:
            yield
        except TooLargeError as error:
            raise self.error(str(error)) from error
        except PermissionError as error:
            raise self.error("may not be read by this user; change its permissions.") from error
        except (EOFError, zlib.error) as error:
            raise self._broken_gzip(error) from error
        except OSError as error:
            if error.errno is None and not isinstance(error, TimeoutError):  # gzip's own
                raise self._broken_gzip(error) from error
            raise self.error(f"cannot be read ({error.strerror or error}).") from error
        except ValueError as error:  # a zero byte in its name
            raise self.error(f"cannot be read ({error}).") from error

    def _broken_gzip(self, error: Exception) -> CrossTaskError:
        return self.error(f"is a broken gzip file ({error}); copy or download it again.")

    def chunks(self) -> Iterator[bytes]:
        """The file's content in pieces, unpacked if its first bytes are those of gzip, whatever its name."""
        with self.explained(), self.open() as (file, size), reading_bar(self.name, size) as advance:
            self._check_kind(file.head)
            is_first = True
            for chunk in unpacked_chunks(file, self.limits):
                if is_first:
                    self._check_archive(chunk)
                    is_first = False
                yield chunk
                advance(file.num_bytes)
            if is_first:
                raise self.error("is empty.")

    def _check_kind(self, head: bytes) -> None:
        if head and self.path.suffix == ".gz" and not head.startswith(b"\x1f\x8b"):
            raise self.error("is named .gz but is no gzip file; make it again, or rename it if it is plain text.")

    def _check_archive(self, content: bytes) -> None:
        for start, archive in _OTHER_ARCHIVES.items():
            if content.startswith(start):
                raise self.error(f"is a {archive} archive; unpack it first (only gzip is read as it is).")

    def data(self) -> bytes:
        """The file's whole content, for formats that are no text."""
        return b"".join(self.chunks())

    def lines(self) -> Iterator[str]:
        """The file's lines, without their ends, as they are read."""
        for line in self.raw_lines():
            yield line.removesuffix("\r")

    def raw_lines(self) -> Iterator[str]:
        r"""The lines with a `\r` that stands before their end.

        Only `\n` ends a line: characters such as U+0085 and U+2028, at which `str.splitlines` would cut, occur inside
        real lines.
        """
        pieces: list[str] = []  # of a line that has not ended
        length = number = 0
        is_blank = True
        for text in self._texts():
            is_blank = is_blank and not text.strip()
            first, *others = text.split("\n")
            pieces.append(first)
            length += len(first)
            if others:
                yield "".join(pieces)
                pieces = [others.pop()]
                length = len(pieces[0])
                yield from others
                number += 1 + len(others)
            try:
                self.limits.check_line(length)
            except TooLargeError as error:
                raise self.error(str(error), number + 1) from error
        if is_blank:
            raise self.error("is empty.")
        if length:
            yield "".join(pieces)

    def _texts(self) -> Iterator[str]:
        """The file's text in pieces; a byte order mark is no text."""
        codecs_by_name = self.check_encoding()
        if len(codecs_by_name) == 1:
            return self._decoded(self.chunks(), *codecs_by_name[0])
        return self._decoded_by_first(list(self.chunks()), codecs_by_name)

    def check_encoding(self) -> list[tuple[str, str]]:
        """The names of the encodings and of their codecs; an error for what is none."""
        if not isinstance(self.encoding, str | list | tuple):
            raise self.option_error(f"`encoding` names an encoding such as utf-8; found {shown(self.encoding)}.")
        encodings = [self.encoding] if isinstance(self.encoding, str) else list(self.encoding)
        if not encodings:
            raise self.option_error("`encoding` is an empty list; name an encoding such as utf-8.")
        return [(encoding, self._codec(encoding)) for encoding in encodings]

    def _decoded_by_first(self, chunks: Sequence[bytes], codecs_by_name: Sequence[tuple[str, str]]) -> Iterator[str]:
        """The text by the first encoding that fits: only the whole file can say so, so its bytes are held."""
        failures: list[CrossTaskError] = []  # of all encodings; the first is the most likely one
        for encoding, codec in codecs_by_name:
            try:
                for _ in self._decoded(chunks, encoding, codec):
                    pass
            except CrossTaskError as error:
                failures.append(error)
                continue
            return self._decoded(chunks, encoding, codec)
        raise failures[0]

    def _decoded(self, chunks: Iterable[bytes], encoding: str, codec: str) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(codec)()
        start = b""
        num_lines = 0
        last = b""
        for chunk in chunks:
            start = start or chunk[:4]
            try:
                text = decoder.decode(chunk)
            except UnicodeError as error:
                raise self._undecodable(start, encoding, error, num_lines) from error
            num_lines += chunk.count(b"\n")
            last = chunk
            self._check_text(text, num_lines)
            yield text
        try:
            yield decoder.decode(b"", final=True)
        except UnicodeError as error:
            # What is missing at the end is on the last line.
            num_lines -= int(last.endswith(b"\n"))
            raise self._undecodable(start, encoding, error, num_lines) from error

    def _check_text(self, text: str, num_lines: int) -> None:
        """Some encodings can say what no text can hold."""
        if has_lone_surrogate(text):
            raise self.error(f"holds half of a surrogate pair before line {num_lines + 1}, which is no text.")

    def _codec(self, encoding: object) -> str:
        """The name of the codec, with utf-8 as the one that takes a byte order mark away."""
        if not isinstance(encoding, str):
            raise self.option_error(f"`encoding` names an encoding such as utf-8; found {shown(encoding)}.")
        try:
            codec = codecs.lookup(encoding)
        except (LookupError, ValueError) as error:  # unknown, or with a zero byte in its name
            raise self.option_error(
                f"`encoding` names {shown(encoding)}, which Python does not know; use utf-8 or latin-1, for example."
            ) from error
        # Python counts conversions such as hex among its codecs; only this attribute tells which are of text.
        name = codec.name.replace("-", "_")
        if not codec._is_text_encoding or name in _NOT_FOR_FILES or codec.incrementaldecoder is None:
            raise self.option_error(
                f"`encoding` names {shown(encoding)}, which is no encoding of text files; use utf-8 or latin-1, for "
                "example."
            )
        return "utf-8-sig" if codec.name == "utf-8" else codec.name

    def _undecodable(self, start: bytes, encoding: str, error: UnicodeError, num_lines: int) -> CrossTaskError:
        line = None
        if isinstance(error, UnicodeDecodeError):
            line = num_lines + error.object[: error.start].count(b"\n") + 1
        remedy = "utf-8"
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            remedy = "utf-16"
        elif codecs.lookup(encoding).name.startswith("utf"):
            remedy = "latin-1"
        return self.error(f"is not valid {encoding}; `encoding: {remedy}` may help.", line)


def _nearest_file(path: Path) -> str:
    close = difflib.get_close_matches(path.name, _file_names(path.parent), n=1, cutoff=0.6)
    return f" Did you mean '{brief(close[0])}'?" if close else ""


def _first_file(folder: Path) -> str:
    names = _file_names(folder)
    return f", such as '{brief(names[0])}'" if names else ""


def _file_names(folder: Path) -> list[str]:
    try:
        return sorted(item.name for item in folder.iterdir() if item.is_file())
    except OSError:
        return []
