"""Word vectors out of MiniLM next to those of GloVe, in a small TextCNN on newsgroups and reviews, few labels and all.

All tasks of a benchmark are trained together with uniform weights. Training texts that no run sees judge; the test sets
stay aside, and seeds are none of the experiments' own.

    python benchmarks/distilled_vectors.py --data DIR --output benchmarks/results/distilled_vectors.json --jobs 2
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.runs.environment import environment
from crosstask.studies.executors import finished
from crosstask.studies.significance import paired_t_test
from crosstask_papers.metaweighting.experiments import RATE, TEXTCNN, TRAINING
from crosstask_papers.metaweighting.runs import BENCHMARKS, with_vectors

SEEDS, DEV, JUDGES, LENGTH = (100, 101), 100, 200, 100
FEW, ALL = 100, 10**9
"""Training texts of a task."""
UPDATES, BATCH = {FEW: 150, ALL: 400}, {"topics": 16, "sentiment": 8}
GLOVE = TEXTCNN["vectors"]
VECTORS: dict[str, Any] = {
    "GloVe, 100": GLOVE,
    "MiniLM, 100": {"encoder": "minilm", "dimension": 100, "texts": 0},
    "MiniLM, 200": {"encoder": "minilm", "texts": 0},
    "MiniLM in texts, 200": {"encoder": "minilm", "texts": 2000},
    "both, 300": [GLOVE, {"encoder": "minilm", "texts": 0}],
    "both, in texts, 300": [GLOVE, {"encoder": "minilm", "texts": 2000}],
    "both, alone and in texts, 300": [
        GLOVE,
        {"encoder": "minilm", "texts": 0, "dimension": 100},
        {"encoder": "minilm", "texts": 2000, "dimension": 100},
    ],
}
"""Numbers of a word are those of all sources; with `texts`, MiniLM sees words where they stand, else alone."""


@dataclass(frozen=True)
class Trial:
    """One run; `data` is the folder of the data sets."""

    bench: str
    vectors: str
    size: int
    seed: int
    data: Path


def cut(task: Task, size: int, seed: int) -> Task:
    """So many texts to train on, others that choose the model, and others that judge."""
    order = np.random.default_rng(seed).permutation(len(task.train)).tolist()
    judges, dev, train = order[:JUDGES], order[JUDGES : JUDGES + DEV], order[JUDGES + DEV :][:size]
    parts = (task.train.take(places) for places in (train, dev, judges))
    return Task.assemble(task.name, *parts, labels=task.labels, metric="accuracy", seed=seed)


def run(trial: Trial) -> dict[str, Any]:
    """Mean accuracy on the texts that judge."""
    started, benchmark = time.perf_counter(), BENCHMARKS[trial.bench]
    tasks = [cut(task, trial.size, trial.seed) for task in benchmark.read(trial.data, benchmark.texts[0])]
    small = {**TEXTCNN, "channels": 100, "max_length": LENGTH, "dropout": 0.3, "vectors": VECTORS[trial.vectors]}
    updates = UPDATES[trial.size]
    training = {**TRAINING, "learning_rate": RATE, "batch_size": BATCH[trial.bench], "updates": updates}
    learner = Learner(with_vectors(small, trial.data), seed=trial.seed, progress=False, training=training)
    scores = learner.fit(tasks).scores
    row = {"bench": trial.bench, "vectors": trial.vectors, "size": trial.size, "seed": trial.seed}
    score = statistics.fmean(100 * found["test"]["accuracy"] for found in scores.values())
    return {**row, "score": score, "seconds": round(time.perf_counter() - started, 1)}


def table(path: Path) -> Iterator[str]:
    """Accuracy by vectors, benchmark and number of labels, and what vectors have over GloVe, run by run."""
    rows = json.loads(path.read_text())["runs"]
    places = [(bench, size) for bench in BENCHMARKS for size in UPDATES]
    titles = [f"{bench}, {'all' if size == ALL else size}" for bench, size in places]
    yield "| vectors | " + " | ".join(titles) + " | over GloVe |"
    yield "|---" * (2 + len(places)) + "|"
    known = {(row["vectors"], row["bench"], row["size"], row["seed"]): row["score"] for row in rows}
    for vectors in VECTORS:
        own = {key[1:]: score for key, score in known.items() if key[0] == vectors}
        means = [
            f"{statistics.fmean(found):.2f}" if (found := [own[key] for key in own if key[:2] == place]) else "–"
            for place in places
        ]
        gains = [score - known[next(iter(VECTORS)), *key] for key, score in own.items()]
        p = paired_t_test(gains)
        over = "" if p is None or not any(gains) else f"{statistics.fmean(gains):+.2f}, p = {p:.2g}"
        yield f"| {vectors} | " + " | ".join(means) + f" | {over} |"


def main() -> None:
    """Run all trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="vectors whose names have this in them")
    parser.add_argument("--labels", type=int, choices=UPDATES, help="only this many a task")
    given = parser.parse_args()
    trials = [
        Trial(bench, vectors, size, seed, given.data)
        for seed in SEEDS for size in UPDATES for bench in BENCHMARKS for vectors in VECTORS
        if given.only in vectors and given.labels in (None, size)
    ]  # fmt: skip
    found: dict[str, Any] = {"environment": environment(), "runs": []}
    found["environment"]["command"] = ["python", "benchmarks/distilled_vectors.py", "--data", "DIR"]
    if given.output.exists():  # more runs join those that were made before
        found["runs"] = json.loads(given.output.read_text())["runs"]
        done = {(row["bench"], row["vectors"], row["size"], row["seed"]) for row in found["runs"]}
        trials = [trial for trial in trials if (trial.bench, trial.vectors, trial.size, trial.seed) not in done]
    for _, row in finished(run, trials, given.jobs):
        print(row, flush=True)
        found["runs"].append(row)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
