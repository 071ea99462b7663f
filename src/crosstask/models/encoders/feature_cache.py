"""Features on disk, kept by content: an input that a frozen encoder has once seen is never computed again."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from crosstask.models.encoder import PreparedInput

PARTS = ("tokens", "pooled")


def cache_folder() -> Path:
    """Where features are kept: `CROSSTASK_CACHE`, or the user's cache folder."""
    base = os.environ.get("CROSSTASK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "crosstask"
    return Path(base).expanduser()


def fingerprint(module: nn.Module, options: Mapping[str, Any]) -> str:
    """A name for an encoder by what it computes: its weights, their names, and its options."""
    digest = hashlib.sha256(repr(sorted(options.items())).encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


class FeatureCache:
    """Features of one encoder.

    Each batch of new inputs becomes one shard, written beside and renamed, so that several processes can share the
    folder and a kill leaves only whole shards.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[bytes, PreparedInput] = {}
        self._read: set[str] = set()

    def get(
        self, inputs: Sequence[Any], form: str, compute: Callable[[list[Any]], list[PreparedInput]]
    ) -> list[PreparedInput]:
        """Features of the inputs; `compute` is called once, for those that no shard holds."""
        self._load_new_shards()
        keys = [_key(item, form) for item in inputs]
        missing = {key: item for key, item in zip(keys, inputs, strict=True) if key not in self._rows}
        if missing:
            new = dict(zip(missing, compute(list(missing.values())), strict=True))
            self._rows.update(new)
            self._write_shard(new)
        return [self._rows[key] for key in keys]

    def find(self, inputs: Sequence[Any] | np.ndarray, form: str) -> list[PreparedInput] | None:
        """Features of the inputs, or None where those of one have to be computed."""
        self._load_new_shards()
        keys = [_key(item, form) for item in inputs]
        return [self._rows[key] for key in keys] if all(key in self._rows for key in keys) else None

    def _load_new_shards(self) -> None:
        for path in sorted(self.folder.glob("*.safetensors")):
            if path.name in self._read:
                continue
            self._read.add(path.name)
            shard = load_file(path)
            keys = [bytes(key) for key in shard["keys"]]
            columns = {part: np.split(shard[part], shard[f"{part}_ends"][:-1]) for part in PARTS}
            for i, key in enumerate(keys):
                self._rows[key] = {part: columns[part][i] for part in PARTS}

    def _write_shard(self, rows: Mapping[bytes, PreparedInput]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shard = {"keys": np.stack([np.frombuffer(key, dtype=np.uint8) for key in rows])}
        for part in PARTS:
            arrays = [row[part] for row in rows.values()]
            shard[part] = np.concatenate(arrays)
            shard[f"{part}_ends"] = np.cumsum([len(array) for array in arrays])
        name = hashlib.sha256(shard["keys"].tobytes()).hexdigest()[:32] + ".safetensors"
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            save_file(shard, Path(scratch) / name)
            (Path(scratch) / name).replace(self.folder / name)
        self._read.add(name)


def _key(item: Any, form: str) -> bytes:
    text = item if isinstance(item, str) else "\x1f".join(item)
    return hashlib.sha256(f"{form}\x1e{text}".encode("utf-8", "surrogatepass")).digest()[:16]
