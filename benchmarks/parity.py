"""How near two ways to the same numbers are: ONNX to torch, and a stock Trainer with TAWT to a loop of one's own.

Tiny encoders with random weights, trained for a moment; tasks, inputs, models and the loop are those of tests, which
fail where these differences are larger than 1e-4 and 1e-5.

    cd tests; PYTHONPATH=../src:.:models:hugging_face python ../benchmarks/parity.py --output parity.json
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnx_problem import INPUTS, TEXTS, make_tasks, quick_export, scores
from test_trainer import plain_loop
from two_tasks import SIZES, largest_difference, models, parameters_of, trainer

import crosstask as ct
from crosstask.hugging_face import MultiTaskModel
from crosstask.runs.environment import environment
from helpers import write_tiny_encoder

ARCHITECTURES = ("bert", "roberta", "distilbert", "modernbert", "lstm")
LSTM = {"name": "lstm", "dimension": 8, "hidden": 6}
KINDS = {"stars": "classification", "topics": "multilabel", "tags": "tagging", "pairs": "pair", "grade": "regression"}
SOLVED = ("probe", "stacking")


class Encoders:
    """Tiny encoders by their architecture, each written once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, architecture: str) -> Any:
        if architecture == "lstm":
            return LSTM
        place = self.folder / architecture
        if not place.exists():
            place.mkdir(parents=True)
            write_tiny_encoder(architecture, place)
        return str(place)


def difference(run: Any, task: str, folder: Path) -> float:
    """The largest difference of a probability, or of a number, between the run and its graph."""
    graph = ct.load(run.export(folder, task, format="onnx"))
    return float(np.abs(scores(graph, task, INPUTS[task]) - scores(run, task, INPUTS[task])).max())


def of_architectures(encoders: Encoders, folder: Path) -> dict[str, dict[str, float]]:
    """By architecture and kind of task."""
    by_architecture: dict[str, dict[str, float]] = {}
    for architecture in ARCHITECTURES:
        first, *others = make_tasks().values()
        learner = ct.Learner(encoders(architecture), epochs=1, batch_size=8, learning_rate=1e-2, progress=False)
        run = learner.fit(first, others)
        row = {kind: difference(run, task, folder / f"{architecture}-{task}") for task, kind in KINDS.items()}
        by_architecture[architecture] = row
        print(architecture, row, flush=True)
    return by_architecture


def of_other_models(encoders: Encoders, folder: Path) -> dict[str, float]:
    """Of models that no training by gradient steps made, and of what auto finds."""
    tasks = make_tasks()
    differences: dict[str, float] = {}
    for paradigm in SOLVED:
        learner = ct.Learner(encoders("bert"), paradigm=paradigm, progress=False)
        run = learner.fit(tasks["stars"], [tasks["topics"]] if paradigm == "stacking" else [])
        differences[paradigm] = difference(run, "stars", folder / paradigm)
    ct.auto(
        tasks["stars"], [tasks["topics"]], encoder=encoders("bert"), minutes=0.5, updates=5, progress=False,
        output=folder / "auto",
    )  # fmt: skip
    run = ct.load(folder / "auto" / "run")
    differences["auto"] = difference(run, "stars", folder / "auto-graph")
    assert run.predict(TEXTS) == ct.load(folder / "auto-graph").predict(TEXTS)
    print(differences, flush=True)
    return differences


def of_the_trainer(encoders: Encoders, folder: Path) -> dict[str, float]:
    """After twelve updates, with a step and with two steps accumulated: parameters and weights."""
    differences: dict[str, float] = {}
    for accumulate in (1, 2):
        weighting = ct.TAWT(every=3)
        settings = {"gradient_accumulation_steps": accumulate}
        ours = trainer(encoders("bert"), folder, settings, weighting=weighting)
        ours.train()
        weighting.bind(list(SIZES), "stars")
        again = MultiTaskModel(models(encoders("bert")))
        weights, parameters = plain_loop(
            again, weighting, ours.get_train_dataloader(), updates=12, accumulate=accumulate
        )
        of_weights = max(abs(weights[task] - ours.weights[task]) for task in SIZES)
        differences[f"parameters, {accumulate} accumulated"] = largest_difference(parameters_of(ours.model), parameters)
        differences[f"weights, {accumulate} accumulated"] = of_weights
    print(differences, flush=True)
    return differences


def main() -> None:
    """Measure all, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, quick_export():
        folder = Path(name)
        encoders = Encoders(folder / "encoders")
        result = {
            "onnx": of_architectures(encoders, folder),
            "onnx_of_other_models": of_other_models(encoders, folder),
            "trainer": of_the_trainer(encoders, folder),
            "environment": environment(),
        }
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
