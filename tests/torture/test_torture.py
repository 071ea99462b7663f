"""A few kills of the kill test; `make torture` has a thousand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


@pytest.mark.slow
def test_killed_runs_end_as_if_they_had_not_been(tmp_path):
    """At random moments, and at some calls of the storage layer; each call is hit by `make torture`."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "torture.run", "--kills", "16", "--sweep-every", "20", "--seed", "1"]
    command += [
        "--problems",
        "small,pretrain,compare,compare-keep",
        "--folder",
        str(tmp_path / "work"),
        "--json",
        str(results),
    ]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads(results.read_text())["rows"]
    assert rows["all"]["kills"] >= 16
    assert rows["all"]["identical"] == rows["all"]["sequences"]
