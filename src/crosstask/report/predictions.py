"""What a model said of the examples it was measured on, as plain data: labels one by one, confusions, examples."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.runs.events import Row
from crosstask.runs.record import PREDICTIONS_FILE, read_history

MOST_LABELS = 20
"""Of a matrix of confusions: those that were taken for another, or for which another was taken, the most often."""
MOST_EXAMPLES = 12
MOST_POINTS = 600
"""Of a chart of numbers."""


@dataclass(frozen=True)
class Measured:
    """The rows of one task. `kind` is the task's, `part` what it was measured on, `size` how many examples that has."""

    task: str
    kind: str
    part: str
    size: int
    rows: tuple[Row, ...]

    @property
    def has_labels(self) -> bool:
        """Whether there are labels to be told apart, and not numbers."""
        return self.kind != "regression"

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Gold and predicted, for tagging word by word."""
        for row in self.rows:
            if self.kind == "tagging":
                yield from zip(row["gold"], row["predicted"], strict=True)
            else:
                yield row["gold"], row["predicted"]


@dataclass(frozen=True)
class LabelScore:
    """How well one label is told from others; precision is None where it was never said, recall where never true."""

    label: str
    count: int
    precision: float | None
    recall: float | None
    f1: float


@dataclass(frozen=True)
class Confusion:
    """How often which label was taken for which: `counts[gold][predicted]`."""

    labels: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]
    is_cut: bool


@dataclass(frozen=True)
class Corrected:
    """Two models on the same examples.

    - `compared`, `corrected`, `spoilt`: how many; right by the second alone, and by the first alone;
    - `examples`: some of the corrected ones as (first model's row, second model's row), those where the second is
      surest first;
    - `kinds`: how often which label was mended: (gold, what the first said) -> times.
    """

    compared: int
    corrected: int
    spoilt: int
    examples: tuple[tuple[Row, Row], ...]
    kinds: Mapping[tuple[str, str], int]


def read_measured(
    folder: Path, kinds: Mapping[str, str], sizes: Mapping[str, Mapping[str, int]]
) -> dict[str, Measured]:
    """By task; nothing where a run wrote none.

    Args:
        folder: of a run.
        kinds: of the tasks, by name.
        sizes: how many examples each part of a task has.
    """
    path = folder / PREDICTIONS_FILE
    by_task: dict[str, list[Row]] = {}
    for row in read_history(path) if path.is_file() else []:
        by_task.setdefault(row["task"], []).append(row)
    return {
        task: Measured(task, kinds[task], part := rows[0]["part"], sizes[task].get(part, len(rows)), tuple(rows))
        for task, rows in by_task.items()
        if task in kinds
    }


def label_scores(measured: Measured) -> list[LabelScore]:
    """Of every label that is true or was said, the most common one first."""
    gold: Counter[str] = Counter()
    said: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for true, predicted in measured.pairs():
        truth, answer = _labels(true), _labels(predicted)
        gold.update(truth)
        said.update(answer)
        hits.update(truth & answer)
    return [
        LabelScore(
            label, gold[label], _share(hits[label], said[label]), _share(hits[label], gold[label]),
            2.0 * hits[label] / (gold[label] + said[label]),
        )
        for label in sorted({*gold, *said}, key=lambda label: (-gold[label], label))
    ]  # fmt: skip


def confusion(measured: Measured) -> Confusion | None:
    """Of tasks with one label at a time; None where there is no more than one."""
    if measured.kind not in ("classification", "pair", "tagging"):
        return None
    counts: dict[str, Counter[str]] = {}
    for true, predicted in measured.pairs():
        counts.setdefault(true, Counter())[predicted] += 1
    labels = sorted({*counts, *(label for row in counts.values() for label in row)}, key=_natural)
    if len(labels) < 2:
        return None
    mistaken: Counter[str] = Counter()
    for true, row in counts.items():
        for predicted, times in row.items():
            if true != predicted:
                mistaken[true] += times
                mistaken[predicted] += times
    kept = set(sorted(labels, key=lambda label: -mistaken[label])[:MOST_LABELS])
    shown = tuple(label for label in labels if label in kept)
    table = {true: {label: counts.get(true, Counter())[label] for label in shown} for true in shown}
    return Confusion(shown, table, len(shown) < len(labels))


def sure_mistakes(measured: Measured) -> list[Row]:
    """Examples that are wrong, those first where the model was surest; numbers by how far they are off."""
    wrong = [row for row in measured.rows if row["gold"] != row["predicted"]]
    return sorted(wrong, key=lambda row: -_surety(row, measured.kind))[:MOST_EXAMPLES]


def compared(alone: Measured, helped: Measured) -> Corrected | None:
    """What the second model made right and wrong; None unless both were measured on the same examples."""
    before = {row["example"]: row for row in alone.rows}
    pairs = [
        (before[row["example"]], row)
        for row in helped.rows
        if row["example"] in before and before[row["example"]]["gold"] == row["gold"]
    ]
    if not pairs or not helped.has_labels:
        return None
    corrected = [(old, new) for old, new in pairs if _is_right(new) and not _is_right(old)]
    spoilt = sum(_is_right(old) and not _is_right(new) for old, new in pairs)
    kinds: Counter[tuple[str, str]] = Counter()
    for old, _ in corrected:
        if isinstance(old["gold"], str):
            kinds[old["gold"], old["predicted"]] += 1
    first = sorted(corrected, key=lambda pair: -_mean(pair[1].get("probability", 0.0)))
    return Corrected(len(pairs), len(corrected), spoilt, tuple(first[:MOST_EXAMPLES]), dict(kinds.most_common(12)))


def _is_right(row: Row) -> bool:
    return bool(row["gold"] == row["predicted"])


def _surety(row: Row, kind: str) -> float:
    """How sure the model was of what is wrong in a row."""
    if kind == "regression":
        return abs(row["gold"] - row["predicted"]) if row["predicted"] is not None else math.inf
    probability = row.get("probability", 0.0)
    if kind != "tagging":
        return float(probability or 0.0)
    words = zip(row["gold"], row["predicted"], probability or [0.0] * len(row["gold"]), strict=True)
    return max(sure for true, said, sure in words if true != said)


def _mean(probability: Any) -> float:
    values = probability if isinstance(probability, list) else [probability]
    return sum(value or 0.0 for value in values) / max(1, len(values))


def _labels(value: Any) -> set[str]:
    return set(value) if isinstance(value, list) else {value}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _natural(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then names: "2" before "10".

    >>> sorted(["10", "b", "2", "a"], key=_natural)
    ['2', '10', 'a', 'b']
    """
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label


def even(rows: Sequence[Row], most: int = MOST_POINTS) -> list[Row]:
    """At most so many rows, at even distances."""
    step = -(-len(rows) // most) or 1
    return list(rows[::step])
