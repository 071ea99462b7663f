"""Modes in which a model can run: without dropout, with forward-mode derivatives, or differentiable twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLAIN_ATTENTION = ("eager", "sdpa")
"""Attention of Hugging Face models that has forward-mode derivatives; sdpa has them with torch's math kernel."""

MAX_SHORT_LENGTH = 64
"""Of inputs for which memory-efficient attention takes less time than cuDNN's: three fifths at a length of 32."""


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module is in the mode that it was in.

    Recurrent layers stay in training mode with a dropout of 0: cuDNN has no backward pass in evaluation mode.
    """
    modes: list[tuple[nn.Module, bool]] = []
    recurrent: list[tuple[nn.RNNBase, float]] = []
    for module in model.modules():
        modes.append((module, module.training))
        if isinstance(module, nn.RNNBase):
            recurrent.append((module, module.dropout))
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
    fused: list[tuple[PreTrainedModel, str]] = []
    for module in model.modules():
        if hasattr(module, "set_attn_implementation"):
            transformer = cast("PreTrainedModel", module)
            implementation = str(transformer.config._attn_implementation)
            if implementation not in PLAIN_ATTENTION:
                fused.append((transformer, implementation))
    with without_dropout(model):
        try:
            for transformer, _ in fused:
                transformer.set_attn_implementation("eager")
            yield
        finally:
            # In reverse: a model sets the implementation of its parts too.
            for transformer, implementation in reversed(fused):
                transformer.set_attn_implementation(implementation)


@contextmanager
def short_attention(length: int) -> Iterator[None]:
    """Attention over inputs of this length without cuDNN's kernels where these are short: others are faster there."""
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    if length > MAX_SHORT_LENGTH or not enabled:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)


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
