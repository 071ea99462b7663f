"""A finished search whose files are damaged: one sentence, and nothing is searched again in silence."""

import json

import pytest

import crosstask as ct
from crosstask.automl.result import read_found

CHANGES = [
    ("auto.json", "minutes", "x"),
    ("auto.json", "winner", None),
    ("auto.json", "left_out", []),
    ("auto.json", "leaderboard", 5),
    ("auto.json", "leaderboard", [{}]),
    ("run/metrics.json", "targets", []),
]


@pytest.fixture
def finished(tmp_path):
    """The files that a finished search leaves, written by hand around a tiny run."""
    task = ct.Task.from_arrays("mood", ["good film", "bad film"] * 6, ["+", "-"] * 6, dev=False)
    learner = ct.Learner({"name": "mlp", "dimension": 4, "hidden": 4}, updates=1, paradigm="single", progress=False)
    learner.fit(task, output=tmp_path / "run")
    facts = {
        "target": "mood", "metric": "accuracy", "minutes": 1.0, "labels": 12, "winner": "alone", "sources_help": False,
        "why": "it is the only one", "left_out": {}, "notes": [], "leaderboard": [], "seconds": 1.0,
    }  # fmt: skip
    (tmp_path / "auto.json").write_text(json.dumps(facts))
    return tmp_path


def test_as_written(finished):
    result = read_found(finished)
    assert result is not None
    assert "Chosen: alone" in str(result)


@pytest.mark.parametrize(("file", "key", "value"), CHANGES)
def test_damaged(file, key, value, finished):
    path = finished / file
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ct.CrossTaskError, match="is damaged"):
        read_found(finished)


@pytest.mark.parametrize("content", ["", "0", "[]", "[" * 100_000])
def test_no_result(content, finished):
    (finished / "auto.json").write_text(content)
    with pytest.raises(ct.CrossTaskError, match=r"auto\.json' is damaged"):
        read_found(finished)
