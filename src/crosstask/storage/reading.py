"""Files that crosstask wrote, read back as if a stranger had: whatever is wrong with one ends in one sentence."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, overload

from crosstask.errors import CrossTaskError

MAX_BYTES = 256 * 2**20
"""No JSON or text file of a run comes near; a larger one was not written by crosstask."""

PIECE = 2**20
"""Bytes that are read at once."""

Shape = TypeVar("Shape")


class DamagedFileError(CrossTaskError):
    """A file that crosstask wrote cannot be read back. Callers that can do without the file catch it."""


def read_text(path: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8, or an error that names the file."""
    try:
        if not path.is_file():  # a folder, a pipe or a device, which could have no end
            raise DamagedFileError(f"'{path}' is damaged: it is missing, or no plain file.")
        # One byte more than allowed shows that there are more, whatever the system says of the file's size.
        with path.open("rb") as file:
            content = _read_up_to(file, max_bytes + 1)
    except OSError as error:
        raise DamagedFileError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    if len(content) > max_bytes:
        raise DamagedFileError(f"'{path}' is damaged: it has more than {max_bytes:,} bytes.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"'{path}' is damaged: it is not valid utf-8.") from error


def _read_up_to(file: BinaryIO, size: int) -> bytes:
    """The first bytes of a file. Piece by piece: Python reserves at once whatever a single read asks for."""
    pieces: list[bytes] = []
    remaining = size
    while remaining > 0:
        piece = file.read(min(remaining, PIECE))
        if not piece:
            break
        pieces.append(piece)
        remaining -= len(piece)
    return b"".join(pieces)


@overload
def read_json(path: Path, *, max_bytes: int = ...) -> Any: ...
@overload
def read_json(path: Path, shape: type[Shape], *, max_bytes: int = ...) -> Shape: ...
def read_json(path: Path, shape: Any = None, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value in a JSON file.

    Args:
        path: the file.
        shape: the type that the value must have, such as `dict[str, float]`, a dataclass or a `TypedDict` (that of
            `typing_extensions`, for Python 3.11). Nothing is converted.
        max_bytes: the largest file that is read.
    """
    value = _parse(read_text(path, max_bytes=max_bytes), str(path))
    return value if shape is None else check_shape(value, shape, str(path))


def read_lines(path: Path, *, max_bytes: int = MAX_BYTES) -> list[Any]:
    """The values of a file of JSON lines; a last line that a kill cut short is left out."""
    # Not splitlines: a text inside a row may hold other line separators of Unicode.
    *lines, last = read_text(path, max_bytes=max_bytes).split("\n")
    rows: list[Any] = []
    for number, line in enumerate(lines, start=1):
        rows.append(_parse(line, f"{path}, line {number}"))
    if last:
        with contextlib.suppress(DamagedFileError):
            rows.append(_parse(last, str(path)))
    return rows


@contextlib.contextmanager
def explain_damage(what: str) -> Iterator[None]:
    """Turn whatever goes wrong while files are parsed into a sentence about `what` they hold.

    For the border where foreign code (transformers, tokenizers, torch) reads foreign bytes: each of these packages has
    errors of its own, down to bare `Exception`. Errors that are sentences about a file already stay as they are.
    """
    try:
        yield
    except CrossTaskError as error:
        if type(error) is not CrossTaskError:
            raise
        raise DamagedFileError(f"{what} is damaged or not whole: {error}") from error
    except Exception as error:  # see above
        reason = str(error).strip().split("\n")[0].rstrip(".")[:300] or type(error).__name__
        raise DamagedFileError(f"{what} is damaged or not whole: {reason}.") from error


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise DamagedFileError(f"'{where}' is damaged: its JSON is nested too deeply.") from error
    except ValueError as error:  # no JSON, or a number of thousands of digits
        raise DamagedFileError(f"'{where}' is damaged: {error}.") from error


def check_shape(value: object, shape: Any, where: str) -> Any:
    """A value of a JSON file that must have the type `shape`; `where` names it in the error."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(shape).validate_python(value, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        location = f" at `{key[:60]}`" if key else ""
        raise DamagedFileError(f"'{where}' is damaged{location}: {problem['msg']}.") from error
