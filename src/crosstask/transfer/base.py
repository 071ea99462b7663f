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

    def extra_loss(self, model: "Model", batch: "Batch", logits: Mapping[str, Tensor]) -> Tensor | None:
        """A further term of the objective on this batch, added as it is; None when there is none."""
        return None
