"""TAWT on four tagging tasks: weights learned on the way against their final values, fixed from the start.

Chen et al. (2022), Table 6, with the tasks and settings of `tawt_tagging`.
"""

from typing import Any, ClassVar

from crosstask.runs.events import Row
from crosstask_papers.data import TAGGING
from crosstask_papers.experiment import Claim, Figure, Rows, RunKey, Table, by_seed_mean, differences
from crosstask_papers.tawt.tagging import TaggingExperiment, average

PAPER_FIXED = {"pretrain": (61.64, 59.08), "normalized-joint": (79.20, 78.89)}
"""Table 6: averages with learned and with fixed final weights."""


class FixedWeights(TaggingExperiment):
    """Table 6: training anew with the final weights of weighted training."""

    name: ClassVar[str] = "tawt-fixed"
    title: ClassVar[str] = "TAWT, Table 6: learned against fixed final weights"
    seeds: ClassVar[int] = 3
    paradigms: ClassVar[tuple[str, ...]] = ("pretrain", "normalized-joint")

    def cells(self) -> list[RunKey]:
        targets = ("NER",) if self.options.quick else TAGGING
        return [
            RunKey.of(target=target, method=paradigm, seed=seed)
            for seed in self.used_seeds
            for target in targets
            for paradigm in self.paradigms
        ]

    def run(self, cell: RunKey) -> Row:
        target, sources = self.tasks(cell["target"], cell["seed"])
        sharpness = 10.0 if cell["method"] == "pretrain" else 1.0
        learned = self.fit(f"{cell['method']} + TAWT", target, sources, cell["seed"], sharpness=sharpness)
        fixed = self.fit(cell["method"], target, sources, cell["seed"], weights=learned["weights"])
        return {**learned, "fixed": fixed["score"]}

    def tables(self, rows: Rows) -> list[Table]:
        targets = [target for target in TAGGING if target in rows.values("target")]
        lines: list[list[Any]] = []
        for paradigm in self.paradigms:
            for name, what, column in (("learned", "score", 0), ("fixed", "fixed", 1)):
                means = [rows.mean(what, target=target, method=paradigm) for target in targets]
                lines.append([f"{paradigm}, {name}", *means, average(means), PAPER_FIXED[paradigm][column]])
        return [Table("Test scores", ["weights", *targets, "average", "average (paper)"], lines)]

    def figures(self, rows: Rows) -> list[Figure]:
        gains = {f"{p}, {t}": _over_fixed(rows, p, t).values() for p in self.paradigms for t in TAGGING}
        return [Figure.of_values("Learned over fixed weights", gains, y="points over fixed weights", zero=True)]

    def claims(self, rows: Rows) -> list[Claim]:
        return [
            Claim.of_gains(
                f"Learned weights beat fixed final ones in {paradigm}",
                f"{PAPER_FIXED[paradigm][0] - PAPER_FIXED[paradigm][1]:+.2f}",
                by_seed_mean({target: _over_fixed(rows, paradigm, target) for target in TAGGING}),
                over="seeds",
            )
            for paradigm in self.paradigms
        ]


def _over_fixed(rows: Rows, paradigm: str, target: str) -> dict[int, float]:
    runs = rows.of(target=target, method=paradigm)
    return differences(runs.by_seed(), runs.by_seed("fixed"))
