"""What became of the verdicts of `rank`: measured gains by verdict.

For people they are a table, for `rank` what it knows beforehand (`crosstask.transferability.prior`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from crosstask.data.examples import Kind
from crosstask.runs.events import Row
from crosstask.transferability.prior import MeasuredSources
from crosstask.transferability.verdict import VERDICTS
from crosstask_papers.bench.pair_results import gains_by_seed
from crosstask_papers.bench.pairs import RANKING
from crosstask_papers.bench.suites import SUITES
from crosstask_papers.experiment import Table, TableItem

DIGITS = 2


@dataclass(frozen=True)
class Case:
    """One source of one target, as the test judged it with one draw of the target's labels, and its mean gain.

    - `kind`: of the target; `same_labels`: whether the source's labels are of the same kind.
    """

    suite: str
    kind: Kind
    same_labels: bool
    verdict: str
    gain: float

    @classmethod
    def of_ranking(
        cls,
        suite: str,
        kind: Kind,
        verdicts: Mapping[str, str],
        same_labels: Mapping[str, bool],
        gains: Mapping[str, Mapping[int, float]],
    ) -> "Iterator[Case]":
        """The cases of one ranking, of the sources whose gains were measured; verdicts and gains are by source."""
        for source, verdict in verdicts.items():
            if source in gains and source in same_labels:
                yield cls(suite, kind, same_labels[source], verdict, fmean(gains[source].values()))


def prior_rows(cases: Iterable[Case]) -> list[MeasuredSources]:
    """The cases summed up by suite, kinds of labels and verdict."""
    gains: dict[tuple[str, Kind, bool, str], list[float]] = {}
    for case in cases:
        gains.setdefault((case.suite, case.kind, case.same_labels, case.verdict), []).append(case.gain)
    rows: list[MeasuredSources] = []
    for suite, kind, same_labels, verdict in sorted(gains, key=lambda key: (*key[:3], VERDICTS.index(key[3]))):
        values = gains[suite, kind, same_labels, verdict]
        rows.append(
            {
                "suite": suite,
                "kind": kind,
                "same_labels": same_labels,
                "verdict": verdict,
                "sources": len(values),
                "helped": sum(value > 0 for value in values),
                "gain": round(fmean(values), DIGITS),
            }
        )
    return rows


def verdict_table(cases: Sequence[Case]) -> Table:
    """Verdict by verdict, how many sources were better than none, and by how much."""
    suites = list(dict.fromkeys(case.suite for case in cases))
    lines: list[list[TableItem]] = []
    for verdict in VERDICTS:
        line: list[TableItem] = [verdict]
        for suite in suites:
            gains = [case.gain for case in cases if (case.suite, case.verdict) == (suite, verdict)]
            if not gains:
                line.append(None)
                continue
            helped = sum(gain > 0 for gain in gains)
            line.append(f"{helped} of {len(gains)}, {fmean(gains):+.1f}")
        if any(item is not None for item in line[1:]):
            lines.append(line)
    note = (
        "How many of the sources with a verdict were better than none, and their mean gain in points. A source counts "
        "once for each draw of the target's labels, by which it was judged; its gain is the mean over all draws."
    )
    return Table("What became of the verdicts", ["verdict", *suites], lines, note)


def cases_of_bench(rows: Sequence[Row]) -> Iterator[Case]:
    """Of the bench's runs with single sources."""
    for name, suite in SUITES.items():
        of_suite = [row for row in rows if row["suite"] == name]
        gains = gains_by_seed(of_suite)
        for row in of_suite:
            if row["method"] != RANKING or row["target"] not in gains:
                continue
            same_labels = {}
            for source, scores in row["scores"].items():
                same_labels[source] = bool(scores.get("same_labels"))
            yield from Case.of_ranking(name, suite.kind, row["verdicts"], same_labels, gains[row["target"]])
