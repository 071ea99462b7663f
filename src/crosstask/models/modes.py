"""Modes in which a model can run: without dropout, with forward-mode derivatives, or differentiable twice."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from crosstask.gradients.sharded import is_sharded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

PLAIN_ATTENTION = ("eager", "sdpa")
"""Attention of Hugging Face models that has forward-mode derivatives; sdpa has them with torch's math kernel."""

MAX_SHORT_LENGTH = 64
"""Of inputs for which memory-efficient attention takes less time than cuDNN's: three fifths at a length of 32."""


def without_graph(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A decorator for functions of a model that only read it.

    They run in inference mode. Not with parameters of which each rank has a part: what is gathered for the first time
    there could never train.
    """

    @functools.wraps(function)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        model = arguments[0]
        assert isinstance(model, nn.Module)
        # Heads are never sharded, and there may be a thousand of them.
        encoder: nn.Module = getattr(model, "encoder", model)
        with torch.no_grad() if any(map(is_sharded, encoder.parameters())) else torch.inference_mode():
            return function(*arguments, **options)

    return run


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and training mode afterwards if the model was in it.

    A model in evaluation mode stays as it is: whoever evaluates a thousand tasks switches its modules once.
    """
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


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
