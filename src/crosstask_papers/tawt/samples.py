"""TAWT's weights on single examples: a word's part of speech helps to tell its entity (Chen et al. 2022, Figure 2).

Arms differ by the weights alone, as in `tawt.tagging`: plain, learned, and drawn at random (each update gives the
products of a batch to its examples in random order); frozen weights are plain training by the method's own code.
"""

from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from crosstask.data.overlap import input_key
from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.models.encoders.word_vectors import load_word_vectors
from crosstask.papers import TAWT, Paper
from crosstask.runs.events import Row
from crosstask.studies.grid import Scalar
from crosstask.weighting.tawt_samples import Positions, SampleTAWT
from crosstask_papers.data import EWT, path_of, tagging_task
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, differences
from crosstask_papers.rates import chosen_rate, trials, without_trials

GLOVE = "glove/glove.6B.100d.vocab.f16.npz"
WINDOW = 5
"""Words around the one in question, itself among them: the paper's 5-gram features."""
SOURCE_SIZE, TARGET_SIZE = 1000, 100
PUBLISHED_RATE = 3e-4
RATES = (PUBLISHED_RATE, 1e-4, 1e-3)
TRAINING = {
    "epochs": 200,
    "batch_size": 128,
    "head": "reset",
    "weight_decay": 0.0,
    "warmup": 0.0,
    "decay": "none",
    "clip": 0.0,
    "keep": "last",
}
QUICK_EPOCHS = 40
WIDTH, QUICK_WIDTH = 4096, 256
UPDATES_IN_AN_EPOCH = -(-SOURCE_SIZE // 128)
SAMPLES = {
    "paper": {
        "name": "tawt-samples",
        "similarity": "dot",
        "sharpness": 5.0,
        "step_size": 1.0,
        "cap": float("inf"),
        "every": 5,
        "warmup": 5 * UPDATES_IN_AN_EPOCH,
    },
    "scaled": {"name": "tawt-samples", "every": 5, "warmup": 5 * UPDATES_IN_AN_EPOCH},
}
"""App. B's constant 5 on the identity, gradients of each example inspected every 5 epochs; and our version of it,
which does not depend on how long gradients are and bounds every weight."""
PRETRAIN, JOINT = "pre-training", "joint training"
PARADIGMS = {PRETRAIN: "pretrain", JOINT: "joint"}
PLAIN, WEIGHTED, SCALED, RANDOM, FROZEN = "plain", "weighted", "weighted, scaled", "random", "frozen"
LEARNED = {WEIGHTED: "paper", SCALED: "scaled"}
SINGLE = "target only"
FROZEN_STEP = 1e-15
"""A step size with which weights stay as they start."""


class RandomExamples(SampleTAWT):
    """Weights as spread as the learned ones, for examples that are drawn at random."""

    name: ClassVar[str] = "random-examples"

    def update_examples(self, task: str, positions: Positions, products: Tensor) -> None:
        """One mirror step with the products of the batch in random order."""
        order = np.random.default_rng([self.steps, len(products)]).permutation(len(products))
        super().update_examples(task, positions, products[torch.from_numpy(order).to(products.device)])


class TAWTSamples(Experiment):
    """Figure 2: two paradigms, each with and without weights on the source's examples."""

    name: ClassVar[str] = "tawt-samples"
    title: ClassVar[str] = "TAWT: weights on single examples"
    paper: ClassVar[Paper] = TAWT
    seeds: ClassVar[int] = 10
    quick_seeds: ClassVar[int] = 3

    @property
    def rates(self) -> tuple[float, ...]:
        """That dev words choose from."""
        return (PUBLISHED_RATE,) if self.options.quick else RATES

    def settings(self) -> dict[str, Any]:
        """Sizes and training."""
        quick = self.options.quick
        return {
            **TRAINING,
            "epochs": QUICK_EPOCHS if quick else TRAINING["epochs"],
            "learning rates": list(self.rates),
            "encoder": self.options.encoder
            or {"name": "relu", "hidden": QUICK_WIDTH if quick else WIDTH, "standardize": False},
            "weighting": {name: {key: str(value) for key, value in way.items()} for name, way in SAMPLES.items()},
            "original": (self.options.data / "ontonotes").is_dir(),
        }

    @property
    def arms(self) -> list[dict[str, Scalar]]:
        """The target alone, and each paradigm plain, with learned and with random weights."""
        arms: list[dict[str, Scalar]] = [{"paradigm": SINGLE, "weights": PLAIN}]
        for paradigm in PARADIGMS:
            for weights in (PLAIN, *LEARNED, RANDOM):
                arms.append({"paradigm": paradigm, "weights": weights})
        return arms

    def cells(self) -> list[RunKey]:
        """The runs that choose each arm's learning rate."""
        return trials(self.arms, self.rates)

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """All seeds at the chosen rates; frozen weights at that of plain training, one seed."""
        keys = []
        for seed in self.used_seeds:
            for arm in self.arms:
                rate = chosen_rate(rows, arm, self.rates)
                if rate is not None:
                    keys.append(RunKey.of(**arm, rate=rate, seed=seed))
        for paradigm in PARADIGMS:
            rate = chosen_rate(rows, {"paradigm": paradigm, "weights": PLAIN}, self.rates)
            if rate is not None:
                keys.append(RunKey.of(paradigm=paradigm, weights=FROZEN, rate=rate, seed=0))
        return keys

    def run(self, cell: RunKey) -> Row:
        """One run with words sampled by the seed."""
        settings, seed = self.settings(), cell["seed"]
        target, source = sampled_tasks(self.options.data, seed)
        training = {name: settings[name] for name in TRAINING} | {"learning_rate": cell["rate"]}
        learner = Learner(
            settings["encoder"],
            paradigm=PARADIGMS.get(cell["paradigm"], "single"),
            weighting=_weighting(cell["weights"]),
            training=training,
            seed=seed,
            progress=False,
        )
        run = learner.fit(target, [] if cell["paradigm"] == SINGLE else [source])
        scores = run.scores[target.name]
        row: Row = {"score": 100 * scores["test"]["accuracy"], "dev": 100 * scores["dev"]["accuracy"]}
        sizes = [row["effective_sample_size"] for row in run.history if "effective_sample_size" in row]
        if sizes:
            row["effective_sample_size"] = sizes[-1]
        return row

    def chosen(self, rows: Rows) -> Rows:
        """The runs at the chosen rates, without those that chose."""
        chosen = []
        for row in without_trials(rows).rows:
            cell = row["cell"]
            arm = {"paradigm": cell["paradigm"], "weights": cell["weights"]}
            if cell["weights"] == FROZEN:
                arm["weights"] = PLAIN
            if cell["rate"] == chosen_rate(rows, arm, self.rates):
                chosen.append(row)
        return Rows(chosen)

    def tables(self, rows: Rows) -> list[Table]:
        """Accuracy, and how many examples the source is worth in the end."""
        runs = self.chosen(rows)
        kinds = (PLAIN, *LEARNED, RANDOM)
        scores: list[list[Any]] = []
        rates: list[list[Any]] = []
        for paradigm in (SINGLE, *PARADIGMS):
            scores.append([paradigm, *(runs.mean(paradigm=paradigm, weights=weights) for weights in kinds)])
            line: list[Any] = [paradigm]
            for weights in kinds:
                rate = chosen_rate(rows, {"paradigm": paradigm, "weights": weights}, self.rates)
                line.append(None if rate is None else f"{rate:g}")
            rates.append(line)
        worth: list[list[Any]] = []
        control: list[list[Any]] = []
        for paradigm in PARADIGMS:
            sizes = [runs.mean("effective_sample_size", paradigm=paradigm, weights=weights) for weights in kinds[1:]]
            worth.append([paradigm, *sizes])
            frozen, plain = (runs.by_seed(paradigm=paradigm, weights=weights) for weights in (FROZEN, PLAIN))
            control.append([paradigm, differences(frozen, plain).get(0)])
        note = "Mean and standard deviation over seeds. The paper shows its figures as a plot."
        return [
            Table("Accuracy of the target", ["paradigm", *kinds], scores, note),
            Table("Learning rates that dev words chose", ["paradigm", *kinds], rates),
            Table(f"Effective number of the source's {SOURCE_SIZE:,} examples", ["paradigm", *kinds[1:]], worth),
            Table(
                "Control: frozen weights over plain training, the same seed",
                ["paradigm", "points"],
                control,
                "Two runs of the same thing; what is left is rounding.",
            ),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        """Figure 2, run by run."""
        runs = self.chosen(rows)
        scores = {}
        for arm in self.arms:
            name = SINGLE if arm["paradigm"] == SINGLE else f"{arm['paradigm']}, {arm['weights']}"
            scores[name] = list(runs.of(**arm).by_seed().values())
        return [Figure.of_values("Accuracy of the target, run by run", scores, y="accuracy")]

    def claims(self, rows: Rows) -> list[Claim]:
        """Weights help in both paradigms, and more than random ones; the source helps at all."""
        runs = self.chosen(rows)

        def gains(paradigm: str, better: str, worse: str, baseline: str | None = None) -> list[float]:
            scores = runs.by_seed(paradigm=paradigm, weights=better)
            return list(differences(scores, runs.by_seed(paradigm=baseline or paradigm, weights=worse)).values())

        claims = []
        for weights, way in LEARNED.items():
            ours = " (scaled products, ours)" if way == "scaled" else ""
            paper = "yes" if way == "paper" else "–"
            for paradigm in PARADIGMS:
                text = f"Weights on examples help {paradigm}{ours}"
                claims.append(Claim.of_gains(text, paper, gains(paradigm, weights, PLAIN), over="seeds"))
                text = f"They are better than random ones in {paradigm}{ours}"
                claims.append(Claim.of_gains(text, "–", gains(paradigm, weights, RANDOM), over="seeds"))
        for paradigm in PARADIGMS:
            text = f"The source helps: {paradigm} over the target alone"
            claims.append(Claim.of_gains(text, "–", gains(paradigm, PLAIN, PLAIN, SINGLE), over="seeds"))
        return claims


def _weighting(weights: str) -> dict[str, Any] | SampleTAWT | None:
    """What a run with such weights uses."""
    if weights == PLAIN:
        return None
    if weights in LEARNED:
        return SAMPLES[LEARNED[weights]]
    options: dict[str, Any] = {name: value for name, value in SAMPLES["paper"].items() if name != "name"}
    if weights == FROZEN:
        options["step_size"] = FROZEN_STEP
        return SampleTAWT(**options)
    return RandomExamples(**options)


def sampled_tasks(data: Path, seed: int) -> tuple[Task, Task]:
    """Target and source: different words, sampled at random; the source's labels are parts of speech.

    As many words as the target has choose learning rates; no run keeps a model by them.
    """
    vectors, entities, speech = entity_words(data, "train")
    order = np.random.default_rng(seed).permutation(len(vectors))
    ours, theirs, judges = np.split(order, [TARGET_SIZE, TARGET_SIZE + SOURCE_SIZE])
    judges = judges[:TARGET_SIZE]
    measured, gold, _ = entity_words(data, "test")
    target = Task.from_arrays(
        "entities",
        vectors[ours],
        entities[ours],
        dev=(vectors[judges], entities[judges]),
        test=(measured, gold),
        label_names=sorted({*entities.tolist(), *gold.tolist()}),
    )
    return target, Task.from_arrays("PoS", vectors[theirs], speech[theirs], dev=False)


@cache
def entity_words(data: Path, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All words inside entities: vectors of their windows, types of entity, parts of speech."""
    speech_tags = {input_key(words): tags for words, tags in _sentences(speech_task(data), split)}
    table = word_table(data)
    vectors, entities, parts_of_speech = [], [], []
    for words, tags in _sentences(tagging_task(data, "NER"), split):
        if input_key(words) not in speech_tags:
            continue
        for position, (tag, part_of_speech) in enumerate(zip(tags, speech_tags[input_key(words)], strict=True)):
            if tag != "O":
                vectors.append(window(words, position, table))
                entities.append(tag.split("-", 1)[1])
                parts_of_speech.append(part_of_speech)
    return np.stack(vectors), np.array(entities), np.array(parts_of_speech)


@cache
def speech_task(data: Path) -> Task:
    """Parts of speech by the Penn tags, of the same sentences."""
    if (data / "ontonotes").is_dir():
        return tagging_task(data, "PoS")
    train, test = (path_of(data, f"{EWT}-{split}.conllu") for split in ("train", "test"))
    train_labels = Task.read("PoS", train, False, label="xpos").labels
    new = Task.read("PoS", test, False, label="xpos").labels
    return Task.read(
        "PoS",
        train,
        False,
        test,
        label="xpos",
        labels=[*train_labels, *(tag for tag in new if tag not in train_labels)],
    )


@cache
def word_table(data: Path) -> dict[str, np.ndarray]:
    """GloVe vectors by word."""
    vectors = load_word_vectors(path_of(data, GLOVE))
    return dict(zip(vectors.words, vectors.matrix, strict=True))


def window(words: list[str], position: int, table: dict[str, np.ndarray]) -> np.ndarray:
    """The vectors of the words around a position, one behind the other; zeros for what is unknown or outside.

    >>> window(["So", "it", "is"], 0, {"so": np.array([1.0]), "is": np.array([3.0])}).tolist()
    [0.0, 0.0, 1.0, 0.0, 3.0]
    """
    empty = np.zeros_like(next(iter(table.values())))
    positions = range(position - WINDOW // 2, position + WINDOW // 2 + 1)
    return np.concatenate([table.get(words[i].lower(), empty) if 0 <= i < len(words) else empty for i in positions])


def _sentences(task: Task, split: str) -> list[tuple[list[str], list[str]]]:
    examples: Examples = task.splits[split]
    return list(zip(examples.inputs, examples.labels, strict=True))
