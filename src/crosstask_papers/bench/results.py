"""The rows of the bench, as tables ask for them: scores by target, number of labels, method and seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from crosstask.runs.events import Row
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.opponents import OPPONENTS
from crosstask_papers.bench.suites import SUITES, Suite
from crosstask_papers.rates import CHOOSING_SEED

NAMES = (*METHODS, *OPPONENTS)
BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Results:
    """Rows of measured runs; those of trials are left out, and those with a single source."""

    rows: Sequence[Row]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Results":
        """What may stand in a table."""
        return cls([row for row in rows if row["seed"] != CHOOSING_SEED and "score" in row and row["method"] in NAMES])

    def of_suite(self, suite: Suite) -> "Results":
        """The rows of one suite."""
        return Results([row for row in self.rows if row["suite"] == suite.name])

    @property
    def at_first_size(self) -> "Results":
        """The rows with the first number of labels of their suite, which more methods have than the others."""
        return Results([row for row in self.rows if row["labels"] == SUITES[row["suite"]].labels[0]])

    @property
    def methods(self) -> list[str]:
        """Those that were measured, in the bench's order."""
        measured = {row["method"] for row in self.rows}
        return [name for name in NAMES if name in measured]

    def by_seed(self, target: str, labels: int, method: str) -> BySeed:
        """The scores of a method on a target."""
        scores: dict[int, float] = {}
        for row in self.rows:
            if (row["target"], row["labels"], row["method"]) == (target, labels, method):
                scores[row["seed"]] = row["score"]
        return scores

    def rate(self, target: str, labels: int, method: str) -> float | None:
        """The learning rate that a method had on a target, the same for all seeds; None of a solver."""
        for row in self.rows:
            if (row["target"], row["labels"], row["method"]) == (target, labels, method):
                return float(row["rate"]) if row["rate"] is not None else None
        return None

    def seconds(self, method: str) -> float | None:
        """Of a run, on average; None of an opponent, which has a machine of its own."""
        if method in OPPONENTS:
            return None
        seconds = [row["seconds"] for row in self.rows if row["method"] == method]
        return fmean(seconds) if seconds else None

    def by_target(self) -> dict[str, list[dict[str, float]]]:
        """Of every target, by suite and name: for each number of labels the mean scores by method."""
        scores: dict[str, dict[int, dict[str, list[float]]]] = {}
        for row in self.rows:
            of_target = scores.setdefault(f"{row['suite']} {row['target']}", {})
            of_target.setdefault(row["labels"], {}).setdefault(row["method"], []).append(row["score"])
        means: dict[str, list[dict[str, float]]] = {}
        for target, by_labels in scores.items():
            means[target] = []
            for by_method in by_labels.values():
                means[target].append({name: fmean(by_method[name]) for name in NAMES if name in by_method})
        return means

    def by_seed_means(self, method: str) -> dict[int, float]:
        """Seed by seed, the mean over targets and numbers of labels; of the seeds that all of these have."""
        by_setting: dict[tuple[str, str, int], dict[int, float]] = {}
        for row in self.rows:
            scores = by_setting.setdefault((row["suite"], row["target"], row["labels"]), {})
            if row["method"] == method:
                scores[row["seed"]] = row["score"]
        seeds = set.intersection(*(set(scores) for scores in by_setting.values())) if by_setting else set()
        return {seed: fmean(scores[seed] for scores in by_setting.values()) for seed in sorted(seeds)}

    def gains(self, better: str, worse: str) -> dict[str, float]:
        """By target, what one method has over another: the mean over the runs that both have."""
        scores = {(row["suite"], row["target"], row["labels"], row["seed"], row["method"]): row for row in self.rows}
        differences: dict[str, list[float]] = {}
        for (suite, target, labels, seed, method), row in scores.items():
            other = scores.get((suite, target, labels, seed, worse))
            if method == better and other is not None:
                differences.setdefault(f"{suite} {target}", []).append(row["score"] - other["score"])
        return {target: fmean(values) for target, values in differences.items()}
