"""A ranking of sources as people and programs read it: rows, reasons in words, a table, JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from crosstask.notebook import html_table
from crosstask.runs.record import finite
from crosstask.transferability.prior import Prior
from crosstask.transferability.verdict import CLEAR_COSINE, HELPS, MAX_DISTURBANCE, UNKNOWN, UNSURE, VERDICTS, Evidence

COLUMNS = {
    "gradient_cosine": "grad cos",
    "disturbance": "disturb",
    "learnable": "learn",
    "same_labels": "labels",
    "nearest_texts": "texts",
    "combined": "combined",
    "covariance_similarity": "cov",
    "leep": "LEEP",
    "nce": "NCE",
    "logme": "LogME",
    "h_score": "H-score",
    "cka": "CKA",
    "label_noise": "noise",
    "vocabulary_overlap": "vocab",
    "length_overlap": "lengths",
}
"""Scores beside the gain, with their headings in the table. The score that sources are ranked by stands before them."""
FEW_KNOWN_WORDS = 0.5
"""A vocabulary overlap below this is worth a reason."""


@dataclass(frozen=True)
class RankRow:
    """What is known of one source.

    - `verdict`: one of `verdict.VERDICTS`, with its `reasons` in words;
    - `score`: what sources with the same verdict are ranked by; None where the source cannot be judged;
    - `scores`: every score by name; None for one that does not apply, or was not asked for;
    - `size`: its training examples; `examples`: how many of them were used;
    - `prior`: what sources like it have brought elsewhere; None where none were measured.
    """

    source: str
    verdict: str
    score: float | None = None
    size: int | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    examples: int = 0
    reasons: tuple[str, ...] = ()
    prior: Prior | None = None

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class RankResult:
    """Sources of a target from best to worst: `rows`, and `notes` on how they were judged."""

    target: str
    rows: tuple[RankRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str | None:
        """The first source, if it is likely to help."""
        if self.rows and self.rows[0].verdict == HELPS:
            return self.rows[0].source
        return None

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
        """Everything, as JSON; a score that does not apply, or was not computed, is null."""
        return json.dumps(self.to_data(), indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{row.source}: {row.verdict}" for row in self.rows)
        return f"RankResult(sources of {self.target!r}: {verdicts or 'none'})"

    def _repr_html_(self) -> str:
        """For notebooks: the verdicts, and why."""
        headings, *rows = _verdict_table(self.rows)
        reasons = [f"{row.source}: {'; '.join(row.reasons)}" for row in self.rows if row.reasons]
        return html_table(f"Sources for '{self.target}', best first", headings, rows, [*reasons, *self.notes])

    def __str__(self) -> str:
        # Verdicts first, then why, then every score.
        lines = [f"Sources for '{self.target}', best first", *_aligned(_verdict_table(self.rows), num_text_columns=3)]
        explained = [f"{row.source}: {'; '.join(row.reasons)}" for row in self.rows if row.reasons]
        if explained:
            lines += ["", *explained]
        score_table = _score_table(self.rows)
        if len(score_table[0]) > 1:
            lines += ["", "All scores", *_aligned(score_table, num_text_columns=1)]
        if self.notes:
            lines += ["", *(f"Note: {note}" for note in self.notes)]
        return "\n".join(lines)


def sort_rows(rows: Iterable[RankRow]) -> tuple[RankRow, ...]:
    """From best to worst: by verdict, then by score, then by gain."""

    def place(row: RankRow) -> tuple[int, float, float]:
        return VERDICTS.index(row.verdict), -(row.score or 0.0), -(row.scores.get("gain") or 0.0)

    return tuple(sorted(rows, key=place))


def _verdict_table(rows: Sequence[RankRow]) -> list[list[str]]:
    table = [["", "source", "verdict", "score", "gain", "others like it", "examples"]]
    for number, row in enumerate(rows, 1):
        score, gain, prior, size = "", "", "", ""
        if row.score is not None:
            score = f"{row.score:+.3f}"
        if row.scores.get("gain") is not None:  # a source that cannot be judged has none
            gain = f"{row.scores['gain']:+.1%} ± {row.scores['gain_error']:.1%}"
        if row.prior is not None:
            prior = f"{row.prior.helped:.0%} helped"
        if row.size is not None:
            size = f"{row.size:,}"
        table.append([str(number), row.source, row.verdict, score, gain, prior, size])
    return table


def _score_table(rows: Sequence[RankRow]) -> list[list[str]]:
    """A column for each score that at least one source has."""
    judged = [row for row in rows if row.verdict != UNKNOWN]
    columns = [name for name in COLUMNS if any(row.scores.get(name) is not None for row in judged)]
    table = [["source", *(COLUMNS[name] for name in columns)]]
    for row in judged:
        cells = [row.source]
        for name in columns:
            score = row.scores.get(name)
            cells.append("" if score is None else f"{score:.2f}")
        table.append(cells)
    return table


def _aligned(table: Sequence[Sequence[str]], num_text_columns: int) -> list[str]:
    """Lines with columns of one width; the first columns are text, the others numbers, which end at the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.ljust(width) if i < num_text_columns else cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


@dataclass(frozen=True)
class Overlap:
    """What source and target have in common but for their features.

    - `is_copy`: whether the source is the target over again;
    - `shared_inputs`: the fraction of the target's inputs that the source has too;
    - `agreement`: where both have the same label names, how often the source's probe names the target's label, and how
      often it would by chance.
    """

    is_copy: bool
    shared_inputs: float
    agreement: tuple[float, float] | None


def reasons(
    evidence: Evidence, overlap: Overlap, scores: Mapping[str, float | None], prior: Prior | None
) -> tuple[str, ...]:
    """Why a source has its verdict, in words, the weightiest first."""
    has_same_labels, vocabulary_overlap = bool(scores["same_labels"]), scores["vocabulary_overlap"]
    if overlap.is_copy:
        return ("the same examples with the same labels as the target: it adds nothing",)
    gain, sentences = evidence.gain, []
    if gain.is_sure:
        sentences.append(f"its answers take {gain.fraction:.0%} off the target's cross-validated loss")
    elif gain.fraction > 0.0:
        sentences.append("its answers lower the target's cross-validated loss, but that may be chance")
    elif gain.may_matter:
        sentences.append("its answers do not lower the target's cross-validated loss, but that may be chance")
    elif evidence.verdict == UNSURE:
        sentences.append(
            "its answers do not lower the target's cross-validated loss, which with few labels proves little"
        )
    else:
        sentences.append("its answers tell nothing about the target's labels that the target's own examples do not")
    if prior is not None:
        sentences.append(str(prior))
    elif evidence.verdict == UNSURE:
        likeness = "the same kind as" if has_same_labels else "another kind than"
        sentences.append(f"its labels are of {likeness} the target's, and next to nothing like it was measured before")
    if evidence.disturbance > MAX_DISTURBANCE:
        sentences.append(
            "its inputs vary along what the target reads more than the target's do, and its labels do not follow"
        )
    if evidence.has_random_labels:
        sentences.append("its labels cannot be told from random ones: noisy, or beyond these features")
    if evidence.cosine > CLEAR_COSINE:
        sentences.append("its gradient on a shared map points where the target's does")
    if evidence.cosine < -CLEAR_COSINE:
        sentences.append("its gradient on a shared map points against the target's")
    # Far below chance: the same names, with another meaning.
    if overlap.agreement is not None:
        rate, chance_rate = overlap.agreement
        if gain.is_sure and rate < 0.5 * chance_rate:
            sentences.append(
                f"it has the target's label names, but means something else by them (they agree on {rate:.0%}): "
                "give it a head of its own, do not pool its examples"
            )
    if overlap.shared_inputs >= 0.01:
        sentences.append(f"{overlap.shared_inputs:.0%} of the target's inputs stand in it too")
    if vocabulary_overlap is not None and vocabulary_overlap < FEW_KNOWN_WORDS:
        sentences.append(f"it knows only {vocabulary_overlap:.0%} of the target's words")
    return tuple(sentences)
