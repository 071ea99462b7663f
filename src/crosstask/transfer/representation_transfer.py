"""Representation transfer: source examples look more like the target's, where their labels are carried over."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.papers import METAXT, Paper
from crosstask.transfer.base import Transfer
from crosstask.transfer.label_network import RepresentationTransferNetwork

if TYPE_CHECKING:
    from crosstask.model import Model
    from crosstask.tasks import Task


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
        self.layer = layer
        self.hidden = hidden
        self.network = nn.Module()
        self.is_active = False

    def meet(self, others: Sequence[Transfer]) -> None:
        """Without a label transfer there is no term that it could take part in."""
        if not any(other.name == "label-transfer" for other in others):
            raise CrossTaskError(
                "transfer 'representation-transfer' works inside the transferred term of 'label-transfer': "
                "name that one too."
            )

    def bind(self, model: "Model", tasks: Sequence["Task"], targets: Sequence[str]) -> None:
        """Make the network, and take the place in the encoder."""
        purpose = "transfer 'representation-transfer'"
        sites = model.encoder.sites()
        layer = len(sites) // 2 if self.layer is None else self.layer
        site = model.encoder.site(layer, purpose)
        self.network = RepresentationTransferNetwork(site.width, self.hidden or site.width)
        self.is_active = False
        site.change(self._change)

    def own_parameters(self) -> list[nn.Parameter]:
        """All: the label transfer trains them."""
        return list(self.parameters())

    @contextmanager
    def active(self) -> Iterator[None]:
        """While the encoder is run for the transferred term."""
        self.is_active = True
        try:
            yield
        finally:
            self.is_active = False

    def _change(self, states: Tensor) -> Tensor:
        return self.network(states) if self.is_active else states
