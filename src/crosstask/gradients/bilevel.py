"""Meta-gradients through one step of the model.

The model's parameters theta take one step on a training loss L that also depends on meta-parameters alpha, and a loss M
on other examples is measured after the step:

    theta' = theta - eta * grad L(theta, alpha)
    d M(theta') / d alpha = - d/d alpha < grad_theta L(theta, alpha), u >,    u = eta * grad M(theta')

Only `u` depends on what comes after the step, so no graph has to reach through it: the meta-gradient is the derivative
by alpha of one directional derivative of L, computed in one of three ways (`meta_gradient`). Where L is linear in what
alpha gives, as cross-entropy is in soft labels, `linear_meta_gradient` is exact without any second derivative.

With Adam, `eta * grad L` becomes Adam's step, and its derivative by the gradient replaces eta (`adam_step`).

Nothing here waits for the device, so that all of it can be captured in a CUDA graph; a learning rate that changes from
step to step is then passed as a tensor. Only torch is needed here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from crosstask.errors import unknown
from crosstask.gradients.per_example import (
    directional_derivative,
    leaves_that_move,
    point_and_tangents,
    product_along,
    with_duals,
    with_kernels_that_can,
)
from crosstask.gradients.task_gradients import apart

Values = dict[str, Tensor]
"""Parameters, gradients or directions by name."""
Loss = Callable[[Values], Tensor]
"""A scalar loss as a function of the model's parameters."""
Rate = float | Tensor
"""A learning rate, or anything else that changes from step to step; a tensor has no axis and is on the device."""
Variant = Literal["forward", "double-backward", "finite-difference"]
FINITE_STEP = {torch.float64: 1e-5}
"""Length of the step of finite differences in parameter space, by dtype."""
FINITE_STEP_IN_FLOAT32 = 2e-3
"""The same for lower precision: rounding errors grow with its inverse, the error of the difference with its square."""


def value_and_gradient(loss: Loss, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Values]:
    """A loss at these parameters, and its gradient; parameters that it does not depend on have no entry.

    No two entries share memory.

    >>> value, gradient = value_and_gradient(lambda values: (values["w"] ** 2).sum(), {"w": torch.tensor([3.0])})
    >>> value.item(), gradient["w"].tolist()
    (9.0, [6.0])
    """
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        value = loss(leaves)
        gradients = apart(torch.autograd.grad(value, list(leaves.values()), allow_unused=True))
    gradient: Values = {}
    for name, on_parameter in zip(leaves, gradients, strict=True):
        if on_parameter is not None:
            gradient[name] = on_parameter
    return value.detach(), gradient


def gradient_of(loss: Loss, parameters: Mapping[str, Tensor]) -> Values:
    """The gradient of a loss at these parameters, see `value_and_gradient`.

    >>> gradient_of(lambda values: (values["w"] ** 2).sum(), {"w": torch.tensor([3.0])})["w"].tolist()
    [6.0]
    """
    return value_and_gradient(loss, parameters)[1]


@torch.no_grad()
def sgd_step(
    parameters: Mapping[str, Tensor], gradient: Mapping[str, Tensor], learning_rate: Rate, *, keep: bool = False
) -> Values:
    """The parameters after a step of gradient descent, whose derivative by the gradient is the rate.

    Args:
        parameters: by name.
        gradient: by the same names; a parameter without an entry stays.
        learning_rate: of the step.
        keep: whether the gradient is still needed; otherwise the step is made in its memory.

    >>> sgd_step({"w": torch.tensor([3.0])}, {"w": torch.tensor([6.0])}, 0.5)["w"].tolist()
    [0.0]
    """
    if not gradient:
        return dict(parameters)
    stepped = list(gradient.values())
    if keep:
        stepped = list(torch._foreach_mul(stepped, -learning_rate))
    else:
        torch._foreach_mul_(stepped, -learning_rate)
    torch._foreach_add_(stepped, [parameters[name].detach() for name in gradient])
    return {**parameters, **dict(zip(gradient, stepped, strict=True))}


@torch.no_grad()
def adam_step(
    parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> tuple[Values, Values]:
    """The parameters after the optimizer's next step, without weight decay, and its derivative by the gradient.

        m' = b1 m + (1 - b1) g,   s' = b2 s + (1 - b2) g^2,   n = 1 + steps so far
        m^ = m' / (1 - b1^n),     s^ = s' / (1 - b2^n),       D = sqrt(s^) + eps
        theta' = theta - eta m^ / D
        d theta' / d g = - eta ( (1 - b1) / (1 - b1^n) / D  -  m^ (1 - b2) g / ((1 - b2^n) sqrt(s^)) / D^2 )

    The derivative is returned without its sign, entry by entry. Nothing in the optimizer changes.
    """
    group_of = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            group_of[id(parameter)] = group
    stepped: Values = dict(parameters)
    rates: Values = {}
    # The symbols of the formulas above.
    for name, g in gradient.items():
        parameter = parameters[name]
        group, state = group_of[id(parameter)], optimizer.state.get(parameter, {})
        (b1, b2), eps, eta = group["betas"], group["eps"], group["lr"]
        unbias_1, unbias_2 = 1.0 - b1, 1.0 - b2
        momentum, square = (1.0 - b1) * g, (1.0 - b2) * g**2
        if state:  # none before the first step: then m and s are zero
            n = 1.0 + state["step"].double()  # on the device, where the optimizer has it there
            unbias_1, unbias_2 = (1.0 - b1**n).to(g), (1.0 - b2**n).to(g)
            momentum = momentum + b1 * state["exp_avg"]
            square = square + b2 * state["exp_avg_sq"]
        momentum = momentum / unbias_1
        root = (square / unbias_2).sqrt()
        denominator = root + eps
        stepped[name] = parameter.detach() - eta * momentum / denominator
        # Clamped: where all gradients so far were zero, this would be 0 / 0.
        root_gradient = (1.0 - b2) / unbias_2 * g / root.clamp(min=torch.finfo(root.dtype).tiny)
        rates[name] = eta * ((1.0 - b1) / unbias_1 / denominator - momentum * root_gradient / denominator**2)
    return stepped, rates


@torch.no_grad()
def direction_of(gradient: Mapping[str, Tensor], rates: Mapping[str, Tensor]) -> Values:
    """`u`: the gradient of the loss after the step, times the derivative of the step by its gradient.

    Parameters that the step did not change have no entry. Overwrites the gradient in place.
    """
    names = [name for name in gradient if name in rates]
    direction = [gradient[name] for name in names]
    if direction:
        torch._foreach_mul_(direction, [rates[name] for name in names])
    return dict(zip(names, direction, strict=True))


def meta_gradient(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    direction: Mapping[str, Tensor],
    meta: Sequence[Tensor],
    variant: Variant = "forward",
) -> list[Tensor]:
    """`- d/d alpha < grad_theta L(theta, alpha), u >` for each meta-parameter.

    - "forward": the gradient by alpha, and by forward mode its derivative along u; exact. What has no forward-mode
      derivative is computed as `per_example.example_products` does, in the end by double backward;
    - "double-backward": a graph of the gradient, as most libraries do; exact, and the most expensive;
    - "finite-difference": gradients by alpha at `theta + e u` and `theta - e u`; no second derivative at all, so every
      kernel will do; exact up to the square of e times the third derivative.

    Args:
        loss: L, with alpha inside; it must give the same value every time (no dropout).
        parameters: theta, by name.
        direction: u, by the same names; a parameter without an entry does not move.
        meta: alpha, tensors that require gradients and that the loss depends on.
        variant: see above.

    >>> alpha = torch.tensor(2.0, requires_grad=True)
    >>> loss = lambda values: alpha ** 2 * values["w"] ** 2
    >>> u = {"w": torch.tensor(1.0)}
    >>> [round(meta_gradient(loss, {"w": torch.tensor(3.0)}, u, [alpha], way)[0].item(), 2) for way in VARIANTS]
    [-24.0, -24.0, -24.0]
    """
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    fixed, tangents = point_and_tangents(parameters, direction)

    def by_variant() -> Derivatives:
        return VARIANTS[variant](loss, fixed, tangents, meta)

    def by_double_backward() -> Derivatives:
        return _double_backward(loss, fixed, tangents, meta)

    with torch.enable_grad():
        derivatives = with_kernels_that_can(by_variant, by_double_backward)
    return list(torch._foreach_neg(_with_zeros(derivatives, meta)))


Derivatives = Sequence[Tensor | None]
"""One entry per meta-parameter; None where the loss does not depend on it."""


def _with_zeros(derivatives: Derivatives, meta: Sequence[Tensor]) -> list[Tensor]:
    filled = []
    for parameter, derivative in zip(meta, derivatives, strict=True):
        filled.append(torch.zeros_like(parameter) if derivative is None else derivative)
    return filled


def _forward(loss: Loss, fixed: Values, tangents: Values, meta: Sequence[Tensor]) -> Derivatives:
    with forward_ad.dual_level():
        value = loss(with_duals(fixed, tangents))
        if not value.requires_grad:
            return [None] * len(meta)
        # The backward pass carries the tangents along: the derivative along u of the gradient by alpha. What alpha
        # gives may be computed already, so its graph is kept in case that a kernel of this pass cannot.
        gradients = torch.autograd.grad(value, list(meta), allow_unused=True, retain_graph=True)
        derivatives: list[Tensor | None] = []
        for dual in gradients:
            derivatives.append(None if dual is None else forward_ad.unpack_dual(dual).tangent)
        return derivatives


def _double_backward(loss: Loss, fixed: Values, tangents: Values, meta: Sequence[Tensor]) -> Derivatives:
    leaves = leaves_that_move(fixed, tangents)
    value = loss({**fixed, **leaves})
    gradients = torch.autograd.grad(value, list(leaves.values()), create_graph=True, allow_unused=True)
    along = product_along(gradients, tangents, value.device)
    if not along.requires_grad:
        return [None] * len(meta)
    return torch.autograd.grad(along, list(meta), allow_unused=True)


def _finite_difference(loss: Loss, fixed: Values, tangents: Values, meta: Sequence[Tensor]) -> Derivatives:
    step = finite_step(tangents)

    def gradients_at(values: Values) -> Derivatives:
        # What alpha gives may be computed already, so its graph is kept for the second time.
        return torch.autograd.grad(loss(values), list(meta), allow_unused=True, retain_graph=True)

    ahead = gradients_at(_along(fixed, tangents, step))
    behind = gradients_at(_along(fixed, tangents, -step))
    differences: list[Tensor | None] = []
    for one, two in zip(ahead, behind, strict=True):
        differences.append(None if one is None or two is None else (one - two) / (2.0 * step))
    return differences


VARIANTS: dict[Variant, Callable[[Loss, Values, Values, Sequence[Tensor]], Derivatives]] = {
    "forward": _forward,
    "double-backward": _double_backward,
    "finite-difference": _finite_difference,
}


def linear_meta_gradient(
    costs: Callable[[Values], Tensor],
    parameters: Mapping[str, Tensor],
    direction: Mapping[str, Tensor],
    shares: Tensor,
    meta: Sequence[Tensor],
    variant: Variant = "forward",
) -> list[Tensor]:
    """The same for a loss `L = sum_i shares_i(alpha) * costs_i(theta)`, without any second derivative.

    `d/d alpha < grad_theta L, u > = d/d alpha sum_i shares_i(alpha) D_u costs_i(theta)`, and all the directional
    derivatives `D_u` come from one pass in forward mode that keeps no graph.

    Args:
        costs: of each unit and class, such as `-log p_c(x)`, as a function of theta.
        parameters: theta, by name.
        direction: u, by the same names.
        shares: of the same shape as the costs, with a graph that leads to alpha, such as soft labels over their number.
        meta: alpha.
        variant: "forward"; "finite-difference", with two plain passes instead; or "double-backward", the slow oracle.

    >>> alpha = torch.tensor(0.5, requires_grad=True)
    >>> costs = lambda values: torch.stack([values["w"] ** 2, 3 * values["w"]])
    >>> shares = torch.stack([alpha, 1 - alpha])
    >>> u = {"w": torch.tensor(2.0)}
    >>> linear_meta_gradient(costs, {"w": torch.tensor(1.0)}, u, shares, [alpha])[0].item()  # -(2 * 2 - 3 * 2)
    2.0
    """
    if variant == "double-backward":
        return meta_gradient(lambda values: (shares * costs(values)).sum(), parameters, direction, meta, variant)
    if variant == "finite-difference":
        fixed, tangents = point_and_tangents(parameters, direction)
        step = finite_step(direction)
        with torch.no_grad():
            ahead, behind = costs(_along(fixed, tangents, step)), costs(_along(fixed, tangents, -step))
        derivatives = (ahead - behind) / (2.0 * step)  # of the shape of the costs
    else:
        derivatives = directional_derivative(costs, parameters, direction)
    gradients = torch.autograd.grad(-(shares * derivatives).sum(), list(meta), allow_unused=True)
    return _with_zeros(gradients, meta)


def finite_step(direction: Mapping[str, Tensor]) -> Tensor:
    """The step of finite differences in units of the direction: a balance of rounding and truncation errors."""
    tangents = list(direction.values())
    step = FINITE_STEP.get(tangents[0].dtype, FINITE_STEP_IN_FLOAT32)
    length = torch.stack(torch._foreach_norm(tangents)).double().norm()
    return torch.where(length > 0.0, step / length, step).to(tangents[0].dtype)


def _along(fixed: Mapping[str, Tensor], tangents: Mapping[str, Tensor], step: Tensor) -> Values:
    """`theta + step * u`."""
    moved = list(torch._foreach_mul(list(tangents.values()), step))
    torch._foreach_add_(moved, [fixed[name] for name in tangents])
    return {**fixed, **dict(zip(tangents, moved, strict=True))}
