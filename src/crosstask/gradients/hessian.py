"""Products with the Hessian of a mixture of losses, and the solution of linear systems with it.

For eq. 2.7 of Chen et al. (2022), `-grad_0' H^-1 grad_t`: `H^-1 grad_0` by conjugate gradients, which need products of
the Hessian with vectors alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients.inner_products import Gradient, product

Vector = list[Tensor]
"""One entry per shared parameter, in float32 at least."""


def hessian_of(
    gradients: Sequence[Gradient], weights: Sequence[float], shared: Sequence[nn.Parameter]
) -> Callable[[Vector], Vector]:
    """The products of any vector with `H = sum_t weight_t * Hessian of L_t`, from gradients that have graphs.

    A second backward pass through all graphs per product; they are kept.
    """
    # The gradient of the mixture on each parameter, with the index of the parameter; a constant has no Hessian.
    outputs: list[Tensor] = []
    indices: list[int] = []
    for index, by_task in enumerate(zip(*gradients, strict=True)):
        mixture: Tensor | None = None
        for gradient, weight in zip(by_task, weights, strict=True):
            if gradient is not None:
                mixture = weight * gradient if mixture is None else mixture + weight * gradient
        if mixture is not None and mixture.requires_grad:
            outputs.append(mixture)
            indices.append(index)

    def times(vector: Vector) -> Vector:
        if not outputs:  # losses that are linear in the shared parameters
            return [torch.zeros_like(entry) for entry in vector]
        cotangents = []
        for index, output in zip(indices, outputs, strict=True):
            cotangents.append(vector[index].to(output.dtype))
        try:
            products = torch.autograd.grad(
                outputs, shared, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        except RuntimeError as error:
            raise _second_derivative_error(error) from error
        # In float32 at least again, whatever the dtype of the model.
        result = []
        for entry, like in zip(products, vector, strict=True):
            result.append(entry.to(like.dtype))
        return result

    return times


def _second_derivative_error(error: RuntimeError) -> Exception:
    """An explanation where a kernel has no second derivative; any other error stays as it is."""
    text = str(error)
    if "not implemented" not in text and "differentiate twice" not in text:
        return error
    return CrossTaskError(
        "similarity 'exact' differentiates twice, and a part of the model cannot: "
        f"{text.splitlines()[0]} Use eager or math attention (attn_implementation='eager', or "
        "torch.nn.attention.sdpa_kernel with SDPBackend.MATH; for LSTMs on CUDA torch.backends.cudnn.flags("
        "enabled=False)), or another `similarity`."
    )


@dataclass(frozen=True)
class Solution:
    """The result of conjugate gradients.

    - `residual`: length of `(H + damping) v - b`, over that of `b`;
    - `steps`: products that it took;
    - `negative_curvature`: whether it met a direction in which the mixture is not convex, and stopped there.
    """

    vector: Vector
    residual: float
    steps: int
    negative_curvature: bool


def conjugate_gradients(
    times: Callable[[Vector], Vector], right: Vector, *, damping: float, steps: int, tolerance: float = 1e-8
) -> Solution:
    """Solve `(H + damping * I) v = b`, given products with H alone.

    Where H + damping has a direction of negative curvature, as in networks far from a minimum, the solution up to then
    is returned (Steihaug 1983). If that is the first direction, it is `b` divided by the size of its curvature.

    >>> H = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> solution = conjugate_gradients(lambda v: [H @ v[0]], [torch.ones(2)], damping=0.0, steps=2)
    >>> solution.vector[0].round(decimals=6).tolist()
    [0.5, 0.25]
    """
    solution = [torch.zeros_like(entry) for entry in right]
    residual = [entry.clone() for entry in right]
    direction = list(right)  # never changed in place, unlike the other two
    square = initial_square = _square(residual)
    step, negative_curvature = 0, False
    while step < steps and square > tolerance**2 * initial_square:
        step += 1
        times_direction = torch._foreach_add(times(direction), direction, alpha=damping)
        curvature = float(product([*direction], [*times_direction]))
        if not curvature > 0.0:
            negative_curvature = True
            if step == 1:
                solution = _scaled_by_curvature(right, curvature / square, damping)
            break
        step_size = square / curvature
        torch._foreach_add_(solution, direction, alpha=step_size)
        torch._foreach_add_(residual, times_direction, alpha=-step_size)
        old_square, square = square, _square(residual)
        direction = list(torch._foreach_add(residual, direction, alpha=square / old_square))
    relative = (square / initial_square) ** 0.5 if initial_square > 0.0 else 0.0
    return Solution(solution, relative, step, negative_curvature)


def _square(vector: Vector) -> float:
    return float(product([*vector], [*vector]))


def _scaled_by_curvature(right: Vector, damped_curvature: float, damping: float) -> Vector:
    """`b` over the size of H's curvature along b, plus the damping."""
    size = abs(damped_curvature - damping) + damping
    if size == 0.0:
        return right
    return [entry / size for entry in right]
