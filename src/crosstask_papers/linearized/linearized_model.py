"""A model that is linear in its parameters around a base, fitted to any choice of tasks. Arrays in, arrays out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.data.task import Kind
from crosstask.models.losses import IGNORED, in_full

MAX_STEPS = 100
"""Of Newton's method; some five are usual."""


def margins(kind: Kind, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """One number per unit that its loss is known from, and true where a unit counts; both [batch, units].

    A unit is a word for tagging, a label for multilabel, else the example. With classes the number is
    `log p - log(1 - p)` of the right one, whose logistic loss `log(1 + exp(-margin))` is the cross-entropy `-log p`;
    with two classes it is the difference of their logits. For regression it is the prediction.

    >>> values, _ = margins("classification", torch.tensor([[2.0, 0.5]]), torch.tensor([0]))
    >>> values.item()
    1.5
    """
    logits = in_full(logits)
    if kind == "regression":
        values = logits.reshape(len(labels), 1)
        return values, torch.ones_like(values, dtype=torch.bool)
    if kind == "multilabel":
        return torch.where(labels > 0, logits, -logits), torch.ones_like(logits, dtype=torch.bool)
    if kind != "tagging":
        logits, labels = logits.unsqueeze(1), labels.unsqueeze(1)
    right = F.one_hot(labels.clamp(min=0), logits.shape[-1]).bool()
    others = logits.masked_fill(right, float("-inf")).logsumexp(-1)
    return logits.masked_fill(~right, 0.0).sum(-1) - others, labels != IGNORED


@dataclass(frozen=True, eq=False)
class LinearUnits:
    """Units of a task whose outputs are linear in the change of the parameters: `values + shared @ w + own @ v`.

    - `values`: margins, or predictions, where nothing has changed yet, [units];
    - `shared`, `own`: gradients with respect to the shared and to the task's own parameters, [units, d];
    - `labels`: for regression the numbers to predict, else zeros: margins depend on the labels already;
    - `examples`: the example that each unit is part of, [units].
    """

    kind: Kind
    values: np.ndarray
    shared: np.ndarray
    own: np.ndarray
    labels: np.ndarray
    examples: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def outputs(self, shared: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Margins, or predictions, after these changes of the parameters."""
        return self.values + self.shared @ shared + self.own @ own

    def losses(self, outputs: np.ndarray) -> np.ndarray:
        """The loss of each unit: `log(1 + exp(-margin))`, or the squared error."""
        if self.kind == "regression":
            return (outputs - self.labels) ** 2
        return np.logaddexp(0.0, -outputs)

    def derivatives(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivatives of the losses by the outputs."""
        if self.kind == "regression":
            return 2.0 * (outputs - self.labels), np.full(len(outputs), 2.0)
        wrong = 0.5 * (1.0 - np.tanh(0.5 * outputs))  # 1 / (1 + exp(margin)), without overflow
        return -wrong, wrong * (1.0 - wrong)


@dataclass(frozen=True, eq=False)
class Change:
    """How far the parameters have moved from the base: shared ones, and the own ones of each task."""

    shared: np.ndarray
    own: tuple[np.ndarray, ...]


def fit(tasks: Sequence[LinearUnits], ridge: float, *, start: Change | None = None, tolerance: float = 1e-7) -> Change:
    """The change of the parameters that minimizes the tasks' mean losses together, with a penalty for its length.

        sum_t mean loss_t(values + shared @ w + own_t @ v_t)  +  ridge / 2 * (|w|^2 + sum_t |v_t|^2)

    The problem is convex and solved by Newton's method. The solver of `crosstask.probing.linear_models` does not fit:
    it has neither an offset per unit nor weights that some tasks share and others do not.

    Args:
        tasks: every task counts the same, whatever its size.
        ridge: the penalty; it stands for how long training goes on, from none (large) to the end (small).
        start: where to begin, for the first of these tasks; the others' own parameters begin at the base.
        tolerance: on the gradient.
    """
    width = tasks[0].shared.shape[1]
    ends = np.cumsum([width, *(task.own.shape[1] for task in tasks)])
    # The parameters that each task reads: the shared ones, then its own.
    columns = [np.r_[:width, first:last] for first, last in pairwise(ends)]
    gradients = [np.concatenate([task.shared, task.own], axis=1) for task in tasks]
    change = np.zeros(int(ends[-1]))
    if start is not None:
        change[:width] = start.shared
        for i, own in enumerate(start.own):
            change[ends[i] : ends[i + 1]] = own

    def objective(change: np.ndarray) -> float:
        total = 0.5 * ridge * change @ change
        for task, rows, at in zip(tasks, gradients, columns, strict=True):
            total += task.losses(task.values + rows @ change[at]).mean()
        return float(total)

    value = objective(change)
    for _ in range(MAX_STEPS):
        gradient, hessian = ridge * change, ridge * np.eye(len(change))
        for task, rows, at in zip(tasks, gradients, columns, strict=True):
            first, second = task.derivatives(task.values + rows @ change[at])
            gradient[at] += rows.T @ first / len(task)
            hessian[np.ix_(at, at)] += rows.T @ (rows * (second / len(task))[:, None])
        if np.abs(gradient).max(initial=0.0) <= tolerance:
            break
        step = -np.linalg.solve(hessian, gradient)
        # Backtracking: half the step until it lowers the objective enough (Armijo).
        length, descent = 1.0, float(step @ gradient)
        new_value = objective(change + step)
        while new_value > value + 1e-4 * length * descent and length > 1e-6:
            length /= 2.0
            new_value = objective(change + length * step)
        if new_value >= value:
            break  # no step that rounding errors leave room for
        change, value = change + length * step, new_value
    return Change(change[:width], tuple(change[first:last] for first, last in pairwise(ends)))
