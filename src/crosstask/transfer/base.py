"""The contract of a transfer: what passes between tasks besides weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from crosstask.papers import Paper

if TYPE_CHECKING:
    from crosstask.data.task import Task
    from crosstask.models.batches import Batch, Prepared, Step
    from crosstask.models.encoder import Representation
    from crosstask.models.multitask import Model
    from crosstask.training.devices import Devices
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward pass: the batch, and what encoder and heads made of each task's rows."""

    model: "Model"
    batch: "Batch"
    logits: Mapping[str, Tensor]
    parts: Mapping[str, "Representation"]


@dataclass(frozen=True, eq=False)
class Moment:
    """Where training stands just before a step of the model.

    - `step`: positions by task in `data`, the training sets;
    - `update`, `num_updates`: the number of this update, from 0, and how many there will be;
    - `optimizer`: the model's, with its rates set for this update;
    - `weights`: what each task counts now.
    """

    model: "Model"
    data: Mapping[str, "Prepared"]
    step: "Step"
    update: int
    num_updates: int
    optimizer: torch.optim.Optimizer
    weights: Mapping[str, float]
    devices: "Devices"

    @property
    def learning_rate(self) -> float:
        """Of the model at this update."""
        return float(self.optimizer.param_groups[0]["lr"])


class Transfer(nn.Module):
    """A module that takes part in training beside the model: by terms of the losses, steps of its own, inserts.

    Its parameters join the model's optimizer, but for `own_parameters`, and its state the checkpoint. It never becomes
    part of the exported model; what has to is an `Insert`, put into the model by `bind`.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    freezes_encoder: ClassVar[bool] = False
    """Whether `bind` freezes the encoder, to train what it puts inside; the learning rate goes by it."""
    notes: Sequence[str] = ()
    """What `bind` found out that people should know; it goes into the record."""
    is_ready: bool = True
    """Whether the targets have begun to learn; a model from before that is never the one to keep."""
    optimizer: torch.optim.Optimizer | None = None
    """Of `own_parameters`, where there are some; its state joins the checkpoint."""

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """The phases as this transfer wants them; called before `bind`, with names alone.

        A paradigm or weighting that does not go with it is refused here, in a sentence that says why.
        """
        return list(phases)

    def meet(self, others: "Sequence[Transfer]") -> None:
        """Get to know the other transfers of the run; called before `bind`."""

    def bind(self, model: "Model", tasks: Sequence["Task"], targets: Sequence[str]) -> None:
        """Make the parameters, once the model and the tasks are known."""

    def unbind(self) -> None:
        """Take out of the model, once it is trained, what only training needs."""

    def own_parameters(self) -> list[nn.Parameter]:
        """Parameters that it trains itself, with `optimizer`."""
        return []

    def before_step(self, moment: Moment) -> "Step":
        """Do what comes before the model's step, such as a step on meta-parameters; returns the step to be taken."""
        return moment.step

    def change_loss(self, task: str, total: Tensor, forward: Pass) -> Tensor:
        """A task's loss, added up over the units of its batch, with what this transfer has to say about it."""
        return total

    def extra_loss(self, forward: Pass) -> Tensor | None:
        """A further term of the objective on this batch, that no weighting touches; None when there is none."""
        return None

    def after_backward(self, model: "Model", update: int) -> None:
        """Look at or change the gradients before the optimizer takes them."""

    def facts(self) -> dict[str, Any]:
        """What there is to tell at a look at the dev set, as plain data for the record."""
        return {}
