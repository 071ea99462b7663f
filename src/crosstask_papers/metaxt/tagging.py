"""MetaXT on words: parts of speech help multiword expressions, coarse entities fine ones (Sharma et al. 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from crosstask.data.overlap import positions_outside
from crosstask.data.subsets import covering_subset
from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.papers import METAXT, Paper
from crosstask.runs.events import Row
from crosstask.training.paradigms import PARADIGMS
from crosstask_papers.data import EWT, path_of, without
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, TableItem
from crosstask_papers.figures import label_map_figure, mean_label_map, measured
from crosstask_papers.metaxt.choices import (
    NUM_JUDGES,
    Choice,
    Setting,
    choose,
    judged_by_others,
    trial_keys,
    trial_means,
)
from crosstask_papers.metaxt.methods import (
    BY_SIZE,
    EQUAL,
    FROZEN,
    IMPROVED,
    IMPROVED_LABELS,
    OFF,
    PAPER_LABELS,
    PUBLISHED,
    READINGS,
    SINGLE,
    STACKED,
    options_of,
    transferred,
)
from crosstask_papers.metaxt.parts import gains_over, parts_table

STREUSLE = "tagging/streusle/streusle.ud"
GERMEVAL = "tagging/germeval2014/germ"
EXPRESSIONS, ENTITIES = "PoS to multiword expressions", "coarse to fine entities"
PAIRS = (EXPRESSIONS, ENTITIES)
SIZES, QUICK_SIZES = (20, 100, 500), (100,)

RTN = {"name": "representation-transfer"}


def with_rtn(**changes: Any) -> dict[str, Any]:
    """Label transfer as published, with the representation transfer network that the paper adds for words."""
    options = transferred(PAPER_LABELS, **changes)
    return {**options, "transfer": [*options["transfer"], RTN]}


METHODS: dict[str, dict[str, dict[str, Any]]] = {
    EQUAL: {"": {"paradigm": "normalized-joint"}},
    BY_SIZE: {"": {"paradigm": "joint", "schedule": "mixed"}},
    PUBLISHED: {
        "network 1e-3": with_rtn(),
        "network 1e-4, gamma_2 0.3": with_rtn(learning_rate=1e-4, gamma_2=0.3),
    },
    IMPROVED: {"": transferred(IMPROVED_LABELS)},
    STACKED: {"": transferred(IMPROVED_LABELS, start="stacked")},
    SINGLE: {"": {"paradigm": "single"}},
}
"""Methods of words as options of the learner, by the name of the options."""
ORDER = (EQUAL, BY_SIZE, PUBLISHED, FROZEN, OFF, IMPROVED, SINGLE, STACKED)
CHOSEN_BY = {FROZEN: PUBLISHED, OFF: PUBLISHED, STACKED: IMPROVED}
"""Methods without trials of their own, each with the one whose options and rate it has."""
STACKED_SEEDS = 3
"""It is dear, and no claim is about it."""
RIVALS = (SINGLE, BY_SIZE, EQUAL)
"""That MetaXT is set beside in the paper's figures; both readings of multi-task training."""
TRAINING = {"updates": 400, "batch_size": 10}
QUICK_TRAINING = {"updates": 300, "batch_size": 10}
RATES, QUICK_RATES = (5e-5, 2e-4, 1e-3), (5e-3,)
TRIAL_SIZE = 100
TRIED = {name: list(options) for name, options in METHODS.items() if name not in CHOSEN_BY}
ENCODER = {"name": "minilm", "max_length": 64}
QUICK_ENCODER = {**ENCODER, "freeze": True, "hidden": 256}
MOST_SOURCE, MOST_TEST = 9000, 2000
QUICK_SOURCE, QUICK_TEST = 1000, 400
"""Sentences of a source, and those that measure."""


class MetaXTTagging(Experiment):
    """Figures 5 and 6 of the paper."""

    name: ClassVar[str] = "metaxt-tagging"
    title: ClassVar[str] = "MetaXT: labels of words carried over"
    paper: ClassVar[Paper] = METAXT
    seeds: ClassVar[int] = 5
    quick_seeds: ClassVar[int] = 1

    def settings(self) -> dict[str, Any]:
        """Budget, encoder, sizes and the rates to choose from."""
        quick = self.options.quick
        return {
            **(QUICK_TRAINING if quick else TRAINING),
            "encoder": self.options.encoder or (QUICK_ENCODER if quick else ENCODER),
            "source": QUICK_SOURCE if quick else MOST_SOURCE,
            "test": QUICK_TEST if quick else MOST_TEST,
            "rates": list(QUICK_RATES if quick else RATES),
        }

    @property
    def _sizes(self) -> Sequence[int]:
        return QUICK_SIZES if self.options.quick else SIZES

    def cells(self) -> list[RunKey]:
        """The trials that choose options and rates; a quick version, which has no time for them, begins at once."""
        if self.options.quick:
            choices = {name: Choice(options[0], QUICK_RATES[0]) for name, options in TRIED.items()}
            return self._measured(dict.fromkeys(PAIRS, choices))
        return trial_keys(TRIED, [_trial_setting(pair) for pair in PAIRS], RATES)

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """Pairs, sizes and methods, with what the trials have chosen."""
        return [] if self.options.quick else self._measured({pair: chosen(rows, pair) for pair in PAIRS})

    def _measured(self, choices: Mapping[str, Mapping[str, Choice]]) -> list[RunKey]:
        """Seed by seed."""
        keys: list[RunKey] = []
        for seed in self.used_seeds:
            for k in self._sizes:
                for pair, pair_choices in choices.items():
                    for method in ORDER:
                        chosen_by = CHOSEN_BY.get(method, method)
                        is_wanted = method != STACKED or seed < STACKED_SEEDS
                        if is_wanted and chosen_by in pair_choices:
                            options, rate = pair_choices[chosen_by]
                            keys.append(RunKey.of(pair=pair, method=method, options=options, rate=rate, k=k, seed=seed))
        return keys

    def run(self, cell: RunKey) -> Row:
        """One method or trial with k sentences."""
        settings, seed = self.settings(), cell["seed"]
        method = dict(cell.values).get("trial") or cell["method"]
        is_trial = "trial" in dict(cell.values)
        all_target, all_source = pair_of(self.options.data, cell["pair"])
        target, source = sampled_tasks(all_target, all_source, cell["k"], seed, settings, is_trial=is_trial)
        options = options_of(METHODS, str(method), cell["options"])
        training = {name: settings[name] for name in TRAINING}
        learner = Learner(
            settings["encoder"], seed=seed, progress=False, learning_rate=cell["rate"], **training, **options
        )
        run = learner.fit(target, [source] if PARADIGMS[options["paradigm"]].uses_sources else [])
        scores = run.scores[target.name]
        if is_trial:  # the sentences that judged it are no test set
            return {"dev": 100 * scores["test"]["span_f1"]}
        row: Row = {"score": 100 * scores["test"]["span_f1"], "dev": 100 * scores["dev"]["span_f1"]}
        if "transfer" in options:
            row["label_map"] = run.label_map[source.name]
        return row

    def tables(self, rows: Rows) -> list[Table]:
        """Span F1 by method and k, what each part is worth, what the labels became, the trials."""
        sizes = list(self._sizes)
        head = ["method", *(f"k = {k}" for k in sizes)]
        tables = []
        for pair in PAIRS:
            of = rows.of(pair=pair)
            methods = [method for method in ORDER if method in of.values("method")]
            lines = [[method, *(of.mean(method=method, k=k) for k in sizes)] for method in methods]
            tables.append(Table(f"{pair}: span F1", head, lines, "Mean and standard deviation over seeds."))
            tables.append(parts_table(of, f"{pair}: what each part of MetaXT is worth", sizes))
            tables.append(_map_table(of.of(method=PUBLISHED), pair))
        if rows.values("trial"):
            tables.append(_trial_table(rows))
        return tables

    def figures(self, rows: Rows) -> list[Figure]:
        """The paper's two, and what the labels became."""
        by_size: dict[str, Any] = {"x": "k, sentences of the target", "y": "span F1", "x_log": True}
        figures = []
        for pair in PAIRS:
            pair_rows = rows.of(pair=pair)
            figures.append(Figure.of_means(f"{pair}: span F1 by k", measured(pair_rows, "method", "k"), **by_size))
            figures.append(label_map_figure(f"{pair}: label map of {PUBLISHED}", pair_rows.of(method=PUBLISHED)))
        return figures

    def claims(self, rows: Rows) -> list[Claim]:
        """What the paper says of the two figures, with both readings of multi-task training; what learning adds."""
        sizes = list(self._sizes)
        expressions, entities = (rows.of(pair=pair) for pair in (EXPRESSIONS, ENTITIES))
        best = [_is_best(expressions, k) for k in sizes if _is_complete(expressions, k)]
        claims = [
            Claim.of_count(
                f"{EXPRESSIONS}: MetaXT is the best of all, both readings of multi-task training included, in most "
                "settings",
                "3 of 5 (Fig. 5)",
                best,
            )
        ]
        for baseline, reading in READINGS.items():
            claims.append(
                Claim.of_gains(
                    f"{EXPRESSIONS}: multi-task training ({reading}) helps, over target only, mean over k",
                    "yes",
                    gains_over(expressions, baseline, SINGLE, sizes),
                    over="seeds",
                )
            )
        for method, what in ((PUBLISHED, "MetaXT"), *((name, f"multi-task ({how})") for name, how in READINGS.items())):
            claims.append(
                Claim.of_gains(
                    f"{ENTITIES}: {what} is better than target only, mean over k",
                    "yes",
                    gains_over(entities, method, SINGLE, sizes),
                    over="seeds",
                )
            )
        for pair, pair_rows in ((EXPRESSIONS, expressions), (ENTITIES, entities)):
            comparisons = [
                (PUBLISHED, "MetaXT", name, f"multi-task training ({how})") for name, how in READINGS.items()
            ]
            comparisons.append((PUBLISHED, "MetaXT", FROZEN, "the same with the network at its start"))
            comparisons.append((IMPROVED, "the improved version", EQUAL, f"multi-task training ({READINGS[EQUAL]})"))
            for better, what, worse, than in comparisons:
                gains = gains_over(pair_rows, better, worse, sizes)
                claims.append(Claim.of_gains(f"{pair}: {what} over {than}, mean over k", "–", gains, over="seeds"))
        return claims


def _trial_setting(pair: str) -> Setting:
    return {"pair": pair, "k": TRIAL_SIZE}


def chosen(rows: Rows, pair: str) -> dict[str, Choice]:
    """By method, what its trials on a pair have chosen."""
    choices = {}
    for name, options in TRIED.items():
        choice = choose(rows, name, options, [_trial_setting(pair)], RATES)
        if choice is not None:
            choices[name] = choice
    return choices


def _trial_table(rows: Rows) -> Table:
    lines: list[list[TableItem]] = []
    for pair in PAIRS:
        choices = chosen(rows, pair)
        for name, all_options in TRIED.items():
            means = trial_means(rows, name, all_options, [_trial_setting(pair)], RATES)
            for options in all_options:
                line: list[TableItem] = [pair, name, options]
                for rate in RATES:
                    mean = means.get(Choice(options, rate))
                    is_chosen = choices.get(name) == (options, rate)
                    line.append(f"{mean:.2f} (chosen)" if is_chosen else mean)
                lines.append(line)
    note = (
        f"Span F1 on at most {NUM_JUDGES:,} training sentences that no run had seen, k = {TRIAL_SIZE}, of a seed that "
        "no other table shows. The paper gives no learning rate."
    )
    return Table("Trials", ["pair", "method", "options", *(f"rate {rate:g}" for rate in RATES)], lines, note)


@cache
def pair_of(data: Path, pair: str) -> tuple[Task, Task]:
    """Target and source with all that there is to draw from."""
    if pair == EXPRESSIONS:
        source = Task.read("PoS", path_of(data, f"{EWT}-train.conllu"), False, label="upos", metric="accuracy")
        parts = [path_of(data, f"{STREUSLE}_{split}.conllulex") for split in ("train.rebuilt", "test")]
        # Before the first dash of LEXTAG stands the tag, behind it the word's category.
        read = Task.read("MWE", parts[0], False, parts[1], format="conllu", label=18, map={"/([^-]+)-.*/": r"\1"})
        assert read.test is not None
        train, test = (_simplified(split) for split in (read.train, read.test))
        return Task.assemble("MWE", train, False, test), source
    parts = [path_of(data, f"{GERMEVAL}.{split}.iob2") for split in ("train", "test")]
    fine = Task.read("fine", parts[0], False, parts[1], format="columns", token=0, label=1)
    # The sentences of the source are others than those that the target is sampled from.
    order = np.random.default_rng(0).permutation(len(fine.train)).tolist()
    ours, theirs = (fine.train.take(half) for half in (order[::2], order[1::2]))
    coarse = Task.assemble("coarse", theirs, dev=False, map={"/(.*?)(deriv|part)/": r"\1"})
    return Task.assemble("fine", ours, False, fine.test, labels=fine.labels), coarse


def sampled_tasks(
    target: Task, source: Task, k: int, seed: int, sizes: dict[str, Any], *, is_trial: bool = False
) -> tuple[Task, Task]:
    """k sentences for training and k for dev, that show every label where possible, and the source without them.

    A trial is judged by other training sentences instead of the test set.
    """
    generator = np.random.default_rng(seed)
    train = covering_subset(target.train.labels, k, generator)
    rest = positions_outside(target.train, [target.train.take(train)])
    dev = [rest[i] for i in covering_subset([target.train.labels[i] for i in rest], k, generator)]
    assert target.test is not None
    few = Task.assemble(
        target.name,
        target.train.take(train),
        target.train.take(dev),
        _part(target.test, sizes["test"]),
        labels=target.labels,
    )
    if is_trial:
        few = judged_by_others(few, target, seed)
    source_rest = without(source, few)
    return few, replace(source_rest, train=_part(source_rest.train, sizes["source"]))


def _part(examples: Examples, most: int) -> Examples:
    """At most so many, the same ones for every seed."""
    order = np.random.default_rng(0).permutation(len(examples))[:most]
    return examples.take(np.sort(order).tolist())


def _simplified(examples: Examples) -> Examples:
    return replace(examples, labels=[strong_expressions(tags) for tags in examples.labels])


def strong_expressions(tags: Sequence[str]) -> list[str]:
    """STREUSLE's eight tags as B, I and O of its strong expressions.

    What stands in the gap of an expression is O, and so are expressions that are weak throughout.

    >>> strong_expressions(["B", "o", "I_", "O", "B", "I~"])
    ['B-MWE', 'O', 'I-MWE', 'O', 'O', 'O']
    """
    strong_tags = ["O"] * len(tags)
    start: int | None = None
    for position, tag in enumerate(tags):
        if tag == "B":
            start = position
        elif tag == "O":
            start = None
        elif tag == "I_" and start is not None:
            strong_tags[start], strong_tags[position] = "B-MWE", "I-MWE"
    return strong_tags


def _is_complete(rows: Rows, k: int) -> bool:
    return all(rows.by_seed(method=method, k=k) for method in (PUBLISHED, *RIVALS))


def _is_best(rows: Rows, k: int) -> bool:
    means = {method: fmean(rows.by_seed(method=method, k=k).values()) for method in (PUBLISHED, *RIVALS)}
    return max(means, key=means.__getitem__) == PUBLISHED


def _map_table(rows: Rows, pair: str) -> Table:
    label_map = mean_label_map(rows)
    labels = next(iter(label_map.values()), {})
    lines: list[list[Any]] = [[source, *(100 * s for s in shares.values())] for source, shares in label_map.items()]
    return Table(f"{pair}: label map of {PUBLISHED}", ["source label", *labels], lines, "Mean soft labels, in points.")
