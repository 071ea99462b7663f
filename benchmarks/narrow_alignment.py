"""What alignment adds to pairs of sentence tasks by the width of the shared part and the rate of the matrices: trials.

The tasks of `transfer-sentences` with the MLP, judged by dev; seeds are none of the experiment's own.

    python benchmarks/narrow_alignment.py --data DIR --output benchmarks/results/narrow_alignment.json --jobs 2
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from crosstask.learner import Learner
from crosstask.runs.environment import environment
from crosstask.studies.executors import finished
from crosstask_papers.data import path_of
from crosstask_papers.information_transfer.sentence_tasks import TASKS, apart, split_task
from crosstask_papers.information_transfer.sentences import BATCH, ENCODERS, NUM_EVALUATIONS, UPDATES, VECTORS

SEEDS, WIDTHS, RATES = (100,), (20, 200), (0.03, 1.0)
RATE = 3e-3
"""Of the model."""


@dataclass(frozen=True)
class Trial:
    """One run, without matrices where `rate` is None; `data` is the folder of the data sets."""

    pair: tuple[str, str]
    width: int
    rate: float | None
    seed: int
    data: Path


def run(trial: Trial) -> dict[str, Any]:
    """Mean dev accuracy of both tasks."""
    tasks = apart([split_task(trial.data, name, trial.seed, None) for name in trial.pair])
    encoder = {**ENCODERS["mlp"], "hidden": trial.width, "train_vectors": True}
    aligned = [] if trial.rate is None else [{"name": "alignment", "rate": trial.rate, "measured": 0}]
    scores = (
        Learner(
            {**encoder, "vectors": path_of(trial.data, VECTORS)}, transfer=aligned, seed=trial.seed, progress=False,
            updates=UPDATES, batch_size=BATCH, learning_rate=RATE, evaluate_every=UPDATES // NUM_EVALUATIONS,
        ).fit(tasks).scores
    )  # fmt: skip
    row = {"pair": "+".join(trial.pair), "width": trial.width, "rate": trial.rate, "seed": trial.seed}
    return {**row, "dev": statistics.fmean(100 * found["dev"]["accuracy"] for found in scores.values())}


def table(path: Path) -> Iterator[str]:
    """Accuracy without matrices, what they add, and pairs that are better, by width and rate."""
    rows = json.loads(path.read_text())["runs"]
    found = {(row["pair"], row["seed"], row["width"], row["rate"]): row["dev"] for row in rows}
    yield "| width | rate | without | gain | pairs that are better |"
    yield "|---|---|---|---|---|"
    for width in WIDTHS:
        without = {key[:2]: dev for key, dev in found.items() if key[2:] == (width, None)}
        for rate in RATES:
            gains = [found[*key, width, rate] - dev for key, dev in without.items()]
            better = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
            means = f"{statistics.fmean(without.values()):.2f} | {statistics.fmean(gains):+.2f}"
            yield f"| {width} | {rate:g} | {means} | {better} |"


def main() -> None:
    """Run all trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    trials = [
        Trial(pair, width, rate, seed, given.data)
        for seed in SEEDS for pair in combinations(TASKS, 2) for width in WIDTHS for rate in (None, *RATES)
    ]  # fmt: skip
    runs = [row for _, row in finished(run, trials, given.jobs)]
    found: dict[str, Any] = {"environment": environment(), "runs": runs}
    found["environment"]["command"] = ["python", "benchmarks/narrow_alignment.py", "--data", "DIR"]
    given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
