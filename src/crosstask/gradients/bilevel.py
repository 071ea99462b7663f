"""One step ahead: what parameters that shape a step of the model do to a loss after it.

The model's parameters theta take one step on a training loss L that also depends on meta-parameters alpha, and a loss M
on other examples judges where they arrive:

    theta' = theta - eta * grad L(theta, alpha)
    d M(theta') / d alpha = - d/d alpha < grad_theta L(theta, alpha), u >,    u = eta * grad M(theta')

Only `u` carries what comes after the step, so no graph has to reach through it: the meta-gradient is the derivative by
alpha of one directional derivative of L, taken in one of three ways (`meta_gradient`). Where L is linear in what alpha
gives, as cross-entropy is in soft labels, `linear_meta_gradient` is exact without any second derivative.

With Adam, `eta * grad L` becomes Adam's step, and its derivative by the gradient stands in the place of eta
(`adam_step`). Only torch is needed here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from crosstask.errors import unknown
from crosstask.gradients.per_example import directional_derivative, forward_mode_kernels
from crosstask.gradients.task_gradients import apart

Values = dict[str, Tensor]
"""Parameters, gradients or directions by name."""
Loss = Callable[[Values], Tensor]
"""A scalar loss as a function of the model's parameters."""
Variant = Literal["forward", "double-backward", "finite-difference"]
FINITE_STEP = {torch.float64: 1e-5}
"""Length of the step of finite differences in parameter space, by precision."""
FINITE_STEP_IN_FLOAT32 = 2e-3
"""The same for lower precision: rounding errors grow with one over it, the bend of the loss with its square."""


def gradient_of(loss: Loss, parameters: Mapping[str, Tensor]) -> Values:
    """The gradient of a loss at these parameters; those that it does not depend on have no entry.

    Each part has memory of its own.

    >>> gradient_of(lambda values: (values["w"] ** 2).sum(), {"w": torch.tensor([3.0])})["w"].tolist()
    [6.0]
    """
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        found = apart(torch.autograd.grad(loss(leaves), list(leaves.values()), allow_unused=True))
    return {name: part for name, part in zip(leaves, found, strict=True) if part is not None}


@torch.no_grad()
def sgd_step(
    parameters: Mapping[str, Tensor], gradient: Mapping[str, Tensor], learning_rate: float
) -> tuple[Values, float]:
    """Where a step of gradient descent leads, and its derivative by the gradient: the rate.

    The gradient's memory is reused: it is not what it was.

    >>> sgd_step({"w": torch.tensor([3.0])}, {"w": torch.tensor([6.0])}, 0.5)[0]["w"].tolist()
    [0.0]
    """
    moved = list(gradient.values())
    if moved:
        torch._foreach_mul_(moved, -learning_rate)
        torch._foreach_add_(moved, [parameters[name].detach() for name in gradient])
    return {**parameters, **dict(zip(gradient, moved, strict=True))}, learning_rate


@torch.no_grad()
def adam_step(
    parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> tuple[Values, Values]:
    """Where the optimizer's next step would lead, without weight decay, and its derivative by the gradient.

        m' = b1 m + (1 - b1) g,   s' = b2 s + (1 - b2) g^2,   n = 1 + steps so far
        m^ = m' / (1 - b1^n),     s^ = s' / (1 - b2^n),       D = sqrt(s^) + eps
        theta' = theta - eta m^ / D
        d theta' / d g = - eta ( (1 - b1) / (1 - b1^n) / D  -  m^ (1 - b2) g / ((1 - b2^n) sqrt(s^)) / D^2 )

    The derivative is returned without its sign, entry by entry. Nothing in the optimizer changes.
    """
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    looked: Values = dict(parameters)
    rates: Values = {}
    for name, part in gradient.items():
        parameter = parameters[name]
        group, state = groups[id(parameter)], optimizer.state.get(parameter, {})
        (first_decay, second_decay), epsilon, rate = group["betas"], group["eps"], group["lr"]
        number = float(state["step"]) + 1.0 if state else 1.0
        momentum = (1.0 - first_decay) * part + (first_decay * state["exp_avg"] if state else 0.0)
        square = (1.0 - second_decay) * part**2 + (second_decay * state["exp_avg_sq"] if state else 0.0)
        first_correction, second_correction = 1.0 - first_decay**number, 1.0 - second_decay**number
        momentum = momentum / first_correction
        root = (square / second_correction).sqrt()
        length = root + epsilon
        looked[name] = parameter.detach() - rate * momentum / length
        slope = (1.0 - second_decay) / second_correction * part / root.clamp(min=torch.finfo(root.dtype).tiny)
        rates[name] = rate * ((1.0 - first_decay) / first_correction / length - momentum * slope / length**2)
    return looked, rates


@torch.no_grad()
def direction_of(gradient: Mapping[str, Tensor], rates: Mapping[str, Tensor] | float) -> Values:
    """`u`: the gradient of the loss after the step, times the derivative of the step by its gradient.

    Parameters that the step did not move have no entry. The gradient's memory is reused.
    """
    if isinstance(rates, float):
        if gradient:
            torch._foreach_mul_(list(gradient.values()), rates)
        return dict(gradient)
    return {name: part.mul_(rates[name]) for name, part in gradient.items() if name in rates}


def meta_gradient(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    direction: Mapping[str, Tensor],
    meta: Sequence[Tensor],
    variant: Variant = "forward",
) -> list[Tensor]:
    """`- d/d alpha < grad_theta L(theta, alpha), u >` for each meta-parameter.

    - "forward": the gradient by alpha, and by forward mode how it changes as theta goes along u; exact;
    - "double-backward": a graph of the gradient, the way most libraries go; exact, and the most expensive;
    - "finite-difference": gradients by alpha at `theta + e u` and `theta - e u`; no second derivative at all, so it
      goes through every kernel; exact up to the square of e times the third derivative.

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
    fixed = {name: value.detach() for name, value in parameters.items()}
    moving = {name: part.detach().to(fixed[name]) for name, part in direction.items()}
    with forward_mode_kernels(), torch.enable_grad():
        found = VARIANTS[variant](loss, fixed, moving, meta)
    return [torch.zeros_like(one) if part is None else -part for one, part in zip(meta, found, strict=True)]


Parts = Sequence[Tensor | None]


def _forward(loss: Loss, fixed: Values, moving: Values, meta: Sequence[Tensor]) -> Parts:
    with forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(fixed[name], part) for name, part in moving.items()}
        value = loss({**fixed, **duals})
        if not value.requires_grad:
            return [None] * len(meta)
        # The backward pass carries the tangents along: of the gradient by alpha, how it changes on the way of theta.
        found = torch.autograd.grad(value, list(meta), allow_unused=True)
        return [None if part is None else forward_ad.unpack_dual(part).tangent for part in found]


def _double_backward(loss: Loss, fixed: Values, moving: Values, meta: Sequence[Tensor]) -> Parts:
    leaves = {name: fixed[name].clone().requires_grad_() for name in moving}
    taken = torch.autograd.grad(loss({**fixed, **leaves}), list(leaves.values()), create_graph=True, allow_unused=True)
    pairs = zip(taken, moving.values(), strict=True)
    terms = [(gradient * part).sum() for gradient, part in pairs if gradient is not None]
    slope = sum(terms[1:], terms[0]) if terms else None
    if slope is None or not slope.requires_grad:
        return [None] * len(meta)
    return torch.autograd.grad(slope, list(meta), allow_unused=True)


def _finite_difference(loss: Loss, fixed: Values, moving: Values, meta: Sequence[Tensor]) -> Parts:
    size = finite_step(moving)
    ahead, behind = (
        # What alpha gives may be computed already, so its graph is kept for the second time.
        torch.autograd.grad(loss(_moved(fixed, moving, step)), list(meta), allow_unused=True, retain_graph=True)
        for step in (size, -size)
    )
    return [
        None if one is None or two is None else (one - two) / (2.0 * size)
        for one, two in zip(ahead, behind, strict=True)
    ]


VARIANTS: dict[Variant, Callable[[Loss, Values, Values, Sequence[Tensor]], Parts]] = {
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
        fixed = {name: value.detach() for name, value in parameters.items()}
        size = finite_step(direction)
        with torch.no_grad():
            ahead, behind = (costs(_moved(fixed, direction, step)) for step in (size, -size))
        slopes = (ahead - behind) / (2.0 * size)
    else:
        slopes = directional_derivative(costs, parameters, direction)
    found = torch.autograd.grad(-(shares * slopes).sum(), list(meta), allow_unused=True)
    return [torch.zeros_like(one) if part is None else part for one, part in zip(meta, found, strict=True)]


def finite_step(direction: Mapping[str, Tensor]) -> float:
    """How far finite differences go along a direction: far enough to be seen, near enough to be straight."""
    parts = list(direction.values())
    step = FINITE_STEP.get(parts[0].dtype, FINITE_STEP_IN_FLOAT32)
    length = float(torch.stack(torch._foreach_norm(parts)).double().norm())
    return step / length if length > 0.0 else step


def _moved(fixed: Mapping[str, Tensor], direction: Mapping[str, Tensor], size: float) -> Values:
    names = list(direction)
    moved = torch._foreach_add(
        [fixed[name] for name in names], [direction[name].to(fixed[name]) for name in names], alpha=size
    )
    return {**fixed, **dict(zip(names, moved, strict=True))}
