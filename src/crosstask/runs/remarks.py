"""What a reader of a run should know, from its record: the same on the page, on the terminal and in Python."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from crosstask.quoting import readable
from crosstask.runs.events import Event, Note, SetAside, SkippedStep, Update, Warned

REMARK_ORDER = ("set aside", "warning", "skipped", "note")
"""Kinds of remarks, the most important first."""


@dataclass(frozen=True)
class Remark:
    """Something that a reader should know: a note, a warning, a skipped batch, a task that was set aside."""

    kind: str
    task: str | None
    text: str
    times: int = 1


def remarks_of(events: Iterable[Event]) -> list[Remark]:
    """Warnings first; equal remarks are one with a count."""
    counts: Counter[Remark] = Counter()
    for event in events:
        if isinstance(event, Note):
            counts[Remark("note", event.task, event.text or "")] += 1
        elif isinstance(event, Warned):
            counts[Remark("warning", event.task, event.text or "")] += 1
        elif isinstance(event, SetAside):
            counts[Remark("set aside", event.task, event.reason or "")] += 1
        elif isinstance(event, SkippedStep):
            counts[_skipped(event)] += 1
    remarks = [replace(remark, times=times) for remark, times in counts.items()]
    return sorted(remarks, key=lambda remark: REMARK_ORDER.index(remark.kind))


def _skipped(event: SkippedStep) -> Remark:
    """One task's part of an update, or the whole of it."""
    tasks = event.tasks or ()
    if len(tasks) == 1:
        return Remark("skipped", tasks[0], f"a batch was skipped: {event.reason or ''}")
    return Remark("skipped", None, f"an update was skipped: {event.reason or ''}")


def warnings_of(events: Sequence[Event]) -> list[str]:
    """The remarks that are no mere notes, as sentences for a terminal."""
    updates: dict[str, int] = {}  # by phase, how many there were
    for event in events:
        if isinstance(event, Update):
            updates[event.phase] = event.update
    sentences: list[str] = []
    for remark in remarks_of(events):
        if remark.kind != "note":
            sentences.append(_sentence(remark, sum(updates.values())))
    return sentences


def _sentence(remark: Remark, num_updates: int) -> str:
    text = remark.text
    if remark.kind == "set aside":
        text = f"set aside: {text}"
    if remark.kind == "skipped" and remark.times > 1:
        text = text.replace("a batch was", f"{remark.times:,} batches were", 1)
        text = text.replace("an update was", f"{remark.times:,} of {num_updates:,} updates were", 1)
    if remark.task:
        text = f"task {remark.task!r}: {text}"
    return readable(text)
