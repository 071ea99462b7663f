"""Linear models with an L2 penalty, fitted by a solver and chosen by cross-validation. Arrays in, arrays out.

All folds and penalties are one batch for the solver (`newton`), on the device of the features;
`benchmarks/linear_solver.py` measures it beside scikit-learn's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import Kind
from crosstask.probing.designs import Designs
from crosstask.probing.regressions import SINGLE_PRECISION, binary_regressions, ridge_regression, softmax_regression

NUM_FOLDS = 5
UNITS_TO_AVERAGE = 100
"""Fewer held-out units than this, and cross-validation is repeated with other folds."""
MAX_REPEATS = 3
MAX_NUMBERS = 2**24
"""Numbers of the largest matrices that are in memory at once, unless one alone has more."""
MIN_PRODUCTS_OF_DEVICE = 10**7
"""Products in an iteration of the solver below which another device than the CPU does not pay."""
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
    - `examples`: the example that each unit is part of, so that one sentence never stands on both sides of a fold; of
      several examples with the same input, the first;
    - `device`: where models are solved;
    - `class_weights`: what each class counts in the loss, [classes], or a label that is absent and one that is present,
      [2, labels]; None where all count the same.
    - `offsets`: logits that a model's are added to, [units, outputs], where it corrects some that are known; what it is
      not told by labels then stays as it is, and its bias has a penalty too.
    """

    kind: Kind
    num_outputs: int
    features: np.ndarray
    labels: np.ndarray
    examples: np.ndarray
    device: str = "cpu"
    class_weights: np.ndarray | None = None
    offsets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> "Units":
        """The units at these positions, by index or by truth value."""
        return self.of(self.features[positions], positions)

    def of(self, features: np.ndarray, positions: np.ndarray | slice = slice(None)) -> "Units":
        """The same units, or those at these positions, with other features."""
        offsets = self.offsets if self.offsets is None else self.offsets[positions]
        labels, examples = self.labels[positions], self.examples[positions]
        return replace(self, features=features, labels=labels, examples=examples, offsets=offsets)

    def outputs(self, model: LinearModel) -> np.ndarray:
        """What a model says of the units, [units, outputs]."""
        outputs = model(self.features)
        return outputs if self.offsets is None else outputs + self.offsets

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
        inverse_penalties: values of C.
        emphasis: factors of the standardized features, [width]: one with a larger factor costs less penalty, one with
            zero has no part.
        tolerance: of the solver, on the gradient; from `SINGLE_PRECISION` on it works in single precision.
    """
    return fit_subsets(units, [np.arange(len(units))], inverse_penalties, emphasis, tolerance=tolerance)[0]


def fit_subsets(
    units: Units,
    subsets: Sequence[np.ndarray],
    inverse_penalties: Penalties,
    emphasis: np.ndarray | None = None,
    *,
    tolerance: float = SINGLE_PRECISION,
) -> list[list[LinearModel]]:
    """The models of `fit` for each of several subsets of the units, by their positions: all are solved together."""
    if not len(subsets):
        return []
    device = _device(units, subsets, len(inverse_penalties))
    if emphasis is None:
        emphasis = np.ones(units.features.shape[1])
    columns = np.flatnonzero(emphasis)  # features that have a part
    features = torch.from_numpy(units.features[:, columns]).to(device, torch.float64)
    factors = torch.from_numpy(emphasis[columns]).to(device, torch.float64)
    # As many at a time as memory allows.
    num_rows = max(len(positions) for positions in subsets)
    size = num_rows * max(len(columns), units.num_outputs * len(inverse_penalties))
    at_a_time = max(1, MAX_NUMBERS // max(1, size))
    models = []
    for start in range(0, len(subsets), at_a_time):
        designs = Designs.of(features, subsets[start : start + at_a_time], factors)
        weights, biases = designs.models(_solve(designs, units, inverse_penalties, tolerance))
        complete = np.zeros((*weights.shape[:3], units.features.shape[1]))  # [subsets, penalties, outputs, width]
        complete[..., columns] = weights.cpu().numpy()
        for subset_weights, subset_biases in zip(complete, biases.cpu().numpy(), strict=True):
            models.append([LinearModel(*model) for model in zip(subset_weights, subset_biases, strict=True)])
    return models


def _device(units: Units, subsets: Sequence[np.ndarray], num_penalties: int) -> torch.device:
    """Where to solve: a small problem is solved on the CPU before a device has started to work."""
    num_products = sum(map(len, subsets)) * units.features.shape[1] * units.num_outputs * num_penalties
    if num_products < MIN_PRODUCTS_OF_DEVICE:
        return torch.device("cpu")
    return torch.device(units.device)


def _solve(designs: Designs, units: Units, inverse_penalties: Penalties, tolerance: float) -> Tensor:
    """Weights and biases along the axes of the designs, [subsets, penalties, outputs, axes + 1]."""
    device = designs.features.device
    labels = torch.from_numpy(units.labels).to(device)[designs.rows]  # [subsets, rows], or [subsets, rows, labels]
    penalties = torch.as_tensor(np.asarray(inverse_penalties), dtype=torch.float64, device=device)
    if units.kind == "regression":
        return ridge_regression(designs, labels.double(), penalties)
    weights = offsets = None
    if units.class_weights is not None:
        weights = torch.from_numpy(unit_weights(units)).to(device)[designs.rows]  # as `labels`
    if units.offsets is not None:
        offsets = torch.from_numpy(units.offsets).to(device, torch.float64)[designs.rows]  # [subsets, rows, outputs]
    if units.kind == "multilabel":
        return binary_regressions(designs, labels.double(), penalties, tolerance, weights, offsets)
    if units.num_outputs == 2:
        # Two classes share one vector of weights, half of it each.
        columns = None if weights is None else weights[:, :, None]
        lead = None if offsets is None else offsets[..., 1:] - offsets[..., :1]
        halves = binary_regressions(designs, labels[:, :, None].double(), penalties, tolerance, columns, lead) / 2.0
        return torch.cat([-halves, halves], 2)
    one_hot = nn.functional.one_hot(labels, units.num_outputs).double()
    return softmax_regression(designs, one_hot, penalties, tolerance, weights, offsets)


def unit_weights(units: Units) -> np.ndarray:
    """What each unit counts in the loss by its class, [units]; for multilabel by label, [units, labels]."""
    assert units.class_weights is not None
    if units.kind == "multilabel":
        return np.where(units.labels > 0, units.class_weights[1], units.class_weights[0])
    return units.class_weights[units.labels]


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
    folds = list(repeated_folds(units, seed))
    models = fit_subsets(units, [fold.training for fold in folds], inverse_penalties, emphasis)
    for fold, fold_models in zip(folds, models, strict=True):
        held_out = units.take(fold.held_out)
        counts = _is_learnable(held_out, units.take(fold.training))
        for i, model in enumerate(fold_models):
            logits = held_out.outputs(model)
            unit_loss = unit_losses(held_out, logits)
            if held_out.class_weights is not None:
                unit_loss = unit_loss * unit_weights(held_out)
            losses[i].append(unit_loss[counts])
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


def held_out_logits(
    units: Units, inverse_penalty: float, emphasis: np.ndarray | None = None, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of models with one C for units that they were not fitted on, and the positions of these units.

    A unit whose fold's model could not know its class is left out. Each unit is held out once.
    """
    if units.is_constant or len(np.unique(units.examples)) < 2:
        return np.zeros((0, units.num_outputs)), np.zeros(0, dtype=np.int64)
    numbers = fold_numbers(units, np.random.default_rng([seed, 0]))
    folds = [Fold(np.flatnonzero(numbers != n), np.flatnonzero(numbers == n)) for n in range(int(numbers.max()) + 1)]
    models = fit_subsets(units, [fold.training for fold in folds], [inverse_penalty], emphasis)
    logits, positions = [], []
    for fold, (model,) in zip(folds, models, strict=True):
        held_out = fold.held_out
        if units.is_exclusive:
            held_out = held_out[_is_learnable(units.take(held_out), units.take(fold.training))]
        logits.append(units.take(held_out).outputs(model))
        positions.append(held_out)
    return np.concatenate(logits), np.concatenate(positions)


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of the units that models are fitted on, and of those that judge them."""

    training: np.ndarray
    held_out: np.ndarray


def repeated_folds(units: Units, seed: int) -> Iterator[Fold]:
    """The folds of a cross-validation, which few units go through several times."""
    for repeat in range(min(MAX_REPEATS, -(-UNITS_TO_AVERAGE // len(units)))):
        numbers = fold_numbers(units, np.random.default_rng([seed, repeat]))
        for number in range(int(numbers.max()) + 1):
            yield Fold(np.flatnonzero(numbers != number), np.flatnonzero(numbers == number))


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
    """Where a held-out loss is informative: training units have that label (multilabel: some have it, some not).

    A model that corrects known logits says something of every label.
    """
    if training.kind == "regression" or training.offsets is not None:
        return np.ones(held_out.labels.shape, dtype=bool)
    if training.kind == "multilabel":
        return np.broadcast_to(training.labels.any(axis=0) & ~training.labels.all(axis=0), held_out.labels.shape)
    return np.isin(held_out.labels, training.labels)


def _mean(folds: Sequence[np.ndarray]) -> float:
    values = np.concatenate(folds)
    return float(values.mean()) if len(values) else float("nan")
