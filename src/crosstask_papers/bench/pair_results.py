"""Rows with a single source, as tables ask for them: measured gains, and rankings beside them."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from crosstask.runs.events import Row
from crosstask_papers.bench.pairs import ALONE, PAIRED, RANKING, split_name
from crosstask_papers.bench.rank_quality import Ranked, rankings_by_score, reference_rankings
from crosstask_papers.bench.rank_tables import Judged
from crosstask_papers.bench.suites import SUITES
from crosstask_papers.rates import CHOOSING_SEED

GainsBySeed = dict[str, dict[str, dict[int, float]]]
"""By target, source and seed."""


def gains_by_seed(rows: Iterable[Row], method: str = PAIRED) -> GainsBySeed:
    """What every single source brings over the target alone, in points, of the rows of one suite."""
    alone: dict[tuple[str, int, int], float] = {}
    paired: list[tuple[str, Row]] = []
    for row in rows:
        if row["seed"] == CHOOSING_SEED or "score" not in row:
            continue
        name, source = split_name(row["method"])
        if source is not None and name == method:
            paired.append((source, row))
        elif source is None and name == ALONE:
            alone[row["target"], row["labels"], row["seed"]] = row["score"]
    gains: GainsBySeed = {}
    for source, row in paired:
        score = alone.get((row["target"], row["labels"], row["seed"]))
        if score is not None:
            gains.setdefault(row["target"], {}).setdefault(source, {})[row["seed"]] = row["score"] - score
    return gains


def rankings(rows: Sequence[Row]) -> dict[str, dict[str, list[Ranked]]]:
    """By score and target the rankings of each draw of labels beside the mean gains, of the rows of one suite."""
    gains = gains_by_seed(rows)
    means: dict[str, dict[str, float]] = {}
    for target, by_source in gains.items():
        means[target] = {source: fmean(by_seed.values()) for source, by_seed in by_source.items()}
    scored = [(row["target"], row["scores"]) for row in rows if row["method"] == RANKING and "scores" in row]
    return {**rankings_by_score(means, scored), **reference_rankings(gains)}


def judged_rankings(rows: Sequence[Row]) -> Judged:
    """All scores on all suites that have such rows."""
    by_suite: dict[str, dict[str, dict[str, list[Ranked]]]] = {}
    for suite in SUITES:
        of_suite = rankings([row for row in rows if row["suite"] == suite])
        if any(by_target for by_target in of_suite.values()):
            by_suite[suite] = of_suite
    return Judged.of(by_suite)
