"""The tensors of an optimizer as one flat mapping, for files that hold nothing but named tensors; and its rates."""

from collections.abc import Mapping

import torch
from torch import Tensor


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by "number of parameter/name"; learning rates belong to the schedule and are left out."""
    numbers = parameter_numbers(optimizer)
    tensors: dict[str, Tensor] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, tensor in state.items():
            tensors[f"{numbers[index]}/{name}"] = tensor
    return tensors


def parameter_numbers(optimizer: torch.optim.Optimizer) -> list[int]:
    """The number of each parameter, in the optimizer's order: what its group says under `numbers`, or its place.

    So that it does not depend on how parameters are put into groups.
    """
    numbers: list[int] = []
    for group in optimizer.param_groups:
        numbers += group.get("numbers") or range(len(numbers), len(numbers) + len(group["params"]))
    return numbers


def numbered_parameters(optimizer: torch.optim.Optimizer) -> dict[int, Tensor]:
    """The optimizer's parameters by their numbers."""
    parameters: list[Tensor] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
    return dict(zip(parameter_numbers(optimizer), parameters, strict=True))


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `flatten_optimizer` returned."""
    indices = {number: index for index, number in enumerate(parameter_numbers(optimizer))}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split("/")
        state.setdefault(indices[int(number)], {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def set_rates(optimizer: torch.optim.Optimizer, fraction: float) -> None:
    """Set the learning rates as a fraction of each group's `full_rate`; as numbers they stand in its `rate`."""
    for group in optimizer.param_groups:
        group["rate"] = group["full_rate"] * fraction
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(group["rate"])  # where CUDA graphs read it
        else:
            group["lr"] = group["rate"]
