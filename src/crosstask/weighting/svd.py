"""Weights from how much of each task's labels lies in the directions that the tasks have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.papers import INFORMATION_TRANSFER, Paper
from crosstask.weighting.base import Problem
from crosstask.weighting.evidence import Need, by_task
from crosstask.weighting.static import StaticWeighting
from crosstask.weighting.validation import check_count, renamed

CHUNK_SIZE = 8192
"""Examples that are converted to float64 at a time."""


def label_directions(features: Tensor, labels: Tensor, *, standardize: bool = False) -> Tensor:
    """`theta = X' Y`, [dimension, columns of Y], in float64: line 1 of Algorithm 2.

    Args:
        features: X, [examples, dimension].
        labels: one column, [examples], or several, [examples, columns]. Whole numbers in one column are classes: two, 0
            and 1, stay one column, as in the paper; more become a column per class. An example whose class is negative
            has no label and is left out.
        standardize: each column less its mean, all columns over one number that makes their variances add up to one,
            and the mean over examples instead of the sum. (With centered labels, centered features give the same.)

    >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> label_directions(X, torch.tensor([1.0, 2.0, 3.0])).tolist()
    [[4.0], [5.0]]
    >>> label_directions(X, torch.tensor([1, 0, 1])).tolist()
    [[2.0], [1.0]]
    """
    if not labels.is_floating_point() and labels.dim() == 1:
        features, labels = features[labels >= 0], labels[labels >= 0].long()
        # Two columns of a binary task would say the same twice: standardized, their weight is that of one column to the
        # last digit; not standardized, the column of the other class would add what no label says.
        if len(labels) and labels.max() > 1:
            labels = F.one_hot(labels).to(torch.float64)
    if labels.dim() == 1:
        labels = labels[:, None]
    columns = labels.to(features.device, torch.float64)  # [examples, columns]
    if standardize and len(columns):
        columns = columns - columns.mean(0)
        variance = columns.square().sum(1).mean()
        # A task with one label for all examples carries no information; rounding errors must not be scaled up.
        if variance > 1e-20:
            columns = columns / variance.sqrt() / len(columns)
        else:
            columns = torch.zeros_like(columns)
    total = torch.zeros(features.shape[1], columns.shape[1], dtype=torch.float64, device=features.device)
    for start in range(0, len(columns), CHUNK_SIZE):
        total += features[start : start + CHUNK_SIZE].double().T @ columns[start : start + CHUNK_SIZE]
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
    left_vectors, _, _ = torch.linalg.svd(thetas.double(), full_matrices=False)  # [dimension, tasks]
    return (thetas.double().T @ left_vectors[:, :rank]).norm(dim=1)


class SVDWeighting(StaticWeighting):
    """A task counts by how much of its label directions lies in the main directions of all tasks' labels.

    Algorithm 2 of Wu, Zhang & Ré (2020): noise in labels points anywhere, what tasks have in common does not.

        theta_i = X' y_i ;    U_r D_r V_r' = SVD_r([theta_1, ..., theta_k]) ;    alpha_i = || theta_i' U_r ||

    - `X`: `features`, what the encoder makes of the examples before training, [examples, dimension];
    - `y_i`: `labels` of task i;
    - `alpha_i`: `weights[i]`, the factor of the loss in eq. 2; they stay through training;
    - `r`: `rank`.

    In the code: line 1 is `label_directions`, lines 2 and 3 are `svd_weights`. `fit_features` must have
    been called before the first step.

    Args:
        rank: from 1, which keeps the one direction that is shared most, to the number of tasks, where nothing is left
            out and a task counts by the norm of its theta. The paper does not say which it used. For pairs of tasks, as
            in its study of label noise, only 1 is informative, and that is our default.
        standardize: whether thetas are means over examples, of labels less their mean and over their deviation, so that
            neither the size of a task nor the unit of its labels matters. The paper has plain sums: false.
        normalize: whether the weights add up to one, as uniform ones do. Not in the paper: false.
        standardise: the same as `standardize`.
        normalise: the same as `normalize`.

    Differs from the paper: it needs one X for all tasks, as when one text has several labels; here (our extension) each
    task has its own X_i, made by the same encoder, so that all thetas live in its space. A binary task has one column,
    1 for the second of its labels and 0 for the first. A task with more classes, or with several labels, has a theta
    per column; the SVD is over the columns of all tasks, and the task's weight is the norm of its columns' alphas
    together: by Proposition 3 a column counts like a task of its own. With `standardize=False, normalize=False` it is
    Algorithm 2 as printed, for binary tasks and tasks of one number on one X. Sums over labels that are not centered
    count frequent labels more, and weights grow with the examples: mind `clip`, which limits the gradient.

    Needs features and labels of all training sets once (`fit_features`). Costs one pass of the encoder over them, and
    nothing in a step. Mind that the theta of n examples is noisy, the more the smaller n: a task with very few examples
    dominates the main direction, and counts more than it should. The labels of a task with many classes lie in many
    directions, of which a low rank keeps few, so it counts less.

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
    paper_options: ClassVar[Mapping[str, Any]] = {"standardize": False, "normalize": False}
    inspects: ClassVar[Need] = Need.FEATURES

    def __init__(
        self,
        *,
        rank: int = 1,
        standardize: bool = True,
        normalize: bool = True,
        standardise: bool | None = None,
        normalise: bool | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.rank = check_count(self.name, "rank", rank)
        self.standardize = renamed(standardize, standardise)
        self.normalize = renamed(normalize, normalise)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Every task counts the same until there are features."""
        super().start(problem)
        self._is_fitted = False

    def check_losses(self, losses: Mapping[str, Tensor]) -> None:
        """Refuse a step that nothing weighs."""
        super().check_losses(losses)
        if not self._is_fitted:
            raise CrossTaskError(
                "weighting 'svd' finds its weights from features, and has not been shown any: call "
                "`fit_features(features, labels)` before the first step."
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the weights that were found."""
        super().load_state_dict(state)
        self._is_fitted = True

    def fit_features(self, features: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> None:
        """Set the weights. Where all label directions are zero, they stay as they are."""
        self._check(features, labels)
        self._is_fitted = True
        thetas = []  # [dimension, columns] each
        for task in self.tasks:
            theta = label_directions(features[task], labels[task], standardize=self.standardize)
            thetas.append(theta.cpu())
        all_thetas = torch.cat(thetas, dim=1)  # [dimension, columns of all tasks]
        alphas = svd_weights(all_thetas, min(self.rank, *all_thetas.shape))
        # A task's weight is the norm of the alphas of all its columns.
        num_columns = [theta.shape[1] for theta in thetas]
        norms = torch.stack([columns.norm() for columns in alphas.split(num_columns)])  # [tasks]
        if norms.sum() > 0.0:
            self._weights = by_task(self.tasks, norms / norms.sum() if self.normalize else norms)

    def _check(self, features: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> None:
        for what, tensors in (("features", features), ("labels", labels)):
            missing = [task for task in self.tasks if task not in tensors]
            if missing:
                raise CrossTaskError(f"weighting 'svd': there are no {what} of the task '{missing[0]}'.")
        dimensions = {task: features[task].shape[-1] for task in self.tasks}
        if len(set(dimensions.values())) > 1:
            raise CrossTaskError(
                f"weighting 'svd': features must have one dimension, since the tasks share it; found {dimensions}."
            )
        for task in self.tasks:
            x, y = features[task], labels[task]
            if x.dim() != 2 or y.dim() not in (1, 2) or len(x) != len(y):
                raise CrossTaskError(
                    f"weighting 'svd': task '{task}' has features of shape {tuple(x.shape)} and labels of shape "
                    f"{tuple(y.shape)}; expected [examples, dimension], and [examples] or [examples, labels]."
                )
            if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
                raise CrossTaskError(f"weighting 'svd': features or labels of task '{task}' are not finite.")
