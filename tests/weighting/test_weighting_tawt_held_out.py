"""Held-out TAWT in loops: which examples train and which judge, when, and what its weights say."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.training.forward import Stepper
from weighting_problem import TinyProblem

ENCODER = {"name": "relu", "hidden": 16}


def tasks(num_labels=30, size=300, seed=0):
    """A target with few labels, one source that is the same task, and one whose labels are random."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(num_labels + 2 * size, 20)).astype("float32")
    labels = vectors[:, :4].sum(axis=1) + rng.normal(size=len(vectors)) > 0
    ends = num_labels, num_labels + size
    target = ct.Task.from_arrays("target", vectors[: ends[0]], labels[: ends[0]], dev=False)
    same = ct.Task.from_arrays("same", vectors[ends[0] : ends[1]], labels[ends[0] : ends[1]], dev=False)
    noise = rng.integers(2, size=size)
    return target, [same, ct.Task.from_arrays("noise", vectors[ends[1] :], noise, dev=False)]


def learner(weighting="tawt-held-out", **settings):
    options = {"batch_size": 8, "learning_rate": 0.01, "progress": False, "updates": 60, **settings}
    return ct.Learner(ENCODER, paradigm=options.pop("paradigm", "normalized-joint"), weighting=weighting, **options)


class Watch:
    """What trained the model in each update, and what judged the weights after it, as positions in the target."""

    def __init__(self, monkeypatch, target):
        self.number_of = {tuple(row): number for number, row in enumerate(np.asarray(target.train.inputs).tolist())}
        self.updates, self.judged = [], {}
        run = Stepper.run

        def watched(stepper, data, step, options):
            rows = {tuple(data["target"].rows[i]["features"].tolist()) for i in step.get("target", ())}
            numbers = {self.number_of[row] for row in rows}
            if options.with_transfers:
                self.updates.append(numbers)
            else:
                assert set(step) == {"target"}
                self.judged[len(self.updates)] = numbers
            return run(stepper, data, step, options)

        monkeypatch.setattr(Stepper, "run", watched)


@pytest.mark.parametrize("paradigm", ["normalized-joint", "pretrain"])
def test_parts_take_turns_and_no_label_is_lost(monkeypatch, paradigm):
    target, sources = tasks(num_labels=23)
    watch = Watch(monkeypatch, target)
    run = learner({"name": "tawt-held-out", "parts": 3, "inspections": 6}, paradigm=paradigm).fit(target, sources)
    inspections = sorted(watch.judged)
    assert inspections == [8, 16, 24, 32, 40, 48]  # 60 // 7 = 8
    assert [row["update"] for row in run.history if row["event"] == "weighting"] == inspections
    # 1. Parts: all examples, each in one part, and each part twice.
    first_round = [watch.judged[number] for number in inspections[:3]]
    assert sorted(number for part in first_round for number in part) == list(range(23))
    assert [watch.judged[number] for number in inspections[3:]] == first_round
    # 2. Between two inspections a part does not train; before and after its turn it does.
    for number in inspections:
        assert watch.judged[number].isdisjoint(set().union(*watch.updates[number - 8 : number]))
    assert set().union(*watch.updates[:24]) == set(range(23))
    assert set().union(*watch.updates[48:60]) == set(range(23))
    # 3. A batch is as large as others are.
    assert {len(numbers) for numbers in watch.updates[:60]} <= {8, 7}
    held_out = [row["losses"] for row in run.history if row["event"] == "held_out"]
    assert len(held_out) == 6
    assert all(set(losses) == {"target"} for losses in held_out)


@pytest.mark.parametrize("paradigm", ["normalized-joint", "pretrain"])
def test_a_source_that_helps_gets_more_weight_than_noise(paradigm):
    ratios = []
    weighting = {"name": "tawt-held-out", "inspections": 30}
    for seed in range(4):
        target, sources = tasks(num_labels=60, size=600, seed=seed)
        run = learner(weighting, paradigm=paradigm, updates=150, batch_size=32, learning_rate=0.003, seed=seed)
        weights = run.fit(target, sources).weights
        assert sum(weights.values()) == pytest.approx(1.0)
        assert ("target" in weights) == (paradigm == "normalized-joint")
        ratios.append(weights["same"] / weights["noise"])
    assert np.exp(np.mean(np.log(ratios))) > 1.5


def test_the_target_is_no_judge_of_its_own_batch():
    """Labels that cannot be learned: TAWT's target agrees with itself, the held-out target does not."""
    target, sources = tasks(num_labels=60)
    labels = np.random.default_rng(3).integers(2, size=60)
    target = ct.Task.from_arrays("target", target.train.inputs, labels, dev=False)
    weights = {}
    for name in ("tawt", "tawt-held-out"):
        run = learner({"name": name, "inspections": 10}, updates=150).fit(target, sources)
        weights[name] = run.weights["target"]
    assert weights["tawt"] > 0.9
    assert weights["tawt-held-out"] < 0.4


def test_accumulated_steps_hold_out_one_part_for_the_whole_update(monkeypatch):
    target, sources = tasks(num_labels=20)
    watch = Watch(monkeypatch, target)
    weighting = {"name": "tawt-held-out", "parts": 2, "every": 4}
    learner(weighting, accumulate=3, updates=10, batch_size=4).fit(target, sources)
    assert len(watch.judged) >= 4
    for number, part in watch.judged.items():
        assert number % 3 == 0  # after whole updates
        assert part.isdisjoint(set().union(*watch.updates[number - 3 : number]))


def test_too_few_labels_for_the_parts():
    target, sources = tasks(num_labels=4)
    with pytest.raises(ct.CrossTaskError, match=r"5 parts of the target 'target'.* have 4 different inputs"):
        learner().fit(target, sources)
    with pytest.raises(ct.CrossTaskError, match="`parts` must be a whole number >= 2"):
        ct.HeldOutTAWT(parts=1)
    with pytest.raises(ct.CrossTaskError, match=r"Unknown `similarity` of weighting 'tawt-held-out': 'exact'"):
        ct.HeldOutTAWT(similarity="exact")


def test_a_set_of_label_transfer_would_train_on_the_part_that_judges():
    target, sources = tasks()
    transfer = [{"name": "label-transfer", "hold": "set"}]
    with pytest.raises(ct.CrossTaskError, match="`hold: batch`"):
        learner(transfer=transfer).fit(target, sources)
    run = learner(transfer=["label-transfer"], updates=30).fit(target, sources)
    assert set(run.weights) == {"target", "same", "noise"}


# Loops of one's own


def test_after_step_looks_up_the_targets_loss_alone_and_may_be_called_always():
    problem, weighting = TinyProblem(), ct.HeldOutTAWT(every=3, tasks=["a", "b", "c"], target="a")

    class Losses(dict):
        def __missing__(self, task):
            raise AssertionError(task)

    for step in range(1, 7):
        before = weighting.weights
        problem.backward(weighting)
        held_out, _ = problem.losses(["a"], part=1)
        weighting.after_step(Losses(held_out))
        assert (weighting.weights != before) == (step % 3 == 0)
        assert not weighting.wants_held_out


def test_a_loop_that_never_calls_after_step_is_told():
    problem, weighting = TinyProblem(), ct.HeldOutTAWT(every=1, tasks=["a", "b", "c"], target="a")
    for _ in range(3):
        problem.backward(weighting)
    with pytest.warns(ct.CrossTaskWarning, match="after_step"):
        problem.backward(weighting)


def test_a_gradient_that_overflows_moves_no_weight_and_the_next_step_inspects():
    weighting = ct.HeldOutTAWT(every=2, tasks=["own", "other"], target="own")
    parameter = torch.nn.Parameter(torch.ones(1))
    for step in range(1, 4):
        parameter.grad = None
        factor = float("inf") if step == 2 else 1.0
        weighting.backward({"own": parameter.sum(), "other": factor * parameter.sum()}, shared=[parameter])
        assert weighting.wants_held_out == (step > 1)
        weighting.after_step({"own": parameter.sum()})
        assert (weighting.last_inspection == 3) == (step == 3)
    assert sum(weighting.weights.values()) == pytest.approx(1.0)


def test_the_run_is_over_when_no_inspection_could_change_a_step():
    weighting = ct.HeldOutTAWT(parts=2, inspections=2, tasks=["own", "other"], target="own")
    weighting.expect(9)
    parameter = torch.nn.Parameter(torch.ones(1))
    parts = []
    for _ in range(9):
        parts.append(weighting.held_out_part)
        parameter.grad = None
        weighting.backward({"own": parameter.sum(), "other": 2 * parameter.sum()}, shared=[parameter])
        weighting.after_step({"own": parameter.sum()})
    assert parts == [0, 0, 0, 1, 1, 1, None, None, None]
