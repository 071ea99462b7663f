"""Files that are complete or not there: everything is written beside its path and renamed."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from crosstask.errors import CrossTaskError
from crosstask.quoting import shown

MAX_NAME = 255
"""Bytes of a file's or folder's name, on every usual file system."""


def check_path(path: str | Path, what: str) -> Path:
    """A path of the user's that can be looked up and written, as far as its letters go; `what` names it in an error."""
    text = str(path)
    if "\0" in text:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: it holds a zero byte.")
    try:
        parts = [part.encode() for part in text.split("/")]
    except UnicodeEncodeError as error:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: it is not valid utf-8.") from error
    if max(len(part) for part in parts) > MAX_NAME:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: a name in it has more than {MAX_NAME} bytes.")
    return Path(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file at once: readers see the old one or the new one, never half of it."""
    _write_text(path, text, os.replace)


def write_new_text(path: Path, text: str) -> None:
    """Write a text file at once, and never over another, even one that has appeared a moment ago."""
    _write_text(path, text, _rename_to_new)


def _rename_to_new(scratch: str, path: Path) -> None:
    try:
        os.link(scratch, path)  # unlike a rename, it fails where there is a file
    except FileExistsError as error:
        raise CrossTaskError(f"'{path}' exists; nothing was written over. Choose another file.") from error
    except OSError:  # some file systems have no links
        os.replace(scratch, path)
    else:
        os.unlink(scratch)


def _write_text(path: Path, text: str, rename: Callable[[str, Path], None]) -> None:
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(scratch, 0o644)
            rename(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A scratch folder to fill; it replaces `path` when all is written, and leaves nothing otherwise."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield scratch
            for file in scratch.rglob("*"):
                os.chmod(file, 0o755 if file.is_dir() else 0o644)  # some writers make files for the owner alone
                _flush_to_disk(file)
            os.chmod(scratch, 0o755)
            if path.exists():
                # A folder that is not empty cannot be replaced at once: it is moved away first.
                old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
                os.replace(path, old / "old")
                os.replace(scratch, path)
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(scratch, path)
            _flush_to_disk(path.parent)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def remove_scratch(path: Path) -> None:
    """Remove what a kill left of files and folders that were to replace this path."""
    for scratch in path.parent.glob(f".{path.name}.*"):
        if scratch.is_dir():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            scratch.unlink(missing_ok=True)


def _flush_to_disk(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the rename is still atomic
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden path into a sentence."""
    try:
        yield
    except CrossTaskError:
        raise
    except Exception as error:
        number = _system_number(error)
        if number is None:
            raise
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            full = f"No more may be written ({os.strerror(number)})"
            if number == errno.ENOSPC:
                full = "The disk is full"
            raise CrossTaskError(
                f"{full}: '{path}' could not be written. What was written before is whole; make room and try again "
                "(a training run that had begun goes on with --resume)."
            ) from error
        if number in (errno.EEXIST, errno.ENOTDIR):
            raise CrossTaskError(f"'{path}' could not be written: '{path.parent}' is no folder.") from error
        raise CrossTaskError(f"'{path}' could not be written: {os.strerror(number)}.") from error


def _system_number(error: Exception) -> int | None:
    """The system's number of what went wrong; safetensors reports it in the text of an error of its own."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"os error (\d+)", str(error))
    return int(match[1]) if match else None
