"""MetaXT's main experiment: two classes of sentiment help five, with k labels of the target (Sharma et al. 2021)."""

from collections.abc import Mapping, Sequence
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
    Experiment,
    Figure,
    Rows,
    RunKey,
    Table,
    TableItem,
    by_seed_mean,
    differences,
    paired,
)
from crosstask_papers.figures import label_map_figure, mean_label_map, measured
from crosstask_papers.metaxt.choices import NUM_JUDGES, Choice, choose, judged_by_others, trial_keys, trial_means
from crosstask_papers.metaxt.methods import (
    ADAPTER_FUSION,
    BY_SIZE,
    CONTROLS,
    EQUAL,
    FROZEN,
    IMPROVED,
    METHODS,
    OFF,
    PROBE,
    PUBLISHED,
    READINGS,
    SETFIT,
    STACKING,
    WHOLE_BATCH,
    XT,
    options_of,
)
from crosstask_papers.metaxt.parts import gains_over, parts_table
from crosstask_papers.metaxt.setfit import setfit_style

SIZES = (20, 50, 100, 200, 500)
QUICK_SIZES = (20, 100)
MULTI_TASK = "multi-task"
YELP = {  # Table 2, accuracy by k
    MULTI_TASK: (21.8, 31.1, 37.7, 43.8, 47.7),
    PUBLISHED: (31.4, 38.0, 42.0, 43.9, 48.1),
    XT: (20.6, 20.1, 22.5, 22.9, 38.5),
}
AMAZON = {  # Table 3
    MULTI_TASK: (23.8, 33.6, 34.4, 45.3, 49.9),
    PUBLISHED: (35.9, 40.6, 42.4, 47.1, 50.0),
    XT: (20.5, 19.8, 26.4, 23.5, 37.6),
}
MASS_BY_CHANCE = 2 / 5
"""What two of five labels get of a soft label that says nothing."""
WANTED_GAIN = 5.0
"""Points over multi-task training that the paper's gains at k = 20 and 50 stay above on both data sets."""

BUDGET = {"updates": 400, "batch_size": 10}
"""The paper's batch: ten examples of a task, of the target's for MetaXT five and five."""
QUICK_BUDGET = {"updates": 200, "batch_size": 10}
ENCODER = {"name": "minilm", "max_length": 64}
QUICK_ENCODER = {**ENCODER, "pooling": "mean", "freeze": True, "hidden": 256}
YELP_SOURCE, YELP_TEST = 8000, 2000
"""Reviews of the original data that are used as source, and that measure."""

RATES = (2e-5, 5e-5, 2e-4, 1e-3)
QUICK_CHOICE = Choice("network 1e-3", 1e-3)
"""Of the published version in quick runs, which have no time for trials; all have its rate."""
TRIAL_SETTINGS = ({"k": 20}, {"k": 100})
TRIED = {**{name: list(options) for name, options in METHODS.items() if name != PROBE}, SETFIT: [""]}
"""Methods that have a learning rate, each with the names of its options."""
FEW_SEEDS = 5
FEW_SEEDS_METHODS = (WHOLE_BATCH, ADAPTER_FUSION)
"""Dear ones that no claim is about."""
ORDER = (EQUAL, BY_SIZE, PUBLISHED, FROZEN, OFF, WHOLE_BATCH, *METHODS, SETFIT)
"""Of the methods in tables; later repetitions do not count."""


class MetaXTSentiment(Experiment):
    """Tables 2 and 3 and Figures 3, 4 and 7 of the paper, with the baselines that a practitioner would try."""

    name: ClassVar[str] = "metaxt-sentiment"
    title: ClassVar[str] = "MetaXT: polarity helps five levels of sentiment"
    paper: ClassVar[Paper] = METAXT
    seeds: ClassVar[int] = 10

    def settings(self) -> dict[str, Any]:
        """Budget, encoder and the rates to choose from."""
        quick = self.options.quick
        return {
            **(QUICK_BUDGET if quick else BUDGET),
            "encoder": self.options.encoder or (QUICK_ENCODER if quick else ENCODER),
            "rates": [QUICK_CHOICE.rate] if quick else list(RATES),
            "original": has_yelp(self.options.data),
        }

    @property
    def _sizes(self) -> Sequence[int]:
        return QUICK_SIZES if self.options.quick else SIZES

    def cells(self) -> list[RunKey]:
        """The trials that choose options and rates, and the one method that has none."""
        probes = [RunKey.of(method=PROBE, k=k, seed=seed) for seed in self.used_seeds for k in self._sizes]
        if not self.options.quick:
            return [*trial_keys(TRIED, TRIAL_SETTINGS, RATES), *probes]
        choices = {}
        for name in TRIED:
            if name not in (ADAPTER_FUSION, SETFIT):  # which have nothing to do where the encoder is frozen
                choices[name] = Choice(next(iter(METHODS[name])), QUICK_CHOICE.rate)
        return [*self._measured({**choices, PUBLISHED: QUICK_CHOICE}), *probes]

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """All other methods, with the options and rates that the trials have chosen."""
        return [] if self.options.quick else self._measured(chosen(rows))

    def _measured(self, choices: Mapping[str, Choice]) -> list[RunKey]:
        """Seed by seed; a control has the options and the rate of the published version."""
        all_choices = dict(choices)
        if PUBLISHED in choices:
            all_choices |= dict.fromkeys(CONTROLS, choices[PUBLISHED])
        keys: list[RunKey] = []
        for seed in self.used_seeds:
            for k in self._sizes:
                for method in dict.fromkeys(ORDER):
                    is_wanted = seed < FEW_SEEDS or method not in FEW_SEEDS_METHODS
                    if method in all_choices and is_wanted:
                        options, rate = all_choices[method]
                        keys.append(RunKey.of(method=method, options=options, rate=rate, k=k, seed=seed))
        return keys

    def run(self, cell: RunKey) -> Row:
        """One method or trial with k labels."""
        values: dict[str, Any] = dict(cell.values)
        k, seed = cell["k"], cell["seed"]
        source, stars = polarity_and_stars(self.options.data)
        target = few(stars, k, seed, dev=k)
        if "trial" in values:
            target = judged_by_others(target, stars, seed)
        source = without(source, target)
        method = values.get("trial") or cell["method"]
        settings = self.settings()
        training = {name: settings[name] for name in BUDGET}
        row: Row
        if method == SETFIT:
            accuracy = setfit_style(target, settings["encoder"], seed=seed, rate=cell["rate"], **training)
            row = {"score": 100 * accuracy}
        else:
            options = options_of(METHODS, method, values.get("options", ""))
            training["learning_rate"] = values.get("rate")
            learner = Learner(settings["encoder"], seed=seed, progress=False, **training, **options)
            run = learner.fit(target, [source] if PARADIGMS[options["paradigm"]].uses_sources else [])
            row = _row(run, target.name, source.name)
        if "trial" in values:  # the examples that judged it are no test set
            return {"dev": row["score"]}
        return row

    def tables(self, rows: Rows) -> list[Table]:
        """Accuracy by method and k; the paper's; what each part is worth; the label maps; the trials."""
        sizes = list(self._sizes)
        head = ["method", *(f"k = {k}" for k in sizes)]
        methods = [name for name in dict.fromkeys(ORDER) if name in rows.values("method")]
        ours = [[name, *(rows.mean(method=name, k=k) for k in sizes)] for name in methods]
        published: list[list[TableItem]] = [
            [f"{name} ({data})", *(figures[SIZES.index(k)] for k in sizes)]
            for data, table in (("Yelp", YELP), ("Amazon", AMAZON))
            for name, figures in table.items()
        ]
        tables = [
            Table("Accuracy", head, ours, "Mean and standard deviation over seeds, whole test set."),
            Table("Accuracy in the paper (Tables 2 and 3)", head, published),
            parts_table(rows, "What each part of MetaXT is worth", sizes),
            *(_map_table(rows, method) for method in (PUBLISHED, FROZEN, IMPROVED)),
        ]
        if rows.values("trial"):
            tables.append(_trial_table(rows))
        return tables

    def figures(self, rows: Rows) -> list[Figure]:
        by_size = {"x": "k, labels of the target", "y": "accuracy", "x_log": True}
        maps = [label_map_figure(f"Label map of {name}", rows.of(method=name)) for name in (PUBLISHED, IMPROVED)]
        return [Figure.of_means("Accuracy by k", measured(rows, "method", "k"), **by_size), *maps]

    def claims(self, rows: Rows) -> list[Claim]:
        """The paper's, against both readings of its baseline; what learning adds; what our version should reach."""
        sizes = list(self._sizes)
        claims: list[Claim] = []
        for baseline, reading in READINGS.items():
            claims += _claims_against(rows, baseline, reading, sizes)
        claims += [
            Claim.of_gains(
                "Without the meta level (XT) it collapses: MetaXT over XT, mean over k",
                _published_means(PUBLISHED, XT, sizes),
                gains_over(rows, PUBLISHED, XT, sizes),
                over="seeds",
            ),
            Claim.of_gains(
                "The label network learns something useful: MetaXT over the same with the network at its start",
                "–",
                gains_over(rows, PUBLISHED, FROZEN, sizes),
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
        for other in (EQUAL, STACKING, SETFIT):
            text = f"The improved version beats {other}, mean over k"
            claims.append(Claim.of_gains(text, "–", gains_over(rows, IMPROVED, other, sizes), over="seeds"))
        return claims


def _claims_against(rows: Rows, baseline: str, reading: str, sizes: Sequence[int]) -> list[Claim]:
    """What the paper says of MetaXT and multi-task training, for one reading of the latter."""
    by_size = {k: differences(rows.by_seed(method=PUBLISHED, k=k), rows.by_seed(method=baseline, k=k)) for k in sizes}
    claims = [
        Claim.of_gains(
            f"MetaXT is better than multi-task training ({reading}), mean over k",
            _published_means(PUBLISHED, MULTI_TASK, sizes),
            by_seed_mean(by_size),
            over="seeds",
        ),
        Claim.of_count(
            f"MetaXT is better than multi-task training ({reading}) at every k",
            f"in {len(SIZES)} of {len(SIZES)}",
            [fmean(gains.values()) > 0 for gains in by_size.values() if gains],
        ),
    ]
    for k in sizes:
        if k <= 50:
            claims.append(
                Claim.of_gains(
                    f"MetaXT gains {WANTED_GAIN:g} points over multi-task training ({reading}) at k = {k}",
                    _published_means(PUBLISHED, MULTI_TASK, [k]),
                    list(by_size[k].values()),
                    over="seeds",
                    at_least=WANTED_GAIN,
                )
            )
    small, large = sizes[0], sizes[-1]
    claims.append(
        Claim.of_gains(
            f"The smaller k, the larger the gain ({reading}): that at k = {small} over that at k = {large}",
            _published_decline(small, large),
            paired(by_size[small], by_size[large]),
            over="seeds",
        )
    )
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


def _row(run: Run, target: str, source: str) -> Row:
    """Accuracy on test and dev, and the label map."""
    scores = run.scores[target]
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


def _published_means(better: str, worse: str, sizes: Sequence[int]) -> str:
    """What one method has over another in the paper's two tables, mean over k."""
    columns = [SIZES.index(k) for k in sizes]
    return " and ".join(
        f"{fmean(table[better][i] - table[worse][i] for i in columns):+.1f}" for table in (YELP, AMAZON)
    )


def _published_decline(small: int, large: int) -> str:
    gains = []
    for table in (YELP, AMAZON):
        gain = {k: table[PUBLISHED][SIZES.index(k)] - table[MULTI_TASK][SIZES.index(k)] for k in (small, large)}
        gains.append(f"{gain[small] - gain[large]:+.1f}")
    return " and ".join(gains)


def _map_table(rows: Rows, method: str) -> Table:
    """Mean soft label by source label, over all runs of a method."""
    label_map = mean_label_map(rows.of(method=method))
    labels = next(iter(label_map.values()), {})
    lines: list[list[Any]] = [[source, *(100 * s for s in shares.values())] for source, shares in label_map.items()]
    note = "Mean soft label in points, over all runs."
    return Table(f"Label map of {method}", ["source label", *labels], lines, note)


def chosen(rows: Rows) -> dict[str, Choice]:
    """By method, what its trials have chosen."""
    choices = {}
    for name, options in TRIED.items():
        choice = choose(rows, name, options, TRIAL_SETTINGS, RATES)
        if choice is not None:
            choices[name] = choice
    return choices


def _trial_table(rows: Rows) -> Table:
    """Each method's options by learning rate, the chosen one marked."""
    choices = chosen(rows)
    lines: list[list[TableItem]] = []
    for name, all_options in TRIED.items():
        means = trial_means(rows, name, all_options, TRIAL_SETTINGS, RATES)
        for options in all_options:
            line: list[TableItem] = [name, options]
            for rate in RATES:
                mean = means.get(Choice(options, rate))
                is_chosen = choices.get(name) == (options, rate)
                line.append(f"{mean:.2f} (chosen)" if is_chosen else mean)
            lines.append(line)
    sizes = " and ".join(str(setting["k"]) for setting in TRIAL_SETTINGS)
    note = (
        f"Accuracy on {NUM_JUDGES:,} training texts that no run had seen, mean over k = {sizes}, of a seed that no "
        "other table shows. The paper gives no learning rate."
    )
    return Table("Trials", ["method", "options", *(f"rate {rate:g}" for rate in RATES)], lines, note)
