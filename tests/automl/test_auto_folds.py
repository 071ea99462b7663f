"""Folds: stratified for every kind of task, the same for every candidate, and hidden from the sources."""

from collections import Counter

import numpy as np
import pytest

import crosstask as ct
from crosstask.automl.folds import NUM_FOLDS, Folds, check_labels, deal, pooled, strata_of


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
