"""The interface of a transfer: what passes between tasks besides weights."""

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients.cuda_graphs import PlainGraphs
from crosstask.papers import Paper
from crosstask.registry import HasPresets

if TYPE_CHECKING:
    from crosstask.data.task import Task
    from crosstask.models.batches import Batch, Prepared, Step
    from crosstask.models.encoder import Representation
    from crosstask.models.multitask import Model
    from crosstask.training.devices import Devices
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase


Facts = dict[str, Any]
"""What a transfer has to report, as plain data."""
ExampleWeights = Callable[[str, np.ndarray], Tensor]
"""From a task and positions of its examples to what they count, [batch]."""


class Ability(StrEnum):
    """What a transfer may provide for others of the same run."""

    ANY = "any"
    """Provided by every transfer."""
    FROZEN_ENCODER = "frozen-encoder"
    """The encoder is frozen; what trains stands inside it. The default learning rate depends on it."""
    PRIVATE_ENCODERS = "private-encoders"
    """Heads read features of an encoder that only their own task has."""
    STATE_ADAPTER = "state-adapter"
    """The provider is a `StateAdapter`."""
    TRANSFERRED_TERM = "transferred-term"
    """Source examples train the target's head."""
    CONTRAST = "contrast"
    """A first phase compares examples with one another."""


class WholeModel(StrEnum):
    """When a transfer needs all parameters of the model on every rank."""

    NEVER = "never"
    """It uses what the encoder's own passes give, and modules of its own."""
    BEFORE_STEP = "before-step"
    """In `before_step`: where ranks hold a part of the encoder each, they gather all of it for that."""
    ALWAYS = "always"
    """It does not go with such a run."""


class StateAdapter(Protocol):
    """Changes hidden states of source examples while the encoder runs for a transferred term."""

    optimizer: torch.optim.Optimizer | None

    def active(self) -> AbstractContextManager[None]:
        """Inside it the encoder runs with the change."""

    def own_parameters(self) -> list[nn.Parameter]:
        """Parameters that are learned by the meta-gradient of the transferred term."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass: the batch, and for each task its logits and the representations that its head has read."""

    model: "Model"
    batch: "Batch"
    logits: Mapping[str, Tensor]
    representations: Mapping[str, "Representation"]


@dataclass(frozen=True, eq=False)
class Terms:
    """What a transfer makes of the losses of one forward pass.

    - `factors`: factor of a task's own loss; 1 where a task is missing;
    - `added`: by task, terms that join its loss before the weighting, each a sum over the units of its batch;
    - `unweighted`: a further term of the objective that no weighting touches.
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    added: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    unweighted: Tensor | None = None

    def change(self, task: str, total: Tensor) -> Tensor:
        """A task's loss, summed over the units of its batch, with these terms."""
        if task in self.factors:
            total = self.factors[task] * total
        for term in self.added.get(task, ()):
            total = total + term
        return total


class Objective(Protocol):
    """What a phase trains instead of the heads' losses: a loss of the examples of a batch that have labels in common.

    - `per_label`: examples of a label that a batch should hold.
    """

    per_label: int

    def check(self, model: "Model", tasks: Sequence[str]) -> None:
        """Raise an error that says why these tasks cannot be trained so, if they cannot."""

    def loss_sums(self, forward: Pass) -> dict[str, tuple[Tensor, Tensor]]:
        """By task the sum of its losses over a batch, and what the sum over all ranks is divided by."""


@dataclass(frozen=True, eq=False)
class Moment:
    """The state of training just before a step of the model, or after an update.

    - `step`: positions by task in `data`, the training sets;
    - `update`, `num_updates`: number of this update, from 0, and of all updates;
    - `optimizer`: the model's, with its learning rates set for this update;
    - `weights`: current weight of each task;
    - `example_weights`: what each example counts within its task, where the weighting has learned that;
    - `graphs`: what replays computations as CUDA graphs, on a device where that pays.
    """

    model: "Model"
    data: Mapping[str, "Prepared"]
    step: "Step"
    update: int
    num_updates: int
    optimizer: torch.optim.Optimizer
    weights: Mapping[str, float]
    devices: "Devices"
    graphs: PlainGraphs | None = None
    example_weights: ExampleWeights | None = None

    @property
    def learning_rate(self) -> float:
        """The model's at this update."""
        group = self.optimizer.param_groups[0]
        return float(group.get("rate", group["lr"]))


@dataclass(frozen=True, eq=False)
class Setup:
    """What a transfer is given when a run starts; `providers` are the run's transfers by what they provide."""

    model: "Model"
    tasks: Sequence["Task"]
    targets: Sequence[str]
    providers: Mapping[Ability, "Transfer"] = field(default_factory=dict)


class Transfer(HasPresets, nn.Module):
    """A module that takes part in training beside the model: by terms of the losses, steps of its own, inserts.

    What the user gives is a description; each fit trains a copy of it (`copies_for_run`). Its parameters join the
    model's optimizer, but for those of its own `optimizer`; its state (that of a torch module) and that optimizer's
    join the checkpoint. It never becomes part of the exported model; what has to is an `Insert` that `start` puts into
    the model.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    provides: frozenset[Ability] = frozenset({Ability.ANY})
    """What other transfers of the run may rely on, or not go with."""
    requires: ClassVar[Mapping[Ability, str]] = {}
    """What another transfer must provide, each with the sentence that refuses a run without it."""
    excludes: ClassVar[Mapping[Ability, str]] = {}
    """What no other transfer may provide, each with the sentence that refuses it; `{name}` and `{other}` are names."""
    needs_whole_model: WholeModel = WholeModel.ALWAYS
    """When it reads parameters or copies them, where ranks hold a part of them each."""
    notes: Sequence[str] = ()
    """What `start` found out that people should know; it goes into the record."""
    mean_vectors: bool = False
    """Whether it compares vectors of texts: a Hugging Face encoder then gives the mean of its token vectors."""
    is_ready: bool = True
    """Whether the targets have begun to learn; a model from before that is never selected."""
    optimizer: torch.optim.Optimizer | None = None
    """Optimizer of the parameters that the transfer trains itself."""
    meta_learning_rate: float | None = None
    """Learning rate of parameters that are learned by a meta-gradient, where the transfer takes one."""

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """The phases as this transfer needs them; called before `start`, with names alone.

        A paradigm or weighting that does not go with it is refused here, in a sentence that says why.
        """
        return list(phases)

    def start(self, setup: Setup) -> None:
        """Make the parameters, once the model and the tasks are known."""

    @final
    def own_parameters(self) -> list[nn.Parameter]:
        """Parameters that the transfer trains itself, with `optimizer`; the model's optimizer leaves them alone."""
        parameters: list[nn.Parameter] = []
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                parameters += group["params"]
        return parameters

    def before_step(self, moment: Moment) -> "Step":
        """Do what comes before the model's step, such as a step on meta-parameters; returns the step to be taken."""
        return moment.step

    def after_update(self, moment: Moment) -> None:
        """Do what comes after an update of the model, before anything is evaluated; the moment's step is empty."""

    def terms(self, forward: Pass) -> Terms:
        """Terms of the losses of this forward pass."""
        return Terms()

    def graph_key(self) -> Hashable | None:
        """What the host has decided about `terms` for this step, so that a CUDA graph of the step can be replayed.

        None where no graph can hold the transfer's part of a step: by default where it has one.
        """
        methods = type(self)
        takes_part = methods.terms is not Transfer.terms or methods.after_backward is not Transfer.after_backward
        return None if takes_part else ()

    def after_backward(self, model: "Model", update: int) -> None:
        """Read or change the gradients before the optimizer takes them."""

    def facts(self) -> Facts:
        """Plain data for the record, at each evaluation on the dev sets."""
        return {}


DECIDING_DEVICES = {"cuda"}
"""Where the device itself decides whether a step is taken: the host would wait for all of its work to know."""


def step_if_finite(optimizers: Sequence[torch.optim.Optimizer], parameters: Sequence[nn.Parameter]) -> None:
    """A step of these optimizers (Adam), unless a gradient of the parameters has overflowed; then all are forgotten.

    Nothing here waits for the device.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients and gradients[0].device.type in DECIDING_DEVICES:
        # 1 if any entry is not finite; the gradients are multiplied by 1.
        overflow = torch.zeros((), device=gradients[0].device)
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, overflow, torch.ones_like(overflow))
        for optimizer in optimizers:
            _step_unless(overflow, optimizer)
    elif all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
        for optimizer in optimizers:
            optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()


def _step_unless(overflow: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """A step of Adam by its fused kernel, which leaves everything as it is where `overflow` is 1."""
    for group in optimizer.param_groups:
        group["foreach"], group["fused"] = False, True
        if overflow.is_cuda:
            group["capturable"] = torch.cuda.is_current_stream_capturing()
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if state:  # other kernels, and checkpoints, have the number of steps on the host
                state["step"] = state["step"].to(overflow)
    # Where a GradScaler would put it.
    vars(optimizer)["found_inf"] = overflow
    try:
        optimizer.step()
    finally:
        del vars(optimizer)["found_inf"]


def copies_for_run(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Copies for one run, so that nothing of a run is left in what the user gave; refused if they do not go together.

    Raises:
        CrossTaskError: one requires what none of the others provides, or excludes what another provides.
    """
    for transfer in transfers:
        provided: dict[Ability, Transfer] = {}
        for other in reversed(transfers):  # so that the first one is named in errors
            if other is not transfer:
                provided.update(dict.fromkeys(other.provides, other))
        for ability, message in transfer.excludes.items():
            if ability in provided:
                raise CrossTaskError(message.format(name=transfer.name, other=provided[ability].name))
        for ability, message in transfer.requires.items():
            if ability not in provided:
                raise CrossTaskError(message)
    return [copy.deepcopy(transfer) for transfer in transfers]


def start_transfers(
    transfers: Sequence[Transfer], model: "Model", tasks: Sequence["Task"], targets: Sequence[str]
) -> None:
    """Start all transfers of a run, in order: each may put inserts into the model that later ones build on."""
    providers: dict[Ability, Transfer] = {}
    for transfer in transfers:
        providers.update(dict.fromkeys(transfer.provides, transfer))
    for transfer in transfers:
        transfer.start(Setup(model, tasks, targets, providers))
