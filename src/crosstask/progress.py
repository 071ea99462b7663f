"""Progress for people: a bar in a terminal, silence anywhere else."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Progress:
    """One bar at a time: call `advance` as work is done, with a few words on how it goes. This one stays silent."""

    def start(self, title: str, total: int, done: int = 0) -> None:
        """Begin a bar of `total` steps."""

    def advance(self, done: int, note: str = "") -> None:
        """`done` steps are done."""

    def stop(self) -> None:
        """Take the bar away."""


class TerminalProgress(Progress):
    """A bar with the time left, drawn by rich on the error stream."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        bar_width = 24 if console.width >= 100 else 8
        self.bars = RichProgress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=bar_width),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
        )
        self.taken = bar_width + 8  # of a line, before counts, title and note
        self.room = 0
        self.bar: int | None = None

    def start(self, title: str, total: int, done: int = 0) -> None:
        """Begin a bar, in place of the one before."""
        self.stop()
        self.bars.start()
        self.room = self.bars.console.width - self.taken - len(title) - 2 * len(str(total)) - len(" 00:00 ")
        self.bar = self.bars.add_task(title.replace("[", r"\["), total=total, completed=done, note="")

    def advance(self, done: int, note: str = "") -> None:
        """Move the bar. In a narrow terminal the note gives way, the numbers before it stay."""
        if self.bar is not None:
            note = note if len(note) <= self.room else note[: max(self.room - 1, 0)] + "…"
            self.bars.update(self.bar, completed=done, note=note)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bars.remove_task(self.bar)  # type: ignore[arg-type]
            self.bars.stop()
            self.bar = None


def make_progress(wanted: bool | None = None) -> Progress:
    """A bar if it is wanted, or, when nothing is said, if somebody is watching the terminal and rich is installed."""
    if wanted is None:
        wanted = sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        return Progress()
    try:
        return TerminalProgress()
    except ImportError:
        return Progress()


_SHOWN: ContextVar[Progress | None] = ContextVar("shown", default=None)


@contextmanager
def shown(progress: Progress) -> Iterator[Progress]:
    """The bar is taken away whatever happens; meanwhile `current` finds it."""
    before = _SHOWN.set(progress)
    try:
        yield progress
    finally:
        _SHOWN.reset(before)
        progress.stop()


def current() -> Progress:
    """The bar that is shown around this call, for work far inside that takes its time; a silent one outside."""
    return _SHOWN.get() or Progress()
