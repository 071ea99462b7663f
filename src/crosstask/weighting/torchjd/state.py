"""What TorchJD's objects remember, as plain values and tensors."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

NOT_STATE = frozenset(vars(nn.Module()))
"""How modules work, not what they remember."""


def read_state(module: nn.Module) -> dict[str, Any]:
    """Everything in a module that is a number, a tensor, an array or an optimizer, by "path/attribute".

    TorchJD keeps what it remembers in plain attributes as often as in buffers. What is of another sort (compiled
    problems, keys of shapes) is made anew by the first call.
    """
    state: dict[str, Any] = {}
    for path, part in module.named_modules():
        own = {name: value for name, value in vars(part).items() if name not in NOT_STATE}
        for name, value in {**own, **part._buffers, **part._parameters}.items():
            if isinstance(value, torch.optim.Optimizer):
                state |= {f"{path}/{name}/{key}": tensor for key, tensor in read_optimizer(value).items()}
            elif isinstance(value, list) and all(isinstance(item, Tensor) for item in value):
                state[f"{path}/{name}"] = torch.stack(value) if value else []
            elif type(value).__module__ == "numpy":
                state[f"{path}/{name}"] = torch.as_tensor(value).clone()
            elif isinstance(value, Tensor):
                state[f"{path}/{name}"] = value.detach().cpu().clone()
            elif isinstance(value, int | float | str | None):
                state[f"{path}/{name}"] = value
    return state


def write_state(module: nn.Module, state: Mapping[str, Any], device: torch.device) -> None:
    """Put back what `read_state` found, into an object that has been called once."""
    parts = dict(module.named_modules())
    optimizers: dict[torch.optim.Optimizer, dict[str, Tensor]] = {}
    for key, value in state.items():
        path, name, *inside = key.split("/", 2)
        now: Any = getattr(parts[path], name, None)
        if inside:
            optimizers.setdefault(now, {})[inside[0]] = value
        elif isinstance(now, nn.Parameter):
            now.data.copy_(value)
        elif isinstance(now, list):
            setattr(parts[path], name, list(value))
        elif type(now).__module__ == "numpy":
            setattr(parts[path], name, value.numpy().copy())
        else:
            setattr(parts[path], name, value.to(device, copy=True) if isinstance(value, Tensor) else value)
    for optimizer, tensors in optimizers.items():
        write_optimizer(optimizer, tensors)


def read_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by "number of parameter/name"."""
    state = optimizer.state_dict()["state"]
    return {f"{i}/{name}": value.clone() for i, values in state.items() for name, value in values.items()}


def write_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `read_optimizer` found."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split("/")
        state.setdefault(int(number), {})[name] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def match_options(module: nn.Module, like: Tensor) -> None:
    """Give tensors that came in as options the device and type of what the module is about to see."""
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, Tensor):
                setattr(part, name, value.to(like))
