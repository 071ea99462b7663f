"""The box beside what people use: a method per suite against SetFit, sources then target, and the target alone.

Which method of the box stands for a suite is chosen by the trials of learning rates, which no table shows. The best in
hindsight stands beside it, as what one could have had; test scores have chosen it, so that its lead proves nothing.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.studies.significance import holm, signed_rank_test
from crosstask_papers.bench.choices import trial_scores
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import Suite, find_suite
from crosstask_papers.claims import p_text
from crosstask_papers.experiment import Table, TableItem

OTHERS: Mapping[str, str] = {
    "setfit": "SetFit",
    "pretrain": "sources, then target",
    "single": "target alone",
    "contrastive": "target alone, pairs",
    "tfidf": "TF-IDF",
}
"""What people use, by the name of its rows."""
DIGITS = 1


def chosen_by_trials(rows: Sequence[Row], suite: Suite, names: Sequence[str]) -> str | None:
    """Of these methods the one with the best mean dev score, each at its best rate; None where nothing was tried."""
    means: dict[str, float] = {}
    chooser = find_suite(suite.chosen_on or suite.name)
    for name in names:
        if METHODS[name].rate_of is None:
            by_rate = trial_scores(rows, chooser, name)
            if by_rate:
                means[name] = max(fmean(scores) for scores in by_rate.values())
    return max(means, key=means.__getitem__, default=None)


def against_table(rows: Sequence[Row], suites: Sequence[Suite]) -> Table:
    """Suite by suite the gains over each of the others, and over all targets with a test."""
    results = Results.of(rows).at_first_size
    lines: list[list[TableItem]] = []
    all_gains: dict[str, dict[str, dict[str, float]]] = {"by trials": {}, "in hindsight": {}}
    for suite in suites:
        of_suite = results.of_suite(suite)
        box = [name for name in of_suite.methods if name in METHODS and name not in OTHERS]
        for how, method in (
            ("by trials", chosen_by_trials(rows, suite, box)),
            ("in hindsight", _best(of_suite, suite, box)),
        ):
            if method is None:
                continue
            line: list[TableItem] = [suite.name, f"{method} ({how})"]
            for other in OTHERS:
                gains = of_suite.gains(method, other)
                line.append(Estimate.of_any(gains.values(), digits=DIGITS))
                all_gains[how].setdefault(other, {}).update(gains)
            lines.append(line)
    for how, by_other in all_gains.items():
        values = [list(by_other.get(other, {}).values()) for other in OTHERS]
        lines.append(["all targets", how, *(Estimate.of_any(gains, digits=DIGITS) for gains in values)])
        if how == "by trials":
            tests = holm([signed_rank_test(gains) for gains in values])
            lines.append(["", "test", *(None if p is None else p_text(p) for p in tests)])
    note = (
        "Points over each of the others with the first number of labels of a suite: mean ± standard deviation over "
        "targets, of the seeds that both have. 'By trials' is the method that was best on examples of dev, with a seed "
        "that is in no table; Wilcoxon's signed-rank test over targets, corrected by Holm's method. 'In hindsight' is "
        "the best on test."
    )
    return Table("The box beside what people use", ["suite", "method", *OTHERS.values()], lines, note)


def _best(results: Results, suite: Suite, names: Sequence[str]) -> str | None:
    """The method with the best mean test score, of those that all targets have."""
    means: dict[str, float] = {}
    for name in names:
        scores = [results.by_seed(target, suite.labels[0], name).values() for target in suite.targets]
        if all(scores):
            means[name] = fmean(fmean(values) for values in scores)
    return max(means, key=means.__getitem__, default=None)
