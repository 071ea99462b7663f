"""Heads that read features alone: one linear layer, or one that also reads what the sources' linear layers say."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from crosstask.data.task import TaskSpec
from crosstask.models.encoder import LinearHead, Representation
from crosstask.models.hooks import Insert

if TYPE_CHECKING:
    from crosstask.models.multitask import Model


def outputs(spec: TaskSpec, logits: Tensor) -> Tensor:
    """What a source's model says, as features: log-odds of two classes or of each label, probabilities of more classes,
    or the number; [..., columns].

    >>> outputs(TaskSpec("mood", "classification", "text", ("-", "+")), torch.tensor([[1.0, 3.0]])).tolist()
    [[2.0]]
    """
    if spec.kind in ("regression", "multilabel"):
        return logits
    return logits[..., 1:] - logits[..., :1] if len(spec.labels) == 2 else logits.softmax(-1)


def num_columns(spec: TaskSpec) -> int:
    """How many features `outputs` makes of a source."""
    return 1 if spec.kind not in ("regression", "multilabel") and len(spec.labels) == 2 else spec.num_outputs


class StackedHead(nn.Module):
    """One linear layer on the features and on the outputs of the sources' linear layers for the same features.

    With features x and the layers `A_s x + a_s` of the sources, which it holds itself (`sources`), the logits are

        W [x; outputs(A_1 x + a_1); outputs(A_2 x + a_2); ...] + b        (`linear`: W and b).

    For tagging x is a word's vector. A source whose unit is another one (text and word) is read at the same vector: a
    linear layer's mean over the words is its value at their mean.
    """

    def __init__(self, width: int, spec: TaskSpec, sources: Sequence[TaskSpec]) -> None:
        super().__init__()
        self.tags = spec.kind == "tagging"
        self.source_specs = tuple(sources)
        self.sources = nn.ModuleList(nn.Linear(width, source.num_outputs) for source in sources)
        self.linear = nn.Linear(width + sum(map(num_columns, sources)), spec.num_outputs)

    def forward(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        vectors = representation.tokens if self.tags else representation.vector()
        assert vectors is not None
        said = [outputs(spec, layer(vectors)) for spec, layer in zip(self.source_specs, self.sources, strict=True)]
        return self.linear(torch.cat([vectors, *said], dim=-1))


class ProbeHeads(Insert):
    """Puts these heads in the place of those that the encoder would make.

    Args:
        heads: by task the sources that its head reads, as plain data; none for one linear layer.
    """

    name: ClassVar[str] = "probe-heads"

    def __init__(self, heads: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        super().__init__()
        self.heads = {task: [dict(source) for source in sources] for task, sources in heads.items()}

    def attach(self, model: "Model") -> None:
        """Replace the heads."""
        device = model.device()
        for place, (task, spec) in enumerate(model.specs.items()):
            if task in self.heads:
                sources = [TaskSpec.from_json(source) for source in self.heads[task]]
                width = model.encoder.width
                head = StackedHead(width, spec, sources) if sources else LinearHead(width, spec)
                model.heads[place] = head.to(device)

    def config(self) -> dict[str, Any]:
        """The constructor's parameters."""
        return {"heads": self.heads}

    def for_task(self, model: "Model", task: str) -> Self | None:
        """That task's head alone."""
        return type(self)({task: self.heads[task]}) if task in self.heads else None
