"""The contract of an encoder: inputs made ready once, batches put together, representations out, heads on top."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.task import Form, Kind, Task, TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.hooks import Site

PreparedInput = dict[str, np.ndarray]
"""One example as numbers. Arrays under `word_positions` say where each word of a tagged sentence stands."""


@dataclass(frozen=True)
class Representation:
    """What an encoder makes of a batch; heads take from it what they need.

    - `tokens`: a vector per position, [batch, length, width], or None;
    - `pooled`: a vector per example, [batch, width], or None;
    - `mask`: true where a position holds a token, [batch, length], or None.
    """

    tokens: Tensor | None = None
    pooled: Tensor | None = None
    mask: Tensor | None = None

    def vector(self) -> Tensor:
        """A vector per example: the pooled one, or that of the first position."""
        if self.pooled is not None:
            return self.pooled
        assert self.tokens is not None
        return self.tokens[:, 0]

    def read_by(self, kind: Kind) -> Tensor:
        """What a task of this kind is told from: a vector per token for tagging, else one per example."""
        if kind != "tagging":
            return self.vector()
        assert self.tokens is not None
        return self.tokens

    def rows(self, start: int, stop: int) -> "Representation":
        """The part of the batch from row `start` up to `stop`: a task's share of a fused pass."""
        return Representation(
            *(None if part is None else part[start:stop] for part in (self.tokens, self.pooled, self.mask))
        )


class Encoder(nn.Module, ABC):
    """Turns inputs into representations that all tasks share.

    Its parameters are the shared ones; each task's own stand in the head that `make_head` returns.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    forms: ClassVar[frozenset[Form]]
    """Forms of input that it takes."""
    width: int
    """Size of a representation vector."""
    gives_tokens: ClassVar[bool] = False
    """Whether there is a vector per token, which tagging needs."""

    @classmethod
    @abstractmethod
    def from_tasks(cls, tasks: Sequence[Task], *_: Any, **options: Any) -> Self:
        """A new encoder for these tasks (vocabulary, input width). The options are the recipe's."""
        # `*_: Any` beside `**options: Any` is how a type checker knows that subclasses name their own options.

    @abstractmethod
    def prepare(self, inputs: Sequence[Any] | np.ndarray, form: Form) -> list[PreparedInput]:
        """Inputs as numbers, once per run: everything that does not change from epoch to epoch."""

    @abstractmethod
    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """One batch of prepared inputs, which may come from several tasks, as tensors."""

    @abstractmethod
    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch."""

    def sites(self) -> list[Site]:
        """Where hidden states pass: what enters the shared part first, then what each layer hands on, if it has any."""
        return []

    def site(self, layer: int, purpose: str) -> Site:
        """The place before layer `layer`, from 0; the last one is behind all layers."""
        sites = self.sites()
        if not sites:
            raise CrossTaskError(f"{purpose}: the encoder '{self.name}' has no place for it.")
        if not 0 <= layer < len(sites):
            last = len(sites) - 1
            raise CrossTaskError(
                f"{purpose}: there is no layer {layer}; the encoder '{self.name}' has "
                + (f"{last} layers: choose a number from 0 to {last}." if last else "none but its input: choose 0.")
            )
        return sites[layer]

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """A new head for a task; called as `head(representation, inputs)`, it returns logits."""
        return LinearHead(self.width, spec, dropout=float(self.config().get("dropout", 0.0)))

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Options that `restore` needs to build the same architecture, as plain data."""

    def save_assets(self, folder: Path) -> None:
        """Write what is neither weight nor option: a vocabulary, a tokenizer."""

    @classmethod
    @abstractmethod
    def restore(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """The architecture of a saved encoder; its weights are loaded by the caller."""

    def check(self, task: Task | TaskSpec) -> None:
        """Say why a task cannot be had with this encoder, if it cannot."""
        spec = task.spec if isinstance(task, Task) else task
        if spec.form not in self.forms:
            wanted = {"vector": "numeric vectors", "text": "texts", "pair": "pairs of texts", "tokens": "token lists"}
            raise CrossTaskError(
                f"Task '{spec.name}' has {wanted[spec.form]} as inputs; the encoder '{self.name}' takes "
                f"{', '.join(wanted[form] for form in sorted(self.forms))}."
            )
        if spec.kind == "tagging" and not self.gives_tokens:
            raise CrossTaskError(
                f"Task '{spec.name}' is tagging, which needs a vector per token; the encoder '{self.name}' gives one "
                "per text. Use 'lstm' or a Hugging Face encoder."
            )


def length_of(row: PreparedInput) -> int:
    """Number of positions of a prepared input; rows of like length make batches with little padding."""
    return max((len(array) for key, array in row.items() if key != "word_positions"), default=1)


def pad(arrays: Sequence[np.ndarray], value: float, *, length: int | None = None) -> Tensor:
    """Stack arrays that differ in their first axis, filled up at the end.

    >>> pad([np.array([1, 2]), np.array([3])], value=0).tolist()
    [[1, 2], [3, 0]]
    """
    longest = max(len(array) for array in arrays) if length is None else length
    out = np.full((len(arrays), longest, *arrays[0].shape[1:]), value, dtype=arrays[0].dtype)
    for row, array in zip(out, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(out)


class LinearHead(nn.Module):
    """Dropout and one linear layer, on the pooled vector or, for tagging, on every token."""

    def __init__(self, width: int, spec: TaskSpec, dropout: float = 0.0) -> None:
        super().__init__()
        self.tags = spec.kind == "tagging"
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, spec.num_outputs)

    def forward(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        vectors = representation.tokens if self.tags else representation.vector()
        return self.linear(self.dropout(vectors))
