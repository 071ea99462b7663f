"""What is tried: the target alone and with its sources, by solver, by small networks, and by fine-tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.build import class_and_options, feature_section
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
LOOKS = 10
"""Looks at what a fold holds out, evenly over the updates."""
NOTHING_SHARED = ("vectors", "words")
"""Encoders without a layer that learns: sources help them only through what they say."""


@dataclass(frozen=True)
class Candidate:
    """A way to a model of the target.

    - `sources`: names of those that it learns from, none for the target alone;
    - `trusted`: whether the ranking called every one of them helpful.
    """

    name: str
    level: Level
    encoder: Mapping[str, Any]
    paradigm: str
    weighting: Mapping[str, Any] | None = None
    transfer: tuple[Mapping[str, Any], ...] = field(default=())
    sources: tuple[str, ...] = ()
    trusted: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def is_pretrained(encoder: Mapping[str, Any]) -> bool:
    """Whether this section names an encoder of the Hugging Face sort, which is costly to run and more so to train."""
    return class_and_options(encoder)[0].is_pretrained


def look_every(updates: int) -> int:
    """Updates from one look at what a fold holds out to the next."""
    return max(1, updates // LOOKS)


def training_of(level: Level, given: Training, encoder: Mapping[str, Any], updates: int) -> Training:
    """Settings of one run.

    The learning rate does not fall, so that the model after some updates of a longer run is the model that a run of so
    many updates gives. A rate that is given is meant for the given encoder, not for a layer on its features.
    """
    rate = given.learning_rate
    if level == "network" and (rate is None or is_pretrained(encoder)):
        rate = NETWORK_RATE
    return replace(
        given, updates=updates, evaluate_every=look_every(updates), learning_rate=rate, decay="none", keep="last",
        schedule="parallel", patience=None,
    )  # fmt: skip


def make_candidates(
    target: Task,
    helpful: Sequence[Task],
    everything: Sequence[Task],
    encoder: str | Mapping[str, Any],
    *,
    trusted: bool,
) -> tuple[list[Candidate], list[str]]:
    """Candidates from cheap to costly, and notes on what does not go with these tasks.

    Args:
        target: the task that matters.
        helpful: the sources that the ranking kept.
        everything: those and the others that could be used; they get one candidate, in case the ranking is wrong.
        encoder: as a recipe names it.
        trusted: whether the ranking called the kept sources helpful.
    """
    name, options = name_and_options("encoder", encoder)
    given = {"name": name, **options}
    makers = [_Maker(target, helpful, everything, trusted, "network", given)]
    notes: list[str] = []
    candidates: list[Candidate] = []
    try:
        features, _ = feature_section(given)
    except CrossTaskError as error:
        notes.append(f"probe and stacking were not tried: {error}")
    else:
        if is_pretrained(given):
            hidden = options.get("hidden") or HIDDEN
            makers = [replace(makers[0], encoder={**features, "hidden": hidden})]
            if not options.get("freeze"):
                makers.append(replace(makers[0], level="fine-tuned", encoder=given))
        candidates += _Maker(target, helpful, everything, trusted, "solved", given).solved()
    for maker in makers:
        candidates += maker.trained(notes, with_everything=len(candidates) == 0)
    return candidates, list(dict.fromkeys(notes))


@dataclass(frozen=True)
class _Maker:
    """The candidates of one level."""

    target: Task
    helpful: Sequence[Task]
    everything: Sequence[Task]
    trusted: bool
    level: Level
    encoder: Mapping[str, Any]

    def solved(self) -> list[Candidate]:
        return [self._alone("probe"), *self._helped("stacking", "stacking"), *self._with_all("stacking", "stacking")]

    def trained(self, notes: list[str], *, with_everything: bool) -> list[Candidate]:
        tawt = {"weighting": {"name": "tawt"}}
        found = [self._alone("single")]
        if self.encoder["name"] in NOTHING_SHARED:
            return found
        found += self._helped("normalized-joint", "normalized-joint")
        found += self._helped("joint + tawt", "joint", **tawt)
        if with_everything:
            found += self._with_all("joint + tawt", "joint", **tawt)
        # Of most words a plain probe says that they have no tag, which the source's own tag sets right; where the
        # encoder learns it was no better (`results/metaxt-tagging`).
        start = "stacked" if self.target.kind == "tagging" and self.encoder.get("freeze") else "probe"
        carried = ({"name": "label-transfer", "start": start},)
        if self.helpful:
            try:
                sources_of(self.target.spec, self.helpful, [self.target.name])
            except CrossTaskError as error:
                notes.append(f"label transfer was not tried: {error}")
            else:
                found += self._helped("label-transfer", "normalized-joint", transfer=carried)
        return found

    def _alone(self, paradigm: str) -> Candidate:
        return Candidate(self._called(paradigm), self.level, self.encoder, paradigm)

    def _helped(self, name: str, paradigm: str, **how: Any) -> list[Candidate]:
        if not self.helpful:
            return []
        names = tuple(task.name for task in self.helpful)
        return [
            Candidate(
                self._called(name), self.level, self.encoder, paradigm, sources=names, trusted=self.trusted, **how
            )
        ]

    def _with_all(self, name: str, paradigm: str, **how: Any) -> list[Candidate]:
        names = tuple(task.name for task in self.everything)
        if not names or len(names) == len(self.helpful):
            return []
        called = self._called(f"{name}, all sources")
        return [Candidate(called, self.level, self.encoder, paradigm, sources=names, **how)]

    def _called(self, name: str) -> str:
        return f"{name}, fine-tuned" if self.level == "fine-tuned" else name
