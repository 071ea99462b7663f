"""One run of MetaWeighting's experiments: several tasks that all matter, one method, and what is seen on the way."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.models.batches import Prepared, Step
from crosstask.models.evaluate import evaluate
from crosstask.runs.events import Row
from crosstask.runs.run import Run
from crosstask.training.support_query import support_and_query
from crosstask.transfer.base import Moment, Setup, Transfer
from crosstask.validation import name_and_options
from crosstask.weighting.base import HeldOut, Query
from crosstask.weighting.metaweighting import MetaWeighting
from crosstask_papers.data import AMAZON, TOPICS, path_of, review_task, topic_task
from crosstask_papers.experiment import Named

DEV_SHARE = 0.1
"""Of each training set: chooses the update whose model is kept, for every method alike."""
DevPart = Literal["random", "latest", "none"]
"""Which part of a training set that is: sampled at random, or the last examples of every label in the order of the
file, for a test set of still later ones. With "none" all labels are trained on, and the last update is kept."""
PARTS = ("training", "query", "test")
WATCHED = 200
"""Examples of each task and part whose loss is followed, at most."""
MOMENTS = 12
"""Points of a run at which the weights are written down."""
DIGITS = 4
WEIGHT_DIGITS = 6
"""Of weights, whose moves can be small."""
QUERY_SHARE = 0.1
"""The paper's rho: what MetaWeighting keeps of each training set to judge its weights by."""
STRETCHES = 10
"""Parts of a run over which query losses, of one batch each, are averaged."""

METHODS: dict[str, dict[str, Any]] = {
    "single": {},
    "uniform": {"weighting": "uniform"},
    "uniform on support": {"weighting": {"name": "metaweighting", "every": 10**9}},
    "uncertainty": {"weighting": "uncertainty"},
    "gradnorm": {"weighting": "gradnorm"},
    "mgda-ub": {"weighting": "mgda-ub"},
    "mgda": {"weighting": "mgda"},
    "adversarial": {"transfer": ["adversarial"]},
    "tchebycheff": {"weighting": "tchebycheff"},
    "tchebycheff-adversarial": {"transfer": ["tchebycheff-adversarial"]},
    "bandit": {"weighting": "bandit"},
    "metaweighting": {"weighting": "metaweighting"},
    "metaweighting-normalised": {"weighting": {"name": "metaweighting", "normalise": True, "keep_sum": True}},
    "metaweighting-mean": {
        "weighting": {
            "name": "metaweighting",
            "normalise": True,
            "keep_sum": True,
            "solver": "mean",
            "step_size": 0.2,
        },
    },
    "getmtl": {"weighting": "getmtl"},
}
"""What each method is to the learner; `single` is a run per task. `uniform on support` trains on what MetaWeighting
leaves to train on and never sees the rest: what the query sets cost."""


@dataclass(frozen=True)
class Sizes:
    """How much is trained: examples of a task (all where None), words of a text, and steps."""

    train: int | None
    test: int | None
    max_length: int
    batch_size: int
    updates: int


@dataclass(frozen=True)
class Long:
    """Runs with more updates, with the dropout that dev asked for then: see `benchmarks/textcnn_trials.py`."""

    updates: int
    dropout: float


@dataclass(frozen=True)
class Joined:
    """Long runs whose word vectors are joined to this many numbers of MiniLM's, with what dev asked for then."""

    dropout: float
    max_length: int
    dimension: int


@dataclass(frozen=True)
class Benchmark:
    """Tasks that all matter, in one or more versions of their texts; the published one is the first."""

    name: str
    texts: tuple[str, ...]
    read: Callable[[Path, str], list[Task]]
    full: Sizes
    tuned: Sizes
    """Of a pretrained encoder that learns along."""
    long: Long
    joined: Joined
    quick: Sizes
    published_batch: Sizes
    """With the paper's batch, for as long as can be afforded."""
    strongest: tuple[str, ...]
    """The two of the paper's joint baselines, besides uniform weights, with the best dev accuracy in short runs."""
    by_date: bool = False
    """Whether training examples stand in the order of their dates, and test examples are later ones."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of a method's weighting: the papers' choices for these tasks, and one of ours for the normalised variant."""

    def tasks(self, data: Path, text: str, sizes: Sizes, seed: int, dev: DevPart = "random") -> list[Task]:
        """All tasks, each with its dev part cut off: the same for every method."""
        return [_ready(task, sizes, seed, dev) for task in self.read(data, text)]


TOPICS_BENCHMARK = Benchmark(
    "topics",
    ("whole", "stripped"),
    lambda data, text: [topic_task(data, name, whole=text == "whole") for name in TOPICS],
    full=Sizes(None, None, max_length=256, batch_size=32, updates=600),
    tuned=Sizes(None, None, max_length=128, batch_size=16, updates=300),
    long=Long(updates=2000, dropout=0.5),
    joined=Joined(dropout=0.3, max_length=256, dimension=200),
    quick=Sizes(400, 300, max_length=64, batch_size=16, updates=120),
    published_batch=Sizes(None, None, max_length=256, batch_size=256, updates=150),
    strongest=("uncertainty", "bandit"),
    by_date=True,
    options={
        "metaweighting": {"step_size": 0.5},
        "metaweighting-normalised": {"step_size": 0.2},
        "getmtl": {"eps": 0.025},
    },
)
SENTIMENT_BENCHMARK = Benchmark(
    "sentiment",
    ("leaked", "clean"),
    lambda data, text: [review_task(data, domain, clean=text == "clean") for domain in AMAZON],
    full=Sizes(None, None, max_length=200, batch_size=32, updates=400),
    tuned=Sizes(None, None, max_length=128, batch_size=8, updates=300),
    long=Long(updates=1200, dropout=0.1),
    joined=Joined(dropout=0.1, max_length=400, dimension=200),
    quick=Sizes(200, 100, max_length=64, batch_size=8, updates=60),
    published_batch=Sizes(None, None, max_length=200, batch_size=256, updates=100),
    strongest=("mgda-ub", "uncertainty"),
    options={
        "metaweighting": {"step_size": 0.1},
        "metaweighting-normalised": {"step_size": 0.2},
        "getmtl": {"eps": 0.0075},
    },
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in (TOPICS_BENCHMARK, SENTIMENT_BENCHMARK)}


def _ready(task: Task, sizes: Sizes, seed: int, dev: DevPart) -> Task:
    assert task.test is not None
    measured = task.test
    if sizes.test is not None:
        positions = balanced_subset(measured.labels, min(sizes.test, len(measured)), np.random.default_rng(0))
        measured = measured.take(positions)
    limit = None if sizes.train is None else {"count": min(sizes.train, len(task.train)), "balanced": True}
    return Task.assemble(
        task.name,
        task.train,
        False if dev == "none" else DEV_SHARE,
        measured,
        labels=task.labels,
        limit=limit,
        seed=seed,
        cut="latest" if dev == "latest" else "random",
        metric="accuracy",
    )


def with_vectors(encoder: Named, data: Path) -> Named:
    """The encoder with the files of its word vectors below the data folder."""
    name, options = name_and_options("encoder", encoder)
    if "vectors" not in options:
        return encoder
    vectors = options["vectors"]
    listed = vectors if isinstance(vectors, list) else [vectors]
    paths = [path_of(data, source) if isinstance(source, str) else source for source in listed]
    return {"name": name, **options, "vectors": paths if isinstance(vectors, list) else paths[0]}


def train_method(
    tasks: Sequence[Task],
    method: str,
    *,
    options: Mapping[str, Any],
    encoder: Named,
    training: Mapping[str, Any],
    seed: int,
    watch: bool = False,
    on_support: bool = False,
) -> Row:
    """Train by one method and measure every task.

    Args:
        tasks: all are targets.
        method: one of `METHODS`.
        options: of its weighting, besides those in `METHODS`.
        encoder: as a recipe names it.
        training: settings of the loop; with `updates`, so that every method has the same budget.
        seed: of everything but the tasks.
        watch: follow losses, where the method has query sets.
        on_support: whatever the method, train on what MetaWeighting leaves to train on, by the same cut.

    Returns:
        `score` and `dev`, mean accuracies over tasks in percent (`dev` None without dev sets); `tasks`, the test
        accuracy of each; where tasks are trained together, `weights` at some updates; where query sets judge weights,
        `query_losses` on the way and the `step_size` of the weights; where losses are followed, `losses` of all parts
        at each evaluation.
    """
    common: dict[str, Any] = {"encoder": encoder, "training": dict(training), "seed": seed, "progress": False}
    if method == "single":
        return _accuracies([Learner(paradigm="single", **common).fit(task) for task in tasks])
    means = dict(METHODS[method])
    if "weighting" in means:
        name, weighting_options = name_and_options("weighting", means["weighting"])
        means["weighting"] = {"name": name, **weighting_options, **options}
    learner = Learner(**common, **means)
    if on_support:
        assert learner.weighting is not None
        learner.weighting.held_out = HeldOut("query", query=QUERY_SHARE)  # a query set that it never asks for
    if watch and learner.weighting is not None and learner.weighting.held_out is not None:
        learner.transfer.append(LossWatch(learner.weighting.held_out.query, seed))
    meta_weighting: MetaWeighting | None = None
    if isinstance(learner.weighting, MetaWeighting) and learner.weighting.every == 1:
        meta_weighting = learner.weighting
        assert meta_weighting.held_out is not None
        learner.transfer.append(FirstLosses(meta_weighting.held_out.query, seed))
    run = learner.fit(tasks)
    result = _accuracies([run]) | {"weights": trajectory(run)}
    if meta_weighting is not None:
        result |= {"query_losses": query_losses(run), "step_size": meta_weighting.step_size}
    evaluations = [row for row in run.record.of("transfer") if row["name"] == LossWatch.name]
    if evaluations:
        result["losses"] = [{key: row[key] for key in ("update", *PARTS)} for row in evaluations]
    return result


def _accuracies(runs: Sequence[Run]) -> Row:
    scores = {task: task_scores for run in runs for task, task_scores in run.scores.items()}
    tasks = {task: 100 * task_scores["test"]["accuracy"] for task, task_scores in scores.items()}
    dev = [100 * task_scores["dev"]["accuracy"] for task_scores in scores.values() if "dev" in task_scores]
    return {"score": statistics.fmean(tasks.values()), "dev": statistics.fmean(dev) if dev else None, "tasks": tasks}


def trajectory(run: Run) -> list[Row]:
    """The tasks' weights at evenly spaced updates, the last one included."""
    rows = run.record.of("update")
    positions = np.unique(np.linspace(0, len(rows) - 1, MOMENTS).round().astype(int))
    return [
        {
            "update": rows[position]["update"],
            "weights": {task: round(value, WEIGHT_DIGITS) for task, value in rows[position]["weights"].items()},
        }
        for position in positions
    ]


def query_losses(run: Run) -> dict[str, dict[str, float]]:
    """By task, the loss on the query set before the first update, at its lowest and at the end.

    The first is over the whole query set; the others are means over the batches of a tenth of the run.
    """
    (first,) = (row["first"] for row in run.record.of("transfer") if row["name"] == FirstLosses.name)
    rows = run.record.of("held_out")
    stretches = np.array_split(np.arange(len(rows)), min(STRETCHES, len(rows)))
    losses: dict[str, dict[str, float]] = {"first": first, "lowest": {}, "last": {}}
    for task in first:
        means = [statistics.fmean(rows[number]["losses"][task] for number in stretch) for stretch in stretches]
        losses["lowest"][task] = round(min(means), DIGITS)
        losses["last"][task] = round(means[-1], DIGITS)
    return losses


class FirstLosses(Transfer):
    """Passes nothing between tasks: measures the query losses of the model before its first update, without dropout."""

    name: ClassVar[str] = "first query losses"
    summary: ClassVar[str] = "losses of query sets before training"

    def __init__(self, query: Query, seed: int) -> None:
        super().__init__()
        self.query = query
        self.seed = seed
        self.query_sets: dict[str, Prepared] = {}
        self.losses: dict[str, float] = {}

    def start(self, setup: Setup) -> None:
        """Split as the trainer does, which has the same seed."""
        train: dict[str, Prepared] = {}
        dev: dict[str, Prepared] = {}
        for task in setup.tasks:
            for prepared, examples in ((train, task.train), (dev, task.dev)):
                if examples:
                    prepared[task.name] = Prepared.of(setup.model.encoder, task.spec, examples)
        _, self.query_sets = support_and_query(train, dev, list(setup.targets), self.query, self.seed)

    def before_step(self, moment: Moment) -> Step:
        """Before the first one, measure."""
        if moment.update == 0:
            for name, prepared in self.query_sets.items():
                self.losses[name] = round(evaluate(moment.model, prepared)[1], DIGITS)
        return moment.step

    def facts(self) -> dict[str, Any]:
        """Once, with the first evaluation."""
        losses, self.losses = self.losses, {}
        return {"first": losses} if losses else {}


class LossWatch(Transfer):
    """Passes nothing between tasks: follows the losses of support, query and test sets, without dropout.

    At each evaluation on the dev sets it writes the mean loss of every task and set into the record. Nothing reads it
    from there while the run lasts.
    """

    name: ClassVar[str] = "losses"
    summary: ClassVar[str] = "losses of support, query and test sets during training"

    def __init__(self, query: Query, seed: int) -> None:
        super().__init__()
        self.query = query
        self.seed = seed
        self.data: dict[str, dict[str, Prepared]] = {}

    def start(self, setup: Setup) -> None:
        """Split as the trainer does, which has the same seed, and prepare the test sets."""
        # A tuple, so that the model does not become a submodule of this one.
        self._model = (setup.model,)
        encoder = setup.model.encoder
        train: dict[str, Prepared] = {}
        dev: dict[str, Prepared] = {}
        test: dict[str, Prepared] = {}
        for task in setup.tasks:
            for prepared, examples in ((train, task.train), (dev, task.dev), (test, task.test)):
                if examples:
                    prepared[task.name] = Prepared.of(encoder, task.spec, examples)
        support, query = support_and_query(train, dev, list(setup.targets), self.query, self.seed)
        generator = np.random.default_rng(self.seed)
        for name_of_set, sets in zip(PARTS, (support, query, test), strict=True):
            self.data[name_of_set] = {}
            for name, prepared_set in sets.items():
                positions = generator.permutation(len(prepared_set))[:WATCHED].tolist()
                self.data[name_of_set][name] = prepared_set.take(positions)

    def facts(self) -> dict[str, Any]:
        """Mean losses by set and task."""
        (model,) = self._model
        losses: dict[str, dict[str, float]] = {}
        for name_of_set, sets in self.data.items():
            losses[name_of_set] = {name: round(evaluate(model, prepared)[1], DIGITS) for name, prepared in sets.items()}
        return losses
