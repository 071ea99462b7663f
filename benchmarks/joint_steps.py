"""Why joint training of MiniLM is behind single tasks on newsgroups: steps of the encoder, and how large they are.

Dev accuracies of single tasks and of all four together with uniform weights. Seeds are none of the experiments' own;
test accuracies are not kept.

    python benchmarks/joint_steps.py --data DIR --output benchmarks/results/joint_steps.json --jobs 12
    python benchmarks/joint_steps.py --table benchmarks/results/joint_steps.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.runs.environment import environment
from crosstask.studies.executors import finished
from crosstask_papers.metaweighting.experiments import NUM_EVALUATIONS, PRETRAINED, TRAINING
from crosstask_papers.metaweighting.runs import TOPICS_BENCHMARK, train_method

SEEDS = (100, 101)
METHODS = ("single", "uniform")
STEPS = {"300 updates": (300, 1), "300 updates, rate x 3": (300, 3), "900 updates": (900, 1)}
"""By name: updates, and by how much the usual rate is multiplied."""
RATE = 5e-5


@dataclass(frozen=True)
class Trial:
    """One run; `data` is the folder of the data sets."""

    steps: str
    method: str
    seed: int
    data: Path


def run(trial: Trial) -> dict[str, Any]:
    """Mean dev accuracy of the tasks."""
    started, sizes = time.perf_counter(), TOPICS_BENCHMARK.tuned
    updates, times = STEPS[trial.steps]
    training = {
        **TRAINING, "learning_rate": times * RATE, "batch_size": sizes.batch_size, "updates": updates,
        "evaluate_every": max(1, updates // NUM_EVALUATIONS),
    }  # fmt: skip
    found = train_method(
        TOPICS_BENCHMARK.tasks(trial.data, TOPICS_BENCHMARK.texts[0], sizes, trial.seed),
        trial.method,
        options={},
        encoder={"name": PRETRAINED, "max_length": sizes.max_length},
        training=training,
        seed=trial.seed,
    )
    row = {"steps": trial.steps, "method": trial.method, "seed": trial.seed, "dev": found["dev"]}
    return {**row, "seconds": round(time.perf_counter() - started, 1)}


def table(path: Path) -> Iterator[str]:
    """Dev accuracy by steps and method."""
    rows = json.loads(path.read_text())["runs"]
    yield "| | " + " | ".join(METHODS) + " |"
    yield "|---" * (1 + len(METHODS)) + "|"
    for steps in STEPS:
        cells = []
        for method in METHODS:
            found = [row["dev"] for row in rows if (row["steps"], row["method"]) == (steps, method)]
            cells.append(f"{statistics.fmean(found):.2f} ({len(found)})" if found else "–")
        yield f"| {steps} | " + " | ".join(cells) + " |"


def main() -> None:
    """Run all trials, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", type=Path, metavar="JSON")
    given = parser.parse_args()
    if given.table:
        print("\n".join(table(given.table)))
        return
    trials = [Trial(steps, method, seed, given.data) for seed in SEEDS for method in METHODS for steps in STEPS]
    found: dict[str, Any] = {"environment": environment(), "runs": []}
    found["environment"]["command"] = ["python", "benchmarks/joint_steps.py", "--data", "DIR"]
    for _, row in finished(run, trials, given.jobs):
        found["runs"].append(row)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
