"""SVD weights against label noise (Wu et al. 2020, Sec. 3.2 and 3.3, Figure 12)."""

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.papers import INFORMATION_TRANSFER
from crosstask.runs.events import Row
from crosstask_papers.data import path_of
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, paired
from crosstask_papers.figures import dots

PAPER = {
    (0.0, "uniform"): "+0.4",
    (0.0, "uncertainty"): "+0.1",
    (0.2, "uniform"): "+1.0",
    (0.2, "uncertainty"): "+0.4",
}
"""Gains in points of AUC, by share of random labels and by what SVD weights are set against: without noise over all 14
tasks (Sec. 3.2), with noise over 10 pairs (Sec. 3.3)."""
NOISE = 0.2
GOAL = 1.0
"""Points of AUC over the unweighted loss that we aim for under noise."""

YEAST = "mulan/yeast"
CHEST = "chestxray14"
FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)

METHODS: dict[str, Any] = {
    "uniform": "uniform",
    "uncertainty": "uncertainty",
    "svd, rank 1": {"name": "svd", "rank": 1},
    "svd, full rank": {"name": "svd", "rank": len(FINDINGS)},
}
KNOWING = {f"noisy task {weight:g}": weight for weight in (0.05, 0.2, 0.35)}
"""Fixed weights that know which of two tasks has the noise and give it this share: what weights could gain at all."""
NAMES = {"uniform": "unweighted", "uncertainty": "Kendall et al."}
SVD = tuple(name for name in METHODS if name.startswith("svd"))
RATES = (3e-3, 1e-2)
NUM_PAIRS, QUICK_PAIRS = 10, 3
RAREST = 0.05
"""A label that fewer examples have, or lack, is in no pair: its AUC on a small test set says little."""
UPDATES, BATCH, HIDDEN = 300, 32, 50
SCARCE = 1
"""Capacity of the shared layer below the number of tasks, where the paper's theory has something to say (Sec. 2.2)."""
DEV = 0.2


class TransferSVD(Experiment):
    """Weights from the singular vectors of the labels' directions, for tasks that share their inputs."""

    name = "transfer-svd"
    title = "SVD weights for tasks with one input, with and without noisy labels"
    paper = INFORMATION_TRANSFER
    seeds, quick_seeds = 10, 2

    def settings(self) -> dict[str, Any]:
        """Training and sizes."""
        return {
            "data": "ChestX-ray14" if (self.options.data / CHEST).is_dir() else "yeast",
            "encoder": self.encoder,
            "updates": UPDATES,
            "batch_size": BATCH,
            "learning_rates": list(RATES),
            "dev": DEV,
            "noise": NOISE,
            "pairs": self.num_pairs,
        }

    @property
    def num_pairs(self) -> int:
        """How many pairs of tasks."""
        return QUICK_PAIRS if self.options.quick else NUM_PAIRS

    @property
    def encoder(self) -> Any:
        """One layer of ReLU, unless another encoder of vectors is asked for."""
        return self.options.encoder or {"name": "relu", "hidden": HIDDEN}

    def cells(self) -> list[RunKey]:
        """Pairs with noise, then all tasks, then pairs without."""
        pairs = ["+".join(pair) for pair in task_pairs(self.options.data, self.num_pairs)]
        usual = [
            RunKey.of(tasks=tasks, noise=noise, method=method, rate=rate, seed=seed)
            for seed in self.used_seeds
            for noise, groups in ((NOISE, pairs), (0.0, ["all"]), (0.0, pairs))
            for tasks in groups
            for method in (*METHODS, *(KNOWING if noise else ()))
            for rate in RATES
        ]
        scarce = [
            RunKey.of(tasks=tasks, noise=NOISE, method=method, rate=rate, capacity=SCARCE, seed=seed)
            for seed in self.used_seeds
            for tasks in pairs
            for method in (*METHODS, *KNOWING)
            for rate in RATES
        ]
        return usual + ([] if self.options.quick or self.options.encoder else scarce)

    def run(self, cell: RunKey) -> Row:
        """Train the tasks jointly; the mean AUC on dev, whose labels are clean, and on test."""
        multilabel = multilabel_task(self.options.data)
        names = multilabel.labels if cell["tasks"] == "all" else tuple(cell["tasks"].split("+"))
        tasks = binary_tasks(multilabel, names, cell["noise"], cell["seed"])
        weighting = METHODS.get(cell["method"]) or knowing(names, KNOWING[cell["method"]])
        capacity = dict(cell.values).get("capacity")
        run = Learner(
            {**self.encoder, "hidden": capacity} if capacity else self.encoder,
            paradigm="normalized-joint",
            weighting=weighting,
            updates=UPDATES,
            batch_size=BATCH,
            learning_rate=cell["rate"],
            seed=cell["seed"],
            progress=False,
        ).fit(tasks)
        means = {
            split: 100.0 * float(np.nanmean([run.scores[task.name][split]["auc"] for task in tasks]))
            for split in ("dev", "test")
        }
        return {"score": means["test"], "dev": means["dev"], "weights": run.weights}

    def tables(self, rows: Rows) -> list[Table]:
        """Means over pairs or tasks, and each pair under noise."""
        methods = [*METHODS, *KNOWING]
        head = ["", *(NAMES.get(method, method) for method in methods)]
        groups = {
            "pairs, 20% of one task's labels random": (NOISE, True),
            "all tasks": (0.0, False),
            "pairs": (0.0, True),
        }
        usual, scarce = rows.of(capacity=None), rows.of(capacity=SCARCE)
        lines = [
            [name, *(Rows(_scored(usual, noise, method, pairs)).mean() for method in methods)]
            for name, (noise, pairs) in groups.items()
        ]
        if scarce.rows:
            means = [Rows(_scored(scarce, NOISE, method, True)).mean() for method in methods]
            lines.append([f"pairs, 20% random, shared layer of {SCARCE}", *means])
        noisy = usual.of(noise=NOISE)
        single = [
            [pair, *(_chosen(noisy, m, True).mean(tasks=pair) for m in methods)] for pair in noisy.values("tasks")
        ]
        rates = ", ".join(
            f"{NAMES.get(m, m)} {_chosen(noisy, m, True).values('rate')[0]:g}"
            for m in methods
            if _chosen(noisy, m, True).rows
        )
        return [
            Table("AUC in points", head, lines, "Means and deviations over seeds."),
            Table("Each pair under noise", ["pair", *head[1:]], single, f"Learning rates, chosen on dev: {rates}."),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        """Each pair's gains over both others; of the two ranks, that which dev prefers."""
        rows, points = rows.of(capacity=None), []
        for noise, name in ((NOISE, f"{NOISE:.0%} of one task's labels random"), (0.0, "clean")):
            runs = rows.of(noise=noise)
            svd, *others = (_chosen(runs, m, True) for m in (_best_rank(rows, noise, True), "uniform", "uncertainty"))
            for pair in svd.values("tasks"):
                gains = [paired(svd.by_seed(tasks=pair), other.by_seed(tasks=pair)) for other in others]
                if all(gains):
                    points.append((name, pair, *(sum(values) / len(values) for values in gains)))
        named = {"x": "points over the unweighted loss", "y": f"points over {NAMES['uncertainty']}", "zero": True}
        return [dots("Gain of SVD weights, pair by pair", points, **named)]

    def claims(self, rows: Rows) -> list[Claim]:
        """Gains of SVD weights over both others; of its two ranks, that which dev prefers."""
        scarce, rows = rows.of(capacity=SCARCE), rows.of(capacity=None)
        claims = []
        for noise, what in ((NOISE, "with 20% of one task's labels random, 10 pairs"), (0.0, "all tasks, clean")):
            pairs = noise > 0
            rank = _best_rank(rows, noise, pairs)
            for other in ("uniform", "uncertainty"):
                gains = _gains(rows, noise, rank, other, pairs)
                text = f"SVD weights beat {'the unweighted loss' if other == 'uniform' else NAMES[other]}: {what}"
                claims.append(Claim.of_gains(text, PAPER[noise, other], gains, over="seeds", unit=" points"))
        gains = _gains(rows, NOISE, _best_rank(rows, NOISE, True), "uniform", True)
        text = "Goal: at least one point over the unweighted loss under noise"
        claims.append(Claim.of_gains(text, f"{GOAL:.1f}", gains, over="seeds", at_least=GOAL, unit=" points"))
        claims.append(_of_knowing(rows))
        return claims + (_scarce_claims(scarce) if scarce.rows else [])


def _of_knowing(rows: Rows, where: str = "") -> Claim:
    best = max(KNOWING, key=lambda name: _on_dev(rows, NOISE, name, True))
    text = f"{where}fixed weights that know the noisy task, the best on dev ({best}), beat the unweighted loss"
    return Claim.of_gains(text, "–", _gains(rows, NOISE, best, "uniform", True), over="seeds", unit=" points")


def _scarce_claims(rows: Rows) -> list[Claim]:
    """The same under noise where the shared layer is too small for both tasks."""
    where, rank = f"shared layer of {SCARCE}: ", _best_rank(rows, NOISE, True)
    claims = []
    for other in ("uniform", "uncertainty"):
        text = f"{where}SVD weights beat {NAMES[other]}, with 20% of one task's labels random"
        gains = _gains(rows, NOISE, rank, other, True)
        claims.append(Claim.of_gains(text, PAPER[NOISE, other], gains, over="seeds", unit=" points"))
    return [*claims, _of_knowing(rows, where)]


def knowing(pair: tuple[str, ...], weight: float) -> dict[str, Any]:
    """Fixed weights of a pair whose first task is the noisy one."""
    noisy, other = pair
    return {"name": "fixed", "weights": {noisy: weight, other: 1.0 - weight}}


def _best_rank(rows: Rows, noise: float, pairs: bool) -> str:
    """The SVD whose runs, at its best rate, have the best mean on dev."""
    return max(SVD, key=lambda method: _on_dev(rows, noise, method, pairs))


def _on_dev(rows: Rows, noise: float, method: str, pairs: bool) -> float:
    values = [row["dev"] for row in _chosen(rows.of(noise=noise), method, pairs).rows]
    return sum(values) / len(values) if values else float("-inf")


def _chosen(rows: Rows, method: str, pairs: bool) -> Rows:
    """A method's runs over pairs, or over all tasks, at the learning rate with the best mean on dev."""
    runs = Rows([row for row in rows.of(method=method).rows if (row["cell"]["tasks"] != "all") == pairs])
    return runs.of(rate=runs.best("rate"))


def _scored(rows: Rows, noise: float, method: str, pairs: bool) -> list[Row]:
    """By seed, the mean over the groups of tasks that every other seed has too."""
    runs = _chosen(rows.of(noise=noise), method, pairs)
    groups = runs.values("tasks")
    merged = []
    for seed in runs.values("seed"):
        scores = [value for tasks in groups for value in runs.by_seed(tasks=tasks, seed=seed).values()]
        if len(scores) == len(groups):
            merged.append({"cell": {"seed": seed}, "score": sum(scores) / len(scores)})
    return merged


def _gains(rows: Rows, noise: float, method: str, other: str, pairs: bool) -> list[float]:
    """Paired over seeds; each value is a mean over the pairs of tasks."""
    better, worse = (Rows(_scored(rows, noise, name, pairs)).by_seed() for name in (method, other))
    return [value - worse[seed] for seed, value in better.items() if seed in worse]


@cache
def multilabel_task(data: Path) -> Task:
    """The paper's data where it is at hand, else yeast; without dev."""
    if (data / CHEST).is_dir():
        train, test = (path_of(data / CHEST, f"{split}.csv") for split in ("train", "test"))
        return Task.read("findings", train, False, test, label=list(FINDINGS), features="rest", labels=FINDINGS)
    train, test = (path_of(data, f"{YEAST}-{split}.arff") for split in ("train", "test"))
    return Task.read("yeast", train, False, test, label=len(FINDINGS))


def task_pairs(data: Path, count: int) -> list[tuple[str, str]]:
    """Different pairs of tasks, drawn once and for all; the first of each is the one that gets noise."""
    task = multilabel_task(data)
    rates = np.asarray(task.spec.encode(task.train)).mean(axis=0)
    names = [name for name, rate in zip(task.labels, rates, strict=True) if RAREST <= rate <= 1.0 - RAREST]
    rng = np.random.default_rng(0)
    all_pairs = list(combinations(names, 2))
    pairs = [all_pairs[position] for position in rng.permutation(len(all_pairs))[:count]]
    return [(second, first) if rng.random() < 0.5 else (first, second) for first, second in pairs]


def binary_tasks(multilabel: Task, names: tuple[str, ...], noise: float, seed: int) -> list[Task]:
    """A binary task per label on the same examples; a share `noise` of the first one's training labels is random."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(multilabel.train)).tolist()
    cut = round(DEV * len(order))
    examples_by_split = {
        "train": multilabel.train.take(order[cut:]),
        "dev": multilabel.train.take(order[:cut]),
        "test": multilabel.test,
    }
    tasks = []
    for number, name in enumerate(names):
        column = multilabel.labels.index(name)
        splits = {}
        for split, examples in examples_by_split.items():
            assert examples is not None
            values = np.asarray(multilabel.spec.encode(examples))[:, column].astype(int)
            if split == "train" and number == 0 and noise:
                hit = rng.random(len(values)) < noise
                values[hit] = rng.integers(0, 2, size=int(hit.sum()))
            splits[split] = Examples(examples.inputs, [str(value) for value in values], f"{name}, {split}")
        tasks.append(
            Task.assemble(
                name, splits["train"], splits["dev"], splits["test"], labels=["0", "1"], metric="auc", seed=seed
            )
        )
    return tasks
