"""The contract of an encoder: inputs prepared once, batches collated, representations out, heads on top."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor, nn

from crosstask.data.examples import FORM_WORDS, Form, TaskSpec
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput
from crosstask.models.heads import LinearHead
from crosstask.models.hooks import Site
from crosstask.models.representation import Representation
from crosstask.progress import Progress
from crosstask.validation import check_options, shown

__all__ = ["Encoder", "LinearHead", "Representation"]

Inputs = Sequence[Any] | np.ndarray
"""Inputs of one form: texts, pairs of texts, lists of tokens, or an array with a row per example."""
Options = Mapping[str, Any]
"""Options by name, as a recipe or a saved model has them."""
Config = dict[str, Any]
"""What a saved model has to know of an encoder: plain data that JSON can hold."""
FeatureSection = tuple[Config, list[str]]
"""An `encoder` section that only reads features, and notes on what it leaves out of the original."""


class Encoder(nn.Module, ABC):
    """Turns inputs into representations that all tasks share.

    Its parameters are the shared ones; those of a single task are in the head that `make_head` returns.
    """

    name: ClassVar[str]
    """Name in a recipe."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    forms: ClassVar[frozenset[Form]]
    """Forms of input that it takes."""
    width: int
    """Size of a representation vector."""
    gives_tokens: ClassVar[bool] = False
    """Whether there is a vector per token, which tagging needs."""
    is_pretrained: ClassVar[bool] = False
    """Whether the parameters that are trained start from pretrained values, which need small learning rates."""
    shards: ClassVar[bool] = True
    """Whether nothing but `forward` reads parameters while it trains, so that ranks can hold a part of them each."""
    precomputes_features: ClassVar[bool] = False
    """Whether `prepare` runs the layers, so that nothing can be put between them in training."""
    pads_freely: ClassVar[bool] = False
    """Whether a batch may have more padding than it needs: `collate_to` then gives the length that it is asked for."""
    has_few_shapes: bool = False
    """Whether batches come in few shapes, and the forward pass never waits for a device: then CUDA graphs pay."""
    num_frozen_layers: int = 0
    """Layers in front of the first site, which have no site: they run once, before training."""
    head_dropout: float = 0.0
    """Dropout of the heads that `make_head` returns."""
    has_lora: bool = False
    """Whether it trains low-rank updates of its weights instead of the weights."""
    texts_are_read_like_words: bool = True
    """Whether vectors of texts and of words are comparable, so that a linear layer means the same on both."""
    remembers_texts: bool = True
    """Whether what was made of a text stays in memory, for the next run of the process that reads it."""
    origin: str = ""
    """Where a pretrained encoder is from, as the recipe names it."""
    option_defaults: ClassVar[Options] = {}
    """Defaults of those options that `from_tasks` takes as `**options`, for the documentation."""

    @classmethod
    @abstractmethod
    def from_tasks(cls, tasks: Sequence[Task], *_: Any, **options: Any) -> Self:
        """A new encoder for these tasks (vocabulary, input width). The options are the recipe's."""
        # `*_: Any` beside `**options: Any` tells a type checker that subclasses name their own options.

    @classmethod
    def check_options(cls, options: Options) -> None:
        """Raise an error for an option that `from_tasks` does not take, or whose value has the wrong type."""
        check_options("encoder", cls.from_tasks, options, without=("tasks",))

    @classmethod
    def feature_section(cls, name: str, options: Options) -> FeatureSection:
        """The `encoder` section of a method that only reads features, in place of the section of this class.

        Args:
            name: the section's name of the encoder.
            options: the section's other keys.
        """
        return {"name": name, **options}, []

    @classmethod
    def weights_identity(cls, tasks: Sequence[Task], options: Options) -> str | None:
        """Identifies the encoder that `from_tasks` would return, without loading it; None where that is unknown."""
        return None

    def reading_identity(self) -> str:
        """What decides its output besides weights and options: a vocabulary, a tokenizer."""
        return ""

    def fingerprints(self) -> dict[str, str]:
        """Fingerprints by options (`feature_cache.fingerprint`) of encoders with the same weights, as far as known."""
        return {}

    @abstractmethod
    def prepare(self, inputs: Inputs, form: Form) -> Sequence[PreparedInput]:
        """Inputs as arrays, once per run: everything that does not change from epoch to epoch."""

    @abstractmethod
    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """One batch of prepared inputs, which may come from several tasks, as tensors."""

    def collate_to(self, rows: Sequence[PreparedInput], length: int) -> dict[str, Tensor]:
        """One batch padded to at least this length, where the encoder `pads_freely`: for batches of one shape."""
        return self.collate(rows)

    @property
    def packs(self) -> bool:
        """Whether several texts can share a row of a batch: see `packed`."""
        return False

    def packed(self, inputs: Mapping[str, Tensor], row_step: int) -> dict[str, Tensor] | None:
        """The inputs of a padded batch, with what lets several texts share a row; None where that does not pay.

        Args:
            inputs: of a batch, on the host.
            row_step: the number of shared rows is a multiple of it.
        """
        return None

    @abstractmethod
    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch."""

    def make_head(self, spec: TaskSpec) -> nn.Module:
        """A new head for a task; called as `head(representation, inputs)`, it returns logits."""
        return LinearHead(self.width, spec, dropout=self.head_dropout)

    def check(self, task: Task | TaskSpec) -> None:
        """Raise an error that says why this encoder cannot be used for a task, if it cannot."""
        spec = task.spec if isinstance(task, Task) else task
        if spec.form not in self.forms:
            accepted = ", ".join(FORM_WORDS[form] for form in sorted(self.forms))
            raise CrossTaskError(
                f"Task '{spec.name}' has {FORM_WORDS[spec.form]} as inputs; the encoder '{self.name}' takes {accepted}."
            )
        if spec.kind == "tagging" and not self.gives_tokens:
            raise CrossTaskError(
                f"Task '{spec.name}' is tagging, which needs a vector per token; the encoder '{self.name}' gives one "
                "per text. Use 'lstm' or a Hugging Face encoder."
            )

    # Saving and loading

    @abstractmethod
    def config(self) -> Config:
        """Options that `restore` needs to build the same architecture, as plain data."""

    def save_assets(self, folder: Path) -> None:
        """Write what is neither weight nor option: a vocabulary, a tokenizer."""

    @classmethod
    @abstractmethod
    def restore(cls, config: Options, folder: Path, *, trust_remote_code: bool = False) -> Self:
        """The architecture of a saved encoder; its weights are loaded by the caller.

        Args:
            config: what `config` returned.
            folder: where `save_assets` wrote.
            trust_remote_code: whether code in the folder may run. Nothing in the folder itself can allow that.
        """

    def forget_texts(self) -> None:
        """Keep nothing of the texts from now on, as whatever answers strangers must."""
        for module in self.modules():
            if isinstance(module, Encoder):
                module.remembers_texts = False

    def undivided(self) -> "Encoder":
        """An encoder that computes the same from its inputs in one pass, for a model that is only used from now on.

        Nothing is computed beforehand or kept, and low-rank updates are part of the weights.
        """
        return self

    # Abilities that transfers and studies ask for

    def blocks(self) -> list[nn.Module]:
        """Parts that run one after the other, each by its own `forward`, so that ranks can share them one by one."""
        return []

    def sites(self) -> list[Site]:
        """Sites where hidden states pass: the input of the shared part, then the output of each layer, if any."""
        return []

    def site_numbers(self) -> range:
        """The numbers by which `site` knows the sites; frozen layers count."""
        return range(self.num_frozen_layers, self.num_frozen_layers + len(self.sites()))

    def site(self, layer: int, purpose: str) -> Site:
        """The site behind layer `layer`; 0 is where the shared part begins."""
        sites, numbers = self.sites(), self.site_numbers()
        if not sites:
            raise CrossTaskError(f"{purpose}: the encoder '{self.name}' has no place for it.")
        if layer == 0:
            return sites[0]
        if layer in numbers:
            return sites[numbers.index(layer)]
        first, last = numbers[0], numbers[-1]
        choices = "none but its input: choose 0."
        if last:
            choices = f"{last} layers: choose a number from {first} to {last}."
        if 0 < layer < first:
            raise CrossTaskError(
                f"{purpose}: layer {layer} is one of the {first} that `freeze` leaves as they are; the encoder has "
                f"{choices}"
            )
        raise CrossTaskError(f"{purpose}: there is no layer {layer}; the encoder '{self.name}' has {choices}")

    def fold_input(self, matrix: Tensor, head: nn.Module) -> bool:
        """Multiply what passes the first site by `matrix`, [width, width], within the weights; false if inexact.

        For a model of one task, whose head is `head`. Between two layers of a transformer no weight can absorb the
        matrix, because a residual connection adds the layer's input to its output.
        """
        return False

    def private_copy(self) -> Self:
        """An encoder of the same architecture for one task.

        Pretrained weights are copied; everything else is initialized anew. What tasks share all the same is not
        copied: the table of word vectors, a frozen encoder and its features, a tokenizer.
        """
        copied = copy.deepcopy(self, self._shared_with_copies())
        if not self.is_pretrained:
            for module in copied.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
        return copied

    def _shared_with_copies(self) -> dict[int, object]:
        """What stands in a private copy instead of an attribute, by the attribute's id: a memo of `copy.deepcopy`."""
        return {}

    def shared_embedding(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """Vectors of a batch that private copies read too, [batch, length, dimension]; None if they read `inputs`."""
        return None

    def represent_privately(self, embedding: Tensor | None, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch by a private copy; `embedding` is `shared_embedding` of the original."""
        return self(inputs)

    def pooler_of_heads(self) -> nn.Module | None:
        """A layer inside the encoder that by its nature belongs to the heads of texts, if there is one."""
        return None

    def report_progress(self, report: Callable[[int, int], None]) -> None:
        """Let `prepare` call `report(count, total)` while it computes features; most encoders have none to compute."""

    def show_on(self, bar: Progress, title: str = "features") -> None:
        """Show on this bar how many features `prepare` has computed."""
        previous = math.inf

        def show(count: int, total: int) -> None:
            nonlocal previous
            if count <= previous:  # the first count of all, or of another split
                bar.start(title, total)
            previous = count
            bar.advance(count)

        self.report_progress(show)


def without_layers(name: str) -> str:
    """The note of a `feature_section` that leaves out layers which would have to be trained first."""
    return f"the features are read as they are, without the layers of the encoder '{name}'"


MAX_LAYERS = 1000
"""More layers on top of one another than anybody has trained; each takes time to build, however narrow it is."""


def check_counts(least: int = 1, most: int | None = None, **counts: object) -> None:
    """Every option must be a whole number, at least `least`; the error names it as a recipe spells it."""
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise CrossTaskError(f"encoder: `{name}` must be a whole number, at least {least}; found {shown(value)}.")
        if most is not None and value > most:
            raise CrossTaskError(f"encoder: `{name}` must be a whole number, at most {most}; found {shown(value)}.")


def check_dropout(dropout: object) -> None:
    """Dropout is a fraction below one."""
    if not isinstance(dropout, int | float) or isinstance(dropout, bool) or not 0.0 <= dropout < 1.0:
        raise CrossTaskError(
            f"encoder: `dropout` must be a number from 0 up to, but not including, 1; found {shown(dropout)}."
        )
