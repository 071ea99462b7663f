"""Exact TAWT through the learner: transformers run with attention that can be differentiated twice, when it is due."""

import random
from contextlib import nullcontext

import pytest
import torch
from torch.nn import functional as F

import crosstask as ct
from crosstask.errors import CrossTaskError
from crosstask.models.modes import twice_differentiable
from crosstask.training import trainer as training
from crosstask.weighting.evidence import Need
from helpers import make_text


def fit(encoder, **options):
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(40)]
    target = ct.Task.from_arrays("stars", texts, [str(i % 5) for i in range(40)])
    source = ct.Task.from_arrays("polarity", texts, ["good" if i % 5 > 2 else "bad" for i in range(40)])
    weighting = ct.TAWT(similarity="exact", solve_steps=3, damping=1.0, **options)
    learner = ct.Learner(
        {"dropout": 0.0, **encoder}, weighting=weighting, updates=3, batch_size=8, learning_rate=1e-3, progress=False
    )
    return learner.fit(target, [source])


@pytest.mark.parametrize("options", [{"every": 2}, {"every": 2, "probe": 8}], ids=["step", "probe"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpoints"])
def test_default_attention_gives_what_eager_attention_gives(tiny_encoder, options, checkpointing):
    encoder = {"name": tiny_encoder("bert"), "gradient_checkpointing": checkpointing}
    run = fit(encoder, **options)
    looks = [row for row in run.history if row["event"] == "weighting"]
    assert [row["solve"]["steps"] > 0 for row in looks] == [True]
    eager = fit({**encoder, "attention": "eager"}, **options)
    assert run.weights == pytest.approx(eager.weights, abs=1e-4)
    assert run.weights != pytest.approx({"stars": 0.5, "polarity": 0.5}, abs=1e-4)


def test_only_looks_give_up_the_fused_kernels(tiny_encoder, monkeypatch):
    entered = []

    def watched(wanted):
        entered.append(wanted)
        return twice_differentiable(wanted)

    monkeypatch.setattr(training, "twice_differentiable", watched)
    fit({"name": tiny_encoder("bert")}, every=2)
    assert entered == [False, True, False]


def test_fused_kernels_would_not_do(tiny_encoder, monkeypatch):
    monkeypatch.setattr(training, "twice_differentiable", lambda wanted: nullcontext())
    with pytest.raises(CrossTaskError, match="eager or math attention"):
        fit({"name": tiny_encoder("bert")}, every=2)


def test_kernels_are_as_they_were_afterwards():
    def differentiate_twice():
        query = torch.ones(1, 1, 4, 8, requires_grad=True)
        gradient = torch.autograd.grad(
            F.scaled_dot_product_attention(query, query, query).pow(2).sum(), query, create_graph=True
        )[0]
        gradient.sum().backward()

    before = torch.backends.cudnn.enabled
    with twice_differentiable():
        differentiate_twice()
        assert not torch.backends.cudnn.enabled
    assert torch.backends.cudnn.enabled == before
    with pytest.raises(ValueError, match="stop"), twice_differentiable():
        raise ValueError("stop")
    assert torch.backends.cudnn.enabled == before
    with twice_differentiable(False), pytest.raises(RuntimeError, match="not implemented"):
        differentiate_twice()


def test_methods_of_first_order_say_so():
    names = {"tasks": ["own", "other"], "target": "own"}
    assert Need.SECOND_ORDER not in ct.TAWT(every=1, **names).needs(0)
    assert Need.SECOND_ORDER not in ct.MGDA(**names).needs(0)
    assert Need.SECOND_ORDER in ct.TAWT(every=1, similarity="exact", **names).needs(0)
    assert Need.SECOND_ORDER in ct.TAWT(fresh=8, similarity="exact", **names).held_out.need
