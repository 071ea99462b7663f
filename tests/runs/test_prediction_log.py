"""What a run keeps of the examples it was measured on: one short row each, for every kind of task."""

import json
from pathlib import Path

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.metrics import Predictions
from crosstask.runs import prediction_log as measured
from crosstask.runs.loading import load
from crosstask.runs.prediction_log import MAX_CHARACTERS, MAX_WORDS, prediction_rows
from crosstask.runs.record import PREDICTIONS_FILE, read_history


def rows_of(kind, form, inputs, gold, scores, labels=("no", "yes"), probabilities=None):
    spec = TaskSpec("t", kind, form, labels)
    return prediction_rows(
        "test", Examples(inputs, [None] * len(inputs)), Predictions(spec, gold, scores, probabilities)
    )


def test_classification():
    scores = np.array([[0.8, 0.2], [0.3, 0.7]])
    assert rows_of("classification", "text", ["a", "b"], np.array([0, 0]), scores) == [
        {"task": "t", "part": "test", "example": 0, "input": "a", "gold": "no", "predicted": "no", "probability": 0.8},
        {"task": "t", "part": "test", "example": 1, "input": "b", "gold": "no", "predicted": "yes", "probability": 0.7},
    ]


def test_vectors_are_left_out_and_pairs_are_two_texts():
    scores = np.array([[0.8, 0.2]])
    (row,) = rows_of("classification", "vector", np.zeros((1, 3)), np.array([0]), scores)
    assert "input" not in row
    (row,) = rows_of("pair", "pair", [("a", "b")], np.array([0]), scores)
    assert row["input"] == ["a", "b"]


def test_tagging_has_lists_that_are_cut_together():
    words, tags = ["w"] * (MAX_WORDS + 5), [1] * (MAX_WORDS + 5)
    chances = [np.tile([0.4, 0.6], (len(words), 1))]
    (row,) = rows_of("tagging", "tokens", [words], [tags], [np.array(tags)], probabilities=chances)
    assert {len(row[key]) for key in ("input", "gold", "predicted", "probability")} == {MAX_WORDS}
    assert (row["gold"][0], row["predicted"][0], row["probability"][0]) == ("yes", "yes", 0.6)


def test_multilabel_is_as_sure_as_its_least_sure_decision():
    scores, gold = np.array([[0.9, 0.4]]), np.array([[1.0, 1.0]])
    (row,) = rows_of("multilabel", "text", ["a"], gold, scores)
    assert (row["gold"], row["predicted"], row["probability"]) == (["no", "yes"], ["no"], 0.6)


def test_numbers_have_no_probability_and_no_nan():
    first, second = rows_of("regression", "text", ["a", "b"], np.array([1.0, 2.0]), np.array([1.25, np.nan]), labels=())
    assert (first["gold"], first["predicted"], "probability" in first) == (1.0, 1.25, False)
    assert second["predicted"] is None
    json.dumps(second, allow_nan=False)


def test_long_texts_and_large_sets_are_cut(monkeypatch):
    monkeypatch.setattr(measured, "MAX_EXAMPLES", 3)
    scores = np.tile([0.8, 0.2], (9, 1))
    rows = rows_of("classification", "text", ["x" * 1000] * 9, np.zeros(9, dtype=int), scores)
    assert [row["example"] for row in rows] == [0, 4, 8]
    assert len(rows[0]["input"]) == MAX_CHARACTERS
    assert rows[0]["input"].endswith("…")


@pytest.mark.parametrize("has_test", [True, False])
def test_a_run_keeps_the_targets_rows_of_test_or_else_of_dev(tmp_path, has_test):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 4)).astype("float32")
    test = (vectors[40:], vectors[40:, 0] > 0) if has_test else None
    target, source = (
        ct.Task.from_arrays(name, vectors[:40], vectors[:40, i] > 0, test=test) for i, name in enumerate("ab")
    )
    learner = ct.Learner("linear", updates=4, batch_size=8, progress=False)
    run = learner.fit(target, [source], output=tmp_path / "run")
    rows = read_history(tmp_path / "run" / PREDICTIONS_FILE)
    part = "test" if has_test else "dev"
    assert {(row["task"], row["part"]) for row in rows} == {("a", part)}
    right = np.mean([row["gold"] == row["predicted"] for row in rows])
    assert right == pytest.approx(run.scores["a"][part]["accuracy"])
    assert [row["gold"] for row in rows] == [str(label) for label in getattr(target, part).labels]
    again = load(tmp_path / "run")
    assert again.measured == rows
    again.save(tmp_path / "copy")
    assert (tmp_path / "copy" / PREDICTIONS_FILE).read_text() == (tmp_path / "run" / PREDICTIONS_FILE).read_text()


def test_the_documentation_says_how_much_is_kept():
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8").replace("\n", " ")
    assert f"{measured.MAX_EXAMPLES:,} examples of a target" in text
    assert f"the first {MAX_CHARACTERS} characters" in text
