"""The contract of a transfer: what passes between tasks besides weights."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from crosstask.papers import Paper

if TYPE_CHECKING:
    from crosstask.batches import Batch
    from crosstask.model import Model
    from crosstask.tasks import Task


class Transfer(nn.Module):
    """A module with parameters of its own that adds terms to the objective; trained along with the model.

    Its parameters join the optimizer and its state the checkpoint. It never becomes part of the exported model unless
    it changes the encoder itself.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""

    def bind(self, model: "Model", tasks: Sequence["Task"], targets: Sequence[str]) -> None:
        """Make the parameters, once the model and the tasks are known."""

    def extra_losses(self, model: "Model", batch: "Batch", logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Further terms of the objective on this batch, by name; each is added as it is."""
        return {}

    def before_step(self, model: "Model", batch: "Batch") -> None:
        """A meta step or the like, before the model is updated on this batch."""
