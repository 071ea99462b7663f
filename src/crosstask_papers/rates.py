"""Learning rates: every arm's is chosen on dev, from one small grid, by a seed that is in no table.

With one rate for all, an arm that the rate happens to suit wins; the published rate, chosen for another encoder, may
leave every arm undertrained.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from crosstask.studies.grid import RunKey, Scalar
from crosstask_papers.experiment import Rows

CHOOSING_SEED = 100
"""Of the runs that choose."""


def trials(arms: Iterable[Mapping[str, Scalar]], rates: Sequence[float]) -> list[RunKey]:
    """The runs that choose: each arm at each rate."""
    keys = []
    for arm in arms:
        for rate in rates:
            keys.append(RunKey.of(**arm, rate=rate, seed=CHOOSING_SEED))
    return keys


def chosen_rate(rows: Rows, arm: Mapping[str, Scalar], rates: Sequence[float]) -> float | None:
    """The rate with the best dev score of the arm's trials; the smaller of two that are equal; None while some miss.

    An arm may leave open a part of what names a run, such as the tasks: it has one rate then, chosen by the mean over
    its trials.
    """
    runs = rows.of(**arm, seed=CHOOSING_SEED)
    dev_scores: dict[float, list[float]] = {}
    for rate in sorted(rates):
        dev_scores[rate] = [row["dev"] for row in runs.of(rate=rate).rows]
    num_trials = {len(scores) for scores in dev_scores.values()}
    if len(num_trials) != 1 or 0 in num_trials:
        return None
    return max(dev_scores, key=lambda rate: fmean(dev_scores[rate]))


def without_trials(rows: Rows) -> Rows:
    """The runs that may stand in a table."""
    return Rows([row for row in rows.rows if row["cell"].get("seed") != CHOOSING_SEED])
