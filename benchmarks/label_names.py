"""Heads that begin at the names of their labels, beside a probe: three sets of intents, from no label to ten of each.

Frozen MiniLM, linear models by a solver, published test sets. Up to two labels of an intent are drawn from the
published five, by three seeds; five and ten are the published sets.

    python benchmarks/label_names.py --data DIR --output benchmarks/results/label_names.json
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.task import Examples, Task
from crosstask.learner import Learner
from crosstask.runs.environment import environment
from crosstask_papers.bench.data_sets import INTENTS, published_few
from crosstask_papers.data import path_of

ENCODER = {"name": "minilm", "freeze": True, "max_length": 64}
SHOTS, DRAWN, SEEDS = (0, 1, 2, 5, 10), (1, 2), 3
METHODS = ("names", "probe")


def few_of(data: Path, name: str, shots: int, seed: int) -> Examples:
    """So many examples of each intent."""
    if shots not in DRAWN:
        return published_few(data, name, shots, seed)
    examples = published_few(data, name, 5, seed)
    order = np.random.default_rng(seed).permutation(len(examples)).tolist()
    taken: dict[str, list[int]] = {}
    for position in order:
        positions = taken.setdefault(examples.labels[position], [])
        if len(positions) < shots:
            positions.append(position)
    return examples.take(sorted(position for positions in taken.values() for position in positions))


def task_of(data: Path, name: str, shots: int, seed: int) -> Task:
    """A set of intents with so many labels of each, or none, and its test set."""
    path = path_of(data, f"intents/{name.lower()}.test.tsv")
    test = Task.read(name, path, False, format="tsv", header=False, label=0, text=1).train
    labels = sorted(set(published_few(data, name, 10, 0).labels))
    if not shots:
        return Task.unlabeled(name, label_names=labels, test=test)
    return Task.assemble(name, few_of(data, name, shots, seed), False, test, labels=labels)


def measure(data: Path, name: str, method: str, shots: int, seed: int) -> dict[str, Any]:
    """Test accuracy in percent."""
    started = time.perf_counter()
    task = task_of(data, name, shots, seed)
    run = Learner(ENCODER, paradigm=method, seed=seed, progress=False).fit(task)
    score = 100 * run.scores[name]["test"]["accuracy"]
    seconds = time.perf_counter() - started
    return {"data": name, "method": method, "shots": shots, "seed": seed, "score": score, "seconds": round(seconds, 1)}


def table(path: Path) -> str:
    """Means over seeds."""
    rows = json.loads(path.read_text())["runs"]
    lines = ["| data | head | " + " | ".join(str(shots) for shots in SHOTS) + " |", "|---" * (2 + len(SHOTS)) + "|"]
    for name in INTENTS:
        for method in METHODS:
            cells: list[str] = []
            for shots in SHOTS:
                scores = [
                    row["score"] for row in rows if (row["data"], row["method"], row["shots"]) == (name, method, shots)
                ]
                cells.append(f"{statistics.fmean(scores):.1f}" if scores else "–")
            lines.append(f"| {name} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    runs: list[dict[str, Any]] = []
    for name in INTENTS:
        for shots in SHOTS:
            for method in METHODS if shots else ("names",):
                for seed in range(SEEDS if shots in DRAWN else 1):
                    runs.append(measure(data, name, method, shots, seed))
                    print(runs[-1], flush=True)
    where = environment()
    where["command"] = ["python", "benchmarks/label_names.py", "--data", "DIR"]
    arguments.output.write_text(json.dumps({"environment": where, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
