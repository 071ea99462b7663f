"""Inputs of a target's dev and test sets train in no other task, and support and query share no input."""

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.examples import TaskSpec
from crosstask.data.overlap import input_keys
from crosstask.models.batches import Prepared
from crosstask.training.problem import LearningProblem
from crosstask.training.support_query import split_support_and_query

ENCODER = {"name": "relu", "hidden": 8}
QUICK = {"updates": 4, "progress": False}
FORMS = {
    "text": lambda number: f"text {number}",
    "pair": lambda number: (f"text {number}", "other"),
    "tokens": lambda number: ["text", str(number)],
    "vector": lambda number: [float(number), 1.0],
}


def task(name, train, dev=(), test=(), form="vector"):
    """A task whose inputs are numbers in some form."""

    def part(numbers):
        inputs = [FORMS[form](number) for number in numbers]
        if form == "vector":
            inputs = np.asarray(inputs, dtype="float32").reshape(-1, 2)
        labels = [name + "+-"[i % 2] for i in range(len(numbers))]
        if form == "tokens":
            labels = [[label, label] for label in labels]
        return inputs, labels

    splits = {"dev": False}
    for split, numbers in (("dev", dev), ("test", test)):
        if len(numbers):
            splits[split] = part(numbers)
    return ct.Task.from_arrays(name, *part(train), label_names=[f"{name}+", f"{name}-"], **splits)


def notes(run, name):
    return [row["text"] for row in run.history if row["event"] == "note" and row.get("task") == name]


@pytest.mark.parametrize("form", FORMS)
def test_sources_lose_the_dev_and_test_inputs_of_the_target(form):
    target = task("target", range(10), range(10, 16), range(16, 22), form=form)
    source = task("source", range(8, 40), form=form)
    problem = LearningProblem.of(target, [source], "joint").without_overlap()
    (remaining,) = problem.sources
    hidden = set(input_keys(target.dev.inputs)) | set(input_keys(target.test.inputs))
    assert hidden.isdisjoint(input_keys(remaining.train.inputs))
    assert len(remaining.train) == 32 - 12  # what the target trains on stays
    assert remaining.notes == (
        "12 training examples were left out: their inputs stand in dev or test of the target 'target'",
    )
    assert problem.targets[0] is target


@pytest.mark.parametrize("paradigm", ["joint", "pretrain", "stacking"])
@pytest.mark.parametrize("drop", [True, False])
def test_a_run_says_so_and_can_keep_them(paradigm, drop):
    target, source = task("target", range(10), range(10, 16), range(16, 22)), task("source", range(8, 40))
    run = ct.Learner(ENCODER, paradigm=paradigm, drop_overlap=drop, **QUICK).fit(target, [source])
    assert run.metrics["trained_on"]["source"] == (20 if drop else 32)
    assert run.recipe["drop_overlap"] is drop
    expected = ["12 training examples were left out: their inputs stand in dev or test of the target 'target'"]
    assert [note for note in notes(run, "source") if "left out" in note] == (expected if drop else [])


def test_targets_do_not_train_on_one_another():
    first = task("first", range(10), range(20, 24), range(24, 28))
    second = task("second", range(18, 26), range(3), range(30, 34))
    problem = LearningProblem.of([first, second], [], "joint").without_overlap()
    assert [len(one.train) for one in problem.targets] == [7, 2]
    run = ct.Learner(ENCODER, paradigm="joint", calibration="none", **QUICK).fit([first, second])
    assert run.metrics["trained_on"] == {"first": 7, "second": 2}
    assert [note for note in notes(run, "first") if "left out" in note] == [
        "3 training examples were left out: their inputs stand in dev or test of the target 'second'"
    ]


def test_other_forms_are_other_inputs():
    target = task("target", range(10), range(10, 16), form="pair")
    tokens = task("tokens", range(10, 16), form="tokens")
    assert LearningProblem.of(target, [tokens], "joint").without_overlap().sources == (tokens,)


def test_nothing_left():
    target, source = task("target", range(10), range(10, 16)), task("source", range(10, 16))
    with pytest.raises(ct.CrossTaskError, match=r"Task 'source' has nothing left to train on: .* all its 6 training"):
        ct.Learner(ENCODER, **QUICK).fit(target, [source])
    ct.Learner(ENCODER, drop_overlap=False, **QUICK).fit(target, [source])
    ct.Learner(ENCODER, paradigm="single", **QUICK).fit(target, [source])  # which does not read it


def test_compare_says_so():
    target, source = task("target", range(10), range(10, 16), range(16, 22)), task("source", range(8, 40))
    options = {"targets": ["target"], "encoder": ENCODER, "seeds": 1, **QUICK}
    note = "Training examples were left out whose inputs stand in dev or test of the target 'target': 12 of 'source'."
    assert note in ct.compare([target, source], ["single", "joint"], **options).notes()
    assert note not in ct.compare([target, source], ["single", "joint"], drop_overlap=False, **options).notes()
    assert note not in ct.compare([target, source], ["single"], **options).notes()


def test_capacity_gives_a_task_alone_no_more_than_together(monkeypatch):
    first = task("first", range(10), range(20, 24))
    second = task("second", range(18, 26), range(3))
    sizes = []
    fit = ct.Learner.fit

    def watch(self, targets, sources=(), **more):
        sizes.append({one.name: len(one.train) for one in targets})
        return fit(self, targets, sources, **more)

    monkeypatch.setattr(ct.Learner, "fit", watch)
    result = ct.capacity([first, second], widths=(2,), encoder={"name": "relu"}, seeds=1, **QUICK)
    assert sizes == [{"first": 7}, {"second": 4}, {"first": 7, "second": 4}]
    assert "another task has in dev or test: 3 of 'first', 4 of 'second'." in result.notes[-1]


def prepared(texts):
    rows = [{"ids": np.array([number])} for number in range(len(texts))]
    spec = TaskSpec("t", "classification", "text", ("a", "b"))
    return Prepared(spec, rows, np.arange(len(texts)) // 2 % 2, texts)


def test_support_and_query_share_no_input():
    texts = [f"text {number // 2}" for number in range(100)]
    support, query = split_support_and_query({"t": prepared(texts)}, ["t"], 0.3, seed=0)
    assert set(support["t"].inputs).isdisjoint(query["t"].inputs)
    assert (len(support["t"]), len(query["t"])) == (70, 30)
    with pytest.raises(ct.CrossTaskError, match="has 1 different inputs in its training examples: too few"):
        split_support_and_query({"t": prepared(["same"] * 10)}, ["t"], 0.3, seed=0)
