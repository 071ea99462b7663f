"""The state of a weighting as JSON, for a trainer that keeps its own state so."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from crosstask.weighting.base import State

TENSOR_KEYS = {"tensor", "dtype"}


def to_json(state: State) -> dict[str, Any]:
    """Plain data; tensors as lists with their type.

    >>> from_json(to_json({"steps": 3, "logits": torch.tensor([0.1, 0.2])}))
    {'steps': 3, 'logits': tensor([0.1000, 0.2000])}
    """
    plain: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, Tensor):
            value = {"tensor": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
        plain[key] = value
    return plain


def from_json(plain: Mapping[str, Any]) -> State:
    """What `to_json` was given."""
    state: State = {}
    for key, value in plain.items():
        if isinstance(value, Mapping) and value.keys() == TENSOR_KEYS:
            value = torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"]))
        state[key] = value
    return state
