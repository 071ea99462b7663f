"""What people type in Python beside what the docs say: done where it is plain what is meant, else one sentence."""

import numpy as np
import pytest

import crosstask as ct

TEXTS = [f"text {i % 7} {i}" for i in range(24)]
NETWORK = {"name": "mlp", "dimension": 4, "hidden": 4}
SETTINGS = {"updates": 2, "batch_size": 4, "progress": False}


@pytest.fixture
def target() -> ct.Task:
    return ct.Task.from_arrays("target", TEXTS, [0, 1] * 12)


@pytest.fixture
def source() -> ct.Task:
    return ct.Task.from_arrays("source", TEXTS[::-1], ["a", "b", "c"] * 8)


def test_one_source_needs_no_list(target, source):
    learner = ct.Learner(NETWORK, **SETTINGS)
    assert learner.fit(target, source).weights == learner.fit(target, [source]).weights
    assert learner.fit(target, None).metrics["paradigm"] == "single"
    vectors = np.random.default_rng(0).normal(size=(24, 3))
    one, other = (ct.Task.from_arrays(name, vectors, [0, 1] * 12) for name in ("one", "other"))
    assert [row.source for row in ct.rank(one, other, encoder="linear").rows] == ["other"]


@pytest.mark.parametrize(
    "weighting", [ct.TAWT, ct.MetaWeighting, ct.Uniform, ct.GradNorm, "tawt", {"name": "tawt"}], ids=str
)
def test_a_class_of_a_weighting_is_its_defaults(weighting, target, source):
    learner = ct.Learner(NETWORK, weighting=weighting, **SETTINGS)
    assert isinstance(learner.weighting, ct.Weighting)
    assert set(learner.fit(target, source).weights) == {"target", "source"}


@pytest.mark.parametrize("transfer", [ct.LabelTransfer, [ct.LabelTransfer], ct.LabelTransfer(), "label-transfer"])
def test_one_transfer_needs_no_list(transfer):
    assert [type(item) for item in ct.Learner(NETWORK, transfer=transfer).transfer] == [ct.LabelTransfer]
    assert ct.Learner(NETWORK, transfer=None).transfer == []


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda task: ct.Learner(NETWORK).fit(None), "fit: `target` must be a `Task`, or a list of them; found None"),
        (lambda task: ct.Learner(NETWORK).fit([]), r"fit: `target` must be a `Task`, or a list of them; found \[\]"),
        (
            lambda task: ct.Learner(NETWORK).fit(task, [None]),
            r"fit: `sources` must be a `Task` or a list .*found \[None\]",
        ),
        (lambda task: ct.Learner(NETWORK).fit(task, "source"), "fit: `sources` must be a `Task` or a list .*'source'"),
        (lambda task: ct.rank(None, [task]), "rank: `target` must be a `Task`, the one that matters; found None"),
        (lambda task: ct.rank(task, None), "There is no source to rank"),
        (lambda task: ct.auto(None), "auto: `target` must be a `Task`, the one that matters; found None"),
        (lambda task: ct.Learner(NETWORK, weighting=ct.Fixed), r"is the class Fixed, .*write Fixed\(\.\.\.\)"),
        (lambda task: ct.Learner(NETWORK, weighting=int), "weighting: expected a name or a mapping"),
    ],
)
def test_one_sentence(call, sentence, target):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        call(target)
