"""Learning rates: every arm's is chosen on dev, from one small grid, by a seed that is in no table.

With one rate for all, an arm that the rate happens to suit wins; the published rate, chosen for another encoder, may
leave every arm undertrained.
"""

from collections.abc import Iterable, Mapping, Sequence

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
    """The rate with the best dev score of the arm's trials; the smaller of two that are equal; None while some miss."""
    dev_scores: dict[float, float] = {}
    for rate in sorted(rates):
        scores = rows.by_seed("dev", **arm, rate=rate)
        if CHOOSING_SEED not in scores:
            return None
        dev_scores[rate] = scores[CHOOSING_SEED]
    return max(dev_scores, key=dev_scores.__getitem__)
