"""Checkpoints: safetensors and JSON in a folder that is complete or not there. No pickle."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from crosstask.gradients.optimizer_state import flatten_optimizer, restore_optimizer
from crosstask.storage import new_folder

STATE_FILE = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors (model, optimizer, best, ...) and plain values."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def save(folder: Path, number: int, checkpoint: Checkpoint) -> None:
    """Write checkpoint `number`, and only then remove those before it."""
    with new_folder(folder / f"{number:09d}") as scratch:
        for group, tensors in checkpoint.tensors.items():
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            save_file(plain, scratch / f"{group}.safetensors")
        (scratch / STATE_FILE).write_text(json.dumps(checkpoint.state, ensure_ascii=False), encoding="utf-8")
    for old in _complete_checkpoints(folder)[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def load_latest(folder: Path) -> Checkpoint | None:
    """The last complete checkpoint, or None."""
    complete = _complete_checkpoints(folder)
    if not complete:
        return None
    latest = complete[-1]
    tensors = {path.stem: load_file(path) for path in sorted(latest.glob("*.safetensors"))}
    return Checkpoint(tensors, json.loads((latest / STATE_FILE).read_text(encoding="utf-8")))


def _complete_checkpoints(folder: Path) -> list[Path]:
    """By number, which has leading zeros."""
    return sorted(path for path in folder.glob("[0-9]*") if (path / STATE_FILE).is_file())


def flatten_optimizers(optimizers: Sequence[torch.optim.Optimizer | None]) -> dict[str, Tensor]:
    """The tensors of several optimizers by "index of optimizer:key of `flatten_optimizer`"."""
    tensors: dict[str, Tensor] = {}
    for index, optimizer in enumerate(optimizers):
        if optimizer is not None:
            tensors.update({f"{index}:{key}": tensor for key, tensor in flatten_optimizer(optimizer).items()})
    return tensors


def restore_optimizers(optimizers: Sequence[torch.optim.Optimizer | None], tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizers` returned."""
    by_optimizer: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, inner_key = key.split(":", 1)
        by_optimizer.setdefault(int(number), {})[inner_key] = tensor
    for index, optimizer in enumerate(optimizers):
        if optimizer is not None and index in by_optimizer:
            restore_optimizer(optimizer, by_optimizer[index])
