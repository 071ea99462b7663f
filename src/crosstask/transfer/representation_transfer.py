"""Representation transfer: source examples look more like the target's, where their labels are carried over."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.models.hooks import Surrounded, surroundings
from crosstask.papers import METAXT, Paper
from crosstask.transfer.base import Transfer
from crosstask.transfer.label_transfer.network import RepresentationTransferNetwork
from crosstask.weighting import checks

if TYPE_CHECKING:
    from crosstask.data.task import Task
    from crosstask.models.multitask import Model


class RepresentationTransfer(Transfer):
    """A network at one layer of the encoder that adapts the hidden states of source examples (RTN, phi).

    It is at work only in the transferred term of `label-transfer`, where source examples train the target's head, and
    is learned by the same meta-gradient as the label transfer network: through the looked-ahead model, by the loss on
    held-out target examples. The transferred term then needs a pass of the encoder of its own, and the meta-gradient by
    phi a second derivative, which `label-transfer` takes by forward mode with a graph.

    Args:
        layer: where: 0 is what enters the first layer, k what layer k hands on. The middle of the encoder when left
            out: layer 6 of 12, as in the paper.
        hidden: width of its inner layers; that of the hidden states when left out.

    The paper says that it is a feed-forward network of three layers and where it stands. Ours adds its output to the
    hidden state and starts at zero, so that the pretrained encoder is what it was at the start.
    """

    name: ClassVar[str] = "representation-transfer"
    summary: ClassVar[str] = "with label-transfer: a network that adapts source examples at one layer of the encoder"
    paper: ClassVar[Paper | None] = METAXT

    def __init__(self, *, layer: int | None = None, hidden: int | None = None) -> None:
        super().__init__()
        self.layer = None if layer is None else checks.count(self.name, "layer", layer, at_least=0, what="transfer")
        self.hidden = None if hidden is None else checks.count(self.name, "hidden", hidden, what="transfer")
        self.network = nn.Module()
        self.learning_rate: float | None = None

    def meet(self, others: Sequence[Transfer]) -> None:
        """Without a label transfer there is no term that it could take part in."""
        if any(other.name == self.name for other in others):
            raise CrossTaskError("transfer 'representation-transfer' is named twice: one layer is all that it adapts.")
        found: list[Any] = [other for other in others if other.name == "label-transfer"]
        if not found:
            raise CrossTaskError(
                "transfer 'representation-transfer' works inside the transferred term of 'label-transfer': "
                "name that one too."
            )
        self.learning_rate = found[0].learning_rate if found[0].meta else None

    def bind(self, model: "Model", tasks: Sequence["Task"], targets: Sequence[str]) -> None:
        """Make the network, and take the place in the encoder."""
        site = model.encoder.site(
            len(model.encoder.sites()) // 2 if self.layer is None else self.layer, "transfer 'representation-transfer'"
        )
        self.network = RepresentationTransferNetwork(site.width, self.hidden or site.width)
        self.place = site.change(self._change)
        self.optimizer = torch.optim.Adam(self.parameters(), self.learning_rate) if self.learning_rate else None

    def unbind(self) -> None:
        """Give the place in the encoder up."""
        self.place.remove()

    def own_parameters(self) -> list[nn.Parameter]:
        """All, where the label transfer learns by the meta-gradient: it trains these along."""
        return list(self.parameters()) if self.optimizer is not None else []

    def active(self) -> AbstractContextManager[None]:
        """While the encoder is run for the transferred term."""
        return Surrounded(replace(surroundings(), adapting=self))

    @property
    def is_active(self) -> bool:
        """Whether the pass that is under way is such a one."""
        return surroundings().adapting is self

    def _change(self, states: Tensor) -> Tensor:
        return self.network(states) if self.is_active else states
