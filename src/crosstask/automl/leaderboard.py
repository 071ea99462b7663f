"""The leaderboard as it fills: its lines, and a live table in a terminal, plain lines elsewhere, or nothing."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from crosstask.automl.standings import OVERLAP
from crosstask.runs.estimate import Estimate

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = ("candidate", "folds", "score", "expected gain", "80% interval", "seconds", "")
LEFT_ALIGNED = ("candidate", "")


@dataclass(frozen=True)
class Line:
    """A line of the leaderboard.

    - `score`: mean over its folds, as the metric counts it;
    - `margin`: over the base, the simplest model of the target alone, higher being better whatever the metric, on the
      folds of both;
    - `gain`: over the base, by its folds and what such methods have brought elsewhere, and the `interval` in which it
      lies four times of five; None in searches of version 0.1;
    - `folds`: the score of each, by number; `updates`: of a run that learns step by step.
    """

    candidate: str
    sources: tuple[str, ...]
    score: Estimate
    margin: Estimate | None
    folds: dict[int, float]
    updates: int | None
    seconds: float
    gain: float | None = None
    interval: tuple[float, float] | None = None
    note: str = ""
    is_winner: bool = False

    @property
    def position(self) -> tuple[bool, float]:
        """By which lines are sorted: the best first, those not tried last."""
        gain = self.gain
        if gain is None:
            gain = self.margin.mean if self.margin is not None and self.margin.count else 0.0
        return not self.folds, -gain

    def cells(self) -> tuple[str, ...]:
        """As a row for people."""
        gain, interval, seconds, remark = "", "", "", ""
        if self.folds:
            seconds = f"{self.seconds:.1f}"
            if self.gain is not None and self.interval is not None and self.margin is not None:
                low, high = self.interval
                gain, interval = f"{self.gain:+.3f}", f"{low:+.3f} to {high:+.3f}"
        if self.is_winner:
            remark = "chosen"
        elif self.note and not self.folds:
            remark = "not tried"
        return (
            self.candidate,
            str(len(self.folds)),
            self.score.text("standard_error"),
            gain,
            interval,
            seconds,
            remark,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it back."""
        # `error` is what version 0.1 called the standard error of a margin.
        data = {**asdict(self), "score": self.score.to_json()}
        if self.margin is not None:
            data["margin"] = {**self.margin.to_json(), "error": self.margin.standard_error}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Line":
        """Read what `to_json` wrote; JSON has no numbers as keys."""
        fields = dict(data)
        fields["sources"] = tuple(data["sources"])
        fields["score"] = Estimate.from_json(data["score"])
        if data["margin"] is not None:
            fields["margin"] = Estimate.from_json(data["margin"], overlap=OVERLAP)
        fields.pop("margin_needed", None)  # of version 0.1
        if data.get("interval") is not None:
            fields["interval"] = tuple(data["interval"])
        fields["folds"] = {int(fold): score for fold, score in data["folds"].items()}
        return cls(**fields)


@dataclass(frozen=True)
class Leaderboard:
    """How candidates stand, the best first.

    - `metric`: name of what is measured;
    - `milestones`: numbers of folds after which a candidate has gone through a round;
    - `seconds_left`: of the time for everything.
    """

    lines: Sequence[Line]
    metric: str
    milestones: Sequence[int]
    seconds_left: float


def table(lines: Sequence[Line], metric: str) -> str:
    """The leaderboard as aligned text."""
    rows = [titles(metric)]
    for line in lines:
        rows.append(line.cells())
    widths = [len(max(column, key=len)) for column in zip(*rows, strict=True)]
    texts: list[str] = []
    for row in rows:
        aligned: list[str] = []
        for heading, cell, width in zip(HEADINGS, row, widths, strict=True):
            if heading in LEFT_ALIGNED:
                aligned.append(cell.ljust(width))
            else:
                aligned.append(cell.rjust(width))
        texts.append("  ".join(aligned).rstrip())
    return "\n".join(texts)


def titles(metric: str) -> tuple[str, ...]:
    """The headings, with the name of the metric over the scores."""
    return tuple(metric if heading == "score" else heading for heading in HEADINGS)


class Board:
    """Shows how a search goes. This one stays silent."""

    def working(self, text: str) -> None:
        """Say what is being done."""

    def show(self, leaderboard: Leaderboard) -> None:
        """Show how candidates stand."""

    @contextmanager
    def shown(self) -> Iterator["Board"]:
        """Take the table away at the end, whatever happens: the result is printed by others."""
        yield self


class LineBoard(Board):
    """A line for each candidate that has been through its folds, or was given up."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self.written: set[tuple[str, int]] = set()

    def show(self, leaderboard: Leaderboard) -> None:
        """Write what is new."""
        for line in leaderboard.lines:
            count = len(line.folds)
            is_given_up = bool(line.note) and not count
            if (line.candidate, count) in self.written or not (is_given_up or count in leaderboard.milestones):
                continue
            self.written.add((line.candidate, count))
            if line.note:
                self.write(f"{line.candidate}: not tried: {line.note}")
            else:
                score = line.score.text("standard_error")
                self.write(f"{line.candidate}: {leaderboard.metric} {score} on {count} folds")


class TerminalBoard(Board):
    """A table that fills as it goes, shown by rich on the error stream."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self.live = Live(console=console or Console(stderr=True), transient=True, refresh_per_second=4)
        self.leaderboard = Leaderboard((), "score", (), 0.0)

    def working(self, text: str) -> None:
        """Under the table."""
        self._update(text)

    def show(self, leaderboard: Leaderboard) -> None:
        """The table anew."""
        self.leaderboard = leaderboard
        self._update(f"{max(leaderboard.seconds_left, 0.0):.0f} s left")

    def _update(self, caption: str) -> None:
        from rich.table import Table
        from rich.text import Text

        rich_table = Table(box=None, padding=(0, 2, 0, 0), caption=Text(caption), caption_justify="left")
        for heading, title in zip(HEADINGS, titles(self.leaderboard.metric), strict=True):
            rich_table.add_column(title, justify="left" if heading in LEFT_ALIGNED else "right")
        for line in self.leaderboard.lines:
            rich_table.add_row(*(Text(cell) for cell in line.cells()))
        self.live.update(rich_table)

    @contextmanager
    def shown(self) -> Iterator[Board]:
        """Shown until the end."""
        with self.live:
            yield self


def make_board(progress: bool | None = None, write: Callable[[str], object] | None = None) -> Board:
    """A table where somebody watches a terminal and rich is installed; else lines, if there is a way to write them."""
    if progress is False:
        return Board()
    if progress or (sys.stderr is not None and sys.stderr.isatty()):
        try:
            return TerminalBoard()
        except ImportError:
            pass
    if write is None:
        return Board()
    return LineBoard(write)
