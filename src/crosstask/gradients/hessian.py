"""Products with a target's gradient: taken along a backward pass, or through the inverse Hessian of the mixture.

Both serve eq. 2.7 of Chen et al. (2022), `-grad_0' H^-1 grad_t`: the first with the identity in place of the inverse,
the second as it stands, solved by conjugate gradients on products of the Hessian with vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads

SMALLEST_FACTOR = 1e-20
"""A loss that counts less goes through its graph in full size: times its factor nothing would be left to compare."""
SMALLEST_FACTOR_IN_FLOAT16 = 1e-3
"""The same where a GradScaler is at work, which means float16 and its short range."""
PIECE = 2**14
"""Entries that are multiplied together on the CPU: torch.dot adds so many up in float32 to five digits or more."""
PIECE_ON_ACCELERATOR = 2**22
"""The same for an accelerator: enough to keep it busy."""

Vector = list[Tensor]
"""One entry per shared parameter, in float32 at least."""


class PairProducts:
    """Adds up two products over parameters that come one by one: of a gradient with a direction, and with itself.

    Large parameters are done with at once, in pieces that stay in the cache, so that nothing is read twice; small ones
    wait until there are enough of them.
    """

    def __init__(self) -> None:
        self.crosswise: list[Tensor] = []
        self.squares: list[Tensor] = []
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.num_waiting = 0

    def see(self, gradient: Tensor, direction: Tensor | None) -> None:
        """Take in one parameter; a direction of None is zero."""
        size = gradient.numel()
        enough = PIECE_ON_ACCELERATOR if gradient.is_cuda else PIECE
        if direction is None:
            direction = torch.zeros_like(gradient)
        if size >= enough:
            pieces = (part.reshape(-1).split(enough) for part in (gradient, direction))
            for here, there in zip(*pieces, strict=True):
                self._multiply(here, there)
            return
        if self.waiting and self.waiting[0][0].device != gradient.device:
            self._multiply_waiting()
        self.waiting.append((gradient, direction))
        self.num_waiting += size
        if self.num_waiting >= enough:
            self._multiply_waiting()

    def _multiply_waiting(self) -> None:
        if self.waiting:
            self._multiply(
                *(torch.cat([part.reshape(-1) for part in parts]) for parts in zip(*self.waiting, strict=True))
            )
            self.waiting, self.num_waiting = [], 0

    def _multiply(self, here: Tensor, there: Tensor) -> None:
        if here.is_cuda:
            self.crosswise.append(grads.dot(here, there))
            self.squares.append(grads.dot(here, here))
            return
        if here.dtype != there.dtype or here.dtype not in (torch.float32, torch.float64):
            here, there = here.float(), there.float()
        self.crosswise.append(torch.dot(here, there))
        self.squares.append(torch.dot(here, here))

    def totals(self) -> tuple[Tensor, Tensor]:
        """Both products of what was seen so far, in float64; then it starts anew."""
        self._multiply_waiting()
        found = _total(self.crosswise), _total(self.squares)
        self.crosswise, self.squares = [], []
        return found


def _total(parts: Sequence[Tensor]) -> Tensor:
    if not parts:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack([part.to(parts[0].device) for part in parts]).sum(dtype=torch.float64)


@torch.no_grad()
def pair_products(gradient: grads.Gradient, direction: grads.Gradient) -> tuple[Tensor, Tensor]:
    """The product of a gradient with a direction, and with itself; in float64.

    >>> [value.item() for value in pair_products([torch.tensor([1.0, 2.0]), None], [torch.ones(2), torch.ones(1)])]
    [3.0, 5.0]
    """
    products = PairProducts()
    for part, along in zip(gradient, direction, strict=True):
        if part is not None:
            products.see(part, along)
    return products.totals()


def _times(gradient: Tensor, factor: float) -> Tensor:
    """For a factor of zero without a copy of that size."""
    return gradient.new_zeros(()).expand_as(gradient) if factor == 0.0 else gradient * factor


class ProductsOnTheWay:
    """Backward passes that also tell the products of what they find on the shared parameters with a direction.

    Each parameter's gradient is multiplied when the pass comes by, and then goes into `.grad` as always: the whole
    gradient never exists beside it.
    """

    def __init__(self, shared: Sequence[nn.Parameter], direction: grads.Gradient) -> None:
        self.shared, self.direction = shared, direction
        self.products = PairProducts()
        self.left = 1.0
        self.hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        def watch(part: Tensor | None) -> Callable[[Tensor], Tensor | None]:
            def see(gradient: Tensor) -> Tensor | None:
                self.products.see(gradient, part)
                return None if self.left == 1.0 else _times(gradient, self.left)

            return see

        pairs = zip(self.shared, self.direction, strict=True)
        self.hooks = [parameter.register_hook(watch(part)) for parameter, part in pairs]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def backward(self, loss: Tensor, factor: float, *, smallest: float = SMALLEST_FACTOR) -> tuple[Tensor, Tensor]:
        """A backward pass of `factor * loss`; returns `pair_products` of the gradient of `loss` alone.

        A factor below `smallest` is applied to the gradients instead of to the loss.
        """
        if not loss.requires_grad:  # it depends on nothing
            return self.products.totals()
        carried = factor if factor >= smallest else 1.0
        self.left = factor / carried
        own_hooks = []
        if self.left != 1.0:
            known = {id(parameter) for parameter in self.shared}
            own = [leaf for leaf in grads.leaves_of(loss) if id(leaf) not in known]
            own_hooks = [leaf.register_hook(lambda gradient: _times(gradient, self.left)) for leaf in own]
        try:
            (loss * carried).backward()
        finally:
            for hook in own_hooks:
                hook.remove()
        crosswise, square = self.products.totals()
        return crosswise / carried, square / carried**2


def hessian_of(
    gradients: Sequence[grads.Gradient], weights: Sequence[float], shared: Sequence[nn.Parameter]
) -> Callable[[Vector], Vector]:
    """The products of any vector with `H = sum_t weight_t * Hessian of L_t`, from gradients that have graphs.

    A second backward pass through all graphs per product; they are kept.
    """
    mixture: list[Tensor | None] = []
    for parts in zip(*gradients, strict=True):
        terms = [weight * part for part, weight in zip(parts, weights, strict=True) if part is not None]
        mixture.append(sum(terms[1:], terms[0]) if terms else None)
    curved = [i for i, part in enumerate(mixture) if part is not None and part.requires_grad]

    def times(vector: Vector) -> Vector:
        if not curved:  # losses that are linear in the shared parameters
            return [torch.zeros_like(part) for part in vector]
        outputs = [part for i in curved if (part := mixture[i]) is not None]
        along = [vector[i].to(part.dtype) for i, part in zip(curved, outputs, strict=True)]
        try:
            taken = torch.autograd.grad(
                outputs, shared, along, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        except RuntimeError as error:
            if not any(words in str(error) for words in ("not implemented", "differentiate twice")):
                raise
            raise CrossTaskError(
                "similarity 'exact' differentiates twice, and a part of the model cannot: "
                f"{str(error).splitlines()[0]} Use eager or math attention (attn_implementation='eager', or "
                "torch.nn.attention.sdpa_kernel with SDPBackend.MATH; for LSTMs on CUDA torch.backends.cudnn.flags("
                "enabled=False)), or another `similarity`."
            ) from error
        return [part.to(like.dtype) for part, like in zip(taken, vector, strict=True)]

    return times


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients found.

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

    Where H + damping has a direction that does not curve upwards, as in networks far from a minimum, what was found
    before it is kept (Steihaug 1983). If that is the first one, `b` divided by the size of its curvature is taken.

    >>> H = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> found = conjugate_gradients(lambda v: [H @ v[0]], [torch.ones(2)], damping=0.0, steps=2)
    >>> found.vector[0].round(decimals=6).tolist()
    [0.5, 0.25]
    """
    solution = [torch.zeros_like(part) for part in right]
    residual = [part.clone() for part in right]
    towards = [part.clone() for part in right]
    size = start = float(grads.product(list(residual), list(residual)))
    done, bent = 0, False
    while done < steps and size > tolerance**2 * start:
        done += 1
        moved = [part.add(along, alpha=damping) for part, along in zip(times(towards), towards, strict=True)]
        curvature = float(grads.product(list(towards), list(moved)))
        if not curvature > 0.0:
            bent = True
            if done == 1:
                bend = abs(curvature / size - damping) + damping
                solution = [part / bend if bend != 0.0 else part for part in right]
            break
        length = size / curvature
        torch._foreach_add_(solution, towards, alpha=length)
        torch._foreach_add_(residual, moved, alpha=-length)
        before, size = size, float(grads.product(list(residual), list(residual)))
        towards = [left.add(part, alpha=size / before) for left, part in zip(residual, towards, strict=True)]
    return Solution(solution, (size / start) ** 0.5 if start > 0.0 else 0.0, done, bent)
