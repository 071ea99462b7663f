"""TAWT's simulation of task distance: near sources help most, and small targets (Chen et al. 2022, Figure 3)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crosstask.data.metrics import spearman
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.models.batches import Prepared
from crosstask.models.multitask import Model
from crosstask.papers import TAWT, Paper
from crosstask.probing.features import collect
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.training.config import Training
from crosstask.training.devices import Devices
from crosstask.transferability.distance import head_risk, weighted_representation
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, differences, mean_of

LABELS, BATCH, MEASURED = 10, 100, 2000
FLIPS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
FULL: dict[str, Any] = {
    "inputs": 1000,
    "width": 4096,
    "by_heart": 10_000,
    "source": 10_000,
    "targets": [10, 30, 100, 300, 1000, 3000, 10_000],
    "epochs": 100,
    "least_updates": 1000,
    "learning_rate": 3e-4,
    "teaching_rate": 1e-3,
}
"""The paper's, but for the teachers' rate, which it does not give, and the updates that a small target has at least:
a hundred epochs over ten examples are too few updates for anything to be learned. The largest target, whose own
representation distances are measured from, is as large as the source: with fewer examples it would be the worse one."""
QUICK: dict[str, Any] = {
    "inputs": 20,
    "width": 64,
    "by_heart": 200,
    "source": 2000,
    "targets": [20, 100, 2000],
    "epochs": 20,
    "least_updates": 200,
    "learning_rate": 5e-3,
    "teaching_rate": 2e-2,
}
MAX_TEACHING, MEMORIZED_LOSS = 2000, 0.01
"""Updates of a teacher at most, and the loss at which it stops before."""
ALONE = "alone"


class TAWTDistance(Experiment):
    """Figure 3: accuracy of the target by its size, alone and from sources of growing distance."""

    name: ClassVar[str] = "tawt-distance"
    title: ClassVar[str] = "TAWT: near sources help most, and small targets"
    paper: ClassVar[Paper] = TAWT
    seeds: ClassVar[int] = 5
    quick_seeds: ClassVar[int] = 3

    def settings(self) -> dict[str, Any]:
        """Sizes and training."""
        sizes = QUICK if self.options.quick else FULL
        return {**sizes, "distance": "best heads on both representations"}

    def cells(self) -> list[RunKey]:
        """Every source, and none; a run covers all sizes of the target, which need one representation."""
        return [
            RunKey.of(source=source, seed=seed) for seed in self.used_seeds for source in (ALONE, *map(name_of, FLIPS))
        ]

    def run(self, cell: RunKey) -> Row:
        """One source: accuracies by target size, in the order of the sizes, and what its representation costs."""
        settings, seed = self.settings(), cell["seed"]
        target_rng, source_rng = (np.random.default_rng([seed, stream]) for stream in (0, 1))
        target = make_task("target", target_rng, self._teacher(seed, 0.0), settings["targets"][-1], settings["inputs"])
        if cell["source"] == ALONE:
            accuracies, model = self._alone(target, seed)
        else:
            flip = float(cell["source"].removeprefix("q = "))
            source = make_task("source", source_rng, self._teacher(seed, flip), settings["source"], settings["inputs"])
            accuracies, model = self._from_source(target, source, seed)
        assert target.test is not None
        risk = head_risk(model, target, target.test, seed=seed)
        return {"score": fmean(accuracies), "accuracies": accuracies, "risk": vars(risk)}

    def tables(self, rows: Rows) -> list[Table]:
        """Accuracies by source and size, gains, distances."""
        sizes = self.settings()["targets"]
        head = ["representation", *(f"n = {size:,}" for size in sizes)]
        sources = [ALONE, *map(name_of, FLIPS)]
        accuracies = [
            [name, *(rows.mean(_at("accuracies", i), source=name) for i in range(len(sizes)))] for name in sources
        ]
        distances: list[list[Any]] = []
        for name in sources:
            risks = (rows.mean(lambda row: row["risk"]["loss"], 3, source=name), _percent(rows, name))
            distances.append([name, *risks, mean_of(_distances(rows, name).values(), 3)])
        return [
            Table("Accuracy of the target", head, accuracies, "Mean and standard deviation over seeds."),
            Table(
                "Distance of each source",
                ["representation", "loss of the best head", "its accuracy", "distance"],
                distances,
                "The best linear head of the target on each representation, fitted to and measured on test examples by "
                "cross-validation, for the target's own representation too; the distance is the difference of these "
                "losses (eq. 3.2). It cannot be below zero but for noise: that of seeds, and that the target's own "
                "representation is learned from a sample.",
            ),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        """Figure 3, and the distance by q."""
        accuracies = [
            (row["cell"]["source"], size, accuracy)
            for row in rows.rows
            for size, accuracy in zip(self.settings()["targets"], row["accuracies"], strict=True)
        ]
        size = {"x": "examples of the target", "y": "accuracy", "x_log": True}
        distances = [("distance", flip, d) for flip in FLIPS for d in _distances(rows, name_of(flip)).values()]
        return [
            Figure.of_means("Accuracy by size of the target", accuracies, **size),
            Figure.of_means("Distance of each source", distances, x="q", y="distance", zero=True),
        ]

    def claims(self, rows: Rows) -> list[Claim]:
        """Rank correlations over the grid of sources and sizes, seed by seed."""
        sizes = self.settings()["targets"]
        grids = [grid for grid in (gains_of(rows, seed) for seed in rows.values("seed")) if grid is not None]
        nearest = np.mean([grid[0] for grid in grids], axis=0) if grids else np.zeros(0)
        by_source = [_distances(rows, name_of(flip)) for flip in FLIPS]
        complete_seeds = [seed for seed in rows.values("seed") if all(seed in distances for distances in by_source)]
        return [
            Claim.of_gains(
                "The smaller q, the more the source helps: rank correlation of q and gain with the sign turned, mean "
                "over target sizes",
                "positive",
                [-fmean(_rank_correlation(FLIPS, column) for column in grid.T) for grid in grids],
                over="seeds",
            ),
            Claim.of_gains(
                "The smaller the target, the more the source helps: the same of size and gain, mean over sources",
                "positive",
                [-fmean(_rank_correlation(sizes, line) for line in grid) for grid in grids],
                over="seeds",
            ),
            Claim.of_count(
                "The nearest source (q = 0) helps at every target size but the largest",
                "yes",
                [bool(gain > 0) for gain in nearest[:-1]],
            ),
            Claim.of_gains(
                "The distance grows with q: rank correlation",
                "positive",
                [_rank_correlation(FLIPS, [distances[seed] for distances in by_source]) for seed in complete_seeds],
                over="seeds",
            ),
        ]

    def _teacher(self, seed: int, flip: float) -> nn.Module:
        settings = self.settings()
        return teacher(
            seed, flip, settings["inputs"], settings["width"], settings["by_heart"], settings["teaching_rate"]
        )

    def _training(self, size: int) -> Training:
        """As many updates as the epochs make, and not too few."""
        settings = self.settings()
        updates = max(settings["epochs"] * -(-size // BATCH), settings["least_updates"])
        return Training(
            updates=updates,
            batch_size=BATCH,
            learning_rate=settings["learning_rate"],
            weight_decay=0.0,
            warmup=0.0,
            decay="none",
            clip=0.0,
            keep="last",
        )

    @property
    def _encoder(self) -> dict[str, Any]:
        return {"name": "relu", "hidden": self.settings()["width"], "standardise": False}

    def _alone(self, target: Task, seed: int) -> tuple[list[float], Model]:
        """Accuracies of the target with no source, by its size, and the model of the largest."""
        accuracies = []
        for size in self.settings()["targets"]:
            part, training = first(target, size), self._training(size)
            run = Learner(self._encoder, paradigm="single", training=training, seed=seed, progress=False).fit(part)
            accuracies.append(100 * run.scores[target.name]["test"]["accuracy"])
        return accuracies, run.model

    def _from_source(self, target: Task, source: Task, seed: int) -> tuple[list[float], Model]:
        """The same with the source's representation and a last layer of the target's."""
        settings = self.settings()
        training = self._training(settings["source"])
        model = weighted_representation(
            target, [source], {source.name: 1.0}, encoder=self._encoder, training=training, seed=seed
        )
        assert target.test is not None
        train_features, test_features = (
            _features(model, Prepared.of(model.encoder, target.spec, examples))
            for examples in (target.train, target.test)
        )
        accuracies = []
        for size in settings["targets"]:
            layer = last_layer(train_features[0][:size], train_features[1][:size], self._training(size), seed)
            with torch.no_grad():
                logits = layer(test_features[0])
            accuracies.append(100 * float((logits.argmax(1) == test_features[1]).double().mean()))
        return accuracies, model


def name_of(flip: float) -> str:
    """How a source is called."""
    return f"q = {flip:g}"


@lru_cache(maxsize=2)
def teacher(seed: int, flip: float, inputs: int, width: int, by_heart: int, rate: float) -> nn.Module:
    """A network that has memorized random labels, a fraction of which was sampled again."""
    generator = np.random.default_rng([seed, 2])
    examples, labels = uniform(generator, by_heart, inputs), generator.integers(LABELS, size=by_heart)
    changed = generator.permutation(by_heart)[: round(flip * by_heart)]
    labels[changed] = generator.integers(LABELS, size=len(changed))
    torch.manual_seed(seed)
    device = Devices().device
    network = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, LABELS)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), rate)
    x, y = torch.from_numpy(examples).to(device), torch.from_numpy(labels).to(device)
    for _ in range(MAX_TEACHING):
        loss = F.cross_entropy(network(x), y)
        if loss < MEMORIZED_LOSS:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def uniform(generator: np.random.Generator, count: int, inputs: int) -> np.ndarray:
    """Inputs."""
    return generator.uniform(-0.5, 0.5, size=(count, inputs)).astype("float32")


def make_task(name: str, generator: np.random.Generator, taught_by: nn.Module, size: int, inputs: int) -> Task:
    """A task of fresh inputs that a teacher has labeled."""
    train, measured = uniform(generator, size, inputs), uniform(generator, MEASURED, inputs)
    device = next(taught_by.parameters()).device

    def labels(examples: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return taught_by(torch.from_numpy(examples).to(device)).argmax(1).cpu().numpy()

    return Task.from_arrays(
        name, train, labels(train), dev=False, test=(measured, labels(measured)), label_names=range(LABELS)
    )


def first(task: Task, size: int) -> Task:
    """The task with its first training examples alone."""
    return Task(task.spec, task.train.take(range(size)), test=task.test)


def last_layer(features: Tensor, labels: Tensor, training: Training, seed: int) -> nn.Module:
    """A linear layer trained on features that stay as they are, with the budget of a training run."""
    torch.manual_seed(seed)
    layer = nn.Linear(features.shape[1], LABELS).to(features)
    assert training.learning_rate is not None
    assert training.updates is not None
    optimizer = torch.optim.Adam(layer.parameters(), training.learning_rate)
    num_updates = 0
    while num_updates < training.updates:
        for positions in torch.randperm(len(features), device=features.device).split(training.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(layer(features[positions]), labels[positions]).backward()
            optimizer.step()
            num_updates += 1
    return layer


def gains_of(rows: Rows, seed: int) -> np.ndarray | None:
    """What each source adds to the target's accuracy at each size, [sources, sizes]; None where a run is missing."""
    accuracies = {row["cell"]["source"]: np.asarray(row["accuracies"]) for row in rows.of(seed=seed).rows}
    if not {ALONE, *map(name_of, FLIPS)} <= set(accuracies):
        return None
    return np.stack([accuracies[name_of(flip)] - accuracies[ALONE] for flip in FLIPS])


def _features(model: Model, prepared: Prepared) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        units = collect(model, prepared)
    units = units.take(np.argsort(units.examples))  # a batch may stand in another order than the examples
    device = model.device()
    return torch.from_numpy(units.features).float().to(device), torch.from_numpy(units.labels).to(device)


def _at(name: str, index: int) -> Callable[[Row], float]:
    return lambda row: float(row[name][index])


def _distances(rows: Rows, source: str) -> dict[int, float]:
    """By seed, what the target's best head costs more on the source's representation than on the target's own."""
    references, risks = (rows.by_seed(lambda row: row["risk"]["loss"], source=name) for name in (ALONE, source))
    return differences(risks, references)


def _percent(rows: Rows, source: str) -> Estimate | None:
    return rows.mean(lambda row: 100 * row["risk"]["accuracy"], source=source)


def _rank_correlation(first: Sequence[float], second: Sequence[float] | np.ndarray) -> float:
    return spearman(np.asarray(first), np.asarray(second))
