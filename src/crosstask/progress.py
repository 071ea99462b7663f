"""Progress bars: one in a terminal, nothing anywhere else."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID


class Progress:
    """One bar at a time, which `advance` moves. This one is not shown; `TerminalProgress` is."""

    def start(self, title: str, total: int, completed: int = 0) -> None:
        """Begin a bar of `total` steps."""

    def advance(self, completed: int, note: str = "") -> None:
        """Move the bar to this number of completed steps, with a few words on how it goes."""

    def stop(self) -> None:
        """Remove the bar."""


class TerminalProgress(Progress):
    """A bar with the remaining time, which rich writes to the error stream."""

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
        self.fixed_width = bar_width + 8  # columns of spinner and bar
        self.note_width = 0  # columns for the note, which depend on the title
        self.bar: TaskID | None = None

    def start(self, title: str, total: int, completed: int = 0) -> None:
        """Begin a bar, instead of the one before."""
        self.stop()
        self.bars.start()
        counts_width = 2 * len(str(total)) + len(" 00:00 ")
        self.note_width = self.bars.console.width - self.fixed_width - len(title) - counts_width
        title = title.replace("[", r"\[")  # no markup of rich
        self.bar = self.bars.add_task(title, total=total, completed=completed, note="")

    def advance(self, completed: int, note: str = "") -> None:
        """Move the bar. In a narrow terminal the note is cut, and the numbers before it are not."""
        if self.bar is None:
            return
        if len(note) > self.note_width:
            note = note[: max(self.note_width - 1, 0)] + "…"
        self.bars.update(self.bar, completed=completed, note=note)

    def stop(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bars.remove_task(self.bar)
            self.bars.stop()
            self.bar = None


def make_progress(show: bool | None = None) -> Progress:
    """A bar if `show` says so, or, when it is None, if the error stream is a terminal; without rich there is none."""
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty()
    if not show:
        return Progress()
    try:
        return TerminalProgress()
    except ImportError:
        return Progress()


_SHOWN: ContextVar[Progress | None] = ContextVar("shown", default=None)


@contextmanager
def shown(progress: Progress) -> Iterator[Progress]:
    """The bar is removed whatever happens; until then `current` returns it."""
    before = _SHOWN.set(progress)
    try:
        yield progress
    finally:
        _SHOWN.reset(before)
        progress.stop()


def current() -> Progress:
    """The bar that is shown around this call, for slow work deep inside it; one that is not shown otherwise."""
    return _SHOWN.get() or Progress()


SLOW = 0.3
"""Seconds after which a step may have had a bar of its own in the place of this one."""


def step_by_step(title: str, items: Sequence[str]) -> Iterator[str]:
    """The items one by one, with a bar that says how many are done; each may show a bar of its own."""
    progress = current()
    progress.start(title, len(items))
    for number, item in enumerate(items):
        started = time.monotonic()
        progress.advance(number, item)
        yield item
        if time.monotonic() - started > SLOW:
            progress.start(title, len(items), number + 1)


MANY_STEPS, STEPS_PER_MOVE = 50_000, 2_000
"""Of small steps there must be so many for a bar, which moves after so many."""


def in_bar(title: str, num_steps: int) -> Callable[[], None]:
    """A function to call after each of many small steps, which moves the bar that is shown around this call."""
    if num_steps < MANY_STEPS:
        return lambda: None
    progress = current()
    progress.start(title, num_steps)
    completed = 0

    def count() -> None:
        nonlocal completed
        completed += 1
        if completed % STEPS_PER_MOVE == 0:
            progress.advance(completed)

    return count


@contextmanager
def rows_bar(name: str, num_rows: int) -> Iterator[Callable[[int], None]]:
    """A bar for so many rows of something slow, in the bar that is shown or one of its own, from the beginning on."""
    with _own_bar(f"read {name[-30:]}", num_rows) as progress:
        yield lambda count: progress.advance(min(count, num_rows), "rows")


@contextmanager
def _own_bar(title: str, total: int) -> Iterator[Progress]:
    """The bar that is shown, or one that goes with this block."""
    surrounding = _SHOWN.get()
    progress = surrounding or make_progress()
    progress.start(title, total)
    try:
        yield progress
    finally:
        if surrounding is None:
            progress.stop()


LARGE_FILE = 4 * 2**20
"""A file of so many bytes takes long enough to be worth a bar."""


@contextmanager
def reading_bar(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar for a file of `size` bytes if it is large, in the bar that is shown or one of its own.

    What it gives moves the bar to a number of bytes.
    """
    if size < LARGE_FILE:
        yield lambda num_bytes: None
        return
    with _own_bar(f"read {name[-30:]}", size // 2**20) as progress:
        yield lambda num_bytes: progress.advance(num_bytes // 2**20, "MB")
