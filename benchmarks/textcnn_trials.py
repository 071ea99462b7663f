"""Trials of TextCNN on MetaWeighting's benchmarks, judged by dev: what settings and steps of the weights are worth.

Seeds are none of the experiments' own; test accuracies are not kept.

    python benchmarks/textcnn_trials.py --data DIR --output benchmarks/results/textcnn_trials.json --jobs 16
    python benchmarks/textcnn_trials.py --table benchmarks/results/textcnn_trials.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crosstask.runs.environment import environment
from crosstask.studies.executors import finished
from crosstask_papers.metaweighting.experiments import NUM_EVALUATIONS, TEXTCNN, TRAINING, joined_vectors
from crosstask_papers.metaweighting.runs import BENCHMARKS, train_method, with_vectors

SEEDS = (100, 101)
LONG = {"topics": 2000, "sentiment": 1200}
JOINED = {"long": True, "vectors": joined_vectors(200)}
UNIFORM: dict[str, dict[str, Any]] = {
    "base": {},
    "drop5": {"dropout": 0.5},
    "lr1e-3": {"rate": 1e-3},
    "lr1e-3 drop5": {"rate": 1e-3, "dropout": 0.5},
    "long": {"long": True},
    "long drop5": {"long": True, "dropout": 0.5},
    "long lr1e-3 drop5": {"long": True, "rate": 1e-3, "dropout": 0.5},
    "drop5 len400": {"max_length": 400, "dropout": 0.5},
    "drop5 wd": {"weight_decay": 0.05, "dropout": 0.5},
    "drop5 frozen": {"train_vectors": False, "dropout": 0.5},
    "long joined": JOINED,
    "long joined drop3": {**JOINED, "dropout": 0.3},
    "long joined drop5": {**JOINED, "dropout": 0.5},
    "long joined drop5 len400": {**JOINED, "dropout": 0.5, "max_length": 400},
    "long joined len400": {**JOINED, "max_length": 400},
    "long joined len800": {**JOINED, "max_length": 800},
    "long joined len400 twice": {**JOINED, "max_length": 400, "times": 2},
    "long joined len400 channels400": {**JOINED, "max_length": 400, "channels": 400},
    "long joined 384": {"long": True, "vectors": joined_vectors(384)},
    "long joined 384 drop5": {"long": True, "vectors": joined_vectors(384), "dropout": 0.5},
}
"""By name: what differs from the experiments' settings, with uniform weights."""
NORMALISED = {"normalise": True, "keep_sum": True}
META: dict[str, dict[str, Any]] = {
    "meta 0.5": {"step_size": 0.5},
    "meta 50": {"step_size": 50.0},
    "meta n 0.02": {**NORMALISED, "step_size": 0.02},
    "meta n 0.2": {**NORMALISED, "step_size": 0.2},
}
"""Options of MetaWeighting, with a dropout of 0.5."""


@dataclass(frozen=True)
class Trial:
    """One run; `data` is the folder of the data sets."""

    bench: str
    name: str
    seed: int
    data: Path


def run(trial: Trial) -> dict[str, Any]:
    """Mean dev accuracy of the tasks, and final weights where they learn."""
    started, benchmark = time.perf_counter(), BENCHMARKS[trial.bench]
    given = dict(UNIFORM.get(trial.name, {"dropout": 0.5}))
    sizes = benchmark.full
    if given.pop("long", False):
        sizes = replace(sizes, updates=LONG[trial.bench] * given.pop("times", 1))
    sizes = replace(sizes, max_length=given.pop("max_length", sizes.max_length))
    training = {
        **TRAINING, "learning_rate": given.pop("rate", 3e-3), "batch_size": sizes.batch_size,
        "updates": sizes.updates, "evaluate_every": max(1, sizes.updates // NUM_EVALUATIONS),
    }  # fmt: skip
    if "weight_decay" in given:
        training["weight_decay"] = given.pop("weight_decay")
    found = train_method(
        benchmark.tasks(trial.data, benchmark.texts[0], sizes, trial.seed),
        "metaweighting" if trial.name in META else "uniform",
        options=META.get(trial.name, {}),
        encoder=with_vectors({**TEXTCNN, "max_length": sizes.max_length, **given}, trial.data),
        training=training,
        seed=trial.seed,
    )
    row = {"bench": trial.bench, "name": trial.name, "seed": trial.seed, "dev": found["dev"]}
    weights = {"final": found["weights"][-1]["weights"]} if trial.name in META else {}
    return {**row, **weights, "seconds": round(time.perf_counter() - started, 1)}


def table(path: Path) -> Iterator[str]:
    """Dev accuracy by trial and benchmark."""
    rows = json.loads(path.read_text())["runs"]
    yield "| trial | " + " | ".join(BENCHMARKS) + " |"
    yield "|---" * (1 + len(BENCHMARKS)) + "|"
    tried = {row["name"] for row in rows}
    for name in (name for name in (*UNIFORM, *META) if name in tried):
        cells = []
        for bench in BENCHMARKS:
            scores = [row["dev"] for row in rows if (row["bench"], row["name"]) == (bench, name)]
            cells.append(f"{statistics.fmean(scores):.2f} ({len(scores)})" if scores else "–")
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Run all trials, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="trials whose names have this in them")
    parser.add_argument("--table", type=Path, metavar="JSON")
    given = parser.parse_args()
    if given.table:
        print("\n".join(table(given.table)))
        return
    names = [name for name in (*UNIFORM, *META) if given.only in name]
    trials = [Trial(bench, name, seed, given.data) for seed in SEEDS for bench in BENCHMARKS for name in names]
    found: dict[str, Any] = {"environment": environment(), "runs": []}
    if given.output.exists():  # more trials join those that were run before
        found["runs"] = json.loads(given.output.read_text())["runs"]
        done = {(row["bench"], row["name"], row["seed"]) for row in found["runs"]}
        trials = [trial for trial in trials if (trial.bench, trial.name, trial.seed) not in done]
    for _, row in finished(run, trials, given.jobs):
        found["runs"].append(row)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
