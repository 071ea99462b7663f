"""Which learning rate a method has on a target: the one that was best on the other targets.

So no label of a target chooses anything for it beyond the few: what was tried on other targets is what one knows when
a new one comes. Trials have a seed of their own, which is in no table, and the examples of dev judge them.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from crosstask.runs.events import Row
from crosstask.studies.grid import RunKey
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.suites import Suite
from crosstask_papers.rates import CHOOSING_SEED

AXES = ("suite", "target", "labels", "method", "rate", "seed")
Rows = Mapping[RunKey, Row]


def run_key(suite: Suite, target: str, labels: int, method: str, rate: float | None, seed: int) -> RunKey:
    """What names a run."""
    return RunKey.of(suite=suite.name, target=target, labels=labels, method=method, rate=rate, seed=seed)


def trial_keys(suite: Suite, method: str, targets: Sequence[str] | None = None) -> list[RunKey]:
    """The runs that choose: every rate on every target."""
    keys: list[RunKey] = []
    for target in targets or suite.choosers:
        for rate in sorted(suite.rates):
            keys.append(run_key(suite, target, suite.tried_at, method, rate, CHOOSING_SEED))
    return keys


def trial_scores(rows: Sequence[Row], suite: Suite, method: str) -> dict[float, list[float]]:
    """The dev scores of a method's trials by rate, of the rates that all targets which choose have tried."""
    scores: dict[float, list[float]] = {}
    for row in rows:
        is_trial = row["seed"] == CHOOSING_SEED and (row["suite"], row["method"]) == (suite.name, method)
        if is_trial and "dev" in row and row["target"] in suite.choosers and row["rate"] in suite.rates:
            scores.setdefault(row["rate"], []).append(row["dev"])
    return {rate: values for rate, values in scores.items() if len(values) == len(suite.choosers)}


def chosen_rate(rows: Rows, suite: Suite, method: str, target: str) -> float | None:
    """The rate with the best mean dev score on the other targets; None while one of their trials is missing.

    Args:
        rows: of trials, those that were refused included.
        suite: with the targets that choose, which may be another than the target's.
        method: a control has the rate of the method that it is a control of.
        target: the one that has no say.
    """
    method = METHODS[method].rate_of or method
    others = [other for other in suite.choosers if other != target]
    trials = trial_keys(suite, method, others)  # a target without others, in quick runs, chooses for itself
    if any(key not in rows for key in trials):
        return None
    scores: dict[float, list[float]] = {}
    for key in trials:
        if "dev" in rows[key]:
            scores.setdefault(key["rate"], []).append(rows[key]["dev"])
    # A rate that was refused somewhere has been judged by fewer targets.
    complete = [rate for rate in scores if len(scores[rate]) == max(map(len, scores.values()))]
    return max(complete, key=lambda rate: fmean(scores[rate]), default=None)
