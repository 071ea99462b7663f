"""Linear models with an L2 penalty, fitted by a solver and chosen by cross-validation. Arrays in, arrays out.

At equal accuracy, cross-validation over seven penalties takes 0.20 of the time of scikit-learn's LogisticRegression
with warm starts for 80 units of 2 classes, 0.10 for 500 of 77, 1.14 for 5,000 of 4 and 0.72 for 6,000 of 20, all of
width 384 (`benchmarks/linear_solver.py`): one rotation of the features to their principal axes serves all penalties and
makes Newton's systems almost diagonal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crosstask.data.examples import Kind

ABSENT_LOGIT = -20.0
"""Logit of a label that never occurs in training: all but impossible, and yet of finite loss."""
NUM_FOLDS = 5
UNITS_TO_AVERAGE = 100
"""Fewer held-out units than this, and cross-validation is repeated with other folds."""
MAX_REPEATS = 3
MAX_STEPS = 100
"""Of Newton's method, and of conjugate gradients within each step; some ten are usual."""
EXCLUSIVE_KINDS = ("classification", "pair", "tagging")
"""Kinds of task in which every unit has one of several classes."""

Penalties = Sequence[float] | np.ndarray
"""Values of C, the inverse penalty, as scikit-learn calls it."""


@dataclass(frozen=True, eq=False)
class LinearModel:
    """`features @ weights.T + bias`: logits, or numbers; `weights` is [outputs, width]."""

    weights: np.ndarray
    bias: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.weights.T + self.bias


@dataclass(frozen=True, eq=False)
class Units:
    """What a model is fitted on: a unit is an example or, for tagging, a word.

    - `features`: [units, width];
    - `labels`: indices [units], rows of zeros and ones [units, labels], or standardized numbers [units];
    - `examples`: the example that each unit is part of, so that one sentence never stands on both sides of a fold.
    """

    kind: Kind
    num_outputs: int
    features: np.ndarray
    labels: np.ndarray
    examples: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> "Units":
        """The units at these positions, by index or by truth value."""
        return self.of(self.features[positions], positions)

    def of(self, features: np.ndarray, positions: np.ndarray | slice = slice(None)) -> "Units":
        """The same units, or those at these positions, with other features."""
        labels, examples = self.labels[positions], self.examples[positions]
        return Units(self.kind, self.num_outputs, features, labels, examples)

    def sample(self, max_units: int, generator: np.random.Generator) -> "Units":
        """At most about `max_units` units, as complete examples at random; all where there are no more."""
        if len(self) <= max_units:
            return self
        order = generator.permutation(np.unique(self.examples))
        counts = np.bincount(self.examples, minlength=int(order.max()) + 1)[order]
        num_examples = int(np.searchsorted(np.cumsum(counts), max_units, side="right"))
        return self.take(np.flatnonzero(np.isin(self.examples, order[: max(1, num_examples)])))

    @property
    def is_exclusive(self) -> bool:
        """Whether every unit has one of several classes."""
        return self.kind in EXCLUSIVE_KINDS

    @property
    def is_constant(self) -> bool:
        """Whether all labels are the same, so that there is nothing to learn."""
        return len(self) < 2 or bool((self.labels == self.labels[0]).all())


def penalty_grid(width: int) -> np.ndarray:
    """The grid of inverse penalties C, from heavy to light penalty.

    The sum of `width` standardized features, each with the same prior, has a variance that grows with the width, so the
    grid is one of `C * width`.
    """
    return np.logspace(-2, 2, 7) / width


def fit(
    units: Units, inverse_penalties: Penalties, emphasis: np.ndarray | None = None, *, tolerance: float = 1e-8
) -> list[LinearModel]:
    """A model for each C: the minimizer of `C * sum of losses + |weights|^2 / 2` over standardized features.

    The loss is cross-entropy for classes (binary for each label of multilabel) and half the squared error for numbers;
    the bias has no penalty. Standardization is folded into the weights, so the models take features as they are.

    Args:
        units: features and labels.
        inverse_penalties: values of C; from small to large each fit starts where the one before ended.
        emphasis: factors of the standardized features, [width]: one with a larger factor costs less penalty, one with
            zero has no part.
        tolerance: of the solver, on the gradient.
    """
    mean, scale = _mean_and_scale(units.features)
    factors = (np.ones_like(scale) if emphasis is None else emphasis) / scale
    columns = np.flatnonzero(factors)  # features that have a part
    rotated, axes = _rotate((units.features[:, columns] - mean[columns]) * factors[columns])
    models = []
    for weights, bias in _solve(units.of(rotated), inverse_penalties, tolerance):
        # Back from the rotated, standardized features to the features as they are.
        unfolded = np.zeros((len(weights), len(factors)))  # [outputs, width]
        unfolded[:, columns] = weights @ axes * factors[columns]
        models.append(LinearModel(unfolded, bias - unfolded @ mean))
    return models


def _mean_and_scale(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A constant keeps a deviation of rounding errors, which must not be blown up.
    scale[scale <= 1e-6 * np.abs(mean)] = 1.0
    scale[scale == 0.0] = 1.0
    return mean, scale


def _rotate(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features along their principal axes, [units, axes], and those axes as rows, [axes, width].

    A rotation changes neither the losses nor the penalty, and the minimizer lies in the span of the rows: there are as
    many axes as rows where those are fewer than the features. Along these axes the solver's problem is almost diagonal.
    """
    if len(features) < features.shape[1]:
        left_vectors, singular_values, axes = np.linalg.svd(features, full_matrices=False)
        return left_vectors * singular_values, axes
    _, eigenvectors = np.linalg.eigh(features.T @ features)
    return features @ eigenvectors, eigenvectors.T


def _solve(units: Units, inverse_penalties: Penalties, tolerance: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights and bias for each C, on features that are centered and along their principal axes."""
    if units.kind == "regression":
        # Ridge regression: along principal axes every weight has a closed form of its own.
        mean = units.labels.mean()
        products = units.features.T @ (units.labels - mean)  # [width]
        variances = (units.features**2).sum(axis=0)  # [width]
        for inverse_penalty in inverse_penalties:
            yield (products / (variances + 1.0 / inverse_penalty))[None], np.array([mean])
    elif units.kind == "multilabel":
        columns = units.labels.T.astype(np.int64)  # [labels, units]
        solutions = [_solve_classes(units.features, column, 2, inverse_penalties, tolerance) for column in columns]
        # Two classes, "no" and "yes": the difference of their logits is that of the label.
        for by_label in zip(*solutions, strict=True):
            weights = np.stack([weights[1] - weights[0] for weights, _ in by_label])
            yield weights, np.stack([bias[1] - bias[0] for _, bias in by_label])
    else:
        yield from _solve_classes(units.features, units.labels, units.num_outputs, inverse_penalties, tolerance)


def _solve_classes(
    features: np.ndarray, labels: np.ndarray, num_outputs: int, inverse_penalties: Penalties, tolerance: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Logistic regression with the classes that occur; the others are all but impossible."""
    present, indices = np.unique(labels, return_inverse=True)
    solver = _SoftmaxRegression(features, indices, len(present))
    for inverse_penalty in inverse_penalties:
        weights, bias = np.zeros((num_outputs, features.shape[1])), np.full(num_outputs, ABSENT_LOGIT)
        bias[present] = 0.0
        if len(present) == 2:
            # Two classes share one vector of weights, half of it each: half of its penalty.
            inverse_penalty = inverse_penalty / 2.0
        if len(present) > 1:
            solver.minimize(inverse_penalty, tolerance)
            weights[present], bias[present] = solver.weights.T, solver.bias
        yield weights, bias


class _SoftmaxRegression:
    """Multinomial logistic regression by Newton's method; steps come from conjugate gradients.

    It minimizes `C * sum of cross-entropies + |weights|^2 / 2`; `weights` is [width, classes].
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
        self.features = features  # [units, width]
        self.variances = (features**2).sum(axis=0)[:, None]  # [width, 1]
        self.targets = np.eye(num_classes)[labels]  # [units, classes]
        self.weights = np.zeros((features.shape[1], num_classes))
        self.bias = np.zeros(num_classes)

    def minimize(self, inverse_penalty: float, tolerance: float) -> None:
        """Start where the last call ended; stop when no entry of the mean loss's gradient is above `tolerance`."""
        value = self._value(self.weights, self.bias, inverse_penalty)
        for _ in range(MAX_STEPS):
            # 1. The gradient, and whether it is small enough.
            probabilities = self._probabilities()
            errors = probabilities - self.targets
            gradient = inverse_penalty * self.features.T @ errors + self.weights, inverse_penalty * errors.sum(axis=0)
            largest = max(np.abs(gradient[0]).max(initial=0.0), np.abs(gradient[1]).max())
            if largest <= tolerance * inverse_penalty * len(errors):
                return
            # 2. The Newton step, halved until the value falls as far as the gradient promises (Armijo).
            step = self._newton_step(gradient, probabilities, inverse_penalty)
            descent = (step[0] * gradient[0]).sum() + (step[1] * gradient[1]).sum()
            length = 1.0
            while length > 1e-6:
                weights, bias = self.weights + length * step[0], self.bias + length * step[1]
                new_value = self._value(weights, bias, inverse_penalty)
                if new_value <= value + 1e-4 * length * descent:
                    break
                length /= 2.0
            else:
                return  # no step that rounding errors leave room for
            self.weights, self.bias, value = weights, bias, new_value

    def _probabilities(self) -> np.ndarray:
        """Of each class, [units, classes]."""
        logits = self.features @ self.weights + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        return logits / logits.sum(axis=1, keepdims=True)

    def _value(self, weights: np.ndarray, bias: np.ndarray, inverse_penalty: float) -> float:
        logits = self.features @ weights + bias
        largest = logits.max(axis=1)
        losses = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest - (logits * self.targets).sum(axis=1)
        return float(inverse_penalty * losses.sum() + 0.5 * (weights**2).sum())

    def _newton_step(
        self, gradient: tuple[np.ndarray, np.ndarray], probabilities: np.ndarray, inverse_penalty: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Minus the inverse Hessian times the gradient, to the precision that a Newton step can use.

        Conjugate gradients, preconditioned by an estimate of the Hessian's diagonal. Weights and bias are one array,
        [width + 1, classes], the bias in its last row.
        """
        spread = (probabilities * (1.0 - probabilities)).mean(axis=0)  # [classes]
        diagonal = np.concatenate(
            [
                inverse_penalty * self.variances * spread + 1.0,
                inverse_penalty * len(probabilities) * spread[None] + 1e-12,
            ]
        )
        residual = -np.concatenate([gradient[0], gradient[1][None]])
        step, scaled = np.zeros_like(residual), residual / diagonal
        direction, product = scaled, (residual * scaled).sum()
        enough = 1e-4 * product
        for _ in range(MAX_STEPS):
            # The Hessian times the direction: through the logits, the softmax, and back to the weights.
            change = self.features @ direction[:-1] + direction[-1]  # [units, classes]
            change = probabilities * (change - (probabilities * change).sum(axis=1, keepdims=True))
            hessian_product = inverse_penalty * np.concatenate([self.features.T @ change, change.sum(axis=0)[None]])
            hessian_product[:-1] += direction[:-1]
            curvature = (direction * hessian_product).sum()
            if curvature <= 0.0:
                break
            step += (product / curvature) * direction
            residual -= (product / curvature) * hessian_product
            scaled = residual / diagonal
            previous, product = product, (residual * scaled).sum()
            if product <= enough:
                break
            direction = scaled + (product / previous) * direction
        return step[:-1], step[-1]


@dataclass(frozen=True)
class CrossValidation:
    """Quality on units that models were not fitted on: the mean loss and, for exclusive classes, the accuracy."""

    loss: float
    accuracy: float | None = None

    @property
    def headline(self) -> tuple[str, float]:
        """Name and value of what people read first: the accuracy where there is one."""
        if self.accuracy is None:
            return "loss", self.loss
        return "accuracy", self.accuracy

    def facts(self) -> dict[str, float]:
        """As plain data."""
        facts = {"loss": self.loss}
        if self.accuracy is not None:
            facts["accuracy"] = self.accuracy
        return facts


def cross_validate(
    units: Units, inverse_penalties: Penalties, emphasis: np.ndarray | None = None, *, seed: int = 0
) -> list[CrossValidation]:
    """How well a model of each C does on units that it was not fitted on.

    Folds are stratified by class and keep examples together. A class that the other folds lack cannot be learned from
    them and does not count. The same seed gives the same folds, so that results for other features of these units are
    paired.
    """
    losses: list[list[np.ndarray]] = [[] for _ in inverse_penalties]
    hits: list[list[np.ndarray]] = [[] for _ in inverse_penalties]
    for repeat in range(min(MAX_REPEATS, -(-UNITS_TO_AVERAGE // len(units)))):
        folds = fold_numbers(units, np.random.default_rng([seed, repeat]))
        for fold in range(int(folds.max()) + 1):
            training, held_out = units.take(folds != fold), units.take(folds == fold)
            counts = _is_learnable(held_out, training)
            for i, model in enumerate(fit(training, inverse_penalties, emphasis, tolerance=1e-4)):
                logits = model(held_out.features)
                losses[i].append(unit_losses(held_out, logits)[counts])
                if held_out.is_exclusive:
                    hits[i].append((logits.argmax(axis=1) == held_out.labels)[counts])
    results = []
    for fold_losses, fold_hits in zip(losses, hits, strict=True):
        accuracy = _mean(fold_hits) if units.is_exclusive else None
        results.append(CrossValidation(_mean(fold_losses), accuracy))
    return results


def choose_penalty(
    units: Units, inverse_penalties: Penalties, emphasis: np.ndarray | None = None, *, seed: int = 0
) -> tuple[float, CrossValidation]:
    """The C of least cross-validated loss, and its result; the middle one where no loss is known."""
    if units.is_constant or len(np.unique(units.examples)) < 2:
        results = [CrossValidation(float("nan"))] * len(inverse_penalties)
    else:
        results = cross_validate(units, inverse_penalties, emphasis, seed=seed)
    losses = np.array([result.loss for result in results])
    best = len(losses) // 2
    if not np.isnan(losses).all():
        best = int(np.nanargmin(losses))
    return float(inverse_penalties[best]), results[best]


def fold_numbers(units: Units, generator: np.random.Generator) -> np.ndarray:
    """The fold of each unit: examples are dealt out in turn, class after class, so that folds have the same mixture.

    No more folds than a usual class has examples: where a fold lacks a class, training on the others favors it, and
    the score falls below chance.
    """
    examples, first = np.unique(units.examples, return_index=True)
    order = generator.permutation(len(examples))
    max_folds = len(examples)
    if units.kind in ("classification", "pair"):
        classes = units.labels[first]
        order = order[np.argsort(classes[order], kind="stable")]
        max_folds = min(max_folds, max(2, int(np.median(np.unique(classes, return_counts=True)[1]))))
    folds = np.empty(len(examples), dtype=np.int64)
    folds[order] = np.arange(len(examples)) % min(NUM_FOLDS, max_folds)
    return folds[np.searchsorted(examples, units.examples)]


def unit_losses(units: Units, logits: np.ndarray) -> np.ndarray:
    """Cross-entropy of each unit, binary ones of each label [units, labels] for multilabel, or squared errors."""
    if units.kind == "regression":
        return (logits[:, 0] - units.labels) ** 2
    if units.kind == "multilabel":
        return np.logaddexp(0.0, np.where(units.labels > 0, -logits, logits))
    label_logits = np.take_along_axis(logits, units.labels[:, None], axis=1)[:, 0]
    return np.logaddexp.reduce(logits, axis=1) - label_logits


def _is_learnable(held_out: Units, training: Units) -> np.ndarray:
    """Where a held-out loss is informative: training units have that label (multilabel: some have it, some not)."""
    if training.kind == "regression":
        return np.ones(len(held_out), dtype=bool)
    if training.kind == "multilabel":
        return np.broadcast_to(training.labels.any(axis=0) & ~training.labels.all(axis=0), held_out.labels.shape)
    return np.isin(held_out.labels, training.labels)


def _mean(folds: Sequence[np.ndarray]) -> float:
    values = np.concatenate(folds)
    return float(values.mean()) if len(values) else float("nan")
