"""A ranking of sources as people and programs read it: rows, reasons in words, a table, JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from crosstask.runs.record import finite
from crosstask.transferability.verdict import CLEAR_COSINE, HELPS, MOST_DISTURBANCE, UNKNOWN, VERDICTS, Gain

COLUMNS = {
    "gradient_cosine": "grad cos",
    "disturbance": "disturb",
    "learnable": "learn",
    "covariance_similarity": "cov",
    "covariance_similarity_normalised": "cov/self",
    "leep": "LEEP",
    "nce": "NCE",
    "logme": "LogME",
    "h_score": "H-score",
    "cka": "CKA",
    "label_noise": "noise",
    "vocabulary_overlap": "vocab",
    "length_overlap": "lengths",
}
"""Scores beside the gain, with their heads in the table."""


@dataclass(frozen=True)
class RankRow:
    """What is known of one source.

    - `verdict`: "likely helps", "probably useless", "may hurt" or "cannot be judged", with its `reasons` in words;
    - `score`: the combined score; None where the source cannot be judged;
    - `scores`: every score by name; None for one that does not apply;
    - `size`: its training examples; `examples`: how many of them were looked at.
    """

    source: str
    verdict: str
    score: float | None = None
    size: int | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    examples: int = 0
    reasons: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "source": self.source, "verdict": self.verdict, "score": self.score, "size": self.size,
            "examples": self.examples, "scores": dict(self.scores), "reasons": list(self.reasons),
        }  # fmt: skip


@dataclass(frozen=True)
class RankResult:
    """Sources of a target from best to worst: `rows`, and `notes` on how they were judged."""

    target: str
    rows: tuple[RankRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str | None:
        """The first source, if it is likely to help."""
        return self.rows[0].source if self.rows and self.rows[0].verdict == HELPS else None

    def with_failures(self, failures: Mapping[str, str]) -> "RankResult":
        """The same with a row for each source that could not be read, and why."""
        rows = [RankRow(source, UNKNOWN, reasons=(reason,)) for source, reason in failures.items()]
        return replace(self, rows=sort_rows([*rows, *self.rows]))

    def to_data(self) -> dict[str, Any]:
        """Everything, as plain data."""
        rows = [row.to_data() for row in self.rows]
        data = {"target": self.target, "best": self.best, "rows": rows, "notes": list(self.notes)}
        return cast("dict[str, Any]", finite(data))

    def to_json(self) -> str:
        """Everything, as JSON; a score that does not apply is null."""
        return json.dumps(self.to_data(), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        first = [["", "source", "verdict", "score", "gain", "examples"]]
        for place, row in enumerate(self.rows, 1):
            gain = row.scores.get("gain")
            said = "" if gain is None else f"{gain:+.1%} ± {row.scores['gain_error']:.1%}"
            score = "" if row.score is None else f"{row.score:+.3f}"
            first.append(
                [str(place), row.source, row.verdict, score, said, "" if row.size is None else f"{row.size:,}"]
            )
        judged = [row for row in self.rows if row.verdict != UNKNOWN]
        used = [name for name in COLUMNS if any(row.scores.get(name) is not None for row in judged)]
        second = [["source", *(COLUMNS[name] for name in used)]]
        second += [[row.source, *(_cell(row.scores.get(name)) for name in used)] for row in judged]
        why = [f"{row.source}: {'; '.join(row.reasons)}" for row in self.rows if row.reasons]
        parts = [f"Sources for '{self.target}', best first", *_aligned(first, left=3)]
        parts += ["", *why] if why else []
        parts += ["", "All scores", *_aligned(second, left=1)] if used else []
        parts += ["", *(f"Note: {note}" for note in self.notes)] if self.notes else []
        return "\n".join(parts)


def sort_rows(rows: Iterable[RankRow]) -> tuple[RankRow, ...]:
    """From best to worst: by verdict, then by score."""
    return tuple(sorted(rows, key=lambda row: (VERDICTS.index(row.verdict), -(row.score or 0.0))))


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _aligned(rows: list[list[str]], left: int) -> list[str]:
    """Lines with columns of one width; the first `left` columns are text, the others numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def reasons(
    row: RankRow,
    gain: Gain,
    at_random: bool,
    identical: bool,
    shared_inputs: float,
    agreement: tuple[float, float] | None,
) -> tuple[str, ...]:
    """Why a source has its verdict, in words, the weightiest first.

    Args:
        row: with its verdict and scores.
        gain: of stacking.
        at_random: whether its labels cannot be told from random ones.
        identical: whether it is the target over again.
        shared_inputs: the share of the target's inputs that it has too.
        agreement: how often it names the target's own label, and how often it would by chance, if names are the same.
    """
    if identical:
        return ("the same examples with the same labels as the target: it adds nothing",)
    said = []
    if gain.is_sure:
        said.append(f"its answers take {gain.share:.0%} off the target's cross-validated loss")
    elif gain.share > 0.0:
        said.append("its answers lower the target's cross-validated loss, but that may be chance")
    else:
        said.append("its answers tell nothing about the target's labels that the target's own examples do not")
    cosine, disturbed = row.scores["gradient_cosine"] or 0.0, row.scores["disturbance"] or 0.0
    if disturbed > MOST_DISTURBANCE:
        said.append(
            "its inputs vary along what the target reads more than the target's do, and its labels do not follow"
        )
    if at_random:
        said.append("its labels cannot be told from random ones: noisy, or beyond these features")
    if cosine > CLEAR_COSINE:
        said.append("its gradient on a shared map points where the target's does")
    if cosine < -CLEAR_COSINE:
        said.append("its gradient on a shared map points against the target's")
    if agreement is not None and gain.is_sure and agreement[0] < 0.5 * agreement[1]:
        said.append(
            f"it has the target's label names, but means something else by them (they agree on {agreement[0]:.0%}): "
            "give it a head of its own, do not pool its examples"
        )
    if shared_inputs >= 0.01:
        said.append(f"{shared_inputs:.0%} of the target's inputs stand in it too")
    overlap = row.scores.get("vocabulary_overlap")
    if overlap is not None and overlap < 0.5:
        said.append(f"it knows only {overlap:.0%} of the target's words")
    return tuple(said)
