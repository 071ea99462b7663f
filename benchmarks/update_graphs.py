"""An update as CUDA graphs and as plain code: time, and how far the models are apart afterwards.

A target and sources with a batch of each in every update, as `crosstask train` makes them; the encoder has MiniLM's or
BERT's architecture and random weights. Both ways run one after the other in one process, each method beside plain joint
training (`uniform`). Milliseconds are those of a whole update, from the positions of its examples to the optimizer's
step, as the median over windows of ten updates. How far the models are apart is measured without dropout, after twenty
updates: with dropout both ways draw other random numbers wherever they use other kernels.

    python benchmarks/update_graphs.py --output benchmarks/results/update_graphs_gpu.json
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from many_runs import NUM_WORDS, write_encoder

METHODS: dict[str, dict[str, Any]] = {
    "uniform": {"weighting": "uniform"},
    "tawt every=1": {"weighting": {"name": "tawt", "every": 1}},
    "mgda": {"weighting": "mgda"},
    "gradnorm": {"weighting": "gradnorm"},
    "metaweighting": {"weighting": "metaweighting"},
    "label-transfer": {"weighting": "uniform", "transfer": [{"name": "label-transfer", "preset": "paper"}]},
}
WINDOW = 10
UPDATES_TO_COMPARE = 20


def make_tasks(num_tasks: int, length: int) -> list[Any]:
    """A target and sources of made-up texts, all of one length in tokens."""
    from crosstask.data.task import Task

    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(NUM_WORDS)])
    tasks = []
    for number in range(num_tasks):
        texts = [" ".join(rng.choice(words, length - 2)) for _ in range(640)]
        labels = [f"l{label}" for label in rng.integers(2 + number, size=len(texts))]
        tasks.append(Task.from_arrays(f"task{number}", texts, labels, dev=False))
    return tasks


@contextmanager
def timed(as_graphs: bool) -> Iterator[list[float]]:
    """The times at which updates end."""
    from crosstask.training import trainer

    ends: list[float] = []
    graphs_for, record_update = trainer.graphs_for, trainer.Trainer._record_update

    def record(self: Any, *arguments: Any) -> None:
        record_update(self, *arguments)
        if len(ends) % WINDOW == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()
        ends.append(time.perf_counter())

    trainer.Trainer._record_update = record  # type: ignore[method-assign]
    if not as_graphs:
        trainer.graphs_for = lambda devices, record: None  # type: ignore[assignment]
    try:
        yield ends
    finally:
        trainer.Trainer._record_update = record_update  # type: ignore[method-assign]
        trainer.graphs_for = graphs_for


def milliseconds(ends: list[float]) -> float:
    """Of an update: the median over windows of the second half."""
    marks = ends[::WINDOW]
    windows = [1000.0 * (late - early) / WINDOW for early, late in itertools.pairwise(marks)]
    return statistics.median(windows[len(windows) // 2 :])


def train(
    settings: dict[str, Any], options: dict[str, Any], tasks: list[Any], as_graphs: bool, updates: int | None = None
) -> dict[str, Any]:
    """One run; its model's parameters, its losses and milliseconds per update. One with `updates` has no dropout."""
    import crosstask

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    learner = crosstask.Learner(
        encoder={"name": settings["encoder"], "max_length": 512, "dropout": None if updates is None else 0.0},
        training={
            "updates": updates or settings["updates"], "batch_size": settings["batch_size"], "keep": "last",
            "precision": settings["precision"], "learning_rate": 2e-5,
        },
        paradigm="joint", progress=False, **options,
    )  # fmt: skip
    with timed(as_graphs) as ends:
        started = time.perf_counter()
        learner.fit(tasks[0], tasks[1:])
        seconds = time.perf_counter() - started
    rows = [row for row in learner.run.history if row["event"] == "update"]
    return {
        "milliseconds": milliseconds(ends) if updates is None else 0.0,
        "first_update_seconds": ends[0] - started,
        "seconds": seconds,
        "memory_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        "losses": [row["losses"]["task0"] for row in rows],
        "notes": [row["text"] for row in learner.run.history if row["event"] == "note"],
        "parameters": torch.cat([value.detach().flatten() for value in learner.run.model.parameters()]),
    }


def compare(arguments: argparse.Namespace, settings: dict[str, Any], methods: list[str], num_tasks: int) -> list[Any]:
    """Every method both ways."""
    rows = []
    tasks = make_tasks(num_tasks, settings["length"])
    base: dict[bool, float] = {}
    for method in methods:
        results = {}
        for as_graphs in (False, True):
            try:
                results[as_graphs] = train(settings, METHODS[method], tasks, as_graphs)
            except Exception as error:  # one method that fails must not hide the others
                rows.append({"method": method, "graphs": as_graphs, "error": f"{type(error).__name__}: {error}"[:500]})
                print(json.dumps(rows[-1]), flush=True)
        if len(results) < 2:
            continue
        plain, graphs = (
            train(settings, METHODS[method], tasks, as_graphs, UPDATES_TO_COMPARE) for as_graphs in results
        )
        difference = (plain["parameters"] - graphs["parameters"]).norm() / plain["parameters"].norm()
        for as_graphs, result in results.items():
            if method == "uniform":
                base[as_graphs] = result["milliseconds"]
            rows.append(
                {
                    "encoder": settings["architecture"], "tasks": num_tasks, "precision": settings["precision"],
                    "batch": [settings["batch_size"], settings["length"]], "method": method, "graphs": as_graphs,
                    "milliseconds": result["milliseconds"], "over_uniform": result["milliseconds"] / base[as_graphs],
                    "first_update_seconds": result["first_update_seconds"], "seconds": result["seconds"],
                    "memory_bytes": result["memory_bytes"], "notes": result["notes"],
                    "relative_distance_of_models": float(difference),
                    "largest_loss_difference": max(
                        abs(one - two) for one, two in zip(plain["losses"], graphs["losses"], strict=True)
                    ),
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def table(result: dict[str, Any]) -> list[str]:
    """Both ways beside each other, for the page of results."""
    lines = [
        "| encoder, batch, tasks | precision | method | ms plain | ms graphs | over uniform | models apart by |",
        "|---|---|---|---|---|---|---|",
    ]
    plain = {}
    for row in result["rows"]:
        if "error" in row:
            continue
        size, length = row["batch"]
        where = f"{row['encoder']}, {size} × {length}, {row['tasks']} | {row['precision']} | {row['method']}"
        if not row["graphs"]:
            plain[where] = row["milliseconds"]
            continue
        times = f"{plain[where]:.1f} | {row['milliseconds']:.1f} | {row['over_uniform']:.2f}"
        lines.append(f"| {where} | {times} | {row['relative_distance_of_models']:.0e} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--updates", type=int, default=80)
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--small", action="store_true", help="a tiny encoder, to try the script")
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--no-base", action="store_true", help="leave BERT-base out")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    from crosstask.runs.environment import environment

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        minilm, base = Path(folder) / "minilm", Path(folder) / "bert-base"
        write_encoder(minilm, 32 if arguments.small else 384, 1 if arguments.small else 6)
        settings = {"architecture": "minilm", "encoder": str(minilm), "batch_size": 32, "length": 32}
        settings["updates"] = arguments.updates
        several = [method for method in arguments.only if method != "label-transfer"]
        pair = [method for method in ("uniform", "label-transfer") if method in arguments.only]
        for precision in arguments.precision:
            settings["precision"] = precision
            rows += compare(arguments, settings, several, 4)
            rows += compare(arguments, settings, pair, 2)
        if not arguments.no_base and not arguments.small:
            write_encoder(base, 768, 12)
            settings |= {"architecture": "bert-base", "encoder": str(base), "length": 128}
            settings["updates"] = arguments.updates // 2
            rows += compare(arguments, settings, pair, 2)
    result = {"benchmark": "updates as CUDA graphs", "rows": rows, "environment": environment()}
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
