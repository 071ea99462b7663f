"""`auto` on all targets of the bench with little time, beside the bench's own rows of the same labels.

One search a target, with the first number of labels of its suite and the labels of seed 0; what `auto` knows beforehand
leaves out the suite that is measured. The rows of other methods are those in `results/bench`: probe and stacking do not
depend on the machine, and the others trained the whole encoder on a card, for as long as it took. A measurement that
was stopped goes on.

    python benchmarks/auto_on_bench.py --data DATA --minutes 2 --output benchmarks/results/auto_on_bench.json
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from crosstask.baton import clock
from crosstask.runs.environment import environment
from crosstask.training.config import Training
from crosstask_papers.bench import Bench
from crosstask_papers.bench.choices import run_key
from crosstask_papers.bench.methods import METHODS, Settings
from crosstask_papers.bench.page import read_results
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.runs import row_of
from crosstask_papers.bench.suites import FULL

BENCH_ROWS = Path(__file__).parent.parent / "results" / "bench" / "cells.jsonl"
BESIDE = ("probe", "stacking", "single")


def measure(bench: Bench, suite: str, target: str, seed: int, minutes: float) -> dict[str, Any]:
    """One search."""
    found = bench.suite(suite)
    problem = bench.problem(run_key(found, target, found.labels[0], "auto", None, seed))
    started = clock()
    outcome = METHODS["auto"].run(problem, Settings(found.encoder, Training(), minutes))
    row = row_of(problem, outcome.scores, outcome.updates, clock() - started)
    names = ("score", "metric", "train", "test", "updates", "seconds")
    facts = {name: row[name] for name in names}
    return {"suite": suite, "target": target, "seed": seed, "minutes": minutes, "chosen": outcome.chosen, **facts}


def with_bench(rows: Sequence[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """Rows with what other methods of the bench have with the same labels, and the best of them in hindsight."""
    joined: list[dict[str, Any]] = []
    for row in rows:
        (suite,) = (suite for suite in FULL if suite.name == row["suite"])
        scores: dict[str, float] = {}
        for method in results.of_suite(suite).methods:
            by_seed = results.of_suite(suite).by_seed(row["target"], suite.labels[0], method)
            if method != "auto" and row["seed"] in by_seed:
                scores[method] = by_seed[row["seed"]]
        joined.append({**row, "bench": {name: round(score, 2) for name, score in scores.items()}})
    return joined


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means by suite, and over all targets what `auto` is ahead of the others by."""
    suites: dict[str, Any] = {}
    for name in dict.fromkeys(row["suite"] for row in rows):
        of_suite = [row for row in rows if row["suite"] == name]
        means = {"auto": statistics.fmean(row["score"] for row in of_suite)}
        for method in BESIDE:
            means[method] = statistics.fmean(row["bench"][method] for row in of_suite)
        means["best in hindsight"] = statistics.fmean(max(row["bench"].values()) for row in of_suite)
        suites[name] = {"targets": len(of_suite), **{method: round(mean, 2) for method, mean in means.items()}}
    ahead = {method: [row["score"] - row["bench"][method] for row in rows] for method in BESIDE}
    return {
        "suites": suites,
        "ahead": {method: round(statistics.fmean(gains), 2) for method, gains in ahead.items()},
        "behind_by_a_point": {method: sum(gain < -1.0 for gain in gains) for method, gains in ahead.items()},
        "late": sum(row["seconds"] > 60.0 * row["minutes"] for row in rows),
        "more_than_a_third_left": sum(row["seconds"] < 40.0 * row["minutes"] for row in rows),
    }


def main() -> None:
    """Run what is missing, a target of each suite in turn, and write everything after each search."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-summary", action="store_true", help="search for nothing, compare anew")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    bench, results = Bench(arguments.data), Results.of(read_results(BENCH_ROWS))
    result: dict[str, Any] = {"environment": environment(), "rows": []}
    if arguments.output.exists():
        result = json.loads(arguments.output.read_text())
    rows = result["rows"]
    done = {(row["target"], row["seed"], row["minutes"]) for row in rows}
    turns = zip_longest(*([(suite.name, target) for target in suite.targets] for suite in FULL))
    pairs = [pair for turn in turns for pair in turn if pair is not None]
    for suite, target in pairs:
        if arguments.only_summary or (target, arguments.seed, arguments.minutes) in done:
            continue
        rows.append(measure(bench, suite, target, arguments.seed, arguments.minutes))
        print(json.dumps(rows[-1]), flush=True)
        write(result, rows, results, arguments.output)
    write(result, rows, results, arguments.output)


def write(result: dict[str, Any], rows: Sequence[dict[str, Any]], results: Results, path: Path) -> None:
    """Everything so far."""
    result["rows"] = with_bench(rows, results)
    result["summary"] = summary(result["rows"])
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
