"""How MetaWeighting depends on the fraction of query examples, rho, and on the step size of the weights, alpha.

Mao et al. (2022), Sec. 6.5 and 6.6, Figures 4 and 5: plots of ten runs each, with TextCNN on both benchmarks.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crosstask.runs.events import Row
from crosstask_papers.experiment import Claim, Figure, Rows, RunKey, Table, paired
from crosstask_papers.figures import measured
from crosstask_papers.metaweighting.experiments import OURS, WeighingExperiment
from crosstask_papers.metaweighting.runs import BENCHMARKS, Benchmark

METHODS = ("metaweighting", OURS)
"""The paper's steps of the weights, and steps that do not shrink with the model's rate."""
USUAL_SHARE = 0.1
"""The paper's rho on both benchmarks."""
INSENSITIVE = {"topics": (0.1, 0.5), "sentiment": (0.05, 0.1)}
"""Between these alphas the paper finds little difference."""
ALIKE = {"topics": 0.32, "sentiment": 0.67}
"""Points within which two alphas count as alike: what MetaWeighting has over uniform weights in Chai et al. (2023). A
difference as large as the method's whole gain would matter."""


class Sensitivity(WeighingExperiment):
    """One option of the weighting takes several values."""

    key: ClassVar[str]
    """What the paper calls it."""
    option: ClassVar[str]
    """What the weighting calls it."""
    values: ClassVar[Sequence[float]]
    quick_values: ClassVar[Sequence[float]]
    seeds: ClassVar[int] = 3

    def benchmarks(self) -> list[Benchmark]:
        return list(BENCHMARKS.values())[: 1 if self.options.quick else None]

    def cells(self) -> list[RunKey]:
        values = self.quick_values if self.options.quick else self.values
        return [
            RunKey.of(benchmark=benchmark.name, method=method, **{self.key: value}, seed=seed)
            for seed in self.used_seeds
            for benchmark in self.benchmarks()
            for method in METHODS
            for value in values
        ]

    def run(self, cell: RunKey) -> Row:
        benchmark = BENCHMARKS[cell["benchmark"]]
        text, value = benchmark.texts[0], cell[self.key]
        row = self.train(benchmark, text, cell["method"], cell["seed"], **{self.option: value})
        return {**row, "moved": moved(row["weights"][-1]["weights"])}

    def tables(self, rows: Rows) -> list[Table]:
        values = sorted(rows.values(self.key))
        lines: list[list[Any]] = []
        for benchmark in rows.values("benchmark"):
            for method in METHODS:
                of = rows.of(benchmark=benchmark, method=method)
                lines.append([benchmark, method, "accuracy", *(of.mean(**{self.key: value}) for value in values)])
                lines.append([benchmark, method, "moved", *(of.mean("moved", **{self.key: value}) for value in values)])
        head = ["benchmark", "method", "", *(f"{self.key} {value:g}" for value in values)]
        note = "Moved: how far a task's final weight is from the tasks' mean, in units of that mean, on average."
        return [Table(f"Accuracy by {self.key}", head, lines, note)]

    def figures(self, rows: Rows) -> list[Figure]:
        points = measured(rows, lambda row: f"{row['cell']['benchmark']}, {row['cell']['method']}", self.key)
        return [Figure.of_means(f"Accuracy by {self.key}", points, x=self.key, y="accuracy", x_log=True)]


def moved(weights: Mapping[str, float]) -> float:
    """How unequal weights are: the mean distance from their mean, in units of it.

    >>> moved({"a": 1.5, "b": 0.5})
    0.5
    """
    mean = statistics.fmean(weights.values())
    return statistics.fmean(abs(value - mean) for value in weights.values()) / mean if mean else 0.0


class QueryShare(Sensitivity):
    """Few query examples judge badly, many leave little to train on."""

    name: ClassVar[str] = "metaweighting-rho"
    title: ClassVar[str] = "MetaWeighting: the share of query examples"
    key: ClassVar[str] = "rho"
    option: ClassVar[str] = "query"
    values: ClassVar[Sequence[float]] = (0.02, 0.05, 0.1, 0.2, 0.5)
    quick_values: ClassVar[Sequence[float]] = (0.02, 0.1, 0.5)

    def claims(self, rows: Rows) -> list[Claim]:
        usual, claims = USUAL_SHARE, []
        for benchmark in BENCHMARKS:
            for method in METHODS:
                of = rows.of(benchmark=benchmark, method=method)
                at_usual = of.by_seed(rho=usual)
                for other, what in ((self.values[0], "rises to"), (self.values[-1], "falls after")):
                    text = f"{benchmark}, {method}: accuracy {what} rho = {usual:g} (against {other:g})"
                    gains = paired(at_usual, of.by_seed(rho=other))
                    claims.append(Claim.of_gains(text, f"{what} (Fig. 4)", gains, over="seeds"))
        return claims


class StepSize(Sensitivity):
    """A wide range of step sizes does."""

    name: ClassVar[str] = "metaweighting-alpha"
    title: ClassVar[str] = "MetaWeighting: the step size of the weights"
    key: ClassVar[str] = "alpha"
    option: ClassVar[str] = "step_size"
    values: ClassVar[Sequence[float]] = (0.05, 0.1, 0.5, 2.0)
    quick_values: ClassVar[Sequence[float]] = (0.05, 0.5)

    def claims(self, rows: Rows) -> list[Claim]:
        return [
            flat(
                f"{benchmark}, {method}: accuracy",
                rows.of(benchmark=benchmark, method=method),
                INSENSITIVE[benchmark],
                ALIKE[benchmark],
            )
            for benchmark in BENCHMARKS
            for method in METHODS
        ]


def flat(what: str, rows: Rows, ends: tuple[float, float], margin: float) -> Claim:
    """Whether the two ends of a range of alpha are alike: their difference is within the margin, beyond chance."""
    low, high = ends
    text, paper = f"{what} hardly depends on alpha from {low:g} to {high:g}", "not very sensitive (Fig. 5)"
    higher, lower = (rows.by_seed(alpha=value) for value in (high, low))
    return Claim.of_equivalence(text, paper, paired(higher, lower), over="seeds", margin=margin)
