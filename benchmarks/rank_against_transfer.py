"""Do training-free scores tell which sources help? Their rank correlation with gains that were measured by training.

Each of six sentence tasks is the target once, with k labels and a dev set of its own, and the five others are sources.
The gain of a source is that of training it together with the target over the target alone, on dev, the same updates
for both, mean over seeds. No test set is read. A source never has a text that the target has.

    python benchmarks/rank_against_transfer.py --data DIR --output benchmarks/results/rank_against_transfer.json
    python benchmarks/rank_against_transfer.py --table benchmarks/results/rank_against_transfer.json
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import crosstask as ct
from crosstask.record import environment
from crosstask.sampling import balanced_subset
from crosstask.understanding.transfer_matrix import rank_correlation, transfer_matrix

FILES = {
    "MR": "rt-polarity.all.gz", "SUBJ": "subj.all.gz", "CR": "custrev.all.gz", "MPQA": "mpqa.all.gz",
    "TREC": "TREC.train.all.gz", "SST": "stsa.binary.train.gz",
}  # fmt: skip
ENCODER = {"name": "minilm", "freeze": True, "pooling": "mean", "hidden": 128, "max_length": 64}
LABELS, DEV, SOURCE = 100, 400, 1500


def read(data: Path, name: str, seed: int) -> ct.Task:
    """Some examples of a task, drawn by the seed."""
    whole = ct.Task.read(
        name, data / FILES[name], format="lines", encoding=["utf-8", "latin-1"], empty="drop", dev=False
    )
    chosen = np.random.default_rng(seed).permutation(len(whole.train))[: SOURCE + LABELS + DEV]
    return ct.Task.assemble(name, whole.train.take([int(i) for i in chosen]), dev=False, labels=whole.labels)


def as_target(task: ct.Task, seed: int) -> ct.Task:
    """k labels, balanced, and a dev set."""
    train = balanced_subset(list(task.train.labels), LABELS, np.random.default_rng(seed))
    rest = sorted(set(range(len(task.train))) - set(train))[:DEV]
    return ct.Task.assemble(task.name, task.train.take(train), dev=task.train.take(rest), labels=task.labels, seed=seed)


def as_source(task: ct.Task, target: ct.Task) -> ct.Task:
    """Without the target's texts, and with a few examples as the dev set that a matrix asks of every task."""
    assert target.dev is not None
    known = {*target.train.inputs, *target.dev.inputs}
    kept = [i for i, text in enumerate(task.train.inputs) if text not in known][: SOURCE + 50]
    parts = task.train.take(kept[50:]), task.train.take(kept[:50])
    return ct.Task.assemble(task.name, parts[0], dev=parts[1], labels=task.labels)


def measure(data: Path, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One target: what was measured, and what every score said."""
    tasks = {other: read(data, other, arguments.seed) for other in FILES}
    target = as_target(tasks[name], arguments.seed)
    sources = [as_source(task, target) for other, task in tasks.items() if other != name]
    started = time.perf_counter()
    ranked = ct.rank(target, sources, encoder=ENCODER, progress=False, examples=arguments.examples)
    ranking = time.perf_counter() - started
    started = time.perf_counter()
    matrix = transfer_matrix(
        [target, *sources], targets=[name], encoder=ENCODER, seeds=arguments.seeds, jobs=arguments.jobs,
        updates=arguments.updates, evaluate_every=arguments.updates // 5, progress=False,
    )  # fmt: skip
    measuring = time.perf_counter() - started
    scores = {row.source: {"combined": row.score, **row.scores} for row in ranked.rows}
    correlations = {}
    for score in next(iter(scores.values())):
        known = {source: found[score] for source, found in scores.items() if found.get(score) is not None}
        if len(known) > 1:
            correlations[score] = rank_correlation({name: known}, matrix).mean
    return {
        "target": name, "gains": matrix.gains()[name], "scores": scores, "correlations": correlations,
        "verdicts": {row.source: row.verdict for row in ranked.rows},
        "seconds": {"ranking": ranking, "measuring": measuring},
    }  # fmt: skip


def table(result: dict[str, Any]) -> str:
    """Markdown: a row per score."""
    rows = result["targets"]
    names = list(dict.fromkeys(score for row in rows for score in row["correlations"]))
    lines = ["| score | mean rank correlation with the measured gain | targets |", "|---|---|---|"]
    for name in names:
        found = [row["correlations"][name] for row in rows if name in row["correlations"]]
        found = [value for value in found if value == value and value is not None]
        if found:
            lines.append(f"| {name} | {statistics.fmean(found):+.2f} | {len(found)} |")
    cost = [row["seconds"]["ranking"] / row["seconds"]["measuring"] for row in rows]
    lines += ["", f"Ranking took {100 * statistics.median(cost):.1f}% of the time of measuring (features were cached)."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--targets", nargs="+", default=list(FILES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the examples that are drawn")
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--examples", type=int, default=1500, help="of each task that `rank` looks at")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text())), end="")
        return
    result: dict[str, Any] = {
        "benchmark": "rank against transfer", "encoder": ENCODER, "labels": LABELS, "dev": DEV, "source": SOURCE,
        "updates": arguments.updates, "seeds": arguments.seeds, "targets": [], "environment": environment(),
    }  # fmt: skip
    for name in arguments.targets:
        result["targets"].append(measure(arguments.data, name, arguments))
        last = result["targets"][-1]
        print(name, {key: round(value, 3) for key, value in last["gains"].items()}, last["correlations"], flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result), end="")


if __name__ == "__main__":
    main()
