"""A transformer run in two parts: its embeddings and first layers, and later the others on their hidden states.

The body's own forward method runs both times, with stand-ins for the layers that are skipped. It makes masks, positions
and biases of attention as it always does, so that any architecture whose layers pass on one hidden state can be split.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.models.modes import without_dropout
from crosstask.validation import shown

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TRIAL_SHAPE = (2, 3)
"""Examples and positions of the batch with which a split is checked; no architecture works with windows of three."""
TOLERANCE = 1e-4
"""Relative difference from the whole model: rounding is far less, a layer too few is more."""


def layer_list(body: nn.Module) -> nn.ModuleList | None:
    """The longest list of modules of one class: the layers, whatever the architecture calls them."""
    longest: nn.ModuleList | None = None
    for module in body.modules():
        if isinstance(module, nn.ModuleList) and len(module) > len(longest or ()):
            layer_types = {type(layer) for layer in module}
            if len(layer_types) == 1:
                longest = module
    return longest


class LayerSplit:
    """The layers of a body, of which the first are frozen.

    Making one checks with a few made-up tokens that both parts together give what the body gives.

    Args:
        body: as transformers makes it.
        num_frozen: how many layers are frozen; the embeddings are as well.

    Attributes:
        frozen_parameters: everything that the hidden states behind the frozen layers depend on, by name.
        frozen_modules: the largest modules that have no other parameters.
    """

    def __init__(self, body: "PreTrainedModel", num_frozen: int) -> None:
        layers = layer_list(body)
        if layers is None:
            raise _not_to_be_split(body, "it has no list of layers")
        if not 1 <= num_frozen <= len(layers):
            raise CrossTaskError(
                f"encoder: `freeze` must be true, false, or a number of layers from 1 to {len(layers)}, which is all "
                f"that this encoder has; found {shown(num_frozen)}."
            )
        self.layers = layers
        self.num_frozen = num_frozen
        self.rest: tuple[None, ...] | None = None  # what layers return behind hidden states, if they return a tuple
        self._check(body)
        self.frozen_parameters = self._find_parameters(body)
        self.frozen_modules = _modules_with(self.frozen_parameters.values(), body, layers)

    @property
    def frozen_layers(self) -> list[nn.Module]:
        """The first layers."""
        return list(self.layers)[: self.num_frozen]

    @property
    def trained_layers(self) -> list[nn.Module]:
        """The layers behind them."""
        return list(self.layers)[self.num_frozen :]

    def lower(self, body: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        """The hidden states behind the frozen layers, [batch, length, width], without dropout."""
        outputs: list[Any] = []
        handle = self.frozen_layers[-1].register_forward_hook(lambda layer, arguments, output: outputs.append(output))
        skipped = range(self.num_frozen, len(self.layers))
        try:
            with without_dropout(body), self._skipping(skipped, None):
                body(**inputs)
        finally:
            handle.remove()
        (output,) = outputs  # more than one where layers are run over and over
        return output[0] if isinstance(output, tuple) else output

    def upper(self, body: nn.Module, inputs: Mapping[str, Tensor], states: Tensor) -> Any:
        """What the body returns, from the hidden states behind the frozen layers."""
        with self._skipping(range(self.num_frozen), states):
            return body(**inputs)

    @contextmanager
    def _skipping(self, positions: Sequence[int], states: Tensor | None) -> Iterator[None]:
        """Inside it, the layers at these positions return `states`, or what comes in."""
        layers = list(self.layers)
        try:
            for position in positions:
                self.layers[position] = _SkippedLayer(layers[position], states, self.rest)
            yield
        finally:
            for position in positions:
                self.layers[position] = layers[position]

    def _check(self, body: "PreTrainedModel") -> None:
        inputs = _trial_inputs(body)
        with torch.no_grad(), without_dropout(body):
            try:
                undivided = self._whole_pass(body, inputs)
                states = self.lower(body, inputs)
                split = self.upper(body, inputs, states).last_hidden_state
            except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
                reason = str(error).strip().split("\n")[0]
                raise _not_to_be_split(body, f"its layers cannot be skipped ({shown(reason)})") from error
        if states.shape[:-1] != inputs["input_ids"].shape:
            raise _not_to_be_split(body, "its layers have no hidden state for each token")
        scale = max(float(undivided.abs().max()), 1.0)
        if not torch.allclose(split, undivided, rtol=0.0, atol=TOLERANCE * scale, equal_nan=True):
            raise _not_to_be_split(body, "its two parts together give other numbers than the whole")

    def _whole_pass(self, body: "PreTrainedModel", inputs: Mapping[str, Tensor]) -> Tensor:
        """The last hidden states of a body with all its layers, which also shows what a layer returns."""
        outputs: list[Any] = []
        handle = self.layers[0].register_forward_hook(lambda layer, arguments, output: outputs.append(output))
        try:
            last: Tensor = body(**inputs).last_hidden_state
        finally:
            handle.remove()
        if len(outputs) != 1:
            raise _not_to_be_split(body, "its layers do not run one after the other")
        if isinstance(outputs[0], tuple):
            self.rest = outputs[0][1:]
            if any(item is not None for item in self.rest):
                raise _not_to_be_split(body, "its layers pass on more than hidden states")
        return last

    def _find_parameters(self, body: nn.Module) -> dict[str, nn.Parameter]:
        """Everything that the hidden states behind the frozen layers depend on, by its name in the body."""
        parameters = dict(body.named_parameters())
        with torch.enable_grad():
            states = self.lower(body, _trial_inputs(body))
            gradients = torch.autograd.grad(states.sum(), list(parameters.values()), allow_unused=True)
        frozen: dict[str, nn.Parameter] = {}
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            if gradient is not None:
                frozen[name] = parameter
        return frozen


class _SkippedLayer(nn.Module):
    """Stands in place of a layer and returns hidden states in the layer's form: those it has, or those coming in."""

    def __init__(self, layer: nn.Module, states: Tensor | None, rest: tuple[None, ...] | None) -> None:
        super().__init__()
        self.layer = layer
        self.states = states
        self.rest = rest

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.layer, name)  # a body may ask its layers which mask they need

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        states = self.states
        if states is None:
            states = inputs[0] if inputs else next(iter(keywords.values()))
        return states if self.rest is None else (states, *self.rest)


def _modules_with(parameters: Iterable[nn.Parameter], body: nn.Module, layers: nn.ModuleList) -> list[nn.Module]:
    """The largest modules that have no other parameters than these, and do not hold the list of layers."""
    identities = {id(parameter) for parameter in parameters}
    modules: list[nn.Module] = []
    for child in body.children():
        of_child = {id(parameter) for parameter in child.parameters()}
        if of_child and of_child <= identities and layers not in child.modules():
            modules.append(child)
        else:
            modules += _modules_with(parameters, child, layers)
    return modules


def _trial_inputs(body: nn.Module) -> dict[str, Tensor]:
    """A few tokens, of which the last is padding."""
    config: Any = body.config
    count, length = TRIAL_SHAPE
    device = next(body.parameters()).device
    padding = getattr(config, "pad_token_id", None) or 0
    # Neither the padding's id nor one beyond the vocabulary.
    ids = (torch.arange(count * length, device=device) % (config.vocab_size - 1) + 1 + padding) % config.vocab_size
    ids = ids.view(count, length)
    mask = torch.ones_like(ids)
    ids[-1, -1], mask[-1, -1] = padding, 0
    return {"input_ids": ids, "attention_mask": mask}


def _not_to_be_split(body: nn.Module, reason: str) -> CrossTaskError:
    return CrossTaskError(
        f"encoder: `freeze` with a number of layers does not work for {type(body).__name__}: {reason}. Use "
        "`freeze: true` or leave it out."
    )
