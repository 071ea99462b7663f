"""The files of a run or comparison folder as types: what a page needs of each, and nothing else.

Reading checks the types. Keys that no field is named after are ignored, so that folders of other versions can be read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crosstask import storage
from crosstask.errors import CrossTaskError
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Event, Row, TaskDescription, read_events
from crosstask.runs.record import (
    ENVIRONMENT_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    PREDICTIONS_FILE,
    RECIPE_FILE,
    read_history,
    read_rows,
)
from crosstask.storage import DamagedFileError
from crosstask.validation import shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

COMPARISON_FILE, CELLS_FILE, RESULTS_FILE = "comparison.json", "cells.jsonl", "results.json"
RANK_FILE = "rank.json"
"""What `crosstask rank --json` prints, beside a run or a comparison."""

ScoresByMetric = Mapping[str, float | None]
WeightsByTask = Mapping[str, float | None]
Label = str | float | Sequence[str] | None
"""One label, a number, or several labels: of a multilabel example, or of the words of a sentence."""


@dataclass(frozen=True)
class Environment:
    """`environment.json`: versions and machine."""

    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    platform: str | None = None
    processor_threads: int | None = None
    gpus: Sequence[str] = ()
    command: Sequence[str] = ()


@dataclass(frozen=True)
class Metrics:
    """`metrics.json`: what a finished run reached."""

    targets: Sequence[str] = ()
    paradigm: str = ""
    scores: Mapping[str, Mapping[str, ScoresByMetric]] = field(default_factory=dict)  # by task and split
    weights: Mapping[str, WeightsByTask] = field(default_factory=dict)  # at the end of each phase
    set_aside: Sequence[str] = ()
    seconds: float | None = None
    papers: Sequence[str] | None = None  # BibTeX keys; None in folders of version 0.1
    majority: Mapping[str, Mapping[str, ScoresByMetric]] = field(default_factory=dict)  # what scores have to beat


@dataclass(frozen=True)
class Prior:
    """What sources alike have brought elsewhere, in a row of `rank.json`."""

    helped: float
    gain: float
    sources: int
    suites: int = 1


@dataclass(frozen=True)
class RankedSource:
    """A row of `rank.json`."""

    source: str
    verdict: str
    score: float | None = None
    size: int | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    prior: Prior | None = None


@dataclass(frozen=True)
class Ranking:
    """`rank.json`: sources from best to worst."""

    target: str
    rows: Sequence[RankedSource]
    notes: Sequence[str] = ()

    @property
    def score_names(self) -> list[str]:
        """Names of the scores that some source has."""
        names: dict[str, None] = {}
        for row in self.rows:
            for name, value in row.scores.items():
                if value is not None:
                    names[name] = None
        return list(names)


@dataclass(frozen=True)
class Prediction:
    """A row of `predictions.jsonl`: an example of an evaluated split. Tagging has an entry per word everywhere."""

    task: str
    part: str
    example: int
    gold: Label
    predicted: Label = None
    input: str | Sequence[str] | None = None
    probability: float | Sequence[float | None] | None = None

    @property
    def is_right(self) -> bool:
        """Whether the prediction is the gold label."""
        return self.gold == self.predicted

    def words(self) -> list[tuple[str, str, str]]:
        """Word, gold tag and predicted tag, of tagging."""
        return list(zip(list_of(self.input), list_of(self.gold), list_of(self.predicted), strict=True))


@dataclass(frozen=True)
class ComparedMethod:
    """A method of `comparison.json`."""

    name: str
    paradigm: str
    weighting: str | Row | None = None
    transfer: Sequence[str | Row] = ()
    training: Row = field(default_factory=dict)
    by_target: Mapping[str, Row] = field(default_factory=dict)
    summary: str = ""
    uses_sources: bool | None = None  # None in folders of version 0.1
    papers: Sequence[str] | None = None  # likewise


@dataclass(frozen=True)
class ComparisonLine:
    """A method on a target over all seeds, and against the baseline on the same seeds."""

    method: str
    target: str
    score: Estimate | None
    dev: Estimate | None
    gain: Estimate | None  # positive where the method is better, whichever direction the metric has
    wins: int
    pairs: int
    p_t_holm: float | None  # of a paired test, corrected over the table
    verdict: str | None  # what the sources did, against the target alone
    seconds: float | None
    is_best: bool
    is_baseline: bool
    refused: str | None  # why it did not run
    settings: Row = field(default_factory=dict)  # those that dev chose, where some were searched


@dataclass(frozen=True)
class ComparisonCell:
    """A run of a comparison in the folder `run`, relative to its own; one that was refused has no scores."""

    method: str
    target: str
    seed: int
    scores: Mapping[str, ScoresByMetric] | None = None
    weights: Mapping[str, WeightsByTask] = field(default_factory=dict)
    run: str | None = None


@dataclass(frozen=True)
class TaskFacts:
    """A task as a comparison describes it."""

    name: str
    role: str
    summary: str
    labels: Sequence[str]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class ComparisonFile:
    """`comparison.json`."""

    baseline: str
    metrics: Mapping[str, str]  # what is measured, by target
    parts: Mapping[str, str]  # on which split, by target
    seeds: Sequence[int]
    methods: Mapping[str, ComparedMethod]
    settings: Row
    lines: Sequence[ComparisonLine]
    notes: Sequence[str]
    cells: Sequence[ComparisonCell]
    greater_is_better: Mapping[str, bool] | None = None  # by metric; None in folders of version 0.1
    title: str = ""
    question: str = ""
    labels: str | None = None  # how many labels the target has, in words
    tasks: Sequence[TaskFacts] | None = None
    environment: Environment | None = None
    seconds: float | None = None
    alone: Mapping[str, str] = field(default_factory=dict)  # by target, the method that sources are judged by
    majority: Mapping[str, Estimate] = field(default_factory=dict)  # by target, the score of the same answer for all


@dataclass(frozen=True)
class Session:
    """A row of `cells.jsonl` that says on which machine the following runs were added."""

    environment: Environment


@dataclass(frozen=True)
class RunFiles:
    """All files of a run folder that its page shows; `metrics` is None until the run has finished."""

    name: str
    events: Sequence[Event]
    metrics: Metrics | None = None
    recipe: str = ""
    environment: Environment = Environment()
    predictions: Sequence[Prediction] = ()
    ranking: Ranking | None = None


def list_of(label: Label) -> list[str]:
    """The labels of an example, of which there may be several.

    >>> list_of("a"), list_of(["a", "b"])
    (['a'], ['a', 'b'])
    """
    if isinstance(label, str) or not isinstance(label, Sequence):
        return [str(label)]
    return list(label)


FileType = TypeVar("FileType")
_ADAPTERS: "dict[type, TypeAdapter[Any]]" = {}
"""Validators by type: making one takes longer than using it."""


def read_run_files(folder: Path) -> RunFiles:
    """Read a run folder; of a run that has not finished, the files that are there."""
    events = read_run_events(folder / HISTORY_FILE)
    predictions = read_json_lines(folder / PREDICTIONS_FILE, Prediction)
    _check_predictions(folder / PREDICTIONS_FILE, predictions, events)
    return RunFiles(
        name=folder.resolve().name,
        events=events,
        metrics=read_json(folder / METRICS_FILE, Metrics),
        recipe=_text(folder / RECIPE_FILE),
        environment=read_json(folder / ENVIRONMENT_FILE, Environment) or Environment(),
        predictions=predictions,
        ranking=read_json(folder / RANK_FILE, Ranking),
    )


def read_run_events(path: Path) -> list[Event]:
    """The events of a history file; none where there is no file."""
    if not path.is_file():
        return []
    try:
        return read_events(read_history(path))
    except DamagedFileError as error:
        raise damaged(path, error) from error


def _check_predictions(path: Path, predictions: Sequence[Prediction], events: Sequence[Event]) -> None:
    """Labels and probabilities must be of the kind that their task has."""
    kinds = {event.name: event.kind for event in events if isinstance(event, TaskDescription)}
    for row in predictions:
        kind = kinds.get(row.task)
        if kind is not None and not _fits_kind(row, kind):
            raise damaged(path, f"example {row.example} of the task {shown(row.task)} has other labels than {kind}")


def _fits_kind(row: Prediction, kind: str) -> bool:
    labels = [row.gold, row.predicted]
    if kind == "tagging":
        columns: list[object] = [row.input, *labels]
        if row.probability is not None:
            columns.append(row.probability)
        lengths = {len(column) for column in columns if isinstance(column, Sequence) and not isinstance(column, str)}
        return len(lengths) == 1 and not any(isinstance(column, str | float | None) for column in columns)
    if isinstance(row.probability, Sequence):
        return False
    if kind == "regression":
        return all(label is None or isinstance(label, int | float) for label in labels)
    if kind == "multilabel":
        return all(isinstance(label, Sequence) and not isinstance(label, str) for label in labels)
    return all(isinstance(label, str) for label in labels)


def read_json(path: Path, kind: type[FileType]) -> FileType | None:
    """A JSON file as an object of this type; None where there is no file."""
    if not path.is_file():
        return None
    try:
        return from_json(storage.read_json(path), kind)
    except (DamagedFileError, ValueError) as error:
        raise damaged(path, error) from error


def read_json_lines(path: Path, kind: type[FileType], event: str | None = None) -> list[FileType]:
    """The rows of a file of JSON lines, those of one event alone where it is named; none where there is no file."""
    try:
        return [from_json(row, kind) for row in _rows(path) if event in (None, row.get("event"))]
    except ValueError as error:
        raise damaged(path, error) from error


def from_json(data: Any, kind: type[FileType]) -> FileType:
    """Plain data as an object of this type; raises ValueError where the data does not fit."""
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    adapter: TypeAdapter[FileType] = _ADAPTERS[kind]
    return adapter.validate_python(data)


def damaged(path: Path, reason: object) -> CrossTaskError:
    """The error for a file that crosstask did not write like this."""
    lines = str(reason).splitlines()
    return CrossTaskError(
        f"The files in '{path.parent}' are not as crosstask writes them ({path.name}: {' '.join(lines[:3])})."
    )


def _text(path: Path) -> str:
    """A text file; empty where there is none."""
    try:
        return storage.read_text(path) if path.is_file() else ""
    except DamagedFileError as error:
        raise damaged(path, error) from error


def _rows(path: Path) -> list[Row]:
    """The objects in a file of JSON lines; none where there is no file."""
    try:
        return read_rows(path) if path.is_file() else []
    except DamagedFileError as error:
        raise damaged(path, error) from error
