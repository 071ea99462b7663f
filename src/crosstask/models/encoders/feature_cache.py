"""Features of frozen encoders on disk, by content: an input that an encoder has once seen is never computed again.

A folder per encoder, named by the fingerprint of what it computes, holds shards of features. Loading an encoder takes
longer than reading its features, so an index beside them maps what identifies the encoder's files to that folder.

The cache only saves time. A shard that is not as it was written is removed and its features are computed again; where
nothing can be written, the features are computed every time.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput, take
from crosstask.models.encoder import Config, Encoder, Inputs
from crosstask.models.encoders.cache_folder import cache_folder, feature_folder, index_entry, note_once
from crosstask.models.encoders.feature_shards import KEY_BYTES, InputName, open_shards
from crosstask.storage import DamagedFileError, read_json, write_text
from crosstask.storage.checked import make_private_folder

__all__ = ["FeatureCache", "cache_folder", "fingerprint"]

MAX_INPUTS = 2**18
"""Inputs of a form that are found without a digest, at most."""


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
        self.encoder = encoder
        self.shards = open_shards(folder, width)

    @classmethod
    def of_encoder(cls, encoder: Encoder, options: Config) -> "FeatureCache":
        """The features of an encoder that is loaded."""
        fingerprints, key = encoder.fingerprints(), repr(sorted(options.items()))
        if key not in fingerprints:
            fingerprints[key] = fingerprint(encoder, options)
        return cls(feature_folder(fingerprints[key]), encoder.width, encoder.origin or encoder.name)

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

    def get(self, inputs: Inputs, form: str, compute: Callable[[Inputs], list[PreparedInput]]) -> list[PreparedInput]:
        """Features of the inputs; `compute` is called once, for those that no shard holds."""
        with self.shards.lock:
            self.shards.refresh()
            names, missing = self._look_up(inputs, form)
            if missing:
                computed = dict(zip(missing, compute(list(missing.values())), strict=True))
                try:
                    self.shards.add(computed, self.encoder)
                except OSError as error:
                    _note_not_kept(self.folder, error)
                names, _ = self._look_up(inputs, form)
            return take(self.shards.by_input[form], names)

    def find(self, inputs: Inputs, form: str) -> list[PreparedInput] | None:
        """Features of the inputs, or None where those of one have to be computed."""
        with self.shards.lock:
            self.shards.refresh()
            names, missing = self._look_up(inputs, form)
            if missing:
                return None
            return take(self.shards.by_input[form], names)

    def _look_up(self, inputs: Inputs, form: str) -> tuple[list[InputName], dict[bytes, Any]]:
        """Names of the inputs in `by_input`, with those that can be there added; and inputs without features by key."""
        by_input = self.shards.by_input.setdefault(form, {})
        if len(by_input) > MAX_INPUTS:
            by_input.clear()
        names: list[InputName] = []
        new_inputs: dict[InputName, Any] = {}
        for item in inputs:
            name = item if isinstance(item, str) else tuple(item)
            names.append(name)
            if name not in by_input:
                new_inputs[name] = item
        missing: dict[bytes, Any] = {}
        for (name, item), key in zip(new_inputs.items(), _keys(new_inputs, form), strict=True):
            row = self.shards.rows.get(key)
            if row is None:
                missing[key] = item
            else:
                by_input[name] = row
        return names, missing


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


def _keys(inputs: Iterable[InputName], form: str) -> list[bytes]:
    """Inputs are found by a digest of their form and content."""
    keys: list[bytes] = []
    for item in inputs:
        if isinstance(item, str):
            content = f"{form} {len(item)}\n{item}"
        else:  # with the lengths of all texts, so that no text can look like two
            content = f"{form} {' '.join(str(len(text)) for text in item)}\n{''.join(item)}"
        keys.append(hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES])
    return keys
