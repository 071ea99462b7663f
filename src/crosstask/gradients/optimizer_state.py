"""The tensors of an optimizer as one flat mapping, for files that hold nothing but named tensors; and its rates."""

from collections.abc import Mapping

import torch
from torch import Tensor


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by "index of parameter/name"; learning rates belong to the schedule and are left out."""
    tensors: dict[str, Tensor] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, tensor in state.items():
            tensors[f"{index}/{name}"] = tensor
    return tensors


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizer` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split("/")
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def set_rates(optimizer: torch.optim.Optimizer, fraction: float) -> None:
    """Set the learning rates as a fraction of each group's `full_rate`; as numbers they stand in its `rate`."""
    for group in optimizer.param_groups:
        group["rate"] = group["full_rate"] * fraction
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(group["rate"])  # where CUDA graphs read it
        else:
            group["lr"] = group["rate"]
