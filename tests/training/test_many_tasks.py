"""More tasks than fit one step: samples of them, exact resume, and what refuses."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.demo.problem import OPTIONS
from crosstask.models.batches import LabelStream, Stream, TaskSampling
from crosstask.models.multitask import Model
from crosstask.training import checkpoints
from crosstask.weighting import WEIGHTINGS

COMPARE_ALL = ["db-mtl", "getmtl", "metaweighting", "mgda", "mgda-ub", "tchebycheff", "torchjd"]
"""Weightings that need a batch of every task in each step."""
SOURCES = ["helpful", "like", "noise", "other"]
SPECIAL = {**OPTIONS, "fixed": {"weights": dict.fromkeys(["target", *SOURCES], 0.2)}}
SPECIAL["tawt"] = {"every": 5}
SPECIAL["tawt-samples"] = {"every": 2, "warmup": 2}


def tasks(size=48):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(size, 6)).astype("float32")
    target = ct.Task.from_arrays("target", vectors, vectors[:, 0] > 0)
    sources = []
    for number, name in enumerate(SOURCES):
        sources.append(ct.Task.from_arrays(name, vectors, vectors[:, 0] + number * vectors[:, 1] > 0))
    return target, sources


def learner(name, **settings):
    settings = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "progress": False, "tasks_per_step": 3, **settings}
    weighting = {"name": name, **SPECIAL.get(name, {})}
    return ct.Learner({"name": "relu", "hidden": 8}, weighting=weighting, **settings)


def stream_of(num_tasks, tasks_per_step, **options):
    lengths = {f"task{number}": np.full(60, 5) for number in range(num_tasks)}
    return Stream(lengths, batch_size=4, tasks_per_step=tasks_per_step, **options)


def test_the_target_is_in_every_step_and_sources_in_their_turn():
    stream = stream_of(6, 3, always=["task0"])
    counts = dict.fromkeys(stream.lengths, 0)
    steps = [step for epoch in range(40) for step in stream.epoch(epoch)]
    for step in steps:
        assert len(step) == 3
        for task, positions in step.items():
            counts[task] += 1
            assert len(set(positions)) == len(positions) == 4
    assert counts.pop("task0") == len(steps) == 600
    assert stream.probabilities == {"task0": 1.0, **dict.fromkeys(counts, 2 / 5)}
    for count in counts.values():  # each standard deviation is 12
        assert abs(count - 0.4 * 600) < 48


def test_what_a_source_counts_over_the_run():
    """A gradient times 1 / q, in the steps that have it, is on average the gradient."""
    stream = stream_of(5, 2, always=["task0"])
    gradients = {task: number + 1.0 for number, task in enumerate(stream.lengths)}
    sums = []
    for epoch in range(60):
        for step in stream.epoch(epoch):
            sums.append(sum(gradients[task] / stream.probabilities[task] for task in step))
    assert np.mean(sums) == pytest.approx(sum(gradients.values()), rel=0.03)


def test_seed_and_epoch_decide_the_samples():
    def steps(seed, epoch):
        return [list(step) for step in stream_of(9, 3, seed=seed).epoch(epoch)]

    assert steps(0, 3) == steps(0, 3)
    assert steps(0, 3) != steps(0, 4)
    assert steps(0, 3) != steps(1, 3)


def test_batches_of_a_task_stay_as_they_are():
    """Paired comparisons: the target's batches do not depend on which sources are sampled."""
    some, every = stream_of(6, 3, always=["task0"]), stream_of(6, None)
    assert [tuple(step["task0"]) for step in some.epoch(1)] == [tuple(step["task0"]) for step in every.epoch(1)]


def test_as_many_as_there_are_means_all():
    assert not stream_of(4, 4).sampling.leaves_out
    assert not stream_of(4, None).sampling.leaves_out
    assert TaskSampling.of(["a", "b", "c"], 2, ["a", "b", "c"]).count == 2  # targets alone are sampled


def test_batches_by_label_are_sampled_too():
    lengths = {task: np.full(12, 5) for task in "abc"}
    labels = {task: np.arange(12) % 3 for task in "abc"}
    stream = LabelStream(lengths, labels, 2, batch_size=6, tasks_per_step=2, always=["a"])
    assert all(len(step) == 2 and "a" in step for step in stream.epoch(0))


@pytest.mark.parametrize("name", list(WEIGHTINGS))
def test_every_weighting_trains_and_resumes_or_refuses(name, tmp_path, monkeypatch):
    target, sources = tasks()
    if name in COMPARE_ALL:
        with pytest.raises(ct.CrossTaskError, match=r"compares all tasks in each step.*tasks_per_step: 3.*2 of 5 out"):
            learner(name).fit(target, sources)
        return
    whole = learner(name).fit(target, sources, output=tmp_path / "whole")
    assert all(np.isfinite(list(whole.weights.values())))
    real, calls = checkpoints.save, []

    def dies_after_two(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        learner(name, checkpoint_every=2).fit(target, sources, output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    resumed = learner(name, checkpoint_every=2).fit(target, sources, output=tmp_path / "broken", resume=True)
    for parameter, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[parameter]), parameter
    assert resumed.weights == whole.weights


@pytest.mark.parametrize("paradigm", ["joint", "pretrain"])
def test_losses_of_a_step_are_those_of_its_tasks(paradigm):
    target, sources = tasks()
    run = learner("uniform", paradigm=paradigm, accumulate=2).fit(target, sources)
    rows = [row for row in run.history if row["event"] == "update"]
    assert rows
    assert {task for row in rows for task in row["losses"]} == {"target", *SOURCES}


def test_tawt_weighs_sources_that_take_turns():
    target, sources = tasks(size=200)
    run = learner("tawt", epochs=8).fit(target, sources)
    assert run.weights["helpful"] > run.weights["other"]
    assert sum(run.weights.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": "mixed"}, "with `schedule: mixed` it has one"),
        ({"tasks_per_step": 1}, "raise it to 2 or more"),
        ({"transfer": "label-transfer"}, "leave `tasks_per_step` out"),
        ({"transfer": "forkmerge", "paradigm": "joint"}, "leave `tasks_per_step` out"),
    ],
)
def test_what_does_not_go_together(settings, words):
    target, sources = tasks()
    with pytest.raises(ct.CrossTaskError, match=words):
        learner("uniform", **settings).fit(target, sources)


def test_tasks_are_evaluated_without_switching_the_model_for_each(monkeypatch):
    """With a thousand heads, that took longer than all the rest of a short run."""
    target, sources = tasks()
    switched = []
    real = Model.train
    monkeypatch.setattr(Model, "train", lambda model, mode=True: (switched.append(mode), real(model, mode))[1])
    learner("uniform", updates=2, evaluate_every=2).fit(target, sources)
    assert len(switched) <= 7
