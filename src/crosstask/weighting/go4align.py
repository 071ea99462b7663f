"""Groups of tasks that share a weight, by how large their losses are and have been."""

import itertools
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from crosstask.papers import GO4ALIGN, Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, by_task, to_vector
from crosstask.weighting.validation import check_count, check_not_negative, check_number

MIN_LOSS = 1e-8
"""Losses are divided by."""


def next_risks(risks: Tensor, losses: Tensor, step_size: float) -> Tensor:
    """The distribution over tasks after a step towards those with small losses.

    >>> [round(risk, 4) for risk in next_risks(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), 1.0).tolist()]
    [0.7311, 0.2689]
    """
    raised = risks * torch.exp(-step_size * (losses - losses.min()))  # the same for any constant added to all losses
    return raised / raised.sum()


def group_means(values: Tensor, num_groups: int) -> Tensor:
    """Each value replaced by the mean of its group, where groups are as tight as so many can be (k-means, exactly).

    Groups of numbers lie one beside the other, so that all ways to cut the sorted numbers can be compared.

    >>> group_means(torch.tensor([5.0, 1.0, 2.0, 6.0]), 2).tolist()
    [5.5, 1.5, 1.5, 5.5]
    """
    order = values.argsort()
    ordered = values[order].tolist()
    count = len(ordered)
    num_groups = min(num_groups, count)
    sums = [0.0, *itertools.accumulate(ordered)]
    squares = [0.0, *itertools.accumulate(value * value for value in ordered)]

    def spread(start: int, stop: int) -> float:
        """Squared distances of these numbers from their mean."""
        total = sums[stop] - sums[start]
        return squares[stop] - squares[start] - total * total / (stop - start)

    # best[stop]: the least total spread of the first numbers in so many groups, and where their last group starts.
    best: list[tuple[float, list[int]]] = [(0.0 if stop == 0 else float("inf"), []) for stop in range(count + 1)]
    for _ in range(num_groups):
        extended: list[tuple[float, list[int]]] = [(float("inf"), []) for _ in range(count + 1)]
        for stop in range(1, count + 1):
            for start in range(stop):
                total = best[start][0] + spread(start, stop)
                if total < extended[stop][0]:
                    extended[stop] = total, [*best[start][1], start]
        best = extended
    starts = best[count][1]
    means = torch.empty_like(values)
    for start, stop in zip(starts, [*starts[1:], count], strict=True):
        means[order[start:stop]] = (sums[stop] - sums[start]) / (stop - start)
    return means


class GO4Align(Weighting):
    """Tasks whose losses are alike form a group and count the same, groups with small losses more.

    In each step (Shen et al. 2024, as in the authors' code)

        p_t <- p_t exp(-s L_t) / sum_j p_j exp(-s L_j),        r_t = p_t sum_j L_j / L_t,

    the numbers `r_t` are divided into `groups` by k-means, and each task counts the mean of its group.

    - `p_t`: `risks`, a distribution over tasks that remembers their losses; `s`: `step_size`;
    - `r_t`: without groups and with equal p it would be the weight that makes all weighted losses equal;
    - `weights[t]`: the mean of `r` over the group of task t.

    In the code: p is `next_risks`, the groups are `group_means`.

    Args:
        groups: how many groups of tasks; the paper chooses from 2 up by validation, 1 weighs all tasks the same.
        step_size: s; 1e-4 in the authors' code.

    Differs from the paper: groups by exact k-means of numbers, where the code tries several clusterings of the same
    numbers.

    Needs losses that are not negative; below 1e-8 they count as that. Costs nothing beside a plain step. Tasks that are
    absent from a step keep their weights and their p; those present share what they had of it, and the sum of all
    losses is estimated from theirs, each over the probability of being there.

    >>> weighting = GO4Align(groups=2, step_size=1e-9, tasks=["a", "b", "c"])
    >>> parameter = torch.ones((), requires_grad=True)
    >>> weighting.backward({"a": 1.0 * parameter, "b": 1.25 * parameter, "c": 10.0 * parameter})
    >>> {task: round(weight, 4) for task, weight in weighting.weights.items()}  # 12.25 / 3 times (1, 0.8, 0.1), grouped
    {'a': 3.675, 'b': 3.675, 'c': 0.4083}
    """

    name: ClassVar[str] = "go4align"
    summary: ClassVar[str] = "groups of tasks with like losses share a weight, groups with small losses count more"
    paper: ClassVar[Paper | None] = GO4ALIGN
    state_attributes: ClassVar[Mapping[str, str]] = {"risks": "risks"}

    def __init__(
        self,
        *,
        groups: int = 2,
        step_size: float = 1e-4,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.groups = check_count(self.name, "groups", groups)
        self.step_size = check_number(self.name, "step_size", step_size, at_least=0.0)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Begin with equal risks, and weights of 1."""
        super().start(problem)
        self.risks = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))
        self._weights = dict.fromkeys(self.tasks, 1.0)

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The mean of each group of this step's tasks."""
        check_not_negative(self.name, evidence.losses)
        losses = to_vector(evidence.losses, evidence.tasks).clamp(min=MIN_LOSS)  # [tasks]
        before = to_vector(self.risks, evidence.tasks)
        risks = next_risks(before, losses, self.step_size) * before.sum()
        self.risks = {**self.risks, **by_task(evidence.tasks, risks)}
        # The sum over all tasks; where a step has a sample of them, its estimate.
        sum_of_losses = (losses / to_vector(evidence.probabilities, evidence.tasks, default=1.0)).sum()
        return by_task(evidence.tasks, group_means(risks * sum_of_losses / losses, self.groups))
