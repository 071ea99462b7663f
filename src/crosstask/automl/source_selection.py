"""Which sources are used, by their ranking, and how many of their examples the time allows."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from crosstask.automl.budget import Clock
from crosstask.automl.nearest import nearest_sources
from crosstask.data.subsets import random_subset
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named
from crosstask.models.build import build_encoder, feature_section
from crosstask.probing.stacking import MAX_SOURCE_EXAMPLES
from crosstask.runs.events import Row
from crosstask.studies.method import Section
from crosstask.transferability.rank import EXAMPLES_TO_ENCODE, rank
from crosstask.transferability.table import RankRow
from crosstask.transferability.verdict import HELPS, HURTS, UNKNOWN, UNSURE, is_chance

FEATURE_FRACTION = 0.25
"""Of all time, for features of a pretrained encoder."""
READING_STEPS = 12
"""In which the examples of sources are read, all sources alike, until the time for it is over."""
HOPE = 2.0
"""So many times the examples that the measured speed allows are read if that is faster in the end: features that are on
disk already take no time, and other programs end."""
TRUST: Mapping[str, float] = {HELPS: 1.0, UNSURE: 0.6}
"""What sources with these verdicts brought where single ones were measured: 6.2 and 3.6 points (`rank`'s own prior).
The others promise nothing."""
RANDOM_ERRORS = 2.5
"""Standard errors of a correlation from zero that make labels of a source more than chance."""
SHORT_OF_TIME = "more do not fit into the time"
MIN_EXAMPLES = 100
"""With fewer of each source a ranking means nothing."""


def read_features(
    target: Task,
    sources: Sequence[Task],
    encoder: Named,
    draw: Callable[[Task, int], Task],
    examples: int,
    seconds: float,
) -> int:
    """Have features of all tasks on disk, so that no fold is slower than another for want of them.

    Returns how many examples of each source were read: as many as were wanted, or as the time allowed on a machine that
    has become slower.

    Args:
        target: all of its examples are read.
        sources: the selected ones.
        encoder: pretrained.
        draw: the source with so many examples at most; more have the fewer ones among them.
        examples: wanted of each source.
        seconds: for all of this.
    """
    section, _ = feature_section(encoder)
    frozen = build_encoder(section, [target, *sources])
    end = time.monotonic() + seconds
    frozen.prepare(target.train.inputs, target.spec.form)
    read = 0
    for step in range(1, READING_STEPS + 1):
        started = time.monotonic()
        read = -(-examples * step // READING_STEPS)
        for source in sources:
            frozen.prepare(draw(source, read).train.inputs, source.spec.form)
        now = time.monotonic()
        if now + (now - started) > end:  # another such step would end too late
            break
    return read


def limited_target(task: Task, speed: float | None, clock: Clock, seed: int) -> Task:
    """The target, or as many of its labels as a pretrained encoder can read in the time, drawn as `limit` does."""
    count = len(task.train)
    if speed is None:
        return task
    max_examples = max(MIN_EXAMPLES, int(FEATURE_FRACTION * clock.seconds * speed))
    if count <= max_examples:
        return task
    return drawn(task, max_examples, seed, f"{SHORT_OF_TIME}, so give it more minutes")


@dataclass(frozen=True)
class Selection:
    """Names of the sources that are used and of all that could be, with the ranking behind them.

    - `selected`: those that candidates learn from, the most promising first;
    - `usable`: those and the ones that were left out, but for what cannot be used at all;
    - `left_out`: why, by name;
    - `examples`: of each selected source at most, where features take time: first as many as are wanted, then as many
      as were read;
    - `ranking`: as `RankResult.to_data` gives it, or None.
    """

    selected: tuple[str, ...]
    usable: tuple[str, ...]
    left_out: Mapping[str, str]
    examples: int | None = None
    ranking: Section | None = None
    notes: tuple[str, ...] = ()

    def to_row(self) -> Row:
        """As a row of the search's file, where the selected ones are called `kept`."""
        fields = asdict(self)
        return {"event": "selection", "kept": fields.pop("selected"), **fields}

    @classmethod
    def of_row(cls, row: Row) -> "Selection":
        """Read what `to_row` made."""
        fields = dict(row)
        del fields["event"]
        fields["selected"] = fields.pop("kept")
        for name in ("selected", "usable", "notes"):
            fields[name] = tuple(fields[name])
        return cls(**fields)

    @property
    def trust(self) -> dict[str, float]:
        """By source, what part of the gain that methods have brought elsewhere it promises; see `TRUST`."""
        verdicts: dict[str, str] = {}
        if self.ranking is not None:
            verdicts = {row["source"]: row["verdict"] for row in self.ranking["rows"]}
        return {name: TRUST.get(verdicts.get(name, UNSURE), 0.0) for name in self.usable}

    def max_examples(self, source: str) -> int | None:
        """Of a source, as candidates on features have it; of one that was left out, what the ranking read."""
        if self.examples is None or source in self.selected or self.ranking is None:
            return self.examples
        # Its features are on disk already.
        for row in self.ranking["rows"]:
            if row["source"] == source and row["examples"] is not None:
                return int(row["examples"])
        return None


def drawn(task: Task, count: int | None, seed: int, why: str) -> Task:
    """The task with so many training examples, drawn at random as `limit` draws them, and a note that says why."""
    total = len(task.train)
    if count is None or total <= count:
        return task
    positions = random_subset(total, count, np.random.default_rng(seed))
    note = f"{count:,} of its {total:,} training examples are used, drawn at random: {why}"
    return replace(task, train=task.train.take(positions), windows=None, notes=(*task.notes, note))


@dataclass(frozen=True)
class SourceSelector:
    """Ranks sources and selects those that may help.

    - `speed`: features a second, where features take time;
    - `seed`: of samples.
    """

    encoder: Named
    speed: float | None
    clock: Clock
    seed: int

    def select(self, target: Task, sources: Sequence[Task], unreadable: Mapping[str, str]) -> Selection:
        """The sources to use; `unreadable` are those that could not be read, and why.

        Those that are likely to help and those of which few labels cannot tell are selected; where there is none, those
        that are probably useless are tried all the same. One that may hurt is for the candidate with all sources alone,
        and one with labels that cannot be told from random ones for none. Where the encoder gives no
        features to rank by, all are selected.
        """
        names = tuple(source.name for source in sources)
        if not sources:
            note = "there is no source: only the target alone was tried"
            return Selection((), (), dict(unreadable), notes=(note,))
        # 1. How many examples can be read.
        affordable = self._affordable_examples(target)
        ranked_examples = None
        if affordable is not None and affordable < MIN_EXAMPLES * len(sources):
            count = affordable // MIN_EXAMPLES
            too_slow = f"in this time the encoder cannot read {MIN_EXAMPLES} examples of each source"
            if not count:
                return Selection((), (), {**unreadable, **dict.fromkeys(names, too_slow)})
            sources = nearest_sources(target, sources, count, self.seed)
            near = [source.name for source in sources]
            far = [name for name in names if name not in near]
            unreadable = {
                **unreadable,
                **dict.fromkeys(far, f"{too_slow}, and texts of others are more like the target's"),
            }
            names = tuple(near)
        if affordable is not None and affordable < EXAMPLES_TO_ENCODE:
            ranked_examples = max(MIN_EXAMPLES, affordable // 2 // len(sources))
        # 2. The ranking.
        try:
            result = rank(
                target, sources, encoder=self.encoder, examples=ranked_examples, seed=self.seed, progress=False
            )
        except CrossTaskError as error:
            note = f"sources could not be ranked, so all are tried: {error}"
            examples = _examples_each(affordable, len(names))
            return Selection(names, names, dict(unreadable), examples=examples, notes=(note,))
        result = result.with_failures(unreadable)
        # 3. The selection by verdicts.
        usable: list[str] = []
        promising: list[str] = []
        harmless: list[str] = []
        for row in result.rows:  # the best first
            if row.verdict == UNKNOWN or _has_random_labels(row):
                continue
            usable.append(row.source)
            if row.verdict in (HELPS, UNSURE):
                promising.append(row.source)
            if row.verdict != HURTS:
                harmless.append(row.source)
        selected = promising
        notes: list[str] = []
        if not promising:
            # The ranking may be wrong, and folds will tell.
            selected = harmless
            notes.append("no source is likely to help, by the ranking")
        # 4. What is left out, and why.
        left_out: dict[str, str] = {}
        for row in result.rows:
            if row.source not in selected:
                reasons = row.reasons or ("its labels can hardly be told from random ones",)
                left_out[row.source] = f"{row.verdict}: {'; '.join(reasons)}"
        return Selection(
            selected=tuple(selected),
            usable=tuple(usable),
            left_out=left_out,
            examples=_examples_each(affordable, len(selected)),
            ranking=result.to_data(),
            notes=tuple(notes),
        )

    def _affordable_examples(self, target: Task) -> int | None:
        """Of all sources together, beside the target's; None where reading takes no time."""
        if self.speed is None:
            return None
        return max(0, int(FEATURE_FRACTION * self.clock.remaining * self.speed) - len(target.train))


def _has_random_labels(row: RankRow) -> bool:
    """Whether all that could be learned from a source is noise; no candidate has it, not even the one with all.

    One of forty sources with random labels looks better than that by the ranking's own measure, which is too many where
    several are tried.
    """
    correlation = row.scores.get("learnable")
    return correlation is not None and row.verdict != HELPS and is_chance(correlation, row.examples or 1, RANDOM_ERRORS)


def _examples_each(affordable: int | None, num_sources: int) -> int | None:
    if affordable is None:
        return None
    return min(MAX_SOURCE_EXAMPLES, max(MIN_EXAMPLES, int(HOPE * affordable) // max(num_sources, 1)))
