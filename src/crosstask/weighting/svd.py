"""Weights from how much of each task's labels lies in the directions that the tasks have in common."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.papers import INFORMATION_TRANSFER, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import LossWeighting

ROWS = 8192
"""Examples that are widened to float64 at a time."""


def label_directions(features: Tensor, labels: Tensor, *, standardize: bool = False) -> Tensor:
    """`theta = X' Y`, [dimension, columns of Y], in float64: line 1 of Algorithm 2.

    Args:
        features: X, [examples, dimension].
        labels: one column, [examples], or several, [examples, columns]. Whole numbers in one column are classes and
            become a column per class; an example whose class is negative has no label and is left out.
        standardize: each column less its mean, all columns over one number that makes their variances add up to one,
            and the mean over examples instead of the sum. (With centred labels, centred features give the same.)

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> label_directions(X, torch.tensor([1.0, 2.0, 3.0])).tolist()
    [[4.0], [5.0]]
    """
    if not labels.is_floating_point() and labels.dim() == 1:
        features, labels = features[labels >= 0], labels[labels >= 0].long()
        labels = F.one_hot(labels).to(torch.float64) if len(labels) else torch.zeros(0, 1)
    columns = (labels if labels.dim() == 2 else labels[:, None]).to(features.device, torch.float64)
    if standardize and len(columns):
        columns = columns - columns.mean(0)
        variance = columns.square().sum(1).mean()
        # A task all of whose examples have one label says nothing; rounding must not blow its remains up.
        columns = columns / variance.sqrt() / len(columns) if variance > 1e-20 else torch.zeros_like(columns)
    total = torch.zeros(features.shape[1], columns.shape[1], dtype=torch.float64, device=features.device)
    for start in range(0, len(columns), ROWS):
        total += features[start : start + ROWS].double().T @ columns[start : start + ROWS]
    return total


def svd_weights(thetas: Tensor, rank: int) -> Tensor:
    """`alpha_i = || theta_i' U_r ||`, with U_r the first left singular vectors of all thetas: lines 2 and 3.

    Args:
        thetas: a column per task, [dimension, tasks].
        rank: r, from 1 to the number of tasks.

    >>> svd_weights(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]]), rank=1).tolist()
    [3.0, 4.0, 0.0]
    """
    if not 1 <= rank <= min(thetas.shape):
        raise CrossTaskError(f"the rank must be from 1 to {min(thetas.shape)}, found {rank}.")
    left, _, _ = torch.linalg.svd(thetas.double(), full_matrices=False)
    return (thetas.double().T @ left[:, :rank]).norm(dim=1)


class SVDWeighting(LossWeighting):
    """A task counts by how much of what its labels say lies in the main directions of all tasks' labels.

    Algorithm 2 of Wu, Zhang & Ré (2020): noise in labels points anywhere, what tasks have in common does not.

        theta_i = X' y_i ;    U_r D_r V_r' = SVD_r([theta_1, ..., theta_k]) ;    alpha_i = || theta_i' U_r ||

    - `X`: `features`, what the encoder makes of the examples before training, [examples, dimension];
    - `y_i`: `labels` of task i;
    - `alpha_i`: `weights[i]`, the factor of the loss in eq. 2; they stay through training;
    - `r`: `rank`.

    In the code: line 1 is `label_directions`, lines 2 and 3 are `svd_weights`. Until `fit_features` has been called,
    every task counts the same.

    Args:
        rank: from 1, which keeps the one direction that is shared most, to the number of tasks, where nothing is left
            out and a task counts by the length of its theta. The paper does not say which it used; of the pairs of
            tasks in its study of label noise only 1 can tell anything, and that is our default.
        standardize: whether thetas are means over examples, of labels less their mean and over their deviation, so that
            neither the size of a task nor the unit of its labels counts. The paper has plain sums: false.
        normalize: whether the weights add up to one, as uniform ones do. The paper leaves them as they come: false.

    Differs from the paper: it needs one X for all tasks, as when one text has several labels; here (our extension) each
    task has its own X_i, made by the same encoder, so that all thetas live in its space. A task with several classes
    or labels has a theta per column; the SVD is over the columns of all tasks, and the task's weight is the length of
    its columns' alphas together: by Proposition 3 a column counts like a task of its own. With `standardize=False,
    normalize=False`, one X and one column per task, it is Algorithm 2 as printed.

    Needs features and labels of all training sets once (`needs_features`). Costs one pass of the encoder over them, and
    nothing in a step. Mind that the theta of n examples has noise of its own, the longer the smaller n: a task with
    very few examples draws the main direction to itself, and counts more than its labels tell. A task with many classes
    spreads its labels over many directions, of which a low rank keeps few, and counts less.

    >>> weighting = SVDWeighting(tasks=["a", "b", "noise"], standardize=False)
    >>> X = torch.eye(3)
    >>> y = {"a": [3.0, 0.0, 0.0], "b": [5.0, 0.0, 0.0], "noise": [0.0, 1.0, 0.0]}
    >>> weighting.fit_features(dict.fromkeys(y, X), {task: torch.tensor(labels) for task, labels in y.items()})
    >>> weighting.weights  # thetas (3, 0, 0), (5, 0, 0), (0, 1, 0); the main direction is the first axis
    {'a': 0.375, 'b': 0.625, 'noise': 0.0}
    """

    name: ClassVar[str] = "svd"
    summary: ClassVar[str] = "by how much a task's labels agree with the main directions of all tasks' labels"
    paper: ClassVar[Paper | None] = INFORMATION_TRANSFER
    needs_features: bool = True

    def __init__(
        self,
        *,
        rank: int = 1,
        standardize: bool = True,
        normalize: bool = True,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.rank = checks.count(self.name, "rank", rank)
        self.standardize, self.normalize = standardize, normalize
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 / T each, until the features are known."""
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))

    def fit_features(self, features: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> None:
        """Set the weights. Where no task's labels tell anything, they stay as they are."""
        self._check(features, labels)
        thetas = [
            label_directions(features[task], labels[task], standardize=self.standardize).cpu() for task in self.tasks
        ]
        joined = torch.cat(thetas, dim=1)  # [dimension, columns of all tasks]
        alphas = svd_weights(joined, min(self.rank, *joined.shape))
        lengths = [float(part.norm()) for part in alphas.split([theta.shape[1] for theta in thetas])]
        total = sum(lengths)
        if total > 0.0:
            share = total if self.normalize else 1.0
            self._weights = {task: length / share for task, length in zip(self.tasks, lengths, strict=True)}

    def _check(self, features: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> None:
        for what, given in (("features", features), ("labels", labels)):
            missing = [task for task in self.tasks if task not in given]
            if missing:
                raise CrossTaskError(f"weighting 'svd': there are no {what} of the task '{missing[0]}'.")
        dimensions = {task: features[task].shape[-1] for task in self.tasks}
        if len(set(dimensions.values())) > 1:
            raise CrossTaskError(
                f"weighting 'svd': features must have one dimension, since the tasks share it; found {dimensions}."
            )
        for task in self.tasks:
            seen, said = features[task], labels[task]
            if seen.dim() != 2 or said.dim() not in (1, 2) or len(seen) != len(said):
                raise CrossTaskError(
                    f"weighting 'svd': task '{task}' has features of shape {tuple(seen.shape)} and labels of shape "
                    f"{tuple(said.shape)}; expected [examples, dimension], and [examples] or [examples, labels]."
                )
            if not (torch.isfinite(seen).all() and torch.isfinite(said).all()):
                raise CrossTaskError(f"weighting 'svd': features or labels of task '{task}' are not finite.")
