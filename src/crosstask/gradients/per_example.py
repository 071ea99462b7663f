"""Inner products of one direction with the gradients of all examples of a batch, by a single forward-mode pass.

Only torch is needed here. A loop of backward passes, one per example, gives the same numbers at many times the cost.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from crosstask.errors import CrossTaskError, unknown

LossFunction = Callable[[dict[str, Tensor]], Tensor]
"""From named parameters to the losses of a batch's examples, [batch]."""
Value = TypeVar("Value")


def example_products(
    function: LossFunction, parameters: Mapping[str, Tensor], direction: Mapping[str, Tensor]
) -> Tensor:
    """The product of `direction` with the gradient of each example's loss, [batch].

    `<v, grad l_i(theta)> = d/ds l_i(theta + s v)` at `s = 0`: all of them together are the directional derivative of
    the vector of losses along v, which forward mode carries through one pass. It takes the time of about one forward
    and backward pass over the batch, and no graph is kept.

    - theta: `parameters`, v: `direction`, l: `function`.

    The pass uses attention kernels that have forward-mode derivatives instead of torch's fused ones. What has none even
    so (`nn.LSTM` of float32 that is not packed or runs on a GPU, a `torch.autograd.Function` without `jvp`) is
    computed without fused recurrent kernels or, at about twice the cost, by two backward passes: `<v, J'u>` is linear
    in u, and its derivative with respect to u is `J v`.

    Args:
        function: must give the same losses every time (no dropout), and each example's loss from that example alone
            (no batch normalization); `torch.func.functional_call` puts parameters into a module.
            Reentrant checkpoints hide what is inside them from forward mode: leave them out.
        parameters: by name. A module's tied weights may stand under one of their names, as `named_parameters` has it.
        direction: by the same names; a parameter without an entry does not move.

    Returns:
        The products in the dtype of the losses, without a graph.

    >>> inputs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> losses = lambda values: (inputs @ values["w"]) ** 2
    >>> example_products(losses, {"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 1.0])}).tolist()
    [4.0, 24.0]
    """

    def losses(values: dict[str, Tensor]) -> Tensor:
        batch_losses = function(values)
        if batch_losses.dim() != 1:
            raise CrossTaskError(
                "example_products: the function must return one loss per example, [batch]; found "
                f"{tuple(batch_losses.shape)}."
            )
        return batch_losses

    return directional_derivative(losses, parameters, direction)


def directional_derivative(
    function: Callable[[dict[str, Tensor]], Tensor], parameters: Mapping[str, Tensor], direction: Mapping[str, Tensor]
) -> Tensor:
    """`d/ds f(theta + s v)` at `s = 0` for any function of named parameters, in the shape of its value.

    See `example_products` for the conditions on the function.

    >>> cube = lambda values: values["w"] ** 3
    >>> directional_derivative(cube, {"w": torch.tensor(2.0)}, {"w": torch.tensor(0.5)}).item()
    6.0
    """
    _check(parameters, direction)
    fixed, tangents = point_and_tangents(parameters, direction)

    def by_forward_mode() -> Tensor:
        return _by_forward_mode(function, fixed, tangents)

    def by_two_backward_passes() -> Tensor:
        return _by_two_backward_passes(function, fixed, tangents)

    return with_kernels_that_can(by_forward_mode, by_two_backward_passes)


def with_kernels_that_can(derivative: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """A derivative with the fastest kernels that have it, or else the same by other means.

    Fused attention is left out at once; fused recurrent kernels only where `derivative` is not implemented with them.
    Where it is not implemented without them either, `otherwise` is called.
    """
    with forward_mode_kernels() as stack:
        try:
            return derivative()
        except NotImplementedError:  # a fused recurrent kernel, perhaps
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            return derivative()
        except NotImplementedError:
            return otherwise()


def point_and_tangents(
    parameters: Mapping[str, Tensor], direction: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the direction without graphs, the direction in the parameters' dtypes and on their devices."""
    fixed = {name: value.detach() for name, value in parameters.items()}
    tangents = {name: tangent.detach().to(fixed[name]) for name, tangent in direction.items()}
    return fixed, tangents


def with_duals(fixed: Mapping[str, Tensor], tangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters as dual numbers where they have a tangent; only inside of `forward_ad.dual_level`."""
    values = dict(fixed)
    for name, tangent in tangents.items():
        values[name] = forward_ad.make_dual(fixed[name], tangent)
    return values


def leaves_that_move(fixed: Mapping[str, Tensor], tangents: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the parameters that have a tangent, as leaves of a new graph."""
    return {name: fixed[name].clone().requires_grad_() for name in tangents}


def product_along(gradients: Sequence[Tensor | None], tangents: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """The inner product of a gradient that has a graph with the tangents."""
    along = torch.zeros((), device=device)
    for gradient, tangent in zip(gradients, tangents.values(), strict=True):
        if gradient is not None:  # None: the losses do not depend on this parameter
            along = along + (gradient * tangent).sum()
    return along


@contextmanager
def forward_mode_kernels() -> Iterator[ExitStack]:
    """With kernels that have forward-mode and second derivatives, and without torch's warnings about them."""
    with warnings.catch_warnings(), ExitStack() as stack:
        # Raised inside torch, by its forward-mode rules and its switches.
        warnings.filterwarnings("ignore", message=".*torch.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN", category=UserWarning)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_without_fused_attention())
        yield stack


def _by_forward_mode(function: LossFunction, fixed: dict[str, Tensor], tangents: dict[str, Tensor]) -> Tensor:
    with torch.no_grad(), forward_ad.dual_level():
        losses, products = forward_ad.unpack_dual(function(with_duals(fixed, tangents)))  # [batch] each
    if products is None:  # the losses depend on no parameter that moves
        return torch.zeros_like(losses)
    return products.detach()


def _by_two_backward_passes(function: LossFunction, fixed: dict[str, Tensor], tangents: dict[str, Tensor]) -> Tensor:
    with torch.enable_grad():
        leaves = leaves_that_move(fixed, tangents)
        losses = function({**fixed, **leaves})
        if not losses.requires_grad:
            return torch.zeros_like(losses)
        # The gradient J'u is linear in u, so its value at u does not matter, only its graph.
        u = torch.ones_like(losses, requires_grad=True)  # [batch]
        gradients = torch.autograd.grad(losses, list(leaves.values()), u, create_graph=True, allow_unused=True)
        along = product_along(gradients, tangents, losses.device)
        return torch.autograd.grad(along, u)[0]


@contextmanager
def _without_fused_attention() -> Iterator[None]:
    """Without the inference kernels that torch's transformer layers choose where no graph is wanted."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _check(parameters: Mapping[str, Tensor], direction: Mapping[str, Tensor]) -> None:
    if not direction:
        raise CrossTaskError("`direction` is empty, so every product would be zero.")
    for name, tangent in direction.items():
        if name not in parameters:
            raise unknown("parameter in `direction`:", name, parameters)
        if tangent.shape != parameters[name].shape:
            raise CrossTaskError(
                f"The direction of '{name}' has shape {tuple(tangent.shape)}, "
                f"the parameter {tuple(parameters[name].shape)}."
            )
