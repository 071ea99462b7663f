"""The strongest answer of every filter that slides over a text, and a way back that only looks at those."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

DEVICES = {"cpu"}
"""Where the short way back is taken. On a GPU it has not been measured."""


def strongest_answers(convolution: nn.Conv1d, vectors: Tensor, inside: Tensor) -> Tensor:
    """The maximum of each filter over the windows that count.

    A gradient reaches one window of each text and filter. Autograd does not know that and goes back through all of
    them, which is two thirds of a convolution's work. We go back through the strongest windows alone, unless somebody
    listens to the layer or takes derivatives in forward mode.

    Args:
        convolution: of stride 1, without padding.
        vectors: of the words, [batch, dimension, length].
        inside: which windows count, [batch, windows]; at least one of each text.

    Returns:
        [batch, filters].
    """
    if _is_unobserved(convolution, vectors):
        with torch.no_grad():
            answers = _slide(convolution, vectors)  # [batch, filters, windows]
            values, places = answers.masked_fill_(~inside.unsqueeze(1), -torch.inf).max(dim=2)
        found: Tensor = _Strongest.apply(vectors, convolution.weight, convolution.bias, values, places)
        return found
    answers = convolution(vectors)
    # Where the strongest answer stands is found aside, for autograd would keep copies of all answers for it.
    place = answers.detach().masked_fill(~inside.unsqueeze(1), -torch.inf).argmax(dim=2, keepdim=True)
    return answers.gather(2, place).squeeze(2)


def _is_unobserved(convolution: nn.Conv1d, vectors: Tensor) -> bool:
    """Whether nobody wants more than the strongest answers and their gradients."""
    taken = (vectors, *convolution.parameters())
    is_dual = any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in taken)
    return vectors.device.type in DEVICES and not convolution._forward_hooks and not is_dual


def _slide(convolution: nn.Conv1d, vectors: Tensor) -> Tensor:
    """What the layer itself says, as a convolution over a picture of one line: words stay where they lie in memory."""
    weight = convolution.weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)
    return F.conv2d(vectors.unsqueeze(2), weight, convolution.bias).squeeze(2)


class _Strongest(torch.autograd.Function):
    """Answers that are known already, as a function of vectors, weights and biases."""

    @staticmethod
    def forward(vectors: Tensor, weight: Tensor, bias: Tensor | None, values: Tensor, places: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        vectors, weight, _, _, places = inputs
        ctx.save_for_backward(vectors, weight, places)

    @staticmethod
    def backward(ctx: Any, *backs: Tensor) -> tuple[Tensor | None, ...]:
        vectors, weight, places = ctx.saved_tensors
        needs_vectors, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        back = backs[0].to(weight.dtype)  # [batch, filters]
        of_bias = back.sum(0) if needs_bias else None
        if torch.is_grad_enabled():  # to be differentiated once more
            answers = vectors.shape[2] - weight.shape[2] + 1
            spread = back.new_zeros(*back.shape, answers).scatter(2, places.unsqueeze(2), back.unsqueeze(2))
            of_vectors = F.conv_transpose1d(spread, weight)
            of_weight = F.conv1d(vectors.transpose(0, 1), spread.transpose(0, 1)).transpose(0, 1)
            return of_vectors, of_weight, of_bias, None, None
        return (
            _of_vectors(vectors.shape, weight, places, back) if needs_vectors else None,
            _of_weight(vectors, weight.shape[2], places, back) if needs_weight else None,
            of_bias,
            None,
            None,
        )  # fmt: skip


def _of_weight(vectors: Tensor, width: int, places: Tensor, back: Tensor) -> Tensor:
    """For each filter the sum of its strongest windows, times what comes back to it, [filters, dimension, width]."""
    batch, dimension, length = vectors.shape
    words = vectors.transpose(1, 2).reshape(batch * length, dimension)
    first = (places + length * torch.arange(batch, device=places.device).unsqueeze(1)).T.contiguous()
    weights = back.T.contiguous()  # [filters, batch]
    sums = [
        F.embedding_bag(first + place, words, mode="sum", per_sample_weights=weights.to(words.dtype))
        for place in range(width)
    ]
    return torch.stack(sums, dim=2).to(back.dtype)


def _of_vectors(shape: torch.Size, weight: Tensor, places: Tensor, back: Tensor) -> Tensor:
    """For each word the sum of the filters' parts that lie over it, times what comes back, [batch, dimension, length].

    Pairs of a word and a part of a filter are put in the order of the words, so that each word has a bag of parts.
    """
    batch, dimension, length = shape
    filters, _, width = weight.shape
    device = places.device
    within = torch.arange(width, device=device)
    texts = length * torch.arange(batch, device=device).view(-1, 1, 1)
    word = (texts + places.unsqueeze(2) + within).flatten()  # [batch * filters * width]
    part = (width * torch.arange(filters, device=device).unsqueeze(1) + within).expand(batch, -1, -1).reshape(-1)
    order = word.argsort()
    counts = torch.bincount(word, minlength=batch * length)
    parts = weight.transpose(1, 2).reshape(filters * width, dimension)
    scales = back.unsqueeze(2).expand(-1, -1, width).reshape(-1)
    sums = F.embedding_bag(part[order], parts, counts.cumsum(0) - counts, mode="sum", per_sample_weights=scales[order])
    return sums.view(batch, length, dimension).transpose(1, 2)
