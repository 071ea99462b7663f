"""What is tried: the target alone and with its sources, by solver, by training an encoder, and by fine-tuning one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from crosstask.automl.prior import Budget
from crosstask.data.examples import KINDS, Kind
from crosstask.data.label_names import has_label_texts
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named
from crosstask.models.build import class_and_options, feature_section
from crosstask.probing.heads import SOLVED_HEADS
from crosstask.studies.method import Method, Section
from crosstask.training.config import Training
from crosstask.training.devices import Precision
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer.label_transfer.splits import sources_of
from crosstask.validation import name_and_options

Level = Literal["solved", "fine-tuned", "network"]
LEVELS: tuple[Level, ...] = ("solved", "fine-tuned", "network")
"""Linear models by a solver; a pretrained encoder that learns; layers that learn from nothing, or on its features. Of a
pretrained encoder that can be fine-tuned in the time, no layers on its features are tried."""
HIDDEN = 128
"""Width of the shared layer on the features of a pretrained encoder that stays as it is."""
NETWORK_RATE = 3e-3
MAX_BATCH, SMALL_BATCH = 16, 8
"""Examples of a task in a step of fine-tuning, since labels are few; and where time is short."""
NOTHING_SHARED = ("vectors", "words")
"""Encoders without a layer that learns: sources help them only by stacking."""


@dataclass(frozen=True)
class Portfolio:
    """A method of the portfolio.

    - `name`: as the bench calls it, which the prior knows it by;
    - `learner`: options of `Method`; `training`: settings of the loop that differ;
    - `passes`: what an update costs beside the passes of its batches through the encoder: 1 for plain training;
    - `kinds`: of targets; `levels`: that it is worth trying at; `reads_names`: whether it needs labels that are words.
    """

    name: str
    paradigm: str
    weighting: Named | None = None
    transfer: tuple[Named, ...] = ()
    training: Section = field(default_factory=dict)
    passes: float = 1.0
    kinds: tuple[Kind, ...] = KINDS
    levels: tuple[Level, ...] = ("fine-tuned", "network")
    reads_names: bool = False

    @property
    def uses_sources(self) -> bool:
        """Whether it reads the sources."""
        return PARADIGMS[self.paradigm].uses_sources and self.name not in ("contrastive", "names-alone")


LABEL_TRANSFER = Portfolio(
    "label-transfer", "normalized-joint", transfer=({"name": "label-transfer", "start": "probe"},), passes=3.0
)
CONTRAST: Section = {"name": "contrast", "loss": "cosine", "tasks": "targets"}
PORTFOLIO: tuple[Portfolio, ...] = (
    Portfolio("probe", "probe", levels=("solved",)),
    Portfolio("stacking", "stacking", levels=("solved",)),
    Portfolio("names-alone", "names", kinds=("classification",), levels=("solved",), reads_names=True),
    Portfolio("single", "single"),
    Portfolio("single-probed", "single", training={"head": "probe"}, levels=("network",)),
    Portfolio("sources-first", "normalized-joint", training={"head": "probe"}),
    Portfolio(
        "sources-first-named",
        "normalized-joint",
        training={"head": "names"},
        kinds=("classification",),
        levels=("fine-tuned",),
        reads_names=True,
    ),
    Portfolio("pretrain", "pretrain", levels=("fine-tuned",)),
    Portfolio("pretrain-probed", "pretrain", training={"head": "probe"}),
    LABEL_TRANSFER,
    Portfolio("normalized-joint", "normalized-joint"),
    Portfolio("joint-then-target", "normalized-joint", training={"finish": "target"}, levels=("fine-tuned",)),
    Portfolio("tawt", "normalized-joint", weighting="tawt", passes=1.1, levels=("network",)),
    Portfolio("contrastive", "contrastive", transfer=(CONTRAST,), kinds=("classification",), levels=("fine-tuned",)),
    Portfolio(
        "sources-then-contrast",
        "contrastive",
        transfer=(CONTRAST,),
        training={"sources_first": 0.5},
        passes=1.2,
        kinds=("classification",),
        levels=("fine-tuned",),
    ),
)
"""From simple to complex: of two that are expected to be as good the first is chosen."""


@dataclass(frozen=True)
class Candidate:
    """A way to a model of the target.

    - `method`: with an encoder of its own;
    - `prior_name`: what the prior knows it by;
    - `sources`: names of those that it learns from, none for the target alone;
    - `passes`: as of `Portfolio`;
    - `learning_rate`: that its method has had elsewhere, where that is known.
    """

    method: Method
    level: Level
    prior_name: str
    sources: tuple[str, ...] = ()
    passes: float = 1.0
    learning_rate: float | None = None

    @property
    def name(self) -> str:
        """Of the method."""
        return self.method.name

    @property
    def encoder(self) -> Named:
        """Of the method."""
        assert self.method.encoder is not None
        return self.method.encoder

    @property
    def num_phases(self) -> int:
        """Phases that each take the updates of the settings."""
        has_two = self.method.paradigm == "pretrain" or self.method.training.get("finish") == "target"
        return 2 if has_two else 1

    @property
    def batches(self) -> float:
        """Batches that go through the encoder in a mean update, whatever else it costs."""
        num_sources, method = len(self.sources), self.method
        if not num_sources:
            return self.passes
        if method.paradigm in ("pretrain", "contrastive"):  # half of the updates the sources, half the target
            return self.passes * (num_sources + 1) / 2.0
        if method.training.get("head") in SOLVED_HEADS:  # the target in half of them
            return self.passes * (num_sources + 0.5)
        if method.training.get("finish") == "target":  # the sources in half of them
            return self.passes * (num_sources / 2.0 + 1)
        return self.passes * (num_sources + 1)

    @property
    def starts_at_probe(self) -> bool:
        """Whether the target's head is a linear model's before it is trained with the encoder."""
        return self.method.training.get("head") in SOLVED_HEADS or self.prior_name == LABEL_TRANSFER.name

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "level": self.level,
            "encoder": self.encoder,
            "paradigm": self.method.paradigm,
            "weighting": self.method.weighting,
            "transfer": list(self.method.transfer),
            "training": dict(self.method.training),
            "sources": list(self.sources),
        }


def is_pretrained(encoder: Named) -> bool:
    """Whether this section names a Hugging Face encoder, which is costly to run and more so to train."""
    return class_and_options(encoder)[0].is_pretrained


@dataclass(frozen=True)
class FineTuning:
    """How a pretrained encoder is fine-tuned: what follows from the time.

    - `frozen_layers`: layers that stay as they are, their outputs kept; 0 for none;
    - `max_length`: of texts in word pieces, None for what the user's encoder has;
    - `precision`: of the passes.
    """

    frozen_layers: int = 0
    max_length: int | None = None
    precision: Precision = "float32"

    @property
    def budget(self) -> Budget:
        """What the prior calls it."""
        return "short" if self.frozen_layers else "full"

    @property
    def batch_size(self) -> int:
        """Examples of a task in a step, at most."""
        return SMALL_BATCH if self.frozen_layers else MAX_BATCH

    def section(self, encoder: Section) -> Section:
        """The user's encoder with these options, as far as the user has not set them."""
        changes: dict[str, Any] = {}
        if self.frozen_layers and not encoder.get("freeze"):
            changes["freeze"] = self.frozen_layers
        if self.max_length is not None and "max_length" not in encoder:
            changes["max_length"] = self.max_length
        return {**encoder, **changes}

    def learning_rate(self, updates: int, *, from_probe: bool) -> float:
        """More for few updates, and more where the lower layers stay (`benchmarks/partial_freeze.py`).

        Half of it where the head begins as a probe, whose large weights a step of the encoder moves further
        (`benchmarks/short_bench.py`).
        """
        if self.frozen_layers:
            rate = 1e-3 if updates <= 200 else 5e-4
        else:
            rate = 2e-4 if updates <= 200 else 1e-4
        return rate / 2.0 if from_probe else rate


def training_of(candidate: Candidate, training: Training, updates: int, fine_tuning: FineTuning) -> Training:
    """Settings of one run.

    A rate that the user chose is meant for the user's encoder, not for a layer on its features.
    """
    training = replace(training, **candidate.method.training)
    if candidate.level == "solved":
        return training
    learning_rate, batch_size = training.learning_rate, training.batch_size
    if candidate.level == "fine-tuned":
        batch_size = min(batch_size, fine_tuning.batch_size)
        learning_rate = learning_rate or candidate.learning_rate
        learning_rate = learning_rate or fine_tuning.learning_rate(updates, from_probe=candidate.starts_at_probe)
        training = replace(training, precision=fine_tuning.precision)
    elif learning_rate is None or is_pretrained(candidate.encoder):
        learning_rate = NETWORK_RATE
    updates = max(1, updates // candidate.num_phases)
    return replace(
        training,
        updates=updates,
        evaluate_every=updates,
        batch_size=batch_size,
        learning_rate=learning_rate,
        keep="last",
        schedule="parallel",
        patience=None,
    )


@dataclass(frozen=True)
class Makings:
    """What candidates are made of.

    Args:
        target: the task that matters.
        selected: sources by the ranking, the most promising first.
        usable: those and the others that could be used; they get one candidate, in case the ranking is wrong.
        encoder: as a recipe names it.
        num_sources: how many of the selected ones fine-tuning can afford.
        fine_tuning: how it is done, None where there is no time for it.
    """

    target: Task
    selected: Sequence[Task]
    usable: Sequence[Task]
    encoder: Named
    num_sources: int
    fine_tuning: FineTuning | None

    def candidates(self) -> tuple[list[Candidate], list[str]]:
        """Candidates from simple to complex, and notes on what does not go with these tasks."""
        name, options = name_and_options("encoder", self.encoder)
        section: Section = {"name": name, **options}
        notes: list[str] = []
        candidates: list[Candidate] = []
        try:
            features, _ = feature_section(section)
        except CrossTaskError as error:
            notes.append(f"probe and stacking were not tried: {error}")
        else:
            candidates += self._of_level("solved", section, notes)
        if not is_pretrained(section):
            candidates += self._of_level("network", section, notes)
        elif self.fine_tuning is not None and options.get("freeze") is not True:
            candidates += self._of_level("fine-tuned", self.fine_tuning.section(section), notes)
        else:
            on_features = {**features, "hidden": options.get("hidden") or HIDDEN}
            candidates += self._of_level("network", on_features, notes)
        return candidates, list(dict.fromkeys(notes))

    def _of_level(self, level: Level, encoder: Section, notes: list[str]) -> list[Candidate]:
        candidates: list[Candidate] = []
        sources = self.selected[: self.num_sources] if level == "fine-tuned" else self.selected
        for item in PORTFOLIO:
            if level not in item.levels or self.target.kind not in item.kinds:
                continue
            if item.reads_names and not self._has_names(sources if item.uses_sources else ()):
                continue
            if not item.uses_sources:
                candidates.append(self._make(item, level, encoder, ()))
            # Without a shared layer, training with sources is training without them.
            elif sources and (level == "solved" or encoder["name"] not in NOTHING_SHARED):
                if item is LABEL_TRANSFER and not self._goes_with(sources, notes):
                    continue
                # Between tags it was behind the others (`docs/bench.md`), at several times their cost.
                if item is LABEL_TRANSFER and level == "fine-tuned" and self.target.kind == "tagging":
                    continue
                candidates.append(self._make(item, level, encoder, sources))
                if item.name == "stacking" and len(self.usable) > len(sources):
                    candidates.append(self._make(item, level, encoder, self.usable, ", all sources"))
        return candidates

    def _has_names(self, sources: Sequence[Task]) -> bool:
        """Whether the labels of the target, and of these sources, are words of a text encoder's language."""
        tasks = (self.target, *sources)
        return is_pretrained(self.encoder) and all(has_label_texts(task.spec) for task in tasks)

    def _goes_with(self, sources: Sequence[Task], notes: list[str]) -> bool:
        """Whether labels can be carried over from one of these sources at least."""
        try:
            sources_of(self.target.spec, sources, [self.target.name])
        except CrossTaskError as error:
            notes.append(f"label transfer was not tried: {error}")
            return False
        return True

    def _make(
        self, item: Portfolio, level: Level, encoder: Section, sources: Sequence[Task], addition: str = ""
    ) -> Candidate:
        transfer = item.transfer
        # Of most words a plain probe says that they have no tag, which the source's own tag sets right; where the
        # encoder learns it was no better (`results/metaxt-tagging`).
        if item is LABEL_TRANSFER and self.target.kind == "tagging" and encoder.get("freeze") is True:
            transfer = ({"name": "label-transfer", "start": "stacked"},)
        method = Method(
            item.name + addition, item.paradigm, item.weighting, transfer, training=item.training, encoder=encoder
        )
        return Candidate(method, level, item.name, tuple(task.name for task in sources), item.passes)
