"""Modes in which a model can run: without dropout, with forward-mode derivatives, or differentiable twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

PLAIN_ATTENTION = ("eager", "sdpa")
"""Attention of Hugging Face models that has forward-mode derivatives; sdpa has them with torch's math kernel."""


@runtime_checkable
class _SwitchesAttention(Protocol):
    """A Hugging Face model whose implementation of attention can be changed."""

    def set_attn_implementation(self, attn_implementation: str) -> None: ...


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module is in the mode that it was in.

    Recurrent layers stay in training mode with a dropout of 0: cuDNN has no backward pass in evaluation mode.
    """
    modes = [(module, module.training) for module in model.modules()]
    recurrent = [(module, module.dropout) for module in model.modules() if isinstance(module, nn.RNNBase)]
    model.eval()
    for layer, _ in recurrent:
        layer.train()
        layer.dropout = 0.0
    try:
        yield
    finally:
        for layer, dropout in recurrent:
            layer.dropout = dropout
        for module, mode in modes:
            module.training = mode


@contextmanager
def forward_mode_ready(model: nn.Module) -> Iterator[None]:
    """No dropout, and attention that has forward-mode derivatives; afterwards as it was."""
    fused: list[tuple[_SwitchesAttention, str]] = []
    for module in model.modules():
        if isinstance(module, _SwitchesAttention):
            implementation = str(module.config._attn_implementation)
            if implementation not in PLAIN_ATTENTION:
                fused.append((module, implementation))
    with without_dropout(model):
        try:
            for module, _ in fused:
                module.set_attn_implementation("eager")
            yield
        finally:
            # In reverse: a model sets the implementation of its parts too.
            for module, implementation in reversed(fused):
                module.set_attn_implementation(implementation)


@contextmanager
def twice_differentiable(enabled: bool = True) -> Iterator[None]:
    """Kernels whose backward pass can be differentiated again; fused attention and cuDNN's recurrent layers cannot.

    Around the backward pass too: gradient checkpoints run the model once more inside it.
    """
    if not enabled:
        yield
        return
    cudnn_enabled = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cudnn.enabled = cudnn_enabled
