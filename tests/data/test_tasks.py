"""Tasks: few-shot subsets, cuts, splits, label sets, and that test labels never reach training."""

import re
from collections import Counter
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crosstask as ct
from crosstask.data.label_map import LabelMap, infer_kind, ordered_labels
from crosstask.data.options import ArrayKeywords, SplitKeywords, SplitOptions
from crosstask.data.subsets import balanced_subset, covering_subset, stratified_cut

TEXTS = [f"text {i}" for i in range(100)]
STARS = [str(i % 5 + 1) for i in range(100)]


def stars(**options) -> ct.Task:
    return ct.Task.from_arrays("stars", TEXTS, STARS, **options)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# Subsets.


@given(
    labels=st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), size=st.integers(1, 60), seed=st.integers(0, 9)
)
def test_balanced_subset(labels, size, seed):
    """As many as asked for, no class more than one ahead of another that has examples left."""
    kept = balanced_subset(labels, size, generator(seed))
    assert len(kept) == min(size, len(labels))
    assert kept == sorted(set(kept))
    there, taken = Counter(labels), Counter(labels[i] for i in kept)
    for one in there:
        for other in there:
            if taken[other] < there[other]:
                assert taken[one] <= taken[other] + 1


@given(
    sentences=st.lists(st.lists(st.sampled_from("OABC"), min_size=1, max_size=4), min_size=1, max_size=30),
    size=st.integers(1, 30),
    seed=st.integers(0, 9),
)
def test_covering_subset(sentences, size, seed):
    """Every label is shown if there is a place for each."""
    kept = covering_subset(sentences, size, generator(seed))
    assert len(kept) == min(size, len(sentences))
    assert kept == sorted(set(kept))
    labels = {label for tags in sentences for label in tags}
    if size >= len(labels):
        assert {label for i in kept for label in sentences[i]} == labels


@given(
    labels=st.lists(st.sampled_from("abc"), min_size=1, max_size=60), share=st.floats(0.0, 0.9), seed=st.integers(0, 9)
)
def test_stratified_cut(labels, share, seed):
    """Two parts that make the whole; every class stays in training, and each that can gives its share."""
    held_out = int(share * len(labels))
    kept, cut = stratified_cut(labels, len(labels), held_out, generator(seed))
    assert sorted(kept + cut) == list(range(len(labels)))
    assert {labels[i] for i in kept} == set(labels)
    assert len(cut) <= held_out
    there, taken = Counter(labels), Counter(labels[i] for i in cut)
    for label, count in there.items():
        assert taken[label] <= count * held_out / len(labels) + 2  # what small classes cannot give, others do
    if min(there.values()) * (len(labels) - held_out) >= len(labels):  # every class can give its share
        assert len(cut) == held_out
        assert all(abs(taken[label] - count * held_out / len(labels)) < 1 for label, count in there.items())


def skewed_counts(limit, seed=0):
    skewed = ["rare"] * 10 + ["common"] * 90
    task = ct.Task.from_arrays("skewed", TEXTS, skewed, limit=limit, dev=False, seed=seed)
    return Counter(task.train.labels), task.notes


def test_limit_draws_at_random():
    """Classes keep the mixture that they have: one in ten of the drawn examples is rare, not one in two."""
    counts = Counter()
    for seed in range(200):
        drawn, _ = skewed_counts(20, seed)
        assert sum(drawn.values()) == 20
        counts += drawn
    assert counts["rare"] / 4000 == pytest.approx(0.1, abs=0.01)
    assert skewed_counts(20)[1] == ("20 of 100 training examples were drawn at random",)
    assert stars(limit=20, dev=False).train.inputs == stars(limit=20, dev=False).train.inputs
    assert stars(limit=20, dev=False, seed=1).train.inputs != stars(limit=20, dev=False).train.inputs


def test_a_limit_that_loses_a_class_says_so():
    counts, notes = skewed_counts(2)
    assert counts == {"common": 2}
    assert notes == ("2 of 100 training examples were drawn at random; none has the label 'rare'",)
    many = [str(number) for number in range(50)] * 2
    task = ct.Task.from_arrays("many", TEXTS, many, limit=40, dev=False)
    assert re.search(r"none has the label ('\d+', ){4}'\d+' and \d+ more labels$", task.notes[0])


@pytest.mark.parametrize("limit", [5, 20, 23])
def test_balanced_limit(limit):
    counts, notes = skewed_counts({"count": limit, "balanced": True})
    assert sum(counts.values()) == limit
    assert counts["rare"] == min(10, limit // 2 + (counts["rare"] > counts["common"]))
    assert len(notes) == 1
    assert "balanced: classes are as equal in number as the data allows, and not as common as they are" in notes[0]
    assert skewed_counts({"count": limit, "balanced": False}) == skewed_counts(limit) == skewed_counts({"count": limit})
    assert skewed_counts(np.int64(limit)) == skewed_counts(limit)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (0, "`limit` must be at least 1, found 0"),
        ({"count": 0}, "`limit` must be at least 1, found 0"),
        ({"balanced": True}, "`limit` is a number of examples, or {count: 100, balanced: true}; found"),
        ({"count": "many"}, "`limit` is a number of examples"),
        ({"count": 5, "balanced": "yes"}, "`limit` is a number of examples"),
        ({"count": 5, "balance": True}, "unknown key 'limit.balance'. Did you mean 'balanced'?"),
    ],
)
def test_limits_that_make_no_sense(limit, problem):
    with pytest.raises(ct.CrossTaskError, match=re.escape(problem)):
        stars(limit=limit)


def test_numbers_are_not_balanced():
    grades = [i / 7 for i in range(100)]
    with pytest.raises(ct.CrossTaskError, match="a regression task has none; use `limit: 10`"):
        ct.Task.from_arrays("grade", TEXTS, grades, limit={"count": 10, "balanced": True}, dev=False)


def test_limit_counts_every_label_you_have():
    """A dev set that is cut comes out of the limit; a dev set that is given has a limit of its own."""
    task = stars(limit={"count": 20, "balanced": True})
    assert len(task.train) + len(task.dev) == 20
    assert Counter(task.train.labels + task.dev.labels) == dict.fromkeys("12345", 4)
    assert set(task.train.labels) == set("12345")
    task = stars(limit=20, dev=(TEXTS, STARS), dev_limit={"count": 10, "balanced": True})
    assert len(task.train) == 20
    assert Counter(task.dev.labels) == dict.fromkeys("12345", 2)
    assert "10 of 100 dev examples were drawn at random, balanced" in task.notes[1]
    assert len(stars(limit=1000, dev=False).train) == 100
    assert stars(limit=1000, dev=False).notes == ()


def test_balanced_limit_shows_every_tag():
    words = [["w"] * 3 for _ in range(60)]
    tags = [["O", "O", "O"] for _ in range(60)]
    for place, tag in zip((7, 21, 40, 55), ("B-A", "I-A", "B-B", "I-B"), strict=True):
        tags[place][1] = tag
    for seed in range(5):
        limit = {"count": 6, "balanced": True}
        task = ct.Task.from_arrays("ner", words, tags, limit=limit, dev=False, seed=seed)
        assert {tag for row in task.train.labels for tag in row} == {"O", "B-A", "I-A", "B-B", "I-B"}
        assert len(task.train) == 6


def test_limit_of_other_kinds():
    task = ct.Task.from_arrays("grade", TEXTS, [i / 7 for i in range(100)], limit=10, dev=False)
    assert len(task.train) == 10
    rare = [("a",) if i else ("a", "b") for i in range(100)]
    task = ct.Task.from_arrays("topics", TEXTS, rare, limit={"count": 5, "balanced": True}, dev=False)
    assert "text 0" in task.train.inputs
    assert "balanced: every label where possible, rare ones first" in task.notes[0]


def test_lines_stay_with_their_examples():
    """A subset still knows which line each example came from."""
    examples = ct.Examples(TEXTS, STARS, "stars.csv", list(range(2, 102)))
    task = ct.Task.assemble("stars", examples, limit=10)
    for part in (task.train, task.dev):
        for i, text in enumerate(part.inputs):
            assert part.where(i) == f"stars.csv, line {int(text.split()[1]) + 2}"


# Dev and test sets.


@pytest.mark.parametrize(("count", "dev"), [(100, 20), (499, 100), (500, 50), (5, 0)])
def test_dev_is_cut_from_train(count, dev):
    texts = [f"text {i}" for i in range(count)]
    task = ct.Task.from_arrays("t", texts, [str(i % 5) for i in range(count)])
    if dev == 0:  # one example of each class: none can be spared
        assert task.dev is None
        assert "too few examples to cut a dev set from" in task.notes[0]
    else:
        assert len(task.dev) == dev
        assert sorted(task.train.inputs + task.dev.inputs) == sorted(texts)
        assert task.notes == (f"{dev} examples were cut from train as dev set",)


def test_dev_never_comes_from_test():
    test = ([f"test {i}" for i in range(50)], STARS[:50])
    for options in ({}, {"dev": 0.5}, {"limit": 10}, {"drop_overlap": True}):
        task = stars(test=test, **options)
        assert set(task.dev.inputs) <= set(TEXTS)
        assert set(task.train.inputs) <= set(TEXTS)
        assert task.test.inputs == test[0]
    task = stars(test=test, dev=False)
    assert task.dev is None
    assert list(task.splits) == ["train", "test"]


def test_share_of_dev():
    assert len(stars(dev=0.4).dev) == 40
    assert len(stars(dev=True).dev) == 20
    for share in (0.0, 1, 1.5, -0.5):
        with pytest.raises(
            ct.CrossTaskError, match="Task 'stars': the share to cut from train must lie between 0 and 1"
        ):
            stars(dev=share)
    tagging = ct.Task.from_arrays("t", [["a"], ["b"], ["c"]], [["x"], ["y"], ["x"]], dev=0.99)
    assert len(tagging.train) == 1


def test_split():
    task = stars(split=(0.6, 0.2, 0.2))
    assert {name: len(part) for name, part in task.splits.items()} == {"train": 60, "dev": 20, "test": 20}
    everything = [text for part in task.splits.values() for text in part.inputs]
    assert sorted(everything) == sorted(TEXTS)
    for part in task.splits.values():
        assert set(Counter(part.labels).values()) == {len(part) // 5}
    assert task.notes == ("split into train 60, dev 20, test 20",)
    assert stars(split=(0.6, 0.2, 0.2), seed=1).test.inputs != task.test.inputs
    task = stars(split=(0.75, 0.25))
    assert len(task.test) == 25
    assert len(task.train) + len(task.dev) == 75
    # A limit is on what trains; the test set stays what it was.
    assert stars(split=(0.75, 0.25), limit=10).test.inputs == task.test.inputs


def test_the_latest_examples_of_every_class_are_cut():
    task = stars(dev=0.1, cut="latest")
    assert task.dev.inputs == TEXTS[-10:]  # classes take turns in these data
    assert task.train.inputs == TEXTS[:-10]
    assert task.notes == ("10 latest examples were cut from train as dev set",)
    assert stars(dev=0.1, cut="latest", seed=5).dev.inputs == task.dev.inputs
    task = stars(split=(0.6, 0.2, 0.2), cut="latest")
    assert (task.train.inputs, task.dev.inputs, task.test.inputs) == (TEXTS[:60], TEXTS[60:80], TEXTS[80:])
    values = [i / 10 for i in range(10)]
    numbers = ct.Task.from_arrays("n", TEXTS[:10], values, kind="regression", cut="latest")
    assert numbers.dev.labels == [0.8, 0.9]
    with pytest.raises(ct.CrossTaskError, match="Task 'stars': Unknown cut 'last'"):
        stars(cut="last")


@given(parts=st.lists(st.integers(1, 5), min_size=2, max_size=3), count=st.integers(30, 60), seed=st.integers(0, 3))
def test_split_is_a_partition(parts, count, seed):
    shares = [part / sum(parts) for part in parts]
    texts = [f"text {i}" for i in range(count)]
    task = ct.Task.from_arrays("t", texts, [str(i % 2) for i in range(count)], split=shares, dev=False, seed=seed)
    everything = [text for part in task.splits.values() for text in part.inputs]
    assert sorted(everything) == sorted(texts)
    for share, part in zip((shares[0], *shares[:0:-1]), (task.train, task.test), strict=False):
        assert abs(len(part) - share * count) <= 1.5


def test_drop_overlap():
    test = (["text 3", "  text 7 ", "other"], ["1", "2", "3"])
    task = stars(test=test, drop_overlap=True, dev=False)
    assert len(task.train) == 98
    assert not {"text 3", "text 7"} & set(task.train.inputs)
    assert task.notes == ("2 training examples dropped that also stand in dev or test",)
    assert len(stars(test=test, dev=False).train) == 100
    rows = np.arange(12.0).reshape(4, 3)
    vectors = ct.Task.from_arrays("v", rows, list("abab"), test=(rows[:1], ["a"]), drop_overlap=True, dev=False)
    assert len(vectors.train) == 3
    pairs = [("a", "b"), ("b", "a"), ("c", "d")]
    task = ct.Task.from_arrays("p", pairs, list("xyx"), test=([("a", "b")], ["x"]), drop_overlap=True, dev=False)
    assert task.train.inputs == pairs[1:]


# Labels and kinds.


@given(st.lists(st.integers(-50, 50), min_size=1, unique=True))
def test_numbers_are_ordered_by_value(numbers):
    assert ordered_labels(map(str, numbers)) == tuple(map(str, sorted(numbers)))


@given(st.lists(st.text(max_size=4)))
def test_the_order_of_labels_is_that_of_the_set(names):
    assert ordered_labels(names) == ordered_labels(names[::-1])
    assert sorted(ordered_labels(names)) == sorted(set(names))


def test_label_order():
    labels = ["10", "9", "1"] * 10
    assert ct.Task.from_arrays("t", TEXTS[:30], labels).labels == ("1", "9", "10")
    given_order = ct.Task.from_arrays("t", TEXTS[:30], labels, label_names=[10, 9, 1, 99])
    assert given_order.labels == ("10", "9", "1", "99")
    assert given_order.spec.encode(ct.Examples(["a", "b"], ["10", "99"])).tolist() == [0, 3]


def test_labels_are_checked_before_anything_is_trained():
    with pytest.raises(ct.CrossTaskError, match=r"the label '6' in stars, dev, example 1 does not occur"):
        stars(dev=(["x"], ["6"]))
    stars(dev=(["x"], ["6"]), label_names=[1, 2, 3, 4, 5, 6])
    with pytest.raises(ct.CrossTaskError, match="`labels` lacks '5'"):
        stars(label_names=[1, 2, 3, 4])
    with pytest.raises(ct.CrossTaskError, match="t, train has only the label 'a'"):
        ct.Task.from_arrays("t", TEXTS, ["a"] * 100)


def test_map():
    task = stars(map={1: "bad", 2: "bad", "/[345]/": "good"})
    assert task.labels == ("bad", "good")
    assert Counter(task.train.labels + task.dev.labels) == {"bad": 40, "good": 60}
    task = stars(map={"5": "best", "*": "rest"}, test=(["x"], ["5"]))
    assert task.labels == ("best", "rest")
    assert task.test.labels == ["best"]
    tags = ct.Task.from_arrays("t", [["a", "b"]] * 9, [["B-X.y", "_"]] * 9, map={"_": "O", r"/(.)-.*/": r"\1"})
    assert tags.labels == ("B", "O")


@given(
    st.dictionaries(st.text(max_size=3).filter(lambda k: k != "*" and k[:1] != "/"), st.text(max_size=3)),
    st.text(max_size=3),
)
def test_exact_names_win(names, label):
    names.pop("*", None)
    assert LabelMap({**names, "/.*/s": "x"}).rename(label) == names.get(label, label)
    if "\n" not in label:
        assert LabelMap({**names, "/.*/": "x"}).rename(label) == names.get(label, "x")
    assert LabelMap({**names, "*": "y"}).rename(label) == names.get(label, "y")


@pytest.mark.parametrize(
    ("inputs", "labels", "kind"),
    [
        (["a", "b"], ["1", "2"], "classification"),
        (["a", "b"], ["1", "2.5"], "regression"),
        (["a", "b"], ["1", "x"], "classification"),
        (["a", "b"], ["1.0", "2.0"], "classification"),
        (["a", "b"], ["1.5", "nan"], "classification"),
        ([("a", "b")], ["x"], "pair"),
        ([("a", "b")], ["0.5"], "regression"),
        ([["a", "b"]], [["x", "y"]], "tagging"),
        (["a"], [("x", "y")], "multilabel"),
        (np.zeros((1, 2)), ["x"], "classification"),
    ],
)
def test_kind_is_inferred(inputs, labels, kind):
    assert infer_kind(ct.Examples(inputs, labels)) == kind


@pytest.mark.parametrize(
    ("inputs", "labels", "kind", "sentence"),
    [
        (TEXTS, STARS, "tagging", "`kind: tagging` is for lists of words"),
        ([["a", "b"]] * 4, [["x", "y"]] * 4, "classification", "its kind is tagging"),
        (TEXTS, STARS, "pair", "`kind: pair` is for two texts"),
        (TEXTS, [("a", "b")] * 100, "classification", "its kind is multilabel"),
        (TEXTS, ["x"] * 100, "regression", "a regression task needs a finite number"),
        (TEXTS, STARS, "clasification", "Did you mean 'classification'"),
    ],
)
def test_kinds_that_do_not_fit(inputs, labels, kind, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.Task.from_arrays("t", inputs, labels, kind=kind)


def test_stars_as_numbers():
    task = stars(kind="regression")
    assert task.labels == ()
    assert task.kind == "regression"
    assert task.train.labels[0] == float(TEXTS.index(task.train.inputs[0]) % 5 + 1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30).filter(lambda values: np.std(values) > 1e-3))
def test_regression_is_standardised(values):
    """What the model sees has mean 0 and deviation 1; the test set is measured by train's yardstick."""
    texts = [f"text {i}" for i in range(len(values))]
    task = ct.Task.from_arrays("g", texts, values, kind="regression", dev=False, test=(["x"], [values[0]]))
    seen = task.spec.encode(task.train)
    assert np.mean(seen) == pytest.approx(0.0, abs=1e-6)
    assert np.std(seen) == pytest.approx(1.0, abs=1e-6)
    assert task.spec.encode(task.test)[0] == pytest.approx(seen[0])
    assert seen * task.spec.scale + task.spec.mean == pytest.approx(np.array(values), abs=1e-6 * max(map(abs, values)))


def test_the_scale_is_that_of_all_training_values_but_not_of_test():
    values = [float(i % 7) + 0.5 for i in range(100)]
    task = ct.Task.from_arrays("g", TEXTS, values, test=(["x"], [1e6]))
    assert task.spec.mean == pytest.approx(np.mean(values))


def test_examples_that_are_refused():
    for inputs, labels, sentence in (
        ([], [], "holds no examples"),
        (["a"], ["x", "y"], "1 inputs but 2 labels"),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), ["x", "y"], "v, train, example 1 has nan as feature 2"),
        (np.zeros(3), ["x", "y", "x"], "a row per example"),
        ([["a", "b"], ["c"]], [["x", "y"], ["x", "y"]], "1 tokens but 2 labels"),
    ):
        with pytest.raises(ct.CrossTaskError, match=sentence):
            ct.Task.from_arrays("v", inputs, labels)
    with pytest.raises(ct.CrossTaskError, match="test has vectors of 3 numbers, train of 2"):
        ct.Task.from_arrays("v", np.zeros((4, 2)), list("abab"), test=(np.zeros((1, 3)), ["a"]))
    with pytest.raises(ct.CrossTaskError, match=r"v, test \(test\) holds lists of words, train holds texts"):
        ct.Task.from_arrays("v", TEXTS, STARS, test=([["a"]], ["1"]))
    with pytest.raises(ct.CrossTaskError, match="`seed` must be at least 0"):
        stars(seed=-1)
    with pytest.raises(ct.CrossTaskError, match="`limit` must be at least 1"):
        stars(limit=0)


def test_spec_travels_as_plain_data():
    import json

    for task in (stars(metric="macro_f1"), stars(kind="regression"), stars(map={"1": "x"})):
        data = json.loads(json.dumps(task.spec.to_json()))
        assert ct.data.task.TaskSpec.from_json(data) == task.spec


def test_common_label():
    """What a word gets that lies beyond the encoder's reach: the tag that training shows most."""
    tags = ct.Task.from_arrays("t", [["a", "b", "c"]] * 5, [["X", "O", "O"]] * 5)
    assert tags.labels[tags.spec.common_label] == "O"


def test_keyword_arguments_are_the_fields_of_the_options():
    """Type checkers know the keywords, the options know the defaults: the same names with the same types."""
    keywords = get_type_hints(SplitKeywords)
    assert keywords == get_type_hints(SplitOptions)
    assert set(keywords) - set(get_type_hints(ArrayKeywords)) == {"labels", "window"}  # of arrays: `label_names`, none


# Columns of vectors.


def measured(names="ab", **options):
    rng = np.random.default_rng(0)
    rows = [{"a": float(x), "b": float(y), "label": str(int(x > 0))} for x, y in rng.normal(size=(40, 2))]
    return ct.Task.from_records("t", rows, features=list(names), label="label", dev=False, **options)


def test_a_model_reads_columns_by_their_names():
    """Another order of the columns changes nothing, whoever holds them."""
    pd = pytest.importorskip("pandas")
    task = measured()
    assert task.spec.features == ("a", "b")
    run = ct.Learner("linear", updates=40, progress=False).fit(task)
    frame = pd.DataFrame({"b": task.train.inputs[:, 1], "a": task.train.inputs[:, 0]})
    expected = run.predictions(task.train.inputs).scores
    assert run.predictions(frame).scores == pytest.approx(expected)
    assert run.predictions(frame[["b", "a"]].assign(c=0.0)).scores == pytest.approx(expected)
    assert run.score(measured("ba").train) == run.score(task.train)
    with pytest.raises(ct.CrossTaskError, match="has no feature 'a', which the model reads"):
        run.predict(frame[["b"]].assign(c=0.0))


def test_names_of_columns_are_saved(tmp_path):
    task = measured()
    ct.Learner("linear", updates=1, progress=False).fit(task, output=tmp_path / "run")
    assert ct.load(tmp_path / "run").spec().features == ("a", "b")
    wide = np.zeros((4, 10_001), dtype=np.float32)
    examples = ct.Examples(wide, ["a", "b"] * 2, features=tuple(map(str, range(10_001))))
    assert ct.Task.assemble("wide", examples, dev=False).spec.features == ()
