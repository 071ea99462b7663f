"""Files as text and lines: gzip, encodings, and every way in which a file can fail to be read."""

import codecs
import difflib
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstask.errors import CrossTaskError

Encoding = str | Sequence[str]
TAB = {"tab": "\t", "\\t": "\t"}
"""How recipes write a tab; YAML takes `\\t` as two characters unless it stands in double quotes."""

_GZIP = b"\x1f\x8b"
# First bytes of archives that would otherwise end as an error about the encoding.
_OTHER_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstandard"}


@dataclass(frozen=True)
class Source:
    """One file to read: the task that it belongs to, the name that the user gave it, its path, and how text is coded.

    Of several encodings the first that fits is taken.
    """

    task: str
    name: str
    path: Path
    encoding: Encoding = "utf-8"

    def error(self, problem: str, line: int | None = None) -> CrossTaskError:
        """The error for a problem of this file; `problem` goes on from the file's name: "has 3 columns, ..."."""
        where = self.name
        if line is not None:
            where += f", line {line}"
        return CrossTaskError(f"Task '{self.task}': {where} {problem}")

    def option_error(self, problem: str) -> CrossTaskError:
        """The error for an option that makes no sense, whatever the file holds."""
        return CrossTaskError(f"Task '{self.task}': {problem}")

    def check(self) -> None:
        """Fail if the file is missing or is no file, with the nearest name that exists."""
        if self.path.is_dir():
            raise self.error(f"is a folder; name a file in it{_first_file(self.path)}.")
        if not self.path.exists():
            folder = self.path.parent
            if not folder.is_dir():
                raise self.error(f"does not exist: there is no folder {folder}.")
            raise self.error(f"does not exist in the folder {folder.resolve()}.{_nearest_file(self.path)}")

    def packed_data(self) -> bytes:
        """The file's bytes as they are on disk."""
        self.check()
        try:
            return self.path.read_bytes()
        except PermissionError as error:
            raise self.error("may not be read by this user; change its permissions.") from error
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror or error}).") from error

    def data(self) -> bytes:
        """The file's content, unpacked if its first bytes are those of gzip, whatever its name."""
        content = self.packed_data()
        if content.startswith(_GZIP):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise self.error(f"is a broken gzip file ({error}); copy or download it again.") from error
        elif content and self.path.suffix == ".gz":
            raise self.error("is named .gz but is no gzip file; make it again, or rename it if it is plain text.")
        for start, archive in _OTHER_ARCHIVES.items():
            if content.startswith(start):
                raise self.error(f"is a {archive} archive; unpack it first (only gzip is read as it is).")
        if not content:
            raise self.error("is empty.")
        return content

    def text(self) -> str:
        """The file's text; a byte order mark is no text."""
        content = self.data()
        encodings = [self.encoding] if isinstance(self.encoding, str) else list(self.encoding)
        if not encodings:
            raise self.option_error("`encoding` is an empty list; name an encoding such as utf-8.")
        failures: list[CrossTaskError] = []  # of all encodings; the first is the most likely one
        for name in encodings:
            try:
                text = self._decode(content, str(name))
            except UnicodeError as error:
                failures.append(self._undecodable(content, str(name), error))
                continue
            if not text.strip():
                raise self.error("is empty.")
            return text
        raise failures[0]

    def lines(self) -> list[str]:
        r"""The file's lines, without their ends.

        Only `\n` ends a line (a `\r` before it goes too): characters such as U+0085 and U+2028, at which
        `str.splitlines` would cut, occur inside real lines.
        """
        text = self.text()
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        return lines

    def _decode(self, content: bytes, encoding: str) -> str:
        try:
            codec = codecs.lookup(encoding).name
        except LookupError as error:
            raise self.option_error(
                f"`encoding` names '{encoding}', which Python does not know; use utf-8 or latin-1, for example."
            ) from error
        if codec in ("utf-8", "utf-8-sig"):
            return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
        return content.decode(codec)

    def _undecodable(self, content: bytes, encoding: str, error: UnicodeError) -> CrossTaskError:
        line = None
        if isinstance(error, UnicodeDecodeError):
            # The offset counts from behind the byte order mark, which is on the first line: no end of line is missed.
            line = error.object[: error.start].count(b"\n") + 1
        remedy = "utf-8"
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            remedy = "utf-16"
        elif codecs.lookup(encoding).name.startswith("utf"):
            remedy = "latin-1"
        return self.error(f"is not valid {encoding}; `encoding: {remedy}` may help.", line)


def _nearest_file(path: Path) -> str:
    close = difflib.get_close_matches(path.name, _file_names(path.parent), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def _first_file(folder: Path) -> str:
    names = _file_names(folder)
    return f", such as '{names[0]}'" if names else ""


def _file_names(folder: Path) -> list[str]:
    try:
        return sorted(item.name for item in folder.iterdir() if item.is_file())
    except OSError:
        return []
