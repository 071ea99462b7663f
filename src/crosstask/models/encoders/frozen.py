"""A frozen encoder: features computed once and kept on disk, so that training takes seconds."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import Form, TaskSpec
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput, attention_mask, pad
from crosstask.models.encoder import Config, Encoder, Inputs, Options, check_counts
from crosstask.models.encoders import encoder_class
from crosstask.models.encoders.feature_cache import FeatureCache
from crosstask.models.encoders.feature_pass import (
    ChosenPrecision,
    FeaturePass,
    Reads,
    feature_device,
    feature_precision,
)
from crosstask.models.encoders.thawed import ThawedEncoder
from crosstask.models.heads import LinearHead, multiply_input
from crosstask.models.hooks import Site
from crosstask.models.representation import Representation
from crosstask.validation import check_value

HEAD_DROPOUT = 0.1
"""Dropout of linear heads on the shared layer."""


class FrozenEncoder(Encoder):
    """Another encoder whose weights stay as they are.

    `prepare` runs it (or finds its features on disk); `forward` only passes the features on, through one shared ReLU
    layer if `hidden` is above zero. Without that layer tasks share nothing that learns, and the heads are those of the
    inner encoder, so that export is as exact as without freezing.

    Args:
        inner: the encoder that stays as it is.
        hidden: width of a ReLU layer on the features that all tasks share and train; 0 for none.
        cache: keep features on disk, by content, for the next run.
        precision: in which features are computed, "float32" or "bfloat16"; they are stored in float32. When left out,
            float32, on a GPU with the rounding of its tensor cores. A processor or GPU with instructions for bfloat16
            takes about half the time with it.
    """

    name: ClassVar[str] = "frozen"
    summary: ClassVar[str] = "`freeze: true` with any encoder: features computed once, `hidden` adds a shared layer"
    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})
    gives_tokens: ClassVar[bool] = True
    precomputes_features: ClassVar[bool] = True
    shards: ClassVar[bool] = False
    has_few_shapes = True

    def __init__(
        self, inner: Encoder, hidden: int = 0, cache: bool = True, precision: ChosenPrecision | None = None
    ) -> None:
        check_counts(least=0, hidden=hidden)
        check_value("encoder", "precision", ChosenPrecision | None, precision)
        super().__init__()
        self.inner = inner.requires_grad_(False).eval()
        self.hidden = hidden
        self.width = hidden or inner.width
        self.layer: nn.Module = nn.Identity()
        if hidden:
            self.layer = nn.Sequential(nn.Linear(inner.width, hidden), nn.ReLU())
        self.entry = nn.Identity()  # the site where features enter
        self.cache: FeatureCache | None = None
        self.uses_cache = cache
        self.precision = precision
        self.texts_are_read_like_words = inner.texts_are_read_like_words
        self.progress: Callable[[int, int], None] = lambda count, total: None

    @classmethod
    def from_tasks(cls, tasks: Sequence[Task], **options: Any) -> Self:
        """Every encoder is frozen by its own section of a recipe; there is no encoder of this name."""
        raise CrossTaskError("encoder: 'frozen' is no encoder by itself; set `freeze: true` beside the name of one.")

    def train(self, mode: bool = True) -> Self:
        """Train the shared layer; the inner encoder always stays in evaluation mode."""
        super().train(mode)
        self.inner.eval()
        return self

    def report_progress(self, report: Callable[[int, int], None]) -> None:
        """Call `report(count, total)` while features are computed."""
        self.progress = report

    def check(self, task: Task | TaskSpec) -> None:
        """Whatever the inner encoder takes."""
        self.inner.check(task)

    # Features

    def prepare(self, inputs: Inputs, form: Form) -> list[PreparedInput]:
        """Features: a vector per text, or one per word for tagging."""
        items = list(inputs)
        if self.uses_cache:
            if self.cache is None:
                options = {**self.inner.config(), "first_is_enough": self._reads_first_only}
                precision = self.precision or feature_precision(self._feature_device())
                if precision != "float32":
                    options["precision"] = precision
                self.cache = FeatureCache.of_encoder(self.inner, options)
            rows = self.cache.get(items, form, lambda missing: self._features(missing, form))
        else:
            rows = self._features(items, form)
        if form != "tokens":
            return rows
        tagged: list[PreparedInput] = []
        for row in rows:
            # Features are stored word by word; those of a word that was cut off are nan.
            cut_off = np.isnan(row["tokens"]).any(axis=1)
            tagged.append({**row, "word_positions": np.where(cut_off, -1, np.arange(len(row["tokens"])))})
        return tagged

    def _features(self, inputs: Inputs, form: Form) -> list[PreparedInput]:
        device = self._feature_device()
        precision = self.precision or feature_precision(device)
        return FeaturePass(self.inner, self._reads(form), device, precision, self.progress).run(inputs, form)

    def _feature_device(self) -> torch.device:
        return feature_device(next(self.inner.parameters()).device)

    def _reads(self, form: Form) -> Reads:
        """What heads read: of each word's first piece, of the first position, or of all."""
        if form == "tokens":
            return "words"
        if self._reads_pooled_only:
            return "pooled"
        return "first" if self._reads_first_only else "all"

    @cached_property
    def _reads_pooled_only(self) -> bool:
        head = self._trial_head()
        return bool(self.hidden) or isinstance(head, LinearHead) or getattr(head, "reads_last_token", False)

    @cached_property
    def _reads_first_only(self) -> bool:
        """Whether the inner encoder's head for texts reads the first position alone.

        Transformers do not declare that, so the head is called once with more positions and once without.
        """
        if self._reads_pooled_only:
            return True
        tokens, pooled = torch.randn(2, 3, self.inner.width), torch.randn(2, self.inner.width)
        mask = torch.ones(2, 3, dtype=torch.long)
        complete = Representation(tokens, pooled, mask.bool())
        first = Representation(tokens[:, :1], pooled, mask[:, :1].bool())
        head = self._trial_head().eval()
        with torch.no_grad():
            logits = head(complete, {"attention_mask": mask})
            return torch.allclose(logits, head(first, {"attention_mask": mask[:, :1]}), atol=1e-6)

    def _trial_head(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # a trial must not change the run's random numbers
            return self.inner.make_head(TaskSpec("probe", "classification", "text", ("0", "1")))

    # Batches of features

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Padded features with their mask; texts and tagged sentences may stand in one batch."""
        zeros = np.zeros((1, self.inner.width), dtype=np.float32)

        def filled(name: str) -> list[np.ndarray]:
            """The arrays of a name; zeros for an example that has none."""
            return [row[name] if len(row[name]) else zeros for row in rows]

        tokens = filled("tokens")
        batch = {"tokens": torch.nan_to_num(pad(tokens, 0.0)), "attention_mask": attention_mask(tokens)}
        if any(len(row["pooled"]) for row in rows):
            batch["pooled"] = torch.from_numpy(np.concatenate(filled("pooled")))  # [batch, width]
        return batch

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """The features themselves, through the shared layer if there is one."""
        tokens, pooled = self.entry(inputs["tokens"]), inputs.get("pooled")
        if pooled is not None:
            pooled = self.layer(self.entry(pooled))
        elif self.hidden:
            pooled = self.layer(tokens[:, 0])
        return Representation(self.layer(tokens), pooled, inputs["attention_mask"].bool())

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """The inner encoder's own head, or a linear one on the shared layer."""
        if self.hidden:
            return LinearHead(self.width, spec, dropout=HEAD_DROPOUT)
        return self.inner.make_head(spec)

    # Abilities

    def sites(self) -> list[Site]:
        """The features as they enter."""
        return [Site(self.entry, "output", self.inner.width)]

    def fold_input(self, matrix: Tensor, head: nn.Module) -> bool:
        """The first linear layer behind the features absorbs the matrix: the shared one, or the head's."""
        if isinstance(self.layer, nn.Sequential):
            multiply_input(self.layer[0], matrix)
        elif isinstance(head, LinearHead):
            multiply_input(head.linear, matrix)
        else:
            return False
        return True

    def undivided(self) -> Encoder:
        """The inner encoder, with the shared layer behind it if there is one."""
        if not self.hidden and not self.entry._forward_hooks:
            return self.inner.undivided()
        return ThawedEncoder(self)

    def _shared_with_copies(self) -> dict[int, object]:
        return {id(self.inner): nn.Identity(), id(self.cache): None}

    # Saving and loading

    def config(self) -> Config:
        """Options of the inner encoder under its name."""
        config: Config = {"inner": {"name": self.inner.name, **self.inner.config()}, "hidden": self.hidden}
        if self.precision is not None:
            config["precision"] = self.precision
        return config

    def save_assets(self, folder: Path) -> None:
        """Those of the inner encoder."""
        self.inner.save_assets(folder)

    @classmethod
    def restore(cls, config: Options, folder: Path, *, trust_remote_code: bool = False) -> Self:
        """A saved model computes the features of new texts as they come, without a cache."""
        options = dict(config["inner"])
        inner_class = encoder_class(options.pop("name"))
        inner = inner_class.restore(options, folder, trust_remote_code=trust_remote_code)
        return cls(inner, config["hidden"], cache=False, precision=config.get("precision"))
