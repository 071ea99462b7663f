"""What is tried: the target alone and with its sources, by solver, by small networks, and by fine-tuning."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named
from crosstask.models.build import class_and_options, feature_section
from crosstask.studies.method import Method, Section
from crosstask.training.config import Training
from crosstask.transfer.label_transfer.splits import sources_of
from crosstask.validation import name_and_options

Level = Literal["solved", "network", "fine-tuned"]
LEVELS: tuple[Level, ...] = ("solved", "network", "fine-tuned")
"""From cheap to costly: linear models by a solver; layers trained step by step; a pretrained encoder as a whole."""
HIDDEN = 128
"""Width of the shared layer on the features of a pretrained encoder that stays as it is."""
UPDATES: dict[Level, int] = {"network": 400, "fine-tuned": 200}
"""Of a network whose number of updates the settings leave open; cross-validation may find that fewer are better."""
NETWORK_RATE = 3e-3
NUM_EVALUATIONS = 10
"""Evaluations on what a fold holds out, evenly over the updates."""
NOTHING_SHARED = ("vectors", "words")
"""Encoders without a layer that learns: sources help them only by stacking."""


@dataclass(frozen=True)
class Candidate:
    """A way to a model of the target.

    - `method`: with an encoder of its own;
    - `sources`: names of those that it learns from, none for the target alone;
    - `trusted`: whether the ranking called every one of them helpful.
    """

    method: Method
    level: Level
    sources: tuple[str, ...] = ()
    trusted: bool = False

    @property
    def name(self) -> str:
        """Of the method."""
        return self.method.name

    @property
    def encoder(self) -> Named:
        """Of the method."""
        assert self.method.encoder is not None
        return self.method.encoder

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "level": self.level,
            "encoder": self.encoder,
            "paradigm": self.method.paradigm,
            "weighting": self.method.weighting,
            "transfer": list(self.method.transfer),
            "sources": list(self.sources),
            "trusted": self.trusted,
        }


def is_pretrained(encoder: Named) -> bool:
    """Whether this section names a Hugging Face encoder, which is costly to run and more so to train."""
    return class_and_options(encoder)[0].is_pretrained


def evaluate_every(updates: int) -> int:
    """Updates from one evaluation on what a fold holds out to the next."""
    return max(1, updates // NUM_EVALUATIONS)


def training_of(candidate: Candidate, training: Training, updates: int) -> Training:
    """Settings of one run.

    The learning rate does not fall, so that the model after some updates of a longer run is the model that a run of so
    many updates gives. A rate that the user chose is meant for the user's encoder, not for a layer on its features.
    """
    if candidate.level == "solved":
        return training
    learning_rate = training.learning_rate
    if candidate.level == "network" and (learning_rate is None or is_pretrained(candidate.encoder)):
        learning_rate = NETWORK_RATE
    return replace(
        training,
        updates=updates,
        evaluate_every=evaluate_every(updates),
        learning_rate=learning_rate,
        decay="none",
        keep="last",
        schedule="parallel",
        patience=None,
    )


def make_candidates(
    target: Task, helpful: Sequence[Task], usable: Sequence[Task], encoder: Named, *, trusted: bool
) -> tuple[list[Candidate], list[str]]:
    """Candidates from cheap to costly, and notes on what does not go with these tasks.

    Args:
        target: the task that matters.
        helpful: the sources that the ranking selected.
        usable: those and the others that could be used; they get one candidate, in case the ranking is wrong.
        encoder: as a recipe names it.
        trusted: whether the ranking called the selected sources helpful.
    """
    name, options = name_and_options("encoder", encoder)
    section = {"name": name, **options}
    network = _Maker("network", section, target, helpful, usable, trusted)
    candidates: list[Candidate] = []
    notes: list[str] = []
    makers = [network]
    try:
        features, _ = feature_section(section)
    except CrossTaskError as error:
        notes.append(f"probe and stacking were not tried: {error}")
    else:
        candidates += replace(network, level="solved").solved()
        if is_pretrained(section):
            # On features that stay as they are, and then fine-tuned.
            hidden = options.get("hidden") or HIDDEN
            makers = [replace(network, encoder={**features, "hidden": hidden})]
            if options.get("freeze") is not True:
                makers.append(replace(network, level="fine-tuned"))
    for maker in makers:
        candidates += maker.trained(notes, with_all=not candidates)
    return candidates, list(dict.fromkeys(notes))


@dataclass(frozen=True)
class _Maker:
    """The candidates of one level."""

    level: Level
    encoder: Section
    target: Task
    helpful: Sequence[Task]
    usable: Sequence[Task]
    trusted: bool

    def solved(self) -> list[Candidate]:
        """Linear models by a solver."""
        stacking = Method("stacking", "stacking")
        return [self._alone("probe"), *self._with_helpful(stacking), *self._with_all(stacking)]

    def trained(self, notes: list[str], *, with_all: bool) -> list[Candidate]:
        """Networks; `with_all` asks for one with all sources."""
        candidates = [self._alone("single")]
        # Without a shared layer, training with sources is training without them.
        if self.encoder["name"] in NOTHING_SHARED:
            return candidates
        tawt = Method("joint + tawt", "joint", {"name": "tawt"})
        candidates += self._with_helpful(Method("normalized-joint", "normalized-joint"))
        candidates += self._with_helpful(tawt)
        if with_all:
            candidates += self._with_all(tawt)
        # Of most words a plain probe says that they have no tag, which the source's own tag sets right; where the
        # encoder learns it was no better (`results/metaxt-tagging`).
        start = "probe"
        if self.target.kind == "tagging" and self.encoder.get("freeze") is True:
            start = "stacked"
        label_transfer = ({"name": "label-transfer", "start": start},)
        if self.helpful:
            try:
                sources_of(self.target.spec, self.helpful, [self.target.name])
            except CrossTaskError as error:
                notes.append(f"label transfer was not tried: {error}")
            else:
                candidates += self._with_helpful(Method("label-transfer", "normalized-joint", transfer=label_transfer))
        return candidates

    def _alone(self, paradigm: str) -> Candidate:
        return Candidate(self._finished(Method(paradigm, paradigm)), self.level)

    def _with_helpful(self, method: Method) -> list[Candidate]:
        if not self.helpful:
            return []
        names = tuple(task.name for task in self.helpful)
        return [Candidate(self._finished(method), self.level, names, self.trusted)]

    def _with_all(self, method: Method) -> list[Candidate]:
        # The same as with the helpful ones, where those are all.
        names = tuple(task.name for task in self.usable)
        if not names or len(names) == len(self.helpful):
            return []
        method = replace(method, name=f"{method.name}, all sources")
        return [Candidate(self._finished(method), self.level, names)]

    def _finished(self, method: Method) -> Method:
        """With the encoder, and a name that says where it is fine-tuned."""
        name = method.name
        if self.level == "fine-tuned":
            name = f"{name}, fine-tuned"
        return replace(method, name=name, encoder=self.encoder)
