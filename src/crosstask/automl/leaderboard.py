"""The leaderboard as it fills: a live table in a terminal, plain lines elsewhere, or nothing."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from crosstask.automl.selection import FIRST_FOLDS, Margin, choose
from crosstask.runs.estimate import Estimate

if TYPE_CHECKING:
    from rich.console import Console

    from crosstask.automl.search import Search

HEADINGS = ("candidate", "folds", "score", "over target alone", "seconds", "")


@dataclass(frozen=True)
class Line:
    """A line of the leaderboard.

    - `score`: mean over its folds, as the metric counts it;
    - `margin`: over the best of the target alone, higher being better whatever the metric, on the folds of both;
    - `margin_needed`: standard errors that a candidate with sources must be ahead by;
    - `folds`: the score of each, by number; `updates`: where cross-validation stops a network.
    """

    candidate: str
    sources: tuple[str, ...]
    score: Estimate
    margin: Margin | None
    margin_needed: float
    folds: dict[int, float]
    updates: int | None
    seconds: float
    note: str = ""
    is_winner: bool = False

    def cells(self) -> tuple[str, ...]:
        """As a row for people."""
        ahead = "" if self.margin is None or not self.margin.count else f"{self.margin.mean:+.3f}"
        if ahead and self.margin is not None and math.isfinite(self.margin.error):
            ahead += f" ± {self.margin.error:.3f}"
        note = "chosen" if self.is_winner else "not tried" if self.note and not self.folds else ""
        seconds = f"{self.seconds:.1f}" if self.folds else ""
        return (self.candidate, str(len(self.folds)), self.score.text("standard_error"), ahead, seconds, note)

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it back."""
        return {**asdict(self), "score": self.score.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Line":
        """Read what `to_json` wrote; JSON has no word for what is not a number, and no numbers as keys."""
        score, ahead = data["score"], data["margin"]
        return cls(
            **{
                **data,
                "sources": tuple(data["sources"]),
                "score": Estimate.from_json(score),
                "margin": ahead
                and Margin(_number(ahead["mean"], math.nan), _number(ahead["error"], math.inf), ahead["count"]),
                "folds": {int(fold): value for fold, value in data["folds"].items()},
            }
        )


def _number(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def lines_of(search: "Search", winner: str | None = None) -> list[Line]:
    """All candidates, the best first; those that were not tried last."""
    choice = choose(search.standings())
    sign = 1.0 if search.bench.metric.greater_is_better else -1.0
    lines = []
    for standing in search.standings():
        name, candidate = standing.name, search.candidates[standing.name]
        found = choice.margins.get(name) if choice is not None else None
        lines.append(
            Line(
                name, candidate.sources, Estimate.of([sign * score for score in standing.scores.values()]),
                None if choice is not None and name == choice.target_only else found,
                standing.margin_needed,
                {fold: sign * score for fold, score in sorted(standing.scores.items())},
                None if candidate.level == "solved" or not standing.scores else search.best_updates(name),
                round(search.seconds(name), 1), search.note(name), name == winner,
            )
        )  # fmt: skip

    def place(line: Line) -> tuple[bool, bool, float]:
        ahead = 0.0 if line.margin is None or not line.margin.count else line.margin.mean
        return not line.folds, len(line.folds) < FIRST_FOLDS, -ahead

    return sorted(lines, key=place)


def table(lines: Sequence[Line], metric: str) -> str:
    """The leaderboard as aligned text."""
    headings = tuple(metric if heading == "score" else heading for heading in HEADINGS)
    rows = [headings, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, len(headings) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


class Board:
    """Shows how candidates stand. This one stays silent."""

    def working(self, text: str) -> None:
        """Say what is being done."""

    def show(self, search: "Search") -> None:
        """Show how candidates stand now."""

    @contextmanager
    def shown(self) -> Iterator["Board"]:
        """Take the table away at the end, whatever happens: what was found is said by others."""
        yield self


class LineBoard(Board):
    """A line for each candidate that has been through its folds, or was given up."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self.said: set[tuple[str, int]] = set()

    def show(self, search: "Search") -> None:
        """Say what is new."""
        from crosstask.automl.search import ROUNDS

        for line in lines_of(search):
            count = len(line.folds)
            is_new = (line.candidate, count) not in self.said
            if is_new and (count in (FIRST_FOLDS, *ROUNDS) or (line.note and not count)):
                self.said.add((line.candidate, count))
                what = f"not tried: {line.note}" if line.note else ""
                score = f"{search.bench.metric.name} {line.score.text('standard_error')} on {count} folds"
                self.write(f"{line.candidate}: {what or score}")


class TerminalBoard(Board):
    """A table that fills as it goes, drawn by rich on the error stream."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.live = Live(console=console or Console(stderr=True), transient=True, refresh_per_second=4)
        self.lines: list[Line] = []
        self.metric, self.text = "score", ""

    def working(self, text: str) -> None:
        """Under the table."""
        self.text = text
        self._draw()

    def show(self, search: "Search") -> None:
        """The table anew."""
        self.lines, self.metric = lines_of(search), search.bench.metric.name
        self.text = f"{max(search.clock.left, 0.0):.0f} s left"
        self._draw()

    def _draw(self) -> None:
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, padding=(0, 2, 0, 0), caption=Text(self.text), caption_justify="left")
        for heading in HEADINGS:
            right = heading not in ("candidate", "")
            drawn.add_column(self.metric if heading == "score" else heading, justify="right" if right else "left")
        for line in self.lines:
            drawn.add_row(*(Text(cell) for cell in line.cells()))
        self.live.update(drawn)

    @contextmanager
    def shown(self) -> Iterator[Board]:
        """Draw until the end."""
        with self.live:
            yield self


def make_board(wanted: bool | None = None, write: Callable[[str], object] | None = None) -> Board:
    """A table where somebody watches a terminal and rich is installed; else lines, if there is a way to write them."""
    if wanted is False:
        return Board()
    if wanted or (sys.stderr is not None and sys.stderr.isatty()):
        try:
            return TerminalBoard()
        except ImportError:
            pass
    return LineBoard(write) if write is not None else Board()
