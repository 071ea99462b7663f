"""Folds: stratified for every kind of task, the same for every candidate, and hidden from the sources."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import crosstask as ct
from crosstask.automl.folds import WHOLE, Folds, check_labels, pooled, strata_of
from crosstask.data.subsets import NUM_FOLDS, deal


def task(labels, **options):
    inputs = np.arange(2.0 * len(labels), dtype="float32").reshape(-1, 2)
    return ct.Task.from_arrays("t", inputs, labels, dev=False, **options)


def test_each_example_is_held_out_once_in_a_repeat_and_classes_are_spread():
    labels = ["a"] * 23 + ["b"] * 10 + ["c"] * 5
    folds = Folds(task(labels), seed=0)
    for repeat in range(2):
        held = [folds.held_out(repeat * NUM_FOLDS + part) for part in range(NUM_FOLDS)]
        assert sorted(np.concatenate(held).tolist()) == list(range(len(labels)))
        for label, most, least in (("a", 5, 4), ("b", 2, 2), ("c", 1, 1)):
            counts = [sum(labels[i] == label for i in part) for part in held]
            assert max(counts) <= most
            assert min(counts) >= least
    assert folds.held_out(0).tolist() != folds.held_out(NUM_FOLDS).tolist()
    assert folds.held_out(3).tolist() == Folds(task(labels), seed=0).held_out(3).tolist()


def test_numbers_are_spread_by_their_size():
    values = np.linspace(0, 1, 50)
    folds = deal(strata_of("regression", values), np.random.default_rng(0))
    means = [values[folds == fold].mean() for fold in range(NUM_FOLDS)]
    assert max(means) - min(means) < 0.1


def test_rare_labels_are_spread():
    sets = [("common",)] * 40 + [("common", "rare")] * 5
    folds = deal(strata_of("multilabel", sets), np.random.default_rng(0))
    assert sorted(folds[40:].tolist()) == list(range(NUM_FOLDS))
    assert strata_of("multilabel", [()]) == [None]


def test_dev_labels_join_the_others():
    given = ct.Task.from_arrays("t", np.eye(40, dtype="float32"), ["a", "b"] * 20)
    both = pooled(given)
    assert (len(given.train), len(given.dev), len(both.train), both.dev) == (32, 8, 40, None)
    assert Counter(both.train.labels) == {"a": 20, "b": 20}
    assert {row.argmax() for row in both.train.inputs} == set(range(40))
    texts = ct.Task.from_arrays("t", [f"text {i}" for i in range(10)], ["a", "b"] * 5, dev=(["more"], ["a"]))
    assert pooled(texts).train.inputs[-1] == "more"


def test_sources_do_not_know_what_is_held_out():
    texts = [f"text {i}" for i in range(20)]
    target = ct.Task.from_arrays("target", texts, ["a", "b"] * 10, dev=False)
    source = ct.Task.from_arrays("source", [f" {text}" for text in texts] + ["other"] * 5, ["x", "y"] * 12 + ["x"])
    own, (other,) = Folds(target, 0).tasks(2, [source])
    assert len(own.train) == 16
    assert own.test is None
    hidden = set(own.dev.inputs)
    assert hidden.isdisjoint(own.train.inputs)
    assert hidden.isdisjoint(text.strip() for text in other.train.inputs)
    assert other.dev is None


def test_too_few_labels():
    with pytest.raises(ct.CrossTaskError, match="has 4 labelled examples, fewer than the 5 folds"):
        check_labels(task(["a", "b", "a", "b"]))


def test_one_class():
    only = task(["a"] * 6 + ["b"])
    only = type(only)(only.spec, only.train.take(range(6)))
    with pytest.raises(ct.CrossTaskError, match="all of its 6 labelled examples are 'a'"):
        check_labels(only)


@pytest.mark.parametrize("times", [2, 4, "unequal"])
def test_examples_with_one_input_are_in_one_fold(times):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 8, size=40) if times == "unequal" else np.full(40, times)
    numbers = rng.permutation(np.repeat(np.arange(40), counts))
    inputs = np.stack([numbers, numbers**2], axis=1).astype("float32")
    labels = [["a", "b"][number % 2] for number in numbers]
    folds = Folds(ct.Task.from_arrays("t", inputs, labels, dev=False), seed=0)
    for repeat in range(2):
        held = [folds.held_out(repeat * NUM_FOLDS + part) for part in range(NUM_FOLDS)]
        assert sorted(np.concatenate(held).tolist()) == list(range(len(labels)))
        for part in held:
            rest = np.setdiff1d(np.arange(len(labels)), part)
            assert set(numbers[part]).isdisjoint(numbers[rest])
        for label in "ab":  # sizes of folds as equal as the counts of inputs allow
            sizes = [sum(labels[i] == label for i in part) for part in held]
            assert max(sizes) - min(sizes) <= counts.max()
        sizes = [len(part) for part in held]
        assert max(sizes) - min(sizes) <= counts.max()


@pytest.mark.parametrize("copies", [1, 3])
def test_a_part_of_the_labels_lies_in_a_larger_one_and_is_stratified(copies):
    inputs = [f"text {number}" for number in range(80)] * copies
    labels = ["a", "b", "b", "b"] * 20 * copies
    folds = Folds(ct.Task.from_arrays("t", inputs, labels, dev=False), seed=0)
    for fold in (0, 7):
        parts = [folds.remaining(fold, quarters) for quarters in (1, 2, 3, WHOLE)]
        assert [len(part) for part in parts] == [16 * copies, 32 * copies, 48 * copies, 64 * copies]
        for smaller, larger in pairwise(parts):
            assert set(smaller) < set(larger)
        for quarters, part in enumerate(parts, 1):
            assert sum(labels[position] == "a" for position in part) == 4 * quarters * copies
            assert set(np.take(inputs, part)).isdisjoint(np.take(inputs, np.setdiff1d(range(len(inputs)), part)))
        assert sorted({*parts[-1], *folds.held_out(fold)}) == list(range(len(inputs)))
    target, _ = folds.tasks(7, [], 1)
    assert list(target.train.inputs) == [inputs[position] for position in parts[0]]
    assert list(target.dev.inputs) == [inputs[position] for position in folds.held_out(7)]


def test_without_repeated_inputs_folds_are_dealt_in_turn():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        strata = rng.integers(0, rng.integers(1, 9), size=rng.integers(1, 60)).tolist()
        folds = deal(strata, np.random.default_rng(seed))
        generator = np.random.default_rng(seed)
        names = list(dict.fromkeys(strata))
        turns = dict(zip(names, generator.permutation(len(names)), strict=True))
        shuffled = generator.permutation(len(strata))
        order = sorted(range(len(strata)), key=lambda i: (turns[strata[i]], shuffled[i]))
        assert folds[order].tolist() == [i % NUM_FOLDS for i in range(len(strata))]


def test_too_few_different_inputs():
    repeats = ct.Task.from_arrays("t", ["a", "b", "c", "d"] * 5, ["x", "y"] * 10, dev=False)
    with pytest.raises(ct.CrossTaskError, match="has 4 different inputs in its 20 labelled examples, fewer than the 5"):
        check_labels(repeats)


def test_a_source_that_a_fold_holds_out_altogether():
    target = ct.Task.from_arrays("target", [f"text {i}" for i in range(20)], ["a", "b"] * 10, dev=False)
    folds = Folds(target, 0)
    own, _ = folds.tasks(0, [])
    copy = ct.Task.from_arrays("copy", own.dev.inputs[:2], ["x", "y"], dev=False)
    with pytest.raises(ct.CrossTaskError, match="Source 'copy' has nothing left to train on"):
        folds.tasks(0, [copy])
