"""TAWT on four tagging tasks: weights learned on the way against their final values, fixed from the start.

Chen et al. (2022), Table 6, with the tasks and settings of `tawt.tagging`.
"""

from typing import Any, ClassVar

from crosstask.runs.events import Row
from crosstask_papers.data import TAGGING
from crosstask_papers.experiment import Claim, Figure, Rows, RunKey, Table, by_seed_mean, differences
from crosstask_papers.rates import CHOOSING_SEED, chosen_rate, trials
from crosstask_papers.tawt.tagging import WEIGHTED, TaggingExperiment, average

PAPER_FIXED = {"pretrain": (61.64, 59.08), "normalized-joint": (79.20, 78.89)}
"""Table 6: averages with learned and with fixed final weights."""
SHARPNESS = {"pretrain": 10.0, "normalized-joint": 1.0}


class FixedWeights(TaggingExperiment):
    """Table 6: training anew with the final weights of weighted training."""

    name: ClassVar[str] = "tawt-fixed"
    title: ClassVar[str] = "TAWT, Table 6: learned against fixed final weights"
    seeds: ClassVar[int] = 3

    @property
    def targets(self) -> tuple[str, ...]:
        return ("NER",) if self.options.quick else TAGGING

    def cells(self) -> list[RunKey]:
        """The runs that choose a learning rate, one for learned and one for fixed weights."""
        arms = [{"target": target, "method": paradigm} for target in self.targets for paradigm in SHARPNESS]
        return trials(arms, self.rates)

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """All seeds; both versions of a run at their own rates."""
        keys = []
        for seed in self.used_seeds:
            for target in self.targets:
                for paradigm in SHARPNESS:
                    rate, fixed_rate = _rates(rows, target, paradigm, self.rates)
                    if rate is not None and fixed_rate is not None:
                        key = RunKey.of(target=target, method=paradigm, rate=rate, fixed_rate=fixed_rate, seed=seed)
                        keys.append(key)
        return keys

    def run(self, cell: RunKey) -> Row:
        target, sources = self.tasks(cell["target"], cell["seed"])
        paradigm, seed, rate = cell["method"], cell["seed"], cell["rate"]
        fixed_rate = dict(cell.values).get("fixed_rate", rate)
        sharpness = SHARPNESS[paradigm]
        learned = self.fit(f"{paradigm} + {WEIGHTED}", target, sources, seed, rate=rate, sharpness=sharpness)
        fixed = self.fit(paradigm, target, sources, seed, rate=fixed_rate, weights=learned["weights"])
        return {**learned, "fixed": fixed["score"], "fixed_dev": fixed["dev"]}

    def tables(self, rows: Rows) -> list[Table]:
        targets = [target for target in TAGGING if target in rows.values("target")]
        runs = _measured(rows)
        lines: list[list[Any]] = []
        for paradigm in SHARPNESS:
            for name, what, column in (("learned", "score", 0), ("fixed", "fixed", 1)):
                means = [runs.mean(what, target=target, method=paradigm) for target in targets]
                lines.append([f"{paradigm}, {name}", *means, average(means), PAPER_FIXED[paradigm][column]])
        return [Table("Test scores", ["weights", *targets, "average", "average (paper)"], lines)]

    def figures(self, rows: Rows) -> list[Figure]:
        gains = {}
        for paradigm in SHARPNESS:
            for target in TAGGING:
                gains[f"{paradigm}, {target}"] = list(_over_fixed(rows, paradigm, target).values())
        return [Figure.of_values("Learned over fixed weights", gains, y="points over fixed weights", zero=True)]

    def claims(self, rows: Rows) -> list[Claim]:
        claims = []
        for paradigm in SHARPNESS:
            gains = {target: _over_fixed(rows, paradigm, target) for target in TAGGING}
            learned, fixed = PAPER_FIXED[paradigm]
            claims.append(
                Claim.of_gains(
                    f"Learned weights beat fixed final ones in {paradigm}",
                    f"{learned - fixed:+.2f}",
                    by_seed_mean(gains),
                    over="seeds",
                )
            )
        return claims


def _rates(rows: Rows, target: str, paradigm: str, rates: tuple[float, ...]) -> tuple[float | None, float | None]:
    """The rates of learned and of fixed weights."""
    arm = {"target": target, "method": paradigm}
    fixed = Rows([{"cell": row["cell"], "dev": row["fixed_dev"]} for row in rows.rows])
    return chosen_rate(rows, arm, rates), chosen_rate(fixed, arm, rates)


def _measured(rows: Rows) -> Rows:
    return Rows([row for row in rows.rows if row["cell"]["seed"] != CHOOSING_SEED])


def _over_fixed(rows: Rows, paradigm: str, target: str) -> dict[int, float]:
    runs = _measured(rows).of(target=target, method=paradigm)
    return differences(runs.by_seed(), runs.by_seed("fixed"))
