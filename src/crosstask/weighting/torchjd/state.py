"""The state of TorchJD's objects as plain values and tensors.

TorchJD has no public way to save it: `state_dict` leaves out buffers that are None at first, and counters, arrays and
the optimizers of its methods are plain attributes. So attributes are read, whatever they are called.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.gradients.optimizer_state import flatten_optimizer, restore_optimizer
from crosstask.weighting.base import State

MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
"""Attributes that every module has."""


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in {**vars(module), **module._buffers, **module._parameters}.items():
        if name not in MODULE_ATTRIBUTES:
            yield name, value


def read_state(module: nn.Module) -> State:
    """All numbers, tensors, arrays and optimizers of a module and its parts, by "path/attribute".

    Other attributes (compiled problems, shapes) are made anew by the first call.
    """
    state: State = {}
    for path, submodule in module.named_modules():
        for name, value in _attributes(submodule):
            key = f"{path}/{name}"
            if isinstance(value, torch.optim.Optimizer):
                for moment, tensor in flatten_optimizer(value).items():
                    state[f"{key}/{moment}"] = tensor.clone()
            elif isinstance(value, list) and all(isinstance(item, Tensor) for item in value):
                state[key] = torch.stack(value) if value else []  # an empty list has no tensor to be saved as
            elif type(value).__module__ == "numpy":
                state[key] = torch.as_tensor(value).clone()
            elif isinstance(value, Tensor):
                state[key] = value.detach().cpu().clone()
            elif isinstance(value, int | float | str | None):
                state[key] = value
    return state


def write_state(module: nn.Module, state: Mapping[str, Any], device: torch.device) -> None:
    """Restore what `read_state` returned, in an object that has been called once."""
    submodules = dict(module.named_modules())
    moments: dict[torch.optim.Optimizer, dict[str, Tensor]] = {}
    for key, value in state.items():
        path, name, *inside = key.split("/")
        current: Any = getattr(submodules[path], name, None)
        if inside:  # a moment of an optimizer, restored below
            moments.setdefault(current, {})["/".join(inside)] = value.clone()
        elif isinstance(current, nn.Parameter):  # in place: an optimizer refers to it
            current.data.copy_(value)
        elif isinstance(current, list):
            setattr(submodules[path], name, list(value))
        elif type(current).__module__ == "numpy":
            setattr(submodules[path], name, value.numpy().copy())
        elif isinstance(value, Tensor):
            setattr(submodules[path], name, value.to(device, copy=True))
        else:
            setattr(submodules[path], name, value)
    for optimizer, tensors in moments.items():
        restore_optimizer(optimizer, tensors)


def convert_options(module: nn.Module, like: Tensor) -> None:
    """Give tensors that came in as options the device and dtype of the module's input."""
    for submodule in module.modules():
        for name, value in list(vars(submodule).items()):
            if isinstance(value, Tensor):
                setattr(submodule, name, value.to(like))
