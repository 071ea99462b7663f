"""Precision, and what is said of it."""

import pytest
import torch

from crosstask.training.devices import Devices, processor_has_bfloat16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_f": True, "avx512_bf16": True}, True),
        ({"architecture": "aarch64", "bf16": True}, True),
    ],
)
def test_bfloat16_is_told_from_the_instructions(capabilities, expected, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert processor_has_bfloat16() == expected
    if not torch.accelerator.is_available():
        assert bool(Devices("bfloat16").notes()) != expected
    assert Devices("float32").notes() == []


def test_an_older_torch_is_not_asked(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert processor_has_bfloat16()
