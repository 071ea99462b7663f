"""Features of frozen encoders on disk, by content: an input that an encoder has once seen is never computed again.

A folder per encoder, named by the fingerprint of its weights, holds shards of features. Loading an encoder takes longer
than reading its features, so an index beside them maps what identifies the encoder's files to that folder.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from crosstask.models.arrays import PreparedInput, column
from crosstask.models.encoder import Config, Inputs
from crosstask.storage import write_text

ARRAYS = ("tokens", "pooled")
"""The arrays of an example's features, as `FrozenEncoder.prepare` returns them."""


def cache_folder() -> Path:
    """The folder of all caches: `CROSSTASK_CACHE`, or one in the user's cache folder."""
    base = os.environ.get("CROSSTASK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "crosstask"
    return Path(base).expanduser()


def fingerprint(module: nn.Module, options: Config) -> str:
    """A name for an encoder by what it computes: its weights, their names, and its options."""
    digest = hashlib.sha256(repr(sorted(options.items())).encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


class FeatureCache:
    """Features of one encoder.

    Each batch of new inputs becomes one shard, written beside and renamed, so that several processes can share the
    folder and a kill leaves complete shards only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[bytes, PreparedInput] = {}
        self._loaded_shards: set[str] = set()

    @classmethod
    def of_encoder(cls, encoder: nn.Module, options: Config) -> "FeatureCache":
        """The features of an encoder that is loaded."""
        return cls(cache_folder() / "features" / fingerprint(encoder, options))

    @classmethod
    def of_identity(cls, identity: str) -> "FeatureCache | None":
        """The features of an encoder that is not loaded; None where the index does not have it."""
        entry = _index_entry(identity)
        if not entry.is_file():
            return None
        return cls(cache_folder() / "features" / json.loads(entry.read_text(encoding="utf-8"))["features"])

    def add_to_index(self, identity: str) -> None:
        """Let `of_identity` return these features for an encoder of this identity."""
        write_text(_index_entry(identity), json.dumps({"features": self.folder.name}) + "\n")

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
        for path in sorted(self.folder.glob("*.safetensors")):
            if path.name in self._loaded_shards:
                continue
            self._loaded_shards.add(path.name)
            shard = load_file(path)
            tokens = np.split(shard["tokens"], shard["tokens_ends"][:-1])
            pooled = np.split(shard["pooled"], shard["pooled_ends"][:-1])
            for i, key in enumerate(shard["keys"]):
                self._rows[bytes(key)] = {"tokens": tokens[i], "pooled": pooled[i]}

    def _write_shard(self, rows: Mapping[bytes, PreparedInput]) -> None:
        """Arrays of all rows end to end, and where each row ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        shard = {"keys": np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)}
        for name in ARRAYS:
            arrays = column(rows.values(), name)
            shard[name] = np.concatenate(arrays)
            shard[f"{name}_ends"] = np.cumsum([len(array) for array in arrays])
        file_name = hashlib.sha256(shard["keys"].tobytes()).hexdigest()[:32] + ".safetensors"
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            save_file(shard, Path(scratch) / file_name)
            (Path(scratch) / file_name).replace(self.folder / file_name)
        self._loaded_shards.add(file_name)


def _index_entry(identity: str) -> Path:
    return cache_folder() / "encoders" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def _keys(inputs: Inputs, form: str) -> list[bytes]:
    """Inputs are found by a digest of their form and content."""
    keys: list[bytes] = []
    for item in inputs:
        text = item if isinstance(item, str) else "\x1f".join(item)
        keys.append(hashlib.sha256(f"{form}\x1e{text}".encode("utf-8", "surrogatepass")).digest()[:16])
    return keys
