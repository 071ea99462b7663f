"""Representation transfer: source examples look more like the target's, where their labels are carried over."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.limits import MAX_WIDTH
from crosstask.models.hooks import Adaptation, pass_context, running_in
from crosstask.papers import METAXT, Paper
from crosstask.transfer.base import Ability, Setup, Transfer, WholeModel
from crosstask.transfer.label_transfer.network import start_at_zero, three_layers
from crosstask.weighting import validation as checks


class RepresentationTransferNetwork(nn.Module):
    """Three feed-forward layers that make a source's hidden states more like the target's (Xia et al. 2021).

    Their output is added to the hidden state, and the last layer starts at zero: at first nothing changes.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = three_layers(width, hidden, width)
        start_at_zero(self.layers)

    def forward(self, states: Tensor) -> Tensor:
        """The adapted hidden states, of the same shape."""
        return states + self.layers(states)  # [..., width]


class RepresentationTransfer(Transfer):
    """A network at one layer of the encoder that adapts the hidden states of source examples (RTN, phi).

    It works only in the transferred term of `label-transfer`, where source examples train the target's head, and is
    learned by the same meta-gradient as the label transfer network: through the look-ahead model, by the loss on
    held-out target examples. The transferred term then needs a pass of the encoder of its own, and the meta-gradient
    with respect to phi a second derivative, which `label-transfer` takes by forward mode with a graph.

    Args:
        layer: where: 0 is the input of the first layer, k the output of layer k. The middle of the encoder when left
            out: layer 6 of 12, as in the paper.
        hidden: width of its inner layers; that of the hidden states when left out.

    The paper says that it is a feed-forward network of three layers and where it stands. Ours adds its output to the
    hidden state and starts at zero, so that training begins with the pretrained encoder unchanged.
    """

    name: ClassVar[str] = "representation-transfer"
    summary: ClassVar[str] = "with label-transfer: a network that adapts source examples at one layer of the encoder"
    needs_whole_model = WholeModel.NEVER
    paper: ClassVar[Paper | None] = METAXT
    provides = frozenset({Ability.ANY, Ability.STATE_ADAPTER})
    requires: ClassVar[Mapping[Ability, str]] = {
        Ability.TRANSFERRED_TERM: "transfer 'representation-transfer' works inside the transferred term of "
        "'label-transfer': name that one too."
    }
    excludes: ClassVar[Mapping[Ability, str]] = {
        Ability.STATE_ADAPTER: "transfer 'representation-transfer' is named twice: one layer is all that it adapts."
    }

    def __init__(self, *, layer: int | None = None, hidden: int | None = None) -> None:
        super().__init__()
        self.layer = (
            None if layer is None else checks.check_count(self.name, "layer", layer, at_least=0, what="transfer")
        )
        self.hidden = (
            None
            if hidden is None
            else checks.check_count(self.name, "hidden", hidden, at_most=MAX_WIDTH, what="transfer")
        )
        self.network = nn.Module()
        self._adaptation: Adaptation | None = None

    def start(self, setup: Setup) -> None:
        """Make the network for the chosen layer of the encoder."""
        encoder = setup.model.encoder
        numbers = encoder.site_numbers()
        layer = self.layer
        if layer is None:
            layer = numbers[len(numbers) // 2] if numbers else 0
        site = encoder.site(layer, "transfer 'representation-transfer'")
        self.network = RepresentationTransferNetwork(site.width, self.hidden or site.width)
        self._adaptation = Adaptation(site, self.network)
        term = setup.providers.get(Ability.TRANSFERRED_TERM)
        if term is not None and term.meta_learning_rate is not None:
            # The provider of the term steps this optimizer with its own; else the network joins the model's.
            self.optimizer = torch.optim.Adam(self.parameters(), term.meta_learning_rate)

    def active(self) -> AbstractContextManager[None]:
        """Inside it the encoder runs for the transferred term, with adapted hidden states."""
        if self._adaptation is None:
            raise CrossTaskError("transfer 'representation-transfer' adapts nothing before `start`.")
        return running_in(replace(pass_context(), adaptation=self._adaptation))
