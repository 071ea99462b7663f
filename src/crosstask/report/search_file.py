"""`auto.json` as types: what the page of a search needs of it, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crosstask.report.files import Ranking, ScoresByMetric

AUTO_FILE = "auto.json"
RUN_FOLDER = "run"
"""Of the model, in the folder of the search."""
Interval = tuple[float, float]
"""In which a value lies four times of five."""


@dataclass(frozen=True)
class Score:
    """A mean over folds; of a candidate that was not tried there is none."""

    mean: float | None
    count: int
    standard_error: float | None = None


@dataclass(frozen=True)
class CandidateLine:
    """A line of the leaderboard; `gain` is over the base, None for the base itself in searches of version 0.1."""

    candidate: str
    score: Score
    seconds: float
    sources: Sequence[str] = ()
    updates: int | None = None
    gain: float | None = None
    interval: Interval | None = None
    note: str = ""
    is_winner: bool = False


@dataclass(frozen=True)
class Lead:
    """What the winner should be ahead of a candidate by."""

    candidate: str
    lead: float
    interval: Interval
    folds: int


@dataclass(frozen=True)
class SourceEffect:
    """What a candidate is ahead of another one by that has fewer sources."""

    candidate: str
    without: str
    sources: Sequence[str]
    difference: float
    interval: Interval
    folds: int


@dataclass(frozen=True)
class CurvePoint:
    """The score with so many labels."""

    labels: int
    score: float
    folds: int
    standard_error: float | None = None


@dataclass(frozen=True)
class LearningCurve:
    """Scores of a candidate with parts of the labels."""

    candidate: str
    points: Sequence[CurvePoint]


@dataclass(frozen=True)
class Forecast:
    """What twice the labels should bring."""

    candidate: str
    gain: float
    interval: Interval


@dataclass(frozen=True)
class EnsembleFacts:
    """Models that are better together: what each counts, and the score of all on labels that trained none of them."""

    weights: Mapping[str, float]
    score: float | None = None
    winner_score: float | None = None
    test: ScoresByMetric | None = None


@dataclass(frozen=True)
class Conclusions:
    """Sentences; empty where there is nothing to say."""

    lead: str = ""
    sources: str = ""
    labels: str = ""
    minutes: str = ""


@dataclass(frozen=True)
class SearchFile:
    """`auto.json`; what searches of older versions do not have is empty."""

    target: str
    metric: str
    minutes: float
    labels: int
    winner: str
    sources_help: bool
    why: str
    left_out: Mapping[str, str]
    notes: Sequence[str]
    leaderboard: Sequence[CandidateLine]
    seconds: float
    sources: Sequence[str] = ()
    base: str | None = None
    ranking: Ranking | None = None
    source_examples: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by level of candidates
    greater_is_better: bool = True
    leads: Sequence[Lead] = ()
    source_effects: Sequence[SourceEffect] = ()
    learning_curves: Sequence[LearningCurve] = ()
    forecast: Forecast | None = None
    conclusions: Conclusions = Conclusions()
    scores: Mapping[str, ScoresByMetric] = field(default_factory=dict)  # of the model, by split
    ensemble: EnsembleFacts | None = None
    times: Mapping[str, float] = field(default_factory=dict)  # by step
