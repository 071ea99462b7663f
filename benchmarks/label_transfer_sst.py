"""Two classes to five: SST polarity as the source, SST fine as the target with k labels, every method on the same data.

The target has k labels, balanced, and a dev set of the same size that picks the update to keep; the source is SST
binary without those sentences. The same seed gives every method the same labels and the same start, and every method
that trains the encoder has the same number of updates. The whole test set measures; it chooses nothing.

    python benchmarks/label_transfer_sst.py --data DIR --encoder minilm --output results.json --processes 8
    python benchmarks/label_transfer_sst.py --data DIR --judge dev --methods ...      # to choose settings
    python benchmarks/label_transfer_sst.py --table results.json
"""

import argparse
import json
import multiprocessing
import statistics
import time
import traceback
from pathlib import Path
from typing import Any

Cell = dict[str, Any]

METHODS: dict[str, dict[str, Any]] = {
    "target only": {"paradigm": "single"},
    "multi-task, by size": {"paradigm": "joint", "schedule": "mixed"},
    "multi-task, target in every step": {"paradigm": "normalized-joint"},
    "probe": {"paradigm": "probe"},
    "stacking": {"paradigm": "stacking"},
    "XT": {"paradigm": "normalized-joint", "transfer": [{"name": "label-transfer", "meta": False}]},
    "MetaXT, as published": {
        "paradigm": "normalized-joint",
        "transfer": [{"name": "label-transfer", "train_on": "half"}],
    },
}
TRIALS: dict[str, dict[str, Any]] = {
    "published": {"train_on": "half"},
    "half, prior 0.3": {"train_on": "half", "prior": 0.3},
    "set, learn 0.5": {"hold": "set", "learn": 0.5},
    "set, learn 0.5, prior 0.3": {"hold": "set", "learn": 0.5, "prior": 0.3},
    "set, learn 0.5, gamma_2 3": {"hold": "set", "learn": 0.5, "gamma_2": 3.0},
    "set, learn 0.7, prior 1": {"hold": "set", "learn": 0.7, "prior": 1.0},
}
"""What `MetaXT, improved` may be; a run with `--judge dev` chooses."""
METHODS |= {
    f"trial: {name}": {"paradigm": "normalized-joint", "transfer": [{"name": "label-transfer", **options}]}
    for name, options in TRIALS.items()
}
IN_TABLE = [name for name in METHODS if not name.startswith("trial: ")]


def best_trial(path: Path) -> str:
    """The trial with the best mean over what all trials have run."""
    cells = [c for c in json.loads(path.read_text())["cells"] if c["method"].startswith("trial: ") and "accuracy" in c]
    assert all(cell["judge"] == "dev" for cell in cells), "test data chooses nothing"
    found: dict[str, dict[tuple[int, int], float]] = {}
    for cell in cells:
        found.setdefault(cell["method"], {})[cell["k"], cell["seed"]] = cell["accuracy"]
    common = set.intersection(*(set(scores) for scores in found.values()))
    return max(found, key=lambda name: sum(found[name][pair] for pair in common))


def tasks(data: Path, k: int, seed: int, judge: str) -> tuple[Any, Any]:
    """The target with k labels and the source without the target's sentences."""
    import numpy as np

    import crosstask as ct
    from crosstask.sampling import balanced_subset

    fine = ct.Task.read(
        "fine", data / "stsa.fine.train.gz", dev=str(data / "stsa.fine.dev"), test=str(data / "stsa.fine.test.gz"),
        format="lines", empty="drop",
    )  # fmt: skip
    binary = ct.Task.read("polarity", data / "stsa.binary.train.gz", format="lines", empty="drop", dev=False)
    generator = np.random.default_rng(seed)
    # As many for dev as for training; what dev takes is drawn from what training left.
    everything = list(range(len(fine.train)))
    train = balanced_subset(list(fine.train.labels), k, generator)
    rest = sorted(set(everything) - set(train))
    dev = [rest[i] for i in balanced_subset([fine.train.labels[i] for i in rest], k, generator)]
    used = {fine.train.inputs[i] for i in [*train, *dev]}
    kept = [i for i, text in enumerate(binary.train.inputs) if text not in used]
    measured = fine.splits[judge]
    target = ct.Task.assemble(
        "fine", fine.train.take(train), dev=fine.train.take(dev), test=measured, labels=fine.labels, seed=seed
    )
    return target, ct.Task.assemble("polarity", binary.train.take(kept), dev=False)


def run_cell(cell: Cell) -> Cell:
    """One method, k and seed."""
    import torch

    import crosstask as ct

    torch.set_num_threads(cell["threads"])
    started = time.perf_counter()
    try:
        target, source = tasks(Path(cell["data"]), cell["k"], cell["seed"], cell["judge"])
        options = dict(METHODS[cell["method"]])
        settings = {
            "updates": cell["updates"], "batch_size": cell["batch_size"], "learning_rate": cell["learning_rate"],
            "evaluate_every": max(1, cell["updates"] // 10),
        }  # fmt: skip
        if options["paradigm"] in ("probe", "stacking"):
            settings = {}
        settings |= {key: options.pop(key) for key in ("schedule",) if key in options}
        encoder = {"name": cell["encoder"], "max_length": 64, "pooling": cell["pooling"]}
        learner = ct.Learner(encoder, seed=cell["seed"], progress=False, **options, **settings)
        run = learner.fit(target, [] if options["paradigm"] in ("single", "probe") else [source])
        scores = run.scores["fine"]
        cell = {**cell, "accuracy": scores["test"]["accuracy"], "macro_f1": scores["test"].get("macro_f1"),
                "own_dev": scores["dev"]["accuracy"]}  # fmt: skip
        if any("label_map" in row for row in run.history):
            cell["label_map"] = run.label_map
    except Exception:
        cell = {**cell, "error": traceback.format_exc()[-1500:]}
    cell["seconds"] = round(time.perf_counter() - started, 1)
    return cell


def table(cells: list[Cell]) -> str:
    """Markdown: a row per method, a column per k; mean and deviation over seeds."""
    sizes = sorted({cell["k"] for cell in cells})
    lines = ["| accuracy | " + " | ".join(f"k = {k}" for k in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for method in dict.fromkeys(cell["method"] for cell in cells):
        row = []
        for k in sizes:
            found = [100 * c["accuracy"] for c in cells if c["method"] == method and c["k"] == k and "accuracy" in c]
            spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
            row.append(f"{statistics.mean(found):.1f}{spread} ({len(found)})" if found else "–")
        lines.append(f"| {method} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with the files stsa.*")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--methods", nargs="+", default=IN_TABLE)
    parser.add_argument("--k", nargs="+", type=int, default=[20, 50, 100, 200, 500])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--judge", choices=["dev", "test"], default="test")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--improved", type=Path, help="results of trials judged by dev: the best one joins the table")
    parser.add_argument("--pooling", choices=["stock", "mean"], default="stock")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which no further cell is begun")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", nargs="+", type=Path, help="print a table of result files and stop")
    arguments = parser.parse_args()
    if arguments.table:
        print(table([cell for path in arguments.table for cell in json.loads(path.read_text())["cells"]]), end="")
        return
    from crosstask.record import environment

    methods = list(arguments.methods)
    if arguments.improved:
        methods.append(best_trial(arguments.improved))
    same = {
        "judge": arguments.judge, "updates": arguments.updates, "batch_size": arguments.batch_size,
        "learning_rate": arguments.learning_rate, "data": str(arguments.data), "encoder": arguments.encoder,
        "threads": arguments.threads, "pooling": arguments.pooling,
    }  # fmt: skip
    todo = [
        {"method": method, "k": k, "seed": seed, **same}
        for seed in arguments.seeds for k in arguments.k for method in methods
    ]  # fmt: skip
    started = time.perf_counter()
    cells: list[Cell] = []

    def save() -> None:
        plain = [{key: v for key, v in cell.items() if key not in ("data", "encoder", "threads")} for cell in cells]
        if arguments.output:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            found = {"benchmark": "label transfer on SST", "cells": plain, "environment": environment()}
            arguments.output.write_text(json.dumps(found, indent=1) + "\n")

    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes) as pool:
        for cell in pool.imap_unordered(run_cell, todo):
            cells.append(cell)
            shown = cell.get("error", "")[-300:] or f"{cell['accuracy']:.3f} own dev {cell['own_dev']:.3f}"
            print(cell["method"], cell["k"], cell["seed"], shown, cell["seconds"], flush=True)
            if len(cells) % 8 == 0:
                save()
            if time.perf_counter() - started > arguments.stop_after:
                break
        save()
        pool.terminate()
    print(table(cells), end="")


if __name__ == "__main__":
    main()
