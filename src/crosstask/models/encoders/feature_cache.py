"""Features of frozen encoders on disk, by content: an input that an encoder has once seen is never computed again.

A folder per encoder, named by the fingerprint of what it computes, holds shards of features. Loading an encoder takes
longer than reading its features, so an index beside them maps what identifies the encoder's files to that folder.

The cache only saves time. A shard that is not as it was written is removed and its features are computed again; where
nothing can be written, the features are computed every time.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput, column
from crosstask.models.encoder import Config, Encoder, Inputs
from crosstask.models.encoders.cache_folder import (
    FORMAT,
    SHARD,
    cache_folder,
    feature_folder,
    index_entry,
    mark_as_used,
    note_once,
    read_header,
    shard_paths,
)
from crosstask.storage import DamagedFileError, discard, read_checked, read_json, write_checked, write_text
from crosstask.storage.checked import make_private_folder, remove_stale_scratch

__all__ = ["FeatureCache", "cache_folder", "fingerprint"]

ARRAYS = ("tokens", "pooled")
"""The arrays of an example's features, as `FrozenEncoder.prepare` returns them."""
KEY_BYTES = 16
DTYPES = {"F32": np.float32, "I64": np.int64, "U8": np.uint8}
"""Types of the arrays of a shard, as safetensors names them."""


def fingerprint(module: nn.Module, options: Config, tensors: Mapping[str, Tensor] | None = None) -> str:
    """A name for an encoder by what it computes: its weights, their names, its options, and how it reads inputs.

    Args:
        module: the encoder.
        options: those that play a part.
        tensors: the weights that play a part, by name; all when left out.
    """
    digest = hashlib.sha256(repr(sorted(options.items())).encode())
    if isinstance(module, Encoder):
        digest.update(module.reading_identity().encode("utf-8", "surrogatepass"))
    for name, tensor in sorted((tensors or module.state_dict()).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


class FeatureCache:
    """Features of one encoder.

    Each batch of new inputs becomes one shard, written beside and renamed, so that several processes can share the
    folder and a kill leaves complete shards only.

    Args:
        folder: of the shards.
        width: size of the encoder's vectors; None where it is not known.
        encoder: what the user calls the encoder, for `crosstask cache`.
    """

    def __init__(self, folder: Path, width: int | None = None, encoder: str = "") -> None:
        self.folder = folder
        self.width = width
        self.encoder = encoder
        self._rows: dict[bytes, PreparedInput] = {}
        self._loaded_shards: set[str] = set()
        remove_stale_scratch(folder)

    @classmethod
    def of_encoder(cls, encoder: Encoder, options: Config) -> "FeatureCache":
        """The features of an encoder that is loaded."""
        return cls(feature_folder(fingerprint(encoder, options)), encoder.width, encoder.origin or encoder.name)

    @classmethod
    def of_identity(cls, identity: str) -> "FeatureCache | None":
        """The features of an encoder that is not loaded; None where the index does not have it."""
        try:
            entry = read_json(index_entry(identity), dict[str, str])
        except DamagedFileError:  # or there is none; `add_to_index` writes it again
            return None
        name = entry.get("features", "")
        # Only the entry that was written for this identity leads to a folder, and to none outside of the cache.
        if entry != _entry(identity, name):
            return None
        return cls(feature_folder(name))

    def add_to_index(self, identity: str) -> None:
        """Let `of_identity` return these features for an encoder of this identity."""
        path = index_entry(identity)
        try:
            make_private_folder(path.parent)
            write_text(path, json.dumps(_entry(identity, self.folder.name)) + "\n")
        except (OSError, CrossTaskError) as error:
            _note_not_kept(path.parent, error)

    def get(
        self, inputs: Sequence[str | Sequence[str]], form: str, compute: Callable[[Inputs], list[PreparedInput]]
    ) -> list[PreparedInput]:
        """Features of the inputs; `compute` is called once, for those that no shard holds."""
        self._load_new_shards()
        keys = _keys(inputs, form)
        missing = {key: item for key, item in zip(keys, inputs, strict=True) if key not in self._rows}
        if missing:
            computed = dict(zip(missing, compute(list(missing.values())), strict=True))
            self._rows.update(computed)
            self._write_shard(computed)
        return [self._rows[key] for key in keys]

    def find(self, inputs: Inputs, form: str) -> list[PreparedInput] | None:
        """Features of the inputs, or None where those of one have to be computed."""
        self._load_new_shards()
        keys = _keys(inputs, form)
        if not self._rows.keys() >= set(keys):
            return None
        return [self._rows[key] for key in keys]

    def _load_new_shards(self) -> None:
        problems: list[str] = []
        for path in shard_paths(self.folder):
            if path.name in self._loaded_shards:
                continue
            self._loaded_shards.add(path.name)
            try:
                self._rows.update(_rows_of(read_checked(path), self.width))
            except FileNotFoundError:
                pass  # another process has cleared the cache
            except OSError as error:
                problems.append(f"'{path}' cannot be read ({error.strerror})")
            except DamagedFileError as error:
                discard(path)
                problems.append(str(error).rstrip("."))
        mark_as_used(self.folder)
        if problems:
            count = "One file" if len(problems) == 1 else f"{len(problems):,} files"
            note_once(f"{count} of the feature cache cannot be used; those features are computed again: {problems[0]}.")

    def _write_shard(self, rows: Mapping[bytes, PreparedInput]) -> None:
        keys = b"".join(rows)
        # Text that no file could hold would end as an error of the writer.
        encoder = self.encoder.encode("utf-8", "replace").decode()
        content = save(_arrays_of(rows), {"format": FORMAT, "encoder": encoder})
        try:
            path = write_checked(self.folder, hashlib.sha256(keys).hexdigest()[:KEY_BYTES], SHARD, content)
        except OSError as error:
            _note_not_kept(self.folder, error)
        else:
            self._loaded_shards.add(path.name)


def _arrays_of(rows: Mapping[bytes, PreparedInput]) -> dict[str, np.ndarray]:
    """A shard: the arrays of all rows end to end, and where each row ends."""
    shard = {"keys": np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), KEY_BYTES)}
    for name in ARRAYS:
        arrays = column(rows.values(), name)
        shard[name] = np.concatenate(arrays)
        shard[f"{name}_ends"] = np.cumsum([len(array) for array in arrays], dtype=np.int64)
    return shard


def _arrays_in(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of a file of safetensors, as views: copies of features would take as long as reading them."""
    shard: dict[str, np.ndarray] = {}
    try:
        header, data_start = read_header(content)
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                data = memoryview(content)[data_start + start : data_start + end]
                shard[name] = np.frombuffer(data, DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except Exception as error:  # the checksum is right, so somebody has made these bytes, and they may say anything
        raise DamagedFileError("a shard of features is damaged: its header does not fit its content.") from error
    return shard


def _rows_of(content: bytes, width: int | None) -> dict[bytes, PreparedInput]:
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
    rows: dict[bytes, PreparedInput] = {}
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


def _entry(identity: str, name: str) -> dict[str, str]:
    """An entry of the index; the check shows that name and identity belong together."""
    return {"features": name, "check": hashlib.sha256(f"{name} {identity}".encode()).hexdigest()}


def _note_not_kept(folder: Path, error: Exception) -> None:
    reason = str(error).rstrip(".")
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = f"'{folder}' cannot be made, as something on the way to it is no folder"
    elif isinstance(error, OSError):
        reason = f"'{folder}' cannot be written ({error.strerror})"
    note_once(f"Features are not kept on disk, so that the next run computes them again: {reason}.")


def _keys(inputs: Inputs, form: str) -> list[bytes]:
    """Inputs are found by a digest of their form and content."""
    keys: list[bytes] = []
    for item in inputs:
        if isinstance(item, str):
            content = f"{form} {len(item)}\n{item}"
        else:  # with the lengths of all texts, so that no text can look like two
            content = f"{form} {' '.join(str(len(text)) for text in item)}\n{''.join(item)}"
        keys.append(hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES])
    return keys
