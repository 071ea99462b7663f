"""Population-based training of fixed weights: who copies whom, that copies go on exactly, and what is kept."""

import math
from dataclasses import replace

import numpy as np
import pytest
from compare_problem import QUICK, tiny

import crosstask as ct
from crosstask.runs.record import read_history
from crosstask.runs.run import read_recipe
from crosstask.studies import population
from crosstask.studies.method import Definitions, read_method
from crosstask.studies.population import Member, next_population, perturbed, train_population
from crosstask.studies.tuned_weights import LARGEST, SMALLEST, candidate_weights, tune_weights

TRAINING = ct.Training(updates=64, batch_size=8, learning_rate=0.05, patience=1)
"""The search has 16 of these updates, 4 in each round."""


def make_learner(weights, training):
    return ct.Learner("linear", weighting=ct.Fixed(weights), training=training, progress=False)


@pytest.fixture
def fits(monkeypatch):
    """The learner of every fit, and the update at which it began."""
    seen = []
    fit = ct.Learner.fit

    def spy(self, *arguments, **options):
        seen.append((self, arguments[0]))
        return fit(self, *arguments, **options)

    monkeypatch.setattr(ct.Learner, "fit", spy)
    return seen


def member(ratio, parent=None):
    return Member({"t": 1 / (1 + ratio), "s": ratio / (1 + ratio)}, parent)


def ratio(weights):
    return weights["s"] / weights["t"]


def test_the_worst_quarter_copies_the_best_and_changes_its_weights():
    members = [member(ratio) for ratio in (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 4.0)]
    losses = [0.9, 0.5, 0.1, 0.4, 0.6, 0.8, 0.2, 0.3]
    following = next_population(members, losses, "t", np.random.default_rng(0))
    for number in (1, 2, 3, 4, 6, 7):
        assert (following[number].parent, following[number].weights) == (number, members[number].weights)
    for number in (0, 5):  # the highest losses
        parent = following[number].parent
        assert parent in (2, 6)
        change = ratio(following[number].weights) / ratio(members[parent].weights)
        assert change in (pytest.approx(2.0), pytest.approx(0.5), pytest.approx(4 / 3))
        assert sum(following[number].weights.values()) == pytest.approx(1.0)


def test_all_that_diverged_copy_and_without_a_best_nothing_is_copied():
    members = [member(ratio) for ratio in (0.1, 0.2, 0.3, 0.5)]
    following = next_population(members, [math.inf, 0.5, math.inf, math.inf], "t", np.random.default_rng(0))
    assert [one.parent for one in following] == [1, 1, 1, 1]
    assert following[1].weights == members[1].weights
    following = next_population(members, [math.inf] * 4, "t", np.random.default_rng(0))
    assert [one.parent for one in following] == [0, 1, 2, 3]


def test_weights_stay_among_those_that_are_tried():
    generator = np.random.default_rng(0)
    weights = {"t": 0.5, "a": 0.5, "b": 0.5 * SMALLEST}
    ratios = set()
    for _ in range(40):
        changed = perturbed(weights, "t", generator)
        ratios.add(tuple(round(changed[name] / changed["t"], 6) for name in ("a", "b")))
    assert ratios == {(one, other) for one in (0.5, 2.0) for other in (SMALLEST, 2 * SMALLEST)}
    assert perturbed({"t": 0.2, "a": 0.8}, "t", np.random.default_rng(1))["a"] <= LARGEST * 0.2


@pytest.mark.parametrize("has_dev", [True, False])
def test_a_member_that_keeps_its_weights_is_a_run_without_rounds(tmp_path, monkeypatch, has_dev):
    """Stopped after each round and gone on with, it ends where a run ends that nobody stopped."""
    target, *sources = tiny()
    if not has_dev:
        target = replace(target, dev=None)
    monkeypatch.setattr(population, "next_population", _nobody_copies)
    candidates = candidate_weights("a", ["b", "c"], 2, seed=0)
    trials = train_population(make_learner, TRAINING, target, sources, candidates, tmp_path / "search")
    for trial in trials:
        losses, sizes = [], []
        for judge in population.judging_tasks(target):
            settings = replace(TRAINING, updates=16, evaluate_every=4, patience=None, keep="last")
            run = make_learner(trial.weights, settings).fit(judge, sources)
            losses.append([row["loss"] for row in run.history if row["event"] == "dev"][-1])
            sizes.append(len(judge.dev))
        assert trial.loss == pytest.approx(np.average(losses, weights=sizes), rel=1e-12)
    assert [trial.loss for trial in trials] == sorted(trial.loss for trial in trials)
    assert not list((tmp_path / "search").glob("*/*/checkpoints"))


def _nobody_copies(members, losses, target, generator):
    return [Member(one.weights, number) for number, one in enumerate(members)]


def test_a_copy_goes_on_from_the_model_of_its_parent_with_weights_of_its_own(tmp_path, fits, monkeypatch):
    target, *sources = tiny()
    others = {"a": 0.2, "b": 0.7, "c": 0.1}

    def second_copies_first(members, losses, target, generator):
        return [Member(members[0].weights, 0), Member(others, 0)]

    monkeypatch.setattr(population, "next_population", second_copies_first)
    candidates = candidate_weights("a", ["b", "c"], 2, seed=0)
    train_population(make_learner, TRAINING, target, sources, candidates, tmp_path, num_rounds=2)
    assert [learner.weighting.fixed_weights for learner, _ in fits] == [*candidates, candidates[0], others]
    histories = {}
    for name in ("0/0-0", "0/1-0", "1/0-0", "1/1-0"):
        rows = read_history(tmp_path / name / "history.jsonl")
        histories[name] = [row for row in rows if row["event"] == "update"]
        assert len(histories[name]) == (8 if name.startswith("0") else 16)
    losses = {name: [row["losses"] for row in rows] for name, rows in histories.items()}
    assert losses["1/1-0"][:8] == losses["0/0-0"] != losses["0/1-0"]
    assert losses["1/1-0"][8] == losses["1/0-0"][8]  # the first update after the copy begins at the same model
    assert losses["1/1-0"][9:] != losses["1/0-0"][9:]
    assert histories["1/1-0"][8]["weights"] == pytest.approx(others)


def test_a_search_that_was_stopped_goes_on_to_the_same_end(tmp_path, fits):
    target, *sources = tiny()
    candidates = candidate_weights("a", ["b", "c"], 4, seed=0)
    arguments = (TRAINING, target, sources, candidates)
    whole = train_population(make_learner, *arguments, tmp_path / "whole", num_rounds=3)
    count = len(fits)
    assert count == 12
    made = []

    def make_or_stop(weights, training):
        made.append(weights)
        if len(made) == 7:
            raise KeyboardInterrupt
        return make_learner(weights, training)

    with pytest.raises(KeyboardInterrupt):
        train_population(make_or_stop, *arguments, tmp_path / "broken", num_rounds=3)
    (tmp_path / "broken" / "1" / "2-0" / "half").mkdir(parents=True)
    fits.clear()
    assert train_population(make_learner, *arguments, tmp_path / "broken", num_rounds=3) == whole
    assert len(fits) == count - 6


def test_weights_are_found_that_no_run_began_with(tmp_path):
    """Two hidden units hardly serve two tasks: the source with the target's labels should count most."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(240, 6)).astype("float32")
    labels = inputs[:, 0] > 0
    target = ct.Task.from_arrays("t", inputs[:20], labels[:20], dev=(inputs[40:], labels[40:]))
    sources = [ct.Task.from_arrays("like", inputs, labels), ct.Task.from_arrays("other", inputs, inputs[:, 1] > 0)]

    def make(weights, training):
        encoder = {"name": "relu", "hidden": 2}
        return ct.Learner(encoder, weighting=ct.Fixed(weights), training=training, progress=False, drop_overlap=False)

    training = ct.Training(updates=320, batch_size=16, learning_rate=0.05)
    candidates = candidate_weights("t", ["like", "other"], 8, seed=0)
    [alone] = tune_weights(make, training, target, sources, [candidates[0]])
    best = train_population(make, training, target, sources, candidates, tmp_path)[0]
    assert best.weights["like"] >= 8 * best.weights["other"]
    assert best.loss < 0.8 * alone.loss
    assert best.weights not in candidates


MINE = {"mine": {"paradigm": "normalized-joint", "tune": 4, "rounds": 2}}


def test_as_a_method_of_comparisons(fits, tmp_path):
    options = {**QUICK, "updates": 32, "seeds": 1, "targets": "a"}
    table = ct.compare(tiny(), ["normalized-joint", "population-weights"], output=tmp_path / "out", **options)
    assert len(fits) == 1 + 8 * 4 + 1
    learner, target = fits[-1]
    assert (learner.training.updates, target.test is not None) == (32, True)
    folder = tmp_path / "out" / "runs" / "a" / "population-weights"
    assert [path.name for path in folder.iterdir()] == ["seed-0"]
    assert read_recipe(folder / "seed-0" / "recipe.yaml")["weighting"]["weights"] == learner.weighting.fixed_weights
    [note] = [note for note in table.notes() if note.startswith("population-weights")]
    assert "in 4 rounds, between which the worst copied the best" in note
    assert "jaderberg2017population" in table.to_json()["methods"]["population-weights"]["papers"]
    assert table.to_json()["methods"]["population-weights"]["rounds"] == 4


def test_a_comparison_stopped_in_a_search_goes_on_with_it(fits, tmp_path, monkeypatch):
    options = {**QUICK, "updates": 32, "seeds": 1, "targets": "a"}
    whole = ct.compare(tiny(), MINE, **options)  # without a folder
    count = len(fits)
    train = population._Runs._train
    calls = []

    def stopping(self, *arguments):
        calls.append(arguments)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return train(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(population._Runs, "_train", stopping)
        with pytest.raises(KeyboardInterrupt):
            ct.compare(tiny(), MINE, output=tmp_path / "out", **options)
    fits.clear()
    again = ct.compare(tiny(), MINE, output=tmp_path / "out", **options)
    assert len(fits) == count - 6
    assert again.cells[0]["scores"] == whole.cells[0]["scores"]
    assert again.cells[0]["weights"] == whole.cells[0]["weights"]
    assert not list(tmp_path.rglob("*-search"))


def test_paradigms_of_several_phases_are_refused():
    table = ct.compare(tiny(), ["pretrain+population-weights", "single"], targets="a", **{**QUICK, "seeds": 1})
    [refused] = [cell["refused"] for cell in table.cells if "refused" in cell]
    assert "one phase of training" in refused


def test_definitions_and_mistakes():
    method = read_method("mine", Definitions({"mine": {"paradigm": "joint", "tune": 12, "rounds": 3}}))
    assert (method.tune, method.rounds, method.to_json()["rounds"]) == (12, 3, 3)
    assert "rounds" not in read_method("tuned-weights", Definitions()).to_json()
    with pytest.raises(ct.CrossTaskError, match="set `tune` to at least 2"):
        read_method("mine", Definitions({"mine": {"paradigm": "joint", "rounds": 3}}))
    with pytest.raises(ct.CrossTaskError, match="`rounds`"):
        read_method("mine", Definitions({"mine": {"paradigm": "joint", "tune": 4, "rounds": 0}}))
