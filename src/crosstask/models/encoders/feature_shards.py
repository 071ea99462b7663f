"""Shards of features: files of safetensors that are mapped into memory, checked once per process and state of the file.

Nobody writes into a shard: it is written beside and renamed, and removed whole. One that has changed all the same is
noticed before its features are handed out again.
"""

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from crosstask.models.arrays import PreparedInput, column
from crosstask.models.encoders.cache_folder import FORMAT, SHARD, mark_as_used, note_once, read_header, shard_paths
from crosstask.storage import DamagedFileError, discard, map_checked, write_checked
from crosstask.storage.checked import remove_stale_scratch

ARRAYS = ("tokens", "pooled")
"""The arrays of an example's features, as `FrozenEncoder.prepare` returns them."""
KEY_BYTES = 16
DTYPES = {"F32": np.float32, "I64": np.int64, "U8": np.uint8}
"""Types of the arrays of a shard, as safetensors names them."""
MAX_OPEN = 8
"""Folders whose shards a process keeps open."""

FileState = tuple[int, int, int, int]
InputName = str | tuple[str, ...]
"""A text, the two texts of a pair, or the words of a sentence."""
Rows = dict[bytes, PreparedInput]
"""Features by the key of their input, a digest of form and content."""


class Shards:
    """The shards of one folder, and their features.

    Args:
        folder: of the shards.
        width: size of the vectors; None where it is not known.
    """

    def __init__(self, folder: Path, width: int | None) -> None:
        self.folder = folder
        self.width = width
        self.lock = threading.RLock()  # runs of one process may share it
        self.rows: Rows = {}
        self.by_input: dict[str, dict[InputName, PreparedInput]] = {}  # by form; finds an input without its digest
        self._states: dict[str, FileState | None] = {}
        self._in_memory: set[str] = set()  # shards that were written, and not yet mapped

    def __deepcopy__(self, memo: dict[int, object]) -> "Shards":
        return self  # of the folder, whatever model reads it

    def refresh(self) -> None:
        """Read new shards; begin anew where one that was read is gone or has changed."""
        paths = {path.name: path for path in shard_paths(self.folder)}
        states = {name: _state(path) for name, path in paths.items()}
        if any(states.get(name) != state for name, state in self._states.items()):
            self.rows, self.by_input, self._states, self._in_memory = {}, {}, {}, set()
        problems: list[str] = []
        for name, path in paths.items():
            if name in self._states and name not in self._in_memory:
                continue
            self._in_memory.discard(name)
            try:
                self.rows.update(_rows_of(map_checked(path), self.width))
                self.by_input = {}  # which may lead to what `add` has left in memory
                self._states[name] = states[name]
            except FileNotFoundError:
                pass  # another process has cleared the cache
            except OSError as error:
                self._states[name] = states[name]
                problems.append(f"'{path}' cannot be read ({error.strerror})")
            except DamagedFileError as error:
                discard(path)
                problems.append(str(error).rstrip("."))
        mark_as_used(self.folder)
        if problems:
            count = "One file" if len(problems) == 1 else f"{len(problems):,} files"
            note_once(f"{count} of the feature cache cannot be used; those features are computed again: {problems[0]}.")

    def add(self, rows: Rows, encoder: str) -> None:
        """Write a shard; the features are there even if that fails, with an `OSError`."""
        self.rows.update(rows)
        # Text that no file could hold would end as an error of the writer.
        name = encoder.encode("utf-8", "replace").decode()
        content = save(_arrays_of(rows), {"format": FORMAT, "encoder": name})
        path = write_checked(self.folder, hashlib.sha256(b"".join(rows)).hexdigest()[:KEY_BYTES], SHARD, content)
        self._states[path.name] = _state(path)
        self._in_memory.add(path.name)


_OPEN: dict[tuple[Path, int | None], Shards] = {}  # the folder that was asked for last stands last


def open_shards(folder: Path, width: int | None) -> Shards:
    """The shards of a folder, with what this process has read of them before."""
    remove_stale_scratch(folder)
    shards = _OPEN.pop((folder, width), None) or Shards(folder, width)
    _OPEN[folder, width] = shards
    while len(_OPEN) > MAX_OPEN:
        del _OPEN[next(iter(_OPEN))]
    return shards


def _state(path: Path) -> FileState | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _arrays_of(rows: Mapping[bytes, PreparedInput]) -> dict[str, np.ndarray]:
    """A shard: the arrays of all rows end to end, and where each row ends."""
    shard = {"keys": np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), KEY_BYTES)}
    for name in ARRAYS:
        arrays = column(rows.values(), name)
        shard[name] = np.concatenate(arrays)
        shard[f"{name}_ends"] = np.cumsum([len(array) for array in arrays], dtype=np.int64)
    return shard


def _arrays_in(content: memoryview) -> dict[str, np.ndarray]:
    """The arrays of a file of safetensors, as views: copies of features would take as long as reading them."""
    shard: dict[str, np.ndarray] = {}
    try:
        header, data_start = read_header(content)
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                data = content[data_start + start : data_start + end]
                shard[name] = np.frombuffer(data, DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except Exception as error:  # the checksum is right, so somebody has made these bytes, and they may say anything
        raise DamagedFileError("a shard of features is damaged: its header does not fit its content.") from error
    return shard


def _rows_of(content: memoryview, width: int | None) -> Rows:
    """The rows of a shard, by key."""
    shard = _arrays_in(content)
    keys = shard.get("keys")
    if keys is None or keys.dtype != np.uint8 or keys.shape[1:] != (KEY_BYTES,):
        raise DamagedFileError("a shard of features is damaged: it has no keys.")
    columns: dict[str, list[np.ndarray]] = {}
    for name in ARRAYS:
        vectors, ends = shard.get(name), shard.get(f"{name}_ends")
        if vectors is None or ends is None or not _fit(vectors, ends, len(keys), width):
            raise DamagedFileError(f"a shard of features is damaged: `{name}` is not as it was written.")
        width = vectors.shape[1]
        starts = [0, *ends[:-1].tolist()]
        columns[name] = [vectors[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]
    names = keys.tobytes()
    rows: Rows = {}
    for i in range(len(keys)):
        rows[names[KEY_BYTES * i : KEY_BYTES * (i + 1)]] = {name: arrays[i] for name, arrays in columns.items()}
    return rows


def _fit(vectors: np.ndarray, ends: np.ndarray, count: int, width: int | None) -> bool:
    """Whether vectors of this width, [positions, width], can be cut into as many rows as there are keys."""
    if vectors.dtype != np.float32 or vectors.ndim != 2 or (width is not None and vectors.shape[1] != width):
        return False
    if ends.dtype != np.int64 or ends.shape != (count,) or count == 0:
        return False
    return bool((np.diff(ends, prepend=0) >= 0).all()) and int(ends[-1]) == len(vectors)
