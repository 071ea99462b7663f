"""MetaWeighting judged by a tenth of each training set, or by the dev sets, next to uniform weights, with few labels.

A small TextCNN on newsgroups and reviews. Training texts that no run sees judge; the test sets stay aside, and seeds
are none of the experiments' own.

    python benchmarks/query_sets.py --data DIR --output benchmarks/results/query_sets.json --jobs 2
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilled_vectors import BATCH, FEW, LENGTH, UPDATES, cut

from crosstask.learner import Learner
from crosstask.runs.environment import environment
from crosstask.studies.executors import finished
from crosstask.studies.significance import paired_t_test
from crosstask_papers.metaweighting.experiments import RATE, TEXTCNN, TRAINING
from crosstask_papers.metaweighting.runs import BENCHMARKS, with_vectors

SEEDS = (100, 101, 102, 103)
NORMALISED = {"name": "metaweighting", "normalise": True, "keep_sum": True, "step_size": 0.2}
WEIGHTINGS: dict[str, Any] = {
    "uniform": "uniform",
    "a tenth of train": NORMALISED,
    "dev": {**NORMALISED, "query": "dev"},
}
"""Normalised steps, for with the paper's own the weights would end where they began."""


@dataclass(frozen=True)
class Trial:
    """One run; `data` is the folder of the data sets."""

    bench: str
    weighting: str
    seed: int
    data: Path


def run(trial: Trial) -> dict[str, Any]:
    """Mean accuracy on the texts that judge, and the final weights."""
    started, benchmark = time.perf_counter(), BENCHMARKS[trial.bench]
    tasks = [cut(task, FEW, trial.seed) for task in benchmark.read(trial.data, benchmark.texts[0])]
    small = {**TEXTCNN, "channels": 100, "max_length": LENGTH, "dropout": 0.3}
    training = {**TRAINING, "learning_rate": RATE, "batch_size": BATCH[trial.bench], "updates": UPDATES[FEW]}
    learner = Learner(
        with_vectors(small, trial.data), weighting=WEIGHTINGS[trial.weighting], seed=trial.seed, progress=False,
        training=training,
    )  # fmt: skip
    found = learner.fit(tasks)
    score = statistics.fmean(100 * scores["test"]["accuracy"] for scores in found.scores.values())
    row = {"bench": trial.bench, "weighting": trial.weighting, "seed": trial.seed, "score": score}
    return {**row, "weights": found.weights, "seconds": round(time.perf_counter() - started, 1)}


def table(path: Path) -> Iterator[str]:
    """Accuracy by what judges the weights, and what that has over uniform weights, run by run."""
    known = {
        (row["weighting"], row["bench"], row["seed"]): row["score"] for row in json.loads(path.read_text())["runs"]
    }
    yield "| weights judged by | " + " | ".join(BENCHMARKS) + " | over uniform weights |"
    yield "|---" * (2 + len(BENCHMARKS)) + "|"
    for name in WEIGHTINGS:
        own = {key[1:]: score for key, score in known.items() if key[0] == name}
        means = [
            f"{statistics.fmean(score for (b, _), score in own.items() if b == bench):.2f}" for bench in BENCHMARKS
        ]
        gains = [score - known["uniform", *key] for key, score in own.items()]
        p = paired_t_test(gains)
        over = "" if p is None or not any(gains) else f"{statistics.fmean(gains):+.2f}, p = {p:.2g}"
        yield f"| {'none (uniform)' if name == 'uniform' else name} | " + " | ".join(means) + f" | {over} |"


def main() -> None:
    """Run all trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    trials = [
        Trial(bench, weighting, seed, given.data) for seed in SEEDS for bench in BENCHMARKS for weighting in WEIGHTINGS
    ]
    found: dict[str, Any] = {"environment": environment(), "runs": []}
    found["environment"]["command"] = ["python", "benchmarks/query_sets.py", "--data", "DIR"]
    for _, row in finished(run, trials, given.jobs):
        print({key: row[key] for key in ("bench", "weighting", "seed", "score", "seconds")}, flush=True)
        found["runs"].append(row)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
