"""Merged encoders against the formulas of task arithmetic and of LoraHub, from the files of the exported model."""

import copy

import pytest
import torch
from safetensors import safe_open

import crosstask as ct
from crosstask.transfer.forkmerge import merge
from crosstask.transfer.merging import Merging

TEXTS = ["good shoe", "bad film", "nice book", "sad film", "great shoe", "poor book"] * 3
RANK, ALPHA = 2, 4


@pytest.fixture(scope="module")
def lora_run(tiny_encoder):
    """A run whose sources trained low-rank updates, which were averaged, with the transfer and the exported weights."""
    pytest.importorskip("peft")
    target = ct.Task.from_arrays("mood", TEXTS, ["+", "-"] * 9, dev=False)
    sources = [ct.Task.from_arrays(name, TEXTS, ["a", "b"] * 9, dev=False) for name in ("first", "second", "third")]
    encoder = {"name": tiny_encoder("bert"), "lora": {"rank": RANK, "alpha": ALPHA}}
    learner = ct.Learner(
        encoder, paradigm="pretrain", transfer=[Merging(weights="uniform", then="head")], updates=12, batch_size=6,
        learning_rate=1e-2, progress=False,
    )  # fmt: skip
    run = learner.fit(target, sources)
    return run, learner.trained_transfers[0]


def by_source(run, merging):
    """The parameters that each source has learned, by name."""
    names = [name for name, parameter in run.model.encoder.named_parameters() if parameter.requires_grad]
    model = copy.deepcopy(run.model)
    learned = []
    for entries in merging.source_parameters:
        torch.nn.utils.vector_to_parameters(entries, model.shared_parameters())
        parameters = dict(model.encoder.named_parameters())
        learned.append({name: parameters[name].detach().clone() for name in names})
    return learned


def test_the_merged_update_is_that_of_lorahub(lora_run, tmp_path):
    """(sum_s w_s A_s) (sum_s w_s B_s), folded into the weights of the model that is exported."""
    run, merging = lora_run
    learned = by_source(run, merging)
    run.export(tmp_path / "plain")
    base = dict(run.model.encoder.body.named_parameters())
    checked = 0
    with safe_open(tmp_path / "plain" / "model.safetensors", "pt") as weights:
        for name in learned[0]:
            if "lora_A" not in name:
                continue
            a_s = [parameters[name] for parameters in learned]  # [rank, inputs] each
            b_s = [parameters[name.replace("lora_A", "lora_B")] for parameters in learned]  # [outputs, rank] each
            update = (sum(b_s) / 3) @ (sum(a_s) / 3) * (ALPHA / RANK)
            layer = name.removeprefix("body.").removesuffix(".lora_A.default.weight")
            plain = base[f"{layer}.base_layer.weight"]
            exported = weights.get_tensor(f"bert.{layer.removeprefix('base_model.model.')}.weight")
            torch.testing.assert_close(exported, plain + update, atol=1e-6, rtol=1e-5)
            assert update.abs().max() > 1e-4
            checked += 1
    assert checked > 0


def test_task_arithmetic():
    """theta_0 + sum_s lambda_s (theta_s - theta_0) is the mixture with 1 - sum_s lambda_s of theta_0."""
    generator = torch.Generator().manual_seed(0)
    encoders = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    weights = torch.tensor([0.2, 0.5, 0.0, 0.3], dtype=torch.float64)
    expected = encoders[0].clone()
    for weight, encoder in zip(weights[1:], encoders[1:], strict=True):
        expected += weight * (encoder - encoders[0])
    torch.testing.assert_close(merge(encoders, weights), expected)
