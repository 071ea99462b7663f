"""What label transfer makes of each label of a source, on average: the map that the record and the report show."""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from crosstask.data.task import Task

NUM_RANGES = 4
"""Ranges that stand for the labels of a regression, with as many training examples each."""


class Labels(nn.Module):
    """The labels of one task as rows or columns of a map; those of a regression are ranges of its numbers.

    - `names`: in the units of the data.
    """

    bounds: Tensor

    def __init__(self, task: "Task") -> None:
        super().__init__()
        self.kind = task.kind
        self.names = list(task.labels)
        bounds = np.zeros(0)
        if task.kind == "regression":
            numbers = np.asarray(task.train.labels, dtype=np.float64)
            bounds = np.unique(np.quantile(numbers, np.arange(1, NUM_RANGES) / NUM_RANGES))
            self.names = range_names(bounds.tolist())
        standardized = torch.from_numpy((bounds - task.spec.mean) / task.spec.scale)
        self.register_buffer("bounds", standardized.float(), persistent=False)

    def fractions(self, values: Tensor) -> Tensor:
        """What each unit counts for each label, [units, names], from a fraction of each label, or a number."""
        if self.kind != "regression":
            return values.float()
        ranges = torch.bucketize(values.float().reshape(-1), self.bounds)
        return (ranges[:, None] == torch.arange(len(self.names), device=values.device)).float()


def range_names(bounds: list[float]) -> list[str]:
    """Names of the ranges between these bounds.

    >>> range_names([1.0, 2.5])
    ['up to 1', '1 to 2.5', 'above 2.5']
    """
    texts = [f"{bound:.3g}" for bound in bounds]
    between = [f"{low} to {high}" for low, high in pairwise(texts)]
    return [f"up to {texts[0]}", *between, f"above {texts[-1]}"]


class LabelMap(nn.Module):
    """The mean soft label of each label of a source, since the last evaluation.

    Its sums are buffers, so that a run that resumes goes on with them.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, source: "Task", target: "Task") -> None:
        super().__init__()
        self.source, self.target = Labels(source), Labels(target)
        self.register_buffer("sums", torch.zeros(len(self.source.names), len(self.target.names)))
        self.register_buffer("counts", torch.zeros(len(self.source.names)))

    def add(self, soft_labels: Tensor, labels: Tensor) -> None:
        """Add soft labels of the target, [units, outputs], of units with these labels of the source, [units, ...]."""
        columns = self.target.fractions(soft_labels)  # [units, target labels]
        if not labels.is_floating_point():  # a class each
            self.sums.index_add_(0, labels, columns)
            self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float32))
            return
        rows = self.source.fractions(labels)  # [units, source labels]
        self.sums += (rows[:, :, None] * columns[:, None, :]).sum(0)
        self.counts += rows.sum(0)

    def take(self, reduce: Callable[[Tensor], Tensor]) -> dict[str, dict[str, float]]:
        """The map over all processes, by source label and target label; then it starts anew."""
        sums, counts = reduce(self.sums), reduce(self.counts)
        means = (sums / counts.clamp(min=1.0)[:, None]).tolist()  # [source labels, target labels]
        rows = {}
        for label, mean, count in zip(self.source.names, means, counts.tolist(), strict=True):
            if count:
                rows[label] = dict(zip(self.target.names, mean, strict=True))
        self.sums.zero_()
        self.counts.zero_()
        return rows
