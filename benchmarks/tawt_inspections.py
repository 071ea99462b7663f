"""How often TAWT should inspect gradients in a long run, and whether its weights should be averaged or smoothed.

Six sentence tasks, each the target in turn with 100 labels and the five others as sources with 1,000; MiniLM's features
and a shared layer, 1,000 updates, normalized joint training. Judged by 1,000 further examples of the target, which the
sources do without; test sets play no part, and seeds are none that an experiment shows.

    python benchmarks/tawt_inspections.py --data DIR --output benchmarks/results/tawt_inspections.json
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import crosstask as ct
from crosstask.runs.environment import environment
from crosstask_papers.data import SENTENCE_FILES, few, sentence_task, without

FIRST_SEED = 200
NUM_LABELS, NUM_DEV, NUM_SOURCE = 100, 1000, 1000
ENCODER = {"name": "minilm", "freeze": True, "hidden": 128, "max_length": 64}
TRAINING = {"batch_size": 32, "learning_rate": 1e-3, "keep": "last"}
ARMS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "every 50": {"every": 50},
    "every 50, average": {"every": 50, "average": True},
    "every 50, smoothing 0.001": {"every": 50, "smoothing": 1e-3},
    "2 inspections": {"inspections": 2},
    "4 inspections": {"inspections": 4},
    "8 inspections": {"inspections": 8},
    "4 inspections, average": {"inspections": 4, "average": True},
    "4 inspections, smoothing 0.001": {"inspections": 4, "smoothing": 1e-3},
    "4 inspections, smoothing 0.1": {"inspections": 4, "smoothing": 0.1},
    "1 inspection": {"inspections": 1},
}


def make_tasks(data: Path, target: str, seed: int) -> tuple[ct.Task, list[ct.Task]]:
    """The target with few labels, and sources without any of its texts."""
    target_task = few(sentence_task(data, target), NUM_LABELS, seed, dev=NUM_DEV)
    sources = []
    for name in SENTENCE_FILES:
        if name != target:
            sources.append(few(without(sentence_task(data, name), target_task), NUM_SOURCE, seed))
    return target_task, sources


def run(data: Path, target: str, arm: str, seed: int, updates: int) -> dict[str, Any]:
    """One run: the target's dev accuracy at its end, and its weight."""
    target_task, sources = make_tasks(data, target, seed)
    options = ARMS[arm]
    learner = ct.Learner(
        ENCODER,
        paradigm="normalized-joint",
        weighting=None if options is None else {"name": "tawt", **options},
        training={**TRAINING, "updates": updates},
        seed=seed,
        progress=False,
    )
    outcome = learner.fit(target_task, sources)
    accuracy = outcome.scores[target]["dev"]["accuracy"]
    return {"target": target, "arm": arm, "seed": seed, "dev": 100 * accuracy, "weight": outcome.weights[target]}


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean accuracy and weight of the target by arm, and the gain over plain training with its standard error."""
    plain = {(row["target"], row["seed"]): row["dev"] for row in rows if row["arm"] == "plain"}
    by_arm: dict[str, dict[str, float]] = {}
    for arm in ARMS:
        of_arm = [row for row in rows if row["arm"] == arm and (row["target"], row["seed"]) in plain]
        if not of_arm:
            continue
        by_seed: dict[int, list[float]] = {}
        for row in of_arm:
            by_seed.setdefault(row["seed"], []).append(row["dev"] - plain[row["target"], row["seed"]])
        gains = [statistics.fmean(values) for values in by_seed.values()]
        by_arm[arm] = {
            "dev": statistics.fmean(row["dev"] for row in of_arm),
            "weight of the target": statistics.fmean(row["weight"] for row in of_arm),
            "gain": statistics.fmean(gains),
            "standard error over seeds": statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0,
        }
    return by_arm


def main() -> None:
    """Run all arms, write after each run, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(FIRST_SEED, FIRST_SEED + arguments.seeds):
        for target in SENTENCE_FILES:
            for arm in ARMS:
                rows.append(run(arguments.data, target, arm, seed, arguments.updates))
        result = {
            "benchmark": "inspections of TAWT in a long run",
            "settings": {"encoder": ENCODER, "training": TRAINING, "updates": arguments.updates, "labels": NUM_LABELS},
            "summary": summary(rows),
            "rows": rows,
            "environment": environment(),
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    for arm, figures in summary(rows).items():
        print(arm, {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
