"""Checkpoints: safetensors and JSON in a folder that is complete or not there. No pickle.

Where ranks hold a part of the model each, each writes its rows to a file of its own (`save_shards`). Any number of
ranks can go on from these: each reads the rows that it holds then.

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
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from typing_extensions import TypedDict

from crosstask.data.readers.streamed import StreamPosition
from crosstask.gradients.optimizer_state import flatten_optimizer, numbered_parameters, restore_optimizer
from crosstask.gradients.sharded import is_sharded, like, row_range, rows_here
from crosstask.storage import DamagedFileError, encoded, explain_damage, new_folder, read_json, remove_folder
from crosstask.training.devices import Devices
from crosstask.training.selection import SelectionState

STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
BLOCK_BYTES = 2**20
SHARD_PREFIX = "rows-"
"""Of the file in which a rank keeps its rows."""
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""By their names in the header of a file."""
NUM_KEPT = 2
"""The older one is for the case that the newer one is damaged."""


class ShardsEntry(TypedDict):
    """How tensors are divided: into so many files, and their shapes by "group/name"."""

    count: int
    shapes: dict[str, list[int]]


class CheckpointState(TypedDict):
    """`state.json`: the plain values of a checkpoint.

    - `updates`: of the phase so far; none between two phases;
    - `history_digest`: of the first `history_rows` rows of the record;
    - `recipe_digest`: of what is trained. Version 0.2 wrote neither digest, nor `skipped_updates`;
    - `shards`: the tensors of which each rank has written its rows, if there are any;
    - `streams`: by task that is streamed, where the window begins with which training goes on.
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
    shards: NotRequired[ShardsEntry]
    streams: NotRequired[dict[str, StreamPosition]]


class FileEntry(TypedDict):
    """A file in a manifest."""

    size: int
    crc32: int


class Manifest(TypedDict):
    """`manifest.json`: every other file of a checkpoint, by name."""

    files: dict[str, FileEntry]


@dataclass(frozen=True)
class StoredShards:
    """A tensor whose rows are in the files of several ranks, from the first rank to the last."""

    key: str
    files: Sequence[Path]
    shape: torch.Size
    dtype: torch.dtype

    def rows(self, start: int, end: int) -> Tensor:
        """These rows, read from the files that have some of them."""
        pieces: list[Tensor] = []
        first = 0  # row of the file
        for path in self.files:
            with safe_open(path, framework="pt") as file:
                part = file.get_slice(self.key)
                count = part.get_shape()[0]
                if first < end and start < first + count:
                    pieces.append(part[max(start - first, 0) : min(end - first, count)])
            first += count
        if not pieces:
            return torch.zeros(0, *self.shape[1:], dtype=self.dtype)
        return torch.cat(pieces)


Stored = Tensor | StoredShards
"""A tensor of a checkpoint, in memory or in the files."""


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors (model, optimizer, best, ...) and plain values."""

    tensors: Mapping[str, Mapping[str, Stored]]
    state: CheckpointState


def loaded(stored: Stored, expected: Tensor | None = None) -> Tensor:
    """A tensor of a checkpoint, divided among ranks as another is; complete where that is, or there is none."""
    if expected is None or not is_sharded(expected):
        return stored.rows(0, stored.shape[0]) if isinstance(stored, StoredShards) else stored
    start, end = row_range(expected)
    rows = stored.rows(start, end) if isinstance(stored, StoredShards) else stored[start:end].clone()
    return like(expected, rows.to(expected.device))


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The checkpoint to go on from, and a sentence about each newer one that is damaged."""

    checkpoint: Checkpoint
    damages: Sequence[str]


def save(folder: Path, number: int, checkpoint: Checkpoint) -> None:
    """Write checkpoint `number`, and only then remove those before the one before it."""
    with new_folder(folder / f"{number:09d}") as scratch:
        _write(scratch, checkpoint)
        _write_manifest(scratch)
    for old in _folders(folder)[:-NUM_KEPT]:
        remove_folder(old)


def save_shards(folder: Path, number: int, checkpoint: Checkpoint, devices: Devices) -> None:
    """The same where ranks hold parts of tensors: each writes its rows, the main one everything else. All must call."""
    tensors: dict[str, dict[str, Stored]] = {}
    own_rows: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for group, by_name in checkpoint.tensors.items():
        tensors[group] = {}
        for name, tensor in by_name.items():
            assert isinstance(tensor, Tensor)
            if is_sharded(tensor):
                own_rows[f"{group}/{name}"] = rows_here(tensor).cpu().contiguous()
                shapes[f"{group}/{name}"] = list(tensor.shape)
            else:
                tensors[group][name] = tensor
    own_file = _shard_file(devices.rank)
    if not devices.is_main:
        save_file(own_rows, Path(devices.text_of_main("")) / own_file)
        devices.wait()  # the main one waits until all have written
        return
    state: CheckpointState = {**checkpoint.state, "shards": {"count": devices.num_ranks, "shapes": shapes}}
    with new_folder(folder / f"{number:09d}") as scratch:
        devices.text_of_main(str(scratch.resolve()))
        save_file(own_rows, scratch / own_file)
        _write(scratch, Checkpoint(tensors, state))
        devices.wait()
        _write_manifest(scratch)
    for old in _folders(folder)[:-NUM_KEPT]:
        remove_folder(old)


def _shard_file(rank: int) -> str:
    return f"{SHARD_PREFIX}{rank:05d}.safetensors"


def _write(scratch: Path, checkpoint: Checkpoint) -> None:
    for group, tensors in checkpoint.tensors.items():
        plain: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            plain[name] = loaded(tensor).detach().cpu().contiguous()
        save_file(plain, scratch / f"{group}.safetensors")
    (scratch / STATE_FILE).write_bytes(encoded(json.dumps(checkpoint.state, ensure_ascii=False)))


def _write_manifest(scratch: Path) -> None:
    files = {path.name: _file_entry(path) for path in sorted(scratch.iterdir())}
    (scratch / MANIFEST_FILE).write_bytes(encoded(json.dumps(Manifest(files=files), indent=1)))


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
    tensors: dict[str, dict[str, Stored]] = {}
    for file in sorted(path.glob("*.safetensors")):
        _check_plain(file)
        if file.name.startswith(SHARD_PREFIX):
            continue
        with explain_damage(f"'{file}'"):
            tensors[file.stem] = dict(load_file(file))
    for key, shards in _stored_shards(path, state).items():
        group, _, name = key.partition("/")
        tensors.setdefault(group, {})[name] = shards
    return Checkpoint(tensors, state)


def _stored_shards(path: Path, state: CheckpointState) -> dict[str, StoredShards]:
    """The tensors that ranks have written together, by "group/name"."""
    entry = state.get("shards")
    if entry is None:
        return {}
    files = [path / _shard_file(rank) for rank in range(entry["count"])]
    counts: dict[str, int] = dict.fromkeys(entry["shapes"], 0)
    dtypes: dict[str, torch.dtype] = {}
    for file in files:
        _check_plain(file)
        with explain_damage(f"'{file}'"), safe_open(file, framework="pt") as opened:
            for key in opened.keys():  # noqa: SIM118 - no mapping
                shape = opened.get_slice(key).get_shape()
                if list(shape[1:]) != entry["shapes"][key][1:]:
                    raise DamagedFileError(f"'{key}' has another shape than in {STATE_FILE}")
                counts[key] += shape[0]
                dtypes[key] = DTYPES[opened.get_slice(key).get_dtype()]
    shards: dict[str, StoredShards] = {}
    for key, shape in entry["shapes"].items():
        if not shape or counts[key] != shape[0]:
            raise DamagedFileError(f"'{path}' lacks rows of '{key}'")
        shards[key] = StoredShards(key, files, torch.Size(shape), dtypes[key])
    return shards


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


def restore_optimizers(optimizers: Sequence[torch.optim.Optimizer | None], tensors: Mapping[str, Stored]) -> None:
    """Put back what `flatten_optimizers` returned."""
    by_optimizer = split_by_optimizer(tensors)
    for index, optimizer in enumerate(optimizers):
        if optimizer is not None and index in by_optimizer:
            load_optimizer(optimizer, by_optimizer[index])


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Stored]) -> None:
    """Put back what `flatten_optimizer` returned, divided among ranks as the parameters are."""
    parameters = numbered_parameters(optimizer)
    state: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        expected = parameters[int(key.partition("/")[0])] if tensor.shape else None
        state[key] = loaded(tensor, expected)
    restore_optimizer(optimizer, state)


def split_by_optimizer(tensors: Mapping[str, Stored]) -> dict[int, dict[str, Stored]]:
    """What `flatten_optimizers` returned, by the optimizer's index."""
    by_optimizer: dict[int, dict[str, Stored]] = {}
    for key, tensor in tensors.items():
        number, inner_key = key.split(":", 1)
        by_optimizer.setdefault(int(number), {})[inner_key] = tensor
    return by_optimizer
