"""Equal arms: what MetaWeighting's weights are worth, apart from the data that it trains on and the learning rate.

As in the paper the learning rate is constant. Every arm's is chosen on dev from the same rates by a seed that is in no
table; an arm that differs from another by one thing alone has its rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from crosstask.studies.significance import paired_t_test
from crosstask_papers.experiment import Claim, Rows, RunKey, Table, TableItem, mean_of, paired
from crosstask_papers.metaweighting.bound import largest_move, reach_of
from crosstask_papers.metaweighting.runs import QUERY_SHARE, Benchmark, Sizes
from crosstask_papers.rates import CHOOSING_SEED, chosen_rate, trials

Study = Literal["equal", "published batch"]
EQUAL: Study = "equal"
PUBLISHED_BATCH: Study = "published batch"
"""Batches of 256 instead of 32, for fewer updates: 3,000 epochs of them would take days."""
RATES, QUICK_RATES = (1e-3, 3e-3, 1e-2), (3e-3,)
PUBLISHED_RATE = 1e-3
CONSTANT: dict[str, Any] = {"warmup": 0.0, "decay": "none"}
"""The learning rate, as published."""
PUBLISHED_RATE_SEEDS = 5
BATCH_SEEDS = 3

AS_PUBLISHED: dict[str, Any] = {
    "query": QUERY_SHARE,
    "every": 1,
    "solver": "exact",
    "heads": True,
    "normalize": False,
    "keep_sum": False,
}
"""MetaWeighting's options, all but the step size, which each benchmark has. The paper finds the same point by
Frank-Wolfe."""

UNIFORM, ON_SUPPORT = "uniform", "uniform on support"
MOVING, FROZEN = "metaweighting", "metaweighting, weights frozen"
BY_DEV, UNSCALED = "metaweighting, judged by dev", "metaweighting, without eta / T"


@dataclass(frozen=True)
class Arm:
    """A way to train.

    - `method`: one of `runs.METHODS`;
    - `options`: of its weighting;
    - `is_on_support`: it trains on what MetaWeighting leaves to train on, and sees nothing of the query sets;
    - `is_unscaled`: the step of the weights leaves eta / T out of eq. 10;
    - `rate_of`: the arm whose trials choose its learning rate; its own where None.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_on_support: bool = False
    is_unscaled: bool = False
    rate_of: str | None = None


def arms_of(baselines: Sequence[str]) -> dict[str, Arm]:
    """All arms, with these baselines on all examples and on the support part.

    - `FROZEN` is MetaWeighting with weights that never move: it trains as `ON_SUPPORT` does, to rounding, but with the
      same dropout masks as `MOVING`, so that what `MOVING` has over it is due to weights alone;
    - `BY_DEV` keeps nothing back from training: the dev sets, which choose every arm's model, judge the weights too.
    """
    arms = {
        MOVING: Arm("metaweighting", AS_PUBLISHED),
        UNIFORM: Arm("uniform"),
        ON_SUPPORT: Arm("uniform", is_on_support=True, rate_of=UNIFORM),
        FROZEN: Arm("metaweighting", {**AS_PUBLISHED, "step_size": 0.0}, rate_of=MOVING),
        BY_DEV: Arm("metaweighting", {**AS_PUBLISHED, "query": "dev"}, rate_of=MOVING),
        UNSCALED: Arm("metaweighting", AS_PUBLISHED, is_unscaled=True, rate_of=MOVING),
    }
    for baseline in baselines:
        arms[baseline] = Arm(baseline)
        arms[f"{baseline} on support"] = Arm(baseline, is_on_support=True, rate_of=baseline)
    return arms


BATCH_ARMS = (MOVING, UNIFORM, ON_SUPPORT, UNSCALED)
"""Those with the published batch, which are dear."""
QUICK_ARMS = (MOVING, UNIFORM, ON_SUPPORT, FROZEN, BY_DEV)


def arm_options(arm: Arm, benchmark: Benchmark, num_tasks: int, rate: float) -> dict[str, Any]:
    """Options of the arm's weighting.

    With a constant rate, steps without eta / T are steps of a size that is larger by T / eta.
    """
    options = {**benchmark.options.get(arm.method, {}), **arm.options}
    if arm.is_unscaled:
        options["step_size"] *= num_tasks / rate
    return options


@dataclass(frozen=True)
class EqualArms:
    """The runs of one benchmark with equal arms, their tables and claims.

    - `text`: the published version of the texts;
    - `seeds`: that measure;
    - `sizes`: how much is trained, by study.
    """

    benchmark: Benchmark
    text: str
    seeds: Sequence[int]
    sizes: Mapping[Study, Sizes]
    is_quick: bool

    @property
    def arms(self) -> dict[str, Arm]:
        """By name."""
        return arms_of(self.benchmark.strongest)

    @property
    def rates(self) -> Sequence[float]:
        """To choose from."""
        return QUICK_RATES if self.is_quick else RATES

    def _names(self, study: Study) -> Sequence[str]:
        if study == PUBLISHED_BATCH:
            return () if self.is_quick else BATCH_ARMS
        return QUICK_ARMS if self.is_quick else tuple(self.arms)

    def _cell(self, study: Study, name: str) -> dict[str, Any]:
        return {"study": study, "text": self.text, "method": name}

    def trials(self) -> list[RunKey]:
        """Of the arms that choose a rate; a quick version has one rate."""
        keys: list[RunKey] = []
        if not self.is_quick:
            for study in (EQUAL, PUBLISHED_BATCH):
                choosing = [name for name in self._names(study) if self.arms[name].rate_of is None]
                keys += trials([self._cell(study, name) for name in choosing], self.rates)
        return keys

    def rate(self, rows: Rows, study: Study, name: str) -> float | None:
        """What the trials have chosen for an arm; None while they are missing."""
        if self.is_quick:
            return QUICK_RATES[0]
        return chosen_rate(rows, self._cell(study, self.arms[name].rate_of or name), self.rates)

    def keys(self, rows: Rows) -> list[RunKey]:
        """The runs that measure, seed by seed: equal arms, some at the published rate, the published batch."""
        keys: list[RunKey] = []
        for seed in self.seeds:
            for name in self._names(EQUAL):
                rate = self.rate(rows, EQUAL, name)
                if rate is not None:
                    keys.append(RunKey.of(**self._cell(EQUAL, name), rate=rate, seed=seed))
        if not self.is_quick:
            for seed in self.seeds[:BATCH_SEEDS]:
                for name in self._names(PUBLISHED_BATCH):
                    rate = self.rate(rows, PUBLISHED_BATCH, name)
                    if rate is not None:
                        keys.append(RunKey.of(**self._cell(PUBLISHED_BATCH, name), rate=rate, seed=seed))
            for seed in self.seeds[:PUBLISHED_RATE_SEEDS]:
                for name in (MOVING, UNIFORM):
                    keys.append(RunKey.of(**self._cell(EQUAL, name), rate=PUBLISHED_RATE, seed=seed))
        return list(dict.fromkeys(keys))

    def of(self, rows: Rows, study: Study, name: str) -> Rows:
        """The runs of an arm at its rate, without those that chose it."""
        rate = self.rate(rows, study, name)
        if rate is None:
            return Rows()
        return without_trials(rows.of(**self._cell(study, name), rate=rate))

    def gains(self, rows: Rows, better: str, worse: str, study: Study = EQUAL) -> list[float]:
        """What one arm has over another, seed by seed."""
        return paired(self.of(rows, study, better).by_seed(), self.of(rows, study, worse).by_seed())

    def tables(self, rows: Rows) -> list[Table]:
        """Accuracies of each study, and how far weights could move and did; those that have lines."""
        tables = [
            self._accuracies(rows, EQUAL, "Equal arms, constant learning rate"),
            self._accuracies(rows, PUBLISHED_BATCH, "Equal arms, the published batch"),
            self._moves(rows),
            self._rates(rows),
        ]
        return [table for table in tables if table.lines]

    def _accuracies(self, rows: Rows, study: Study, title: str) -> Table:
        lines: list[list[TableItem]] = []
        for name in self._names(study):
            scores = self.of(rows, study, name).by_seed()
            if scores:
                line: list[TableItem] = [name, f"{self.rate(rows, study, name):g}", mean_of(scores.values())]
                for other in (UNIFORM, ON_SUPPORT):
                    gains = self.gains(rows, name, other, study) if name != other else []
                    p = paired_t_test(gains)
                    line += [mean_of(gains), None if p is None else f"{p:.2g}"]
                lines.append(line)
        if study == EQUAL:
            for name in (UNIFORM, MOVING):
                published = without_trials(rows.of(**self._cell(study, name), rate=PUBLISHED_RATE))
                if published.rows and self.rate(rows, study, name) != PUBLISHED_RATE:
                    rate = f"{PUBLISHED_RATE:g} (published)"
                    lines.append([name, rate, published.mean(), None, None, None, None])
        sizes = self.sizes[study]
        note = (
            f"Mean test accuracy of the tasks, over seeds; {sizes.updates} updates of {sizes.batch_size} examples a "
            "task; p of a paired t-test, two-sided, of each comparison alone. 'On support': without the examples that "
            "MetaWeighting keeps to judge its weights by."
        )
        return Table(
            title, ["arm", "rate", "accuracy", "over uniform", "p", "over uniform on support", "p"], lines, note
        )

    def _moves(self, rows: Rows) -> Table:
        lines: list[list[TableItem]] = []
        for study in (EQUAL, PUBLISHED_BATCH):
            for name in self._names(study):
                measured = [row for row in self.of(rows, study, name).rows if "query_losses" in row]
                reaches = [reach for row in measured if (reach := reach_of(row)) is not None]
                if measured and name != FROZEN:
                    line: list[TableItem] = [f"{name}, {study}", f"{measured[0]['step_size']:g}"]
                    for moment in ("first", "lowest"):
                        line.append(mean_of(_mean_loss(row, moment) for row in measured))
                    line.append(mean_of((reach.alike for reach in reaches), 5))
                    line.append(mean_of((reach.most for reach in reaches), 5))
                    line.append(mean_of((largest_move(row) for row in measured), 5))
                    lines.append(line)
        head = [
            "arm",
            "alpha",
            "first query loss",
            "lowest",
            "alpha / T × fall",
            "alpha × least fall",
            "largest |w - 1|",
        ]
        note = (
            "Under gradient descent no weight can leave 1 by more than alpha times the fall of the query loss that "
            "falls least; where all fall alike, each leaves it by alpha / T times the fall. The last column is what "
            "was seen."
        )
        return Table("How far weights could move, and did", head, lines, note)

    def _rates(self, rows: Rows) -> Table:
        lines: list[list[TableItem]] = []
        for study in (EQUAL, PUBLISHED_BATCH):
            for name in self._names(study):
                tried = rows.of(**self._cell(study, name), seed=CHOOSING_SEED)
                if tried.rows:
                    line: list[TableItem] = [f"{name}, {study}"]
                    line += [tried.of(rate=rate).by_seed("dev").get(CHOOSING_SEED) for rate in self.rates]
                    chosen = self.rate(rows, study, name)
                    line.append(None if chosen is None else f"{chosen:g}")
                    lines.append(line)
        head = ["arm", *(f"rate {rate:g}" for rate in self.rates), "chosen"]
        note = (
            "Mean dev accuracy of the tasks, of a seed that no other table shows. An arm that is not here has the rate "
        )
        note += "of the one that it differs from by one thing alone."
        return Table("Learning rates", head, lines, note)

    def claims(self, rows: Rows, paper: Mapping[str, float]) -> list[Claim]:
        """Whether MetaWeighting is above others, the paper's claim first."""
        published_gain = f"{paper['metaweighting'] - paper['uniform']:+.2f}"
        comparisons = [
            ("MetaWeighting is above uniform weights", published_gain, MOVING, UNIFORM, EQUAL),
            ("MetaWeighting is above uniform weights on as few examples", "–", MOVING, ON_SUPPORT, EQUAL),
            ("MetaWeighting is above the same with weights that never move", "–", MOVING, FROZEN, EQUAL),
            (
                "judged by dev sets, so that all examples train, it is above uniform weights",
                "–",
                BY_DEV,
                UNIFORM,
                EQUAL,
            ),
            (
                "without eta / T in eq. 10 it is above uniform weights on as few examples",
                "–",
                UNSCALED,
                ON_SUPPORT,
                EQUAL,
            ),
        ]
        for baseline in self.benchmark.strongest:
            text = f"MetaWeighting is above {baseline} on as few examples"
            comparisons.append((text, "above (Fig. 2 and 3)", MOVING, f"{baseline} on support", EQUAL))
        text = "with the published batch, MetaWeighting is above uniform weights"
        comparisons.append((text, published_gain, MOVING, UNIFORM, PUBLISHED_BATCH))
        claims = []
        for text, figure, better, worse, study in comparisons:
            claims.append(Claim.of_gains(text, figure, self.gains(rows, better, worse, study), over="seeds"))
        return claims


def without_trials(rows: Rows) -> Rows:
    """The runs of seeds that tables may show."""
    return Rows([row for row in rows.rows if row["cell"]["seed"] != CHOOSING_SEED])


def _mean_loss(row: Mapping[str, Any], moment: str) -> float:
    losses = row["query_losses"][moment].values()
    return sum(losses) / len(losses)
