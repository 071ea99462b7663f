"""Everything that changes during a run, as it goes into a checkpoint and comes back from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.models.multitask import Model
from crosstask.training import checkpoints
from crosstask.training.checkpoints import Checkpoint
from crosstask.training.devices import Devices
from crosstask.training.selection import ModelSelection
from crosstask.transfer.base import Transfer
from crosstask.weighting.base import Weighting


@dataclass(frozen=True)
class PhasePosition:
    """Where in a phase a checkpoint is made: after `num_updates` updates with this weighting and optimizer."""

    weighting: Weighting
    optimizer: torch.optim.Optimizer
    num_updates: int


class TrainingState:
    """The state of a run. What `capture` puts into a checkpoint, `restore_run` and `restore_phase` take out of it.

    - `set_aside`: tasks that take no further part;
    - `failures`: by task, losses or gradients in a row that were not finite;
    - `skipped_updates`: in a row, since no part of the gradient could be used;
    - `recent_losses`: by task, losses since the last row of the record;
    - `best`: the model of the best evaluation of the phase; `selection`: that evaluation;
    - `learning_names`: names of the model's tensors that any phase trains.
    """

    def __init__(self, model: Model, transfers: Sequence[Transfer], devices: Devices) -> None:
        self.model = model
        self.transfers = list(transfers)
        self.transfer_modules = nn.ModuleList(transfers)  # one state for the checkpoint
        self.devices = devices
        self.num_checkpoints = 0
        self.learning_names: set[str] = set()
        self.set_aside: set[str] = set()
        self.failures: dict[str, int] = {}
        self.skipped_updates = 0
        self.start_phase()

    def start_phase(self) -> None:
        """What each phase begins with."""
        self.recent_losses: dict[str, list[float]] = {}
        self.best: dict[str, Tensor] = {}
        self.selection = ModelSelection()

    @property
    def is_finite(self) -> bool:
        """Whether every tensor of the model and the transfers that learns is finite."""
        tensors = [*self.model.trainable_state(self.learning_names).values(), *self.transfer_modules.parameters()]
        return all_finite(tensors)

    def capture(self, phase_number: int, history_rows: int, position: PhasePosition | None = None) -> Checkpoint:
        """A checkpoint; between two phases there is no position. Every rank has to call it."""
        weighting: dict[str, Any] = {}
        optimizer: dict[str, Tensor] = {}
        num_updates = None
        if position is not None:
            weighting = position.weighting.state_dict()
            optimizer = checkpoints.flatten_optimizer(position.optimizer)
            num_updates = position.num_updates
        # Tensors and plain values of the weighting go to different files.
        weighting_tensors: dict[str, Tensor] = {}
        weighting_values: dict[str, Any] = {}
        for key, value in weighting.items():
            if isinstance(value, Tensor):
                weighting_tensors[key] = value
            else:
                weighting_values[key] = value
        tensors = {
            "model": self.model.trainable_state(self.learning_names),
            "transfers": self.transfer_modules.state_dict(),
            "transfer_optimizers": checkpoints.flatten_optimizers(self._transfer_optimizers()),
            "optimizer": optimizer,
            "weighting": weighting_tensors,
            "best": self.best,
            "random": self._random_states(),
        }
        state: dict[str, Any] = {
            "number": self.num_checkpoints,
            "phase": phase_number,
            "updates": num_updates,
            "weighting": weighting_values,
            "selection": self.selection.state_dict(),
            "set_aside": sorted(self.set_aside),
            "failures": self.failures,
            "skipped_updates": self.skipped_updates,
            "recent": self.recent_losses,
            "history_rows": history_rows,
        }
        return Checkpoint(tensors, state)

    def restore_run(self, checkpoint: Checkpoint) -> int:
        """Restore the model and the transfers; returns the number of the phase to go on with."""
        self.num_checkpoints = int(checkpoint.state["number"])
        # Not strict: tensors that no phase trains are not saved.
        self.model.load_state_dict(checkpoint.tensors["model"], strict=False)
        self.transfer_modules.load_state_dict(checkpoint.tensors["transfers"])
        checkpoints.restore_optimizers(self._transfer_optimizers(), checkpoint.tensors["transfer_optimizers"])
        self.set_aside = set(checkpoint.state["set_aside"])
        return int(checkpoint.state["phase"])

    def restore_phase(
        self, checkpoint: Checkpoint, weighting: Weighting, optimizer: torch.optim.Optimizer
    ) -> int | None:
        """Restore what belongs to the phase; returns its updates so far, or None for a checkpoint between phases."""
        state, tensors = checkpoint.state, checkpoint.tensors
        if state["updates"] is None:
            return None
        checkpoints.restore_optimizer(optimizer, tensors["optimizer"])
        weighting.load_state_dict({**state["weighting"], **tensors["weighting"]})
        self.best = dict(tensors["best"])
        self.selection = ModelSelection.from_state(state["selection"])
        self.skipped_updates = int(state.get("skipped_updates", 0))  # checkpoints of version 0.2 have none
        self.failures, self.recent_losses = dict(state["failures"]), dict(state["recent"])
        rank, device = self.devices.rank, self.devices.device
        torch.set_rng_state(tensors["random"][f"cpu.{rank}"])
        if f"cuda.{rank}" in tensors["random"] and device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random"][f"cuda.{rank}"], device)
        return int(state["updates"])

    def _transfer_optimizers(self) -> list[torch.optim.Optimizer | None]:
        return [transfer.optimizer for transfer in self.transfers]

    def _random_states(self) -> dict[str, Tensor]:
        """The states of all ranks' random number generators, by "device type.rank"."""
        local_states = {"cpu": torch.get_rng_state()}
        if self.devices.device.type == "cuda":
            local_states["cuda"] = torch.cuda.get_rng_state(self.devices.device)
        states = {}
        for device_type, local_state in local_states.items():
            for rank, state in enumerate(self.devices.gather(local_state)):
                states[f"{device_type}.{rank}"] = state
        return states


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every entry of these tensors is finite; one synchronization for all of them."""
    checks = [torch.isfinite(tensor).all() for tensor in tensors if tensor.is_floating_point()]
    return not checks or bool(torch.stack(checks).all())
