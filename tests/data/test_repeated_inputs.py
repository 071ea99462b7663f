"""Repeated inputs: what makes two the same, sets that are cut by input, and notes on what files share."""

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.examples import Examples
from crosstask.data.overlap import DistinctInputs, input_keys, positions_outside
from crosstask.data.subsets import stratified_cut

FORMS = {
    "text": lambda number: f"text {number}",
    "pair": lambda number: (f"text {number}", "other"),
    "tokens": lambda number: ["text", str(number)],
    "vector": lambda number: np.array([number, 1.0], dtype="float32"),
}


def repeated(form, count=50, times=2):
    """Inputs of a form, each several times, and a label of each."""
    inputs, labels = [], []
    for number in range(count):
        for _ in range(times):
            inputs.append(FORMS[form](number))
            labels.append("ab"[number % 2])
    if form == "vector":
        inputs = np.stack(inputs)
    if form == "tokens":
        labels = [[label, label] for label in labels]
    return inputs, labels


def shared(task, *splits):
    keys = set()
    for split in splits:
        keys.update(input_keys(getattr(task, split).inputs))
    return sum(key in keys for key in input_keys(task.train.inputs))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"drop_overlap": True}, {"cut": "latest"}, {"dev": 0.3}, {"limit": 60}])
def test_a_dev_set_that_is_cut_shares_no_input_with_train(form, options):
    task = ct.Task.from_arrays("t", *repeated(form), **options)
    assert shared(task, "dev") == 0
    total = options.get("limit", 100)
    assert len(task.train) + len(task.dev) == total  # no label is lost
    assert "inputs are repeated: of each, all examples were cut off or none" in task.notes[-1]
    assert len(task.dev) == pytest.approx(total * options.get("dev", 0.2), abs=0.1 * total)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"drop_overlap": True}, {"cut": "latest"}])
def test_neither_do_the_sets_of_a_split(form, options):
    task = ct.Task.from_arrays("t", *repeated(form), split=(0.6, 0.2, 0.2), **options)
    assert shared(task, "dev", "test") == 0
    assert set(input_keys(task.dev.inputs)).isdisjoint(input_keys(task.test.inputs))
    assert (len(task.train), len(task.dev), len(task.test)) == (60, 20, 20)
    assert task.notes == (
        "split into train 60, dev 20, test 20",
        "50 inputs are repeated: of each, all examples were cut off or none",
    )


def test_with_false_every_example_is_cut_by_itself_and_a_note_says_what_is_shared():
    task = ct.Task.from_arrays("t", *repeated("text"), drop_overlap=False)
    assert len(task.dev) == 20
    assert f"{shared(task, 'dev')} training examples have inputs that also stand in dev or test" in task.notes[-1]
    assert shared(task, "dev") > 0


@pytest.mark.parametrize("option", [None, False])
def test_files_stay_as_they_are_with_a_note(option):
    inputs, labels = repeated("text", 10, 1)
    options = {"dev": (["text 1 ", "new"], ["b", "a"]), "test": (["text 2"], ["a"]), "drop_overlap": option}
    task = ct.Task.from_arrays("t", inputs, labels, **options)
    assert len(task.train) == 10
    note = (
        "2 training examples have inputs that also stand in dev or test: `drop_overlap: true` takes what is shared out"
    )
    assert task.notes == (note,)
    one = ct.Task.from_arrays("t", inputs, labels, dev=False, test=(["text 2"], ["a"]))
    assert one.notes[0].startswith("1 training example has an input that also stands in dev or test")
    clean = ct.Task.from_arrays("t", inputs, labels, **{**options, "drop_overlap": True})
    assert (len(clean.train), clean.notes) == (8, ("2 training examples dropped that also stand in dev or test",))


def test_without_repeated_inputs_a_cut_is_what_it_was():
    inputs, labels = repeated("text", 83, 1)
    for seed in range(5):
        train, dev = stratified_cut(labels, 83, 17, np.random.default_rng(seed))
        for option in (None, True, False):
            task = ct.Task.from_arrays("t", inputs, labels, seed=seed, drop_overlap=option)
            assert task.train.inputs == [inputs[i] for i in train]
            assert task.dev.inputs == [inputs[i] for i in dev]


def test_the_latest_inputs_are_those_that_are_new_at_the_end():
    texts = ["old", "older", "old", "new", "newer", "old"]
    task = ct.Task.from_arrays("t", texts, [0.0, 1.0, 0.0, 2.0, 3.0, 0.0], kind="regression", dev=0.5, cut="latest")
    assert task.dev.inputs == ["new", "newer"]
    assert task.train.inputs == ["old", "older", "old", "old"]


def test_one_input_cannot_be_cut():
    task = ct.Task.from_arrays("t", ["same"] * 20, ["a", "b"] * 10)
    assert (len(task.train), task.dev) == (20, None)
    assert task.notes[0] == "too few examples to cut a dev set from: the last epoch's model is kept"
    with pytest.raises(ct.CrossTaskError, match="20 examples with only 1 different inputs are too few for `split`"):
        ct.Task.from_arrays("t", ["same"] * 20, ["a", "b"] * 10, split=(0.8, 0.2))


def test_every_class_stays_in_train_where_inputs_have_several():
    """Each rare label has one input, which has a common label too."""
    texts = [f"text {number}" for number in range(20)] * 2
    labels = ["common"] * 20 + ["common"] * 18 + ["rare", "rarer"]
    for seed in range(20):
        task = ct.Task.from_arrays("t", texts, labels, split=(0.5, 0.5), seed=seed)
        assert {"rare", "rarer"} <= set(task.train.labels)


def test_keys():
    assert len(set(input_keys(np.array([[0.0, 1.0], [-0.0, 1.0]])))) == 1
    single, double = (list(input_keys(np.array([[0.1, 2.0]], dtype=dtype))) for dtype in ("float32", "float64"))
    assert single == double
    assert list(input_keys(np.array([[1e300, 0.0]])))  # too large for single precision
    strided = np.arange(12, dtype="float32").reshape(4, 3)[:, ::2]
    assert list(input_keys(strided)) == list(input_keys(strided.copy()))


def test_only_inputs_of_one_form_are_compared():
    pairs = Examples([("a", "b"), ("c", "d")], ["x", "y"])
    tokens = Examples([["a", "b"]], [["x", "y"]])
    assert positions_outside(pairs, [tokens]) == [0, 1]
    assert positions_outside(pairs, [Examples([(" a", "b ")], ["x"])]) == [1]
    assert positions_outside(pairs, []) == [0, 1]


def test_counts():
    distinct = DistinctInputs.of(["a", "b", "a", "c", " a", "c"])
    assert (len(distinct), distinct.num_repeated, distinct.counts.tolist()) == (3, 2, [3, 1, 2])
    assert DistinctInputs.all_of(3).num_repeated == 0
