"""Folders that version 0.1 wrote still load, predict what they predicted, and have a page."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import crosstask as ct
from command_line import crosstask

WRITTEN = Path(__file__).parent / "written_by_0_1"
PROBABILITIES = [0.34781, 0.44288, 0.60422]
"""Of the first class for the vectors below, by the version that wrote the run."""


def vectors():
    return np.random.default_rng(9).normal(size=(5, 6)).astype(np.float32)[:3]


def test_a_run_folder():
    run = ct.load(WRITTEN / "run")
    assert run.weights.keys() == {"target", "source"}
    assert [event["event"] for event in run.history][:2] == ["start", "task"]
    probabilities = [row["c0"] for row in run.predict_probabilities(vectors())]
    assert probabilities == pytest.approx(PROBABILITIES, abs=1e-4)


def test_an_export():
    exported = ct.load(WRITTEN / "export")
    (row,) = exported.predict_probabilities(["a good dog"])
    assert row["+"] == pytest.approx(0.52116, abs=1e-4)


def test_the_page_of_a_run(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(WRITTEN / "run", folder)
    result = crosstask("report", folder)
    assert result.code == 0, result.err
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "tawt" in page
    assert "Chen" in page  # the paper of the weighting, although the folder does not name it
