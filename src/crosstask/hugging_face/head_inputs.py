"""What the heads of transformers' models read: outputs of the encoder, as they stand in the graph of a loss."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

IGNORED = -100
"""Label of a word piece that does not count, in transformers."""
Part = Literal["pooler_output", "last_hidden_state"]


class HeadInputs:
    """Keeps what the encoder has returned, and finds the part of it that a task's head reads."""

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder
        self.output: Any = None
        self._parts: dict[str, Part] = {}

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Inside it, `output` is what the encoder has returned last."""

        def keep(module: nn.Module, inputs: object, output: Any) -> None:
            self.output = output

        handle = self.encoder.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def of(self, task: str, loss: Tensor) -> Tensor:
        """What the head has read for this loss, [batch, width] or [batch, length, width]."""
        if task not in self._parts:
            self._parts[task] = self._part_read(loss)
        read: Tensor = self.output[self._parts[task]]
        return read

    def _part_read(self, loss: Tensor) -> Part:
        """The pooled vector, if the loss depends on it, else the vectors of all tokens."""
        pooled = self.output.get("pooler_output")
        if pooled is not None and pooled.requires_grad:
            (gradient,) = torch.autograd.grad(loss, [pooled], allow_unused=True, retain_graph=True)
            if gradient is not None:
                return "pooler_output"
        return "last_hidden_state"


def vectors_and_labels(read: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A vector for each label, [labels, width]: of a text its pooled or first one, of a word piece its own."""
    if read.dim() == 3 and labels.dim() == 2 and labels.shape[1] == read.shape[1] and not labels.is_floating_point():
        counts = labels != IGNORED  # [batch, length]
        return read[counts], labels[counts]
    return (read[:, 0] if read.dim() == 3 else read), labels
