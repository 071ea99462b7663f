"""MetaXT's main experiment: two classes of sentiment help five, with k labels of the target (Sharma et al. 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.papers import METAXT, Paper
from crosstask.runs.events import Row
from crosstask.runs.run import Run
from crosstask.training.paradigms import PARADIGMS
from crosstask_papers.data import few, path_of, sentence_task, stars_task, without
from crosstask_papers.experiment import (
    Claim,
    Estimate,
    Experiment,
    Figure,
    Rows,
    RunKey,
    Table,
    by_seed_mean,
    differences,
    paired,
)
from crosstask_papers.figures import label_map_figure, mean_label_map, measured
from crosstask_papers.metaxt.methods import (
    ADAPTER_FUSION,
    EVERY_STEP,
    IMPROVED,
    METHODS,
    MULTI_TASK,
    PUBLISHED,
    QUICK_CHOICES,
    SETFIT,
    STACKING,
    TRIALS,
)
from crosstask_papers.metaxt.setfit import setfit_style

SIZES = (20, 50, 100, 200, 500)
QUICK_SIZES = (20, 100)
YELP = {  # Table 2, accuracy by k
    "multi-task, by size": (21.8, 31.1, 37.7, 43.8, 47.7),
    "MetaXT, as published": (31.4, 38.0, 42.0, 43.9, 48.1),
    "XT": (20.6, 20.1, 22.5, 22.9, 38.5),
}
AMAZON = {  # Table 3
    "multi-task, by size": (23.8, 33.6, 34.4, 45.3, 49.9),
    "MetaXT, as published": (35.9, 40.6, 42.4, 47.1, 50.0),
    "XT": (20.5, 19.8, 26.4, 23.5, 37.6),
}
MASS_BY_CHANCE = 2 / 5
"""What two of five labels get of a soft label that says nothing."""
WANTED_GAIN = 5.0
"""Points over multi-task training that the paper's gains at k = 20 and 50 stay above on both data sets."""

BUDGET = {"updates": 400, "batch_size": 16}
QUICK_BUDGET = {"updates": 200, "batch_size": 16}
ENCODER = {"name": "minilm", "max_length": 64}
QUICK_ENCODER = {**ENCODER, "pooling": "mean", "freeze": True, "hidden": 256}
YELP_SOURCE, YELP_TEST = 8000, 2000
"""Reviews of the original data that are used as source, and that measure."""

TRIAL_SIZES, TRIAL_SEEDS, JUDGES = (20, 100), range(100, 104), 1000
"""Trials have labels of their own and are judged by other texts of the training set; the test set they never see."""


class MetaXTSentiment(Experiment):
    """Tables 2 and 3 and Figures 3, 4 and 7 of the paper, with the baselines that a practitioner would try."""

    name: ClassVar[str] = "metaxt-sentiment"
    title: ClassVar[str] = "MetaXT: polarity helps five levels of sentiment"
    paper: ClassVar[Paper] = METAXT

    def settings(self) -> dict[str, Any]:
        """Budget and encoder."""
        quick = self.options.quick
        return {
            **(QUICK_BUDGET if quick else BUDGET),
            "encoder": self.options.encoder or (QUICK_ENCODER if quick else ENCODER),
            "original": has_yelp(self.options.data),
        }

    @property
    def _sizes(self) -> Sequence[int]:
        return QUICK_SIZES if self.options.quick else SIZES

    def cells(self) -> list[RunKey]:
        """The trials that choose options, then the methods that have none."""
        if self.options.quick:  # where the encoder is frozen, some have nothing to do
            methods = [name for name in METHODS if name != ADAPTER_FUSION]
            return [*self._measured(methods), *self._chosen(QUICK_CHOICES)]
        trials = [
            RunKey.of(trial=name, options=options, k=k, seed=seed)
            for seed in TRIAL_SEEDS
            for k in TRIAL_SIZES
            for name, trials in TRIALS.items()
            for options in trials
        ]
        return [*trials, *self._measured([*METHODS, SETFIT])]

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """The other methods, with the options that the trials have chosen."""
        return self._chosen(chosen_options(rows))

    def _measured(self, methods: Sequence[str]) -> list[RunKey]:
        return [
            RunKey.of(method=method, k=k, seed=seed)
            for seed in self.used_seeds
            for k in self._sizes
            for method in methods
        ]

    def _chosen(self, choices: Mapping[str, str]) -> list[RunKey]:
        return [
            RunKey.of(method=method, options=options, k=k, seed=seed)
            for seed in self.used_seeds
            for k in self._sizes
            for method, options in choices.items()
        ]

    def run(self, cell: RunKey) -> Row:
        """One method or trial with k labels."""
        values: dict[str, Any] = dict(cell.values)
        k, seed = cell["k"], cell["seed"]
        source, stars = polarity_and_stars(self.options.data)
        target = few(stars, k, seed, dev=k)
        if "trial" in values:
            target = judged_by_others(target, stars, seed)
        source = without(source, target)
        name = values.get("trial") or cell["method"]
        settings = self.settings()
        training = {name: settings[name] for name in BUDGET}
        if name == SETFIT:
            return {"score": 100 * setfit_style(target, settings["encoder"], seed=seed, **training)}
        options = TRIALS[name][cell["options"]] if name in TRIALS else METHODS[name]
        learner = Learner(settings["encoder"], seed=seed, progress=False, **training, **_named(options, source, target))
        run = learner.fit(target, [source] if PARADIGMS[options["paradigm"]].uses_sources else [])
        return _row(run, target, source.name)

    def tables(self, rows: Rows) -> list[Table]:
        """Accuracy by method and k; the paper's; the label maps; the trials."""
        sizes = list(self._sizes)
        head = ["method", *(f"k = {k}" for k in sizes)]
        ours = [[name, *(rows.mean(method=name, k=k) for k in sizes)] for name in rows.values("method")]
        published: list[list[str | int | float | Estimate | None]] = [
            [f"{name} ({data})", *(figures[SIZES.index(k)] for k in sizes)]
            for data, table in (("Yelp", YELP), ("Amazon", AMAZON))
            for name, figures in table.items()
        ]
        tables = [
            Table("Accuracy", head, ours, "Mean and standard deviation over seeds, whole test set."),
            Table("Accuracy in the paper (Tables 2 and 3)", head, published),
            *(_map_table(rows, method) for method in (PUBLISHED, IMPROVED)),
        ]
        if rows.values("trial"):
            tables.append(_trial_table(rows))
        return tables

    def figures(self, rows: Rows) -> list[Figure]:
        by_size = {"x": "k, labels of the target", "y": "accuracy", "x_log": True}
        maps = [label_map_figure(f"Label map of {name}", rows.of(method=name)) for name in (PUBLISHED, IMPROVED)]
        return [Figure.of_means("Accuracy by k", measured(rows, "method", "k"), **by_size), *maps]

    def claims(self, rows: Rows) -> list[Claim]:
        """The paper's, and what an improved version should reach."""
        sizes = list(self._sizes)

        def gains(better: str, worse: str, k: int) -> list[float]:
            return paired(rows.by_seed(method=better, k=k), rows.by_seed(method=worse, k=k))

        by_size = {k: gains(PUBLISHED, MULTI_TASK, k) for k in sizes}
        measured = [gains for gains in by_size.values() if gains]
        claims = [
            Claim.of_count(
                "MetaXT is better than multi-task training at every k",
                f"{len(SIZES)} of {len(SIZES)}",
                [sum(gains) > 0 for gains in measured],
            ),
            *(
                Claim.of_gains(
                    f"MetaXT is better than {other}, mean over k",
                    paper,
                    _mean_over_sizes(rows, PUBLISHED, other, sizes),
                    over="seeds",
                )
                for other, paper in ((MULTI_TASK, _published_mean(MULTI_TASK, sizes)), (EVERY_STEP, "–"))
            ),
            *(
                _by_at_least(f"MetaXT gains {WANTED_GAIN:g} points over multi-task training at k = {k}", by_size[k], k)
                for k in sizes
                if k <= 50
            ),
            Claim.of_gains(
                f"The smaller k, the larger the gain: that at k = {sizes[0]} over that at k = {sizes[-1]}",
                _published_gain(sizes[0], sizes[-1]),
                _differences(rows, (PUBLISHED, MULTI_TASK), sizes[0], sizes[-1]),
                over="seeds",
            ),
            Claim.of_gains(
                "Without the meta level (XT) it collapses: MetaXT over XT, mean over k",
                _published_mean("XT", sizes),
                _mean_over_sizes(rows, PUBLISHED, "XT", sizes),
                over="seeds",
            ),
            Claim.of_gains(
                "The label map is sensible: mass on the two labels of the same sign, beyond chance",
                "mostly (Fig. 7)",
                _map_gains(rows, PUBLISHED),
                over="seeds",
            ),
            Claim.of_gains("The same of the improved version", "–", _map_gains(rows, IMPROVED), over="seeds"),
        ]
        for other in (EVERY_STEP, STACKING, SETFIT):
            text = f"The improved version beats {other}, mean over k"
            claims.append(Claim.of_gains(text, "–", _mean_over_sizes(rows, IMPROVED, other, sizes), over="seeds"))
        return claims


def has_yelp(data: Path) -> bool:
    """Whether the paper's own data is there."""
    return (data / "yelp").is_dir()


@cache
def polarity_and_stars(data: Path) -> tuple[Task, Task]:
    """The source and the target with all that there is to draw from."""
    if not has_yelp(data):
        return sentence_task(data, "SST"), stars_task(data)
    train, test = (path_of(data / "yelp", f"{split}.csv") for split in ("train", "test"))
    stars = Task.read("stars", train, False, test, format="csv", text="text", label="stars", empty="drop")
    generator = np.random.default_rng(0)
    measured = stars.test.take(generator.permutation(len(stars.test))[:YELP_TEST].tolist()) if stars.test else None
    # Half of the reviews for each task: a target's review is then no example of the source.
    order = generator.permutation(len(stars.train)).tolist()
    half = stars.train.take(order[: len(order) // 2])
    rest = stars.train.take([position for position in order[len(order) // 2 :] if stars.train.labels[position] != "3"])
    polarity = Task.assemble(
        "polarity",
        rest.take(range(min(len(rest), YELP_SOURCE))),
        dev=False,
        map={"1": "negative", "2": "negative", "4": "positive", "5": "positive"},
    )
    return polarity, Task.assemble("stars", half, dev=False, test=measured, labels=stars.labels)


def _named(options: Mapping[str, Any], source: Task, target: Task) -> dict[str, Any]:
    """Options of the learner; a fraction of the target becomes weights of both tasks."""
    learner_options = dict(options)
    target_share = learner_options.pop("target_share", None)
    if target_share is not None:
        learner_options["weighting"] = {
            "name": "fixed",
            "weights": {target.name: target_share, source.name: 1 - target_share},
        }
    return learner_options


def judged_by_others(target: Task, all_examples: Task, seed: int) -> Task:
    """The target with texts of the training set that it does not use, instead of the test set."""
    known_texts = set(target.train.inputs)
    if target.dev is not None:
        known_texts.update(target.dev.inputs)
    rest = [position for position, text in enumerate(all_examples.train.inputs) if text not in known_texts]
    positions = np.random.default_rng(seed).permutation(rest)[:JUDGES].tolist()
    return replace(target, test=all_examples.train.take(positions))


def _row(run: Run, target: Task, source: str) -> Row:
    """Accuracy on test and dev, and the label map."""
    scores = run.scores[target.name]
    row: Row = {key: 100 * scores[name]["accuracy"] for key, name in (("score", "test"), ("dev", "dev"))}
    if any("label_map" in row for row in run.history):
        row["label_map"] = run.label_map[source]
    return row


def sensible_mass(row: Row) -> float | None:
    """What of the soft labels falls on the two target labels of the same sign, beyond chance, in points.

    >>> spread = {str(label): 0.2 for label in range(5)}
    >>> round(sensible_mass({"label_map": {"-": spread, "+": {**spread, "3": 0.3, "4": 0.3}}}), 2)
    10.0
    """
    if len(row.get("label_map", ())) != 2:
        return None
    negative, positive = (list(shares.values()) for shares in row["label_map"].values())
    return 100 * ((sum(negative[:2]) + sum(positive[-2:])) / 2 - MASS_BY_CHANCE)


def _map_gains(rows: Rows, method: str) -> list[float]:
    """Seed by seed, the mean over k."""
    sizes = rows.of(method=method).values("k")
    return by_seed_mean({k: rows.by_seed(sensible_mass, method=method, k=k) for k in sizes})


def _mean_over_sizes(rows: Rows, better: str, worse: str, sizes: Sequence[int]) -> list[float]:
    by_size = {}
    for k in sizes:
        by_size[k] = differences(rows.by_seed(method=better, k=k), rows.by_seed(method=worse, k=k))
    return by_seed_mean(by_size)


def _differences(rows: Rows, methods: tuple[str, str], small: int, large: int) -> list[float]:
    """By how much the gain of one method over another is larger at one k than at another, seed by seed."""
    gains = []
    for k in (small, large):
        better, worse = (rows.by_seed(method=method, k=k) for method in methods)
        gains.append(differences(better, worse))
    return paired(gains[0], gains[1])


def _published_gain(small: int, large: int) -> str:
    gains = []
    for table in (YELP, AMAZON):
        gain = {k: table[PUBLISHED][SIZES.index(k)] - table[MULTI_TASK][SIZES.index(k)] for k in (small, large)}
        gains.append(f"{gain[small] - gain[large]:+.1f}")
    return " and ".join(gains)


def _published_mean(other: str, sizes: Sequence[int]) -> str:
    """What the paper's MetaXT has over another method, mean over k, on both data sets."""
    columns = [SIZES.index(k) for k in sizes]
    return " and ".join(f"{fmean(t[PUBLISHED][i] - t[other][i] for i in columns):+.1f}" for t in (YELP, AMAZON))


def _by_at_least(text: str, gains: Sequence[float], k: int) -> Claim:
    """Holds where the mean is larger than that beyond chance."""
    column = SIZES.index(k)
    paper = " and ".join(f"{t[PUBLISHED][column] - t[MULTI_TASK][column]:+.1f}" for t in (YELP, AMAZON))
    return Claim.of_gains(text, paper, gains, over="seeds", at_least=WANTED_GAIN)


def _map_table(rows: Rows, method: str) -> Table:
    """Mean soft label by source label, over all runs of a method."""
    label_map = mean_label_map(rows.of(method=method))
    labels = next(iter(label_map.values()), {})
    lines: list[list[Any]] = [[source, *(100 * s for s in shares.values())] for source, shares in label_map.items()]
    note = "Mean soft label in points, over all runs."
    return Table(f"Label map of {method}", ["source label", *labels], lines, note)


def _trial_table(rows: Rows) -> Table:
    """Each method's options, the chosen ones marked."""
    choices = chosen_options(rows)
    lines: list[list[str | int | float | Estimate | None]] = [
        [
            name,
            f"{options} (chosen)" if choices.get(name) == options else options,
            *(rows.mean(trial=name, options=options, k=k) for k in TRIAL_SIZES),
            mean,
        ]
        for name in TRIALS
        for options, mean in trial_means(rows, name).items()
    ]
    note = f"Accuracy on {JUDGES:,} training texts that no run had seen, of seeds that no other table shows."
    return Table("Trials", ["method", "options", *(f"k = {k}" for k in TRIAL_SIZES), "mean"], lines, note)


def chosen_options(rows: Rows) -> dict[str, str]:
    """By method, the options with the best mean over all trials."""
    best = {}
    for name in TRIALS:
        means = trial_means(rows, name)
        if means:
            best[name] = max(means, key=means.__getitem__)
    return best


def trial_means(rows: Rows, name: str) -> dict[str, float]:
    """The mean score of each of a method's options, over the cells that all of them have."""
    of = rows.of(trial=name)
    dev_scores = {
        options: {(row["cell"]["k"], row["cell"]["seed"]): row["score"] for row in of.of(options=options).rows}
        for options in of.values("options")
    }
    common = set.intersection(*(set(scores) for scores in dev_scores.values())) if dev_scores else set()
    return {options: fmean(scores[pair] for pair in common) for options, scores in dev_scores.items()} if common else {}
