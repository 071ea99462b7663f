"""What a transfer puts inside a model: modules that treat each task's rows of a fused pass in a way of their own."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from crosstask.registry import Registry

if TYPE_CHECKING:
    from crosstask.models.encoder import Representation
    from crosstask.models.multitask import Model

INSERTS = Registry(
    "crosstask",
    {
        "private-encoders": "transfer.adversarial:PrivateEncoders",
        "alignment": "transfer.alignment:AlignmentMatrices",
        "adapters": "transfer.adapters:AdapterInsert",
        "adapter-fusion": "transfer.adapter_fusion:FusionInsert",
        "probe-heads": "probing.heads:ProbeHeads",
    },
)
"""Inserts by the name under which a saved model lists them."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What may be known inside an encoder while it runs.

    - `rows`: whose examples stand where in the batch;
    - `adapting`: who adapts hidden states in this pass, if anybody does.
    """

    rows: Mapping[str, slice] = field(default_factory=dict)
    adapting: object = None


_surroundings: ContextVar[Surroundings] = ContextVar("surroundings", default=Surroundings())  # noqa: B039 - frozen


def surroundings() -> Surroundings:
    """Of the pass that is under way; without any, there are no rows."""
    return _surroundings.get()


class Surrounded:
    """Inside it an encoder runs in these surroundings. It can be entered any number of times."""

    def __init__(self, by: Surroundings) -> None:
        self.by = by
        self.before: list[Token[Surroundings]] = []

    def __enter__(self) -> None:
        self.before.append(_surroundings.set(self.by))

    def __exit__(self, *_: object) -> None:
        _surroundings.reset(self.before.pop())


def same_when_run_again() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """For gradient checkpoints, which run layers again in the backward pass, when the encoder's own pass is long over.

    What the first run of a layer is surrounded by, and what the second is.
    """
    return nullcontext(), Surrounded(surroundings())


@dataclass(frozen=True, eq=False)
class Site:
    """A place inside an encoder where hidden states of this width pass: into a module, or out of it."""

    module: nn.Module
    side: Literal["input", "output"]
    width: int

    def change(self, change: Callable[[Tensor], Tensor]) -> RemovableHandle:
        """Let every tensor that passes here go through `change`; the handle's `remove` ends that."""
        if self.side == "output":
            return self.module.register_forward_hook(_Output(change))
        return self.module.register_forward_pre_hook(_Input(change), with_kwargs=True)


class _Output:
    """A hook on what a module returns: a tensor, or a tuple that begins with one."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self.change = change

    def __call__(self, module: nn.Module, given: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (self.change(output[0]), *output[1:])
        return self.change(output)


class _Input:
    """A hook on the first thing that a module is given, by position or by name."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self.change = change

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if given:
            return (self.change(given[0]), *given[1:]), named
        first = next(iter(named))
        return given, {**named, first: self.change(named[first])}


class Insert(nn.Module):
    """A part of a model beside encoder and heads. It is saved and loaded with the model."""

    name: ClassVar[str]
    """How a saved model lists it."""

    @property
    def rows(self) -> Mapping[str, slice]:
        """Whose examples stand where in the batch, while the encoder runs."""
        return surroundings().rows

    def attach(self, model: "Model") -> None:
        """Take a place in the model: hooks at the encoder's sites, other heads."""

    def after(self, representation: "Representation", inputs: Mapping[str, Tensor]) -> "Representation":
        """Change what the encoder has made of a batch before the heads read it."""
        return representation

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The parameters that only this task trains."""
        return []

    def by_task(self, values: Tensor, change: Callable[[str, Tensor], Tensor]) -> Tensor:
        """Each task's rows changed in its own way, put together again."""
        if not self.rows:
            return values
        return torch.cat([change(task, values[at]) for task, at in self.rows.items()])

    def config(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        return {}

    @classmethod
    def restore(cls, config: Mapping[str, Any], model: "Model") -> Self:
        """The insert of a saved model, not yet attached; its weights are loaded by the caller."""
        return cls(**config)

    def for_task(self, model: "Model", task: str) -> "Insert | None":
        """What a model of this one task needs of it.

        `model` is a copy that may be changed: whatever can be folded into its weights exactly is, and then nothing is
        left (None).
        """
        return self
