"""An encoder is read once per process, and nobody notices but by the time it takes."""

import shutil

import pytest
import torch
from frozen_encoder import text_task

import crosstask as ct
from crosstask.models.build import build_encoder
from crosstask.models.encoders import pretrained
from crosstask.models.encoders.hugging_face import Reading


@pytest.fixture
def folder(tiny_encoder, tmp_path):
    """An encoder that no other test has read."""
    path = tmp_path / "encoder"
    shutil.copytree(tiny_encoder("bert"), path)
    return path


@pytest.fixture
def reads(monkeypatch):
    """How often a folder was read."""
    calls, read = [], Reading.read
    monkeypatch.setattr(Reading, "read", lambda self: (calls.append(self.path), read(self))[1])
    return calls


def weights(encoder):
    return {name: tensor.clone() for name, tensor in encoder.state_dict().items()}


def test_read_once_and_never_changed_by_a_run(folder, reads):
    first = build_encoder(str(folder), [text_task()])
    before = weights(first)
    run = ct.Learner(str(folder), epochs=1, batch_size=8, progress=False).fit(text_task())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in run.model.encoder.state_dict().items())
    frozen = build_encoder({"name": str(folder), "freeze": True, "pooling": "mean"}, [text_task()])
    for other in (first, frozen.inner, build_encoder(str(folder), [text_task()])):
        assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())
    assert reads == [str(folder)]


def test_other_files_or_ways_to_read_them_are_read_again(folder, reads):
    one = build_encoder(str(folder), [text_task()])
    assert build_encoder({"name": str(folder), "dropout": 0.3}, [text_task()]).hf_config.hidden_dropout_prob == 0.3
    assert one.hf_config.hidden_dropout_prob == 0.1
    with torch.no_grad():
        next(one.body.parameters()).add_(1.0)
    one.body.save_pretrained(folder)
    changed = build_encoder(str(folder), [text_task()])
    assert all(torch.equal(tensor, one.state_dict()[name]) for name, tensor in changed.state_dict().items())
    assert len(reads) == 3


def test_weights_that_are_in_no_file_are_new_for_every_seed(tiny_encoder, tmp_path, reads):
    """RoBERTa's pooler is no part of this folder's weights."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder("bert"), folder)
    state = load_file(folder / "model.safetensors")
    state = {name: tensor for name, tensor in state.items() if "pooler" not in name}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    poolers = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        poolers.append(build_encoder(str(folder), [text_task()]).body.pooler.dense.weight)
    assert not torch.equal(poolers[0], poolers[1])
    assert torch.equal(poolers[0], poolers[2])
    assert len(reads) == 3


def test_random_numbers_do_not_tell_whether_it_was_read(folder):
    numbers = []
    for _ in range(2):
        torch.manual_seed(0)
        build_encoder(str(folder), [text_task()])
        numbers.append(torch.rand(3).tolist())
    assert numbers[0] == numbers[1]


def test_memory_has_a_limit(folder, reads, monkeypatch):
    monkeypatch.setattr(pretrained, "_in_memory", {})
    size = build_encoder(str(folder), [text_task()]).pretrained.num_bytes
    monkeypatch.setattr(pretrained, "MAX_BYTES", size + 1)
    for dropout in (0.2, 0.3):
        build_encoder({"name": str(folder), "dropout": dropout}, [text_task()])
    assert len(pretrained._in_memory) == 1
    monkeypatch.setattr(pretrained, "MAX_BYTES", size - 1)
    for _ in range(2):
        build_encoder({"name": str(folder), "dropout": 0.4}, [text_task()])
    assert len(reads) == 5
