"""A frozen encoder in one pass from its inputs: features are computed where they are read, and never kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor, nn

from crosstask.data.examples import Form, TaskSpec
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput
from crosstask.models.encoder import Config, Encoder, Inputs, Options
from crosstask.models.representation import Representation

if TYPE_CHECKING:
    from crosstask.models.encoders.frozen import FrozenEncoder


class ThawedEncoder(Encoder):
    """The inner encoder, and then what the frozen one makes of its features.

    It exists in memory alone: what is saved is the frozen encoder.
    """

    name: ClassVar[str] = "thawed"
    summary: ClassVar[str] = "a frozen encoder that computes its features in every pass"
    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})

    def __init__(self, frozen: "FrozenEncoder") -> None:
        super().__init__()
        self.inner = frozen.inner.undivided()
        self.width = frozen.width
        self.frozen = (frozen,)  # in a tuple, so no submodule: its inner encoder may be another one
        self.layer, self.entry = frozen.layer, frozen.entry

    def prepare(self, inputs: Inputs, form: Form) -> Sequence[PreparedInput]:
        """As for the inner encoder."""
        return self.inner.prepare(inputs, form)

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """As for the inner encoder."""
        return self.inner.collate(rows)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """The frozen encoder's own pass, over features of this batch."""
        (frozen,) = self.frozen
        output = self.inner(inputs)
        tokens, mask = output.tokens, output.mask
        if tokens is None:
            tokens = output.pooled.unsqueeze(1)  # [batch, 1, width]
        if mask is None:
            mask = torch.ones_like(tokens[..., 0], dtype=torch.bool)
        features = {"tokens": tokens, "attention_mask": mask}
        if output.pooled is not None:
            features["pooled"] = output.pooled
        return frozen(features)

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """As the frozen encoder."""
        return self.frozen[0].make_head(spec)

    def check(self, task: Task | TaskSpec) -> None:
        """Whatever the inner encoder takes."""
        self.inner.check(task)

    def config(self) -> Config:
        """As the frozen encoder."""
        return self.frozen[0].config()

    @classmethod
    def from_tasks(cls, tasks: Sequence[Task], **options: object) -> Self:
        """No recipe can name it."""
        raise CrossTaskError(f"encoder: '{cls.name}' is no encoder by itself.")

    @classmethod
    def restore(cls, config: Options, folder: Path, *, trust_remote_code: bool = False) -> Self:
        """Nothing is saved of it."""
        raise CrossTaskError(f"encoder: '{cls.name}' is no encoder by itself.")
