"""Examples that a weighting learns from: a query part of each training set, the dev sets, or a fresh draw."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from crosstask.data.subsets import stratified_cut
from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared, Step
from crosstask.weighting.base import Query

if TYPE_CHECKING:
    from crosstask.training.forward import Stepper


SHARE = 0.1
"""Of a training set, for a task that has no dev set to judge by."""


def support_and_query(
    train: Mapping[str, Prepared], dev: Mapping[str, Prepared], tasks: Sequence[str], query: Query, seed: int
) -> tuple[dict[str, Prepared], dict[str, Prepared]]:
    """What trains the model, and what tells how well that generalises, by task.

    With "dev" the dev sets tell, and all training examples train; a task without one still gives a part of them away.
    """
    if query != "dev":
        return split_support_and_query(train, tasks, query, seed)
    judged = {task: dev[task] for task in tasks if task in dev}
    support, cut = split_support_and_query(train, [task for task in tasks if task not in dev], SHARE, seed)
    return support, {**judged, **cut}


def split_support_and_query(
    data: Mapping[str, Prepared], tasks: Sequence[str], share: float, seed: int
) -> tuple[dict[str, Prepared], dict[str, Prepared]]:
    """Cut each task's training set in two: support trains the model, query tells how well that generalises.

    The query part has the share `rho` of the examples (Mao et al. 2022), at least one, class by class in proportion.
    """
    support, query = dict(data), {}
    for task in tasks:
        whole = data[task]
        held_out = max(1, round(share * len(whole)))
        if held_out >= len(whole):
            raise CrossTaskError(f"Task '{task}' has {len(whole)} training examples: too few to cut a query set from.")
        single = whole.spec.kind in ("classification", "pair")
        labels = np.asarray(whole.labels).tolist() if single else None
        generator = np.random.default_rng([seed, zlib.crc32(task.encode())])
        kept, cut = stratified_cut(labels, len(whole), held_out, generator)
        support[task], query[task] = whole.take(kept), whole.take(cut)
    return support, query


def draw(data: Mapping[str, Prepared], tasks: Sequence[str], size: int, seed: int, number: int) -> Step:
    """`size` examples of each task at random; the same seed and number give the same draw, so nothing is kept."""
    step: Step = {}
    for task in tasks:
        generator = np.random.default_rng([seed, number, zlib.crc32(task.encode()), 1])
        step[task] = generator.permutation(len(data[task]))[:size]
    return step


def held_out_losses(
    stepper: "Stepper", data: Mapping[str, Prepared], step: Step, *, fused: bool
) -> tuple[Mapping[str, Tensor], Mapping[str, float]]:
    """Losses by task for a weighting to take gradients of, and what they are, as far as they were looked up.

    All from one pass if the weighting can do with that (`fused`) and the model too, else one by one when asked.
    """
    if fused and stepper.tells_apart(data, step):
        result = stepper.run(data, step, apart=True, fused=True, transfers=False)
        return result.losses, result.values
    one_by_one = HeldOutLosses(stepper, data, step)
    return one_by_one, one_by_one.values_seen


class HeldOutLosses(Mapping[str, Tensor]):
    """Held-out losses by task, each computed when it is looked up, so that one graph exists at a time."""

    def __init__(self, stepper: "Stepper", data: Mapping[str, Prepared], step: Step) -> None:
        self.stepper = stepper
        self.data = data
        self.step = step
        self.values_seen: dict[str, float] = {}

    def __getitem__(self, task: str) -> Tensor:
        result = self.stepper.run(self.data, {task: self.step[task]}, transfers=False)
        self.values_seen.update(result.values)
        return result.losses[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self.step)

    def __len__(self) -> int:
        return len(self.step)
