"""Encoders whose own computation depends on the lengths in a batch, as graphs for batches of any shape."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crosstask.models.encoders.lstm import LSTM
from crosstask.models.encoders.textcnn import TextCNN
from crosstask.models.representation import Representation

Represent = Callable[[Tensor, Mapping[str, Tensor]], Representation]
GATE_ORDER = (0, 3, 1, 2)
"""Input, output, forget, cell: ONNX's order of the gates, as positions in torch's (input, forget, cell, output)."""


def make_traceable(model: nn.Module) -> None:
    """Let the encoders in a model compute by these functions from now on."""
    for module in model.modules():
        represent: Represent | None = None
        if isinstance(module, LSTM):
            represent = partial(lstm_representation, module)
        elif isinstance(module, TextCNN):
            represent = partial(textcnn_representation, module)
        if represent is not None:
            module.__dict__["represent"] = represent  # in front of the method of its class


def lstm_representation(encoder: LSTM, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
    """`LSTM.represent` by ONNX's operator, which like packed sequences never sees padding."""
    mask = inputs["mask"]  # [batch, length]
    lengths = mask.sum(dim=1)
    states, last = vectors.transpose(0, 1), vectors  # [length, batch, dimension]
    for layer in range(encoder.recurrent.num_layers):
        states, last = _recurrent_layer(encoder, layer, states, lengths)
    tokens = states.transpose(0, 1) * mask.unsqueeze(-1)  # [batch, length, width]
    if encoder.pooling == "max":
        pooled = tokens.masked_fill(~mask.unsqueeze(-1), torch.finfo(tokens.dtype).min).amax(dim=1)
    elif encoder.pooling == "mean":
        pooled = tokens.sum(dim=1) / lengths.unsqueeze(-1)
    else:
        pooled = last
    return Representation(tokens=tokens, pooled=pooled, mask=mask)


def _recurrent_layer(encoder: LSTM, layer: int, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """One layer, both ways if it has two: states, [length, batch, width], and the last of each way, [batch, width]."""
    recurrent, num_directions = encoder.recurrent, encoder.num_directions
    input_weights: list[Tensor] = []
    recurrent_weights: list[Tensor] = []
    biases: list[Tensor] = []
    for suffix in ("", "_reverse")[:num_directions]:
        input_weights.append(_in_onnx_order(recurrent, f"weight_ih_l{layer}{suffix}"))
        recurrent_weights.append(_in_onnx_order(recurrent, f"weight_hh_l{layer}{suffix}"))
        both = [_in_onnx_order(recurrent, f"bias_{kind}_l{layer}{suffix}") for kind in ("ih", "hh")]
        biases.append(torch.cat(both))
    length, batch, hidden = states.shape[0], states.shape[1], recurrent.hidden_size
    outputs, last, _ = torch.onnx.ops.symbolic_multi_out(
        "LSTM",
        (
            states,
            torch.stack(input_weights),  # [directions, 4 hidden, dimension]
            torch.stack(recurrent_weights),
            torch.stack(biases),
            lengths.to(torch.int32),
        ),
        {"hidden_size": hidden, "direction": "bidirectional" if num_directions == 2 else "forward"},
        dtypes=(states.dtype,) * 3,
        shapes=([length, num_directions, batch, hidden], *[[num_directions, batch, hidden]] * 2),
    )
    outputs = outputs.transpose(1, 2).reshape(length, batch, encoder.width)
    return outputs, last.transpose(0, 1).reshape(batch, encoder.width)


def _in_onnx_order(recurrent: nn.LSTM, name: str) -> Tensor:
    gates = cast(Tensor, getattr(recurrent, name)).chunk(4)
    return torch.cat([gates[position] for position in GATE_ORDER])


def textcnn_representation(encoder: TextCNN, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
    """`TextCNN.represent` with room for the widest window behind every text, however long it is."""
    mask = inputs["mask"]  # [batch, length]
    vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0.0).transpose(1, 2)  # [batch, dimension, length]
    vectors = F.pad(vectors, (0, max(encoder.kernels) - 1))
    lengths = mask.sum(dim=1, keepdim=True)  # [batch, 1]
    maxima: list[Tensor] = []
    for kernel, convolution in zip(encoder.kernels, encoder.convolutions, strict=True):
        outputs = convolution(vectors)  # [batch, channels, windows]
        starts = torch.arange(outputs.shape[2], device=outputs.device)
        inside = (starts == 0) | (starts + kernel <= lengths)  # [batch, windows]
        outputs = outputs.masked_fill(~inside.unsqueeze(1), torch.finfo(outputs.dtype).min)
        maxima.append(outputs.amax(dim=2).relu())  # [batch, channels]
    return Representation(pooled=torch.cat(maxima, dim=1))  # [batch, kernels * channels]
