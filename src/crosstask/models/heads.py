"""Heads: from shared representations to the logits of one task."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.errors import CrossTaskError
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
    """The head of `AutoModelFor...Classification`: that model, with a slot in place of its body.

    A decoder's head for texts reads the vector of the last token alone. That is the pooled vector here, so that padding
    on either side and features of a frozen body are all the same to it.
    """

    def __init__(self, config: "PretrainedConfig", spec: TaskSpec, trust_remote_code: bool = False) -> None:
        super().__init__()
        is_tagging = spec.kind == "tagging"
        with quiet_transformers():
            model = _without_weights(labeled_config(config, spec), is_tagging, trust_remote_code)
            model.to_empty(device="cpu")
            model.apply(model._init_weights)
        self.model = model
        self.reads_last_token = not is_tagging and reads_last_token(config, trust_remote_code)

    def forward(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        tokens, pooled, arguments = representation.tokens, representation.pooled, model_inputs(inputs)
        if self.reads_last_token:
            assert pooled is not None
            # A text of one token, which is no padding: so its vector is read.
            tokens, pooled = pooled.unsqueeze(1), None
            is_token = int(self.model.config.get_text_config().pad_token_id == 0)
            arguments = {"input_ids": torch.full(tokens.shape[:2], is_token, device=tokens.device)}
        elif "input_ids" not in arguments and tokens is not None:
            # Features of a frozen body: some heads still need the batch's shape.
            arguments["inputs_embeds"] = tokens
        slot = getattr(self.model, self.model.base_model_prefix)
        slot.output = _BodyOutput(tokens, pooled)
        try:
            return self.model(**arguments).logits
        finally:
            slot.output = None


_last_token_readers: dict[tuple[object, ...], bool] = {}  # by configuration


def reads_last_token(config: "PretrainedConfig", trust_remote_code: bool = False) -> bool:
    """Whether the architecture's own head for texts reads the vector of the last token alone, as those of decoders do.

    Transformers do not declare that, so the head is tried on made-up vectors: its gradient shows what it has read.
    """
    key = (_key_of(config), trust_remote_code)
    if key not in _last_token_readers:
        if len(_last_token_readers) == MAX_KEPT_MODELS:
            _last_token_readers.clear()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                _last_token_readers[key] = _only_last_token_counts(config, trust_remote_code)
        except CrossTaskError:  # sizes that are refused
            raise
        # A head that cannot be tried this way is another kind of head; code of a stranger may raise anything.
        except Exception:
            _last_token_readers[key] = False
    return _last_token_readers[key]


def _only_last_token_counts(config: "PretrainedConfig", trust_remote_code: bool) -> bool:
    """Two texts in two paddings: of the vectors of all positions, those of the last tokens must be all that counts."""
    padding, width = 0, int(config.get_text_config().hidden_size)
    config = copy.deepcopy(config)
    config.get_text_config().pad_token_id = padding
    with quiet_transformers():
        model = _outline(config, False, trust_remote_code).to_empty(device="cpu").eval()
    generator = torch.Generator().manual_seed(0)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.normal_(generator=generator)
    ids = torch.tensor([[1, 1, padding], [padding, 1, 1]])
    tokens = torch.randn(*ids.shape, width, generator=generator, requires_grad=True)
    getattr(model, model.base_model_prefix).output = _BodyOutput(tokens, tokens[:, 0])
    logits = model(input_ids=ids, attention_mask=(ids != padding).long()).logits
    (gradient,) = torch.autograd.grad(logits.sum(), tokens)
    is_read = gradient.abs().sum(-1) > 0  # [texts, positions]
    return is_read.tolist() == [[False, True, False], [False, False, True]]


def last_token_positions(inputs: Mapping[str, Tensor], padding: int | None) -> Tensor:
    """Position of each text's last token, [batch], wherever its padding stands.

    As transformers counts: a token of the padding's own id is no token, and a text of nothing else has its first
    position.

    >>> ids, mask = torch.tensor([[5, 6, 0, 0], [0, 0, 7, 8]]), torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]])
    >>> last_token_positions({"input_ids": ids, "attention_mask": mask}, padding=0).tolist()
    [1, 3]
    """
    is_token = inputs["attention_mask"].bool()
    if padding is not None:
        is_token = is_token & (inputs["input_ids"] != padding)
    positions = torch.arange(is_token.shape[1], device=is_token.device)
    return (positions * is_token).argmax(1)


_models_without_weights: dict[tuple[object, ...], "PreTrainedModel"] = {}
"""By configuration. Those of five tasks took half of the time to make a model, and runs of a study have the same."""
MAX_KEPT_MODELS = 256


def _without_weights(config: "PretrainedConfig", is_tagging: bool, trust_remote_code: bool) -> "PreTrainedModel":
    """A model with a slot in place of its body, whose tensors have no memory yet."""
    key = (_key_of(config), is_tagging, trust_remote_code)
    if key not in _models_without_weights:
        model = _outline(config, is_tagging, trust_remote_code)
        if len(_models_without_weights) == MAX_KEPT_MODELS:
            _models_without_weights.clear()
        _models_without_weights[key] = model
    return copy.deepcopy(_models_without_weights[key])


def _outline(config: "PretrainedConfig", is_tagging: bool, trust_remote_code: bool) -> "PreTrainedModel":
    # A large body is never allocated only to be thrown away.
    with torch.device("meta"):
        model: PreTrainedModel = auto_class(is_tagging).from_config(config, trust_remote_code=trust_remote_code)
    setattr(model, model.base_model_prefix, _Slot())
    return model


def _key_of(config: "PretrainedConfig") -> tuple[object, ...]:
    return (type(config), repr(sorted(vars(config).items())))


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


def has_stock_head(config: "PretrainedConfig", tagging: bool, trust_remote_code: bool = False) -> bool:
    """Whether there is a token or sequence classifier of this architecture."""
    auto = auto_class(tagging)
    if trust_remote_code and auto.__name__ in (getattr(config, "auto_map", None) or {}):
        return True
    return auto._model_mapping is not None and type(config) in auto._model_mapping


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
