"""Whole updates as computations in parts give what plain code gives; CUDA graphs give what these give."""

import numpy as np
import pytest
import torch

import crosstask
from crosstask.data.task import Task
from crosstask.gradients import fused
from crosstask.gradients.cuda_graphs import PlainGraphs
from crosstask.training import trainer as trainer_module

WORDS = ["so", "good", "very", "bad", "film", "plot", "actor", "dull", "great", "and", "the", "it", "was", "never"]
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def text_task(name, seed, labels, count=24):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(3, 9))) for _ in range(count)]
    return Task.from_arrays(name, texts, [labels[i % len(labels)] for i in range(count)], dev=False)


TARGET = text_task("target", 1, "+-")
SOURCES = [text_task("near", 2, "abc"), text_task("far", 3, "xy", count=31)]


@pytest.fixture
def in_parts(monkeypatch):
    """Whole updates run through `training.update_graphs`; counts them."""
    updates = []
    graphs = PlainGraphs(torch.device("cpu"))
    start = graphs.run
    monkeypatch.setattr(graphs, "run", lambda key, *rest: (updates.append(key), start(key, *rest))[1])
    monkeypatch.setattr(trainer_module, "graphs_for", lambda devices, record: graphs)
    monkeypatch.setattr(fused, "DEVICES", {"cpu", "cuda"})
    return updates


def train(encoder, **options):
    settings = {"updates": 5, "batch_size": 8, "learning_rate": 1e-3, "keep": "last"}
    settings.update(options.pop("training", {}))
    learner = crosstask.Learner(encoder={"name": encoder, "dropout": 0.0}, training=settings, progress=False, **options)
    learner.fit(TARGET, SOURCES)
    return learner


def assert_same(one, two):
    for (name, first), second in zip(
        one.run.model.state_dict().items(), two.run.model.state_dict().values(), strict=True
    ):  # fmt: skip
        torch.testing.assert_close(first.cpu(), second.cpu(), rtol=1e-3, atol=2e-5, msg=name)
    for first, second in zip(one.run.history, two.run.history, strict=True):
        assert first.keys() == second.keys()
        if first["event"] == "update":
            assert first["weights"] == pytest.approx(second["weights"], rel=1e-3)
            assert first["losses"] == pytest.approx(second["losses"], rel=1e-3)


CASES = {
    "uniform": {"weighting": "uniform", "paradigm": "joint"},
    "normalized": {"weighting": "uniform", "paradigm": "normalized-joint"},
    "tawt": {"weighting": {"name": "tawt", "every": 2}, "paradigm": "normalized-joint"},
    "tawt, observed target": {"weighting": {"name": "tawt", "every": 1}, "paradigm": "pretrain"},
    "mgda": {"weighting": "mgda", "paradigm": "joint"},
    "metaweighting": {
        "weighting": {"name": "metaweighting", "query": 0.3, "normalize": True, "step_size": 0.5},
        "paradigm": "joint",
    },
    # Not from a probe: on an encoder of random weights that is a head so large that rounding shows.
    "label transfer": {
        "weighting": "uniform",
        "transfer": [{"name": "label-transfer", "preset": "paper"}],
        "paradigm": "joint",
    },
    "label transfer after a warm-up": {
        "weighting": "uniform",
        "transfer": [{"name": "label-transfer", "preset": "paper", "warmup": 0.5, "look_ahead": "adam"}],
        "paradigm": "joint",
    },
    "gradnorm": {"weighting": "gradnorm", "paradigm": "joint"},
    "getmtl": {"weighting": "getmtl", "paradigm": "joint"},
    "uncertainty": {"weighting": "uncertainty", "paradigm": "joint"},
    "dwa": {"weighting": "dwa", "paradigm": "joint"},
    "mixed": {"weighting": "uniform", "paradigm": "joint", "training": {"schedule": "mixed"}},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_an_update_in_parts_is_the_update(options, tiny_encoder, monkeypatch, request):
    plain = train(tiny_encoder("bert"), **options)
    updates = request.getfixturevalue("in_parts")
    assert_same(plain, train(tiny_encoder("bert"), **options))
    assert updates
