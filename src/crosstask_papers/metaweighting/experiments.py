"""MetaWeighting on newsgroups and product reviews: the paper's nine methods, and some more, on tasks that all matter.

Mao et al. (2022), Sec. 6: TextCNN with kernels 3, 5 and 7 on GloVe vectors, one linear layer per task, Adam at 1e-3,
batch 256, 3,000 epochs, 10 runs. Their accuracies are plots; the figures here are those that Chai et al. (2023), the
paper of GetMTL, have for the same sets, methods and encoder.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from crosstask.papers import METAWEIGHTING, Paper
from crosstask.runs.events import Row
from crosstask.validation import name_and_options
from crosstask_papers.data import AMAZON, TOPICS
from crosstask_papers.experiment import Claim, Experiment, Figure, Named, Options, Rows, RunKey, Table, paired
from crosstask_papers.metaweighting.runs import (
    METHODS,
    SENTIMENT_BENCHMARK,
    TOPICS_BENCHMARK,
    Benchmark,
    DevPart,
    Sizes,
    train_method,
    with_vectors,
)
from crosstask_papers.metaweighting.tables import (
    BASELINES,
    MOVING,
    OURS,
    averages,
    boxes,
    by_task,
    dev_and_test,
    gains_over,
    is_best,
    loss_gap,
    loss_points,
    losses_on_the_way,
    moves,
    path_of_weights,
)

TEXTCNN = {
    "name": "textcnn",
    "kernels": [3, 5, 7],
    "channels": 200,
    "train_vectors": True,
    "dropout": 0.1,
    "vectors": "glove/glove.6B.100d.vocab.f16.npz",
}
"""The paper does not say how many filters, nor whether the vectors learn. In short trials with uniform weights, one
seed each, dev accuracy was better with vectors that learn, and with 128 filters than with 32; 200 was not tried."""
QUICK_TEXTCNN = {**TEXTCNN, "channels": 96, "train_vectors": False}
RATE = 3e-3
"""Of TextCNN: the paper has 1e-3, but many more updates; of the two, this one had the better dev accuracy in a short
trial on topics with uniform weights. Another encoder has a default of its own."""
TRAINING = {"weight_decay": 0.0, "clip": 0.0, "warmup": 0.05}
"""No clipping, which would weigh tasks by the back door. Runs are short, so the rate falls to zero."""
NUM_EVALUATIONS = 20
"""At the dev sets in a run, of which the best one's model is kept."""

QUICK_METHODS = ("single", "uniform", "mgda-ub", "bandit", "metaweighting", OURS, "getmtl")
LONG = "long"
LONG_METHODS = (
    "single",
    "uniform",
    "uniform on support",
    "uncertainty",
    "gradnorm",
    "mgda-ub",
    "mgda",
    "bandit",
    "metaweighting",
    OURS,
    "getmtl",
)
"""Those that are not far behind in runs of the usual length."""
JOINED = "joined"
"""To GloVe: what MiniLM makes of each word, in long runs; see `benchmarks/distilled_vectors.py`."""
JOINED_METHODS = ("uniform", "uncertainty", "gradnorm", "mgda", "bandit", "metaweighting", OURS, "getmtl")
REFIT_SEEDS = 3
"""Of uniform weights in long runs with joined vectors, trained on all labels."""
LATEST_METHODS = ("uniform", "uncertainty")
"""The first two by dev sets sampled at random, in long runs with joined vectors on topics; here the latest messages
judge them."""
LATEST_SEEDS = 2
PRETRAINED = "minilm"
"""Instead of the paper's BERT."""
PRETRAINED_METHODS = (
    "single",
    "uniform",
    "uniform on support",
    "uncertainty",
    "gradnorm",
    "mgda-ub",
    "bandit",
    "metaweighting",
    OURS,
    "getmtl",
)
"""Those without an encoder per task."""
PRETRAINED_SEEDS = 3
PUBLISHED_TOPICS = {
    "single": 90.43,
    "uniform": 90.93,
    "uncertainty": 90.87,
    "gradnorm": 90.70,
    "mgda-ub": 91.20,
    "tchebycheff-adversarial": 90.87,
    "bandit": 91.26,
    "metaweighting": 91.25,
    "getmtl": 92.09,
}
"""Chai et al. (2023), TextCNN, mean accuracy of the four tasks."""
PUBLISHED_SENTIMENT = {
    "single": 86.52,
    "uniform": 88.47,
    "uncertainty": 88.74,
    "gradnorm": 88.01,
    "mgda-ub": 88.30,
    "tchebycheff-adversarial": 87.71,
    "bandit": 88.78,
    "metaweighting": 89.14,
    "getmtl": 89.80,
}
"""The same for the 14 domains."""


def joined_vectors(dimension: int) -> list[Any]:
    """TextCNN's vectors, and so many numbers of what MiniLM makes of each word alone."""
    return [TEXTCNN["vectors"], {"encoder": PRETRAINED, "dimension": dimension, "texts": 0}]


class WeighingExperiment(Experiment):
    """What all experiments on MetaWeighting have in common."""

    paper: ClassVar[Paper] = METAWEIGHTING

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.encoder: Named = options.encoder or (QUICK_TEXTCNN if options.quick else TEXTCNN)

    @abstractmethod
    def benchmarks(self) -> list[Benchmark]:
        """Those that are trained on."""

    def sizes(self, benchmark: Benchmark) -> Sizes:
        """How much is trained."""
        return benchmark.quick if self.options.quick else benchmark.full

    def settings(self) -> dict[str, Any]:
        sizes = {benchmark.name: asdict(self.sizes(benchmark)) for benchmark in self.benchmarks()}
        options = {benchmark.name: dict(benchmark.options) for benchmark in self.benchmarks()}
        return {
            "encoder": self.encoder,
            "training": TRAINING,
            "learning_rate": RATE,
            "sizes": sizes,
            "options": options,
        }

    def train(
        self,
        benchmark: Benchmark,
        text: str,
        method: str,
        seed: int,
        *,
        encoder: Named | None = None,
        long: bool = False,
        joined: bool = False,
        dev: DevPart = "random",
        watch: bool = False,
        **options: Any,
    ) -> Row:
        """One method on all tasks of a benchmark; `options` go before those that the benchmark has for it."""
        sizes = self.sizes(benchmark) if encoder is None else benchmark.tuned
        name, encoder_options = name_and_options("encoder", encoder or self.encoder)
        if long:
            sizes = replace(sizes, updates=benchmark.long.updates)
            encoder_options = {**encoder_options, "dropout": benchmark.long.dropout}
        if joined:
            sizes = replace(sizes, max_length=benchmark.joined.max_length)
            vectors = joined_vectors(benchmark.joined.dimension)
            encoder_options = {**encoder_options, "dropout": benchmark.joined.dropout, "vectors": vectors}
        return train_method(
            benchmark.tasks(self.options.data, text, sizes, seed, dev),
            method,
            options={**benchmark.options.get(method, {}), **options},
            encoder=with_vectors({"name": name, "max_length": sizes.max_length, **encoder_options}, self.options.data),
            training={
                **TRAINING,
                "learning_rate": RATE if name == TEXTCNN["name"] else None,
                "batch_size": sizes.batch_size,
                "updates": sizes.updates,
                "evaluate_every": max(1, sizes.updates // NUM_EVALUATIONS),
            },
            seed=seed,
            watch=watch,
        )


class MethodsCompared(WeighingExperiment):
    """All methods on one benchmark."""

    benchmark: ClassVar[Benchmark]
    tasks: ClassVar[Sequence[str]]
    published: ClassVar[Mapping[str, float]]
    least: ClassVar[int]
    """Tasks on which the paper's method is the best of all."""

    def benchmarks(self) -> list[Benchmark]:
        return [self.benchmark]

    def settings(self) -> dict[str, Any]:
        pretrained = {"encoder": PRETRAINED, **asdict(self.benchmark.tuned)}
        long = {LONG: asdict(self.benchmark.long), JOINED: asdict(self.benchmark.joined)}
        return {**super().settings(), "pretrained": pretrained, **long}

    def cells(self) -> list[RunKey]:
        texts = self.benchmark.texts[:1] if self.options.quick else self.benchmark.texts
        methods = QUICK_METHODS if self.options.quick else tuple(METHODS)
        keys = [
            RunKey.of(text=text, method=method, seed=seed)
            for seed in self.used_seeds
            for text in texts
            for method in methods
        ]
        if not (self.options.quick or self.options.encoder):
            keys += [
                RunKey.of(encoder=PRETRAINED, text=texts[0], method=method, seed=seed)
                for seed in range(PRETRAINED_SEEDS)
                for method in PRETRAINED_METHODS
            ]
            keys += [
                RunKey.of(length=LONG, **vectors, text=texts[0], method=method, seed=seed)
                for seed in self.used_seeds
                for vectors, study_methods in (({}, LONG_METHODS), ({"vectors": JOINED}, JOINED_METHODS))
                for method in study_methods
            ]
            refits: list[tuple[DevPart, int, tuple[str, ...]]] = [("none", REFIT_SEEDS, ("uniform",))]
            if self.benchmark.by_date:
                refits.append(("latest", LATEST_SEEDS, LATEST_METHODS))
            keys += [
                RunKey.of(length=LONG, vectors=JOINED, dev=dev, text=texts[0], method=method, seed=seed)
                for dev, seeds, study_methods in refits
                for seed in range(seeds)
                for method in study_methods
            ]
        return keys

    def run(self, cell: RunKey) -> Row:
        values: dict[str, Any] = dict(cell.values)
        encoder, long = values.get("encoder"), values.get("length") == LONG
        return self.train(
            self.benchmark,
            cell["text"],
            cell["method"],
            cell["seed"],
            encoder=encoder,
            long=long,
            joined=values.get("vectors") == JOINED,
            dev=values.get("dev", "random"),
            watch=encoder is None and not long,
        )

    def tables(self, rows: Rows) -> list[Table]:
        text = self.benchmark.texts[0]
        latest, refit = rows.of(dev="latest"), rows.of(dev="none")
        pretrained, long, joined, rows = _parts(rows)
        main = rows.of(text=text)
        joined_runs = "long runs with joined vectors"
        parts = [
            averages("Average accuracy, long runs", long, self.published),
            averages(f"Average accuracy, {joined_runs}", joined, {}),
            averages(f"Average accuracy, {joined_runs}, dev sets trained on too", refit, {}),
            dev_and_test(f"Accuracy of {joined_runs}, the latest messages as dev sets", latest),
            averages("Average accuracy, MiniLM", pretrained, {}),
        ]
        return [
            averages("Average accuracy", rows, self.published),
            *(table for table in parts if table.lines),
            by_task(f"Accuracy by task, {text}", main, self.tasks),
            boxes(f"Runs of each method, {text}", main),
            losses_on_the_way(f"Losses while MetaWeighting trains, {text}", main.of(method="metaweighting")),
            moves(f"Weights on the way, {text}", main, self.tasks),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        text = self.benchmark.texts[0]
        main = rows.of(text=text, encoder=None, length=None)
        scores = {method: main.by_seed(method=method).values() for method in main.values("method")}
        losses = loss_points(main.of(method="metaweighting"))
        note = "Means over tasks, without dropout."
        return [
            Figure.of_values(f"Runs of each method, {text}", scores, y="mean accuracy of the tasks"),
            *(path_of_weights(f"Weights on the way: {method}, {text}", main.of(method=method)) for method in MOVING),
            Figure.of_means(f"Losses while MetaWeighting trains, {text}", losses, x="update", y="loss", note=note),
        ]

    def claims(self, rows: Rows) -> list[Claim]:
        text, other = self.benchmark.texts
        refit = rows.of(dev="none")
        pretrained, long, joined, rows = _parts(rows)
        main, paper = rows.of(text=text), self.published
        means = {method: main.mean(method=method) for method in BASELINES}
        ours = main.mean(method="metaweighting")
        above = [ours.mean > result.mean for result in means.values() if result is not None and ours is not None]
        best = [result for task in self.tasks if (result := is_best(main, task)) is not None]
        claims = [
            Claim.of_gains(
                "MetaWeighting is above uniform weights",
                f"{paper['metaweighting'] - paper['uniform']:+.2f}",
                gains_over(main, "metaweighting", "uniform"),
                over="seeds",
            ),
            Claim.of_gains(
                f"the same, with the texts {other}",
                "–",
                gains_over(rows.of(text=other), "metaweighting", "uniform"),
                over="seeds",
            ),
            Claim.of_gains("the same, in long runs", "–", gains_over(long, "metaweighting", "uniform"), over="seeds"),
            Claim.of_gains(
                "MetaWeighting is above single-task training",
                f"{paper['metaweighting'] - paper['single']:+.2f}",
                gains_over(main, "metaweighting", "single"),
                over="seeds",
            ),
            Claim.of_count("its average is above every baseline's", f"all {len(BASELINES)}", above),
            Claim.of_count("it is the best method by task", f"{self.least} of {len(self.tasks)}", best),
            Claim.of_gains(
                "the query loss is closer to the test loss than the training loss is",
                "closer (Fig. 6 and 7)",
                list(main.by_seed(loss_gap, method="metaweighting").values()),
                over="seeds",
                digits=3,
            ),
            Claim.of_gains(
                "GetMTL is above MetaWeighting (Chai et al. 2023)",
                f"{paper['getmtl'] - paper['metaweighting']:+.2f}",
                gains_over(main, "getmtl", "metaweighting"),
                over="seeds",
            ),
            Claim.of_gains(
                "our variant, with normalised steps of the weights, is above uniform weights",
                "–",
                gains_over(main, OURS, "uniform"),
                over="seeds",
            ),
        ]
        claims += [
            Claim.of_gains(
                f"with MiniLM, MetaWeighting is above {worse}",
                "above (BERT, Fig. 2 and 3)",
                gains_over(pretrained, "metaweighting", worse),
                over="seeds",
            )
            for worse in ("uniform", "uniform on support")
        ]
        text = "MetaWeighting is above uniform weights that have as few examples to train on"
        gains = gains_over(main, "metaweighting", "uniform on support")
        claims.append(Claim.of_gains(text, "–", gains, over="seeds"))
        text = "in long runs, vectors joined to what MiniLM makes of each word are better than GloVe's alone (uniform)"
        gains = paired(joined.by_seed(method="uniform"), long.by_seed(method="uniform"))
        claims.append(Claim.of_gains(text, "–", gains, over="seeds"))
        text = "with joined vectors, MetaWeighting is above uniform weights"
        claims.append(Claim.of_gains(text, "–", gains_over(joined, "metaweighting", "uniform"), over="seeds"))
        published = (main, ""), (long, ", in long runs"), (joined, ", in long runs with joined vectors")
        claims += [self._against_published(published_rows, where) for published_rows, where in published]
        text = "in such runs, uniform weights are better when they are trained on the dev sets too"
        gains = paired(refit.by_seed(method="uniform"), joined.by_seed(method="uniform"))
        claims.append(Claim.of_gains(text, "–", gains, over="seeds"))
        text, record = "they are above the best published average then", max(paper.values())
        gains = [score - record for score in refit.by_seed(method="uniform").values()]
        return [*claims, Claim.of_gains(text, f"{record:.2f}", gains, over="seeds")]

    def _against_published(self, rows: Rows, where: str) -> Claim:
        """The method that the dev sets choose, next to the best figure that has been published."""
        record = max(self.published.values())
        dev = {method: rows.by_seed("dev", method=method) for method in rows.values("method")}
        # Where runs are still missing, methods are compared on the seeds that all of them have.
        seeds = set.intersection(*map(set, dev.values())) if dev else set()
        best = max(dev, key=lambda method: sum(dev[method][seed] for seed in seeds)) if seeds else ""
        gains = [score - record for score in rows.by_seed(method=best).values()] if best else []
        text = f"the best method by dev accuracy is above the best published average{where}"
        return Claim.of_gains(f"{text} ({best})" if best else text, f"{record:.2f}", gains, over="seeds")


def _parts(rows: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """Runs with the pretrained encoder, long ones with GloVe and with joined vectors, and all others."""
    long, usual = rows.of(length=LONG), rows.of(encoder=None, length=None)
    return rows.of(encoder=PRETRAINED), long.of(vectors=None), long.of(vectors=JOINED, dev=None), usual


class MetaWeightingTopics(MethodsCompared):
    """Four tasks of four newsgroups each."""

    name: ClassVar[str] = "metaweighting-topics"
    title: ClassVar[str] = "MetaWeighting on 20 Newsgroups"
    seeds: ClassVar[int] = 5
    benchmark: ClassVar[Benchmark] = TOPICS_BENCHMARK
    tasks: ClassVar[Sequence[str]] = TOPICS
    published: ClassVar[Mapping[str, float]] = PUBLISHED_TOPICS
    least: ClassVar[int] = 4


class MetaWeightingSentiment(MethodsCompared):
    """Fourteen domains of product reviews."""

    name: ClassVar[str] = "metaweighting-sentiment"
    title: ClassVar[str] = "MetaWeighting on Amazon reviews"
    seeds: ClassVar[int] = 3
    benchmark: ClassVar[Benchmark] = SENTIMENT_BENCHMARK
    tasks: ClassVar[Sequence[str]] = AMAZON
    published: ClassVar[Mapping[str, float]] = PUBLISHED_SENTIMENT
    least: ClassVar[int] = 10
