"""Modes in which a model can run: without dropout, or with kernels that can be differentiated twice."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from crosstask.models.multitask import Model


@contextmanager
def without_dropout(model: Model) -> Iterator[None]:
    """Evaluation mode, but for recurrent networks: on a GPU those have gradients in training mode alone."""
    recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    rates = [module.dropout for module in recurrent]
    model.eval()
    for module in recurrent:
        module.train()
        module.dropout = 0.0
    try:
        yield
    finally:
        model.train()
        for module, rate in zip(recurrent, rates, strict=True):
            module.dropout = rate


@contextmanager
def twice_differentiable(wanted: bool = True) -> Iterator[None]:
    """Kernels whose backward pass can be differentiated again; fused attention and cuDNN's recurrent layers cannot.

    Around the backward pass too: gradient checkpoints run the model once more inside it.
    """
    if not wanted:
        yield
        return
    fused_layers = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cudnn.enabled = fused_layers
