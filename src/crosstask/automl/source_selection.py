"""Which sources are used, by their ranking, and how many of their examples the time allows."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosstask.automl.budget import Clock
from crosstask.automl.candidates import is_pretrained
from crosstask.automl.folds import strata_of
from crosstask.data.subsets import random_subset, stratified_cut
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.build import build_encoder, feature_section
from crosstask.probing.stacking import MAX_SOURCE_EXAMPLES
from crosstask.runs.events import Row
from crosstask.transferability.rank import EXAMPLES_TO_ENCODE, rank
from crosstask.transferability.verdict import HELPS, HURTS, UNKNOWN
from crosstask.validation import name_and_options

FEATURE_SHARE = 0.25
"""Of all time, for features of a pretrained encoder."""
TIMED_EXAMPLES = 32
LEAST_EXAMPLES = 100
"""With fewer of each source a ranking means nothing."""


def features_per_second(target: Task, encoder: str | Mapping[str, Any]) -> float | None:
    """How many of the target's examples a pretrained encoder reads in a second; None if there is none to run."""
    name, options = name_and_options("encoder", encoder)
    if not is_pretrained({"name": name}):
        return None
    section, _ = feature_section({"name": name, **options})
    frozen = build_encoder({**section, "cache": False}, [target])  # what is kept on disk would tell nothing of speed
    inputs = target.train.inputs[:TIMED_EXAMPLES]
    frozen.prepare(inputs[:2], target.spec.form)  # the first call makes room
    started = time.monotonic()
    frozen.prepare(inputs, target.spec.form)
    return len(inputs) / max(time.monotonic() - started, 1e-6)


def compute_features(tasks: Sequence[Task], encoder: str | Mapping[str, Any]) -> None:
    """Have the features of all tasks on disk, so that no fold is slower than another for want of them."""
    section, _ = feature_section(encoder)
    frozen = build_encoder(section, tasks)
    for task in tasks:
        frozen.prepare(task.train.inputs, task.spec.form)


def limited_target(task: Task, speed: float | None, clock: Clock, seed: int) -> Task:
    """The target, or as many of its labels, class by class, as a pretrained encoder can read in the time."""
    count = len(task.train)
    most = count if speed is None else max(LEAST_EXAMPLES, int(FEATURE_SHARE * clock.seconds * speed))
    if count <= most:
        return task
    kept, _ = stratified_cut(strata_of(task.kind, task.train.labels), count, count - most, np.random.default_rng(seed))
    note = f"only {len(kept):,} of {count:,} labels are used: more do not fit into the time, so give it more minutes"
    return replace(task, train=task.train.take(kept), notes=(*task.notes, note))


@dataclass(frozen=True)
class Selection:
    """Names of the sources that are used and of all that could be, with the ranking behind them.

    - `kept`: those that candidates learn from;
    - `usable`: those and the ones that were left out, but for what cannot be used at all;
    - `left_out`: why, by name;
    - `trusted`: whether the kept ones are likely to help;
    - `examples`: of each kept source at most, where features take time;
    - `ranking`: as `RankResult.to_data` gives it, or None.
    """

    kept: tuple[str, ...]
    usable: tuple[str, ...]
    left_out: Mapping[str, str]
    trusted: bool
    examples: int | None = None
    ranking: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_row(cls, row: Row) -> "Selection":
        """As it was written down."""
        facts = {key: value for key, value in row.items() if key != "event"}
        lists = {key: tuple(facts[key]) for key in ("kept", "usable", "notes")}
        return cls(**{**facts, **lists})

    def limited(self, task: Task, seed: int) -> Task:
        """A source as candidates on features have it; of one that was left out, what the ranking looked at."""
        if self.examples is None or task.name in self.kept:
            return limited(task, self.examples, seed)
        rows = self.ranking["rows"] if self.ranking is not None else []
        return limited(task, next((row["examples"] for row in rows if row["source"] == task.name), None), seed)


def limited(task: Task, most: int | None, seed: int) -> Task:
    """A source's training examples alone, a random part of them where there are more than time allows."""
    count = len(task.train)
    alone = replace(task, dev=None, test=None)
    if most is None or count <= most:
        return alone
    # As the ranking draws them, so that features are used again.
    chosen = random_subset(count, most, np.random.default_rng(seed))
    note = f"{most:,} of its {count:,} training examples are used, drawn at random: more do not fit into the time"
    return replace(alone, train=task.train.take(chosen), notes=(*task.notes, note))


def select_sources(
    target: Task,
    sources: Sequence[Task],
    encoder: str | Mapping[str, Any],
    *,
    speed: float | None,
    clock: Clock,
    seed: int,
    failed: Mapping[str, str],
) -> Selection:
    """Rank the sources and keep those that are likely to help.

    Where none is, those that are probably useless are tried all the same; one that may hurt is kept for the candidate
    with all sources alone. Where the encoder gives no features to rank by, all are kept, and nothing is trusted.

    Args:
        target: with all its labels.
        sources: that could be read.
        encoder: as a recipe names it.
        speed: features a second, where features take time.
        clock: how much of it there is.
        seed: of subsets.
        failed: sources that could not be read, and why.
    """
    names = tuple(source.name for source in sources)
    if not sources:
        note = "there is no source: only the target alone was tried"
        return Selection((), (), dict(failed), False, notes=(note,))
    affordable = None if speed is None else max(0, int(FEATURE_SHARE * clock.left * speed) - len(target.train))
    looked_at = None
    if affordable is not None and affordable < LEAST_EXAMPLES * len(sources):
        too_slow = f"in this time the encoder cannot read {LEAST_EXAMPLES} examples of each source"
        return Selection((), (), {**failed, **dict.fromkeys(names, too_slow)}, False)
    if affordable is not None and affordable < EXAMPLES_TO_ENCODE:
        looked_at = max(LEAST_EXAMPLES, affordable // 2 // len(sources))
    try:
        result = rank(target, sources, encoder=encoder, examples=looked_at, seed=seed, progress=False)
    except CrossTaskError as error:
        note = f"sources could not be ranked, so all are tried: {error}"
        return Selection(names, names, dict(failed), False, _examples(affordable, len(names)), notes=(note,))
    result = result.with_failures(failed)
    verdicts = {row.source: row.verdict for row in result.rows}
    why = {row.source: f"{row.verdict}: {'; '.join(row.reasons)}" for row in result.rows}
    usable = tuple(name for name in names if verdicts[name] != UNKNOWN)
    kept = tuple(name for name in usable if verdicts[name] == HELPS)
    trusted = bool(kept)
    notes = []
    if not kept:
        notes.append("no source is likely to help, by the ranking")
        kept = tuple(name for name in usable if verdicts[name] != HURTS)
    return Selection(
        kept, usable, {name: why[name] for name in why if name not in kept}, trusted,
        _examples(affordable, len(kept)), result.to_data(), tuple(notes),
    )  # fmt: skip


def _examples(affordable: int | None, num_sources: int) -> int | None:
    if affordable is None:
        return None
    return min(MAX_SOURCE_EXAMPLES, max(LEAST_EXAMPLES, affordable // max(num_sources, 1)))
