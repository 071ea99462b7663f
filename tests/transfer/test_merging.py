"""Encoders of sources, merged: what each starts from, what the weights are, and that the model is a plain one."""

import itertools

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.training import checkpoints
from crosstask.transfer.merging import MAX_DIRECTIONS, Merging, merge_weights, probe_loss

ENCODER = {"name": "relu", "hidden": 8, "standardize": False}
DIRECTIONS = np.random.default_rng(0).normal(size=(12, 3))


def make_task(name, seed, size=64, shuffled=False, **options):
    """Classes by three directions of a vector, which `good` shares with the target; shuffled ones say nothing."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(size, 12)).astype("float32")
    labels = (vectors @ DIRECTIONS).argmax(1)
    if shuffled:
        labels = generator.permutation(labels)
    return ct.Task.from_arrays(name, vectors, labels, **{"dev": False, **options})


def problem(**options):
    sources = [make_task("good", 1, 400), make_task("shuffled", 2, 400, shuffled=True)]
    return make_task("target", 3, 40, **options), sources


def learner_of(paradigm="pretrain", **settings):
    options = {name: settings.pop(name) for name in ("weights", "then") if name in settings}
    settings = {"updates": 60, "batch_size": 16, "learning_rate": 1e-2, "seed": 0, **settings}
    return ct.Learner(ENCODER, paradigm=paradigm, transfer=[Merging(**options)], progress=False, **settings)


def fit(paradigm="pretrain", target=None, sources=None, **settings):
    if target is None:
        target, sources = problem()
    return learner_of(paradigm, **settings).fit(target, sources)


def facts_of(run):
    (row,) = [row for row in run.history if row["event"] == "transfer"]
    return row


def phases(run):
    starts = [row["tasks"] for row in run.history if row["event"] == "phase"]
    ends = [row for row in run.history if row["event"] == "phase_end"]
    return [(row["name"], tasks, row["updates"]) for row, tasks in zip(ends, starts, strict=True)]


SOURCES = [("source good", ["good"], 30), ("source shuffled", ["shuffled"], 30)]
MERGED = [("merging", ["target"], 0), ("probe", ["target"], 0)]


@pytest.mark.parametrize(
    ("paradigm", "settings", "expected"),
    [
        ("pretrain", {}, [*SOURCES, *MERGED, ("finetune", ["target"], 60)]),
        ("pretrain", {"then": "head"}, [*SOURCES, *MERGED]),
        ("pretrain", {"head": "probe"}, [*SOURCES, *MERGED, ("finetune", ["target"], 60)]),
        (
            "joint",
            {"sources_first": 0.5},
            [
                ("source good", ["good"], 15),
                ("source shuffled", ["shuffled"], 15),
                *MERGED,
                ("joint", ["target", "good", "shuffled"], 30),
            ],
        ),
    ],
)
def test_phases(paradigm, settings, expected):
    run = fit(paradigm, **settings)
    assert phases(run) == expected
    assert run.scores["target"] == {}


def encoder_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.shared_parameters()])


def test_the_encoder_is_the_weighted_sum_of_task_vectors():
    """theta_0 + sum of lambda (theta_s - theta_0), with each theta_s from a run of its own."""
    target, sources = problem()
    learner = learner_of(then="head", weights="uniform")
    run = learner.fit(target, sources)
    start = encoder_of(learner._make_model([target, *sources]))
    (merging,) = learner.trained_transfers
    assert torch.equal(merging.start_parameters, start)
    trained = merging.source_parameters  # [sources, entries]
    assert (trained - start).abs().amax(1).min() > 0.01
    expected = start + 0.5 * (trained[0] - start) + 0.5 * (trained[1] - start)
    torch.testing.assert_close(encoder_of(run.model), expected)
    assert facts_of(run)["merge_weights"] == {"no source": 0.0, "good": 0.5, "shuffled": 0.5}


def test_each_source_starts_from_the_same_encoder():
    """What a source makes of the encoder does not depend on those before it, but for the order of its batches."""
    target, (good, other) = problem()
    first, second = learner_of(then="head", updates=2), learner_of(then="head", updates=2)
    first.fit(target, [good, other])
    second.fit(target, [other, good])
    of_first, of_second = first.trained_transfers[0], second.trained_transfers[0]
    torch.testing.assert_close(of_first.start_parameters, of_second.start_parameters)
    # One step of Adam, of the learning rate's length in every entry that has a gradient.
    for trained in (of_first.source_parameters, of_second.source_parameters):
        assert (trained - of_first.start_parameters).abs().max() < 0.011


def test_labels_choose_the_source_that_helps():
    run = fit(then="head", target=problem()[0], sources=problem()[1], updates=200)
    weights = facts_of(run)["merge_weights"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights["good"] > 0.5 > weights["shuffled"]


def test_the_weights_are_judged_by_labels_that_a_probe_has_not_seen():
    target, sources = problem()
    learner = learner_of(then="head")
    run = learner.fit(target, sources)
    facts, (merging,) = facts_of(run), learner.trained_transfers
    prepared = Prepared.of(run.model.encoder, target.spec, target.train)
    assert probe_loss(run.model, prepared, seed=0) == pytest.approx(facts["merged_loss"], rel=1e-4)
    assert facts["merged_loss"] <= min(facts["branch_losses"].values()) + 1e-9
    assert list(facts["branch_losses"]) == ["no source", "good", "shuffled"]
    # The head is fitted after the merge, to the merged features.
    assert (run.predictions(target.train.inputs).scores.argmax(1) == target.spec.encode(target.train)).mean() > 0.6
    assert merging.weights == "learned"


def test_a_target_that_needs_no_source_gets_none():
    target, sources = make_task("target", 3, 40), [make_task("shuffled", 2, 400, shuffled=True)]
    many = make_task("target", 5, 400)
    run = learner_of(then="head", updates=300, learning_rate=0.05).fit(many, sources)
    weights = facts_of(run)["merge_weights"]
    assert weights["no source"] >= 0.4
    assert len(target.train) == 40


class TestSearch:
    def test_it_finds_a_mixture(self):
        best = torch.tensor([0.4, 0.6, 0.0], dtype=torch.float64)

        def loss(weights):
            return float((weights - best).square().sum())

        assert loss(merge_weights(loss, num_sources=2)) < 0.1 * loss(torch.eye(3, dtype=torch.float64)[1])

    def test_it_may_begin_at_the_mean_of_all(self):
        mean = torch.tensor([0.0, *[1 / 3] * 3], dtype=torch.float64)
        weights = merge_weights(lambda weights: float((weights - mean).square().sum()), num_sources=3)
        assert weights == pytest.approx(mean)

    @pytest.mark.parametrize("seed", range(3))
    def test_no_worse_than_any_encoder_alone_and_on_the_simplex(self, seed):
        generator = torch.Generator().manual_seed(seed)
        matrix = torch.randn(4, 4, generator=generator, dtype=torch.float64)

        def loss(weights):
            return float((matrix @ weights).square().sum())

        weights = merge_weights(loss, num_sources=3)
        assert loss(weights) <= min(loss(row) for row in torch.eye(4, dtype=torch.float64)) + 1e-12
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1.0)

    def test_losses_that_are_no_numbers_are_the_worst(self):
        weights = merge_weights(lambda weights: 0.1 if weights[1] == 1.0 else float("nan"), num_sources=2)
        assert weights.tolist() == [0.0, 1.0, 0.0]

    def test_many_sources_cost_little_more_than_one_look_each(self):
        calls = itertools.count(1)

        def loss(weights):
            next(calls)
            return float((weights - 1 / 41).square().sum())

        merge_weights(loss, num_sources=40)
        assert next(calls) <= 1 + 40 + 2 + 5 * (MAX_DIRECTIONS + 1)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_kinds(kind):
    generator = np.random.default_rng(4)
    vectors = generator.normal(size=(40, 12)).astype("float32")
    labels = vectors[:, 0] + 0.5 if kind == "regression" else [tuple("ab"[: 1 + (row[0] > 0)]) for row in vectors]
    target = ct.Task.from_arrays("target", vectors, labels, dev=False, test=(vectors, labels))
    run = fit(then="head", target=target, sources=problem()[1], updates=10)
    assert run.scores["target"]["test"]


def test_low_rank_updates(tiny_encoder):
    """The merged update is folded into the weights when the model is exported, and loads without peft's layers."""
    pytest.importorskip("peft")
    texts = ["good shoe", "bad film", "nice book", "sad film"] * 4
    target = ct.Task.from_arrays("mood", texts, ["+", "-"] * 8, dev=False)
    sources = [ct.Task.from_arrays(name, texts, ["a", "b"] * 8, dev=False) for name in ("first", "second")]
    encoder = {"name": tiny_encoder("bert"), "lora": {"rank": 2}}
    learner = ct.Learner(
        encoder, paradigm="pretrain", transfer=["merging"], updates=4, batch_size=4, learning_rate=1e-2, progress=False
    )
    run = learner.fit(target, sources)
    (merging,) = learner.trained_transfers
    num_learning = sum(parameter.numel() for parameter in run.model.shared_parameters())
    assert merging.source_parameters.shape == (2, num_learning)
    assert num_learning < sum(parameter.numel() for parameter in run.model.encoder.parameters()) / 4
    assert not any("lora" in name for name in _exported_weights(run))


def _exported_weights(run):
    import tempfile
    from pathlib import Path

    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as folder:
        path = run.export(Path(folder) / "plain")
        expected = run.predict(["good shoe", "bad film"])
        assert ct.load(path).predict(["good shoe", "bad film"]) == expected
        with safe_open(path / "model.safetensors", "pt") as weights:
            return list(weights.keys())


@pytest.mark.parametrize("stop_at", [1, 2, 3, 5])
def test_a_killed_run_resumes_to_the_same_numbers(tmp_path, monkeypatch, stop_at):
    settings = {"updates": 8, "checkpoint_every": 2}
    whole = fit(**settings)
    save = checkpoints.save
    count = itertools.count(1)

    def stop(*arguments):
        save(*arguments)
        if next(count) == stop_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", stop)
    target, sources = problem()
    with pytest.raises(KeyboardInterrupt):
        learner_of(**settings).fit(target, sources, output=tmp_path / "run")
    monkeypatch.setattr(checkpoints, "save", save)
    resumed = learner_of(**settings).fit(target, sources, output=tmp_path / "run", resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    assert facts_of(resumed) == facts_of(whole)


class TestMistakes:
    @pytest.mark.parametrize("paradigm", ["single", "joint", "normalized-joint"])
    def test_no_phase_of_sources_alone(self, paradigm):
        with pytest.raises(ct.CrossTaskError, match="merges encoders that sources train alone, and here is no such"):
            fit(paradigm)

    def test_a_weighting(self):
        with pytest.raises(ct.CrossTaskError, match="the weighting 'uniform' has nothing to weigh"):
            fit(weighting="uniform")

    def test_another_transfer(self):
        learner = learner_of()
        learner.transfer.append(ct.Contrast())
        with pytest.raises(ct.CrossTaskError, match="trains each source by itself, without what 'contrast' learns"):
            learner.fit(*problem())

    def test_an_encoder_that_learns_nothing(self):
        target, sources = problem()
        learner = ct.Learner("vectors", paradigm="pretrain", transfer=["merging"], updates=2, progress=False)
        with pytest.raises(ct.CrossTaskError, match="nothing of this one learns"):
            learner.fit(target, sources)

    @pytest.mark.parametrize("options", [{"weights": "best"}, {"then": "all"}])
    def test_options(self, options):
        with pytest.raises(ct.CrossTaskError, match=f"`{next(iter(options))}`"):
            Merging(**options)
