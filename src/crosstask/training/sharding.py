"""A run whose ranks hold a part of the encoder each: taken apart for training, and put together after it.

The encoder is sharded by torch (`gradients.sharded`), layer by layer where it has layers; heads, inserts and modules of
transfers are small, and every rank has them.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import sharded
from crosstask.models.multitask import Model
from crosstask.training.devices import Devices
from crosstask.transfer.base import Transfer, WholeModel


def check_shards(model: Model, transfers: Sequence[Transfer]) -> None:
    """Refuse what reads parameters that no rank has as a whole."""
    if not model.encoder.shards:
        raise CrossTaskError(
            "training: `shard` divides an encoder that learns, and with `freeze` it computes features outside of "
            "training. Leave `shard` out; or use `lora` in place of `freeze`, which trains few numbers too."
        )
    for transfer in transfers:
        if transfer.needs_whole_model is WholeModel.ALWAYS:
            raise CrossTaskError(
                f"training: with `shard` no rank has the whole encoder, and the transfer '{transfer.name}' with these "
                "options works on all of it at once. Leave one of them out."
            )


def shard_encoder(model: Model, devices: Devices) -> None:
    """Let each rank keep its rows of the encoder's parameters alone."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(devices.device.type, (devices.num_ranks,))
    # What is not within a layer is let go after a pass, too: parameters are listed in one form only, at any time.
    sharded.shard(model.encoder, model.encoder.blocks(), mesh=mesh, reshard_after_forward=True)


def all_finite(tensors: Iterable[Tensor], devices: Devices) -> bool:
    """Whether every entry of these tensors is finite; one synchronization for all of them."""
    checks: list[Tensor] = []
    for tensor in tensors:
        if tensor.is_floating_point():
            checks.append(torch.isfinite(sharded.rows_here(tensor)).all())
    is_finite = not checks or bool(torch.stack(checks).all())
    if not devices.shards:
        return is_finite
    num_failing = devices.sum(torch.tensor(float(not is_finite), device=devices.device))
    return num_failing.item() == 0.0


def gradient_norm(parameters: Iterable[nn.Parameter], devices: Devices) -> Tensor:
    """The length of what stands in `.grad` of these parameters, added up over ranks before."""
    gradients: list[Tensor] = []
    rows: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if sharded.is_sharded(parameter):
            rows.append(sharded.rows_here(parameter.grad))
        else:
            gradients.append(parameter.grad)
    norm = torch.nn.utils.get_total_norm(gradients)
    if not devices.shards:
        return norm
    square = torch.nn.utils.get_total_norm(rows).to(devices.device) ** 2
    return (norm.to(devices.device) ** 2 + devices.sum(square)).sqrt()


def clip_gradient(parameters: Sequence[nn.Parameter], limit: float, devices: Devices) -> Tensor:
    """Shorten the gradient to a limit; returns its length before."""
    if not devices.shards:
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    norm = gradient_norm(parameters, devices)
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)  # as torch does
    for parameter in parameters:
        if parameter.grad is not None:
            sharded.rows_here(parameter.grad).mul_(factor)
    return norm
