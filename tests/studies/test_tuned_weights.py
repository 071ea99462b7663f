"""Fixed weights of the sources, searched: what is tried, by which examples, for how many updates."""

from dataclasses import replace

import numpy as np
import pytest
from compare_problem import QUICK, tiny

import crosstask as ct
from crosstask.runs.run import read_recipe
from crosstask.studies.compare import DEFAULT_METHODS
from crosstask.studies.method import Definitions, read_method
from crosstask.studies.tuned_weights import (
    NUM_TRIALS,
    candidate_weights,
    judging_tasks,
    search_updates,
    tune_weights,
)


@pytest.fixture
def fits(monkeypatch):
    """Every fit: its learner and its target."""
    seen = []
    fit = ct.Learner.fit

    def spy(self, target, sources=(), **options):
        seen.append((self, target))
        return fit(self, target, sources, **options)

    monkeypatch.setattr(ct.Learner, "fit", spy)
    return seen


def test_candidates_cover_each_weight_evenly_and_equal_weights_come_first():
    candidates = candidate_weights("t", ["one", "two"], 33, seed=1)
    assert candidates[0] == pytest.approx({"t": 1 / 3, "one": 1 / 3, "two": 1 / 3})
    assert all(sum(weights.values()) == pytest.approx(1.0) for weights in candidates)
    for source in ("one", "two"):
        exponents = np.log2([weights[source] / weights["t"] for weights in candidates[1:]])
        counts, _ = np.histogram(exponents, bins=8, range=(-4.0, 2.0))  # 1/16 to 4
        assert counts.sum() == 32
        assert counts.min() >= 3
    assert candidates == candidate_weights("t", ["one", "two"], 33, seed=1)
    assert candidates != candidate_weights("t", ["one", "two"], 33, seed=2)
    assert candidate_weights("t", ["one"], 1, seed=0) == [{"t": 0.5, "one": 0.5}]


def test_dev_judges_or_else_every_label_does_once():
    target = tiny()[0]
    assert target.dev is not None
    with_dev = judging_tasks(target)
    assert [(task.dev is target.dev, task.test) for task in with_dev] == [(True, None)]
    without = replace(target, dev=None)
    judges = judging_tasks(without)
    rows = [tuple(row) for task in judges for row in task.dev.inputs.tolist()]
    assert sorted(rows) == sorted(tuple(row) for row in target.train.inputs.tolist())
    for task in judges:
        assert task.test is None
        assert len(task.train) + len(task.dev) == len(target.train)
        assert {tuple(row) for row in task.train.inputs.tolist()}.isdisjoint(map(tuple, task.dev.inputs.tolist()))
        share = np.mean(np.asarray(task.dev.labels) == "True")
        assert share == pytest.approx(np.mean(np.asarray(target.train.labels) == "True"), abs=0.1)


@pytest.mark.parametrize("has_dev", [True, False])
def test_trials_are_short_runs_and_the_lowest_loss_is_first(fits, has_dev):
    target, *sources = tiny()
    if not has_dev:
        target = replace(target, dev=None)
    candidates = candidate_weights("a", ["b", "c"], 3, seed=0)

    def make_learner(weights, training):
        return ct.Learner("linear", weighting=ct.Fixed(weights), training=training, progress=False)

    training = ct.Training(updates=40, batch_size=8, evaluate_every=4, patience=1, learning_rate=0.05)
    trials = tune_weights(make_learner, training, target, sources, candidates)
    assert len(fits) == 3 * (1 if has_dev else 3)
    assert {learner.training.updates for learner, _ in fits} == {10}
    assert sum(learner.training.updates for learner, _ in fits) == search_updates(40, 3, has_dev)
    assert {learner.training.keep for learner, _ in fits} == {"last"}
    assert all(judge.test is None for _, judge in fits)  # test chooses nothing
    # The losses: those of the models on what they did not train on, each example counting the same.
    for trial in trials:
        losses, sizes = [], []
        for learner, judge in fits:
            if learner.weighting.fixed_weights == trial.weights:
                rows = [row for row in learner.run.history if row["event"] == "dev"]
                assert len(rows) == 1
                losses.append(rows[0]["loss"])
                sizes.append(len(judge.dev))
        assert trial.loss == pytest.approx(np.average(losses, weights=sizes))
    assert [trial.loss for trial in trials] == sorted(trial.loss for trial in trials)
    assert sorted(map(str, (trial.weights for trial in trials))) == sorted(map(str, candidates))


def test_a_trial_that_diverges_is_the_worst(monkeypatch):
    target, *sources = tiny()
    candidates = candidate_weights("a", ["b", "c"], 2, seed=0)
    fit = ct.Learner.fit

    def fit_or_diverge(self, *arguments):
        if self.weighting.fixed_weights == candidates[0]:
            raise ct.CrossTaskError("After 10 updates the model's weights are not finite")
        return fit(self, *arguments)

    monkeypatch.setattr(ct.Learner, "fit", fit_or_diverge)

    def make_learner(weights, training):
        return ct.Learner("linear", weighting=ct.Fixed(weights), training=training, progress=False)

    trials = tune_weights(make_learner, ct.Training(updates=8, batch_size=8), target, sources, candidates)
    assert [trial.weights for trial in trials] == [candidates[1], candidates[0]]
    assert trials[1].loss == float("inf")


def test_as_a_method_of_comparisons(fits, tmp_path):
    assert "tuned-weights" in DEFAULT_METHODS
    assert "scale-invariant" in DEFAULT_METHODS
    options = {**QUICK, "updates": 8, "seeds": 1}
    found = ct.compare(
        tiny(), ["normalized-joint", "tuned-weights"], targets="a", output=tmp_path / "out", keep_runs=True, **options
    )
    assert len(fits) == 1 + NUM_TRIALS + 1
    learner, target = fits[-1]
    assert target.test is not None
    assert learner.training.updates == 8
    weights = learner.weighting.fixed_weights
    assert weights in candidate_weights("a", ["b", "c"], NUM_TRIALS, seed=0)
    assert read_recipe(tmp_path / "out" / "runs" / "a" / "tuned-weights" / "seed-0" / "recipe.yaml")["weighting"] == {
        "name": "fixed", "weights": pytest.approx(weights)
    }  # fmt: skip
    cells = {cell["method"]: cell for cell in found.cells}
    assert next(iter(cells["tuned-weights"]["weights"].values())) == pytest.approx(weights)
    [note] = [note for note in found.notes() if note.startswith("tuned-weights")]
    assert "the best of 8 sets of fixed weights" in note
    assert "1/4 of the updates" in note
    assert "royer2023scalarization" in found.to_json()["methods"]["tuned-weights"]["papers"]
    # What is finished is not searched again.
    count = len(fits)
    ct.compare(
        tiny(), ["normalized-joint", "tuned-weights"], targets="a", output=tmp_path / "out", keep_runs=True, **options
    )
    assert len(fits) == count


def test_a_run_that_was_stopped_goes_on_with_the_weights_that_it_had(fits, tmp_path, monkeypatch):
    options = {**QUICK, "updates": 8, "seeds": 1, "output": tmp_path / "out", "keep_runs": True}
    from crosstask.training import checkpoints

    real = checkpoints.save

    def dies(*arguments):
        real(*arguments)
        if "runs" in str(arguments[0]):
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        ct.compare(tiny(), ["tuned-weights"], targets="a", **options)
    monkeypatch.setattr(checkpoints, "save", real)
    first = fits[-1][0].weighting.fixed_weights
    count = len(fits)
    found = ct.compare(tiny(), ["tuned-weights"], targets="a", **options)
    assert len(fits) == count + 1
    assert next(iter(found.cells[0]["weights"].values())) == pytest.approx(first)


def test_definitions_and_mistakes():
    method = read_method("mine", Definitions({"mine": {"paradigm": "pretrain", "tune": 4}}))
    assert (method.tune, method.is_plain, method.to_json()["tune"]) == (4, False, 4)
    assert read_method("joint+tuned-weights", Definitions()).paradigm == "joint"
    assert "tune" not in read_method("joint", Definitions()).to_json()
    with pytest.raises(ct.CrossTaskError, match="weights are searched beside it"):
        read_method("tawt+tuned-weights", Definitions())
    with pytest.raises(ct.CrossTaskError, match="nothing to weight"):
        read_method("single+tuned-weights", Definitions())
    with pytest.raises(ct.CrossTaskError, match="`tune`"):
        read_method("mine", Definitions({"mine": {"paradigm": "joint", "tune": -1}}))
    with pytest.raises(ct.CrossTaskError, match="Did you mean 'tuned-weights'"):
        read_method("tuned-weight", Definitions())
