"""An encoder with its first layers frozen goes with every weighting, transfer and paradigm, and resumes."""

import random

import pytest
import torch

import crosstask as ct
from crosstask.demo.problem import OPTIONS
from crosstask.models.build import build_encoder, feature_section
from crosstask.models.encoders import hidden_states
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS
from helpers import make_text
from stopped_run import call_after_checkpoint, stop

SPECIAL = {**OPTIONS, "fixed": {"weights": {"target": 1.0, "source": 0.5}}}
SPECIAL["tawt"] = {"every": 1}
SPECIAL["tawt-samples"] = {"every": 1, "warmup": 0}


def tasks(count=24):
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(count)]
    return (
        ct.Task.from_arrays("target", texts, [str(i % 5) for i in range(count)]),
        ct.Task.from_arrays("source", texts[::-1], ["ab"[i % 2] for i in range(count)]),
    )


@pytest.fixture
def encoder(tiny_encoder):
    return {"name": tiny_encoder("bert"), "freeze": 1}


def fit(encoder, output=None, resume=False, **options):
    settings = {"updates": 2, "batch_size": 6, "learning_rate": 1e-2, "progress": False, **options}
    target, source = tasks()
    return ct.Learner(encoder, **settings).fit(target, [source], output=output, resume=resume)


def check(run):
    """What is frozen is as it was, something else has learned, and nothing is out of hand."""
    frozen = run.model.encoder.split.frozen_parameters
    before = build_encoder({"name": run.model.encoder.origin, "freeze": 1}, []).split.frozen_parameters
    for name, parameter in frozen.items():
        assert torch.equal(parameter.cpu(), before[name])
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())
    assert len(run.predict(["good film", "bad"])) == 2


@pytest.mark.parametrize("name", list(WEIGHTINGS))
def test_weightings(name, encoder):
    check(fit(encoder, weighting={"name": name, **SPECIAL.get(name, {})}))


@pytest.mark.parametrize("name", list(TRANSFERS))
def test_transfers(name, encoder, tmp_path):
    transfer = [{"name": name, **OPTIONS.get(name, {})}]
    if name == "representation-transfer":
        transfer.insert(0, {"name": "label-transfer"})
    paradigm = "pretrain" if name == "merging" else "normalized-joint"
    settings = {"paradigm": paradigm, "updates": 4}  # one for each branch of a merge
    run = fit(encoder, transfer=transfer, output=tmp_path / "run", **settings)
    check(run)
    texts = ["good film", "bad"]
    assert ct.load(tmp_path / "run").predict(texts) == run.predict(texts)
    exported = ct.load(run.export(tmp_path / "exported"))
    assert exported.predict(texts) == run.predict(texts)


@pytest.mark.parametrize("paradigm", ["single", "pretrain", "joint", "normalized-joint"])
def test_paradigms(paradigm, encoder):
    check(fit(encoder, paradigm=paradigm))


def test_layers_below_cannot_be_reached(tiny_encoder):
    encoder = {"name": tiny_encoder("bert"), "freeze": 2}
    with pytest.raises(ct.CrossTaskError, match="layer 1 is one of the 2 that `freeze` leaves as they are"):
        fit(encoder, transfer=[{"name": "alignment", "layer": 1}])
    with pytest.raises(ct.CrossTaskError, match="needs an encoder with layers between which adapters can stand"):
        fit(encoder, transfer=["adapters"])


@pytest.mark.parametrize("room", [hidden_states.MAX_DISK_BYTES, 0])
def test_a_stopped_run_goes_on_to_the_same_numbers(room, encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hidden_states, "MAX_DISK_BYTES", room)
    options = {"updates": 6, "evaluate_every": 1}
    whole = fit(encoder, tmp_path / "whole", **options)
    with call_after_checkpoint(3, stop), pytest.raises(KeyboardInterrupt):
        fit(encoder, tmp_path / "stopped", **options)
    resumed = fit(encoder, tmp_path / "stopped", resume=True, **options)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_features_are_those_of_all_layers(encoder):
    section, notes = feature_section(encoder)
    assert section["freeze"] is True
    assert notes == ["all layers of the encoder are frozen, not only those of `freeze`: nothing in it is trained"]
