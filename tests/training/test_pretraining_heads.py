"""The target's head in pre-training: the same for every weighting, so that runs differ by their weights alone."""

import numpy as np
import pytest
import torch

import crosstask as ct

NEVER_MOVES = 1e-15
"""A step size with which weights stay where they are."""


def make_task(name, seed, direction, size=64):
    vectors = np.random.default_rng(seed).normal(size=(size, 6)).astype("float32")
    return ct.Task.from_arrays(name, vectors, (vectors @ np.asarray(direction) > 0).astype(int), dev=False)


def problem():
    """A target and two sources, each with inputs of its own."""
    sources = [make_task("near", 1, [1, 1, 0, 0, 0, 0]), make_task("far", 2, [0, 0, 0, 1, 1, 0], size=48)]
    return make_task("target", 0, [1, 0, 0, 0, 0, 0], size=32), sources


def fit(target, sources, **settings):
    settings = {"epochs": 2, "batch_size": 16, "clip": 1.0, **settings}
    encoder = {"name": "relu", "hidden": 8, "standardize": False}
    learner = ct.Learner(encoder, paradigm="pretrain", progress=False, **settings)
    return learner.fit(target, sources).model, learner._make_model([target, *sources])


def vector(module):
    """All parameters of a module as one vector."""
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("head", ["trained", "reset"])
@pytest.mark.parametrize(
    "weighting",
    [
        {"name": "tawt", "every": 2, "step_size": NEVER_MOVES},
        {"name": "tawt", "every": 2, "fresh": 8, "step_size": NEVER_MOVES},
        {"name": "tawt-samples", "every": 2, "step_size": NEVER_MOVES},
    ],
    ids=["tasks", "fresh examples", "examples"],
)
def test_weights_that_never_move_are_plain_pretraining(weighting, head):
    """The control of every experiment on weights: what they add is measured against themselves, switched off."""
    target, sources = problem()
    plain, start = fit(target, sources, head=head)
    frozen, _ = fit(target, sources, head=head, weighting=weighting)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(frozen.state_dict()[name], tensor, atol=1e-6, rtol=1e-5, msg=name)
    assert not torch.equal(vector(plain.head("target")), vector(start.head("target")))


@pytest.mark.parametrize("name", ["uniform", "by-size", "uncertainty", "bandit", "dwa", "random", "svd"])
def test_a_step_may_hold_the_observed_target_alone(name):
    """With one task a step, some steps train the target's head and no task that counts: no weight is learned there."""
    target, sources = problem()
    model, start = fit(target, sources, weighting=name, schedule="mixed", epochs=3)
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())
    assert not torch.equal(vector(model.head("target")), vector(start.head("target")))


def test_the_head_is_trained_beside_the_sources_and_changes_nothing_else():
    target, sources = problem()
    settings = {"finetune_learning_rate": 1e-12, "weight_decay": 0.0, "clip": 0.0}
    model, start = fit(target, sources, **settings)
    assert not torch.allclose(vector(model.head("target")), vector(start.head("target")), atol=1e-3)
    # With other labels of the target: another head, the same encoder and heads of sources.
    other, _ = fit(make_task("target", 0, [0, 1, 0, 0, 0, 0], size=32), sources, **settings)
    for name, tensor in model.encoder.state_dict().items():
        torch.testing.assert_close(other.encoder.state_dict()[name], tensor, atol=1e-6, rtol=1e-5, msg=name)
    torch.testing.assert_close(vector(other.head("near")), vector(model.head("near")), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(vector(other.head("target")), vector(model.head("target")), atol=1e-3)


def test_a_head_that_is_reset_starts_fine_tuning_as_it_was():
    target, sources = problem()
    model, start = fit(target, sources, head="reset", finetune_learning_rate=1e-12, weight_decay=0.0)
    assert not torch.allclose(vector(model.encoder), vector(start.encoder), atol=1e-3)
    torch.testing.assert_close(vector(model.head("target")), vector(start.head("target")), atol=1e-7, rtol=0.0)
