"""Checkpoints: safetensors and JSON in a folder that is complete or not there. No pickle.

The two last ones are kept. Each has a manifest of its files with sizes and checksums, written last, so that damage
is noticed before anything is restored, and the older one can take over. Those of version 0.2 have no manifest;
they are checked by what they hold alone.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typing_extensions import TypedDict

from crosstask.gradients.optimizer_state import flatten_optimizer, restore_optimizer
from crosstask.storage import DamagedFileError, encoded, explain_damage, new_folder, read_json, remove_folder
from crosstask.training.selection import SelectionState

STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
BLOCK_BYTES = 2**20
NUM_KEPT = 2
"""The older one is for the case that the newer one is damaged."""


class CheckpointState(TypedDict):
    """`state.json`: the plain values of a checkpoint.

    - `updates`: of the phase so far; none between two phases;
    - `history_digest`: of the first `history_rows` rows of the record;
    - `recipe_digest`: of what is trained. Version 0.2 wrote neither digest, nor `skipped_updates`.
    """

    number: int
    phase: int
    updates: int | None
    weighting: dict[str, Any]
    selection: SelectionState
    set_aside: list[str]
    failures: dict[str, int]
    recent: dict[str, list[float]]
    history_rows: int
    skipped_updates: NotRequired[int]
    history_digest: NotRequired[str]
    recipe_digest: NotRequired[str]


class FileEntry(TypedDict):
    """A file in a manifest."""

    size: int
    crc32: int


class Manifest(TypedDict):
    """`manifest.json`: every other file of a checkpoint, by name."""

    files: dict[str, FileEntry]


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors (model, optimizer, best, ...) and plain values."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: CheckpointState


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The checkpoint to go on from, and a sentence about each newer one that is damaged."""

    checkpoint: Checkpoint
    damages: Sequence[str]


def save(folder: Path, number: int, checkpoint: Checkpoint) -> None:
    """Write checkpoint `number`, and only then remove those before the one before it."""
    with new_folder(folder / f"{number:09d}") as scratch:
        for group, tensors in checkpoint.tensors.items():
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            save_file(plain, scratch / f"{group}.safetensors")
        (scratch / STATE_FILE).write_bytes(encoded(json.dumps(checkpoint.state, ensure_ascii=False)))
        files = {path.name: _file_entry(path) for path in sorted(scratch.iterdir())}
        (scratch / MANIFEST_FILE).write_bytes(encoded(json.dumps(Manifest(files=files), indent=1)))
    for old in _folders(folder)[:-NUM_KEPT]:
        remove_folder(old)


def load_latest(folder: Path, check: Callable[[Checkpoint], None]) -> LoadedCheckpoint | None:
    """The last checkpoint that is whole; None where there is none at all.

    Args:
        folder: of all checkpoints.
        check: raises a `DamagedFileError` where a checkpoint does not fit the run.
    """
    folders = _folders(folder)
    if not folders:
        return None
    damages: list[str] = []
    for path in reversed(folders):
        try:
            checkpoint = _load(path)
            check(checkpoint)
        except DamagedFileError as error:
            damages.append(f"checkpoint {path.name} is damaged ({str(error).rstrip('.')})")
        else:
            return LoadedCheckpoint(checkpoint, damages)
    raise DamagedFileError(
        f"The run cannot go on: {', and '.join(damages)}. Start anew with another --output, or remove the folder "
        f"'{folder}' and train with --resume, which begins this run again."
    )


def _load(path: Path) -> Checkpoint:
    """Read a checkpoint whose files are those of its manifest."""
    if (path / MANIFEST_FILE).exists():
        _check_files(path, read_json(path / MANIFEST_FILE, Manifest))
    state = read_json(path / STATE_FILE, CheckpointState)
    if "recipe_digest" in state and not (path / MANIFEST_FILE).exists():
        raise DamagedFileError(f"'{path / MANIFEST_FILE}' is missing")
    if state["number"] != int(path.name):
        raise DamagedFileError(f"'{path / STATE_FILE}' is that of another checkpoint")
    tensors: dict[str, Mapping[str, Tensor]] = {}
    for file in sorted(path.glob("*.safetensors")):
        _check_plain(file)
        with explain_damage(f"'{file}'"):
            tensors[file.stem] = load_file(file)
    return Checkpoint(tensors, state)


def _check_files(path: Path, manifest: Manifest) -> None:
    names = {file.name for file in path.iterdir()} - {MANIFEST_FILE}
    for name in sorted(names ^ manifest["files"].keys()):
        problem = "is missing" if name in manifest["files"] else "does not belong there"
        raise DamagedFileError(f"'{path / name}' {problem}")
    for name, entry in manifest["files"].items():
        _check_plain(path / name)
        try:
            if _file_entry(path / name) != entry:
                raise DamagedFileError(f"'{path / name}' does not hold what was written")
        except OSError as error:
            raise DamagedFileError(f"'{path / name}' cannot be read: {error.strerror}") from error


def _check_plain(path: Path) -> None:
    """A pipe or a device could have no end."""
    if not path.is_file():
        raise DamagedFileError(f"'{path}' is no plain file")


def _file_entry(path: Path) -> FileEntry:
    """CRC-32 is there to notice damage, not malice, and takes a third of the time of SHA-256."""
    size, checksum = 0, 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return FileEntry(size=size, crc32=checksum)


def _folders(folder: Path) -> list[Path]:
    """Of all checkpoints by number, which has leading zeros."""
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdecimal() and path.is_dir())


def flatten_optimizers(optimizers: Sequence[torch.optim.Optimizer | None]) -> dict[str, Tensor]:
    """The tensors of several optimizers by "index of optimizer:key of `flatten_optimizer`"."""
    tensors: dict[str, Tensor] = {}
    for index, optimizer in enumerate(optimizers):
        if optimizer is not None:
            tensors.update({f"{index}:{key}": tensor for key, tensor in flatten_optimizer(optimizer).items()})
    return tensors


def restore_optimizers(optimizers: Sequence[torch.optim.Optimizer | None], tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizers` returned."""
    by_optimizer = split_by_optimizer(tensors)
    for index, optimizer in enumerate(optimizers):
        if optimizer is not None and index in by_optimizer:
            restore_optimizer(optimizer, by_optimizer[index])


def split_by_optimizer(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """What `flatten_optimizers` returned, by the optimizer's index."""
    by_optimizer: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, inner_key = key.split(":", 1)
        by_optimizer.setdefault(int(number), {})[inner_key] = tensor
    return by_optimizer
