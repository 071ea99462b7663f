"""Linear models with an L2 penalty, fitted by a solver and chosen by cross-validation. Arrays in, arrays out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crosstask.data.examples import Kind

ABSENT = -20.0
"""Logit of a label that never occurs in training: all but impossible, and yet of finite loss."""
NUM_FOLDS = 5
UNITS_TO_AVERAGE = 100
"""Fewer held-out units than this, and cross-validation is repeated with other folds."""
MOST_REPEATS = 3
MOST_STEPS = 100
"""Of Newton's method, and of conjugate gradients within each; some ten are usual."""


Strengths = Sequence[float] | np.ndarray


@dataclass(frozen=True, eq=False)
class LinearModel:
    """`features @ weights.T + bias`: logits, or numbers; `weights` is [outputs, width]."""

    weights: np.ndarray
    bias: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.weights.T + self.bias


@dataclass(frozen=True, eq=False)
class Units:
    """What a model is fitted on: an example each or, for tagging, a word each.

    - `features`: [units, width];
    - `labels`: indices [units], rows of zeros and ones [units, labels], or standardised numbers [units];
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
        """The units at these positions, by number or by truth value."""
        return self.of(self.features[positions], positions)

    def of(self, features: np.ndarray, positions: np.ndarray | slice = slice(None)) -> "Units":
        """The same units, or those at these positions, with other features."""
        labels, examples = self.labels[positions], self.examples[positions]
        return Units(self.kind, self.num_outputs, features, labels, examples)

    def sample(self, most: int, generator: np.random.Generator) -> "Units":
        """At most about `most` units, whole examples at random; all where there are no more."""
        if len(self) <= most:
            return self
        chosen = generator.permutation(np.unique(self.examples))
        counts = np.bincount(self.examples, minlength=int(chosen.max()) + 1)[chosen]
        kept = chosen[: max(1, int(np.searchsorted(np.cumsum(counts), most, side="right")))]
        return self.take(np.flatnonzero(np.isin(self.examples, kept)))

    @property
    def is_exclusive(self) -> bool:
        """Whether every unit has one of several classes."""
        return self.kind in ("classification", "pair", "tagging")

    @property
    def is_constant(self) -> bool:
        """Whether all labels are the same, so that there is nothing to learn."""
        return len(self) < 2 or bool((self.labels == self.labels[0]).all())


def strengths_for(width: int) -> np.ndarray:
    """The grid of strengths C, from heavy to light penalty.

    The sum of `width` standardised features, each with the same prior, has a variance that grows with the width, so the
    grid is one of `C * width`.
    """
    return np.logspace(-2, 2, 7) / width


def fit(
    units: Units, strengths: Strengths, emphasis: np.ndarray | None = None, *, tolerance: float = 1e-8
) -> list[LinearModel]:
    """A model for each strength C: the minimiser of `C * sum of losses + |weights|^2 / 2` over standardised features.

    The loss is cross-entropy for classes (binary for each label of multilabel) and half the squared error for numbers;
    the bias has no penalty. Standardisation is folded into the weights, so the models take features as they are.

    Args:
        units: features and labels.
        strengths: values of C; from small to large each fit starts where the one before ended.
        emphasis: factors of the standardised features, [width]: one with a larger factor costs less penalty, one with
            zero has no part.
        tolerance: of the solver, on the gradient.
    """
    mean, scale = _mean_and_scale(units.features)
    factor = (np.ones_like(scale) if emphasis is None else emphasis) / scale
    used = np.flatnonzero(factor)
    turned, basis = _turned((units.features[:, used] - mean[used]) * factor[used])
    models = []
    for weights, bias in _solved(units.of(turned), strengths, tolerance):
        unfolded = np.zeros((len(weights), len(factor)))
        unfolded[:, used] = weights @ basis * factor[used]
        models.append(LinearModel(unfolded, bias - unfolded @ mean))
    return models


def _mean_and_scale(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A constant keeps a deviation of rounding errors, which must not be blown up.
    scale[scale <= 1e-6 * np.abs(mean)] = 1.0
    scale[scale == 0.0] = 1.0
    return mean, scale


def _turned(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features along their principal axes, and those axes as rows.

    A turn changes neither the losses nor the penalty, and the minimiser lies in the span of the rows: there are as many
    axes as rows where those are fewer than the features. Along these axes the solver's problem is almost diagonal.
    """
    if len(features) < features.shape[1]:
        left, sizes, axes = np.linalg.svd(features, full_matrices=False)
        return left * sizes, axes
    _, columns = np.linalg.eigh(features.T @ features)
    return features @ columns, columns.T


def _solved(units: Units, strengths: Strengths, tolerance: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights and bias for each strength, on features that are centred and along their principal axes."""
    if units.kind == "regression":
        mean = units.labels.mean()
        along, sizes = units.features.T @ (units.labels - mean), (units.features**2).sum(axis=0)
        for strength in strengths:
            yield (along / (sizes + 1.0 / strength))[None], np.array([mean])
    elif units.kind == "multilabel":
        columns = [
            _classes(units.features, column.astype(np.int64), 2, strengths, tolerance) for column in units.labels.T
        ]
        for parts in zip(*columns, strict=True):
            yield (
                np.stack([weights[1] - weights[0] for weights, _ in parts]),
                np.stack([bias[1] - bias[0] for _, bias in parts]),
            )
    else:
        yield from _classes(units.features, units.labels, units.num_outputs, strengths, tolerance)


def _classes(
    features: np.ndarray, labels: np.ndarray, num_outputs: int, strengths: Strengths, tolerance: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Logistic regression with the classes that occur; the others are all but impossible."""
    present, places = np.unique(labels, return_inverse=True)
    solver = _Softmax(features, places, len(present))
    for strength in strengths:
        weights, bias = np.zeros((num_outputs, features.shape[1])), np.full(num_outputs, ABSENT)
        bias[present] = 0.0
        if len(present) > 1:
            # Two classes share one vector of weights, half of it each: so half the penalty of one vector as a whole.
            solver.minimise(strength / 2.0 if len(present) == 2 else strength, tolerance)
            weights[present], bias[present] = solver.weights.T, solver.bias
        yield weights, bias


class _Softmax:
    """Multinomial logistic regression by Newton's method; steps come from conjugate gradients.

    It minimises `C * sum of cross-entropies + |weights|^2 / 2`; `weights` is [width, classes].
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
        self.features = features
        self.sizes = (features**2).sum(axis=0)[:, None]
        self.truth = np.eye(num_classes)[labels]
        self.weights = np.zeros((features.shape[1], num_classes))
        self.bias = np.zeros(num_classes)

    def minimise(self, strength: float, tolerance: float) -> None:
        """Start where the last call ended; stop when no entry of the mean loss's gradient is above `tolerance`."""
        value = self._value(self.weights, self.bias, strength)
        for _ in range(MOST_STEPS):
            chances = self._chances()
            errors = chances - self.truth
            slope = strength * self.features.T @ errors + self.weights, strength * errors.sum(axis=0)
            largest = max(np.abs(slope[0]).max(initial=0.0), np.abs(slope[1]).max())
            if largest <= tolerance * strength * len(errors):
                return
            step = self._newton_step(slope, chances, strength)
            descent = (step[0] * slope[0]).sum() + (step[1] * slope[1]).sum()
            length = 1.0
            while length > 1e-6:
                moved = self.weights + length * step[0], self.bias + length * step[1]
                now = self._value(*moved, strength)
                if now <= value + 1e-4 * length * descent:
                    break
                length /= 2.0
            else:
                return  # no step that rounding errors leave room for
            (self.weights, self.bias), value = moved, now

    def _chances(self) -> np.ndarray:
        logits = self.features @ self.weights + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        return logits / logits.sum(axis=1, keepdims=True)

    def _value(self, weights: np.ndarray, bias: np.ndarray, strength: float) -> float:
        logits = self.features @ weights + bias
        most = logits.max(axis=1)
        losses = np.log(np.exp(logits - most[:, None]).sum(axis=1)) + most - (logits * self.truth).sum(axis=1)
        return float(strength * losses.sum() + 0.5 * (weights**2).sum())

    def _newton_step(
        self, slope: tuple[np.ndarray, np.ndarray], chances: np.ndarray, strength: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Minus the inverse Hessian times the slope, to the precision that a Newton step can use."""
        spread = (chances * (1.0 - chances)).mean(axis=0)
        diagonal = np.concatenate(
            [strength * self.sizes * spread + 1.0, strength * len(chances) * spread[None] + 1e-12]
        )
        residual = -np.concatenate([slope[0], slope[1][None]])
        step, first = np.zeros_like(residual), residual / diagonal
        direction, product = first, (residual * first).sum()
        enough = 1e-4 * product
        for _ in range(MOST_STEPS):
            along = self.features @ direction[:-1] + direction[-1]
            along = chances * (along - (chances * along).sum(axis=1, keepdims=True))
            curved = strength * np.concatenate([self.features.T @ along, along.sum(axis=0)[None]])
            curved[:-1] += direction[:-1]
            curvature = (direction * curved).sum()
            if curvature <= 0.0:
                break
            step += (product / curvature) * direction
            residual -= (product / curvature) * curved
            first = residual / diagonal
            previous, product = product, (residual * first).sum()
            if product <= enough:
                break
            direction = first + (product / previous) * direction
        return step[:-1], step[-1]


@dataclass(frozen=True)
class Held:
    """What cross-validation says: the mean loss and, for exclusive classes, the share that is right."""

    loss: float
    accuracy: float | None = None

    @property
    def measure(self) -> str:
        """What people are told: the accuracy where there is one."""
        return "loss" if self.accuracy is None else "accuracy"

    def facts(self) -> dict[str, float]:
        """As plain data."""
        return {"loss": self.loss} | ({} if self.accuracy is None else {"accuracy": self.accuracy})


def cross_validate(
    units: Units, strengths: Strengths, emphasis: np.ndarray | None = None, *, seed: int = 0
) -> list[Held]:
    """How well a model of each strength does on units that it was not fitted on.

    Folds are stratified by class and keep examples whole. A class that the other folds lack cannot be learned from them
    and does not count. The same seed gives the same folds, so that results for other features of these units are pairs.
    """
    losses: list[list[np.ndarray]] = [[] for _ in strengths]
    hits: list[list[np.ndarray]] = [[] for _ in strengths]
    for repeat in range(min(MOST_REPEATS, -(-UNITS_TO_AVERAGE // len(units)))):
        folds = fold_numbers(units, np.random.default_rng([seed, repeat]))
        for fold in range(int(folds.max()) + 1):
            kept, held = units.take(folds != fold), units.take(folds == fold)
            for place, model in enumerate(fit(kept, strengths, emphasis, tolerance=1e-4)):
                logits = model(held.features)
                counts = _can_be_known(held, kept)
                losses[place].append(unit_losses(held, logits)[counts])
                if held.is_exclusive:
                    hits[place].append((logits.argmax(axis=1) == held.labels)[counts])
    return [
        Held(_mean(found), _mean(right) if units.is_exclusive else None)
        for found, right in zip(losses, hits, strict=True)
    ]


def fold_numbers(units: Units, generator: np.random.Generator) -> np.ndarray:
    """The fold of each unit: examples are dealt out in turn, class after class, so that folds have the same mixture.

    No more folds than a usual class has examples: where a fold lacks a class, training on the others favours it, and
    the score falls below chance.
    """
    examples, first = np.unique(units.examples, return_index=True)
    order = generator.permutation(len(examples))
    most = len(examples)
    if units.kind in ("classification", "pair"):
        classes = units.labels[first]
        order = order[np.argsort(classes[order], kind="stable")]
        most = min(most, max(2, int(np.median(np.unique(classes, return_counts=True)[1]))))
    dealt = np.empty(len(examples), dtype=np.int64)
    dealt[order] = np.arange(len(examples)) % min(NUM_FOLDS, most)
    return dealt[np.searchsorted(examples, units.examples)]


def unit_losses(units: Units, logits: np.ndarray) -> np.ndarray:
    """Cross-entropy of each unit, binary ones of each label [units, labels] for multilabel, or squared errors."""
    if units.kind == "regression":
        return (logits[:, 0] - units.labels) ** 2
    if units.kind == "multilabel":
        return np.logaddexp(0.0, np.where(units.labels > 0, -logits, logits))
    chosen = np.take_along_axis(logits, units.labels[:, None], axis=1)[:, 0]
    return np.logaddexp.reduce(logits, axis=1) - chosen


def _can_be_known(held: Units, kept: Units) -> np.ndarray:
    """Where a held-out loss says something: the fold's training part has shown that label (multilabel: both ways)."""
    if kept.kind == "regression":
        return np.ones(len(held), dtype=bool)
    if kept.kind == "multilabel":
        return np.broadcast_to(kept.labels.any(axis=0) & ~kept.labels.all(axis=0), held.labels.shape)
    return np.isin(held.labels, kept.labels)


def _mean(parts: Sequence[np.ndarray]) -> float:
    values = np.concatenate(parts)
    return float(values.mean()) if len(values) else float("nan")
