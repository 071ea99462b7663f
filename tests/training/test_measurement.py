"""What a score alone would hide: the majority, labels that are never predicted, a training that ended too early."""

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.majority import majority_scores
from crosstask.data.metrics import Predictions, never_predicted
from crosstask.runs.events import DevEvaluation, Note, Warned
from crosstask.training.measurement import missed_labels, still_rising, targets_still_rising


def evaluations(scores, losses, metric="accuracy", phase="joint", task="t"):
    pairs = zip(scores, losses, strict=True)
    return [DevEvaluation(phase, 1, i, task, loss, {metric: score}, 0.0) for i, (score, loss) in enumerate(pairs)]


FALLING = (1.0, 0.8, 0.7, 0.6)


@pytest.mark.parametrize(
    ("scores", "losses", "expected"),
    [
        ((0.5, 0.6, 0.6, 0.7), FALLING, True),
        ((0.5, 0.6, 0.7, 0.7), FALLING, False),  # no better than before
        ((0.5, 0.6, 0.6, 0.7), (1.0, 0.5, 0.7, 0.6), False),  # the loss had been lower
        ((0.6, 0.7, 0.8), FALLING[:3], False),  # too few to tell
        ((0.5, 0.6, None, 0.7), FALLING, False),
    ],
)
def test_a_score_that_is_still_rising(scores, losses, expected):
    assert still_rising(evaluations(scores, losses)) == expected


def test_an_error_rises_when_it_falls():
    assert still_rising(evaluations((4.0, 3.0, 2.0, 1.0), FALLING, "rmse"))
    assert not still_rising(evaluations((1.0, 2.0, 3.0, 4.0), FALLING, "rmse"))


def test_the_last_phase_counts():
    rising, flat = (0.1, 0.2, 0.3, 0.4), (0.5, 0.5, 0.5, 0.5)
    events = evaluations(rising, FALLING, phase="sources") + evaluations(flat, FALLING, phase="joint")
    assert targets_still_rising(events, ["t", "another"]) == []
    assert targets_still_rising(events[::-1], ["t"]) == []  # order of time, not of scores
    assert targets_still_rising(events[:4], ["t"]) == ["t"]


@pytest.mark.parametrize(
    ("kind", "labels", "train", "test", "expected"),
    [
        ("classification", ("a", "b"), ["a", "a", "b"], ["a", "b", "b", "b"], {"accuracy": 0.25, "auc": 0.5}),
        ("multilabel", ("a", "b"), [("a",), ("a", "b"), ()], [("a",), ("b",)], {"accuracy": 0.5, "auc": 0.5}),
        ("regression", (), [1.0, 3.0], [2.0, 5.0], {"rmse": (9 / 2) ** 0.5, "spearman": 0.0}),
        ("tagging", ("O", "B-x"), [["O", "O", "B-x"]], [["O", "B-x"], ["O", "O"]], {"accuracy": 0.75, "span_f1": 0.0}),
    ],
)
def test_the_same_answer_for_all(kind, labels, train, test, expected):
    form = "tokens" if kind == "tagging" else "text"
    spec = TaskSpec("t", kind, form, labels)

    def examples(gold):
        inputs = [["word"] * len(tags) for tags in gold] if kind == "tagging" else ["text"] * len(gold)
        return Examples(inputs, gold)

    scores = majority_scores(spec, examples(train), examples(test))
    assert {name: scores[name] for name in expected} == pytest.approx(expected)


def test_labels_that_are_never_predicted():
    spec = TaskSpec("t", "multilabel", "text", ("a", "b", "c"))
    gold = np.array([[1, 1, 0], [0, 1, 0]])
    scores = np.array([[0.9, 0.2, 0.0], [0.1, 0.4, 0.0]])
    assert never_predicted(Predictions(spec, gold, scores)) == ["b"]
    tags = TaskSpec("t", "tagging", "tokens", ("O", "B-x", "B-y"))
    found = Predictions(tags, [[0, 1], [2, 0]], [np.array([0, 1]), np.array([0, 0])])
    assert never_predicted(found) == ["B-y"]
    assert "macro_f1" not in missed_labels(found, "test").text  # spans are not judged by accuracy


def test_a_run_says_all_of_it():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype(np.float32)
    labels = np.where(np.arange(200) % 15 == 0, "rare", "common")  # whatever the input is
    task = ct.Task.from_arrays("t", inputs[:120], labels[:120].tolist(), test=(inputs[120:], labels[120:].tolist()))
    settings = {"updates": 40, "evaluate_every": 10, "learning_rate": 1e-2, "keep": "last"}
    run = ct.Learner({"name": "relu", "hidden": 4}, progress=False, **settings).fit(task)
    fraction = float((labels[120:] == "common").mean())
    assert run.majority["t"]["test"]["accuracy"] == pytest.approx(fraction)
    assert run.scores["t"]["test"]["accuracy"] == pytest.approx(fraction)  # which is all that it has learned
    assert run.metrics["never_predicted"]["t"]["test"] == ["rare"]
    assert any("never predicted on test" in note.text for note in run.record.events(Note))
    is_rising = run.metrics["still_rising"] == ["t"]
    assert is_rising == any("trained too short" in warning.text for warning in run.record.events(Warned))
