"""What two and four ranks learn against one, with every weighting, and what they send each other for it.

The same run, of a target and two sources on vectors, by one process, and by two and four with copies of the model (as
DistributedDataParallel has) and with a part of it each (FSDP2, `shard: true`): the largest differences of losses, task
weights and parameters after two epochs, in which some ranks have no example of a task. Then small transformers, with
low-rank updates, gradient checkpointing and two kinds of task.

The numbers that two ranks send are counted by wrapping the collective calls of torch.distributed, per update with an
inspection, for a narrow encoder and a wide one:

- `for_weights`: sums that a weighting asks for: losses, products, norms;
- `task_gradients`: each task's gradient added up over ranks, of which each rank gets a slice. Where each rank holds a
  part of the encoder the passes do that themselves, and gradients on heads are left;
- `passes`: parameters that are gathered, gradients that are added up: what a step takes in any case, more often where
  each task has a pass of its own;
- `rest`: counts and losses.

    python benchmarks/ranks.py --output benchmarks/results/ranks.json
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

import crosstask as ct
from crosstask.gradients import distributed as ranks
from crosstask.runs.environment import environment
from crosstask.training.trainer import Trainer
from crosstask.weighting import WEIGHTINGS
from crosstask.weighting.base import Weighting

RANKS = (2, 4)
TOLERANCE = 1e-5
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"weights": {"target": 1.0, "helpful": 0.5, "noise": 0.5}},
    "tawt": {"every": 2},
    "tawt-samples": {"every": 2, "warmup": 2},
    "metaweighting": {"step_size": 10.0},
    "torchjd": {"method": "UPGrad"},
}
MORE = [
    {"name": "tawt", "every": 2, "similarity": "dot"},
    {"name": "tawt", "every": 2, "similarity": "exact"},
    {"name": "gradnorm", "last_shared": 1},
    {"name": "torchjd", "method": "CAGrad", "c": 0.5},
    *(
        {"name": "torchjd", "method": method}
        for method in ("MGDA", "PCGrad", "NashMTL", "IMTLG", "AlignedMTL", "ConFIG", "GradDrop", "FAMO")
    ),
]
TRANSFORMERS: list[dict[str, Any]] = [
    {"architecture": "bert", "weighting": {"name": "tawt", "every": 2}, "gradient_checkpointing": True},
    {"architecture": "bert", "weighting": "mgda-ub"},
    {"architecture": "llama", "weighting": "mgda", "lora": True, "gradient_checkpointing": True},
    {"architecture": "llama", "weighting": {"name": "metaweighting", "step_size": 5.0}, "lora": True},
]
HIDDEN = {"narrow": 8, "wide": 64}
GRADIENT_CALLS = ("all_gather_single", "all_gather_into_tensor", "reduce_scatter_single", "reduce_scatter_tensor")
OTHER_CALLS = ("all_reduce", "all_gather", "broadcast")

Learned = dict[str, Any]


def weightings() -> list[dict[str, Any]]:
    """A section for each weighting, and some with other options."""
    return [*({"name": name, **OPTIONS.get(name, {})} for name in WEIGHTINGS), *MORE]


def make_tasks(size: int = 44) -> tuple[ct.Task, list[ct.Task]]:
    """A target with half of the examples, a source that helps and one that does not."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(size, 6)).astype("float32")
    target = ct.Task.from_arrays("target", vectors[: size // 2], vectors[: size // 2, 0] > 0)
    helpful = ct.Task.from_arrays("helpful", vectors, vectors[:, 0] + 0.2 * vectors[:, 1] > 0)
    noise = ct.Task.from_arrays("noise", vectors, generator.integers(3, size=size))
    return target, [helpful, noise]


def make_texts() -> tuple[ct.Task, list[ct.Task]]:
    """Texts of two label sets, and tagged sentences."""
    from helpers import WORDS, make_text

    generator = random.Random(0)
    texts = [make_text(i % 5, generator) for i in range(40)]
    stars = ct.Task.from_arrays("stars", texts[:25], [str(i % 5 + 1) for i in range(25)])
    polarity = ct.Task.from_arrays("polarity", texts[::-1], ["-+"[i % 5 < 2] for i in range(40)])
    words = [[generator.choice(WORDS) for _ in range(generator.randint(1, 12))] for _ in range(30)]
    tags = [["B-X" if word in WORDS[:4] else "O" for word in sentence] for sentence in words]
    return stars, [polarity, ct.Task.from_arrays("tags", words, tags)]


def learned(run: ct.Run) -> Learned:
    """What is compared of a run."""
    updates = [row for row in run.history if row["event"] == "update"]
    parameters = {name: tensor.tolist() for name, tensor in run.model.state_dict().items()}
    return {
        "losses": [row["losses"] for row in updates],
        "weights": [*(row["weights"] for row in updates), run.weights],
        "parameters": parameters,
    }


def fit_vectors(weighting: dict[str, Any], shard: bool, hidden: int = 7, **settings: Any) -> Learned:
    """One run on vectors."""
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "progress": False, "shard": shard, **settings}
    target, sources = make_tasks()
    learner = ct.Learner({"name": "relu", "hidden": hidden}, weighting=weighting, **settings)
    return learned(learner.fit(target, sources))


def fit_texts(case: dict[str, Any], shard: bool, folder: Path) -> Learned:
    """One run of a small transformer."""
    options = {key: value for key, value in case.items() if key not in ("architecture", "weighting")}
    encoder = {"name": str(folder / case["architecture"]), "dropout": 0.0, **options}
    settings = {"epochs": 1, "batch_size": 7, "learning_rate": 1e-3, "progress": False, "shard": shard}
    target, sources = make_texts()
    return learned(ct.Learner(encoder, weighting=case["weighting"], **settings).fit(target, sources))


# What is sent


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Numbers that this rank passes to collective calls inside, by what they are for."""
    sent = {"for_weights": 0, "task_gradients": 0, "passes": 0, "rest": 0}
    purposes = ["rest"]
    undo: list[Callable[[], None]] = []

    def wrap(owner: Any, name: str, count: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
        real = getattr(owner, name, None)
        if real is None:
            return

        def call(*arguments: Any, **options: Any) -> Any:
            count(arguments, options)
            return real(*arguments, **options)

        setattr(owner, name, call)
        undo.append(lambda: setattr(owner, name, real))

    def add(arguments: tuple[Any, ...], options: dict[str, Any], *, of_passes: bool) -> None:
        if not is_update:
            return
        tensors = [value for value in (*arguments, *options.values()) if isinstance(value, Tensor)]
        purpose = purposes[-1]
        if of_passes and purpose == "rest":
            purpose = "passes"
        sent[purpose] += max((tensor.numel() for tensor in tensors), default=0)

    for name in GRADIENT_CALLS:
        wrap(distributed, name, lambda arguments, options: add(arguments, options, of_passes=True))
    for name in OTHER_CALLS:
        wrap(distributed, name, lambda arguments, options: add(arguments, options, of_passes=False))

    def add_whole(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        sent["task_gradients"] += arguments[0].numel()

    wrap(ranks, "whole", add_whole)
    real_connect = Weighting.connect
    real_update = Trainer._update
    is_update = False

    def update(self: Trainer, *arguments: Any) -> Any:
        nonlocal is_update
        is_update = True
        try:
            return real_update(self, *arguments)
        finally:
            is_update = False

    def on_behalf(purpose: str, call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def with_purpose(values: Tensor) -> Tensor:
            purposes.append(purpose)
            try:
                return call(values)
            finally:
                purposes.pop()

        return with_purpose

    def connect(self: Weighting, reduce: Any, num_ranks: int, scatter: Any, rank: int) -> None:
        reduce, scatter = on_behalf("for_weights", reduce), on_behalf("task_gradients", scatter)
        real_connect(self, reduce, num_ranks, scatter, rank)

    Weighting.connect = connect  # type: ignore[method-assign]
    Trainer._update = update  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        Weighting.connect = real_connect  # type: ignore[method-assign]
        Trainer._update = real_update  # type: ignore[method-assign]
        for restore in undo:
            restore()


def sent_per_update(weighting: dict[str, Any], shard: bool, hidden: int) -> dict[str, float]:
    """Numbers that a rank sends in an update, the mean of four; without dev sets, evaluations or checkpoints."""
    section = {**weighting, "every": 1} if "every" in weighting else weighting
    if "warmup" in section:
        section["warmup"] = 0
    with counted() as sent:
        fit_vectors(section, shard, hidden, updates=4, evaluate_every=1000)
    return {purpose: count / 4 for purpose, count in sent.items()}


def work(output: Path, folder: Path) -> None:
    """All runs of one process or of all ranks together; the main one writes what it has learned."""
    result: dict[str, Any] = {"vectors": {}, "texts": {}, "sent": {}}
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    kinds = {"one": False} if num_ranks == 1 else {"copies": False, "shards": True}
    for kind, shard in kinds.items():
        for weighting in weightings():
            result["vectors"][f"{json.dumps(weighting)} {kind}"] = fit_vectors(weighting, shard)
            if num_ranks == 2:
                for size, hidden in HIDDEN.items():
                    sent = sent_per_update(weighting, shard, hidden)
                    result["sent"][f"{json.dumps(weighting)} {kind} {size}"] = sent
        for case in TRANSFORMERS:
            result["texts"][f"{json.dumps(case)} {kind}"] = fit_texts(case, shard, folder)
    if os.environ.get("RANK", "0") == "0":
        output.write_text(json.dumps(result), encoding="utf-8")
    if num_ranks > 1:
        distributed.barrier()
        os._exit(0)  # threads of torch's process groups can abort an interpreter that ends in its own way


# Comparison


def largest_difference(one: Any, two: Any) -> float:
    """Of two nested structures of numbers."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        return max((largest_difference(one[key], two[key]) for key in one), default=0.0)
    if isinstance(one, list) and one and isinstance(one[0], dict):
        assert len(one) == len(two)
        return max(largest_difference(first, second) for first, second in zip(one, two, strict=True))
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(two, dtype=float)).max(initial=0.0))


def start(num_ranks: int, output: Path, folder: Path) -> dict[str, Any]:
    """The runs of so many ranks, in processes of their own."""
    launch = [sys.executable]
    if num_ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    command = [*launch, __file__, "--work", str(output), "--folder", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def main() -> None:
    """Compare, count, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    if arguments.work is not None:
        work(arguments.work, arguments.folder)
        return
    from helpers import write_tiny_encoder

    differences: dict[str, dict[str, float]] = {}
    sent: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for architecture in {case["architecture"] for case in TRANSFORMERS}:
            (folder / architecture).mkdir()
            write_tiny_encoder(architecture, folder / architecture)
        one = start(1, folder / "1.json", folder)
        for num_ranks in RANKS:
            several = start(num_ranks, folder / f"{num_ranks}.json", folder)
            sent |= several["sent"]
            for group in ("vectors", "texts"):
                for key, found in several[group].items():
                    case, _, kind = key.rpartition(" ")
                    expected = one[group][f"{case} one"]
                    row = {what: largest_difference(expected[what], found[what]) for what in expected}
                    differences[f"{case} {kind} {num_ranks} ranks"] = row
                    mark = "" if max(row.values()) <= TOLERANCE else "  <-- differs"
                    print(f"{case} {kind} {num_ranks}", json.dumps(row) + mark, flush=True)
    largest = {what: max(row[what] for row in differences.values()) for what in ("losses", "weights", "parameters")}
    result = {"tolerance": TOLERANCE, "largest": largest, "differences": differences, "sent_per_update": sent}
    print(json.dumps(largest))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps({**result, "environment": environment()}, indent=1) + "\n")
    if max(largest.values()) > TOLERANCE:
        raise SystemExit("Some differ.")


if __name__ == "__main__":
    main()
