"""Backward passes that also compute products of the gradient with a direction, without holding the gradient."""

from collections.abc import Callable, Sequence
from typing import Self

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from crosstask.gradients.inner_products import Gradient, PairProducts
from crosstask.gradients.task_gradients import leaves_beside

MIN_FACTOR = 1e-20
"""A loss with a smaller factor is backpropagated without it: times its factor the products would vanish."""
MIN_FACTOR_IN_FLOAT16 = 1e-3
"""The same where a GradScaler is at work, which means float16 and its short range."""


class ProductsInBackward:
    """Backward passes with products of the gradient on the shared parameters and a direction.

    Each parameter's gradient is multiplied in a hook when the pass reaches it, and then goes into `.grad` as always:
    the full gradient never exists beside it.
    """

    def __init__(self, shared: Sequence[nn.Parameter], direction: Gradient) -> None:
        self.shared, self.direction = shared, direction
        self.products = PairProducts()
        self.factor_after = 1.0  # of the gradients, where the loss does not have the full factor
        self.hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for parameter, along in zip(self.shared, self.direction, strict=True):
            self.hooks.append(parameter.register_hook(self._multiply_by(along)))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def _multiply_by(self, along: Tensor | None) -> Callable[[Tensor], Tensor | None]:
        def hook(gradient: Tensor) -> Tensor | None:
            self.products.add(gradient, along)
            return self._scaled(gradient)

        return hook

    def _scaled(self, gradient: Tensor) -> Tensor | None:
        if self.factor_after == 1.0:
            return None  # the gradient stays as it is
        if self.factor_after == 0.0:
            return gradient.new_zeros(()).expand_as(gradient)  # without a copy of that size
        return gradient * self.factor_after

    def backward(self, loss: Tensor, factor: float, *, smallest: float = MIN_FACTOR) -> tuple[Tensor, Tensor]:
        """A backward pass of `factor * loss`; returns `pair_products` of the gradient of `loss` alone.

        A factor below `smallest` is applied to the gradients instead of to the loss.
        """
        if not loss.requires_grad:  # it depends on nothing
            return self.products.totals()
        factor_before = factor if factor >= smallest else 1.0
        self.factor_after = factor / factor_before
        head_hooks = []
        if self.factor_after != 1.0:
            head_hooks = [leaf.register_hook(self._scaled) for leaf in leaves_beside(loss, self.shared)]
        try:
            (loss * factor_before).backward()
        finally:
            for hook in head_hooks:
                hook.remove()
        crosswise, square = self.products.totals()
        return crosswise / factor_before, square / factor_before**2
