"""Every task's gradient from one fused pass (`crosstask.gradients.fused`) against a pass per task: time of an update.

Texts are made up, of one length; a weighting that looks at gradients in every update trains some, once each way, and
again. An update is all that the learner does in one; the ratio is one of medians over rounds.

    python benchmarks/fused_gradients.py --output benchmarks/results/fused_gradients_gpu.json
    python benchmarks/fused_gradients.py --tasks 4 --updates 5 --output benchmarks/results/fused_gradients_cpu.json
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosstask.data.task import Task
from crosstask.gradients import fused as blockwise
from crosstask.learner import Learner
from crosstask.runs.environment import environment

WORDS = 20_000
ENCODERS: dict[str, dict[str, Any]] = {
    "textcnn": {"name": "textcnn", "dimension": 100, "channels": 200},
    "minilm": {"name": "minilm"},
}
WEIGHTINGS = ("mgda", "metaweighting")


def make_tasks(count: int, length: int) -> list[Task]:
    """Binary tasks on texts of frequent and rare words."""
    generator = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(WORDS)])
    found = []
    for number in range(count):
        texts = [" ".join(words[generator.zipf(1.3, size=length) % WORDS]) for _ in range(200)]
        found.append(Task.from_arrays(f"task {number}", texts, ["a", "b"] * 100, dev=False))
    return found


@contextmanager
def fused_on(devices: set[str]) -> Iterator[None]:
    """With one pass for all tasks on these devices."""
    before = blockwise.DEVICES
    blockwise.DEVICES = devices
    try:
        yield
    finally:
        blockwise.DEVICES = before


def seconds(tasks: list[Task], encoder: str, weighting: str, arguments: argparse.Namespace) -> float:
    """Of an update: what more updates take more, so that nothing that comes before or after counts."""
    taken = []
    for updates in (2, 2 + arguments.updates):
        learner = Learner(
            {**ENCODERS[encoder], "max_length": arguments.length}, weighting=weighting, progress=False,
            training={"updates": updates, "batch_size": arguments.batch_size, "keep": "last"},
        )  # fmt: skip
        started = time.perf_counter()
        learner.fit(tasks)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return (taken[1] - taken[0]) / arguments.updates


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All encoders, numbers of tasks and weightings, both ways in turn."""
    ways = {"apart": set[str](), "fused": {"cpu", "cuda"}}
    rows = []
    for encoder in arguments.encoders:
        for count in arguments.tasks:
            tasks = make_tasks(count, arguments.length)
            for weighting in WEIGHTINGS:
                times: dict[str, list[float]] = {way: [] for way in ways}
                for _ in range(arguments.rounds + 1):
                    for way, devices in ways.items():
                        with fused_on(devices):
                            times[way].append(seconds(tasks, encoder, weighting, arguments))
                medians = {way: statistics.median(found[1:]) for way, found in times.items()}  # the first warms up
                row = {"encoder": encoder, "tasks": count, "weighting": weighting, "seconds": medians}
                rows.append({**row, "ratio": medians["apart"] / medians["fused"]})
                print(rows[-1], flush=True)
    settings = {name: getattr(arguments, name) for name in ("batch_size", "length", "updates", "rounds")}
    return {"environment": environment(), "settings": settings, "rows": rows}


def table(results: list[dict[str, Any]]) -> list[str]:
    """Lines of Markdown."""
    lines = ["| machine | encoder | tasks | weighting | ms apart | ms fused | ratio |", "|---|---|---|---|---|---|---|"]
    for result in results:
        machine = (result["environment"]["gpus"] or ["CPU"])[0]
        for row in result["rows"]:
            apart, fused = (1000 * row["seconds"][way] for way in ("apart", "fused"))
            what = f"{machine} | {row['encoder']} | {row['tasks']} | {row['weighting']}"
            lines.append(f"| {what} | {apart:.0f} | {fused:.0f} | {row['ratio']:.2f} |")
    return lines


def main() -> None:
    """Read the command line, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS), choices=list(ENCODERS))
    parser.add_argument("--tasks", type=int, nargs="+", default=[4, 14])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    result = measure(arguments)
    settings = [part for part in sys.argv[1:] if part not in ("--output", str(arguments.output))]
    result["environment"]["command"] = ["python", "benchmarks/fused_gradients.py", *settings]
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
