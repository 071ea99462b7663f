"""Files that are complete or not there: everything is written beside its path and renamed.

A rename is all or nothing for readers and for kills, but a power cut can keep the new name and lose the content, or the
other way round. So each file, and the folder that names it, is on disk before it is renamed, and the folder that gets
the new name after that (`_flush_to_disk`).

What is not complete yet has a name of its own, `.NAME.`, eight letters and `.part`, and is locked by the process that
writes it. So what a kill left behind can be told from what is still being written, and removed.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from crosstask.errors import CrossTaskError
from crosstask.quoting import shown
from crosstask.storage.lock import FolderLock, is_locked, lock_folder, try_lock

MAX_NAME = 255
"""Bytes of a file's or folder's name, on every usual file system."""
MAX_PATH = 3_000
"""Bytes of a whole path: Linux takes 4,095, and what is inside a folder has longer ones than the folder."""
SUFFIX = ".part"
SCRATCH_ENDING = re.compile(rf"(old\.)?[a-z0-9_]{{8}}({re.escape(SUFFIX)})?")
"""What is added to a name; version 0.2 had no suffix, and moved folders away to `old`."""
MAX_FOLDER_NAME = 100
"""Characters of the name of a folder that is made from a text of the user's."""
MAX_NAME_BYTES = 200
"""Of a name within a scratch name, which file systems allow 255 bytes."""
ANY_SCRATCH = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(SUFFIX)}")
"""Scratch of any file."""
JUST_MADE_SECONDS = 60.0
"""Scratch of this age may be about to be locked."""


def check_path(path: str | Path, what: str) -> Path:
    """A path of the user's that can be looked up and written, as far as its letters go; `what` names it in an error."""
    if not isinstance(path, str | Path):
        raise CrossTaskError(f"{what} must be a path; found {shown(path)}.")
    text = str(path)
    if "\0" in text:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: it holds a zero byte.")
    try:
        parts = [part.encode() for part in text.split("/")]
    except UnicodeEncodeError as error:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: it is not valid utf-8.") from error
    if max(len(part) for part in parts) > MAX_NAME:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: a name in it has more than {MAX_NAME} bytes.")
    if len(text.encode()) > MAX_PATH:
        raise CrossTaskError(f"{what}: {shown(text)} is no path: it has more than {MAX_PATH:,} bytes.")
    return Path(path)


def folder_name(text: str) -> str:
    """A text as the name of a folder, which must not be too long.

    >>> folder_name("joint+tawt"), folder_name("a/b"), len(folder_name("tawt.every=10, " * 20))
    ('joint+tawt', 'a%2Fb', 100)
    """
    name = quote(text, safe=" +=,")
    # `.` and `..` are other folders.
    if name.startswith("."):
        name = name.replace(".", "%2E", 1)
    if len(name) <= MAX_FOLDER_NAME:
        return name
    # Long names that begin alike must still differ.
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: MAX_FOLDER_NAME - len(digest) - 1]}-{digest}"


def check_output_file(path: Path, suffix: str, what: str) -> None:
    """Where `--output` puts a page or a table: a new file, or an older one of its kind; a recipe stays what it is."""
    if check_path(path, "--output").is_dir():
        raise CrossTaskError(f"'{path}' is a folder; name a file for the {what}.")
    if path.exists() and path.suffix != suffix:
        raise CrossTaskError(f"'{path}' exists and is no {suffix} file; nothing was written over. Choose another file.")


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
        if path.exists() and not path.is_file():  # a rename would put a file in the place of /dev/null
            raise CrossTaskError(f"'{path}' is a folder or a device, and nothing is written over it; name a file.")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=_scratch_prefix(path), suffix=SUFFIX)
        try:
            with os.fdopen(handle, "wb") as file:
                _mark_as_live(handle)
                file.write(encoded(text))
                file.flush()
                os.fsync(file.fileno())
            os.chmod(scratch, 0o644)
            rename(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise
        _flush_to_disk(path.parent)


def append_text(path: Path, text: str) -> None:
    """Add to a text file. It is opened for each call, so that a kill leaves all of the text before complete."""
    with explain_write_errors(path), path.open("ab") as file:
        file.write(encoded(text))


def encoded(text: str) -> bytes:
    """A text in UTF-8, with the line breaks that it has.

    Half a character, which an escape in JSON can bring in, has no form in UTF-8; it becomes that escape again, so that
    no file fails for it, and JSON comes back as it was.

    >>> import json
    >>> encoded("a\\ud800"), json.loads(encoded(json.dumps("a\\ud800", ensure_ascii=False))) == "a\\ud800"
    (b'a\\\\ud800', True)
    """
    return text.encode("utf-8", errors="backslashreplace")


class FolderExistsError(CrossTaskError):
    """A folder that was to be created is there already: another process was quicker."""


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A scratch folder to fill; it replaces `path` when all is written, and leaves nothing otherwise."""
    with _scratch_folder(path) as scratch:
        yield scratch
        _finish_scratch(scratch)
        if path.exists():
            # A folder that is not empty cannot be replaced at once: it is moved away first.
            old = _move_away(path)
            try:
                os.replace(scratch, path)
            except BaseException:
                with contextlib.suppress(OSError):  # the new one is there already
                    os.replace(old / "old", path)
                raise
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(scratch, path)
        _flush_to_disk(path.parent)


@contextlib.contextmanager
def create_folder(path: Path) -> Iterator[tuple[Path, FolderLock]]:
    """A scratch folder to fill, locked; it becomes `path`, which must not be there, with its lock still held.

    Of several processes that create the same folder one does, and the others get a `FolderExistsError`.
    """
    with _scratch_folder(path) as scratch:
        lock = lock_folder(scratch)
        try:
            yield scratch, lock
            _finish_scratch(scratch)
            _rename_folder_to_new(scratch, path)
            lock.folder = path
        except BaseException:
            lock.release()
            raise
        _flush_to_disk(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder at once: half of it is never seen under its name."""
    if path.exists():
        with explain_write_errors(path):
            shutil.rmtree(_move_away(path), ignore_errors=True)


def remove_scratch(path: Path) -> None:
    """Remove what a kill left of files and folders that were to become this path, but nothing of a live process."""
    if not path.parent.is_dir():
        return
    prefix = _scratch_prefix(path)
    for scratch in path.parent.iterdir():
        if scratch.name.startswith(prefix) and SCRATCH_ENDING.fullmatch(scratch.name.removeprefix(prefix)):
            _remove_dead(scratch)


def remove_all_scratch(folder: Path) -> None:
    """The same for everything in a folder."""
    if folder.is_dir():
        for scratch in folder.iterdir():
            if ANY_SCRATCH.fullmatch(scratch.name):
                _remove_dead(scratch)


def _remove_dead(scratch: Path) -> None:
    try:
        is_young = time.time() - scratch.stat().st_mtime < JUST_MADE_SECONDS
        is_empty = scratch.stat().st_size == 0
        if scratch.is_dir():
            is_empty = not any(scratch.iterdir())
    except OSError:  # gone by now, or of somebody else
        return
    # Between making and locking there is a moment in which nothing is in it yet.
    if is_locked(scratch) or (is_young and is_empty):
        return
    if scratch.is_dir():
        shutil.rmtree(scratch, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            scratch.unlink()


@contextlib.contextmanager
def _scratch_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path`, removed if something goes wrong, and locked as long as it is filled."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=_scratch_prefix(path), suffix=SUFFIX))
        try:
            with _live_folder(scratch):
                yield scratch
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def _move_away(path: Path) -> Path:
    """Give up a folder's name in one step; returns the scratch folder that it is in now, as `old`."""
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=_scratch_prefix(path), suffix=SUFFIX))
    try:
        os.replace(path, old / "old")
    except BaseException:
        shutil.rmtree(old, ignore_errors=True)
        raise
    return old


@contextlib.contextmanager
def _live_folder(folder: Path) -> Iterator[None]:
    """Lock a scratch folder itself, without a file in it, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folder
        yield
        return
    try:
        _mark_as_live(handle)
        yield
    finally:
        os.close(handle)


def _mark_as_live(handle: int) -> None:
    with contextlib.suppress(OSError):  # without it scratch is only removed by those who hold the folder's lock
        try_lock(handle)


def _finish_scratch(scratch: Path) -> None:
    """Rights and disk: what was written is to be read by all, and to outlive a power cut."""
    for file in scratch.rglob("*"):
        os.chmod(file, 0o755 if file.is_dir() else 0o644)  # some writers make files for the owner alone
        _flush_to_disk(file)
    os.chmod(scratch, 0o755)
    _flush_to_disk(scratch)  # the names of its files


def _rename_folder_to_new(scratch: Path, path: Path) -> None:
    """Rename, unless there is something already: the system refuses to put a folder over one that holds anything."""
    try:
        os.rename(scratch, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR) and os.path.lexists(path):
            raise FolderExistsError(f"'{path}' exists; nothing was written over.") from error
        raise


def _scratch_prefix(path: Path) -> str:
    name = path.name
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}."


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
