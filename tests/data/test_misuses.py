"""The table of inputs and misuses is true: every line is typed again, and says what the table says."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "misuses.json").read_text())["cases"]


@pytest.fixture(scope="module")
def script():
    """The names of benchmarks/misuses.py."""
    return runpy.run_path(str(ROOT / "benchmarks" / "misuses.py"))


@pytest.mark.slow
@pytest.mark.parametrize("position", range(len(RECORDED)), ids=lambda position: RECORDED[position]["what"])
def test_a_line_says_what_the_table_says(script, position, tmp_path, monkeypatch):
    pytest.importorskip("pandas")  # which the prelude of all lines asks for
    pytest.importorskip("datasets")
    case = script["CASES"][position]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    script["write_files"](tmp_path)
    recorded = RECORDED[position]
    assert (case.group, case.what) == (recorded["group"], recorded["what"])
    assert script["answer"](case) == recorded["now"]


def test_the_table_has_every_case(script):
    assert [case.what for case in script["CASES"]] == [row["what"] for row in RECORDED]
