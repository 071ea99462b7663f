"""Candidates that are better together: how they are weighed, and that all of them are kept."""

from types import SimpleNamespace

import numpy as np
import pytest
from auto_problem import QUICK, helpful

import crosstask as ct
from crosstask.automl import search
from crosstask.automl.folds import Folds
from crosstask.automl.members import choose_members
from crosstask.automl.standings import Gain

GAINS = {"one": Gain(0.1, 0.01), "other": Gain(0.05, 0.01), "worse": Gain(-0.2, 0.01)}


@pytest.fixture(scope="module")
def bench():
    target, _ = helpful(num_labels=60)
    return SimpleNamespace(target=target, folds=Folds(target, 0))


def told(bench, is_right, num_folds=5):
    """By fold, the probabilities of a model that is surely right at some positions, and unsurely wrong at others."""
    labels = bench.target.spec.encode(bench.target.train)
    outputs = {}
    for fold in range(num_folds):
        rows = []
        for position in bench.folds.held_out(fold):
            truth = 0.9 if is_right(position) else 0.3
            row = np.full(3, 0.05)
            row[labels[position]], row[(labels[position] + 1) % 3] = truth, 0.95 - truth
            rows.append(row.tolist())
        outputs[fold] = rows
    return outputs


def test_models_that_err_apart_are_kept_together(bench):
    outputs = {
        "one": told(bench, lambda position: position % 3 != 0),
        "other": told(bench, lambda position: position % 3 != 1),
        "worse": told(bench, lambda position: False),
    }
    members = choose_members(bench, outputs, GAINS, "one")
    assert set(members.weights) == {"one", "other"}
    assert sum(members.weights.values()) == pytest.approx(1.0)
    assert members.winner_score == pytest.approx(2 / 3, abs=0.05)
    assert members.score > members.winner_score + 0.2


def test_one_that_knows_everything_stays_alone(bench):
    outputs = {"one": told(bench, lambda position: True), "worse": told(bench, lambda position: False)}
    assert choose_members(bench, outputs, GAINS, "one") is None
    # The winner is always measured; without it there is nothing to add to.
    assert choose_members(bench, {"one": {}, "worse": outputs["worse"]}, GAINS, "one") is None


def test_weights_come_from_the_labels_of_common_folds(bench):
    outputs = {
        "one": told(bench, lambda position: position % 2 == 0, num_folds=5),
        "other": told(bench, lambda position: position % 2 == 1, num_folds=3),
    }
    members = choose_members(bench, outputs, GAINS, "one")
    assert members.weights["one"] == pytest.approx(0.5, abs=0.1)
    too_few = {**outputs, "other": told(bench, lambda position: True, num_folds=2)}
    assert choose_members(bench, too_few, GAINS, "one") is None


def test_all_are_kept_and_predict_together(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", (5,))
    target, _ = helpful()
    settings = {**QUICK, "ensemble": True, "output": tmp_path / "search"}
    found = ct.auto(target, **settings)
    weights = found.facts["ensemble"]["weights"]
    assert found.winner in weights
    assert len(weights) > 1
    assert found.ensemble.weights == pytest.approx(weights)
    inputs = target.test.inputs[:20]
    loaded = ct.load(tmp_path / "search" / "ensemble")
    assert loaded.predict(inputs) == found.predict(inputs)
    assert found.facts["ensemble"]["test"]["accuracy"] == pytest.approx(loaded.score(target.test)["accuracy"])
    assert "on test, by the ensemble" in str(found)
    again = ct.auto(target, **settings)
    assert str(again) == str(found)
    assert again.predict(inputs) == found.predict(inputs)
    # The winner alone is there as well.
    assert ct.load(tmp_path / "search" / "model").predict(inputs) == found.run.predict(inputs)
