"""Every weighting by name through the learner: trains, records, stops and resumes, on vectors and on tags."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.demo.problem import OPTIONS
from crosstask.training import checkpoints
from crosstask.training.forward import Stepper
from crosstask.training.problem import without_overlap
from crosstask.weighting import WEIGHTINGS

SPECIAL = {**OPTIONS, "fixed": {"weights": {"target": 1.0, "helpful": 0.5, "noise": 0.5}}}
SPECIAL["tawt"] = {"every": 5}
SPECIAL["tawt-samples"] = {"every": 2, "warmup": 2}
every_weighting = pytest.mark.parametrize("name", list(WEIGHTINGS))


def tasks(size=48):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(size, 6)).astype("float32")
    labels = vectors[:, 0] > 0
    target = ct.Task.from_arrays("target", vectors, labels)
    helpful = ct.Task.from_arrays("helpful", vectors, vectors[:, 0] + 0.2 * vectors[:, 1] > 0)
    noise = ct.Task.from_arrays("noise", vectors, rng.integers(3, size=size))
    return target, [helpful, noise]


def learner(name, **settings):
    settings = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "progress": False, **settings}
    weighting = {"name": name, **SPECIAL.get(name, {})}
    return ct.Learner({"name": "relu", "hidden": 8}, weighting=weighting, **settings)


@every_weighting
def test_trains_records_and_resumes(name, tmp_path, monkeypatch):
    target, sources = tasks()
    whole = learner(name).fit(target, sources, output=tmp_path / "whole")
    assert all(torch.isfinite(tensor).all() for tensor in whole.model.state_dict().values())
    assert set(whole.weights) == {"target", "helpful", "noise"}
    assert all(np.isfinite(list(whole.weights.values())))
    real, calls = checkpoints.save, []

    def dies_after_two(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        learner(name).fit(target, sources, output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    resumed = learner(name).fit(target, sources, output=tmp_path / "broken", resume=True)
    for parameter, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[parameter]), parameter
    assert resumed.weights == whole.weights


@pytest.mark.parametrize("name", ["tawt", "mgda", "metaweighting", "getmtl", "gradnorm"])
def test_what_was_seen_is_recorded(name):
    target, sources = tasks()
    rows = [row for row in learner(name).fit(target, sources).history if row["event"] == "weighting"]
    assert rows
    assert all("conflict" in row or "similarities" in row for row in rows)
    assert all(set(row["weights"]) == {"target", "helpful", "noise"} for row in rows)


def test_tawt_prefers_the_helpful_source_in_pretraining():
    """The target stands outside the simplex; its head is trained along, the encoder is not trained by it."""
    target, sources = tasks(size=200)
    run = learner("tawt", paradigm="pretrain", epochs=12, batch_size=16).fit(target, sources)
    assert set(run.weights) == {"helpful", "noise"}
    assert run.weights["helpful"] > 2 * run.weights["noise"]
    assert sum(run.weights.values()) == pytest.approx(1.0)


def test_tawt_starts_as_the_paradigm_says():
    target, sources = tasks()
    few = ct.Task.from_arrays("target", target.train.inputs[:12], target.train.labels[:12])
    starts = {}
    for paradigm in ("joint", "normalized-joint"):
        run = learner("tawt", paradigm=paradigm).fit(few, sources)
        starts[paradigm] = next(row["weights"] for row in run.history if row["event"] == "phase")
    assert starts["normalized-joint"] == pytest.approx(dict.fromkeys(["target", "helpful", "noise"], 1 / 3))
    assert starts["joint"]["target"] < 0.2 < starts["joint"]["noise"]


@pytest.mark.parametrize("options", [{"every": 1}, {"every": 3}, {"every": 2, "fresh": 8}], ids=str)
@pytest.mark.parametrize("paradigm", ["joint", "normalized-joint"])
def test_tawt_whose_weights_do_not_move_is_training_with_fixed_weights(paradigm, options):
    """What is learned beside the weights is the same: inspections change nothing but the weights."""
    target, sources = tasks()
    few = ct.Task.from_arrays("target", target.train.inputs[:16], target.train.labels[:16], dev=target.dev)
    encoder = {"name": "relu", "hidden": 8, "dropout": 0.2}
    settings = {"paradigm": paradigm, "epochs": 3, "batch_size": 8, "learning_rate": 0.01, "progress": False}
    learned = ct.Learner(encoder, weighting=ct.TAWT(step_size=1e-12, **options), **settings).fit(few, sources)
    fixed = ct.Learner(encoder, weighting=ct.Fixed(learned.weights), **settings).fit(few, sources)
    assert learned.weights == pytest.approx(fixed.weights, abs=1e-9)
    for name, tensor in fixed.model.state_dict().items():
        torch.testing.assert_close(learned.model.state_dict()[name], tensor, atol=1e-5, rtol=1e-4)
    assert learned.scores == fixed.scores


def test_tawt_with_a_probe_and_one_task_a_step():
    target, sources = tasks()
    weighting = ct.TAWT(every=2, probe=16)
    run = ct.Learner(
        {"name": "relu", "hidden": 8}, weighting=weighting, schedule="mixed", epochs=3, batch_size=8, progress=False
    ).fit(target, sources)
    assert any(row["event"] == "held_out" for row in run.history)
    assert run.weights != pytest.approx(dict.fromkeys(run.weights, 1 / 3))
    with pytest.raises(ct.CrossTaskError, match="schedule: parallel"):
        learner("mgda", schedule="mixed").fit(target, sources)


def what_is_shown(monkeypatch, **options):
    """The inputs that trained the model and those that judged the weights, by task, and the tasks."""
    shown = {"trained": {}, "judged": {}}
    run = Stepper.run

    def watched(self, data, step, options):
        part = "trained" if options.with_transfers else "judged"
        for task, places in step.items():
            shown[part].setdefault(task, set()).update(tuple(data[task].rows[i]["features"].tolist()) for i in places)
        return run(self, data, step, options)

    monkeypatch.setattr(Stepper, "run", watched)
    target, sources = tasks()
    sources = [ct.Task.from_arrays(task.name, task.train.inputs, task.train.labels, dev=False) for task in sources]
    sources = without_overlap(sources, [target])  # as the learner would
    weighting = {"name": "metaweighting", **options}
    ct.Learner(
        {"name": "relu", "hidden": 8}, weighting=weighting, epochs=4, batch_size=8, progress=False
    ).fit(target, sources)  # fmt: skip
    return shown["trained"], shown["judged"], [target, *sources]


def inputs(examples):
    return {tuple(np.float32(row).tolist()) for row in examples.inputs}


def test_the_query_part_never_trains(monkeypatch):
    trained, judged, given = what_is_shown(monkeypatch, query=0.25)
    for task in given:
        assert trained[task.name].isdisjoint(judged[task.name])
        assert trained[task.name] | judged[task.name] == inputs(task.train)
        assert len(judged[task.name]) == round(0.25 * len(task.train))


def test_dev_sets_as_query_sets_leave_everything_to_train_on(monkeypatch):
    trained, judged, (target, *sources) = what_is_shown(monkeypatch, query="dev")
    assert trained["target"] == inputs(target.train)
    assert judged["target"] == inputs(target.dev)
    for task in sources:  # without a dev set
        assert task.dev is None
        assert len(judged[task.name]) == round(0.1 * len(task.train))
        assert trained[task.name].isdisjoint(judged[task.name])


@pytest.mark.parametrize("name", ["tawt", "mgda-ub", "tawt-samples", "metaweighting", "svd"])
def test_taggers_and_transformers(name, tagging_files, tiny_encoder):
    ner = ct.Task.from_columns("target", tagging_files / "ner.txt", token=0, label=1, limit=30)
    pos = ct.Task.from_conllu("pos", tagging_files / "pos.conllu", label="upos")
    weighting = {"name": name, **SPECIAL.get(name, {})}
    for encoder in ({"name": "lstm", "dimension": 8, "hidden": 8}, tiny_encoder("bert")):
        run = ct.Learner(encoder, weighting=weighting, epochs=2, batch_size=8, progress=False).fit(ner, [pos])
        assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())


def test_a_frozen_encoder_leaves_nothing_to_compare(tiny_encoder):
    texts = ct.Task.from_arrays("target", ["good", "bad"] * 6, ["+", "-"] * 6)
    other = ct.Task.from_arrays("other", ["good", "bad"] * 6, ["a", "b"] * 6)
    with pytest.raises(ct.CrossTaskError, match="add a shared layer: `hidden`"):
        ct.Learner({"name": tiny_encoder("bert"), "freeze": True}, weighting="mgda", progress=False).fit(texts, [other])
