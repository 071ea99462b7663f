"""The stream: which examples of which task come next. Seeded, and its whole state is two numbers."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crosstask.data.task import Examples, TaskSpec
from crosstask.errors import unknown
from crosstask.models.encoder import Encoder, PreparedInput, length_of
from crosstask.models.losses import IGNORED

Schedule = Literal["parallel", "mixed"]
SCHEDULES: tuple[Schedule, ...] = ("parallel", "mixed")
BUCKET_BATCHES = 32
"""Batches sorted by length together: enough for little padding, few enough to stay random."""

Step = dict[str, np.ndarray]
"""Positions of the examples that a step takes, by task."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A split made ready for an encoder: inputs and labels as numbers."""

    spec: TaskSpec
    rows: list[PreparedInput]
    labels: list[Any] | np.ndarray

    @classmethod
    def of(cls, encoder: Encoder, spec: TaskSpec, examples: Examples) -> "Prepared":
        """Prepare the examples of one split."""
        return cls(spec, encoder.prepare(examples.inputs, examples.form), spec.encode(examples))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Sequence[int]) -> "Prepared":
        """The examples at these positions."""
        labels = self.labels[positions] if isinstance(self.labels, np.ndarray) else [self.labels[i] for i in positions]
        return Prepared(self.spec, [self.rows[i] for i in positions], labels)

    def lengths(self) -> np.ndarray:
        """Number of positions of each input."""
        return np.asarray([length_of(row) for row in self.rows])


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of one or several tasks for a single pass of the encoder."""

    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]
    rows: dict[str, slice]
    positions: dict[str, np.ndarray]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(
            {key: value.to(device, non_blocking=True) for key, value in self.inputs.items()},
            {key: value.to(device, non_blocking=True) for key, value in self.labels.items()},
            self.rows,
            self.positions,
        )


def make_batch(encoder: Encoder, data: Mapping[str, Prepared], step: Mapping[str, np.ndarray]) -> Batch:
    """Put the examples of a step together, task after task, padded to one length."""
    rows: dict[str, slice] = {}
    chosen: list[PreparedInput] = []
    for task, positions in step.items():
        rows[task] = slice(len(chosen), len(chosen) + len(positions))
        chosen.extend(data[task].rows[i] for i in positions)
    inputs = encoder.collate(chosen)
    labels = {task: _labels(data[task], positions, inputs) for task, positions in step.items()}
    return Batch(inputs, labels, rows, dict(step))


def _labels(prepared: Prepared, positions: np.ndarray, inputs: Mapping[str, Tensor]) -> Tensor:
    if prepared.spec.kind == "tagging":
        length = next(inputs[key].shape[1] for key in ("attention_mask", "mask") if key in inputs)
        placed = np.full((len(positions), length), IGNORED, dtype=np.int64)
        for row, i in zip(placed, positions, strict=True):
            where = prepared.rows[i]["word_positions"]
            seen = where >= 0
            row[where[seen]] = np.asarray(prepared.labels[i])[seen]
        return torch.from_numpy(placed)
    labels = np.asarray(prepared.labels)[positions]
    return torch.from_numpy(labels.astype(np.int64 if labels.dtype.kind == "i" else np.float32))


class Stream:
    """Which examples come next, epoch by epoch; a pure function of the seed, so resuming needs no replay.

    - `mixed`: one task a step; an epoch shows every example once, its batches shuffled over all tasks. A task is drawn
      with probability q_t, its share of the batches (Liu et al. 2019, MT-DNN).
    - `parallel`: a batch of every task each step (q_t = 1); an epoch lasts as long as the largest task, the others
      start over as often as it takes.

    With `buckets`, examples of like length share a batch, and in `parallel` also a step, so that little is padded.
    """

    def __init__(
        self,
        lengths: Mapping[str, np.ndarray],
        *,
        batch_size: int,
        schedule: Schedule = "parallel",
        seed: int = 0,
        buckets: bool = True,
    ) -> None:
        if schedule not in SCHEDULES:
            raise unknown("schedule", schedule, SCHEDULES)
        self.lengths = lengths
        self.batch_size = batch_size
        self.schedule = schedule
        self.seed = seed
        self.buckets = buckets
        self.num_batches = {task: -(-len(items) // batch_size) for task, items in lengths.items()}

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in an epoch."""
        counts = self.num_batches.values()
        return max(counts) if self.schedule == "parallel" else sum(counts)

    @property
    def probabilities(self) -> dict[str, float]:
        """q_t: how likely a task is to be part of a step."""
        if self.schedule == "parallel":
            return dict.fromkeys(self.lengths, 1.0)
        return {task: count / self.steps_per_epoch for task, count in self.num_batches.items()}

    def epoch(self, number: int) -> list[Step]:
        """The steps of an epoch, in order."""
        if self.schedule == "mixed":
            steps = [
                {task: batch} for task in self.lengths for batch in self._batches(task, number, self.num_batches[task])
            ]
        else:
            columns = {task: self._batches(task, number, self.steps_per_epoch) for task in self.lengths}
            if self.buckets:
                columns = {task: self._aligned(task, batches) for task, batches in columns.items()}
            steps = [{task: batches[i] for task, batches in columns.items()} for i in range(self.steps_per_epoch)]
        order = self._generator(number, "order").permutation(len(steps))
        return [steps[i] for i in order]

    def _batches(self, task: str, epoch: int, count: int) -> list[np.ndarray]:
        """`count` batches of one task, over as many rounds through its examples as that takes."""
        lengths = self.lengths[task]
        generator = self._generator(epoch, task)
        # A window holds at most a quarter of the batches: sorting a whole small task would make each epoch's batches
        # the same.
        window = min(BUCKET_BATCHES, self.num_batches[task] // 4) * self.batch_size if self.buckets else 0
        batches: list[np.ndarray] = []
        while len(batches) < count:
            order = generator.permutation(len(lengths))
            for start in range(0, len(order), window) if window else ():
                part = order[start : start + window]
                order[start : start + window] = part[np.argsort(-lengths[part], kind="stable")]
            batches.extend(order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size))
        return batches[:count]

    def _aligned(self, task: str, batches: list[np.ndarray]) -> list[np.ndarray]:
        """The same batches, window by window from long to short, so that long ones meet long ones of other tasks."""
        longest = np.asarray([self.lengths[task][batch].max() for batch in batches])
        order: list[int] = []
        for start in range(0, len(batches), BUCKET_BATCHES):
            part = longest[start : start + BUCKET_BATCHES]
            order.extend(start + np.argsort(-part, kind="stable"))
        return [batches[i] for i in order]

    def _generator(self, epoch: int, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch, zlib.crc32(purpose.encode())])


def split_over_ranks(step: Step, rank: int, num_ranks: int) -> Step:
    """This rank's share of a step: every `num_ranks`-th example of each task."""
    return step if num_ranks == 1 else {task: positions[rank::num_ranks] for task, positions in step.items()}


def in_batches(lengths: np.ndarray, batch_size: int) -> Sequence[np.ndarray]:
    """All positions in batches of like length, for evaluation and prediction."""
    order = np.argsort(-lengths, kind="stable")
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
