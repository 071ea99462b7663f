"""What is tortured: small tasks, and commands on them that take about a second each."""

import csv
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from helpers import make_text, write_tiny_encoder

OUTPUT = "run"
"""The folder that every command writes, in the folder of its sequence."""
SMALL_ENCODER = {"name": "mlp", "dimension": 8, "hidden": 8}
FROZEN_ENCODER = {"name": "bert", "freeze": True, "hidden": 8}
TRAINING = {"epochs": 3, "batch_size": 8, "checkpoint_every": 3}


@dataclass(frozen=True)
class Problem:
    """A command that is to be stopped.

    - `kind`: "train", "compare" or "auto";
    - `recipe`: the sections that differ from those of the others;
    - `options`: of the command.
    """

    name: str
    kind: str
    recipe: Mapping[str, object]
    options: tuple[str, ...] = ()
    has_workers: bool = False

    def arguments(self, data: Path, output: Path) -> list[str]:
        """The command line, for a start or, where the folder is there, to go on."""
        arguments = [self.kind, str(data / f"{self.name}.yaml"), "--output", output.name, *self.options]
        if self.kind == "train" and output.exists():
            arguments.append("--resume")
        return arguments


def _train(name: str, **recipe: object) -> Problem:
    return Problem(name, "train", recipe)


def _compare(name: str, *, jobs: int, seeds: int = 2, more: tuple[str, ...] = ()) -> Problem:
    recipe = {"training": {"updates": 6, "batch_size": 8, "checkpoint_every": 2}}
    options = ("--methods", "single,joint+tawt", "--seeds", str(seeds), "--jobs", str(jobs), *more)
    return Problem(name, "compare", recipe, options, has_workers=jobs > 1)


SWEPT = "small"
"""The run whose every call of the storage layer is hit once."""
PROBLEMS = [
    _train("joint-tawt", paradigm="joint", weighting={"name": "tawt", "every": 2}),
    _train("pretrain", paradigm="pretrain"),
    _train("label-transfer", paradigm="joint", transfer=["label-transfer"]),
    _train("frozen", paradigm="normalized-joint", encoder=FROZEN_ENCODER),
    _train("probe", paradigm="probe", encoder=FROZEN_ENCODER),
    _train("stacking", paradigm="stacking", encoder=FROZEN_ENCODER),
    _train("accumulate", paradigm="joint", training={**TRAINING, "accumulate": 2, "epochs": 6}),
    _train("patience", paradigm="joint", training={**TRAINING, "patience": 2, "epochs": 30, "learning_rate": 0.1}),
    _train("by-time", paradigm="joint", training={**TRAINING, "checkpoint_every": "0.001 s"}),
    _compare("compare", jobs=1, seeds=1, more=("--search", "learning_rate=0.001,0.1")),
    _compare("compare-keep", jobs=1, more=("--keep-runs",)),
    _compare("compare-workers", jobs=2, more=("--keep-runs",)),
    Problem("auto", "auto", {"training": {"updates": 6, "batch_size": 8}}, ("--minutes", "30", "--quiet")),
    _train(SWEPT, paradigm="single", training={"updates": 2, "batch_size": 8, "checkpoint_every": 1}),
]


def write_problems(folder: Path) -> list[str]:
    """The data, the recipes and a tiny text encoder; returns the names of the recipes."""
    folder.mkdir()
    rng = random.Random(0)
    stars: list[tuple[str, object]] = []
    polarity: list[tuple[str, object]] = []
    for number in range(40):
        stars.append((make_text(number % 5, rng), number % 5 + 1))
        polarity.append((make_text(4 * (number % 2), rng), ("neg", "pos")[number % 2]))
    for name, rows in {"stars": stars, "polarity": polarity}.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    write_tiny_encoder("bert", folder / "bert")
    tasks = {name: {"train": f"{name}.csv", "text": "text", "label": "label"} for name in ("stars", "polarity")}
    common = {"target": "stars", "tasks": tasks, "encoder": SMALL_ENCODER, "training": TRAINING}
    for problem in PROBLEMS:
        text = yaml.safe_dump({**common, **problem.recipe}, sort_keys=False)
        (folder / f"{problem.name}.yaml").write_text(text, encoding="utf-8")
    return [problem.name for problem in PROBLEMS]
