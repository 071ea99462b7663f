"""Folders as pages read them: without torch, of version 0.1, and damaged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import write_comparison, write_run

import crosstask
from crosstask.errors import CrossTaskError
from crosstask.papers import MGDA, TAWT
from crosstask.report import write_page
from crosstask.report.comparison_view import read_comparison
from crosstask.report.files import COMPARISON_FILE, Metrics, RunFiles, from_json
from crosstask.report.run_view import run_view
from crosstask.runs.record import HISTORY_FILE, METRICS_FILE, PREDICTIONS_FILE, RECIPE_FILE

WITHOUT_TORCH = """
import sys
from pathlib import Path
sys.modules["torch"] = None  # importing it now raises ImportError
from crosstask.report import write_page
write_page(Path(sys.argv[1]))
"""


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=10)


@pytest.fixture
def comparison(tmp_path):
    return write_comparison(tmp_path / "c", ("stars",), methods=("single", "joint", "mgda"), seeds=2, updates=10)


def edit(path, change):
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_page_needs_no_torch(comparison):
    environment = {**os.environ, "PYTHONPATH": str(Path(crosstask.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(comparison)], check=True, env=environment)
    assert (comparison / "report.html").is_file()


class TestVersion01:
    def test_a_comparison_says_neither_what_uses_sources_nor_papers(self, comparison):
        before = read_comparison(comparison)

        def as_then(data):
            data.pop("greater_is_better")
            for method in data["methods"].values():
                del method["uses_sources"], method["papers"]

        edit(comparison / COMPARISON_FILE, as_then)
        after = read_comparison(comparison)
        assert after.targets[0].chosen == before.targets[0].chosen
        assert after.papers == before.papers == (TAWT, MGDA)

    def test_where_less_is_better(self, comparison):
        def measured_by_rmse(data):
            data.pop("greater_is_better")
            data["metrics"] = {"stars": "rmse"}
            for line in data["lines"]:
                line["dev"]["mean"] = {"single": 0.1, "joint": 0.2, "mgda": 0.3}[line["method"]]

        edit(comparison / COMPARISON_FILE, measured_by_rmse)
        assert read_comparison(comparison).targets[0].chosen.method == "joint"

    def test_metrics_without_papers(self):
        assert from_json({"targets": ["stars"]}, Metrics).papers is None
        assert run_view(RunFiles("run", [], Metrics(paradigm="joint"))).papers == (TAWT,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (METRICS_FILE, "[]"),
        (METRICS_FILE, '{"scores": 3}'),
        (METRICS_FILE, '{"seconds": "long"}'),
        (HISTORY_FILE, "3\n"),
        (HISTORY_FILE, '{"event": "update", "phase": "joint"}\n'),
        (HISTORY_FILE, '{"event": "task"}\n'),
        (PREDICTIONS_FILE, '{"task": "stars"}\n'),
        (PREDICTIONS_FILE, "[]\n"),
        ("rank.json", '{"target": "stars", "rows": [{}]}'),
        ("environment.json", '{"packages": 1}'),
    ],
)
def test_damaged_files_are_named(run, name, text):
    (run / name).write_text(text)
    with pytest.raises(CrossTaskError, match="are not as crosstask writes them") as caught:
        write_page(run)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [METRICS_FILE, HISTORY_FILE, RECIPE_FILE, PREDICTIONS_FILE])
def test_files_that_are_no_text(run, name):
    (run / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CrossTaskError, match="are not as crosstask writes them"):
        write_page(run)


def test_a_mistake_of_ours_is_none_of_the_files(run, monkeypatch):
    def broken(view):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("crosstask.report.run_page.run_page", broken)
    with pytest.raises(KeyError, match="a mistake of ours"):
        write_page(run)
