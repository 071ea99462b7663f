"""What `rank` knows beforehand (`crosstask.transferability.prior`), summed up from runs with single sources."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from crosstask.data.examples import Kind
from crosstask.runs.events import Row
from crosstask.transferability.prior import MeasuredSources
from crosstask.transferability.verdict import VERDICTS
from crosstask_papers.bench import pair_results
from crosstask_papers.bench.pairs import RANKING
from crosstask_papers.bench.suites import SUITES
from crosstask_papers.experiment import Rows
from crosstask_papers.rank_transfer import BASELINE_SCORES, BENCHES, gains_by_seed, present_verdict, suite_of

DIGITS = 2


@dataclass(frozen=True)
class Case:
    """One source of one target, as the test judged it with one draw of the target's labels, and its mean gain."""

    suite: str
    kind: Kind
    same_labels: bool
    verdict: str
    gain: float


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


def cases_of_experiment(rows: Rows) -> Iterator[Case]:
    """Of `rank-transfer`: joint training with one source."""
    for bench in rows.values("bench"):
        of_bench = rows.of(bench=bench)
        for target, by_source in gains_by_seed(of_bench).items():
            likeness = of_bench.of(target=target, source=BASELINE_SCORES).rows
            same_labels = {
                source: scores["same_labels"] > 0 for row in likeness for source, scores in row["scores"].items()
            }
            for row in of_bench.of(target=target, source="rank").rows:
                verdicts = {source: present_verdict(row, source) for source in row["verdicts"]}
                yield from _cases(suite_of(bench), BENCHES[bench].kind, verdicts, same_labels, by_source)


def cases_of_bench(rows: Sequence[Row]) -> Iterator[Case]:
    """Of the bench's runs with single sources."""
    for name, suite in SUITES.items():
        of_suite = [row for row in rows if row["suite"] == name]
        gains = pair_results.gains_by_seed(of_suite)
        for row in of_suite:
            if row["method"] == RANKING and row["target"] in gains:
                same_labels = {
                    source: (scores.get("same_labels") or 0.0) > 0 for source, scores in row["scores"].items()
                }
                yield from _cases(name, suite.kind, row["verdicts"], same_labels, gains[row["target"]])


def _cases(
    suite: str,
    kind: Kind,
    verdicts: Mapping[str, str],
    same_labels: Mapping[str, bool],
    gains: Mapping[str, Mapping[int, float]],
) -> Iterator[Case]:
    for source, verdict in verdicts.items():
        if source in gains and source in same_labels:
            yield Case(suite, kind, same_labels[source], verdict, fmean(gains[source].values()))
