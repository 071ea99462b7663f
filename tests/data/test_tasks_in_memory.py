"""Tasks from what people hold in memory: arrays, tensors, records, data frames, data sets; labels keep their types."""

import inspect
import math
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.data.options import SplitOptions
from crosstask.data.readers import READERS
from crosstask.data.readers.column_roles import NestedTableOptions
from crosstask.data.readers.keywords import ReadKeywords
from crosstask.validation import options_model

TEXTS = [f"text {i}" for i in range(20)]
NETWORK = {"name": "mlp", "dimension": 4, "hidden": 4}


def predicted(task: ct.Task, inputs, tmp_path) -> list:
    """What a model of two updates predicts, which must be the same after it was saved and loaded."""
    network = {**NETWORK, "name": "lstm"} if task.kind == "tagging" else NETWORK
    run = ct.Learner(network, updates=2, batch_size=4).fit(task)
    run.save(tmp_path / "run")
    decisions = run.predict(inputs)
    assert ct.load(tmp_path / "run").predict(inputs) == decisions
    return decisions


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([1, 5], ("1", "5")),
        ([False, True], ("False", "True")),
        ([0.0, 2.0], ("0", "2")),
        (["1", "5"], ("1", "5")),
        ([1, "many"], ("1", "many")),
        ([np.int64(3), np.int64(11)], ("3", "11")),
    ],
)
def test_labels_come_back_with_their_types(values, names, tmp_path):
    task = ct.Task.from_arrays("t", TEXTS, values * 10)
    assert task.labels == names
    decisions = predicted(task, TEXTS, tmp_path)
    types = {type(getattr(value, "item", lambda value=value: value)()) for value in values}
    assert set(decisions) <= set(values)
    assert {type(decision) for decision in decisions} <= types
    assert list(ct.load(tmp_path / "run").predict_probabilities(TEXTS[:1])[0]) == list(values)


def test_tags_and_sets_of_labels_come_back_with_their_types(tmp_path):
    words = [["a", "b"]] * 20
    tags = ct.Task.from_arrays("t", words, [[0, 7]] * 20)
    assert predicted(tags, words[:1], tmp_path / "tags")[0][0] in (0, 7)
    sets = ct.Task.from_arrays("t", TEXTS, [(1, 2), (1,)] * 10)
    assert {label for labels in predicted(sets, TEXTS, tmp_path / "sets") for label in labels} <= {1, 2}


def test_a_renamed_label_is_a_text_and_one_that_no_example_has_keeps_its_type():
    task = ct.Task.from_arrays("t", TEXTS, [1, 5] * 10, map={1: "bad"})
    assert task.spec.decisions == (5, "bad")
    task = ct.Task.from_arrays("t", TEXTS, [1, 5] * 10, label_names=[5, 3, 1])
    assert task.spec.decisions == (5, 3, 1)
    # What Python could not tell apart as keys stays a text.
    assert ct.Task.from_arrays("t", TEXTS, [1, True] * 10).spec.decisions == ("1", "True")
    assert ct.Task.from_arrays("t", TEXTS, [1, "1", 2, "2"] * 5).spec.decisions == ("1", "2")


def test_labels_of_files_are_texts(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word {i},{i % 2}\n" for i in range(20)))
    task = ct.Task.from_csv("t", tmp_path / "a.csv", text="text", label="label")
    assert task.spec.decisions == ("0", "1")
    assert "values" not in task.spec.to_json()


# Arrays and tensors.


@pytest.mark.parametrize(
    "inputs",
    [
        torch.eye(6, requires_grad=True),
        torch.eye(6, dtype=torch.bfloat16),
        np.eye(6).astype(object),
        np.eye(6).tolist(),
        list(torch.eye(6)),
        [tuple(row) for row in np.eye(6)],
    ],
    ids=["tensor", "bfloat16", "objects", "lists", "list of tensors", "tuples"],
)
@pytest.mark.parametrize("labels", [torch.arange(6) % 2, np.array([0, 1] * 3, dtype=object), [torch.tensor(0), 1] * 3])
def test_vectors_however_they_are_held(inputs, labels):
    task = ct.Task.from_arrays("t", inputs, labels, dev=False)
    assert task.train.inputs.dtype == np.float32
    assert np.array_equal(task.train.inputs, np.eye(6))
    assert task.spec.decisions == (0, 1)


def test_texts_and_pairs_in_arrays_of_objects():
    assert ct.Task.from_arrays("t", np.array(TEXTS, dtype=object), [0, 1] * 10).spec.form == "text"
    pairs = np.array([["a", "b"], ["c", "d"]] * 10)
    assert ct.Task.from_arrays("t", pairs, [0, 1] * 10).kind == "pair"
    # Lists of two words that have a label each are words.
    assert ct.Task.from_arrays("t", pairs, [["x", "y"]] * 20).kind == "tagging"


def test_a_matrix_of_zeros_and_ones_is_sets_of_labels():
    """Not the set of the labels 0 and 1, as a list of such rows would be read."""
    matrix = np.array([[1, 0, 1], [0, 1, 0]] * 10)
    task = ct.Task.from_arrays("t", TEXTS, matrix, dev=False)
    assert task.kind == "multilabel"
    assert task.spec.decisions == (0, 1, 2)
    assert task.train.labels[:2] == [("0", "2"), ("1",)]
    task = ct.Task.from_arrays("t", TEXTS, torch.tensor(matrix), label_names=["a", "b", "c"], dev=False)
    assert task.train.labels[:2] == [("a", "c"), ("b",)]
    with pytest.raises(ct.CrossTaskError, match="3 columns, but `label_names` has 2 names"):
        ct.Task.from_arrays("t", TEXTS, matrix, label_names=["a", "b"])


@pytest.mark.parametrize(
    ("inputs", "labels", "sentence"),
    [
        (
            ["a", None, "b", None],
            ["x", "y"] * 2,
            "2 examples of train have no input .*the first is example 2; fill them",
        ),
        (["a", math.nan], ["x", "y"], r"1 example of train has no input \(None or NaN\), example 2; fill it in"),
        (["a"] * 4, ["x", None, "y", math.nan], "2 examples of train have no label .*the first is example 2"),
        (["a"] * 4, np.array([0.0, np.nan, 1.0, np.nan]), "2 examples of train have no label .*the first is example 2"),
        (
            ["a"] * 2,
            [("x", None), ("y",)],
            r"1 example of train has a label in which something is missing \(None or NaN\), example 1; fill it in",
        ),
        (
            [("a", "b"), ("a", None), ("a", math.nan)],
            ["x"] * 3,
            "2 examples of train have an input in which something is missing .*the first is example 2; fill them in",
        ),
        ([["a", None], ["b"]], [["x", "y"], ["x"]], "1 example of train has an input in which something is missing"),
        ([[1.0, None], [2.0, 3.0]], ["x", "y"], "1 example of train has an input in which something is missing"),
        (["a", "b"], np.array([[1.0, np.nan], [0.0, 1.0]]), "1 example of train has a label in which something"),
        (["a", "b", "c"], [1.5, math.inf, math.inf], "2 of 3 labels in t, train are 'inf', which is no finite number"),
        (np.array([[1.0, None]] * 2, dtype=object), ["x", "y"], r"example 1 has nan as feature 2 \(as have 1 more"),
        ([[1.0, 2.0], [1.0]], ["x", "y"], "example 2 has 1 numbers; expected 2"),
        ([[1.0, 2.0], "a"], ["x", "y"], "example 2 is 'a'; expected numbers"),
        ({"a": 1}, ["x"], "the inputs of train are a list or an array"),
    ],
)
def test_what_is_missing_is_counted(inputs, labels, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.Task.from_arrays("t", inputs, labels, dev=False)


def test_a_sparse_matrix_says_what_to_do():
    scipy = pytest.importorskip("scipy.sparse")
    with pytest.raises(ct.CrossTaskError, match=r"inputs\.toarray\(\)"):
        ct.Task.from_arrays("t", scipy.csr_matrix(np.eye(4)), [0, 1, 0, 1])


# Records.

RECORDS = [{"review": f"text {i}", "stars": i % 5 + 1, "length": float(i), "words": ["a", "b"]} for i in range(40)]


def test_records():
    task = ct.Task.from_records("stars", RECORDS, text="review", label="stars", dev=RECORDS[:10], test=RECORDS[10:12])
    assert {name: len(part) for name, part in task.splits.items()} == {"train": 40, "dev": 10, "test": 2}
    assert task.spec.decisions == (1, 2, 3, 4, 5)
    vectors = ct.Task.from_records("v", RECORDS, features=["length"], label="stars", limit=20, dev=0.5)
    assert (len(vectors.train), len(vectors.dev)) == (10, 10)
    assert task.train.where(3) == "stars, train, example 4"


@pytest.mark.parametrize(
    ("records", "options", "sentence"),
    [
        ([{"text": "a", "label": 1}, {"text": "b"}, {"label": 2}], {}, "train, example 3 has an empty text"),
        ([{"text": "a"}, {"text": "b", "label": None}, {"text": "c", "label": 1}], {}, r"example 1 has no label in the "
         r"column 'label' \(as have 1 more\); fill it in or take such examples out"),
        ([{"text": "a", "label": 1}, ["b", 2]], {}, r"example 2 is \['b', 2\]; a record is a mapping"),
        ({"text": ["a"], "label": [1]}, {}, "train is a list of records"),
        (RECORDS, {"text": "reviw", "label": "stars"}, "has no column 'reviw'"),
        (RECORDS, {"txt": "review"}, "unknown option 'txt'. Did you mean 'text'"),
        ([{"x": 1.0, "y": 1}, {"x": None, "y": 2}, {"x": None, "y": 1}], {"features": ["x"], "label": "y"},
         r"example 2 has nothing in the feature column 'x' \(and 1 more value that is no number\)"),
        ([{"text": "a", "label": ["x", None]}] * 3, {},
         r"example 1 has a label that is missing among several in the column 'label' \(as have 2 more\)"),
        ([{"text": "a", "p": 1, "q": None}] * 3, {"label": ["p", "q"]},
         r"example 1 has nothing in the label column 'q' \(as have 2 more\); write 0 or 1"),
        ([{"text": "a", "label": None}, {"text": "b", "label": "x;y"}], {"label_separator": ";"},
         r"example 1 has no labels in the column 'label' \(None or NaN\); fill them in"),
        ([{"tokens": None, "tags": ["O"]}] * 2, {}, r"example 1 has no list of words in .* \(as have 1 more\)"),
        ([{"x": [1.0, None], "y": 1}] * 2, {"features": "x", "label": "y"}, r"nothing in .* \(and 1 more value that"),
    ],
)  # fmt: skip
def test_records_that_make_no_task(records, options, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.Task.from_records("t", records, dev=False, **options)


# Data frames.


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(RECORDS)
    frame["good"] = frame["stars"] > 2
    frame["kind"] = pandas.Categorical(["x", "y"] * 20)
    task = ct.Task.from_pandas("stars", frame, text="review", label="stars", test=frame[:4])
    assert task.spec.decisions == (1, 2, 3, 4, 5)
    assert len(task.test) == 4
    assert ct.Task.from_pandas("good", frame, text="review", label="good").spec.decisions == (False, True)
    assert ct.Task.from_pandas("kind", frame, features=["length", "stars"], label="kind").labels == ("x", "y")
    assert ct.Task.from_pandas("sets", frame, text="review", label=["good"], kind="multilabel").kind == "multilabel"
    grades = frame["stars"] + 0.5
    assert ct.Task.from_pandas("grade", frame.assign(grade=grades), text="review", label="grade").kind == "regression"
    # The whole columns as arrays.
    arrays = ct.Task.from_arrays("a", frame[["length", "stars"]], frame["stars"], dev=False)
    assert arrays.train.inputs.shape == (40, 2)


def test_what_is_missing_in_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "label": [1.0, np.nan] * 10, "x": [1.0] * 20})
    with pytest.raises(
        ct.CrossTaskError, match=r"train, example 2 has no label in the column 'label' \(as have 9 more\)"
    ):
        ct.Task.from_pandas("t", frame)
    for missing in (None, np.nan, pandas.NA, pandas.NaT):
        frame = pandas.DataFrame({"text": pandas.Series(["a", missing, "b"], dtype=object), "label": [1, 2, 1]})
        with pytest.raises(ct.CrossTaskError, match="train, example 2 has an empty text"):
            ct.Task.from_pandas("t", frame)
        frame = pandas.concat([frame, pandas.DataFrame({"text": ["c"], "label": [2]})], ignore_index=True)
        assert ct.Task.from_pandas("t", frame, empty="drop", dev=False).train.inputs == ["a", "b", "c"]
    with pytest.raises(ct.CrossTaskError, match="train is a data frame of pandas"):
        ct.Task.from_pandas("t", RECORDS)


# Data sets.


@pytest.fixture
def reviews():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["neg", "pos"]))
    rows = {"text": TEXTS, "label": [0, 1] * 10}
    return datasets, datasets.Dataset.from_dict(rows, features=features)


def test_data_sets(reviews):
    datasets, data = reviews
    assert ct.Task.from_dataset("t", data).labels == ("neg", "pos")
    splits = datasets.DatasetDict(train=data, validation=data.select(range(4)), test=data.select(range(6)))
    task = ct.Task.from_dataset("t", splits)
    assert {name: len(part) for name, part in task.splits.items()} == {"train": 20, "dev": 4, "test": 6}
    assert ct.Task.from_dataset("t", splits, dev=False).dev is None
    assert len(ct.Task.from_dataset("t", splits, dev="test", test="validation").dev) == 6
    assert len(ct.Task.from_dataset("t", splits, dev=0.5).dev) == 10


def test_splits_that_are_not_used_are_named(reviews):
    datasets, data = reviews
    secret = data.map(lambda row: {"label": -1})
    splits = datasets.DatasetDict(train=data, unsupervised=data, validation_matched=data, test=secret)
    task = ct.Task.from_dataset("t", splits)
    assert task.test is None
    assert "splits of the data set that are not used: unsupervised, validation_matched" in task.notes
    assert "the test set has no labels (all are -1 or missing) and was left out" in task.notes
    with pytest.raises(ct.CrossTaskError, match="no split 'train'; it has validation, test"):
        ct.Task.from_dataset("t", datasets.DatasetDict(validation=data, test=data))
    with pytest.raises(ct.CrossTaskError, match="`test` names the split 'test', but the data set has no splits"):
        ct.Task.from_dataset("t", data, test="test")
    with pytest.raises(ct.CrossTaskError, match=r"no split 'tset'\. Did you mean 'test'"):
        ct.Task.from_dataset("t", splits, test="tset")
    with pytest.raises(ct.CrossTaskError, match=r"streamed: `window=50_000` reads so many rows"):
        ct.Task.from_dataset("t", data.to_iterable_dataset())
    with pytest.raises(ct.CrossTaskError, match=r"`datasets\.Dataset`"):
        ct.Task.from_dataset("t", [1, 2])


# What editors see.


def keywords_of(function) -> set[str]:
    hint = get_type_hints(function)["options"]
    return set(get_type_hints(get_args(hint)[0]))


def test_editors_see_every_option_of_each_way_in():
    splits = set(get_type_hints(SplitOptions))
    for name in ("csv", "columns", "conllu"):
        function = getattr(ct.Task, f"from_{name}")
        assert keywords_of(function) == splits | set(READERS[name].options) | {"folder"}
        assert {"name", "train", "dev", "test"} <= set(inspect.signature(function).parameters)
    for name in ("records", "pandas", "dataset"):
        function = getattr(ct.Task, f"from_{name}")
        assert keywords_of_frame(function) == splits | set(get_type_hints(NestedTableOptions))
    every_option = {option for reader in READERS.values() for option in reader.options}
    assert set(get_type_hints(ReadKeywords)) == splits | every_option
    assert "text" in options_model(ct.Task.from_csv).model_fields


def keywords_of_frame(function) -> set[str]:
    """Types of packages that are imported late are texts in annotations, which need not be resolved for this."""
    from crosstask.data.readers.keywords import MemoryKeywords

    assert "MemoryKeywords" in str(function.__annotations__["options"])
    return set(get_type_hints(MemoryKeywords))
