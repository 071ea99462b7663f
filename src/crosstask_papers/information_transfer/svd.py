"""SVD weights against label noise (Wu et al. 2020, Sec. 3.2 and 3.3, Figure 12)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch

from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.papers import INFORMATION_TRANSFER
from crosstask.runs.events import Row
from crosstask.weighting.svd import SVDWeighting
from crosstask_papers.data import path_of
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, mean_of, paired
from crosstask_papers.figures import dots
from crosstask_papers.rates import CHOOSING_SEED, chosen_rate, trials, without_trials

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

RATES, QUICK_RATES = (1e-3, 3e-3, 1e-2), (1e-3, 1e-2)
PUBLISHED_RATE = 1e-3
"""Of Rajpurkar et al. (2017), whose configuration the paper takes."""
NUM_PAIRS, QUICK_PAIRS = 10, 2
RAREST = 0.05
"""A label that fewer examples have, or lack, is in no pair: its AUC on a small test set says little."""
UPDATES, LONG_UPDATES = 300, 750
"""Where dev chooses the model; and where the last one is kept: of yeast the paper's 20 epochs."""
BATCH, HIDDEN = 32, 50
SCARCE = 1
"""Capacity of the shared layer below the number of tasks, where the paper's theory has something to say (Sec. 2.2)."""
DEV = 0.2
NOISE = 0.2


@dataclass(frozen=True)
class Setting:
    """Under what methods are compared.

    - `about`: for people;
    - `groups`: which tasks are trained together;
    - `noise`: fraction of the first task's training labels that are random;
    - `noisy_dev`: whether its dev labels are as noisy;
    - `keep`: the last model, or the one that is best on dev;
    - `capacity`: of the shared layer; None for the usual one.
    """

    about: str
    groups: Literal["pairs", "all"]
    noise: float = 0.0
    noisy_dev: bool = False
    keep: Literal["best", "last"] = "best"
    capacity: int | None = None

    @property
    def updates(self) -> int:
        """Of a run."""
        return LONG_UPDATES if self.keep == "last" else UPDATES


SETTINGS = {
    "last model": Setting("pairs, noisy train and dev labels, last model", "pairs", NOISE, True, "last"),
    "noisy dev": Setting("pairs, noisy train and dev labels, best on dev", "pairs", NOISE, True),
    "clean dev": Setting("pairs, noisy train labels, best on clean dev", "pairs", NOISE),
    "all, last model": Setting("all tasks, clean, last model", "all", keep="last"),
    "all": Setting("all tasks, clean, best on dev", "all"),
    "scarce": Setting(
        f"pairs, noisy train labels, best on clean dev, shared layer of {SCARCE}", "pairs", NOISE, capacity=SCARCE
    ),
    "clean pairs": Setting("pairs, clean, best on dev", "pairs"),
}
"""The most important first. A dev set is clean in no real study of noise, and the paper keeps the last model."""
AS_PUBLISHED = ("last model", "all, last model")
"""Settings that are also run at the published rate."""
QUICK_SETTINGS = ("last model", "clean dev", "all")

METHODS: dict[str, Any] = {
    "uniform": "uniform",
    "uncertainty": "uncertainty",
    "printed, rank 1": {"name": "svd", "rank": 1, "standardize": False, "normalize": False},
    "printed, full rank": {"name": "svd", "rank": len(FINDINGS), "standardize": False, "normalize": False},
    "ours, rank 1": {"name": "svd", "rank": 1},
    "ours, full rank": {"name": "svd", "rank": len(FINDINGS)},
}
PRINTED, OURS = ("printed, rank 1", "printed, full rank"), ("ours, rank 1", "ours, full rank")
KNOWING = {f"noisy task {weight:g}": weight for weight in (0.05, 0.2, 0.35)}
"""Fixed weights that know which of two tasks has the noise and give it this share: what weights could gain at all."""
NAMES = {
    "uniform": "unweighted",
    "uncertainty": "Kendall et al.",
    "printed, rank 1": "SVD as printed, rank 1",
    "printed, full rank": "SVD as printed, full rank",
    "ours, rank 1": "SVD standardized, rank 1",
    "ours, full rank": "SVD standardized, full rank",
}
PAPER = {
    ("pairs", "uniform"): "+1.0",
    ("pairs", "uncertainty"): "+0.4",
    ("all", "uniform"): "+0.4",
    ("all", "uncertainty"): "+0.1",
}
"""Gains of SVD weights in points of AUC: 10 pairs with noise (Sec. 3.3), all 14 tasks without (Sec. 3.2)."""


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
            "updates": {"best": UPDATES, "last": LONG_UPDATES},
            "batch_size": BATCH,
            "learning_rates": list(self.rates),
            "clip": 0.0,
            "dev": DEV,
            "noise": NOISE,
            "pairs": self.num_pairs,
        }

    @property
    def num_pairs(self) -> int:
        """How many pairs of tasks."""
        return QUICK_PAIRS if self.options.quick else NUM_PAIRS

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that every method tries."""
        return QUICK_RATES if self.options.quick else RATES

    @property
    def encoder(self) -> Any:
        """One layer of ReLU, unless another encoder of vectors is asked for."""
        return self.options.encoder or {"name": "relu", "hidden": HIDDEN}

    @property
    def setting_names(self) -> list[str]:
        """In the order of importance; another encoder has no capacity that could be made scarce."""
        names = QUICK_SETTINGS if self.options.quick else tuple(SETTINGS)
        return [name for name in names if SETTINGS[name].capacity is None or not self.options.encoder]

    def cells(self) -> list[RunKey]:
        """The trials of all learning rates."""
        pairs = ["+".join(pair) for pair in task_pairs(self.options.data, self.num_pairs)]
        arms = []
        for name in self.setting_names:
            for tasks in pairs if SETTINGS[name].groups == "pairs" else ["all"]:
                for method in methods_of(name):
                    arms.append({"setting": name, "tasks": tasks, "method": method})
        return trials(arms, self.rates)

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """Every method at the rate of its own; then some at the published one."""
        keys = []
        for setting in self.setting_names:
            groups = rows.of(setting=setting).values("tasks")
            for seed in self.used_seeds:
                for tasks in groups:
                    for method in methods_of(setting):
                        keys.append(_key(setting, tasks, method, rate_of(rows, setting, method), seed))
        for setting in AS_PUBLISHED:
            groups = rows.of(setting=setting).values("tasks")
            for seed in self.used_seeds:
                for tasks in groups:
                    for method in METHODS:
                        keys.append(_key(setting, tasks, method, PUBLISHED_RATE, seed))
        return list(dict.fromkeys(keys))

    def run(self, cell: RunKey) -> Row:
        """Train the tasks jointly; the mean AUC on dev and on test, whose labels are clean."""
        setting = SETTINGS[cell["setting"]]
        multilabel = multilabel_task(self.options.data)
        names = multilabel.labels if cell["tasks"] == "all" else tuple(cell["tasks"].split("+"))
        tasks = binary_tasks(multilabel, names, setting.noise, cell["seed"], noisy_dev=setting.noisy_dev)
        encoder = self.encoder
        if setting.capacity is not None:
            encoder = {**encoder, "hidden": setting.capacity}
        run = Learner(
            encoder,
            paradigm="normalized-joint",
            weighting=weighting_of(cell["method"], tasks),
            updates=setting.updates,
            keep=setting.keep,
            batch_size=BATCH,
            learning_rate=cell["rate"],
            clip=0.0,  # a limit would mean something else for weights that do not add up to one
            seed=cell["seed"],
            progress=False,
        ).fit(tasks)
        means = {
            split: 100.0 * float(np.nanmean([run.scores[task.name][split]["auc"] for task in tasks]))
            for split in ("dev", "test")
        }
        return {"score": means["test"], "dev": means["dev"], "weights": run.weights}

    def tables(self, rows: Rows) -> list[Table]:
        """Means over pairs or tasks, each pair as the paper trains it, what the noisy task counts, and the rates."""
        methods = [*METHODS, *KNOWING]
        head = ["", *(NAMES.get(method, method) for method in methods)]
        means, shares, rates = [], [], []
        for name in self.setting_names:
            about = SETTINGS[name].about
            means.append([about, *(mean_of(scores(rows, name, method).values()) for method in methods)])
            if name in AS_PUBLISHED:
                published = [mean_of(scores(rows, name, method, PUBLISHED_RATE).values()) for method in methods]
                means.append([f"{about} (published rate)", *published])
            if SETTINGS[name].noise:
                shares.append([about, *(mean_of(noisy_shares(rows, name, method)) for method in methods)])
            rates.append([about, *(_rate_text(rate_of(rows, name, method)) for method in methods)])
        pairs = []
        for pair in rows.of(setting="last model").values("tasks"):
            runs = [chosen(rows, "last model", method).of(tasks=pair) for method in methods]
            pairs.append([pair, *(run.mean() for run in runs)])
        about = SETTINGS["last model"].about
        return [
            Table("AUC in points", head, means, "Means over tasks and pairs; deviations over seeds."),
            Table(f"Each pair: {about}", ["pair", *head[1:]], pairs, "The first task of a pair has the noise."),
            Table("Share of the noisy task in the weights", head, shares, "After training; 0.5 is half of the loss."),
            Table("Learning rates", head, rates, "By the mean dev AUC of trials with a seed of their own."),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        """Each pair's gains of Algorithm 2 as printed over both others; of the two ranks, that which dev prefers."""
        points = []
        for name in ("last model", "noisy dev", "clean dev", "clean pairs"):
            svd, *others = (
                chosen(rows, name, method) for method in (best(rows, name, PRINTED), "uniform", "uncertainty")
            )
            for pair in svd.values("tasks"):
                gains = [paired(svd.by_seed(tasks=pair), other.by_seed(tasks=pair)) for other in others]
                if all(gains):
                    points.append((SETTINGS[name].about, pair, *(fmean(values) for values in gains)))
        named = {"x": "points over the unweighted loss", "y": f"points over {NAMES['uncertainty']}", "zero": True}
        return [dots("Gain of SVD weights as printed, pair by pair", points, **named)]

    def claims(self, rows: Rows) -> list[Claim]:
        """Gains of SVD weights; of the two ranks, and of the weights that know, those that the trials prefer on dev."""
        claims = []
        names = [name for name in self.setting_names if name != "clean pairs"]
        for name in names:
            setting = SETTINGS[name]
            for other in ("uniform", "uncertainty"):
                gains = _gains(rows, name, best(rows, name, PRINTED), other)
                text = f"SVD weights as printed beat {_called(other)}: {setting.about}"
                claims.append(Claim.of_gains(text, PAPER[setting.groups, other], gains, over="seeds", unit=" points"))
        for name in names:
            gains = _gains(rows, name, best(rows, name, OURS), "uniform")
            text = f"Standardized SVD weights (ours) beat {_called('uniform')}: {SETTINGS[name].about}"
            claims.append(Claim.of_gains(text, "–", gains, over="seeds", unit=" points"))
        for name in names:
            if SETTINGS[name].noise:
                gains = _gains(rows, name, best(rows, name, tuple(KNOWING)), "uniform")
                text = f"Fixed weights that know the noisy task beat {_called('uniform')}: {SETTINGS[name].about}"
                claims.append(Claim.of_gains(text, "–", gains, over="seeds", unit=" points"))
        return claims


def methods_of(setting: str) -> list[str]:
    """What is compared; weights that know the noise only where there is some."""
    return [*METHODS, *(KNOWING if SETTINGS[setting].noise else ())]


def weighting_of(method: str, tasks: Sequence[Task]) -> Any:
    """The weighting of a method as a recipe names it."""
    names = tuple(task.name for task in tasks)
    if method in KNOWING:
        return knowing(names, KNOWING[method])
    if method in PRINTED:
        return {"name": "fixed", "weights": printed_weights(tasks, METHODS[method])}
    return METHODS[method]


def printed_weights(tasks: Sequence[Task], options: dict[str, Any]) -> dict[str, float]:
    """Algorithm 2 as printed: its X is what goes into the model, not what the shared layer makes of it at random."""
    arguments = {name: value for name, value in options.items() if name != "name"}
    weighting = SVDWeighting(**arguments, tasks=[task.name for task in tasks])
    features, labels = {}, {}
    for task in tasks:
        features[task.name] = torch.as_tensor(np.asarray(task.train.inputs))
        labels[task.name] = torch.as_tensor(np.asarray(task.spec.encode(task.train)))
    weighting.fit_features(features, labels)
    return weighting.weights


def knowing(pair: tuple[str, ...], weight: float) -> dict[str, Any]:
    """Fixed weights of a pair whose first task is the noisy one."""
    noisy, other = pair
    return {"name": "fixed", "weights": {noisy: weight, other: 1.0 - weight}}


def rate_of(rows: Rows, setting: str, method: str) -> float | None:
    """The learning rate of a method in a setting, one for all pairs; None while trials are missing."""
    rates = rows.of(seed=CHOOSING_SEED).values("rate")
    return chosen_rate(rows, {"setting": setting, "method": method}, rates)


def chosen(rows: Rows, setting: str, method: str, rate: float | None = None) -> Rows:
    """The runs of a method in a setting that count, at its own rate or another one."""
    if rate is None:
        rate = rate_of(rows, setting, method)
    if rate is None:
        return Rows()
    return without_trials(rows).of(setting=setting, method=method, rate=rate)


def scores(rows: Rows, setting: str, method: str, rate: float | None = None) -> dict[int, float]:
    """By seed, the mean over the pairs of tasks; without seeds that some pair lacks."""
    runs = chosen(rows, setting, method, rate)
    groups = runs.values("tasks")
    means = {}
    for seed in runs.values("seed"):
        of_seed = [row["score"] for row in runs.of(seed=seed).rows]
        if len(of_seed) == len(groups):
            means[seed] = fmean(of_seed)
    return means


def noisy_shares(rows: Rows, setting: str, method: str) -> Iterator[float]:
    """What the noisy task has of the sum of the weights, run by run."""
    for row in chosen(rows, setting, method).rows:
        noisy, other = row["cell"]["tasks"].split("+")
        yield row["weights"][noisy] / (row["weights"][noisy] + row["weights"][other])


def best(rows: Rows, setting: str, methods: Sequence[str]) -> str:
    """The method whose trials, at its rate, have the best mean on dev."""

    def on_dev(method: str) -> float:
        trial_runs = rows.of(setting=setting, method=method, rate=rate_of(rows, setting, method), seed=CHOOSING_SEED)
        if not trial_runs.rows:
            return float("-inf")
        return fmean(row["dev"] for row in trial_runs.rows)

    return max(methods, key=on_dev)


def _gains(rows: Rows, setting: str, method: str, other: str) -> list[float]:
    return paired(scores(rows, setting, method), scores(rows, setting, other))


def _key(setting: str, tasks: str, method: str, rate: float | None, seed: int) -> RunKey:
    return RunKey.of(setting=setting, tasks=tasks, method=method, rate=rate, seed=seed)


def _called(method: str) -> str:
    return "the unweighted loss" if method == "uniform" else NAMES[method]


def _rate_text(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:g}"


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


def binary_tasks(
    multilabel: Task, names: tuple[str, ...], noise: float, seed: int, *, noisy_dev: bool = False
) -> list[Task]:
    """A binary task per label on the same examples; of the first one's training labels a fraction `noise` is random.

    With `noisy_dev` its dev labels are so too; test labels never are.
    """
    noisy_splits = ("train", "dev") if noisy_dev else ("train",)
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
            if split in noisy_splits and number == 0 and noise:
                hit = rng.random(len(values)) < noise
                values[hit] = rng.integers(0, 2, size=int(hit.sum()))
            splits[split] = Examples(examples.inputs, [str(value) for value in values], f"{name}, {split}")
        tasks.append(
            Task.assemble(
                name,
                splits["train"],
                splits["dev"],
                splits["test"],
                labels=["0", "1"],
                metric="auc",
                seed=seed,
                drop_overlap=True,
            )
        )
    return tasks
