"""Examples that a weighting learns from: a query part of each training set, the dev sets, parts in turn, fresh ones."""

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from torch import Tensor

from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared, Step
from crosstask.training.forward import Graphs, PassOptions, Stepper
from crosstask.weighting.base import HeldOut, Query

DEFAULT_FRACTION = 0.1
"""Of a training set that becomes the query set of a task without a dev set."""


def support_and_query(
    train: Mapping[str, Prepared], dev: Mapping[str, Prepared], tasks: Sequence[str], query: Query, seed: int
) -> tuple[dict[str, Prepared], dict[str, Prepared]]:
    """Support sets, which train the model, and query sets, which tell how well it generalizes, by task.

    With "dev" the dev sets are the query sets, and all training examples train; a task without one still gives a part
    of them away.
    """
    if query != "dev":
        return split_support_and_query(train, tasks, query, seed)
    dev_sets: dict[str, Prepared] = {}
    without_dev: list[str] = []
    for task in tasks:
        if task in dev:
            dev_sets[task] = dev[task]
        else:
            without_dev.append(task)
    support, query_sets = split_support_and_query(train, without_dev, DEFAULT_FRACTION, seed)
    return support, {**dev_sets, **query_sets}


def split_support_and_query(
    data: Mapping[str, Prepared], tasks: Sequence[str], fraction: float, seed: int
) -> tuple[dict[str, Prepared], dict[str, Prepared]]:
    """Split each task's training set into support and query.

    The query set has the fraction `rho` of the examples (Mao et al. 2022), at least one, class by class in proportion.
    Where inputs are repeated, it is a fraction of the inputs, with all examples of each.
    """
    support, query = dict(data), {}
    for task in tasks:
        examples = data[task]
        distinct = examples.distinct_inputs
        num_query = max(1, round(fraction * len(distinct)))
        if num_query >= len(distinct):
            what = "training examples"
            if distinct.num_repeated:
                what = "different inputs in its training examples"
            raise CrossTaskError(f"Task '{task}' has {len(distinct)} {what}: too few to cut a query set from.")
        labels = None
        if examples.spec.kind in ("classification", "pair"):
            labels = np.asarray(examples.hard_labels).tolist()
        # From the task's name too, so that its split does not depend on which other tasks there are.
        generator = np.random.default_rng([seed, zlib.crc32(task.encode())])
        support_rows, query_rows = distinct.cut(labels, num_query, generator)
        support[task], query[task] = examples.take(support_rows), examples.take(query_rows)
    return support, query


def deal_parts(data: Mapping[str, Prepared], targets: Sequence[str], num_parts: int) -> dict[str, np.ndarray]:
    """The part of each training example of the targets, by target, where parts judge weights in turn."""
    part_of: dict[str, np.ndarray] = {}
    for target in targets:
        num_inputs = len(data[target].distinct_inputs)
        if num_inputs < num_parts:
            raise CrossTaskError(
                f"{num_parts} parts of the target '{target}' are to judge weights in turn, but its training examples "
                f"have {num_inputs} different inputs: label some more, or lower `parts` of the weighting."
            )
        part_of[target] = data[target].deal(num_parts)
    return part_of


def without_part(step: Step, part_of: Mapping[str, np.ndarray], part: int) -> Step:
    """A step that trains no example of this part: random others take the places of those.

    >>> step = without_part({"own": np.array([0, 1, 2])}, {"own": np.array([0, 1, 0, 1])}, part=0)
    >>> step["own"].tolist()  # 1 is in another part, and so is 3
    [1, 3]
    """
    changed = dict(step)
    for task in part_of.keys() & step.keys():
        positions = step[task]
        trains = part_of[task] != part  # [examples]
        remaining = positions[trains[positions]]
        others = np.setdiff1d(np.flatnonzero(trains), remaining)
        # The positions are the same on all ranks, and differ from step to step.
        substitutes = np.random.default_rng(positions).permutation(others)[: len(positions) - len(remaining)]
        changed[task] = np.concatenate([remaining, substitutes])
    return changed


def sample_step(data: Mapping[str, Prepared], tasks: Sequence[str], size: int, seed: int, number: int) -> Step:
    """`size` random examples of each task; they depend on seed and number alone, so that no state need be saved."""
    step: Step = {}
    for task in tasks:
        generator = np.random.default_rng([seed, number, zlib.crc32(task.encode()), 1])
        step[task] = generator.permutation(len(data[task]))[:size]
    return step


def held_out_losses(
    stepper: Stepper, data: Mapping[str, Prepared], step: Step, held_out: HeldOut
) -> tuple[Mapping[str, Tensor], Mapping[str, float]]:
    """Losses by task for a weighting to take gradients of, and their values as far as they were looked up.

    All from one pass if both the weighting and the model allow it, else one by one on demand.
    """
    if Graphs.for_need(held_out.need) is Graphs.FUSED_IF_POSSIBLE and stepper.can_fuse(data, step):
        result = stepper.run(data, step, PassOptions(Graphs.FUSED_IF_POSSIBLE, with_transfers=False))
        return result.losses, result.values
    on_demand = LossesOnDemand(stepper, data, step)
    return on_demand, on_demand.values_so_far


class LossesOnDemand(Mapping[str, Tensor]):
    """Losses by task, each computed when it is looked up, so that one graph exists at a time."""

    def __init__(self, stepper: Stepper, data: Mapping[str, Prepared], step: Step) -> None:
        self.stepper = stepper
        self.data = data
        self.step = step
        self.values_so_far: dict[str, float] = {}

    def __getitem__(self, task: str) -> Tensor:
        options = PassOptions(with_transfers=False)
        result = self.stepper.run(self.data, {task: self.step[task]}, options)
        self.values_so_far.update(result.values)
        return result.losses[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self.step)

    def __len__(self) -> int:
        return len(self.step)
