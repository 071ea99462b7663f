"""Repeated inputs, and sources that have the target's test inputs: nothing is judged by what it was trained on."""

import numpy as np
import pytest
from auto_problem import QUICK

import crosstask as ct
from crosstask.automl import search


@pytest.fixture(autouse=True)
def _five_folds(monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", (5,))


def noise(form, num_inputs=25, seed=0):
    """Random inputs of texts or vectors with random labels, of both as many as there can be."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation([str(number % 2) for number in range(num_inputs)]).tolist()
    if form == "vector":
        return rng.normal(size=(num_inputs, 8)).astype("float32"), labels
    words = [f"word{number}" for number in range(40)]
    return [" ".join(rng.choice(words, size=6)) for _ in range(num_inputs)], labels


@pytest.mark.parametrize("form", ["text", "vector"])
def test_random_labels_of_repeated_inputs_cannot_be_learned(form):
    inputs, labels = noise(form)
    if form == "vector":
        four_times, encoder = np.repeat(inputs, 4, axis=0), {"name": "relu", "hidden": 32}
    else:
        four_times, encoder = (
            [text for text in inputs for _ in range(4)],
            {"name": "mlp", "dimension": 16, "hidden": 16},
        )
    target = ct.Task.from_arrays("target", four_times, np.repeat(labels, 4))
    settings = {**QUICK, "encoder": encoder, "updates": 200, "learning_rate": 0.01}
    result = ct.auto(target, **settings)
    assert {line.candidate for line in result.leaderboard} >= {"single"}
    for line in result.leaderboard:
        assert np.mean(list(line.folds.values())) < 0.75, line.candidate
    note = "25 of its 25 inputs are repeated (100 of 100 examples): a fold holds out all examples of an input, or none"
    assert note in result.facts["notes"]
    assert note in [remark["text"] for remark in result.run.record.of("note")]


def sharing(num_shared=12):
    """A target and two sources, one of which has some of the target's test inputs."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(160, 8)).astype("float32")
    labels = np.where(inputs[:, 0] > 0, "+", "-")
    target = ct.Task.from_arrays("target", inputs[:40], labels[:40], test=(inputs[40:80], labels[40:80]))
    source = ct.Task.from_arrays("source", inputs[80 - num_shared :], labels[80 - num_shared :], dev=False)
    copy = ct.Task.from_arrays("copy", inputs[40:80], labels[40:80], dev=False)
    return target, source, copy


@pytest.mark.parametrize("drop", [True, False])
def test_sources_go_without_the_test_inputs_from_the_ranking_to_the_last_fit(drop, monkeypatch):
    target, source, _ = sharing()
    held_out = {row.tobytes() for row in target.test.inputs}
    seen = []
    make_model = ct.Learner._make_model

    def watch(self, tasks, section):
        for task in tasks:
            if task.name != "target":
                seen.append(sum(row.tobytes() in held_out for row in task.train.inputs))
        return make_model(self, tasks, section)

    monkeypatch.setattr(ct.Learner, "_make_model", watch)
    options = {} if drop else {"drop_overlap": False}
    result = ct.auto(target, [source], **QUICK, **options)
    assert seen
    assert set(seen) == {0 if drop else 12}
    note = "Training examples were left out whose inputs stand in dev or test of the target 'target': 12 of 'source'."
    assert (note in result.facts["notes"]) is drop


def test_a_source_with_nothing_else_is_left_out():
    target, source, copy = sharing()
    result = ct.auto(target, [source, copy], **QUICK)
    assert "has nothing left to train on" in result.facts["left_out"]["copy"]
    assert "copy" not in result.facts["sources"]
