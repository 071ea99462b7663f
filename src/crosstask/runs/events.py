"""What a run writes down as it happens: one type of event per kind of row in `history.jsonl`.

An event becomes a JSON object with its name under `event` and a key per field. Reading is forgiving, so that folders of
other versions can be read: fields that are missing have their defaults, and keys that no field is named after are kept
in `facts` where an event has such a field, and ignored where it has none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self

Row = dict[str, Any]
"""An event as a JSON object."""


@dataclass(frozen=True)
class Event:
    """A row of the record."""

    event: ClassVar[str]
    """Name under which the row is written."""
    left_out_if_none: ClassVar[tuple[str, ...]] = ()
    """Fields that a row lacks where they say nothing."""

    def to_json(self) -> Row:
        """As a JSON object."""
        row: Row = {"event": self.event}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "facts":  # beside the fields, not inside
                row.update(value)
            elif value is not None or item.name not in self.left_out_if_none:
                row[item.name] = value
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """From a JSON object of this event."""
        by_name = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, item in by_name.items():
            if name in row:
                values[name] = row[name]
            elif item.default is MISSING and item.default_factory is MISSING:
                values[name] = None  # another version of the package did not write it
        if "facts" in by_name:
            values["facts"] = {key: value for key, value in row.items() if key not in by_name and key != "event"}
        return cls(**values)


@dataclass(frozen=True)
class Start(Event):
    """The run begins: who takes part, and how."""

    event: ClassVar[str] = "start"
    targets: list[str]
    sources: list[str]
    paradigm: str
    weighting: str | None
    parameters: dict[str, int]


@dataclass(frozen=True)
class TaskDescription(Event):
    """A task of the run, with the number of examples in each split."""

    event: ClassVar[str] = "task"
    name: str
    kind: str
    labels: list[str]
    sizes: dict[str, int]


@dataclass(frozen=True)
class Note(Event):
    """Something that a reader of the report should know."""

    event: ClassVar[str] = "note"
    left_out_if_none: ClassVar[tuple[str, ...]] = ("task", "transfer")
    text: str
    task: str | None = None
    transfer: str | None = None


@dataclass(frozen=True)
class Warned(Event):
    """Something that a reader of the report should look into."""

    event: ClassVar[str] = "warning"
    left_out_if_none: ClassVar[tuple[str, ...]] = ("task",)
    text: str
    task: str | None = None


@dataclass(frozen=True)
class PhaseStart(Event):
    """A phase begins, with these weights."""

    event: ClassVar[str] = "phase"
    name: str
    tasks: list[str]
    weights: dict[str, float]


@dataclass(frozen=True)
class Update(Event):
    """Mean training losses since the last such row, and the weights after this update."""

    event: ClassVar[str] = "update"
    phase: str
    epoch: int
    update: int
    losses: dict[str, float]
    weights: dict[str, float]
    learning_rate: float


@dataclass(frozen=True)
class DevEvaluation(Event):
    """Loss and metrics of one task on its dev set."""

    event: ClassVar[str] = "dev"
    phase: str
    epoch: int
    update: int
    task: str
    loss: float
    scores: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class HeldOutLosses(Event):
    """Losses on the held-out examples that a weighting learned from."""

    event: ClassVar[str] = "held_out"
    phase: str
    update: int
    losses: dict[str, float]


@dataclass(frozen=True)
class WeightingFacts(Event):
    """What a weighting saw (similarities, gradient norms, conflict) and the weights that it drew from it."""

    event: ClassVar[str] = "weighting"
    phase: str
    update: int
    weights: dict[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TransferFacts(Event):
    """What a transfer has to show at an evaluation: a label map, similarities, attention."""

    event: ClassVar[str] = "transfer"
    name: str
    phase: str
    update: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PhaseEnd(Event):
    """A phase ends: which model was kept, and what each task counted in the end."""

    event: ClassVar[str] = "phase_end"
    name: str
    updates: int
    stopped_early: bool
    best_score: float | None
    kept: str
    weights: dict[str, float]


@dataclass(frozen=True)
class SkippedStep(Event):
    """A loss or gradient that was not finite did not reach the weights."""

    event: ClassVar[str] = "skipped"
    reason: str
    tasks: list[str]


@dataclass(frozen=True)
class SetAside(Event):
    """A task takes no further part."""

    event: ClassVar[str] = "set_aside"
    task: str
    reason: str


@dataclass(frozen=True)
class ProbeFitted(Event):
    """A linear probe, with the penalty that cross-validation chose."""

    event: ClassVar[str] = "probe"
    task: str
    strength: float
    units: int
    held_out: dict[str, float]


@dataclass(frozen=True)
class NamesFitted(Event):
    """A head that begins at the names of its labels: the prior's scale, and what cross-validation chose by labels.

    Without labels nothing was chosen, and there are no units.
    """

    event: ClassVar[str] = "names"
    task: str
    scale: float
    inverse_penalty: float | None
    units: int
    held_out: dict[str, float]


@dataclass(frozen=True)
class StackingFitted(Event):
    """A stacked model, and its cross-validated quality with all sources, with none, and without each."""

    event: ClassVar[str] = "stacking"
    task: str
    strength: float
    share: float
    held_out: dict[str, float]
    held_out_features_alone: dict[str, float]
    held_out_without: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Calibrated(Event):
    """How a target's logits become probabilities and decisions, and how far probabilities are off, before and after.

    - `fitted_on`: `dev`, or `cross-validation`, with so many `units`;
    - `thresholds`, `offsets`: by label, where there are some;
    - `split`: what the calibration errors and the bins are of; a bin has `low`, `high`, `count`, `probability` and
      `accuracy`.
    """

    event: ClassVar[str] = "calibrated"
    task: str
    fitted_on: str
    units: int
    temperature: float
    isotonic: bool
    thresholds: dict[str, float]
    offsets: dict[str, float]
    split: str
    error_before: float
    error: float
    bins_before: list[dict[str, float]]
    bins: list[dict[str, float]]


EVENTS: dict[str, type[Event]] = {kind.event: kind for kind in Event.__subclasses__()}
"""All types of event, by the name in a row."""


def read_events(rows: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Rows of a history as events; rows of a kind that this version does not know are left out."""
    events = []
    for row in rows:
        name = row.get("event")
        kind = EVENTS.get(name) if isinstance(name, str) else None
        if kind is not None:
            events.append(kind.from_json(row))
    return events
