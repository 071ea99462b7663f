"""The tables of the bench: each suite, average ranks, gains with tests, what each part is worth, and the cost."""

from collections.abc import Sequence
from statistics import fmean

from crosstask.runs.estimate import Estimate
from crosstask.studies.significance import holm, signed_rank_test
from crosstask_papers.bench.arms import ARMS, PARTS
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.opponents import OPPONENTS
from crosstask_papers.bench.ranks import Ranking
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import Suite
from crosstask_papers.claims import by_seed_mean, p_text
from crosstask_papers.experiment import Table, TableItem, mean_of

DIGITS = 1
BASELINE = "single"
"""The target alone, for as many updates at the best rate: what sources have to beat."""


def suite_table(results: Results, suite: Suite) -> Table:
    """Mean score over targets by number of labels, average rank and seconds."""
    results = results.of_suite(suite)
    ranking = Ranking.of(results.at_first_size.by_target())
    lines: list[list[TableItem]] = []
    for method in results.methods:
        means = [_suite_mean(results, suite, labels, method) for labels in suite.labels]
        rank = None if ranking is None else ranking.ranks.get(method)
        lines.append([method, *means, rank, results.seconds(method)])
    labels = [f"{suite.labels_text(count)} labels" for count in suite.labels]
    note = "Mean over targets; after ± its standard deviation over seeds."
    if ranking is not None:
        note += (
            f" Ranks with {suite.labels_text(suite.labels[0])} labels, over {ranking.num_targets} targets: methods "
            f"nearer to each other than {ranking.critical_difference:.1f} are not told apart."
        )
    return Table(suite.title, ["method", *labels, "rank", "seconds"], lines, note)


def target_table(results: Results, suite: Suite) -> Table:
    """Each target by itself, with the suite's first number of labels."""
    results = results.of_suite(suite)
    labels = suite.labels[0]
    lines: list[list[TableItem]] = []
    for method in results.methods:
        scores = [results.by_seed(target, labels, method) for target in suite.targets]
        if any(scores):
            lines.append([method, *(mean_of(by_seed.values(), DIGITS) for by_seed in scores)])
    metrics = {row["target"]: row["metric"] for row in results.rows}
    head = [f"{target} ({metrics[target]})" if target in metrics else target for target in suite.targets]
    note = f"{suite.labels_text(labels)} labels; after ± the standard deviation over seeds."
    return Table(f"{suite.title}, by target", ["method", *head], lines, note)


def _suite_mean(results: Results, suite: Suite, labels: int, method: str) -> Estimate | None:
    """None where a target is missing: a mean over other targets is no mean to compare with."""
    by_target = {target: results.by_seed(target, labels, method) for target in suite.targets}
    if not all(by_target.values()):
        return None
    return mean_of(by_seed_mean(by_target), DIGITS)


def rank_table(results: Results) -> Table | None:
    """Average ranks over all targets, and gains over the target alone, tested over targets."""
    results = results.at_first_size
    ranking = Ranking.of(results.by_target())
    if ranking is None:
        return None
    names = list(ranking.ranks)
    gains = {name: list(results.gains(name, BASELINE).values()) for name in names}
    tests = [signed_rank_test(gains[name]) if name != BASELINE else None for name in names]
    lines: list[list[TableItem]] = []
    for name, p in zip(names, holm(tests), strict=True):
        line: list[TableItem] = [name, ranking.ranks[name]]
        if name == BASELINE or not gains[name]:
            line += [None, None, None]
        else:
            worse = sum(gain < 0 for gain in gains[name])
            line += [Estimate.of_any(gains[name], digits=DIGITS), None if p is None else p_text(p), worse]
        lines.append([*line, results.seconds(name)])
    friedman = "" if ranking.p is None else f" (Friedman's test that all are alike: {p_text(ranking.p)})"
    note = (
        f"{ranking.num_targets} targets; methods whose ranks are nearer to each other than "
        f"{ranking.critical_difference:.2f} are not told apart (Nemenyi, 5%){friedman}. Gains in points over "
        f"'{BASELINE}', mean ± standard deviation over targets; Wilcoxon's signed-rank test over targets, corrected "
        "by Holm's method. Methods that some of the targets cannot have are left out."
    )
    head = ["method", "rank", f"over {BASELINE}", "test", "targets below it", "seconds"]
    return Table("Average ranks", head, lines, note)


def parts_table(results: Results, suites: Sequence[Suite]) -> Table:
    """What each part is worth: the difference between two methods that differ by it alone."""
    results = results.at_first_size
    lines: list[list[TableItem]] = []
    tests: list[float | None] = []
    for what, better, worse in PARTS:
        gains = results.gains(better, worse)
        if not gains:
            continue
        by_suite: list[TableItem] = []
        for suite in suites:
            values = results.of_suite(suite).gains(better, worse).values()
            by_suite.append(fmean(values) if values else None)
        tests.append(signed_rank_test(list(gains.values())))
        lines.append([what, better, worse, *by_suite, mean_of(gains.values(), DIGITS)])
    for line, p in zip(lines, holm(tests), strict=True):
        line.append(None if p is None else p_text(p))
    note = (
        "Points of the method with a part over the one without it, which differ by it alone; by suite, and over all "
        "targets (± standard deviation). Wilcoxon's signed-rank test over targets, corrected by Holm's method."
    )
    head = ["part", "with", "without", *(suite.name for suite in suites), "all", "test"]
    return Table("What each part is worth", head, lines, note)


def ablation_table(results: Results, suite: Suite) -> Table:
    """The methods that are made of the same few parts, and what they reach on a suite."""
    results = results.of_suite(suite)
    labels = suite.labels[0]
    lines: list[list[TableItem]] = []
    for name, arm in ARMS.items():
        mean = _suite_mean(results, suite, labels, name)
        if mean is not None:
            parts = [arm.sources, arm.order, arm.head, arm.soft_labels, arm.ending]
            lines.append([name, *parts, mean, results.seconds(name)])
    head = ["sources", "order", "head", "soft labels", "ending", f"{suite.labels_text(labels)} labels", "seconds"]
    note = "The same labels and updates in every line. Mean over targets; after ± its standard deviation over seeds."
    return Table(f"{suite.title}, part by part", ["method", *head], lines, note)


def method_table() -> Table:
    """What the methods are."""
    lines: list[list[TableItem]] = [[name, method.summary] for name, method in METHODS.items()]
    lines += [[name, what] for name, what in OPPONENTS.items()]
    return Table("Methods", ["method", "what"], lines)
