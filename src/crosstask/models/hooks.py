"""Modules inside a model that treat each task's rows of a fused pass differently: adapters, alignment, heads."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from crosstask.errors import unknown

if TYPE_CHECKING:
    from crosstask.models.encoder import Representation
    from crosstask.models.multitask import Model

INSERT_PACKAGES = ("crosstask.transfer", "crosstask.probing")
"""Packages that list their inserts, each in a registry `INSERTS`. They stand above this one: named, not imported."""


def insert_class(name: str) -> "type[Insert]":
    """The insert that saved models list under this name; a file can ask for no class outside the registries."""
    inserts: dict[str, Mapping[str, type[Insert]]] = {}
    for package in INSERT_PACKAGES:
        registry = import_module(package).INSERTS
        inserts.update(dict.fromkeys(registry, registry))
    if name not in inserts:
        raise unknown("insert", name, inserts)
    return inserts[name][name]


@dataclass(frozen=True, eq=False)
class Site:
    """A point inside an encoder that hidden states of this width pass: the input or the output of a module."""

    module: nn.Module
    side: Literal["input", "output"]
    width: int

    def change(self, change: Callable[[Tensor], Tensor]) -> RemovableHandle:
        """Let every tensor that passes here go through `change`, until the handle's `remove` is called."""
        if self.side == "output":
            return self.module.register_forward_hook(partial(_change_output, change))
        return self.module.register_forward_pre_hook(partial(_change_input, change), with_kwargs=True)


# Hooks are partial functions, not closures: a copy of a model then calls the copies of its inserts.
def _change_output(change: Callable[[Tensor], Tensor], module: nn.Module, inputs: object, output: Any) -> Any:
    """A hook on what a module returns: a tensor, or a tuple that begins with one."""
    if isinstance(output, tuple):
        return (change(output[0]), *output[1:])
    return change(output)


def _change_input(
    change: Callable[[Tensor], Tensor], module: nn.Module, positional: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    """A hook on the first argument of a module, positional or by keyword."""
    if positional:
        return (change(positional[0]), *positional[1:]), keywords
    first = next(iter(keywords))
    return positional, {**keywords, first: change(keywords[first])}


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A change of the hidden states at one site of an encoder."""

    site: Site
    change: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class PassContext:
    """What may be known inside an encoder while it runs.

    - `rows`: each task's rows of the batch;
    - `adaptation`: a change of hidden states in this pass alone, if there is one.
    """

    rows: Mapping[str, slice] = field(default_factory=dict)
    adaptation: Adaptation | None = None


_context: ContextVar[PassContext] = ContextVar("pass_context", default=PassContext())  # noqa: B039 - frozen


def pass_context() -> PassContext:
    """That of the pass that is running; outside of any pass it has no rows."""
    return _context.get()


class running_in(AbstractContextManager[None]):  # noqa: N801 - used as a statement, like `contextlib.suppress`
    """Inside it an encoder runs in this context. It can be entered any number of times."""

    def __init__(self, context: PassContext) -> None:
        self.context = context
        self._entered: list[tuple[Token[PassContext], RemovableHandle | None]] = []

    def __enter__(self) -> None:
        adaptation, handle = self.context.adaptation, None
        # Contexts nest (a model's `encode` inside an adapted pass): the change must be applied once.
        if adaptation is not None and adaptation is not pass_context().adaptation:
            handle = adaptation.site.change(adaptation.change)
        self._entered.append((_context.set(self.context), handle))

    def __exit__(self, *_: object) -> None:
        token, handle = self._entered.pop()
        if handle is not None:
            handle.remove()
        _context.reset(token)


def recomputation_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of the first run of a layer and of its recomputation, for gradient checkpointing.

    Layers run again in the backward pass, when the encoder's own pass is over: the context has to be restored.
    """
    return nullcontext(), running_in(pass_context())


@dataclass(frozen=True, eq=False)
class PlainParts:
    """What an insert is in `models/plain/modeling_crosstask.py`, which needs no crosstask.

    - `config`: keys of its configuration;
    - `weights`: its parameters by their names there.
    """

    config: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)


class Insert(nn.Module):
    """A part of a model beside encoder and heads. It is saved and loaded with the model."""

    name: ClassVar[str]
    """How a saved model lists it."""
    reads_inputs: ClassVar[bool] = False
    """Whether `after` reads what the model's own encoder collates, and not its output alone."""

    @property
    def rows(self) -> Mapping[str, slice]:
        """Each task's rows of the batch, while the encoder runs."""
        return pass_context().rows

    def attach(self, model: "Model") -> None:
        """Connect to the model: hooks at the encoder's sites, other heads."""

    def after(self, representation: "Representation", inputs: Mapping[str, Tensor]) -> "Representation":
        """Change the encoder's representation of a batch before the heads read it."""
        return representation

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The parameters that only this task trains."""
        return []

    def by_task(self, values: Tensor, change: Callable[[str, Tensor], Tensor]) -> Tensor:
        """Apply `change(task, rows)` to each task's rows of a batch, [batch, ...]."""
        if not self.rows:
            return values
        return torch.cat([change(task, values[rows]) for task, rows in self.rows.items()])

    def config(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        return {}

    @classmethod
    def restore(cls, config: Mapping[str, Any], model: "Model") -> Self:
        """The insert of a saved model, not yet attached; its weights are loaded by the caller."""
        return cls(**config)

    def for_task(self, model: "Model", task: str) -> "Insert | None":
        """What a model of this one task needs of it.

        `model` is a copy that may be changed: whatever can be folded exactly into its weights is folded, and then no
        insert is needed (None).
        """
        return self

    def plain_parts(self) -> PlainParts | None:
        """What this insert is in a model that transformers loads, after `for_task`; None where it cannot be there."""
        return None


class ByTask(nn.ModuleList):
    """Modules by task. A list inside, not a dictionary: task names are the user's and may hold any character."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__(modules.values())
        self.tasks = list(modules)

    def of(self, task: str) -> nn.Module:
        """The module of a task."""
        return self[self.tasks.index(task)]

    def layers_of(self, task: str) -> nn.ModuleList:
        """The modules of a task, where it has one for each layer."""
        layers = self.of(task)
        assert isinstance(layers, nn.ModuleList)
        return layers

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """Those of the task's module; none where it has no module."""
        if task not in self.tasks:
            return []
        return list(self.of(task).parameters())

    def only(self, task: str) -> "ByTask":
        """The module of this task alone, if it has one."""
        return ByTask({task: self.of(task)} if task in self.tasks else {})

    def learn(self, tasks: Collection[str]) -> None:
        """Let the modules of these tasks train, and no others."""
        for task in self.tasks:
            self.of(task).requires_grad_(task in tasks)
