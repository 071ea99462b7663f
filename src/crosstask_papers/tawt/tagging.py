"""TAWT on four tagging tasks: the main table, the ratio and size of source data.

Chen et al. (2022), Sec. 4: parts of speech, chunking, predicates and entities, each the target in turn with few
sentences and the three others as sources with 9,000 sentences each; batch 32, 4 epochs, learning rate 5e-5, weights
updated once an epoch from 64 examples.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.papers import TAWT, Paper
from crosstask.runs.events import Row
from crosstask_papers.data import TAGGING, few, tagging_task, without
from crosstask_papers.experiment import (
    Claim,
    Estimate,
    Experiment,
    Figure,
    Options,
    Rows,
    RunKey,
    Table,
    by_seed_mean,
    by_target_mean,
    differences,
    mean_of,
)
from crosstask_papers.figures import measured

LABELS = {"PoS": 100, "chunking": 100, "predicates": 300, "NER": 500}
"""Sentences of each target."""
SOURCE, QUICK_SOURCE = 9_000, 500
TRAINING = {"epochs": 4, "batch_size": 32, "learning_rate": 5e-5, "keep": "last", "precision": "bfloat16"}
QUICK_TRAINING = {"epochs": 4, "batch_size": 16, "learning_rate": 1e-3, "keep": "last"}
QUICK_ENCODER = {"name": "minilm", "freeze": True, "hidden": 128, "max_length": 64}
SHARPNESS = (1.0, 10.0, 30.0, 100.0)
"""Of weighted pre-training: the paper takes the best of these; here dev sentences of a seed of its own choose."""
CHOOSING_SEED = 100
PROBE = 64
SEARCHED = "pretrain + TAWT"
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
RATIOS = (1, 2, 4, 8, 16)
PAPER_RATIO = {
    "normalized-joint": (38.55, 36.53, 42.37, 54.18, 62.08),
    "normalized-joint + TAWT": (42.31, 42.13, 51.64, 59.08, 63.46),
}
"""Table 3, for ratios 1 to 16; the paper goes on to 128, for which the public sets have too few sentences."""
SIZES = (500, 1000, 1500)
PAPER_SIZE = {"normalized-joint": (54.18, 64.69), "normalized-joint + TAWT": (59.08, 66.00)}
"""Table 4, for 500 and 1,000 target sentences at ratio 8; the public sets end at 12,543 sentences."""


class TaggingExperiment(Experiment):
    """What the experiments on tagging have in common."""

    paper: ClassVar[Paper] = TAWT
    quick_seeds: ClassVar[int] = 1

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.training: dict[str, Any] = dict(QUICK_TRAINING if options.quick else TRAINING)
        self.source = QUICK_SOURCE if options.quick else SOURCE
        self.encoder = options.encoder or (QUICK_ENCODER if options.quick else {"name": "minilm", "max_length": 128})

    def settings(self) -> dict[str, Any]:
        return {"encoder": self.encoder, "training": self.training, "source": self.source, "labels": LABELS}

    def tasks(
        self,
        target: str,
        seed: int,
        *,
        count: int | None = None,
        source: int | None = None,
        sources: Sequence[str] | None = None,
    ) -> tuple[Task, list[Task]]:
        """The target with few sentences and as many for dev; sources without any of its sentences."""
        data, labels = self.options.data, count or LABELS[target]
        target_task = few(tagging_task(data, target), labels, seed, dev=labels)
        names = sources or [name for name in TAGGING if name != target]
        others = [few(without(tagging_task(data, name), target_task), source or self.source, seed) for name in names]
        return target_task, others

    def fit(
        self,
        method: str,
        target: Task,
        sources: Sequence[Task],
        seed: int,
        *,
        sharpness: float = 1.0,
        weights: Mapping[str, float] | None = None,
        training: Mapping[str, Any] | None = None,
    ) -> Row:
        """One run of a method of the table."""
        paradigm, _, weighted = method.partition(" + ")
        weighting: dict[str, Any] | None = None
        if weights is not None:
            weighting = {"name": "fixed", "weights": dict(weights)}
        elif weighted:
            weighting = {"name": "tawt", "every": self._epoch(sources), "probe": PROBE, "sharpness": sharpness}
        learner = Learner(
            self.encoder,
            paradigm=paradigm,
            weighting=weighting,
            training={**self.training, **(training or {})},
            seed=seed,
            progress=False,
        )
        run = learner.fit(target, [] if paradigm == "single" else sources)
        scores, metric = run.scores[target.name], chosen_metric(target.spec).name
        return {
            "score": 100 * scores["test"][metric],
            "dev": 100 * scores["dev"][metric],
            "metric": metric,
            "weights": run.weights,
        }

    def _epoch(self, sources: Sequence[Task]) -> int:
        """Updates of an epoch, from one inspection of gradients by TAWT to the next."""
        return max(1, -(-max(len(task.train) for task in sources) // int(self.training["batch_size"])))

    def updates(self, sources: Sequence[Task]) -> int:
        """Of a joint run."""
        return int(self.training["epochs"]) * self._epoch(sources)


class Table1(TaggingExperiment):
    """Four targets, four paradigms, plain and weighted."""

    name: ClassVar[str] = "tawt-table1"
    title: ClassVar[str] = "TAWT, Table 1"
    long: ClassVar[str] = "single, long"

    @property
    def methods(self) -> list[str]:
        return ["single", self.long, *(m for p in PARADIGMS for m in (p, f"{p} + TAWT"))]

    def cells(self) -> list[RunKey]:
        targets = ("NER",) if self.options.quick else TAGGING
        keys = []
        for target in targets:
            for sharpness in SHARPNESS:
                keys.append(RunKey.of(target=target, method=SEARCHED, sharpness=sharpness, seed=CHOOSING_SEED))
        methods = [method for method in self.methods if method != SEARCHED]
        for seed in self.used_seeds:
            for target in targets:
                for method in methods:
                    keys.append(RunKey.of(target=target, method=method, sharpness=1.0, seed=seed))
        return keys

    def follow_up(self, rows: Rows) -> list[RunKey]:
        return [
            RunKey.of(target=target, method=SEARCHED, sharpness=best_sharpness(rows, target), seed=seed)
            for seed in self.used_seeds
            for target in rows.values("target")
        ]

    def run(self, cell: RunKey) -> Row:
        target, sources = self.tasks(cell["target"], cell["seed"])
        if cell["method"] == self.long:
            return self.fit("single", target, sources, cell["seed"], training={"updates": self.updates(sources)})
        return self.fit(cell["method"], target, sources, cell["seed"], sharpness=cell["sharpness"])

    def tables(self, rows: Rows) -> list[Table]:
        targets = [target for target in TAGGING if target in rows.values("target")]
        lines: list[list[Any]] = []
        for method in self.methods:
            means = [mean_of(chosen(rows, target, method).values()) for target in targets]
            lines.append([method, *means, average(means)])
            if method in PAPER:
                figures = [PAPER[method][TAGGING.index(target)] for target in targets]
                lines.append([f"{method} (paper)", *figures, average([Estimate(value, None, 1) for value in figures])])
        weights: list[list[Any]] = []
        for target in targets:
            for method in self.methods:
                if method.endswith("TAWT"):
                    final = [_weight(rows, target, method, task) for task in TAGGING]
                    weights.append([f"{method}, target {target}", *final])
        return [
            Table(
                "Test scores",
                ["method", *targets, "average"],
                lines,
                "Accuracy of parts of speech, span F1 of chunks and entities, F1 of predicates.",
            ),
            Table("Final weights", ["run", *TAGGING], weights, "The paper's are in Table 5."),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        gains = {f"{p}, {target}": by_seed.values() for (p, target), by_seed in weighting_gains(rows).items()}
        return [Figure.of_values("Gain of weighting", gains, y="points over plain training", zero=True)]

    def claims(self, rows: Rows) -> list[Claim]:
        gains_by_cell = weighting_gains(rows)
        is_better = [mean > 0 for mean in by_target_mean(gains_by_cell)]
        by_target = [by_seed_mean(_of_target(gains_by_cell, target)) for target in TAGGING]
        claims = [
            Claim.of_count("Weighted training beats plain training in most cells", "11 of 12", is_better),
            Claim.of_gains("Mean gain of weighting", f"+{PAPER_GAIN}", by_seed_mean(gains_by_cell), over="seeds"),
            Claim.of_gains(
                "Mean gain of weighting, on targets like these",
                f"+{PAPER_GAIN}",
                [statistics.fmean(gains) for gains in by_target if gains],
                over="targets",
            ),
        ]
        for paradigm in PARADIGMS:
            gains = by_seed_mean({key: values for key, values in gains_by_cell.items() if key[0] == paradigm})
            paper = statistics.fmean(PAPER[f"{paradigm} + TAWT"]) - statistics.fmean(PAPER[paradigm])
            claims.append(Claim.of_gains(f"Weighting helps in {paradigm}", f"{paper:+.2f}", gains, over="seeds"))
        orders = [
            ("Pre-training beats single-task training", "pretrain", "single"),
            ("Normalized joint training beats joint training", "normalized-joint", "joint"),
            ("Normalized joint training beats the target alone with as many updates", "normalized-joint", self.long),
        ]
        for text, better, worse in orders:
            gains = by_seed_mean({t: differences(chosen(rows, t, better), chosen(rows, t, worse)) for t in TAGGING})
            is_in_paper = better in PAPER and worse in PAPER
            paper_text = (
                f"{statistics.fmean(PAPER[better]) - statistics.fmean(PAPER[worse]):+.2f}" if is_in_paper else "–"
            )
            claims.append(Claim.of_gains(text, paper_text, gains, over="seeds"))
        return claims


def weighting_gains(rows: Rows) -> dict[tuple[str, str], dict[int, float]]:
    """By paradigm and target, what weights add, by seed; without those that have not been run."""
    by_paradigm_and_target = {
        (paradigm, target): differences(chosen(rows, target, f"{paradigm} + TAWT"), chosen(rows, target, paradigm))
        for paradigm in PARADIGMS
        for target in TAGGING
    }
    return {key: gains for key, gains in by_paradigm_and_target.items() if gains}


def _of_target(gains: Mapping[tuple[str, str], dict[int, float]], target: str) -> dict[str, dict[int, float]]:
    """By paradigm, the gains of one target."""
    return {paradigm: by_seed for (paradigm, other), by_seed in gains.items() if other == target}


def best_sharpness(rows: Rows, target: str) -> float:
    """The one with the best dev score in the runs that are there to choose; the least of those that are level."""
    trials = rows.of(target=target, method=SEARCHED, seed=CHOOSING_SEED)
    options = sorted(trials.values("sharpness"))
    return max(options, key=lambda option: trials.by_seed("dev", sharpness=option)[CHOOSING_SEED])


def chosen(rows: Rows, target: str, method: str) -> dict[int, float]:
    """Test scores by seed, without the runs that chose."""
    scores = rows.by_seed(target=target, method=method, sharpness=_sharpness(rows, target, method))
    return {seed: score for seed, score in scores.items() if seed != CHOOSING_SEED}


def _sharpness(rows: Rows, target: str, method: str) -> float:
    has_choice = bool(rows.of(target=target, method=SEARCHED, seed=CHOOSING_SEED).rows)
    return best_sharpness(rows, target) if method == SEARCHED and has_choice else 1.0


def average(means: Sequence[Estimate | None]) -> float | None:
    """Over all four targets; None where one is missing."""
    values = [mean.mean for mean in means if mean is not None]
    return statistics.fmean(values) if len(values) == len(TAGGING) else None


def _weight(rows: Rows, target: str, method: str, task: str) -> Estimate | None:
    runs = rows.of(target=target, method=method, sharpness=_sharpness(rows, target, method))
    weights = runs.by_seed(lambda row: row["weights"].get(task))
    return mean_of((weight for seed, weight in weights.items() if seed != CHOOSING_SEED), 3)


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
        methods = ("normalized-joint", "normalized-joint + TAWT")
        return [
            RunKey.of(method=method, value=value, seed=seed)
            for seed in self.used_seeds
            for value in self.values
            for method in methods
        ]

    def run(self, cell: RunKey) -> Row:
        count, source = self.sizes(cell["value"])
        target, sources = self.tasks("NER", cell["seed"], count=count, source=source, sources=("PoS", "predicates"))
        return self.fit(cell["method"], target, sources, cell["seed"])

    def tables(self, rows: Rows) -> list[Table]:
        lines: list[list[Any]] = []
        for method, figures in self.paper_figures.items():
            lines.append([method, *(rows.mean(method=method, value=value) for value in self.values)])
            if not self.options.quick:  # which has other sizes than the paper
                missing = [None] * (len(self.values) - len(figures))
                lines.append([f"{method} (paper)", *figures, *missing])
        return [Table(f"Span F1 of entities by {self.varied}", ["method", *map(str, self.values)], lines)]

    def figures(self, rows: Rows) -> list[Figure]:
        ours = list(measured(rows, "method", "value"))
        paper: list[tuple[str, float, float]] = []
        if ours and not self.options.quick:  # which has other sizes than the paper
            for method, scores in self.paper_figures.items():
                for value, score in zip(self.values, scores, strict=False):
                    paper.append((f"{method} (paper)", value, score))
        named = {"x": self.varied, "y": "span F1 of entities", "dashed": list(dict.fromkeys(one[0] for one in paper))}
        return [Figure.of_means(f"Span F1 by {self.varied}", [*ours, *paper], x_log=True, **named)]

    def claims(self, rows: Rows) -> list[Claim]:
        plain, weighted = self.paper_figures
        gains = {
            v: differences(rows.by_seed(method=weighted, value=v), rows.by_seed(method=plain, value=v))
            for v in self.values
        }
        mean = statistics.fmean(b - a for a, b in zip(*self.paper_figures.values(), strict=True))
        by_seed = by_seed_mean(gains)
        is_better = [statistics.fmean(values.values()) > 0 for values in gains.values() if values]
        return [
            Claim.of_gains(
                f"Weighting helps at every {self.varied}, on average", f"{mean:+.2f}", by_seed, over="seeds"
            ),
            Claim.of_count(f"Weighting helps at each {self.varied}", "all", is_better),
        ]


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
