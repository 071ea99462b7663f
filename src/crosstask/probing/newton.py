"""Newton's method for many logistic regressions at once.

All subsets of the units and all penalties are one batch of problems: the two products that cost, of features with
weights and of features with errors, are one each for all of them. A problem that is solved leaves the batch.

Tensors of problems have four dimensions, [subsets, problems, outputs, rows or axes]. The outputs of a problem are all
its classes (softmax), or the one label that a unit has or has not (sigmoid). Rows come last: there are far more of them
than of outputs, and processors like long rows of numbers.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

MAX_STEPS = 100
"""Of Newton's method, and of conjugate gradients within each step; some ten are usual."""
FORCING = 0.1
"""Conjugate gradients stop when the residual is this small a fraction of the gradient, in the preconditioner's norm."""
OVERSHOT = 0.5
"""A step is too long where the value rises at its end by more than this fraction of how it falls at its beginning."""
MAX_LOGIT = 20.0
"""Largest logit of a label that all units have, or none: all but certain, and yet of finite loss."""
ABSENT_START = -1000.0
"""Bias of a class that no unit has: its probability is zero, and so is its gradient."""
NO_VARIANCE = 1e-5
"""Fraction of the largest variance that is none."""
CHECK_EVERY = 4
"""Iterations of conjugate gradients between two questions whether it is time to stop; each makes the device wait."""


@dataclass(frozen=True, eq=False)
class Problems:
    """What is minimized: `C * sum of cross-entropies + |weights|^2 / 2`; the bias, last of the axes, has no penalty.

    With offsets it has one, like every weight: what is learned then is a correction of logits that are known.

    - `features`: [subsets, rows, axes + 1];
    - `moments`: sums of features times labels as zeros and ones, [subsets, problems, outputs, axes + 1]: labels have no
      other part in the gradient;
    - `inverse_penalties`: C, [subsets, problems, 1, 1];
    - `counts`: units of each subset, [subsets, 1, 1, 1], or the sum of their weights, [subsets, 1 or problems, 1, 1];
    - `is_penalized`: 1.0 for each of the axes and 0.0 for the bias, [axes + 1];
    - `unit_weights`: what each unit counts in the sum, [subsets, 1 or problems, 1, rows]; moments have it already;
    - `offsets`: logits that those of the weights are added to, [subsets, problems, outputs, rows], if there are any.
    """

    features: Tensor
    moments: Tensor
    inverse_penalties: Tensor
    counts: Tensor
    is_penalized: Tensor
    unit_weights: Tensor | None = None
    offsets: Tensor | None = None

    @classmethod
    def of(
        cls,
        features: Tensor,
        moments: Tensor,
        inverse_penalties: Tensor,
        counts: Tensor,
        unit_weights: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> "Problems":
        """With inverse penalties [subsets, problems] and counts [subsets, 1 or problems]."""
        is_penalized = torch.ones_like(features[0, 0])
        if offsets is None:
            is_penalized[-1] = 0.0
        inverse_penalties, counts = inverse_penalties[:, :, None, None], counts[:, :, None, None]
        return cls(features, moments, inverse_penalties, counts, is_penalized, unit_weights, offsets)

    @property
    def is_exclusive(self) -> bool:
        """Whether the outputs of a problem are classes, of which a unit has one."""
        return self.moments.shape[2] > 1

    def take(self, indices: Tensor) -> "Problems":
        """Some of the problems."""
        moments, inverse_penalties = _take(indices, self.moments, self.inverse_penalties)
        counts, unit_weights, offsets = self.counts, self.unit_weights, self.offsets
        if unit_weights is not None and unit_weights.shape[1] > 1:  # other ones for each problem
            counts, unit_weights = _take(indices, counts, unit_weights)
        if offsets is not None:
            (offsets,) = _take(indices, offsets)
        return replace(
            self,
            moments=moments,
            inverse_penalties=inverse_penalties,
            counts=counts,
            unit_weights=unit_weights,
            offsets=offsets,
        )

    def start(self) -> Tensor:
        """No weights, and biases that give every label its frequency; with offsets no biases either."""
        weights = torch.zeros_like(self.moments)
        if self.offsets is not None:
            return weights
        frequencies = self.moments[..., -1:] / self.counts  # [subsets, problems, outputs, 1]
        if self.is_exclusive:
            weights[..., -1:] = frequencies.log().clamp(min=ABSENT_START)
        else:
            weights[..., -1:] = frequencies.logit().clamp(-MAX_LOGIT, MAX_LOGIT)
        return weights

    def logits(self, weights: Tensor) -> Tensor:
        """[subsets, problems, outputs, rows]"""
        logits = self.logit_change(weights)
        return logits if self.offsets is None else logits + self.offsets

    def logit_change(self, weights: Tensor) -> Tensor:
        """How logits change when these are added to the weights, [subsets, problems, outputs, rows]."""
        return (weights.flatten(1, 2) @ self.features.mT).unflatten(1, weights.shape[1:3])

    def sums(self, values: Tensor) -> Tensor:
        """Values times features, summed over the rows and times C, [subsets, problems, outputs, axes + 1]."""
        values = self.weighted(values)
        sums = (values.flatten(1, 2) @ self.features).unflatten(1, values.shape[1:3])
        return self.inverse_penalties * sums

    def weighted(self, values: Tensor) -> Tensor:
        """Values of the units, [subsets, problems, outputs, rows], as often as each of them counts."""
        return values if self.unit_weights is None else values * self.unit_weights

    def probabilities(self, logits: Tensor) -> Tensor:
        """[subsets, problems, outputs, rows]"""
        if self.is_exclusive:
            return logits.softmax(2)
        return logits.sigmoid()

    def derivative(self, probabilities: Tensor, logit_changes: Tensor) -> Tensor:
        """How probabilities change with the logits, [subsets, problems, outputs, rows]."""
        if self.is_exclusive:
            return probabilities * (logit_changes - (probabilities * logit_changes).sum(2, keepdim=True))
        return probabilities * (1.0 - probabilities) * logit_changes

    def gradient(self, weights: Tensor, probabilities: Tensor) -> Tensor:
        """Of the value, by weights and bias."""
        errors = self.sums(probabilities) - self.inverse_penalties * self.moments
        return errors + self.is_penalized * weights


def minimize(problems: Problems, tolerance: float) -> Tensor:
    """Weights and biases, [subsets, problems, outputs, axes + 1], of the least values.

    A problem is solved when no entry of the mean loss's gradient is above `tolerance` in any of the subsets.
    """
    weights = problems.start()
    solutions = weights.clone()
    indices = torch.arange(weights.shape[1], device=weights.device)  # of the problems that are not solved yet
    for _ in range(MAX_STEPS):
        # 1. The gradient, and which problems it says are solved.
        logits = problems.logits(weights)
        probabilities = problems.probabilities(logits)
        gradient = problems.gradient(weights, probabilities)
        limits = tolerance * problems.inverse_penalties * problems.counts
        is_solved = gradient.abs().amax((2, 3), keepdim=True) <= limits
        is_open = ~is_solved.all(0)[:, 0, 0]  # [problems]
        if not is_open.all():
            solutions[:, indices] = weights
            unsolved = is_open.nonzero()[:, 0]
            if not len(unsolved):
                return solutions
            indices, problems = indices[unsolved], problems.take(unsolved)
            weights, logits, probabilities, gradient, is_solved = _take(
                unsolved, weights, logits, probabilities, gradient, is_solved
            )
        # 2. The Newton step, as long as the value falls.
        step, logit_step = newton_step(problems, gradient, probabilities, is_solved)
        weights = weights + step_length(problems, weights, logits, step, logit_step) * step
    solutions[:, indices] = weights
    return solutions


def step_length(problems: Problems, weights: Tensor, logits: Tensor, step: Tensor, logit_step: Tensor) -> Tensor:
    """1, halved until the value no longer rises at the end of the step, [subsets, problems, 1, 1].

    Values are convex, and their derivatives along a step keep their precision where differences of values drown in
    rounding errors.
    """
    length = torch.ones_like(problems.inverse_penalties)
    penalized_step = problems.is_penalized * step
    constant = _dot(weights, penalized_step) - problems.inverse_penalties * _dot(problems.moments, step)
    quadratic = _dot(step, penalized_step)

    def rise(length: Tensor) -> Tensor:
        probabilities = problems.probabilities(logits + length * logit_step)
        errors = _dot(problems.weighted(probabilities), logit_step)
        return problems.inverse_penalties * errors + constant + length * quadratic

    limit = OVERSHOT * rise(torch.zeros_like(length)).abs()
    for _ in range(MAX_STEPS):
        is_too_long = rise(length) > limit
        if not is_too_long.any():
            break
        length = torch.where(is_too_long, length / 2.0, length)
    return length


def newton_step(
    problems: Problems, gradient: Tensor, probabilities: Tensor, is_solved: Tensor
) -> tuple[Tensor, Tensor]:
    """Minus the inverse Hessian times the gradient, to the precision that a Newton step can use, and its logits.

    By conjugate gradients. A problem stands still when its step is precise enough, and leaves when it is so in all
    subsets.
    """
    preconditioner = Preconditioner.of(problems, probabilities)
    steps, logit_steps = torch.zeros_like(gradient), torch.zeros_like(probabilities)
    step, logit_step = steps, logit_steps
    indices = torch.arange(gradient.shape[1], device=gradient.device)
    residual = -gradient
    direction = preconditioner(residual)
    product = _dot(residual, direction)
    enough = (FORCING**2 * product).masked_fill(is_solved, torch.inf)
    tiny = torch.finfo(product.dtype).tiny
    check_every = CHECK_EVERY if gradient.is_cuda else 1
    for iteration in range(1, MAX_STEPS + 1):
        # The Hessian times the direction: through the logits, the probabilities, and back to the weights.
        change = problems.logit_change(direction)
        hessian_product = problems.sums(problems.derivative(probabilities, change)) + problems.is_penalized * direction
        curvature = _dot(direction, hessian_product)
        # Curvatures are positive; one that is not is rounding, and the step is as precise as it can get.
        enough = enough.masked_fill(curvature <= 0.0, torch.inf)
        length = (product / curvature).masked_fill(product <= enough, 0.0)
        step = step + length * direction
        logit_step = logit_step + length * change
        residual = residual - length * hessian_product
        scaled = preconditioner(residual)
        previous, product = product, _dot(residual, scaled)
        direction = scaled + product / previous.clamp(min=tiny) * direction
        if iteration % check_every:
            continue
        is_open = (product > enough).any(0)[:, 0, 0]  # [problems]
        if not is_open.all():
            steps[:, indices], logit_steps[:, indices] = step, logit_step
            unsolved = is_open.nonzero()[:, 0]
            if not len(unsolved):
                return steps, logit_steps
            indices, problems, preconditioner = (
                indices[unsolved],
                problems.take(unsolved),
                preconditioner.take(unsolved),
            )
            probabilities, step, logit_step, residual, direction, product, enough = _take(
                unsolved, probabilities, step, logit_step, residual, direction, product, enough
            )
    steps[:, indices], logit_steps[:, indices] = step, logit_step
    return steps, logit_steps


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """The inverse of an estimate of the Hessian, which is exact where all units have the same probabilities.

    The Hessian is `C * sum over units of (x x') (x) (diag(p) - p p') + penalty`; the estimate puts the mean of the
    second factor for that of each unit. Along the principal axes of both factors it is diagonal.

    - `vectors`: principal axes of the outputs as columns, [subsets, problems, outputs, outputs];
    - `diagonal`: along those, [subsets, problems, outputs, axes + 1].
    """

    vectors: Tensor
    diagonal: Tensor

    @classmethod
    def of(cls, problems: Problems, probabilities: Tensor) -> "Preconditioner":
        """At these probabilities."""
        if problems.is_exclusive:
            products = probabilities @ probabilities.mT / probabilities.shape[3]
            spread = _without_mean(torch.diag_embed(probabilities.mean(3)) - products)
            variances, vectors = (part.to(products) for part in torch.linalg.eigh(spread))
        else:
            variances = (probabilities * (1.0 - probabilities)).mean(3)
            vectors = torch.ones_like(variances)[..., None]
        variances = variances.clamp(min=0.0)[..., None]  # [subsets, problems, outputs, 1]
        lengths = problems.features.square().sum(1)[:, None, None]  # [subsets, 1, 1, axes + 1]
        diagonal = problems.inverse_penalties * variances * lengths + problems.is_penalized
        # Biases have no penalty: nothing holds logits that all rise together, and what is not zero there is rounding.
        is_free = variances <= NO_VARIANCE * variances.amax(2, keepdim=True)
        diagonal[..., -1:].masked_fill_(is_free, torch.inf)
        return cls(vectors, diagonal)

    def take(self, indices: Tensor) -> "Preconditioner":
        """For some of the problems."""
        return Preconditioner(*_take(indices, self.vectors, self.diagonal))

    def __call__(self, residual: Tensor) -> Tensor:
        if residual.shape[2] == 1:
            return residual / self.diagonal
        return self.vectors @ (self.vectors.mT @ residual / self.diagonal)


def _without_mean(matrices: Tensor) -> Tensor:
    """Without the part along a vector of ones, [.., outputs, outputs], in double precision.

    Probabilities sum to 1, so that nothing varies along it but rounding errors. Where all probabilities are almost 0 or
    1 these are as large as the variances.
    """
    matrices = matrices.double()
    matrices = matrices - matrices.mean(-1, keepdim=True)
    return matrices - matrices.mean(-2, keepdim=True)


def _dot(first: Tensor, second: Tensor) -> Tensor:
    """Products of two tensors, summed for each problem, [subsets, problems, 1, 1]."""
    return (first * second).sum((2, 3), keepdim=True)


def _take(indices: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Some of the problems."""
    return [tensor.index_select(1, indices) for tensor in tensors]
