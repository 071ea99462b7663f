"""MetaXT on words: parts of speech help multiword expressions, coarse entities fine ones (Sharma et al. 2021)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from crosstask.data.subsets import covering_subset
from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.papers import METAXT, Paper
from crosstask.runs.events import Row
from crosstask.training.paradigms import PARADIGMS
from crosstask_papers.data import EWT, path_of, without
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, by_seed_mean, differences
from crosstask_papers.figures import label_map_figure, mean_label_map, measured

STREUSLE = "tagging/streusle/streusle.ud"
GERMEVAL = "tagging/germeval2014/germ"
EXPRESSIONS, ENTITIES = "PoS to multiword expressions", "coarse to fine entities"
PAIRS = (EXPRESSIONS, ENTITIES)
SIZES, QUICK_SIZES = (20, 100, 500), (100,)

SINGLE, MULTI_TASK, METAXT_ALONE, METAXT_FULL = "target only", "multi-task", "MetaXT", "MetaXT with RTN"
IMPROVED = "MetaXT, improved"
"""From a probe, with what `metaxt-sentiment` has chosen."""
STACKED = "MetaXT, stacked"
"""The same from a probe that also reads what the source's label says."""
PUBLISHED = (SINGLE, MULTI_TASK, METAXT_ALONE, METAXT_FULL)
LABELS = {"name": "label-transfer", "train_on": "half"}
METHODS: dict[str, dict[str, Any]] = {
    SINGLE: {"paradigm": "single"},
    MULTI_TASK: {"paradigm": "normalized-joint"},
    METAXT_ALONE: {"paradigm": "normalized-joint", "transfer": [LABELS]},
    METAXT_FULL: {"paradigm": "normalized-joint", "transfer": [LABELS, {"name": "representation-transfer"}]},
    IMPROVED: {"paradigm": "normalized-joint", "transfer": [{"name": "label-transfer", "start": "probe"}]},
    STACKED: {"paradigm": "normalized-joint", "transfer": [{"name": "label-transfer", "start": "stacked"}]},
}
TRAINING = {"updates": 400, "batch_size": 16, "learning_rate": 2e-4}
QUICK_TRAINING = {"updates": 300, "batch_size": 16, "learning_rate": 5e-3}
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
    seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    def settings(self) -> dict[str, Any]:
        """Budget, encoder and sizes."""
        quick = self.options.quick
        return {
            **(QUICK_TRAINING if quick else TRAINING),
            "encoder": self.options.encoder or (QUICK_ENCODER if quick else ENCODER),
            "source": QUICK_SOURCE if quick else MOST_SOURCE,
            "test": QUICK_TEST if quick else MOST_TEST,
        }

    @property
    def _sizes(self) -> Sequence[int]:
        return QUICK_SIZES if self.options.quick else SIZES

    def cells(self) -> list[RunKey]:
        """Pairs, sizes and methods, seed by seed."""
        return [
            RunKey.of(pair=pair, method=method, k=k, seed=seed)
            for seed in self.used_seeds
            for pair in PAIRS
            for k in self._sizes
            for method in METHODS
        ]

    def run(self, cell: RunKey) -> Row:
        """One method with k sentences."""
        settings, seed = self.settings(), cell["seed"]
        target, source = sampled_tasks(*pair_of(self.options.data, cell["pair"]), cell["k"], seed, settings)
        options = METHODS[cell["method"]]
        training = {name: settings[name] for name in TRAINING}
        learner = Learner(settings["encoder"], seed=seed, progress=False, **training, **options)
        run = learner.fit(target, [source] if PARADIGMS[options["paradigm"]].uses_sources else [])
        scores = run.scores[target.name]
        row: Row = {"score": 100 * scores["test"]["span_f1"], "dev": 100 * scores["dev"]["span_f1"]}
        if "transfer" in options:
            row["label_map"] = run.label_map[source.name]
        return row

    def tables(self, rows: Rows) -> list[Table]:
        """Span F1 by method and k, and what the labels became."""
        head = ["method", *(f"k = {k}" for k in self._sizes)]
        tables = []
        for pair in PAIRS:
            lines = [[method, *(rows.mean(pair=pair, method=method, k=k) for k in self._sizes)] for method in METHODS]
            tables.append(Table(f"{pair}: span F1", head, lines, "Mean and standard deviation over seeds."))
            tables.append(_map_table(rows.of(pair=pair, method=METAXT_FULL), pair))
        return tables

    def figures(self, rows: Rows) -> list[Figure]:
        """The paper's two, and what the labels became."""
        by_size: dict[str, Any] = {"x": "k, sentences of the target", "y": "span F1", "x_log": True}
        figures = []
        for pair in PAIRS:
            pair_rows = rows.of(pair=pair)
            figures.append(Figure.of_means(f"{pair}: span F1 by k", measured(pair_rows, "method", "k"), **by_size))
            figures.append(label_map_figure(f"{pair}: label map of {METAXT_FULL}", pair_rows.of(method=METAXT_FULL)))
        return figures

    def claims(self, rows: Rows) -> list[Claim]:
        """What the paper says of the two figures."""
        expression_rows = rows.of(pair=EXPRESSIONS)
        best = [
            _is_best(expression_rows, k)
            for k in self._sizes
            if all(expression_rows.by_seed(method=m, k=k) for m in PUBLISHED)
        ]
        entities = rows.of(pair=ENTITIES)
        return [
            Claim.of_count(
                f"{EXPRESSIONS}: MetaXT is the best of all in most settings",
                "3 of 5 (Fig. 5)",
                best,
            ),
            Claim.of_gains(
                f"{EXPRESSIONS}: joint training helps (multi-task over target only, mean over k)",
                "yes",
                _gains(expression_rows, MULTI_TASK, SINGLE),
                over="seeds",
            ),
            *(
                Claim.of_gains(
                    f"{ENTITIES}: {method} is better than target only, mean over k",
                    "yes",
                    _gains(entities, method, SINGLE),
                    over="seeds",
                )
                for method in (MULTI_TASK, METAXT_FULL)
            ),
            *(
                Claim.of_gains(
                    f"{pair}: MetaXT with RTN over {other}, mean over k",
                    "–",
                    _gains(rows.of(pair=pair), METAXT_FULL, other),
                    over="seeds",
                )
                for pair in PAIRS
                for other in (MULTI_TASK, METAXT_ALONE)
            ),
            *(
                Claim.of_gains(
                    f"{pair}: the {what} version over multi-task, mean over k",
                    "–",
                    _gains(rows.of(pair=pair), method, MULTI_TASK),
                    over="seeds",
                )
                for pair in PAIRS
                for what, method in (("improved", IMPROVED), ("stacked", STACKED))
            ),
        ]


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


def sampled_tasks(target: Task, source: Task, k: int, seed: int, sizes: dict[str, Any]) -> tuple[Task, Task]:
    """k sentences for training and k for dev, that show every label where possible, and the source without them."""
    generator = np.random.default_rng(seed)
    train = covering_subset(target.train.labels, k, generator)
    rest = sorted(set(range(len(target.train))) - set(train))
    dev = [rest[i] for i in covering_subset([target.train.labels[i] for i in rest], k, generator)]
    assert target.test is not None
    few = Task.assemble(
        target.name,
        target.train.take(train),
        target.train.take(dev),
        _part(target.test, sizes["test"]),
        labels=target.labels,
    )
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


def _is_best(rows: Rows, k: int) -> bool:
    means = {method: fmean(rows.by_seed(method=method, k=k).values()) for method in PUBLISHED}
    return max(means, key=means.__getitem__) == METAXT_FULL


def _gains(rows: Rows, better: str, worse: str) -> list[float]:
    """The mean over sizes, for each seed that has all of them."""
    by_size = {}
    for k in rows.values("k"):
        by_size[k] = differences(rows.by_seed(method=better, k=k), rows.by_seed(method=worse, k=k))
    return by_seed_mean(by_size)


def _map_table(rows: Rows, pair: str) -> Table:
    label_map = mean_label_map(rows)
    labels = next(iter(label_map.values()), {})
    lines: list[list[Any]] = [[source, *(100 * s for s in shares.values())] for source, shares in label_map.items()]
    return Table(
        f"{pair}: label map of {METAXT_FULL}", ["source label", *labels], lines, "Mean soft labels, in points."
    )
