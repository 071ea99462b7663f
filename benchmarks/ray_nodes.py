"""Studies on a Ray cluster of three local nodes, one of which is killed, against the same studies on this machine.

`compare`, `transfer_matrix`, `capacity` and `auto` run twice: here, one run after another, and on the cluster, where a
node is killed without notice as soon as some runs are done. What they write is compared: the table, the matrix, the
curve and the leaderboard must be the same number by number, apart from times.

    python benchmarks/ray_nodes.py --output benchmarks/results/ray_nodes.json
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

import crosstask as ct
from crosstask.runs.environment import environment
from crosstask.studies.capacity import capacity
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.transfer_matrix import transfer_matrix

NUM_NODES = 3
MEMORY = 80 * 2**20
"""Of each node's store of objects."""
SETTINGS: dict[str, Any] = {"training": {"updates": 60, "batch_size": 16, "learning_rate": 0.01}, "progress": False}
TIMES = {"seconds", "cost"}


def tasks() -> list[ct.Task]:
    """Three tasks on vectors, of which two have much in common."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(200, 8)).astype("float32")
    made = []
    for name, other in (("one", 0.2), ("like", 0.4), ("unlike", 5.0)):
        labels = vectors[:, 0] + other * vectors[:, 1] > 0
        made.append(ct.Task.from_arrays(name, vectors[:120], labels[:120], test=(vectors[120:], labels[120:])))
    return made


RUNS_BEFORE = 3
"""One for each node, so that each is at work when one is killed."""
Study = Callable[[Path, dict[str, Any]], Any]


def run_compare(folder: Path, where: dict[str, Any]) -> Any:
    """Three methods, two targets."""
    comparison = ct.compare(
        tasks(), methods=["single", "joint", "joint+tawt"], targets=["one", "like"], encoder=ENCODER, seeds=2,
        output=folder, **SETTINGS, **where,
    )  # fmt: skip
    return comparison.to_json()


def run_matrix(folder: Path, where: dict[str, Any]) -> Any:
    """Every pair of tasks."""
    return transfer_matrix(tasks(), encoder=ENCODER, seeds=2, output=folder, **SETTINGS, **where).to_json()


def run_capacity(folder: Path, where: dict[str, Any]) -> Any:
    """Three widths."""
    study = capacity(tasks(), widths=[2, 4, 8], encoder=ENCODER, seeds=2, output=folder, **SETTINGS, **where)
    return study.to_json()


def run_auto(folder: Path, where: dict[str, Any]) -> Any:
    """All candidates, with more time than they take: leaderboard, choice and the scores of the last model."""
    target, *sources = tasks()
    result = ct.auto(target, sources, minutes=60, encoder=ENCODER, output=folder, **SETTINGS, **where)
    leaderboard = [line.to_json() for line in result.leaderboard]
    return {"leaderboard": leaderboard, "winner": result.winner, "scores": result.run.scores}


ENCODER = {"name": "relu", "hidden": 8}
STUDIES: dict[str, Study] = {
    "compare": run_compare,
    "transfer_matrix": run_matrix,
    "capacity": run_capacity,
    "auto": run_auto,
}


def without_times(data: Any) -> Any:
    """The same without what differs from run to run."""
    if isinstance(data, dict):
        return {key: without_times(value) for key, value in data.items() if key not in TIMES}
    if isinstance(data, list):
        return [without_times(value) for value in data]
    return data


@contextmanager
def cluster_of_nodes() -> Iterator[tuple[Cluster, list[Any]]]:
    """A cluster of local nodes with a CPU each, and this process connected to it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(NUM_NODES - 1)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield cluster, nodes
    finally:
        ray.shutdown()
        cluster.shutdown()


def num_runs(cells: Path) -> int:
    """Results in the file of a study, which begins with its settings."""
    return cells.read_text().count('"seconds":') if cells.is_file() else 0


class Killer(threading.Thread):
    """Kills a node as soon as the study has written some runs."""

    def __init__(self, cluster: Cluster, node: Any, cells: Path) -> None:
        super().__init__(daemon=True)
        self.cluster, self.node, self.cells = cluster, node, cells
        self.runs_before = -1

    def run(self) -> None:
        """Wait, and kill."""
        while num_runs(self.cells) < RUNS_BEFORE:
            time.sleep(0.05)
        self.runs_before = num_runs(self.cells)
        self.cluster.remove_node(self.node, allow_graceful=False)


def nodes_alive() -> int:
    """How many the cluster still counts on, once it has seen that one is gone."""
    for _ in range(60):
        count = sum(bool(node["Alive"]) for node in ray.nodes())
        if count < NUM_NODES:
            break
        time.sleep(1.0)
    return count


def measure(name: str, folder: Path) -> dict[str, Any]:
    """One study here and there."""
    study = STUDIES[name]
    here = study(folder / "here", {})
    with cluster_of_nodes() as (cluster, nodes):
        killer = Killer(cluster, nodes[-1], folder / "there" / CELLS_FILE)
        killer.start()
        started = time.perf_counter()
        there = study(folder / "there", {"on": "ray"})
        seconds = time.perf_counter() - started
        killer.join(timeout=30)
        alive = nodes_alive()
    return {
        "study": name,
        "same": without_times(here) == without_times(there),
        "nodes": NUM_NODES,
        "nodes_left": alive,
        "runs": num_runs(folder / "there" / CELLS_FILE),
        "runs_when_killed": killer.runs_before,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in STUDIES:
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(measure(name, Path(scratch)))
        print(rows[-1], flush=True)
    text = json.dumps({"environment": environment(), "studies": rows}, indent=2)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
