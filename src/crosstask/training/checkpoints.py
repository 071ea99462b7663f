"""Checkpoints: safetensors and JSON in a folder that is whole or not there. No pickle."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from crosstask.storage import new_folder

STATE_FILE = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors (model, optimizer, best, ...) and plain values."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def save(folder: Path, number: int, checkpoint: Checkpoint) -> None:
    """Write checkpoint `number` and only then remove those before it."""
    with new_folder(folder / f"{number:09d}") as scratch:
        for group, tensors in checkpoint.tensors.items():
            save_file({name: _plain(tensor) for name, tensor in tensors.items()}, scratch / f"{group}.safetensors")
        (scratch / STATE_FILE).write_text(json.dumps(checkpoint.state, ensure_ascii=False), encoding="utf-8")
    for old in _numbered(folder)[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def load_latest(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint, or None."""
    found = _numbered(folder)
    if not found:
        return None
    tensors = {path.stem: load_file(path) for path in sorted(found[-1].glob("*.safetensors"))}
    return Checkpoint(tensors, json.loads((found[-1] / STATE_FILE).read_text(encoding="utf-8")))


def _numbered(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if (path / STATE_FILE).is_file())


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by "number of parameter / name"; its rates are the schedule's and not kept."""
    state = optimizer.state_dict()["state"]
    return {f"{i}/{name}": value for i, values in state.items() for name, value in values.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizer` took out."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split("/")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def flatten_optimizers(optimizers: Sequence[torch.optim.Optimizer | None]) -> dict[str, Tensor]:
    """The tensors of several optimizers by "number of optimizer : key of `flatten_optimizer`"."""
    return {
        f"{i}:{key}": tensor
        for i, optimizer in enumerate(optimizers)
        if optimizer is not None
        for key, tensor in flatten_optimizer(optimizer).items()
    }


def restore_optimizers(optimizers: Sequence[torch.optim.Optimizer | None], tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizers` took out."""
    for i, optimizer in enumerate(optimizers):
        own = {key.split(":", 1)[1]: tensor for key, tensor in tensors.items() if key.startswith(f"{i}:")}
        if optimizer is not None and own:
            restore_optimizer(optimizer, own)
