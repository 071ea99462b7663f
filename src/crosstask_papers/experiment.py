"""What an experiment of a paper is: its runs, its tables, and its claims with what we found."""

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from crosstask.papers import Paper
from crosstask.runs.events import Row
from crosstask.studies.significance import paired_t_test

Value = str | int | float | bool | None
Named = str | Mapping[str, Any]
Verdict = Literal["holds", "same direction", "does not hold", "not measured"]
FigureKind = Literal["lines", "boxes", "heat map", "dots"]
SIGNIFICANT = 0.05
WHY_HEADING = "## Where a claim does not hold"
"""In the text of an experiment, between what is done and why some claim does not hold."""


@dataclass(frozen=True)
class Cell:
    """One run: what varies in it, in order. The seed is one of the values.

    >>> cell = Cell.of(method="joint", k=20, seed=0)
    >>> cell["k"], str(cell)
    (20, 'method joint, k 20, seed 0')
    """

    values: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, **values: Value) -> "Cell":
        """From names and values."""
        return cls(tuple(values.items()))

    @classmethod
    def read(cls, row: Row) -> "Cell":
        """The cell that a row of the file is about."""
        return cls(tuple(row["cell"].items()))

    def __getitem__(self, name: str) -> Any:
        return dict(self.values)[name]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values)


@dataclass(frozen=True)
class Options:
    """How an experiment is run.

    - `data`: folder with the data sets; each experiment says which files it looks for;
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
    lines: Sequence[Sequence["str | int | float | Mean | None"]]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        lines = [[asdict(item) if isinstance(item, Mean) else item for item in line] for line in self.lines]
        return {"title": self.title, "head": list(self.head), "lines": lines, "note": self.note}


@dataclass(frozen=True)
class Mean:
    """Mean, standard deviation and number of values.

    >>> str(Mean.of([0.5, 0.7])), str(Mean.of([0.5]))
    ('0.60 ± 0.14', '0.50')
    """

    mean: float
    deviation: float | None
    count: int
    digits: int = 2

    @classmethod
    def of(cls, values: Iterable[float], digits: int = 2) -> "Mean | None":
        """None where there is no value."""
        found = list(values)
        if not found:
            return None
        return cls(statistics.fmean(found), _deviation(found), len(found), digits)

    def __str__(self) -> str:
        mean = f"{self.mean:.{self.digits}f}"
        return mean if self.deviation is None else f"{mean} ± {self.deviation:.{self.digits}f}"


@dataclass(frozen=True)
class Figure:
    """What a drawing of the runs shows, as plain data. A point has, by kind:

    - "lines": `series`, `x`, `y`, and `low` and `high` where a band is drawn around the line;
    - "boxes": `series`, `y`; a box per series, and every point as a dot;
    - "heat map": `row`, `column`, `value`, a share from 0 to 1;
    - "dots": `series`, `x`, `y`, and `name` where a dot has one of its own.

    `x` and `y` name the axes, `y` that of what is measured, whichever way it is drawn. `zero` asks for a rule where it
    is 0, and `dashed` names series that were not measured here.
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
        found: dict[tuple[str, float], list[float]] = {}
        for series, x, y in values:
            found.setdefault((series, x), []).append(y)
        points: list[dict[str, Any]] = []
        for (series, x), ys in found.items():
            mean, deviation = statistics.fmean(ys), _deviation(ys)
            band = {} if deviation is None else {"low": mean - deviation, "high": mean + deviation}
            points.append({"series": series, "x": x, "y": mean, **band})
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
class Claim:
    """A sentence of the paper, its figure, ours, and whether ours agrees."""

    text: str
    paper: str
    ours: str
    verdict: Verdict

    @classmethod
    def of_gains(cls, text: str, paper: str, gains: Sequence[float], *, digits: int = 2, unit: str = "") -> "Claim":
        """A claim that something is better, from paired differences: it holds where they are so beyond chance.

        The test is Student's paired t-test, two-sided, at 5%; where only the mean agrees, the direction is the same.

        >>> Claim.of_gains("b is better than a", "+1.0", [0.8, 1.1, 0.9]).verdict
        'holds'
        """
        if not gains:
            return cls(text, paper, "–", "not measured")
        p = paired_t_test(gains)
        found = Mean.of(gains, digits)
        shown = f"{found.mean:+.{digits}f}{unit}" if found is not None else ""
        if found is not None and found.deviation is not None:
            shown += f" ± {found.deviation:.{digits}f} over {found.count} pairs"
        shown += f", p = {p:.2g}" if p is not None else ""
        better = statistics.fmean(gains) > 0
        sure = p is not None and p < SIGNIFICANT
        return cls(text, paper, shown, ("holds" if sure else "same direction") if better else "does not hold")

    @classmethod
    def of_count(cls, text: str, paper: str, found: Sequence[bool], least: int) -> "Claim":
        """A claim about how many of some cases go one way."""
        if not found:
            return cls(text, paper, "–", "not measured")
        verdict: Verdict = "holds" if sum(found) >= least else "does not hold"
        if verdict != "holds" and 2 * sum(found) > len(found):
            verdict = "same direction"
        return cls(text, paper, f"{sum(found)} of {len(found)}", verdict)


@dataclass(frozen=True)
class Rows:
    """Results of all runs, to pick from."""

    rows: Sequence[Row] = field(default=())

    def by_seed(self, what: str | Callable[[Row], float | None] = "score", **where: Value) -> dict[int, float]:
        """A result by seed, of the runs where the cell has these values; one run per seed is expected."""
        found: dict[int, float] = {}
        for row in self.of(**where).rows:
            value = row.get(what) if isinstance(what, str) else what(row)
            if value is not None:
                assert row["cell"]["seed"] not in found, f"several runs with seed {row['cell']['seed']} for {where}"
                found[row["cell"]["seed"]] = value
        return found

    def of(self, **where: Value) -> "Rows":
        """The runs where the cell has these values."""
        return Rows([row for row in self.rows if all(row["cell"].get(name) == v for name, v in where.items())])

    def values(self, name: str) -> list[Any]:
        """The different values that a name has in the cells, in order of appearance."""
        return list(dict.fromkeys(row["cell"][name] for row in self.rows if name in row["cell"]))

    def best(self, name: str, what: str = "dev", **where: Value) -> Value:
        """The value of a name in the cells whose runs have the best mean of `what`, of those where it was measured."""
        found: dict[Value, list[float]] = {}
        for row in self.of(**where).rows:
            if row.get(what) is not None:
                found.setdefault(row["cell"].get(name), []).append(row[what])
        return max(found, key=lambda value: statistics.fmean(found[value])) if found else None

    def mean(self, what: str | Callable[[Row], float | None] = "score", digits: int = 2, **where: Value) -> Mean | None:
        """Mean and deviation over seeds."""
        return Mean.of(self.by_seed(what, **where).values(), digits)


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


@cache
def read_texts(name: str) -> tuple[str, str]:
    """What `texts/NAME.md` says about an experiment, and about claims that do not hold."""
    text = (Path(__file__).parent / "texts" / f"{name}.md").read_text(encoding="utf-8")
    about, _, why = text.partition(WHY_HEADING)
    # Line breaks of the file are no line breaks on a page.
    return " ".join(about.split()), " ".join(why.split())


def paired(better: Mapping[int, float], worse: Mapping[int, float]) -> list[float]:
    """Differences over the seeds that both have."""
    return [value - worse[seed] for seed, value in better.items() if seed in worse]


class Experiment(ABC):
    """An experiment of a paper: which runs it has, how one is done, and what the outcome says of the claims.

    A subclass is one experiment. `run` may only depend on the cell and on the options, for cells run in any order and
    in other processes. Data is read by functions that remember what they have read (`reproducing.data`).
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
    def cells(self) -> list[Cell]:
        """What to run, the most important first."""

    def follow_up(self, rows: Rows) -> list[Cell]:
        """What to run after all of `cells`, where their dev scores choose a setting; nothing by default.

        It is asked again when those are done, until it names nothing new.
        """
        return []

    @abstractmethod
    def run(self, cell: Cell) -> Row:
        """Train and measure one cell; returns at least `score`, the test score, in the paper's unit."""

    @abstractmethod
    def tables(self, rows: Rows) -> list[Table]:
        """The paper's tables with ours beside them, from whatever runs there are."""

    @abstractmethod
    def claims(self, rows: Rows) -> list[Claim]:
        """The paper's claims, each with its verdict."""

    def figures(self, rows: Rows) -> list[Figure]:
        """What is worth a look, from whatever runs there are; one without points is not shown."""
        return []

    def work(self, cell: Cell) -> Row:
        """What a process does: one run, with its cell and time written beside."""
        started = time.perf_counter()
        found = self.run(cell)
        return {"cell": dict(cell.values), **found, "seconds": round(time.perf_counter() - started, 2)}
