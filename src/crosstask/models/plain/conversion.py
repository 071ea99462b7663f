"""From a model of one task to the same model without crosstask (`modeling_crosstask.py`)."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.models.encoder import Encoder
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder, last_layer_with_bias, undo_standardization
from crosstask.models.encoders.thawed import ThawedEncoder
from crosstask.models.heads import LinearHead, StockHead, labeled_config, quiet_transformers
from crosstask.models.hooks import PlainParts
from crosstask.models.multitask import Model
from crosstask.models.stacked_head import StackedHead

if TYPE_CHECKING:
    from crosstask.models.plain.modeling_crosstask import CrossTaskModel

CODE_FILE = "modeling_crosstask.py"
AUTO_CONFIG = "modeling_crosstask.CrossTaskConfig"
WHERE_FROM = ("_name_or_path", "transformers_version", "architectures", "auto_map", "_commit_hash")
"""What a configuration says of its files, and not of what it computes."""


def plain_model(model: Model, spec: TaskSpec) -> "CrossTaskModel | None":
    """The same model of this one task as a class of transformers that needs no crosstask; None where that has no place
    for a part of it.

    Args:
        model: with an undivided encoder.
        spec: the task. The outputs of a regression task are in the data's units.
    """
    shape = _Shape.of(model, spec)
    if shape is None:
        return None
    from crosstask.models.plain import modeling_crosstask

    plain_class: type[CrossTaskModel] = modeling_crosstask.CrossTaskForSequenceClassification
    auto_name = "AutoModelForSequenceClassification"
    if spec.kind == "tagging":
        plain_class = modeling_crosstask.CrossTaskForTokenClassification
        auto_name = "AutoModelForTokenClassification"
    labeled = labeled_config(shape.base.hf_config, spec)
    config = modeling_crosstask.CrossTaskConfig(
        **shape.config,
        id2label=labeled.id2label,
        label2id=labeled.label2id,
        problem_type=labeled.problem_type,
        architectures=[plain_class.__name__],
        auto_map={"AutoConfig": AUTO_CONFIG, auto_name: f"{Path(CODE_FILE).stem}.{plain_class.__name__}"},
    )
    with quiet_transformers(), torch.random.fork_rng(devices=[]):  # initial weights are replaced at once
        plain = plain_class(config)
    names = set(plain.state_dict())
    # A body that serves texts too may hold a pooler that the token classifier of its architecture lacks.
    plain.load_state_dict({name: tensor for name, tensor in shape.weights(plain).items() if name in names})
    if spec.kind == "regression":
        undo_standardization(plain, spec)
    return plain.eval()


def write_code(folder: Path) -> None:
    """Put the code of these models into a folder."""
    code = (resources.files("crosstask.models.plain") / CODE_FILE).read_text(encoding="utf-8")
    (folder / CODE_FILE).write_text(code, encoding="utf-8")


def parts_in_words(config: Mapping[str, Any]) -> list[str]:
    """What transformers has no class for in a model with this configuration.

    >>> parts_in_words({"pooling": "mean", "shared_width": 128})
    ['the mean of the token vectors', 'a shared layer behind the encoder']
    """
    words: list[str] = []
    if config.get("pooling") == "mean":
        words.append("the mean of the token vectors")
    if config.get("pooling") == "last":
        words.append("a linear layer on the last token's vector")
    if config.get("pooling") in ("first", "pooler"):
        words.append("a head of one linear layer")
    if config.get("private"):
        words.append("a private encoder")
    if config.get("shared_width"):
        words.append("a shared layer behind the encoder")
    if config.get("sources"):
        words.append("probabilities of the sources as features")
    if config.get("adapters"):
        words.append("adapters between its layers")
    if config.get("alignment") is not None:
        words.append("a matrix that aligns hidden states")
    return words


class _Shape:
    """Which parts of `modeling_crosstask.py` a model has.

    Attributes:
        base: the encoder that knows transformers' configuration and tokenizer.
        config: keys of its configuration.
    """

    def __init__(self, model: Model, base: HuggingFaceEncoder, layer: nn.Module, inserts: list[PlainParts]) -> None:
        self.base = base
        self.layer = layer
        self.inserts = inserts
        self.head = cast("LinearHead | StackedHead | StockHead", model.heads[0])
        (self.spec,) = model.specs.values()
        body = base.hf_config.to_dict()
        for key in WHERE_FROM:
            body.pop(key, None)
        self.config: dict[str, Any] = {
            "base": body,
            "base_is_tagger": bool(base.options["tagging_only"]),
            "pooling": self._pooling(),
        }
        if self.config["pooling"] == "last" and base.is_decoder:
            self.config["padding"] = base.hf_config.get_text_config().pad_token_id
        if isinstance(layer, nn.Sequential):
            self.config["shared_width"] = layer[0].out_features
        if isinstance(self.head, StackedHead):
            self.config["sources"] = [source.num_outputs for source in self.head.source_specs]
        for parts in inserts:
            self.config.update(parts.config)

    @classmethod
    def of(cls, model: Model, spec: TaskSpec) -> "_Shape | None":
        """That of a model, or None where a part of it has no place in such a class."""
        base: Encoder = model.encoder
        layer: nn.Module = nn.Identity()
        if isinstance(base, ThawedEncoder):
            if base.entry._forward_hooks:  # an insert that changes the features
                return None
            layer, base = base.layer, base.inner
        if type(base) is not HuggingFaceEncoder or base.trust_remote_code:
            return None
        if not isinstance(model.heads[0], LinearHead | StockHead | StackedHead):
            return None
        if spec.kind == "regression" and last_layer_with_bias(model.heads[0]) is None:
            return None  # nothing carries the mean of the values
        inserts: list[PlainParts] = []
        for insert in model.insert_list():
            parts = insert.plain_parts()
            if parts is None:
                return None
            inserts.append(parts)
        return cls(model, base, layer, inserts)

    def _pooling(self) -> str:
        """Which vectors the head reads."""
        if isinstance(self.head, StockHead):
            return "stock"
        if self.spec.kind == "tagging":
            return "tokens"
        if self.base.options["pooling"] == "mean":
            return "mean"
        if self.base.options["pooling"] == "last" or self.base.is_decoder:
            return "last"
        with torch.inference_mode():
            output = self.base(self.base.collate(self.base.prepare(["a"], "text")))
        return "first" if output.pooled is None else "pooler"

    def weights(self, plain: "CrossTaskModel") -> dict[str, Tensor]:
        """Weights by their names in the plain model."""
        weights: dict[str, Tensor] = {}
        prefix = "model."
        if isinstance(self.head, StockHead):
            prefix = f"model.{plain.model.base_model_prefix}."
            weights |= _named("model.", self.head.model)
        else:
            weights |= _named("classifier.", self.head.linear)
        weights |= _named(prefix, self.base.body)
        if isinstance(self.head, StackedHead):
            weights |= _named("sources.", self.head.sources)
        weights |= _named("shared.", self.layer)
        for parts in self.inserts:
            weights |= parts.weights
        return weights


def _named(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in module.state_dict().items()}
