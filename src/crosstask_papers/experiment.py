"""What an experiment of a paper is: its runs, its tables, and its claims with what we found."""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from crosstask.baton import clock
from crosstask.methods import Named
from crosstask.papers import Paper
from crosstask.runs.estimate import DASH, Estimate
from crosstask.runs.events import Row
from crosstask.studies.grid import RunKey, Scalar
from crosstask_papers.claims import (  # noqa: F401 (an experiment imports all that it needs from here)
    Claim,
    by_seed_mean,
    by_target_mean,
    differences,
    judged,
    paired,
)

DIGITS = 2
"""Decimals of numbers in tables."""
TableItem = str | int | float | Estimate | None
FigureKind = Literal["lines", "boxes", "heat map", "dots"]
WHY_HEADING = "## Where a claim does not hold"
"""In the text of an experiment, between what is done and why some claim does not hold."""


@dataclass(frozen=True)
class Options:
    """How an experiment is run.

    - `data`: folder with the data sets; each experiment says which files it reads;
    - `encoder`: instead of the experiment's own, as a recipe names it;
    - `seeds`: how many; the experiment's own number when None;
    - `quick`: smaller data, fewer methods and seeds, minutes on two cores.
    """

    data: Path
    encoder: Named | None = None
    seeds: int | None = None
    quick: bool = False


@dataclass(frozen=True)
class Table:
    """Numbers, means or texts in lines, and None for what is missing."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[TableItem]]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        lines = [[_item_json(item) for item in line] for line in self.lines]
        return {"title": self.title, "head": list(self.head), "lines": lines, "note": self.note}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Table":
        """Read what `to_json` wrote."""
        lines = []
        for line in data["lines"]:
            lines.append([Estimate.from_json(item) if isinstance(item, dict) else item for item in line])
        return cls(data["title"], data["head"], lines, data["note"])

    @property
    def texts(self) -> list[list[str]]:
        """The lines as people read them, the same in the terminal, in Markdown and in HTML."""
        return [[item_text(item) for item in line] for line in self.lines]


def item_text(item: TableItem) -> str:
    """A cell of a table for people.

    >>> item_text(None), item_text(12.345), item_text(Estimate(50.0, 1.25, 5, digits=2)), item_text("joint")
    ('–', '12.35', '50.00 ± 1.25', 'joint')
    """
    if item is None:
        return DASH
    if isinstance(item, float):
        return f"{item:.{DIGITS}f}"
    return str(item)


def _item_json(item: TableItem) -> Any:
    if not isinstance(item, Estimate):
        return item
    return {"mean": item.mean, "deviation": item.deviation, "count": item.count, "digits": item.digits}


def mean_of(values: Iterable[float], digits: int = 2) -> Estimate | None:
    """Mean and standard deviation, with so many decimals; None where there is no value.

    >>> str(mean_of([0.5, 0.7])), str(mean_of([0.5]))
    ('0.60 ± 0.14', '0.50')
    """
    return Estimate.of_any(values, digits=digits)


@dataclass(frozen=True)
class Figure:
    """What a drawing of the runs shows, as plain data. A point has, by kind:

    - "lines": `series`, `x`, `y`, and `low` and `high` where a band is plotted around the line;
    - "boxes": `series`, `y`; a box per series, and every point as a dot;
    - "heat map": `row`, `column`, `value`, a proportion from 0 to 1;
    - "dots": `series`, `x`, `y`, and `name` where a dot has one of its own.

    `x` and `y` name the axes, `y` that of what is measured, whichever way it is plotted. `zero` asks for a rule where
    it is 0, and `dashed` names series that were not measured here.
    """

    title: str
    kind: FigureKind
    points: Sequence[Mapping[str, Any]]
    x: str = ""
    y: str = ""
    note: str = ""
    x_log: bool = False
    zero: bool = False
    dashed: Sequence[str] = ()

    @classmethod
    def of_means(cls, title: str, values: Iterable[tuple[str, float, float]], **options: Any) -> "Figure":
        """Lines through means, with a band of one deviation, of all values with the same series and x.

        >>> Figure.of_means("Gain", [("joint", 20, 1.0), ("joint", 20, 3.0)]).points[0]["y"]
        2.0
        """
        by_point: dict[tuple[str, float], list[float]] = {}
        for series, x, y in values:
            by_point.setdefault((series, x), []).append(y)
        points: list[dict[str, Any]] = []
        for (series, x), ys in by_point.items():
            mean = Estimate.of(ys)
            point = {"series": series, "x": x, "y": mean.mean}
            if mean.deviation is not None:
                point |= {"low": mean.mean - mean.deviation, "high": mean.mean + mean.deviation}
            points.append(point)
        return cls(title, "lines", points, **options)

    @classmethod
    def of_values(cls, title: str, values: Mapping[str, Iterable[float]], **options: Any) -> "Figure":
        """A box for the values of each series."""
        points = [{"series": series, "y": y} for series, ys in values.items() for y in ys]
        return cls(title, "boxes", points, **options)

    def to_json(self) -> dict[str, Any]:
        """As plain data, without the points: they come from the runs."""
        return {"title": self.title, "kind": self.kind, "x": self.x, "y": self.y}


@dataclass(frozen=True)
class Rows:
    """Results of all runs, to pick from."""

    rows: Sequence[Row] = field(default=())

    def by_seed(self, what: str | Callable[[Row], float | None] = "score", **where: Scalar) -> dict[int, float]:
        """A result by seed, of the runs where the cell has these values; one run per seed is expected."""
        by_seed: dict[int, float] = {}
        for row in self.of(**where).rows:
            value = row.get(what) if isinstance(what, str) else what(row)
            if value is not None:
                seed = row["cell"]["seed"]
                assert seed not in by_seed, f"several runs with seed {seed} for {where}"
                by_seed[seed] = value
        return by_seed

    def of(self, **where: Scalar) -> "Rows":
        """The runs where the cell has these values."""
        rows = list(self.rows)
        for name, value in where.items():
            rows = [row for row in rows if row["cell"].get(name) == value]
        return Rows(rows)

    def values(self, name: str) -> list[Any]:
        """The different values that a name has in the cells, in order of appearance."""
        return list(dict.fromkeys(row["cell"][name] for row in self.rows if name in row["cell"]))

    def best(self, name: str, what: str = "dev", **where: Scalar) -> Scalar:
        """The value of a name in the cells whose runs have the best mean of `what`, of those where it was measured."""
        results: dict[Scalar, list[float]] = {}
        for row in self.of(**where).rows:
            if row.get(what) is not None:
                results.setdefault(row["cell"].get(name), []).append(row[what])
        means = {value: statistics.fmean(measured) for value, measured in results.items()}
        return max(means, key=means.__getitem__, default=None)

    def mean(
        self, what: str | Callable[[Row], float | None] = "score", digits: int = 2, **where: Scalar
    ) -> Estimate | None:
        """Mean and deviation over seeds."""
        return mean_of(self.by_seed(what, **where).values(), digits)


@cache
def read_texts(name: str) -> tuple[str, str]:
    """What `texts/NAME.md` says about an experiment, and about claims that do not hold."""
    text = (Path(__file__).parent / "texts" / f"{name}.md").read_text(encoding="utf-8")
    about, _, why = text.partition(WHY_HEADING)
    # Line breaks of the file are no line breaks on a page.
    return " ".join(about.split()), " ".join(why.split())


class Experiment(ABC):
    """An experiment of a paper: which runs it has, how one is done, and what the outcome says of the claims.

    A subclass is one experiment. `run` may only depend on the cell and on the options, for cells run in any order and
    in other processes. Data is read by functions that cache what they have read (`crosstask_papers.data`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[Paper]
    seeds: ClassVar[int] = 5
    quick_seeds: ClassVar[int] = 2

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def about(self) -> str:
        """Two or three sentences: what is done, on which data, and what stands in for data that cannot be had."""
        return read_texts(self.name)[0]

    @property
    def why(self) -> str:
        """Where a claim does not hold in the full version: what was tried, and what is likely; else nothing.

        No figures: those are in the tables.
        """
        return read_texts(self.name)[1]

    @property
    def used_seeds(self) -> range:
        """From 0 on."""
        return range(self.options.seeds or (self.quick_seeds if self.options.quick else self.seeds))

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that can change a result but the cell, as plain data: sizes, updates, learning rate, encoder."""

    @abstractmethod
    def cells(self) -> list[RunKey]:
        """What to run, the most important first."""

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """What to run after all of `cells`, where their dev scores choose a setting; nothing by default.

        It is asked again when those are done, until it names nothing new.
        """
        return []

    @abstractmethod
    def run(self, cell: RunKey) -> Row:
        """Train and measure one run; returns at least `score`, the test score, in the paper's unit."""

    @abstractmethod
    def tables(self, rows: Rows) -> list[Table]:
        """The paper's tables with ours beside them, from whatever runs there are."""

    @abstractmethod
    def claims(self, rows: Rows) -> list[Claim]:
        """The paper's claims, each by itself; see `judged_claims`."""

    def judged_claims(self, rows: Rows) -> list[Claim]:
        """The claims with p-values corrected for their number: what people read."""
        return judged(self.claims(rows))

    def figures(self, rows: Rows) -> list[Figure]:
        """What is worth plotting, from whatever runs there are; one without points is not shown."""
        return []

    def work(self, cell: RunKey) -> Row:
        """What a process does: one run, with its time written beside."""
        started = clock()
        results = self.run(cell)
        return {**results, "seconds": round(clock() - started, 2)}
