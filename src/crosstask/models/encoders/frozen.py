"""A frozen encoder: features computed once and kept on disk, then training is a matter of seconds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.task import Form, Task, TaskSpec
from crosstask.models.encoder import Encoder, LinearHead, PreparedInput, Representation, length_of, pad
from crosstask.models.encoders.feature_cache import FeatureCache, cache_folder, fingerprint
from crosstask.models.heads import multiply_input
from crosstask.models.hooks import Site

FEATURE_BATCH = 64


class FrozenEncoder(Encoder):
    """Another encoder whose weights stay as they are.

    `prepare` runs it (or finds its features on disk); `forward` only hands the features on, through one shared ReLU
    layer if `hidden` is above zero. Without that layer tasks share nothing that learns, and the heads are the inner
    encoder's own, so that export is as exact as without freezing.

    Args:
        inner: the encoder that stays as it is.
        hidden: width of a ReLU layer on the features that all tasks share and train; 0 for none.
        cache: keep features on disk, by content, for the next run.
    """

    name: ClassVar[str] = "frozen"
    summary: ClassVar[str] = "`freeze: true` with any encoder: features computed once, `hidden` adds a shared layer"
    forms: ClassVar[frozenset[Form]] = frozenset({"text", "pair", "tokens"})
    gives_tokens: ClassVar[bool] = True
    precomputes_features: ClassVar[bool] = True

    def __init__(self, inner: Encoder, hidden: int = 0, cache: bool = True) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False).eval()
        self.hidden = hidden
        self.width = hidden or inner.width
        self.layer = nn.Sequential(nn.Linear(inner.width, hidden), nn.ReLU()) if hidden else nn.Identity()
        self.entry = nn.Identity()  # where features enter: a place that others can find
        self.cache: FeatureCache | None = None
        self.wants_cache = cache
        self.progress: Callable[[int, int], None] = lambda done, total: None
        self._first_is_enough: bool | None = None
        self.texts_are_read_like_words = inner.texts_are_read_like_words

    @classmethod
    def from_tasks(cls, tasks: Sequence[Task], **options: Any) -> Self:
        """Made by `build_encoder` from the inner encoder's options, `freeze` and `hidden`."""
        from crosstask.models.build import build_encoder

        encoder = build_encoder({**options, "freeze": True}, tasks)
        assert isinstance(encoder, cls)
        return encoder

    def train(self, mode: bool = True) -> Self:
        """Train the shared layer; the inner encoder always stays in evaluation mode."""
        super().train(mode)
        self.inner.eval()
        return self

    def report_progress(self, report: Callable[[int, int], None]) -> None:
        """Call `report(done, total)` while features are computed."""
        self.progress = report

    def check(self, task: Task | TaskSpec) -> None:
        """Whatever the inner encoder takes."""
        self.inner.check(task)

    def prepare(self, inputs: Sequence[Any] | np.ndarray, form: Form) -> list[PreparedInput]:
        """Features: a vector per text, or one per word for tagging."""
        if self.wants_cache and self.cache is None:
            name = fingerprint(self.inner, {**self.inner.config(), "first_is_enough": self._reads_first_only()})
            self.cache = FeatureCache(cache_folder() / "features" / name)

        def compute(new: Sequence[Any]) -> list[PreparedInput]:
            return self._features(new, form)

        items = list(inputs)
        rows = self.cache.get(items, form, compute) if self.cache is not None else compute(items)
        if form != "tokens":
            return rows
        # Features stand word by word; a word that was cut off has no number in it.
        return [{**row, "word_positions": _positions(row["tokens"])} for row in rows]

    @torch.inference_mode()
    def _features(self, inputs: Sequence[Any], form: Form) -> list[PreparedInput]:
        rows = self.inner.prepare(inputs, form)
        order = sorted(range(len(rows)), key=lambda i: -length_of(rows[i]))
        device = next(self.inner.parameters()).device
        features: list[PreparedInput] = [{} for _ in rows]
        for start in range(0, len(order), FEATURE_BATCH):
            chosen = order[start : start + FEATURE_BATCH]
            batch = self.inner.collate([rows[i] for i in chosen])
            output = self.inner({key: value.to(device) for key, value in batch.items()})
            tokens = None if output.tokens is None else output.tokens.float().cpu().numpy()
            pooled = None if output.pooled is None else output.pooled.float().cpu().numpy()
            for place, i in enumerate(chosen):
                features[i] = self._keep(tokens, pooled, place, rows[i])
            self.progress(min(start + FEATURE_BATCH, len(order)), len(order))
        return features

    def _keep(
        self, tokens: np.ndarray | None, pooled: np.ndarray | None, place: int, row: PreparedInput
    ) -> PreparedInput:
        """What heads will read of one example, and no more: a word's first piece, or the first position, or all."""
        none = np.zeros((0, self.inner.width), dtype=np.float32)
        if "word_positions" in row:
            assert tokens is not None
            positions = row["word_positions"]
            kept = tokens[place, np.maximum(positions, 0)]
            kept[positions < 0] = np.nan  # cut off: never shown to a head
            return {"tokens": kept, "pooled": none}
        vector = none if pooled is None else pooled[place : place + 1]
        if tokens is None or (pooled is not None and self._reads_pooled_only()):
            return {"tokens": none, "pooled": vector}
        stop = 1 if self._reads_first_only() else length_of(row)
        return {"tokens": tokens[place, :stop].copy(), "pooled": vector}

    def _reads_pooled_only(self) -> bool:
        return bool(self.hidden) or isinstance(self._probe_head(), LinearHead)

    def _reads_first_only(self) -> bool:
        """Whether the inner encoder's head for texts looks at the first position alone; found by trying."""
        if self.hidden or not hasattr(self.inner, "body"):
            return True
        if self._first_is_enough is None:
            head = self._probe_head().eval()
            with torch.no_grad():
                if isinstance(head, LinearHead):
                    self._first_is_enough = True
                else:
                    tokens, pooled = torch.randn(2, 3, self.inner.width), torch.randn(2, self.inner.width)
                    mask = torch.ones(2, 3, dtype=torch.long)
                    whole = head(Representation(tokens, pooled, mask.bool()), {"attention_mask": mask})
                    cut = Representation(tokens[:, :1], pooled, mask[:, :1].bool())
                    first = head(cut, {"attention_mask": mask[:, :1]})
                    self._first_is_enough = torch.allclose(whole, first, atol=1e-6)
        return self._first_is_enough

    def _probe_head(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # asking must not change the run's random numbers
            return self.inner.make_head(TaskSpec("probe", "classification", "text", ("0", "1")))

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Padded features with their mask; texts and tagged sentences may stand in one batch."""
        none = np.zeros((1, self.inner.width), dtype=np.float32)
        tokens = [row["tokens"] if len(row["tokens"]) else none for row in rows]
        lengths = torch.tensor([len(array) for array in tokens])
        padded = pad(tokens, 0.0)
        batch = {
            "tokens": torch.nan_to_num(padded),
            "attention_mask": (torch.arange(padded.shape[1]) < lengths[:, None]).long(),
        }
        if any(len(row["pooled"]) for row in rows):
            batch["pooled"] = torch.from_numpy(
                np.concatenate([row["pooled"] if len(row["pooled"]) else none for row in rows])
            )
        return batch

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """The features themselves, through the shared layer if there is one."""
        tokens, pooled = self.entry(inputs["tokens"]), inputs.get("pooled")
        if pooled is not None:
            pooled = self.entry(pooled)
        elif self.hidden:
            pooled = tokens[:, 0]
        pooled = None if pooled is None else self.layer(pooled)
        return Representation(self.layer(tokens), pooled, inputs["attention_mask"].bool())

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

    def _shared_with_copies(self) -> dict[int, Any]:
        return {id(self.inner): nn.Identity(), id(self.cache): None}

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """The inner encoder's own head, or a linear one on the shared layer."""
        return LinearHead(self.width, spec, dropout=0.1) if self.hidden else self.inner.make_head(spec)

    def config(self) -> dict[str, Any]:
        """Options of the inner encoder under its name."""
        return {"inner": {"name": self.inner.name, **self.inner.config()}, "hidden": self.hidden}

    def save_assets(self, folder: Path) -> None:
        """Those of the inner encoder."""
        self.inner.save_assets(folder)

    @classmethod
    def restore(cls, config: Mapping[str, Any], folder: Path) -> Self:
        """A saved model computes the features of new texts as they come; nothing of them is kept on disk."""
        from crosstask.models.encoders import encoder_class

        inner = dict(config["inner"])
        return cls(encoder_class(inner.pop("name")).restore(inner, folder), config["hidden"], cache=False)


def _positions(features: np.ndarray) -> np.ndarray:
    cut_off = np.isnan(features).any(axis=1)
    return np.where(cut_off, -1, np.arange(len(features)))
