"""A model of one task that is a single network from prepared inputs to logits: what an export holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Encoder
from crosstask.models.multitask import Model


class PackagedModel(Model):
    """Answers as any model of one task; what would need its encoder and head apart is refused.

    Args:
        reader: an encoder that prepares and collates inputs; it is never run.
        spec: the task.
        network: gives logits for the tensors of a batch.
    """

    def __init__(self, reader: Encoder, spec: TaskSpec, network: nn.Module) -> None:
        nn.Module.__init__(self)
        self.specs = {spec.name: spec}
        self.heads = nn.ModuleList()
        self.inserts = nn.ModuleList()
        self.network = network
        self.rules = {}
        for module in reader.modules():  # it holds no weights that could be moved or run
            module._parameters.clear()
            module._buffers.clear()
        self.encoder = reader

    def forward(self, inputs: Mapping[str, Tensor], rows: Mapping[str, slice]) -> dict[str, Tensor]:
        """Logits of the one task, whose examples all rows are."""
        (task,) = self.specs
        return {task: self.network(inputs)}

    def head(self, task: str) -> NoReturn:
        """There is none apart from the network."""
        raise self._refused("has no head of its own")

    def save(self, folder: Path) -> None:
        """It is in a folder already."""
        raise self._refused("is written already: copy its folder")

    def device(self) -> torch.device:
        """Where the network runs."""
        for tensor in (*self.network.parameters(), *self.network.buffers()):
            return tensor.device
        return torch.device("cpu")

    def _refused(self, reason: str) -> CrossTaskError:
        (task,) = self.specs
        return CrossTaskError(f"The exported model of '{task}' {reason}. Use the run that it was exported from.")
