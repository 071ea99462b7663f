"""TAWT's weights on single examples: a word's part of speech helps to tell its entity (Chen et al. 2022, Figure 2)."""

from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.models.encoders.word_vectors import load_word_vectors
from crosstask.papers import TAWT, Paper
from crosstask.runs.events import Row
from crosstask_papers.data import EWT, as_key, path_of, tagging_task
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, paired

GLOVE = "glove/glove.6B.100d.vocab.f16.npz"
WINDOW = 5
"""Words around the one in question, itself among them: the paper's 5-gram features."""
SOURCE_SIZE, TARGET_SIZE = 1000, 100
TRAINING = {
    "epochs": 200,
    "batch_size": 128,
    "learning_rate": 3e-4,
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
WEIGHTED = {"weighted": "paper", "weighted, scaled": "scaled"}
SINGLE = "target only"


class TAWTSamples(Experiment):
    """Figure 2: two paradigms, each with and without weights on the source's examples."""

    name: ClassVar[str] = "tawt-samples"
    title: ClassVar[str] = "TAWT: weights on single examples"
    paper: ClassVar[Paper] = TAWT
    seeds: ClassVar[int] = 10
    quick_seeds: ClassVar[int] = 3

    def settings(self) -> dict[str, Any]:
        """Sizes and training."""
        quick = self.options.quick
        return {
            **TRAINING,
            "epochs": QUICK_EPOCHS if quick else TRAINING["epochs"],
            "encoder": self.options.encoder
            or {"name": "relu", "hidden": QUICK_WIDTH if quick else WIDTH, "standardise": False},
            "weighting": {name: {key: str(value) for key, value in way.items()} for name, way in SAMPLES.items()},
            "original": (self.options.data / "ontonotes").is_dir(),
        }

    def cells(self) -> list[RunKey]:
        """Each paradigm plain and weighted, and the target alone."""
        methods = [(paradigm, weights) for paradigm in PARADIGMS for weights in ("plain", *WEIGHTED)]
        return [
            RunKey.of(paradigm=paradigm, weights=weights, seed=seed)
            for seed in self.used_seeds
            for paradigm, weights in [*methods, (SINGLE, "plain")]
        ]

    def run(self, cell: RunKey) -> Row:
        """One run with words sampled by the seed."""
        settings, seed = self.settings(), cell["seed"]
        target, source = sampled_tasks(self.options.data, seed)
        options: dict[str, Any] = {"paradigm": PARADIGMS.get(cell["paradigm"], "single")}
        if cell["weights"] in WEIGHTED:
            options["weighting"] = SAMPLES[WEIGHTED[cell["weights"]]]
        training = {name: settings[name] for name in TRAINING}
        learner = Learner(settings["encoder"], seed=seed, progress=False, training=training, **options)
        run = learner.fit(target, [] if cell["paradigm"] == SINGLE else [source])
        row: Row = {"score": 100 * run.scores[target.name]["test"]["accuracy"]}
        sizes = [row["effective_sample_size"] for row in run.history if "effective_sample_size" in row]
        if sizes:
            row["effective_sample_size"] = sizes[-1]
        return row

    def tables(self, rows: Rows) -> list[Table]:
        """Accuracy, and how many examples the source is worth in the end."""
        head = ["paradigm", "plain", *WEIGHTED]
        scores = [
            [paradigm, *(rows.mean(paradigm=paradigm, weights=weights) for weights in ("plain", *WEIGHTED))]
            for paradigm in (SINGLE, *PARADIGMS)
        ]
        worth = [
            [
                paradigm,
                *(rows.mean("effective_sample_size", paradigm=paradigm, weights=weights) for weights in WEIGHTED),
            ]
            for paradigm in PARADIGMS
        ]
        note = "Mean and standard deviation over seeds. The paper shows its figures as a plot."
        return [
            Table("Accuracy of the target", head, scores, note),
            Table(f"Effective number of the source's {SOURCE_SIZE:,} examples", ["paradigm", *WEIGHTED], worth),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        """Figure 2, run by run."""
        scores = {
            paradigm if paradigm == SINGLE else f"{paradigm}, {weights}": rows.by_seed(
                paradigm=paradigm, weights=weights
            ).values()
            for paradigm in (SINGLE, *PARADIGMS)
            for weights in rows.of(paradigm=paradigm).values("weights")
        }
        return [Figure.of_values("Accuracy of the target, run by run", scores, y="accuracy")]

    def claims(self, rows: Rows) -> list[Claim]:
        """Weights help in both paradigms; the source helps at all."""

        def scores(paradigm: str, weights: str) -> dict[int, float]:
            return rows.by_seed(paradigm=paradigm, weights=weights)

        claims = [
            Claim.of_gains(
                f"Weights on examples help {paradigm}" + (" (scaled products, ours)" if way == "scaled" else ""),
                "yes" if way == "paper" else "–",
                paired(scores(paradigm, weights), scores(paradigm, "plain")),
                over="seeds",
            )
            for weights, way in WEIGHTED.items()
            for paradigm in PARADIGMS
        ]
        return claims + [
            Claim.of_gains(
                f"The source helps: {paradigm} over the target alone",
                "–",
                paired(scores(paradigm, "plain"), scores(SINGLE, "plain")),
                over="seeds",
            )
            for paradigm in PARADIGMS
        ]


def sampled_tasks(data: Path, seed: int) -> tuple[Task, Task]:
    """Target and source: different words, sampled at random; the source's labels are parts of speech."""
    vectors, entities, speech = entity_words(data, "train")
    order = np.random.default_rng(seed).permutation(len(vectors))
    ours, theirs = order[:TARGET_SIZE], order[TARGET_SIZE : TARGET_SIZE + SOURCE_SIZE]
    measured, gold, _ = entity_words(data, "test")
    target = Task.from_arrays(
        "entities",
        vectors[ours],
        entities[ours],
        dev=False,
        test=(measured, gold),
        label_names=sorted({*entities.tolist(), *gold.tolist()}),
    )
    return target, Task.from_arrays("PoS", vectors[theirs], speech[theirs], dev=False)


@cache
def entity_words(data: Path, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All words inside entities: vectors of their windows, types of entity, parts of speech."""
    speech_tags = {as_key(words): tags for words, tags in _sentences(speech_task(data), split)}
    table = word_table(data)
    vectors, entities, parts_of_speech = [], [], []
    for words, tags in _sentences(tagging_task(data, "NER"), split):
        if as_key(words) not in speech_tags:
            continue
        for position, (tag, part_of_speech) in enumerate(zip(tags, speech_tags[as_key(words)], strict=True)):
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
