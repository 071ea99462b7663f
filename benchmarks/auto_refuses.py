"""Sources that cannot help, and ones that lead astray: whether `auto` keeps to the target alone.

Hand-made vectors: the target's classes lie in a plane of many dimensions. `shuffled` sources have labels dealt out at
random; `elsewhere` they belong to another plane, which they teach well; `reversed` they have the target's own classes,
the wrong way round; `helpful` ones, for comparison, know the target's plane. Every problem has another seed.

    python benchmarks/auto_refuses.py --output benchmarks/results/auto_refuses.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import crosstask as ct
from crosstask.runs.environment import environment

WIDTH, LABELS, SOURCE, TEST = 16, 60, 300, 1000
SORTS = ("shuffled", "elsewhere", "reversed", "helpful")
ENCODER = {"name": "relu", "hidden": 32}


def problem(sort: str, seed: int) -> tuple[ct.Task, list[ct.Task]]:
    """A target with two sources of this sort."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(WIDTH, 4)))[0]

    def draw(count: int, plane: slice) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.normal(size=(count, WIDTH)).astype("float32")
        points = inputs @ axes[:, plane]
        angle = np.arctan2(points[:, 1], points[:, 0]) + np.pi
        return inputs, np.minimum((angle / (2 * np.pi) * 3).astype(int), 2)

    names = np.array(["a", "b", "c"])
    inputs, classes = draw(LABELS, slice(0, 2))
    test, test_classes = draw(TEST, slice(0, 2))
    target = ct.Task.from_arrays("target", inputs, names[classes], test=(test, names[test_classes]))
    sources: list[ct.Task] = []
    for number in range(2):
        inputs, classes = draw(SOURCE, slice(2, 4) if sort == "elsewhere" else slice(0, 2))
        if sort == "shuffled":
            classes = rng.permutation(classes)
        if sort == "reversed":
            classes = (classes + 1) % 3
        sources.append(ct.Task.from_arrays(f"source {number}", inputs, names[classes]))
    return target, sources


def main() -> None:
    """All problems, and how often sources were used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for sort in SORTS:
        for seed in range(arguments.seeds):
            target, sources = problem(sort, seed)
            found = ct.auto(
                target, sources, minutes=arguments.minutes, seed=seed, encoder=ENCODER, updates=100, progress=False
            )
            alone = ct.auto(target, minutes=arguments.minutes, seed=seed, encoder=ENCODER, updates=100, progress=False)
            score = found.run.scores["target"]["test"]["accuracy"]
            score_alone = alone.run.scores["target"]["test"]["accuracy"]
            rows.append(
                {
                    "sources": sort,
                    "seed": seed,
                    "winner": found.winner,
                    "uses_sources": found.sources_help,
                    "accuracy": round(score, 4),
                    "accuracy_alone": round(score_alone, 4),
                    "seconds": found.facts["seconds"],
                }
            )
            print(rows[-1], flush=True)
    used: dict[str, str] = {}
    gains: dict[str, float] = {}
    for sort in SORTS:
        of_sort = [row for row in rows if row["sources"] == sort]
        used[sort] = f"{sum(row['uses_sources'] for row in of_sort)} of {len(of_sort)}"
        gains[sort] = round(float(np.mean([row["accuracy"] - row["accuracy_alone"] for row in of_sort])), 4)
    result = {"environment": environment(), "uses_sources": used, "mean_gain": gains, "rows": rows}
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(used, gains)


if __name__ == "__main__":
    main()
