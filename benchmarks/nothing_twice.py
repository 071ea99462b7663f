"""What a second run of one process still reads: the encoder, its texts, its features; and what imports cost.

Runs of a frozen and of a fine-tuned encoder, in turns: "before" forgets what the process has in memory before each run,
as if it were the first; "after" is how it is. Counted are readings of the encoder, texts that were tokenized, and
shards of features that were opened and checked. Imports are those of a new process that trains once.

    python benchmarks/nothing_twice.py --output benchmarks/results/nothing_twice.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import crosstask as ct
from crosstask.models.arrays import Ragged
from crosstask.models.encoders import feature_shards, pretrained, tokenization
from crosstask.models.encoders.hugging_face import Reading
from crosstask.runs.environment import environment

ENCODERS: dict[str, dict[str, Any]] = {
    "frozen": {"name": "minilm", "freeze": True, "pooling": "mean"},
    "fine-tuned": {"name": "minilm"},
}
NEW_PROCESS = """
import json, sys, time
started = time.perf_counter()
import torch
torch_seconds = time.perf_counter() - started
import transformers
from transformers import BertForSequenceClassification
import crosstask as ct
from crosstask.learner import Learner
imported = time.perf_counter() - started
texts = [f"a text of number {i}" for i in range(40)]
task = ct.Task.from_arrays("task", texts, ["a", "b"] * 20)
Learner({"name": "minilm", "freeze": True, "pooling": "mean"}, updates=5, progress=False).fit(task)
packages = ["sklearn", "pandas", "scipy.stats", "datasets", "peft", "torch._dynamo", "sympy"]
loaded = [name for name in packages if name in sys.modules]
print(json.dumps({"torch": torch_seconds, "torch_transformers_crosstask": imported,
                  "with_first_run": time.perf_counter() - started, "loaded": loaded}))
"""

counts: Counter[str] = Counter()


def count_calls() -> None:
    """Count what is read, tokenized and checked."""
    read, encode, check = Reading.read, tokenization.Tokenization._encode, feature_shards.map_checked

    def counted_read(self: Reading) -> pretrained.Pretrained:
        counts["encoder_readings"] += 1
        return read(self)

    def counted_encode(self: Any, keys: Sequence[Any], *arguments: Any) -> dict[str, Ragged]:
        counts["texts_tokenized"] += len(keys)
        return encode(self, keys, *arguments)

    def counted_check(path: Path) -> memoryview:
        counts["shards_checked"] += 1
        return check(path)

    Reading.read = counted_read  # type: ignore[method-assign]
    tokenization.Tokenization._encode = counted_encode  # type: ignore[method-assign, assignment]
    feature_shards.map_checked = counted_check


def forget() -> None:
    """Let the next run be the first of its process."""
    pretrained._in_memory.clear()
    feature_shards._OPEN.clear()


def make_tasks(num_texts: int) -> list[ct.Task]:
    """A target and two sources of texts of some 30 words."""
    tasks: list[ct.Task] = []
    for name in ("target", "source_1", "source_2"):
        texts = [f"{name} {i} " + "some words of a review that goes on for a while " * 3 for i in range(num_texts)]
        tasks.append(ct.Task.from_arrays(name, texts, ["good", "bad"] * (num_texts // 2)))
    return tasks


def measure(encoder: dict[str, Any], tasks: list[ct.Task], rounds: int) -> dict[str, Any]:
    """Runs with and without what is in memory, in turns; the first has computed all features."""

    def fit(seed: int) -> None:
        learner = ct.Learner(encoder, paradigm="joint", updates=2, batch_size=4, seed=seed, progress=False)
        learner.fit(tasks[0], tasks[1:])

    fit(0)
    ways: dict[str, Callable[[], None]] = {"before": forget, "after": lambda: None}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    calls: dict[str, dict[str, float]] = {}
    for name, begin in ways.items():
        begin()
        counts.clear()
        fit(1)
        calls[name] = {key: counts[key] for key in ("encoder_readings", "texts_tokenized", "shards_checked")}
    for turn in range(rounds):
        for name, begin in ways.items():
            begin()
            started = time.perf_counter()
            fit(turn)
            seconds[name].append(time.perf_counter() - started)
    medians = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    return {"seconds": medians, "ratio": round(medians["after"] / medians["before"], 3), "calls": calls}


def import_seconds(rounds: int) -> dict[str, Any]:
    """Of new processes, after one that warms the disk's cache."""
    results: list[dict[str, Any]] = []
    for _ in range(rounds + 1):
        output = subprocess.run([sys.executable, "-c", NEW_PROCESS], check=True, capture_output=True, text=True).stdout
        results.append(json.loads(output.splitlines()[-1]))
    timed = ("torch", "torch_transformers_crosstask", "with_first_run")
    medians = {name: round(statistics.median(result[name] for result in results[1:]), 2) for name in timed}
    return {"seconds": medians, "loaded": results[0]["loaded"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--texts", type=int, default=400, help="of each of three tasks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    count_calls()
    result: dict[str, Any] = {"texts": 3 * arguments.texts, "runs": {}}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CROSSTASK_CACHE"] = cache
        for name, encoder in ENCODERS.items():
            result["runs"][name] = measure(encoder, make_tasks(arguments.texts), arguments.rounds)
        result["imports"] = import_seconds(max(1, arguments.rounds // 2))
    result["environment"] = environment()
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
