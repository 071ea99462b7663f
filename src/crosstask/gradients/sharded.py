"""Parameters of which each rank holds some rows (FSDP2), and gradients on them.

A sharded module gathers a parameter when it needs it and lets it go again; in the backward pass it adds the gradient up
over ranks and leaves each rank its own rows. So gradients of single tasks never exist as a whole: products of them are
products of rows, added up over ranks. Everything here takes and returns this rank's rows as plain tensors.

Torch reduces what a plain `.backward()` leaves behind, and nothing else. So a task's gradient is taken by one, with
whatever stood in `.grad` put aside meanwhile (`take_gradient`).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

TORCH_KEYS = ("__composable_api_state_key", "_fsdp_", "_is_fsdp_")
"""Attributes of a sharded module that are torch's begin so."""
_sharded_modules: WeakSet[Any] = WeakSet()
"""All of this process."""


def shard(module: nn.Module, blocks: Iterable[nn.Module] = (), **options: Any) -> nn.Module:
    """Let each rank hold its rows of a module's parameters alone; gradients are added up over ranks, not averaged.

    In a loop of one's own, instead of `torch.distributed.fsdp.fully_shard`, before the optimizer is made. Only the
    module's own forward method gathers parameters, so nothing else may read them.

    Args:
        module: of which all parameters are sharded, in place.
        blocks: parts of it that are gathered one after the other, such as the layers of a transformer.
        options: of `fully_shard`, such as `mesh`.
    """
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise CrossTaskError("To shard a model takes torch 2.8 or newer.") from error
    for block in (*blocks, module):
        fully_shard(block, **options)
    for part in _fsdp_modules(module):
        if not hasattr(part, "set_force_sum_reduction_for_comms"):
            raise CrossTaskError("To shard a model takes torch 2.8 or newer.")
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        _sharded_modules.add(part)
    return module


def put_together(module: nn.Module, device: torch.device | None = None) -> nn.Module:
    """Make a sharded module what it was before, in place, with all its parameters on each rank; every rank must call.

    Args:
        module: given to `shard`.
        device: where its parameters go; where they were when left out.
    """
    from torch.distributed._composable_state import _module_state_mapping

    for part in _fsdp_modules(module):
        state = part._get_fsdp_state()
        handles = [state._pre_forward_hook_handle, state._post_forward_hook_handle]
        for group in _groups_of(part):
            group.reshard()
            handles += group._module_to_pre_save_state_dict_hook_handle.values()
            handles += group._module_to_pre_load_state_dict_hook_handle.values()
            for fsdp_parameter in group.fsdp_params:
                handles.append(fsdp_parameter._post_load_hook_handle)
                parameter = fsdp_parameter.sharded_param
                complete = nn.Parameter(whole(parameter).to(device), requires_grad=parameter.requires_grad)
                fsdp_parameter._setattr_on_modules(complete)
        for handle in handles:
            handle.remove()
        # Torch has made a class of its own for it, which comes before the one that it had.
        part.__class__ = type(part).__mro__[2]
        _sharded_modules.discard(part)
        _module_state_mapping.pop(part, None)
        for key in list(vars(part)):
            if key.startswith(TORCH_KEYS):
                delattr(part, key)
    return module


def _fsdp_modules(module: nn.Module) -> list[Any]:
    """Parts of a module that are modules of torch's sharding, too: one class made of both."""
    from torch.distributed.fsdp import FSDPModule

    return [part for part in module.modules() if isinstance(part, FSDPModule)]


def _groups_of(part: "FSDPModule") -> list[Any]:
    """What is gathered together: nothing where all parameters belong to inner modules."""
    state = part._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is not None:
        return list(groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]  # an older torch


def _fsdp_parameters_of(part: "FSDPModule") -> list[Any]:
    parameters: list[Any] = []
    for group in _groups_of(part):
        parameters += group.fsdp_params
    return parameters


def is_sharded(tensor: Tensor) -> bool:
    """Whether this rank holds a part of it alone."""
    # By what it can do: importing the class takes a second.
    return hasattr(tensor, "to_local")


def rows_here(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, in the same memory; a plain tensor itself."""
    if not is_sharded(tensor):
        return tensor
    local: Tensor = tensor.detach().to_local()  # type: ignore[attr-defined]
    return local


def like(tensor: Tensor, rows: Tensor) -> Tensor:
    """A sharded tensor with the shape and the ranks of another, of which this rank has these rows."""
    if not is_sharded(tensor):
        return rows
    from torch.distributed.tensor import DTensor

    sharded: DTensor = tensor  # type: ignore[assignment]
    return DTensor.from_local(
        rows, sharded.device_mesh, sharded.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def whole(tensor: Tensor) -> Tensor:
    """All rows of a tensor, gathered from all ranks, each of which must call this; a plain tensor itself."""
    if not is_sharded(tensor):
        return tensor
    gathered: Tensor = tensor.detach().full_tensor()  # type: ignore[attr-defined]
    return gathered


def row_range(tensor: Tensor) -> tuple[int, int]:
    """Which rows of a sharded tensor this rank holds, as a range; all of a plain one."""
    if not is_sharded(tensor):
        return 0, tensor.shape[0] if tensor.dim() else 1
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    num_ranks, rank = mesh.size(), mesh.get_local_rank()
    size = -(-tensor.shape[0] // num_ranks)  # of each part but the last ones, as `torch.chunk` cuts
    start = min(rank * size, tensor.shape[0])
    return start, min(start + size, tensor.shape[0])


def cut(values: Tensor, parameter: Tensor) -> Tensor:
    """This rank's rows of values for a whole parameter, without a copy; for a plain parameter all of them."""
    if not is_sharded(parameter):
        return values
    start, end = row_range(parameter)
    return values[start:end]


def whole_parameters(parameters: Iterable[Tensor]) -> dict[int, Tensor]:
    """The sharded parameters among these, by the id of the whole parameter that graphs lead to."""
    sharded = {id(parameter): parameter for parameter in parameters if is_sharded(parameter)}
    by_whole: dict[int, Tensor] = {}
    num_known = 0
    for part in list(_sharded_modules) if sharded else ():
        for fsdp_parameter in _fsdp_parameters_of(part):
            if id(fsdp_parameter.sharded_param) not in sharded:
                continue
            num_known += 1
            whole_parameter = getattr(fsdp_parameter, "_unsharded_param", None)
            if whole_parameter is not None:  # none before the first pass
                by_whole[id(whole_parameter)] = fsdp_parameter.sharded_param
    if num_known < len(sharded):
        raise CrossTaskError(
            "A parameter is sharded in a way that its gradients cannot be taken task by task: shard the model with "
            "`crosstask.gradients.sharded.shard`, and pass its parameters as they are outside of a pass."
        )
    return by_whole


def take_gradient(loss: Tensor, parameters: Sequence[Tensor], *, retain_graph: bool = False) -> list[Tensor | None]:
    """The gradient of a loss on parameters, some of which are sharded; every rank must call this.

    On sharded ones it is added up over ranks, and each rank gets its rows; on the others it is this rank's part. What
    stands in `.grad` is as it was before.

    Args:
        loss: this rank's part of it.
        parameters: all that the loss reaches, in their sharded form.
        retain_graph: whether the graph is needed again.
    """
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        loss.backward(retain_graph=retain_graph)
        gradients: list[Tensor | None] = []
        for parameter in parameters:
            gradients.append(None if parameter.grad is None else rows_here(parameter.grad))
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
    return gradients


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Inside it every rank holds all parameters of a sharded module, as plain tensors.

    For what torch's sharding cannot do: second derivatives, derivatives in forward mode. The module takes the memory of
    the whole model meanwhile. What plain backward passes leave in `.grad` is this rank's part, as it is without
    sharding; at the end it is added up over ranks and each keeps its rows. Every rank must enter and leave.
    """
    parts = _fsdp_modules(module)
    hooks: list[tuple[dict[int, Any], dict[int, Any]]] = []  # of each part, where they stand and what they were
    for part in parts:
        part.unshard()
        state = part._get_fsdp_state()
        # Inside they would only be in the way: they register functions that have no derivative in forward mode.
        for handle, standing in (
            (state._pre_forward_hook_handle, part._forward_pre_hooks),
            (state._post_forward_hook_handle, part._forward_hooks),
        ):
            hooks.append((standing, dict(standing)))
            del standing[handle.id]
    try:
        yield
    finally:
        for standing, before in hooks:
            standing.clear()
            standing.update(before)
        for part in parts:
            for fsdp_parameter in _fsdp_parameters_of(part):
                _keep_own_rows(fsdp_parameter)
            part.reshard()


def _keep_own_rows(fsdp_parameter: Any) -> None:
    """Turn the gradient of a whole parameter into one of its rows, added up over ranks."""
    parameter, gathered_parameter = fsdp_parameter.sharded_param, fsdp_parameter._unsharded_param
    if not parameter.requires_grad:
        return
    # A rank that has no gradient takes part with zeros.
    has_gradient = torch.tensor(float(gathered_parameter.grad is not None), device=gathered_parameter.device)
    group = parameter.device_mesh.get_group()
    torch.distributed.all_reduce(has_gradient, group=group)
    if not has_gradient.item():
        return
    gradient = gathered_parameter.grad
    if gradient is None:
        gradient = torch.zeros_like(gathered_parameter)
    gathered_parameter.grad = None
    torch.distributed.all_reduce(gradient, group=group)
    rows = cut(gradient, parameter).clone()
    if parameter.grad is None:
        parameter.grad = like(parameter, rows)
    else:
        rows_here(parameter.grad).add_(rows)
