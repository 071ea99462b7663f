"""Heads: from shared representations to the logits of one task."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.models.representation import Representation

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of a transformer, as its tokenizer names them."""


def model_inputs(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those inputs of a batch that a transformer takes."""
    return {key: inputs[key] for key in MODEL_INPUTS if key in inputs}


class LinearHead(nn.Module):
    """Dropout and one linear layer, on the pooled vector or, for tagging, on every token."""

    def __init__(self, width: int, spec: TaskSpec, dropout: float = 0.0) -> None:
        super().__init__()
        self.kind = spec.kind
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, spec.num_outputs)

    def forward(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        return self.linear(self.dropout(representation.read_by(self.kind)))


@torch.no_grad()
def multiply_input(layer: nn.Module, matrix: Tensor) -> None:
    """Change a linear layer so that it reads x as it would have read x R: x R W' = x (W R')'."""
    assert isinstance(layer, nn.Linear)
    layer.weight.copy_(layer.weight @ matrix.T)


def last_layer(module: nn.Module, num_outputs: int) -> nn.Linear | None:
    """The linear layer whose outputs are the logits, as far as the module has one."""
    last: nn.Linear | None = None
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and layer.out_features == num_outputs:
            last = layer
    return last


@torch.no_grad()
def fold_logit_change(head: nn.Module, num_outputs: int, temperature: float, shift: Sequence[float] = ()) -> bool:
    """Change a head so that its logits z become (z - shift) / temperature; False where its last layer cannot."""
    layer = last_layer(head, num_outputs)
    if layer is None or (shift and layer.bias is None):
        return False
    if shift:
        layer.bias.sub_(torch.tensor(shift).to(layer.bias))
    layer.weight.div_(temperature)
    if layer.bias is not None:
        layer.bias.div_(temperature)
    return True


class StockHead(nn.Module):
    """The head of `AutoModelFor...Classification`: that model, with a slot in place of its body."""

    def __init__(self, config: "PretrainedConfig", spec: TaskSpec, trust_remote_code: bool = False) -> None:
        super().__init__()
        with quiet_transformers():
            model = _without_weights(labeled_config(config, spec), spec.kind == "tagging", trust_remote_code)
            model.to_empty(device="cpu")
            model.apply(model._init_weights)
        self.model = model

    def forward(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        slot = getattr(self.model, self.model.base_model_prefix)
        slot.output = _BodyOutput(representation.tokens, representation.pooled)
        arguments = model_inputs(inputs)
        if "input_ids" not in arguments and representation.tokens is not None:
            # Features of a frozen body: some heads still need the batch's shape.
            arguments["inputs_embeds"] = representation.tokens
        try:
            return self.model(**arguments).logits
        finally:
            slot.output = None


_models_without_weights: dict[tuple[object, ...], "PreTrainedModel"] = {}
"""By configuration. Those of five tasks took half of the time to make a model, and runs of a study have the same."""
MAX_KEPT_MODELS = 256


def _without_weights(config: "PretrainedConfig", is_tagging: bool, trust_remote_code: bool) -> "PreTrainedModel":
    """A model with a slot in place of its body, whose tensors have no memory yet."""
    key = (type(config), repr(sorted(vars(config).items())), is_tagging, trust_remote_code)
    if key not in _models_without_weights:
        # A large body is never allocated only to be thrown away.
        with torch.device("meta"):
            model = auto_class(is_tagging).from_config(config, trust_remote_code=trust_remote_code)
        setattr(model, model.base_model_prefix, _Slot())
        if len(_models_without_weights) == MAX_KEPT_MODELS:
            _models_without_weights.clear()
        _models_without_weights[key] = model
    return copy.deepcopy(_models_without_weights[key])


class _BodyOutput(tuple[Tensor | None, ...]):
    """What heads expect of a body: by position or by name; anything that this body does not have is None."""

    last_hidden_state: Tensor | None
    pooler_output: Tensor | None

    def __new__(cls, tokens: Tensor | None, pooled: Tensor | None) -> "_BodyOutput":
        values = (tokens,) if pooled is None else (tokens, pooled)
        output = super().__new__(cls, values)
        output.last_hidden_state = tokens
        output.pooler_output = pooled
        return output

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Slot(nn.Module):
    """Stands in place of the body and returns what the shared body has computed."""

    output: _BodyOutput | None = None

    def forward(self, *_: object, **__: object) -> _BodyOutput | None:
        return self.output


def labeled_config(config: "PretrainedConfig", spec: TaskSpec) -> "PretrainedConfig":
    """A copy of an architecture's configuration with the task's outputs and label names."""
    config = copy.deepcopy(config)
    names = spec.labels or (spec.name,)
    config.num_labels = spec.num_outputs
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in enumerate(names)}
    config.problem_type = "single_label_classification"
    if spec.kind == "regression":
        config.problem_type = "regression"
    elif spec.kind == "multilabel":
        config.problem_type = "multi_label_classification"
    return config


def auto_class(tagging: bool) -> "type[_BaseAutoModelClass]":
    """The class of transformers that makes token or sequence classifiers."""
    import transformers

    if tagging:
        return transformers.AutoModelForTokenClassification
    return transformers.AutoModelForSequenceClassification


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the notes and bars that loading prints: new heads are meant to be new."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
