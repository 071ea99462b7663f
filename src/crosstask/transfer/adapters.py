"""Bottleneck adapters: small layers of each task's own inside a frozen encoder."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.limits import MAX_WIDTH
from crosstask.models.hooks import ByTask, Insert, PlainParts
from crosstask.papers import ADAPTERS, Paper
from crosstask.transfer.base import Ability, Setup, Transfer, WholeModel
from crosstask.validation import check_value, shown
from crosstask.weighting import validation as checks

if TYPE_CHECKING:
    from crosstask.models.encoder import Encoder
    from crosstask.models.multitask import Model


REFUSES_OTHERS = (
    "transfer '{name}' leaves nothing for the transfer '{other}' to act on: the encoder is frozen "
    "and every task has adapters of its own. Use one of the two."
)


class Bottleneck(nn.Module):
    """The change that an adapter makes to a hidden state: `W_up relu(W_down h + b_down) + b_up`, zero at the start.

    - `W_down`, `b_down`: `down`, from the width of the hidden states to `size`;
    - `W_up`, `b_up`: `up`, back again; both start at zero.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, size)
        self.up = nn.Linear(size, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """The change to be added to the hidden state, [..., width]."""
        return self.up(self.down(hidden).relu())  # [..., width] -> [..., size] -> [..., width]


def one_per_layer(module: Callable[[], nn.Module], layers: Sequence[int]) -> nn.ModuleList:
    """A new module for each layer."""
    return nn.ModuleList(module() for _ in layers)


class AdapterInsert(Insert):
    """Adapters in a model: behind each of `layers` a task's own bottleneck adds to the hidden states of its rows.

    A pooler that stands in the body is part of the head by its nature (BERT): each task gets a copy of its own.
    """

    name: ClassVar[str] = "adapters"

    def __init__(self, tasks: Sequence[str], layers: Sequence[int], width: int, size: int) -> None:
        super().__init__()
        self.layers, self.width, self.size = list(layers), width, size
        self.adapters = ByTask({task: one_per_layer(partial(Bottleneck, width, size), layers) for task in tasks})
        self.poolers = ByTask({})

    def attach(self, model: "Model") -> None:
        """Hooks behind the layers, and on the pooler where there is one."""
        for index, layer in enumerate(self.layers):
            model.encoder.site(layer, self.name).change(partial(self._adapt_batch, index))
        pooler = model.encoder.pooler_of_heads()
        if pooler is not None:
            poolers: dict[str, nn.Module] = {}
            for task, spec in model.specs.items():
                if spec.kind != "tagging":
                    poolers[task] = copy.deepcopy(pooler)
            self.poolers = ByTask(poolers)
            pooler.register_forward_hook(self._pool_batch)

    def _adapt_batch(self, index: int, hidden: Tensor) -> Tensor:
        return self.by_task(hidden, partial(self.adapt, index))  # [batch, length, width]

    def _pool_batch(self, pooler: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Each task's rows through its own copy of the pooler."""

        def pool(task: str, hidden: Tensor) -> Tensor:
            if task in self.poolers.tasks:
                return self.poolers.of(task)(hidden)
            return pooler.forward(hidden)  # not by a call, which would run this hook again

        return self.by_task(inputs[0], pool) if self.rows else output

    def adapt(self, index: int, task: str, hidden: Tensor) -> Tensor:
        """A task's hidden states, [rows, length, width], behind its adapter of this index, if it has adapters."""
        if task not in self.adapters.tasks:
            return hidden
        return hidden + self.adapters.layers_of(task)[index](hidden)

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The task's bottlenecks and its pooler."""
        return [*self.adapters.parameters_of(task), *self.poolers.parameters_of(task)]

    def config(self) -> dict[str, Any]:
        """Tasks, layers and sizes."""
        return {"tasks": self.adapters.tasks, "layers": self.layers, "width": self.width, "size": self.size}

    def for_task(self, model: "Model", task: str) -> Self:
        """The task's own adapters: a nonlinearity cannot be folded into the layers' weights."""
        self._move_pooler(model, task)
        self.adapters, self.poolers = self.adapters.only(task), self.poolers.only(task)
        return self

    def _move_pooler(self, model: "Model", task: str) -> None:
        """Give the pooler in the body the weights of the task's own."""
        pooler = model.encoder.pooler_of_heads()
        if pooler is not None and task in self.poolers.tasks:
            pooler.load_state_dict(self.poolers.of(task).state_dict())

    def plain_parts(self) -> PlainParts | None:
        """Adapters behind layers; nothing for a task that has none."""
        if not self.adapters.tasks:
            return PlainParts()
        return PlainParts({"adapters": self._plain_config(1, fused=False)}, self._adapter_weights())

    def _plain_config(self, count: int, *, fused: bool) -> dict[str, Any]:
        return {"layers": self.layers, "size": self.size, "count": count, "fused": fused}

    def _adapter_weights(self) -> dict[str, Tensor]:
        """By layer, then by task."""
        weights: dict[str, Tensor] = {}
        for number, task in enumerate(self.adapters.tasks):
            for layer, adapter in enumerate(self.adapters.layers_of(task)):
                for name, tensor in adapter.state_dict().items():
                    weights[f"adapters.{layer}.adapters.{number}.{name}"] = tensor
        return weights


class Adapters(Transfer):
    """The encoder is frozen; every task trains small layers of its own inside it (Houlsby et al. 2019).

    Behind each layer, for every position,

        h <- h + W_up relu(W_down h + b_down) + b_up

    - `h`: the hidden state that the layer returns;
    - `W_down`, `W_up`: `Bottleneck.down` and `Bottleneck.up` of the task and the layer. `up` starts at zero, so that
      training begins with the pretrained encoder.

    One encoder then serves all tasks, in one pass, and no task disturbs another: sources cannot help either. For that
    there is `adapter-fusion`.

    Args:
        reduction: how many times narrower than the hidden states a bottleneck is.
        size: width of the bottleneck, instead of `reduction`.
        layers: numbers of the layers, from 1, that have adapters; all when left out.

    Differs from the paper: one adapter per layer, behind it, where the paper has two inside each layer, before its
    normalizations (one was enough for Pfeiffer et al. 2021, whose `reduction` of 16 and ReLU these are); normalizations
    are frozen; `W_up` starts at exactly zero instead of close to it. Where an architecture keeps the first layer
    of its head in the body (BERT's pooler), each task trains a copy of it.
    """

    name: ClassVar[str] = "adapters"
    summary: ClassVar[str] = "a frozen Hugging Face encoder with small layers of each task's own inside"
    needs_whole_model = WholeModel.NEVER
    paper: ClassVar[Paper | None] = ADAPTERS
    provides = frozenset({Ability.ANY, Ability.FROZEN_ENCODER})
    excludes: ClassVar[Mapping[Ability, str]] = {Ability.ANY: REFUSES_OTHERS}

    def __init__(self, *, reduction: int = 16, size: int | None = None, layers: Sequence[int] | None = None) -> None:
        super().__init__()
        self.shape = AdapterShape(self.name, reduction, size, layers)

    def start(self, setup: Setup) -> None:
        """Freeze the encoder and put adapters into it."""
        names = [task.name for task in setup.tasks]
        setup.model.insert(AdapterInsert(names, *self.shape.within(setup.model.encoder)))
        setup.model.encoder.requires_grad_(False)
        sources = [name for name in names if name not in setup.targets]
        if sources:
            self.notes = (
                f"every task trains adapters of its own, so what {', '.join(sources)} learned does not reach the "
                "target; the transfer 'adapter-fusion' makes use of it",
            )


class AdapterShape:
    """The user's options for where adapters stand and how wide they are."""

    def __init__(self, method: str, reduction: int, size: int | None, layers: Sequence[int] | None) -> None:
        self.method = method
        check_value(f"transfer '{method}'", "layers", Sequence[int] | None, layers)
        self.reduction = self._count("reduction", reduction)
        self.size = None if size is None else self._count("size", size)
        self.layers: list[int] | None = None
        if layers is not None:
            self.layers = sorted({self._count("layers", layer) for layer in layers})
            if not self.layers:
                raise CrossTaskError(f"transfer '{method}': `layers` names no layer; leave it out for all of them.")

    def _count(self, option: str, value: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            rule = "must hold whole numbers" if option == "layers" else "must be a whole number"
            raise CrossTaskError(f"transfer '{self.method}': `{option}` {rule} from 1 up, found {shown(value)}.")
        return checks.check_count(self.method, option, value, at_most=MAX_WIDTH, what="transfer")

    def within(self, encoder: "Encoder") -> tuple[list[int], int, int]:
        """Layers, width of the hidden states and of the bottleneck; an error where the encoder can have no adapters."""
        method = f"transfer '{self.method}'"
        if encoder.precomputes_features:
            raise CrossTaskError(
                f"{method} changes what passes between an encoder's layers, but with `freeze` only the features behind "
                "them are kept: leave out `freeze`, the adapters freeze the encoder themselves."
            )
        numbers = encoder.site_numbers()[1:]  # of the layers
        if not numbers:
            raise CrossTaskError(
                f"{method} needs an encoder with layers between which adapters can stand; the encoder '{encoder.name}' "
                "has none: use 'minilm' or another Hugging Face encoder."
            )
        if encoder.has_lora:
            raise CrossTaskError(
                f"{method} does not go with `lora`, which trains updates of the very weights that adapters leave as "
                "they are: leave one of them out."
            )
        layers = self.layers or list(numbers)
        for layer in layers:
            encoder.site(layer, method)
        return layers, encoder.width, self.size or max(1, encoder.width // self.reduction)
