"""TAWT by the ratio of source to target data, and by the size of the target (Chen et al. 2022, Tables 3 and 4)."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crosstask.runs.events import Row
from crosstask_papers.experiment import Claim, Figure, Rows, RunKey, Table, by_seed_mean, differences
from crosstask_papers.figures import measured
from crosstask_papers.rates import CHOOSING_SEED, chosen_rate, trials
from crosstask_papers.tawt.tagging import RANDOM, WEIGHTED, TaggingExperiment

PLAIN, LEARNED, DRAWN = "normalized-joint", f"normalized-joint + {WEIGHTED}", f"normalized-joint + {RANDOM}"
METHODS = (PLAIN, LEARNED, DRAWN)
RATIOS = (1, 2, 4, 8, 16)
PAPER_RATIO = {PLAIN: (38.55, 36.53, 42.37, 54.18, 62.08), LEARNED: (42.31, 42.13, 51.64, 59.08, 63.46)}
"""Table 3, for ratios 1 to 16; the paper goes on to 128, for which the public sets have too few sentences."""
SIZES = (500, 1000, 1500)
PAPER_SIZE = {PLAIN: (54.18, 64.69), LEARNED: (59.08, 66.00)}
"""Table 4, for 500 and 1,000 target sentences at ratio 8; the public sets end at 12,543 sentences."""


class Ratio(TaggingExperiment):
    """Table 3: more and more source sentences for the same target."""

    name: ClassVar[str] = "tawt-ratio"
    title: ClassVar[str] = "TAWT, Table 3: ratio of source to target"
    seeds: ClassVar[int] = 3
    varied: ClassVar[str] = "ratio"
    paper_figures: ClassVar[Mapping[str, tuple[float, ...]]] = PAPER_RATIO

    @property
    def values(self) -> tuple[int, ...]:
        return RATIOS[:2] if self.options.quick else RATIOS

    def sizes(self, value: int) -> tuple[int, int]:
        """Target and source sentences."""
        count = 100 if self.options.quick else 500
        return count, count * value

    def cells(self) -> list[RunKey]:
        """The runs that choose the learning rate of each method and value."""
        return trials([{"method": method, "value": value} for value in self.values for method in METHODS], self.rates)

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """All seeds at the chosen rate and, but for random weights, at the published one."""
        keys = []
        for seed in self.used_seeds:
            for value in self.values:
                for method in METHODS:
                    rates = [chosen_rate(rows, {"method": method, "value": value}, self.rates)]
                    if method != DRAWN:
                        rates.append(self.published_rate)
                    for rate in dict.fromkeys(rates):
                        if rate is not None:
                            keys.append(RunKey.of(method=method, value=value, rate=rate, seed=seed))
        return keys

    def run(self, cell: RunKey) -> Row:
        count, source = self.sizes(cell["value"])
        target, sources = self.tasks("NER", cell["seed"], count=count, source=source, sources=("PoS", "predicates"))
        return self.fit(cell["method"], target, sources, cell["seed"], rate=cell["rate"])

    def chosen(self, rows: Rows, rate: float | None = None) -> Rows:
        """The runs at a rate, or each method's at the rate chosen for it; without those that chose."""
        chosen = []
        for row in rows.rows:
            cell = row["cell"]
            wanted = rate or chosen_rate(rows, {"method": cell["method"], "value": cell["value"]}, self.rates)
            if cell["seed"] != CHOOSING_SEED and cell["rate"] == wanted:
                chosen.append(row)
        return Rows(chosen)

    def tables(self, rows: Rows) -> list[Table]:
        title = f"Span F1 of entities by {self.varied}"
        return [
            self._table(title, self.chosen(rows)),
            self._table(f"{title}, published learning rate", self.chosen(rows, self.published_rate), (PLAIN, LEARNED)),
        ]

    def _table(self, title: str, rows: Rows, methods: Sequence[str] = METHODS) -> Table:
        lines: list[list[Any]] = []
        for method in methods:
            means = [rows.mean(method=method, value=value) for value in self.values]
            if any(mean is not None for mean in means):
                lines.append([method, *means])
            if method in self.paper_figures and not self.options.quick:  # which has other sizes than the paper
                figures = self.paper_figures[method]
                lines.append([f"{method} (paper)", *figures, *[None] * (len(self.values) - len(figures))])
        return Table(title, ["method", *map(str, self.values)], lines)

    def figures(self, rows: Rows) -> list[Figure]:
        ours = list(measured(self.chosen(rows), "method", "value"))
        paper: list[tuple[str, float, float]] = []
        if ours and not self.options.quick:  # which has other sizes than the paper
            for method, scores in self.paper_figures.items():
                for value, score in zip(self.values, scores, strict=False):
                    paper.append((f"{method} (paper)", value, score))
        named = {"x": self.varied, "y": "span F1 of entities", "dashed": list(dict.fromkeys(one[0] for one in paper))}
        return [Figure.of_means(f"Span F1 by {self.varied}", [*ours, *paper], x_log=True, **named)]

    def claims(self, rows: Rows) -> list[Claim]:
        paper_gains = [learned - plain for plain, learned in zip(*self.paper_figures.values(), strict=True)]
        paper = f"{statistics.fmean(paper_gains):+.2f}"
        gains = self._gains(self.chosen(rows), PLAIN)
        published = self._gains(self.chosen(rows, self.published_rate), PLAIN)
        over_random = self._gains(self.chosen(rows), DRAWN)
        is_better = [statistics.fmean(values.values()) > 0 for values in gains.values() if values]
        text = f"Learned weights help at every {self.varied}, on average"
        return [
            Claim.of_gains(text, paper, by_seed_mean(gains), over="seeds"),
            Claim.of_gains("the same at the published rate", paper, by_seed_mean(published), over="seeds"),
            Claim.of_gains(
                "Learned weights beat random ones, on average", "–", by_seed_mean(over_random), over="seeds"
            ),
            Claim.of_count(f"Learned weights help at each {self.varied}", "all", is_better),
        ]

    def _gains(self, rows: Rows, baseline: str) -> dict[int, dict[int, float]]:
        """By value and seed, what learned weights add."""
        gains = {}
        for value in self.values:
            learned = rows.by_seed(method=LEARNED, value=value)
            gains[value] = differences(learned, rows.by_seed(method=baseline, value=value))
        return gains


class Size(Ratio):
    """Table 4: a larger target at the same ratio."""

    name: ClassVar[str] = "tawt-size"
    title: ClassVar[str] = "TAWT, Table 4: size of the target"
    varied: ClassVar[str] = "target size"
    paper_figures: ClassVar[Mapping[str, tuple[float, ...]]] = PAPER_SIZE

    @property
    def values(self) -> tuple[int, ...]:
        return (50, 100) if self.options.quick else SIZES

    def sizes(self, value: int) -> tuple[int, int]:
        return value, 8 * value
