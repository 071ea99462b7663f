"""A Ray cluster of several nodes, one of which is killed: the same results as on this machine."""

import threading
import time

import numpy as np
import pytest
from compare_problem import without_times

import crosstask as ct
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.transfer_matrix import transfer_matrix

HOW = {
    "encoder": {"name": "relu", "hidden": 6}, "training": {"updates": 20, "batch_size": 8, "learning_rate": 0.01},
    "seeds": 2, "progress": False,
}  # fmt: skip
MEMORY = 80 * 2**20


@pytest.fixture
def three_nodes(monkeypatch):
    """A cluster of three nodes with a CPU each; the last can be killed."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster, nodes[-1]
    ray.shutdown()
    cluster.shutdown()


def tasks():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(90, 4)).astype("float32")
    targets = []
    for name, other in (("one", 0.2), ("like", 0.4), ("unlike", 5.0)):
        targets.append(ct.Task.from_arrays(name, vectors, vectors[:, 0] + other * vectors[:, 1] > 0))
    return targets


@pytest.mark.slow
def test_a_killed_node_loses_nothing(three_nodes, tmp_path):
    cluster, node = three_nodes
    here = transfer_matrix(tasks(), output=tmp_path / "here", **HOW)
    cells = tmp_path / "there" / CELLS_FILE
    runs_before = []

    def kill_after_some_runs():
        while not (cells.is_file() and cells.read_text().count('"seconds":') > 3):
            time.sleep(0.02)
        runs_before.append(cells.read_text().count('"seconds":'))
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill_after_some_runs, daemon=True)
    killer.start()
    there = transfer_matrix(tasks(), output=tmp_path / "there", on="ray", **HOW)
    killer.join(timeout=60)
    assert runs_before[0] < 18
    assert without_times(there.to_json()) == without_times(here.to_json())
