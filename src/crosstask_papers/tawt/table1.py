"""TAWT's main table: four targets, four paradigms, plain and weighted (Chen et al. 2022, Table 1)."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crosstask.runs.events import Row
from crosstask_papers.data import TAGGING
from crosstask_papers.experiment import (
    Claim,
    Estimate,
    Figure,
    Rows,
    RunKey,
    Table,
    by_seed_mean,
    by_target_mean,
    differences,
    mean_of,
)
from crosstask_papers.rates import CHOOSING_SEED, chosen_rate, trials
from crosstask_papers.tawt.tagging import FROZEN, RANDOM, WEIGHTED, TaggingExperiment, average

SHARPNESS = (1.0, 10.0, 30.0, 100.0)
"""Of weighted pre-training: the paper takes the best of these; here dev sentences of a seed of its own choose."""
SEARCHED = f"pretrain + {WEIGHTED}"
LONG = "single, long"
"""The target alone for as many updates as joint training has."""
PARADIGMS = ("pretrain", "joint", "normalized-joint")
PAPER = {
    "single": (34.37, 43.05, 66.26, 33.20),
    "pretrain": (49.43, 73.15, 74.10, 41.22),
    "pretrain + TAWT": (51.17, 73.41, 75.77, 46.23),
    "joint": (53.83, 75.58, 75.42, 43.50),
    "joint + TAWT": (57.34, 77.78, 75.98, 53.44),
    "normalized-joint": (84.14, 88.91, 77.02, 61.15),
    "normalized-joint + TAWT": (86.07, 90.62, 76.67, 63.44),
}
"""Table 1."""
PAPER_GAIN = 2.5
PAPER_WEIGHTS = (
    "The paper's are in its Table 5. They weigh batches that are drawn in proportion to the size of a task, these "
    "weigh mean losses: other numbers for the same objective."
)


class Table1(TaggingExperiment):
    """Four targets, four paradigms, with weights that are plain, learned and random."""

    name: ClassVar[str] = "tawt-table1"
    title: ClassVar[str] = "TAWT, Table 1"

    @property
    def paradigms(self) -> tuple[str, ...]:
        if self.options.quick:
            return ("pretrain", "normalized-joint")
        return PARADIGMS

    @property
    def methods(self) -> list[str]:
        """In the order of the table; frozen weights are a control besides."""
        methods = ["single", LONG]
        for paradigm in self.paradigms:
            methods += [paradigm, f"{paradigm} + {WEIGHTED}", f"{paradigm} + {RANDOM}"]
        return methods

    @property
    def targets(self) -> tuple[str, ...]:
        return ("NER",) if self.options.quick else TAGGING

    def cells(self) -> list[RunKey]:
        """The runs that choose the learning rate of each method and target."""
        arms = [_arm(target, method) for target in self.targets for method in self.methods]
        return trials(arms, self.rates)

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """Sharpness of weighted pre-training first, then all seeds at the chosen rates, then at the published one."""
        done = {RunKey.from_json(row["cell"]) for row in rows.rows}
        missing_trials = [key for key in self._sharpness_trials(rows) if key not in done]
        if missing_trials:
            return missing_trials
        chosen: list[dict[str, Any]] = []
        published: list[dict[str, Any]] = []
        for method in self.methods:
            for target in self.targets:
                rate = chosen_rate(rows, _arm(target, method), self.rates)
                settings = [(chosen, rate)]
                if rate != self.published_rate and not method.endswith(RANDOM):
                    settings.append((published, self.published_rate))
                for arms, arm_rate in settings:
                    sharpness = None if arm_rate is None else best_sharpness(rows, target, method, arm_rate)
                    if sharpness is not None:
                        arms.append({**_arm(target, method), "sharpness": sharpness, "rate": arm_rate})
        keys: list[RunKey] = []
        for arms in (chosen, published):
            for seed in self.used_seeds:
                keys += [RunKey.of(**arm, seed=seed) for arm in arms]
        return keys + self._controls(rows)

    def _sharpness_trials(self, rows: Rows) -> list[RunKey]:
        """The runs that choose the sharpness of weighted pre-training, at the chosen rate and at the published one."""
        keys = []
        for target in self.targets:
            for rate in (chosen_rate(rows, _arm(target, SEARCHED), self.rates), self.published_rate):
                if rate is not None:
                    arm = {**_arm(target, SEARCHED), "rate": rate, "seed": CHOOSING_SEED}
                    keys += [RunKey.of(**{**arm, "sharpness": sharpness}) for sharpness in SHARPNESS]
        return list(dict.fromkeys(keys))

    def _controls(self, rows: Rows) -> list[RunKey]:
        """Frozen weights, one seed of each paradigm: they should give what plain training gives."""
        keys = []
        for target in self.targets:
            for paradigm in self.paradigms:
                rate = chosen_rate(rows, _arm(target, paradigm), self.rates)
                if rate is not None:
                    keys.append(RunKey.of(**_arm(target, f"{paradigm} + {FROZEN}"), rate=rate, seed=0))
        return keys

    def run(self, cell: RunKey) -> Row:
        target, sources = self.tasks(cell["target"], cell["seed"])
        if cell["method"] == LONG:
            return self.fit("single", target, sources, cell["seed"], rate=cell["rate"], updates=self.updates(sources))
        return self.fit(cell["method"], target, sources, cell["seed"], rate=cell["rate"], sharpness=cell["sharpness"])

    def scores(self, rows: Rows, target: str, method: str, rate: float | None = None) -> dict[int, float]:
        """Test scores by seed at a rate, or at the chosen one; without the runs that chose."""
        return {seed: row["score"] for seed, row in self._runs(rows, target, method, rate).items()}

    def _runs(self, rows: Rows, target: str, method: str, rate: float | None = None) -> dict[int, Row]:
        """Runs by seed, with the sharpness that was chosen."""
        if rate is None:
            rate = chosen_rate(rows, _arm(target, method), self.rates)
        sharpness = None if rate is None else best_sharpness(rows, target, method, rate)
        if rate is None or sharpness is None:
            return {}
        runs = rows.of(target=target, method=method, sharpness=sharpness, rate=rate).rows
        return {row["cell"]["seed"]: row for row in runs if row["cell"]["seed"] != CHOOSING_SEED}

    def tables(self, rows: Rows) -> list[Table]:
        targets = [target for target in TAGGING if target in rows.values("target")]
        note = "Accuracy of parts of speech, span F1 of chunks and entities, F1 of predicates."
        rate_lines: list[list[Any]] = []
        weight_lines: list[list[Any]] = []
        for method in self.methods:
            rates = [chosen_rate(rows, _arm(target, method), self.rates) for target in targets]
            rate_lines.append([method, *(None if rate is None else f"{rate:g}" for rate in rates)])
            if method.endswith(WEIGHTED):
                for target in targets:
                    runs = self._runs(rows, target, method).values()
                    weights = [mean_of([run["weights"].get(task) for run in runs], 3) for task in TAGGING]
                    weight_lines.append([f"{method}, target {target}", *weights])
        return [
            Table("Test scores", ["method", *targets, "average"], self._score_lines(rows, targets, None), note),
            Table(
                f"Test scores at the published learning rate, {self.published_rate:g}",
                ["method", *targets, "average"],
                self._score_lines(rows, targets, self.published_rate),
            ),
            Table("Learning rates that dev sentences chose", ["method", *targets], rate_lines),
            Table("Final weights", ["run", *TAGGING], weight_lines, PAPER_WEIGHTS),
            Table(
                "Control: frozen weights over plain training, the same seed",
                ["paradigm", *targets],
                [[paradigm, *(self._frozen_gain(rows, paradigm, t) for t in targets)] for paradigm in self.paradigms],
                "Two runs of the same thing; what is left is rounding.",
            ),
        ]

    def _score_lines(self, rows: Rows, targets: Sequence[str], rate: float | None) -> list[list[Any]]:
        lines: list[list[Any]] = []
        for method in self.methods:
            if rate is not None and method.endswith(RANDOM):  # which are run at the chosen rates alone
                continue
            means = [mean_of(self.scores(rows, target, method, rate).values()) for target in targets]
            if any(mean is not None for mean in means):
                lines.append([method, *means, average(means)])
            if method in PAPER:
                figures = [PAPER[method][TAGGING.index(target)] for target in targets]
                lines.append([f"{method} (paper)", *figures, average([Estimate(value, None, 1) for value in figures])])
        return lines

    def _frozen_gain(self, rows: Rows, paradigm: str, target: str) -> float | None:
        frozen = rows.of(target=target, method=f"{paradigm} + {FROZEN}").by_seed()
        gains = differences(frozen, self.scores(rows, target, paradigm))
        return gains.get(0)

    def figures(self, rows: Rows) -> list[Figure]:
        figures = []
        for title, baseline in (("plain training", ""), ("random weights", f" + {RANDOM}")):
            gains = {}
            for (paradigm, target), by_seed in self.gains(rows, baseline).items():
                gains[f"{paradigm}, {target}"] = list(by_seed.values())
            figures.append(
                Figure.of_values(f"Learned weights over {title}", gains, y=f"points over {title}", zero=True)
            )
        return figures

    def gains(
        self, rows: Rows, baseline: str = "", rate: float | None = None
    ) -> dict[tuple[str, str], dict[int, float]]:
        """By paradigm and target, what learned weights add to the same paradigm with other weights, by seed."""
        gains: dict[tuple[str, str], dict[int, float]] = {}
        for paradigm in self.paradigms:
            for target in TAGGING:
                learned = self.scores(rows, target, f"{paradigm} + {WEIGHTED}", rate)
                by_seed = differences(learned, self.scores(rows, target, paradigm + baseline, rate))
                if by_seed:
                    gains[paradigm, target] = by_seed
        return gains

    def claims(self, rows: Rows) -> list[Claim]:
        gains, published = self.gains(rows), self.gains(rows, rate=self.published_rate)
        over_random = self.gains(rows, f" + {RANDOM}")
        by_target = {target: by_seed_mean(_of(gains, target=target)) for target in TAGGING}
        claims = [
            Claim.of_count(
                "Weighted training beats plain training in most cells",
                "11 of 12",
                [mean > 0 for mean in by_target_mean(gains)],
            ),
            Claim.of_gains("Mean gain of learned weights", f"+{PAPER_GAIN}", by_seed_mean(gains), over="seeds"),
            Claim.of_gains(
                "Mean gain of learned weights, on targets like these",
                f"+{PAPER_GAIN}",
                [statistics.fmean(values) for values in by_target.values() if values],
                over="targets",
            ),
        ]
        for paradigm in self.paradigms:
            paper = statistics.fmean(PAPER[f"{paradigm} + {WEIGHTED}"]) - statistics.fmean(PAPER[paradigm])
            for text, by_cell, figure in (
                (f"Learned weights help in {paradigm}", gains, f"{paper:+.2f}"),
                (f"the same at the published rate, {paradigm}", published, f"{paper:+.2f}"),
                (f"Learned weights beat random ones in {paradigm}", over_random, "–"),
            ):
                values = by_seed_mean(_of(by_cell, paradigm=paradigm))
                claims.append(Claim.of_gains(text, figure, values, over="seeds"))
        for text, better, worse in (
            ("Pre-training beats single-task training", "pretrain", "single"),
            ("Normalized joint training beats joint training", "normalized-joint", "joint"),
            ("Pre-training beats the target alone with as many updates", "pretrain", LONG),
            ("Normalized joint training beats the target alone with as many updates", "normalized-joint", LONG),
        ):
            by_target_and_seed = {}
            for target in TAGGING:
                by_target_and_seed[target] = differences(
                    self.scores(rows, target, better), self.scores(rows, target, worse)
                )
            figure = "–"
            if better in PAPER and worse in PAPER:
                figure = f"{statistics.fmean(PAPER[better]) - statistics.fmean(PAPER[worse]):+.2f}"
            claims.append(Claim.of_gains(text, figure, by_seed_mean(by_target_and_seed), over="seeds"))
        return claims


def _arm(target: str, method: str) -> dict[str, Any]:
    return {"target": target, "method": method, "sharpness": 1.0}


def best_sharpness(rows: Rows, target: str, method: str, rate: float) -> float | None:
    """The one with the best dev score, the least of several; None while a trial is missing."""
    if method != SEARCHED:
        return 1.0
    dev_scores: dict[float, float] = {}
    for sharpness in SHARPNESS:
        runs = rows.by_seed("dev", target=target, method=method, sharpness=sharpness, rate=rate)
        if CHOOSING_SEED not in runs:
            return None
        dev_scores[sharpness] = runs[CHOOSING_SEED]
    return max(dev_scores, key=dev_scores.__getitem__)


def _of(
    gains: Mapping[tuple[str, str], dict[int, float]], *, paradigm: str | None = None, target: str | None = None
) -> dict[tuple[str, str], dict[int, float]]:
    """The gains of one paradigm, or of one target."""
    keys = [key for key in gains if paradigm in (None, key[0]) and target in (None, key[1])]
    return {key: gains[key] for key in keys}
