"""What is known of a source before the target's own labels say anything: what sources like it have brought elsewhere.

`prior.json` sums up gains that were measured by training, suite by suite, with a target of few labels and one source;
`docs/tools/rank_prior.py` makes it from the runs. Sources are alike if their targets have labels of the same kind,
theirs have that kind or another, and the test of `verdict` said the same of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean

from typing_extensions import TypedDict

from crosstask.data.examples import Kind

PRIOR_FILE = "prior.json"
MIN_CASES = 10
"""Measured sources that make a prior."""


class MeasuredSources(TypedDict):
    """Sources of one suite that are alike: how many, how many of them helped, and their mean gain in points.

    A source counts once for each draw of the target's labels, for the test says something else each time.
    """

    suite: str
    kind: Kind
    same_labels: bool
    verdict: str
    sources: int
    helped: int
    gain: float


@dataclass(frozen=True)
class Prior:
    """What sources alike have brought: means over suites, each of which counts the same.

    - `helped`: the fraction of them that were better than none; `gain`: in points of the target's metric;
    - `sources`, `suites`: how many were measured.
    """

    helped: float
    gain: float
    sources: int
    suites: int

    def __str__(self) -> str:
        suites = f" in {self.suites} suites" if self.suites > 1 else ""
        return (
            f"of {self.sources:,} measured sources like it{suites}, {self.helped:.0%} helped; "
            f"the mean gain was {self.gain:+.1f} points"
        )


def prior_of(measured: Sequence[MeasuredSources], kind: str, same_labels: bool, verdict: str) -> Prior | None:
    """The prior of a source from what was measured; None where next to nothing like it was.

        helped = 1/S sum_s h_s / n_s        gain = 1/S sum_s g_s

    - `h_s`, `n_s`, `g_s`: `helped`, `sources` and `gain` of the s-th of S suites with such sources.

    With fewer than `MIN_CASES` of them, sources with labels of the same and of another kind count together.

    >>> one = MeasuredSources(
    ...     suite="one", kind="pair", same_labels=True, verdict="may hurt", sources=10, helped=5, gain=1.0
    ... )
    >>> two = MeasuredSources(
    ...     suite="two", kind="pair", same_labels=True, verdict="may hurt", sources=90, helped=90, gain=3.0
    ... )
    >>> prior_of([one, two], "pair", True, "may hurt")
    Prior(helped=0.75, gain=2.0, sources=100, suites=2)
    """
    like_it = [row for row in measured if (row["kind"], row["verdict"]) == (kind, verdict)]
    same = [row for row in like_it if row["same_labels"] == same_labels]
    for rows in (same, like_it):
        prior = _mean_over_suites(rows)
        if prior is not None and prior.sources >= MIN_CASES:
            return prior
    return None


def _mean_over_suites(rows: Sequence[MeasuredSources]) -> Prior | None:
    by_suite: dict[str, list[MeasuredSources]] = {}
    for row in rows:
        by_suite.setdefault(row["suite"], []).append(row)
    if not by_suite:
        return None
    helped, gains, total = [], [], 0
    for of_suite in by_suite.values():
        count = sum(row["sources"] for row in of_suite)
        helped.append(sum(row["helped"] for row in of_suite) / count)
        gains.append(sum(row["gain"] * row["sources"] for row in of_suite) / count)
        total += count
    return Prior(fmean(helped), fmean(gains), total, len(by_suite))


@cache
def measured_sources() -> tuple[MeasuredSources, ...]:
    """What `prior.json` holds."""
    text = files("crosstask.transferability").joinpath(PRIOR_FILE).read_text(encoding="utf-8")
    rows: list[MeasuredSources] = json.loads(text)["measured"]
    return tuple(rows)
