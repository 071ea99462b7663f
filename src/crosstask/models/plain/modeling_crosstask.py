"""A text classifier or tagger that transformers has no class of its own for. Needs torch and transformers alone.

Written by crosstask beside the weights. `config.json` says which of these parts there are:

- `base`: the encoder, any that transformers knows by its `model_type`;
- `adapters`, `alignment`: layers between those of the encoder;
- `pooling`: "mean" of the token vectors, the "first" or the "last" of them (a token with the id `padding` does not
  count), the encoder's own "pooler", or "tokens", all of them; with "stock" the head is that of the architecture's own
  classifier, and none of the parts below is there;
- `private`: a second encoder of the same architecture, whose vectors stand behind those of the first;
- `shared_width`: a layer with ReLU behind that;
- `sources`: linear layers with softmax that read the same vector, whose probabilities stand behind it;
- `classifier`: the linear layer that gives the logits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class CrossTaskConfig(PreTrainedConfig):
    """Which parts there are, and the configuration of the encoder (`base`)."""

    model_type = "crosstask"

    def __init__(
        self,
        base: dict[str, Any] | None = None,
        base_is_tagger: bool = False,
        pooling: str = "mean",
        shared_width: int = 0,
        sources: list[int] | None = None,
        adapters: dict[str, Any] | None = None,
        alignment: int | None = None,
        private: bool = False,
        padding: int | None = None,
        **others: Any,
    ) -> None:
        self.base = base or {"model_type": "bert"}
        self.base_is_tagger = base_is_tagger
        self.pooling = pooling
        self.shared_width = shared_width
        self.sources = sources or []
        self.adapters = adapters
        self.alignment = alignment
        self.private = private
        self.padding = padding
        super().__init__(**others)

    def base_config(self) -> PreTrainedConfig:
        """The encoder's configuration, with this model's labels."""
        options = {key: value for key, value in self.base.items() if key not in ("model_type", "auto_map")}
        config = AutoConfig.for_model(self.base["model_type"], **options)
        config.num_labels = len(self.id2label or ())
        config.problem_type = self.problem_type
        return config


class Adapter(nn.Module):
    """What an adapter adds to a hidden state: `up relu(down h)`."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, size)
        self.up = nn.Linear(size, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        return self.up(self.down(hidden).relu())


class AdapterLayer(nn.Module):
    """The adapters behind one layer of the encoder; where they are fused, an attention chooses among them."""

    def __init__(self, width: int, size: int, count: int, fused: bool) -> None:
        super().__init__()
        self.adapters = nn.ModuleList(Adapter(width, size) for _ in range(count))
        self.fused = fused
        if fused:
            self.query = nn.Linear(width, width, bias=False)
            self.key = nn.Linear(width, width, bias=False)
            self.value = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """The hidden states, [batch, length, width], with what the adapters add."""
        # [batch, length, adapters, width]
        changes = torch.stack([adapter(hidden) for adapter in self.adapters], dim=-2)
        if not self.fused:
            return hidden + changes.sum(-2)
        scores = self.key(changes) @ self.query(hidden).unsqueeze(-1)  # [batch, length, adapters, 1]
        attention = scores.squeeze(-1).softmax(-1)
        return hidden + (attention.unsqueeze(-2) @ self.value(changes)).squeeze(-2)


class CrossTaskModel(PreTrainedModel):
    """The encoder, what stands between its layers, and the head."""

    config_class = CrossTaskConfig
    base_model_prefix = "model"
    is_tagger = False

    def __init__(self, config: CrossTaskConfig) -> None:
        super().__init__(config)
        base = config.base_config()
        width = int(base.hidden_size)
        self.model = self._encoder(base)
        self.adapters = nn.ModuleList()
        if config.adapters is not None:
            layers, size, count, fused = (config.adapters[key] for key in ("layers", "size", "count", "fused"))
            for number in layers:
                self.adapters.append(AdapterLayer(width, size, count, fused))
                _change_layer(self.model, number, self.adapters[-1])
        if config.alignment is not None:
            self.alignment = nn.Linear(width, width, bias=False)
            _change_layer(self.model, config.alignment, self.alignment)
        if config.pooling != "stock":
            if config.private:
                self.private = self._encoder(base)
                width *= 2
            if config.shared_width:
                self.shared = nn.Sequential(nn.Linear(width, config.shared_width), nn.ReLU())
                width = config.shared_width
            self.sources = nn.ModuleList(nn.Linear(width, count) for count in config.sources)
            self.classifier = nn.Linear(width + sum(config.sources), len(config.id2label or ()))
        self.post_init()

    def _encoder(self, base: PreTrainedConfig) -> PreTrainedModel:
        """The architecture's own classifier, or the encoder inside it."""
        is_tagger = self.is_tagger if self.config.pooling == "stock" else self.config.base_is_tagger
        auto = AutoModelForTokenClassification if is_tagger else AutoModelForSequenceClassification
        try:
            classifier = auto.from_config(base)
        except ValueError:  # of this architecture there is none
            return AutoModel.from_config(base)
        if self.config.pooling == "stock":
            return classifier
        return getattr(classifier, classifier.base_model_prefix)

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """[batch, labels], or [batch, length, labels] of a tagger."""
        if self.config.pooling == "stock":
            return self.model(**inputs).logits
        vectors = self._vectors(self.model, inputs)
        if self.config.private:
            vectors = torch.cat([vectors, self._vectors(self.private, inputs)], dim=-1)
        if self.config.shared_width:
            vectors = self.shared(vectors)
        columns = [vectors]
        for source in self.sources:
            columns.append(source(vectors).softmax(-1))
        return self.classifier(torch.cat(columns, dim=-1))

    def _vectors(self, encoder: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
        """What the head reads: a vector per text, [batch, width], or per token, [batch, length, width]."""
        output = encoder(**inputs)
        tokens = output.last_hidden_state
        if self.config.pooling == "tokens":
            return tokens
        if self.config.pooling == "first":
            return tokens[:, 0]
        if self.config.pooling == "pooler":
            return output.pooler_output
        if self.config.pooling == "last":
            return tokens[torch.arange(len(tokens), device=tokens.device), self._last_positions(inputs)]
        mask = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)  # [batch, length, 1]
        return (tokens * mask).sum(1) / mask.sum(1)

    def _last_positions(self, inputs: dict[str, Tensor]) -> Tensor:
        """Position of each text's last token, [batch], wherever its padding stands."""
        is_token = inputs["attention_mask"].bool()
        if self.config.padding is not None:
            is_token = is_token & (inputs["input_ids"] != self.config.padding)
        positions = torch.arange(is_token.shape[1], device=is_token.device)
        return (positions * is_token).argmax(1)

    def _named_inputs(self, *values: Tensor | None) -> dict[str, Tensor]:
        inputs = {name: value for name, value in zip(INPUTS, values, strict=True) if value is not None}
        if "attention_mask" not in inputs:
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        return inputs


class CrossTaskForSequenceClassification(CrossTaskModel):
    """Logits per text."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """As any text classifier of transformers."""
        logits = self.logits(self._named_inputs(input_ids, attention_mask, token_type_ids))
        loss = None if labels is None else self.loss_function(labels, logits, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)  # type: ignore[arg-type]


class CrossTaskForTokenClassification(CrossTaskModel):
    """Logits per token."""

    is_tagger = True

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> TokenClassifierOutput:
        """As any tagger of transformers."""
        logits = self.logits(self._named_inputs(input_ids, attention_mask, token_type_ids))
        loss = None if labels is None else self.loss_function(logits, labels, self.config)
        return TokenClassifierOutput(loss=loss, logits=logits)  # type: ignore[arg-type]


def _change_layer(model: nn.Module, number: int, change: Callable[[Tensor], Tensor]) -> None:
    """Let the output of a layer of the encoder, counted from 1, go through `change`; 0 is the input of the first."""
    layers = _layers(model)
    if number:
        layers[number - 1].register_forward_hook(partial(_change_output, change))
    else:
        layers[0].register_forward_pre_hook(partial(_change_input, change), with_kwargs=True)


def _layers(model: nn.Module) -> nn.ModuleList:
    """The longest list of modules of one class."""
    longest = nn.ModuleList()
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) > len(longest):
            layer_types = {type(layer) for layer in module}
            if len(layer_types) == 1:
                longest = module
    return longest


def _change_output(change: Callable[[Tensor], Tensor], layer: nn.Module, inputs: object, output: Any) -> Any:
    if isinstance(output, tuple):
        return (change(output[0]), *output[1:])
    return change(output)


def _change_input(change: Callable[[Tensor], Tensor], layer: nn.Module, positional: tuple[Any, ...], named: Any) -> Any:
    if positional:
        return (change(positional[0]), *positional[1:]), named
    first = next(iter(named))
    return positional, {**named, first: change(named[first])}
