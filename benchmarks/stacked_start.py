"""Label transfer between tags from a plain and from a stacked probe, next to joint training: coarse and fine entities.

The tasks of `metaxt-tagging` on a frozen MiniLM with a layer that learns. Seeds are none of the experiment's own, and
training sentences that no run sees judge; the test set stays aside.

    python benchmarks/stacked_start.py --data DIR --output benchmarks/results/stacked_start.json --jobs 2
"""

import argparse
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.learner import Learner
from crosstask.runs.environment import environment
from crosstask.studies.executors import finished
from crosstask.studies.significance import paired_t_test
from crosstask_papers.metaxt.methods import IMPROVED, IMPROVED_LABELS, STACKED, transferred
from crosstask_papers.metaxt.tagging import ENTITIES, QUICK_ENCODER, pair_of, sampled_tasks

SEEDS, SIZES, JUDGES = range(100, 106), (20, 100), 600
MULTI_TASK = "multi-task"
METHODS: dict[str, dict[str, Any]] = {
    MULTI_TASK: {"paradigm": "normalized-joint"},
    IMPROVED: transferred(IMPROVED_LABELS),
    STACKED: transferred(IMPROVED_LABELS, start="stacked"),
}
TRAINING: dict[str, Any] = {"updates": 300, "batch_size": 16, "learning_rate": 5e-3}
NAMES = {MULTI_TASK: "joint training", IMPROVED: "from a probe", STACKED: "from a stacked probe"}


@dataclass(frozen=True)
class Trial:
    """One run; `data` is the folder of the data sets."""

    method: str
    k: int
    seed: int
    data: Path


def run(trial: Trial) -> dict[str, Any]:
    """Span F1 on the sentences that judge."""
    whole, coarse = pair_of(trial.data, ENTITIES)
    target, source = sampled_tasks(whole, coarse, trial.k, trial.seed, {"source": 2000, "test": 1})
    assert target.dev is not None
    used = {tuple(words) for part in (target.train, target.dev) for words in part.inputs}
    rest = [place for place, words in enumerate(whole.train.inputs) if tuple(words) not in used]
    judges = whole.train.take(np.random.default_rng(trial.seed).permutation(rest)[:JUDGES].tolist())
    learner = Learner(QUICK_ENCODER, seed=trial.seed, progress=False, **TRAINING, **METHODS[trial.method])
    scores = learner.fit(replace(target, test=judges), [source]).scores[target.name]
    return {"method": trial.method, "k": trial.k, "seed": trial.seed, "score": 100 * scores["test"]["span_f1"]}


def table(path: Path) -> str:
    """Means by method and k, and the stacked start against each other one."""
    runs = json.loads(path.read_text())["runs"]
    lines = ["| | " + " | ".join(f"k = {k}" for k in SIZES) + " | stacked over it, p |"]
    lines.append("|---|" + "---|" * (len(SIZES) + 1))
    found = {(row["method"], row["k"], row["seed"]): row["score"] for row in runs}
    for method, name in NAMES.items():
        means = [statistics.fmean(found[method, k, seed] for seed in SEEDS) for k in SIZES]
        gains = [found[STACKED, k, seed] - found[method, k, seed] for k in SIZES for seed in SEEDS]
        p = paired_t_test(gains)
        said = "–" if method == STACKED or p is None else f"{statistics.fmean(gains):+.1f}, {p:.2g}"
        lines.append(f"| {name} | " + " | ".join(f"{mean:.1f}" for mean in means) + f" | {said} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, run what is asked for, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    trials = [Trial(method, k, seed, data) for seed in SEEDS for k in SIZES for method in NAMES]
    runs = []
    for _, row in finished(run, trials, arguments.jobs):
        print(row, flush=True)
        runs.append(row)
    runs.sort(key=lambda row: (row["seed"], row["k"], row["method"]))
    where = environment()
    where["command"] = ["python", "benchmarks/stacked_start.py", "--data", "DIR", "--jobs", str(arguments.jobs)]
    arguments.output.write_text(json.dumps({"environment": where, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
