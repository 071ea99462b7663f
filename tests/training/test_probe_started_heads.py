"""Sources first, a probe as the target's head, then all together; and an end on the target alone."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.transfer.label_transfer.probes import probe_of

ENCODER = {"name": "relu", "hidden": 8, "standardize": False}


def make_task(name, seed, direction, size=64, **options):
    vectors = np.random.default_rng(seed).normal(size=(size, 6)).astype("float32")
    labels = (vectors @ np.asarray(direction) > 0).astype(int)
    return ct.Task.from_arrays(name, vectors, labels, **{"dev": False, **options})


def problem(**options):
    sources = [make_task("near", 1, [1, 1, 0, 0, 0, 0], size=96), make_task("far", 2, [0, 0, 0, 1, 1, 0], size=48)]
    return make_task("target", 0, [1, 0, 0, 0, 0, 0], size=32, **options), sources


def fit(paradigm, target=None, sources=None, **settings):
    if target is None:
        target, sources = problem()
    settings = {"updates": 20, "batch_size": 16, "learning_rate": 1e-2, **settings}
    learner = ct.Learner(ENCODER, paradigm=paradigm, progress=False, **settings)
    return learner.fit(target, () if paradigm == "single" else sources)


def phases(run):
    """Names, tasks and updates, in order."""
    starts = {row["name"]: row["tasks"] for row in run.history if row["event"] == "phase"}
    return [(row["name"], starts[row["name"]], row["updates"]) for row in run.history if row["event"] == "phase_end"]


TARGET, SOURCES, ALL = ["target"], ["near", "far"], ["target", "near", "far"]


@pytest.mark.parametrize(
    ("paradigm", "settings", "expected"),
    [
        ("single", {"head": "probe"}, [("probe", TARGET, 0), ("single", TARGET, 20)]),
        ("pretrain", {"head": "probe"}, [("pretrain", SOURCES, 20), ("probe", TARGET, 0), ("finetune", TARGET, 20)]),
        ("joint", {"head": "probe"}, [("sources", SOURCES, 10), ("probe", TARGET, 0), ("joint", ALL, 10)]),
        ("joint", {"head": "probe", "sources_first": 0.0}, [("probe", TARGET, 0), ("joint", ALL, 20)]),
        ("normalized-joint", {"sources_first": 0.25}, [("sources", SOURCES, 5), ("normalized-joint", ALL, 15)]),
        ("normalized-joint", {"finish": "target"}, [("normalized-joint", ALL, 20), ("finish", TARGET, 20)]),
        (
            "joint",
            {"head": "probe", "finish": "target", "updates": None, "epochs": 3, "finetune_epochs": 2},
            [("sources", SOURCES, 9), ("probe", TARGET, 0), ("joint", ALL, 9), ("finish", TARGET, 4)],
        ),
        ("joint", {"head": "probe", "updates": 1}, [("joint", ALL, 1)]),
    ],
)
def test_phases(paradigm, settings, expected):
    assert phases(fit(paradigm, **settings)) == expected


def test_a_budget_is_split_not_exceeded():
    for updates in (2, 3, 7):
        total = sum(num_updates for _, _, num_updates in phases(fit("joint", head="probe", updates=updates)))
        assert total == updates


def test_the_head_is_the_probe_of_the_features_as_they_are():
    """With a rate at which nothing moves afterwards, the head is the linear model of the features in the end."""
    target, sources = problem()
    still = {"finetune_learning_rate": 1e-12, "weight_decay": 0.0}
    heads = []
    for paradigm in ("single", "pretrain"):
        settings = {**still, "learning_rate": 1e-12} if paradigm == "single" else still
        model = fit(paradigm, target, sources, head="probe", **settings).model
        expected = probe_of(model, Prepared.of(model.encoder, target.spec, target.train))
        head = dict(model.head("target").named_parameters())
        np.testing.assert_allclose(head["linear.weight"].detach(), expected.weights, atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(head["linear.bias"].detach(), expected.bias, atol=1e-4, rtol=1e-4)
        heads.append(head["linear.weight"])
    assert not torch.allclose(heads[0], heads[1], atol=1e-2)  # the sources have changed the features


def test_the_first_part_leaves_the_target_alone():
    """With `head: probe` no label of the target is used before the probe."""
    target, sources = problem()
    run = fit("joint", target, sources, head="probe")
    first = [row for row in run.history if row["event"] == "update" and row["phase"] == "sources"]
    assert {tuple(row["losses"]) for row in first} == {("near", "far")}


@pytest.mark.parametrize("weighting", ["tawt", "mgda", "metaweighting", "uncertainty", "svd"])
def test_weightings_go_with_it(weighting):
    run = fit("joint", head="probe", finish="target", weighting=weighting)
    assert set(run.weights) == set(ALL)
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())


def test_a_run_that_was_stopped_goes_on_in_any_phase(tmp_path, monkeypatch):
    target, sources = problem(test=None)
    settings = {"head": "probe", "finish": "target", "checkpoint_every": 3}
    whole = fit("joint", target, sources, **settings)
    from crosstask.training import checkpoints

    for number in (2, 5, 8):
        saved = []
        save = checkpoints.save

        def stopping(*arguments, save=save, saved=saved, number=number):
            save(*arguments)
            saved.append(1)
            if len(saved) == number:
                raise KeyboardInterrupt

        learner = ct.Learner(
            ENCODER, paradigm="joint", progress=False, updates=20, batch_size=16, learning_rate=1e-2, **settings
        )
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save", stopping)
            with pytest.raises(KeyboardInterrupt):
                learner.fit(target, sources, output=tmp_path / str(number))
        run = learner.fit(target, sources, output=tmp_path / str(number), resume=True)
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(run.model.state_dict()[name], tensor), (number, name)


def test_an_exported_model_is_a_plain_one(tmp_path, tiny_encoder):
    texts = [f"good shoe {i}" if i % 2 else f"bad book {i}" for i in range(24)]
    target = ct.Task.from_arrays("target", texts, [i % 2 for i in range(24)], dev=False)
    source = ct.Task.from_arrays("source", [f"so {text}" for text in texts], [i % 3 for i in range(24)], dev=False)
    for architecture in ("bert", "roberta"):  # one linear layer, and a head of two
        learner = ct.Learner(tiny_encoder(architecture), head="probe", updates=4, batch_size=8, progress=False)
        run = learner.fit(target, [source])
        run.export(tmp_path / architecture)
        again = ct.load(tmp_path / architecture)
        assert again.predict(texts[:4]) == run.predict(texts[:4])


def test_label_transfer_has_its_own():
    target, sources = problem()
    for settings in ({"head": "probe"}, {"sources_first": 0.5}):
        with pytest.raises(ct.CrossTaskError, match="leave `head: probe` and `sources_first` out"):
            fit("joint", target, sources, transfer=["label-transfer"], **settings)
