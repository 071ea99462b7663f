"""Everything that changes during a run, as it goes into a checkpoint and comes back from it."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.readers.streamed import StreamPosition
from crosstask.decisions.fit import HeldOutLogits
from crosstask.gradients.optimizer_state import numbered_parameters
from crosstask.models.multitask import Model
from crosstask.runs.record import Record
from crosstask.storage import DamagedFileError, explain_damage
from crosstask.training import checkpoints
from crosstask.training.checkpoints import Checkpoint, CheckpointState, Stored
from crosstask.training.devices import Devices
from crosstask.training.selection import ModelSelection
from crosstask.training.sharding import all_finite
from crosstask.transfer.base import Transfer
from crosstask.weighting.base import Weighting

GROUPS = {"model", "transfers", "transfer_optimizers", "optimizer", "weighting", "best", "random", "held_out"}
"""Of tensors in a checkpoint. Version 0.2 wrote none of "held_out"."""
ADAM_STATE = {"step", "exp_avg", "exp_avg_sq"}
"""What Adam keeps of a parameter that it has stepped."""


@dataclass(frozen=True)
class PhasePosition:
    """Where in a phase a checkpoint is made: after `num_updates` updates with this weighting and optimizer.

    - `streams`: by task, where the window begins with which training goes on.
    """

    weighting: Weighting
    optimizer: torch.optim.Optimizer
    num_updates: int
    streams: Mapping[str, StreamPosition] = field(default_factory=dict)


class TrainingState:
    """The state of a run. What `capture` puts into a checkpoint, `restore_run` and `restore_phase` take out of it.

    `check_run` and `check_phase` say beforehand whether they can, and change nothing.

    - `set_aside`: tasks that take no further part;
    - `failures`: by task, losses or gradients in a row that were not finite;
    - `skipped_updates`: in a row, since no part of the gradient could be used;
    - `recent_losses`: by task, losses since the last row of the record;
    - `best`: the model of the best evaluation of the phase; `selection`: that evaluation;
    - `learning_names`: names of the model's tensors that any phase trains;
    - `held_out`: by task, what a solver's cross-validation held out in the last phase, for calibration.
    """

    def __init__(self, model: Model, transfers: Sequence[Transfer], devices: Devices, recipe_digest: str = "") -> None:
        self.model = model
        self.recipe_digest = recipe_digest
        self.transfers = list(transfers)
        self.transfer_modules = nn.ModuleList(transfers)  # one state for the checkpoint
        self.devices = devices
        self.num_checkpoints = 0
        self.learning_names: set[str] = set()
        self.set_aside: set[str] = set()
        self.failures: dict[str, int] = {}
        self.skipped_updates = 0
        self.held_out: dict[str, HeldOutLogits] = {}
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
        return all_finite(tensors, self.devices)

    def capture(self, phase_number: int, record: Record, position: PhasePosition | None = None) -> Checkpoint:
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
            "held_out": self._held_out_tensors(),
        }
        state: CheckpointState = {
            "number": self.num_checkpoints,
            "phase": phase_number,
            "updates": num_updates,
            "weighting": weighting_values,
            "selection": self.selection.state_dict(),
            "set_aside": sorted(self.set_aside),
            "failures": self.failures,
            "skipped_updates": self.skipped_updates,
            "recent": self.recent_losses,
            "history_rows": len(record),
            "history_digest": record.digest,
            "recipe_digest": self.recipe_digest,
        }
        if position is not None and position.streams:
            state["streams"] = dict(position.streams)
        return Checkpoint(tensors, state)

    def check_run(self, checkpoint: Checkpoint) -> None:
        """Whether `restore_run` can restore this; raises a `DamagedFileError` if not."""
        state, tensors = checkpoint.state, checkpoint.tensors
        if state.get("recipe_digest", self.recipe_digest) != self.recipe_digest:
            raise DamagedFileError("it is of a run with another recipe")
        groups = tensors.keys() | {"held_out"}
        if groups != GROUPS:
            raise DamagedFileError(f"it lacks tensors: {', '.join(sorted(GROUPS ^ groups))}")
        if state["number"] < 0 or state["phase"] < 0 or state["history_rows"] < 0 or (state["updates"] or 0) < 0:
            raise DamagedFileError("a number in it is negative")
        _check_same("model", tensors["model"], self.model.trainable_state(self.learning_names))
        _check_same("transfers", tensors["transfers"], self.transfer_modules.state_dict())
        optimizers = self._transfer_optimizers()
        for index, optimizer_tensors in _by_optimizer(tensors["transfer_optimizers"]).items():
            optimizer = optimizers[index] if index in range(len(optimizers)) else None
            if optimizer is None:
                raise DamagedFileError("it holds an optimizer that this run has not")
            _check_optimizer("transfer_optimizers", optimizer_tensors, optimizer)

    def check_phase(self, checkpoint: Checkpoint, weighting: Weighting, optimizer: torch.optim.Optimizer) -> None:
        """Whether `restore_phase` can restore this; raises a `DamagedFileError` if not."""
        state, tensors = checkpoint.state, checkpoint.tensors
        if state["updates"] is None:
            return
        _check_optimizer("optimizer", tensors["optimizer"], optimizer)
        _check_weighting({**state["weighting"], **_complete(tensors["weighting"])}, weighting)
        parameters = self.model.state_dict()
        expected = {name: parameters[name] for name in tensors["best"] if name in parameters}
        _check_same("best", tensors["best"], expected)
        best = state["selection"]["best"]
        if best is not None and len(best) != 3:
            raise DamagedFileError("it holds no standing of the best model")
        self._check_random_states(tensors["random"])

    def _check_random_states(self, tensors: Mapping[str, Stored]) -> None:
        name = f"cpu.{self.devices.rank}"
        if name not in tensors:
            if not self.has_other_ranks(tensors):
                raise DamagedFileError("it holds no state of a random number generator")
            return
        try:
            torch.Generator().set_state(checkpoints.loaded(tensors[name]))
        except (RuntimeError, TypeError) as error:
            raise DamagedFileError("it holds no state of a random number generator") from error
        name = f"cuda.{self.devices.rank}"
        if self.devices.device.type == "cuda" and name in tensors:
            _check_same("random", {name: tensors[name]}, {name: torch.cuda.get_rng_state(self.devices.device)})

    def has_other_ranks(self, random_states: Mapping[str, Stored]) -> bool:
        """Whether these states of generators are of a run with another number of processes."""
        num_ranks = sum(name.startswith("cpu.") for name in random_states)
        return num_ranks not in (0, self.devices.num_ranks)

    def restore_run(self, checkpoint: Checkpoint) -> int:
        """Restore the model and the transfers; returns the number of the phase to go on with."""
        self.num_checkpoints = int(checkpoint.state["number"])
        # Not strict: tensors that no phase trains are not saved.
        self.model.load_state_dict(self._of_model(checkpoint.tensors["model"]), strict=False)
        transfers = {name: checkpoints.loaded(tensor) for name, tensor in checkpoint.tensors["transfers"].items()}
        self.transfer_modules.load_state_dict(transfers)
        checkpoints.restore_optimizers(self._transfer_optimizers(), checkpoint.tensors["transfer_optimizers"])
        self.set_aside = set(checkpoint.state["set_aside"])
        self._restore_held_out(_complete(checkpoint.tensors.get("held_out", {})))
        return int(checkpoint.state["phase"])

    def restore_phase(
        self, checkpoint: Checkpoint, weighting: Weighting, optimizer: torch.optim.Optimizer
    ) -> int | None:
        """Restore what belongs to the phase; returns its updates so far, or None for a checkpoint between phases."""
        state, tensors = checkpoint.state, checkpoint.tensors
        if state["updates"] is None:
            return None
        checkpoints.load_optimizer(optimizer, tensors["optimizer"])
        weighting.load_state_dict({**state["weighting"], **_complete(tensors["weighting"])})
        self.best = self._of_model(tensors["best"])
        self.selection = ModelSelection.from_state(state["selection"])
        self.skipped_updates = state.get("skipped_updates", 0)  # checkpoints of version 0.2 have none
        self.failures, self.recent_losses = dict(state["failures"]), dict(state["recent"])
        self._restore_random_states(_complete(tensors["random"]), int(state["updates"]))
        return int(state["updates"])

    def _of_model(self, tensors: Mapping[str, Stored]) -> dict[str, Tensor]:
        """Tensors of the model by name, divided among ranks as the model's are."""
        expected = self.model.state_dict()
        return {name: checkpoints.loaded(tensor, expected.get(name)) for name, tensor in tensors.items()}

    def _restore_random_states(self, states: Mapping[str, Tensor], num_updates: int) -> None:
        """The state of this rank's generators; new numbers where there were more or fewer ranks."""
        rank, device = self.devices.rank, self.devices.device
        if self.has_other_ranks(states):
            torch.manual_seed(torch.initial_seed() + 1_000_003 * (num_updates + 1))
            return
        torch.set_rng_state(states[f"cpu.{rank}"])
        if f"cuda.{rank}" in states and device.type == "cuda":
            torch.cuda.set_rng_state(states[f"cuda.{rank}"], device)

    def _held_out_tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for task, held_out in self.held_out.items():
            tensors[f"{task}.logits"] = torch.from_numpy(np.ascontiguousarray(held_out.logits))
            tensors[f"{task}.labels"] = torch.from_numpy(np.ascontiguousarray(held_out.labels))
        return tensors

    def _restore_held_out(self, tensors: Mapping[str, Tensor]) -> None:
        for task, spec in self.model.specs.items():
            if f"{task}.logits" in tensors and f"{task}.labels" in tensors:
                logits, labels = tensors[f"{task}.logits"].numpy(), tensors[f"{task}.labels"].numpy()
                self.held_out[task] = HeldOutLogits(spec.kind, logits, labels)

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


def _complete(tensors: Mapping[str, Stored]) -> dict[str, Tensor]:
    return {name: checkpoints.loaded(tensor) for name, tensor in tensors.items()}


def _check_same(group: str, tensors: Mapping[str, Stored], expected: Mapping[str, Tensor]) -> None:
    """The same names, with the same shapes and types."""
    for name in sorted(tensors.keys() ^ expected.keys()):
        problem = "lacks" if name in expected else "has"
        raise DamagedFileError(f"{group}.safetensors {problem} '{name}', unlike the model of this run")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape or tensor.dtype != expected[name].dtype:
            raise DamagedFileError(
                f"{group}.safetensors has '{name}' as {tensor.dtype} of shape {tuple(tensor.shape)}, and the run as "
                f"{expected[name].dtype} of shape {tuple(expected[name].shape)}"
            )


def _by_optimizer(tensors: Mapping[str, Stored]) -> dict[int, dict[str, Stored]]:
    try:
        return checkpoints.split_by_optimizer(tensors)
    except ValueError as error:
        raise DamagedFileError(
            "transfer_optimizers.safetensors has names that are not those of an optimizer"
        ) from error


def _check_optimizer(group: str, tensors: Mapping[str, Stored], optimizer: torch.optim.Optimizer) -> None:
    """Whether these are tensors of the optimizer's parameters: scalars, or of the parameter's shape."""
    parameters = numbered_parameters(optimizer)
    names: dict[str, set[str]] = {}
    for key, tensor in tensors.items():
        index, _, name = key.partition("/")
        if not index.isdecimal() or int(index) not in parameters:
            raise DamagedFileError(f"{group}.safetensors has '{key}', which is of no parameter of this run")
        if tensor.shape not in ((), parameters[int(index)].shape):
            raise DamagedFileError(f"{group}.safetensors has '{key}' in another shape than its parameter")
        names.setdefault(index, set()).add(name)
    if isinstance(optimizer, torch.optim.Adam):  # and AdamW, which is one
        for index, state_names in names.items():
            if state_names != ADAM_STATE:
                raise DamagedFileError(f"{group}.safetensors has not all of the state of parameter {index}")


def _check_weighting(state: Mapping[str, Any], weighting: Weighting) -> None:
    """Whether the weighting can read its state: tried on a copy."""
    copy = deepcopy(weighting)
    # Every weighting reads its state in a way of its own, users' weightings too: what a damaged one leads to is open.
    with explain_damage(f"the state of the weighting '{weighting.name}'"):
        copy.load_state_dict(state)
        weights = copy.weights
        is_sound = weights.keys() == weighting.weights.keys() and all(map(math.isfinite, weights.values()))
    if not is_sound:
        raise DamagedFileError(f"the weighting '{weighting.name}' has weights of other tasks, or none that are numbers")
