"""Batches, and the stream that says which examples of which task come next: seeded, and a function of the epoch."""

import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from crosstask.data.examples import EncodedLabels, Examples, Inputs, TaskSpec, are_soft, select
from crosstask.data.overlap import DistinctInputs
from crosstask.errors import CrossTaskError, unknown
from crosstask.models.arrays import PreparedInput, column, gather, lengths_of, take, to_device
from crosstask.models.encoder import Encoder
from crosstask.models.losses import IGNORED
from crosstask.models.packing import PACKED

Schedule = Literal["parallel", "mixed"]
SCHEDULES: tuple[Schedule, ...] = ("parallel", "mixed")
BUCKET_BATCHES = 32
"""Batches sorted by length together: enough for little padding, few enough to stay random."""

RowCounts = tuple[tuple[str, int], ...]
"""Tasks of a batch in their order, each with a number of examples."""
LENGTH_STEPS = ((64, 8), (128, 16), (512, 32), (math.inf, 64))
"""Up to a length, multiples of which number batches are padded to where shapes should repeat."""
PACKED_LENGTH_STEP, PACKED_ROW_STEP = 32, 4
"""The same for the rows that texts share, and for their number."""
LEAST_PADDING = 0.2
"""Of the positions of a batch: with less of it texts have rows of their own."""

Step = dict[str, np.ndarray]
"""Positions of the examples of a step, by task."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A split made ready for an encoder: inputs as arrays and labels as numbers.

    `inputs` are those that were prepared, to tell which of them are the same; without them all are different.
    """

    spec: TaskSpec
    rows: Sequence[PreparedInput]
    labels: EncodedLabels
    inputs: Inputs | None = None

    @classmethod
    def of(cls, encoder: Encoder, spec: TaskSpec, examples: Examples) -> "Prepared":
        """Prepare the examples of one split."""
        return cls(spec, encoder.prepare(examples.inputs, examples.form), spec.encode(examples), examples.inputs)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Sequence[int]) -> "Prepared":
        """The examples at these positions."""
        rows = gather([(self.rows, np.asarray(positions, dtype=np.int64))])
        inputs = self.inputs
        if isinstance(inputs, np.ndarray):
            inputs = inputs[positions]
        elif inputs is not None:
            inputs = select(inputs, positions)
        if isinstance(self.labels, np.ndarray):
            return Prepared(self.spec, rows, self.labels[positions], inputs)
        return Prepared(self.spec, rows, take(self.labels, positions), inputs)

    def lengths(self) -> np.ndarray:
        """Number of positions of each input."""
        return self.all_lengths

    @cached_property
    def all_lengths(self) -> np.ndarray:
        """Number of positions of each input, counted once."""
        return lengths_of(self.rows)

    @cached_property
    def hard_labels(self) -> EncodedLabels:
        """The labels; the likeliest ones where they are soft."""
        if self.spec.kind == "multilabel":
            return (np.asarray(self.labels) >= 0.5).astype(np.float32)
        if not are_soft(self.labels):
            return self.labels
        if isinstance(self.labels, np.ndarray):
            return self.labels.argmax(-1)
        return [np.asarray(words).argmax(-1).tolist() for words in self.labels]

    @cached_property
    def distinct_inputs(self) -> DistinctInputs:
        """The different inputs, for whatever trains on some examples and judges by others."""
        if self.inputs is None:
            return DistinctInputs.all_of(len(self))
        return DistinctInputs.of(self.inputs)

    def deal(self, num_parts: int) -> np.ndarray:
        """The part of each example, [examples], where parts are held out in turn; the same for any seed of a run.

        Parts are stratified where there are classes, and all examples of an input are in the same one.
        """
        classes: list[int] | None = None
        if self.spec.kind in ("classification", "pair"):
            classes = np.asarray(self.hard_labels).tolist()
        return self.distinct_inputs.deal(classes, num_parts, np.random.default_rng(0))


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples of one or several tasks for a single pass of the encoder."""

    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]
    rows: dict[str, slice]
    positions: dict[str, np.ndarray]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(to_device(self.inputs, device), to_device(self.labels, device), self.rows, self.positions)

    def tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """All tensors in one mapping, by names that begin with `prefix`."""
        tensors = {f"{prefix}input {name}": tensor for name, tensor in self.inputs.items()}
        for task, labels in self.labels.items():
            tensors[f"{prefix}labels {task}"] = labels
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], row_counts: RowCounts, prefix: str = "") -> "Batch":
        """The batch whose `tensors` are among these; it has no positions."""
        start = f"{prefix}input "
        batch = cls({}, {}, {}, {})
        for name, tensor in tensors.items():
            if name.startswith(start):
                batch.inputs[name.removeprefix(start)] = tensor
        first = 0
        for task, count in row_counts:
            batch.rows[task] = slice(first, first + count)
            batch.labels[task] = tensors[f"{prefix}labels {task}"]
            first += count
        return batch

    def only(self, tasks: Collection[str]) -> "Batch":
        """The rows of these tasks alone."""
        batch = Batch({}, {}, {}, {})
        start = 0
        for task, old in self.rows.items():
            if task in tasks:
                batch.rows[task] = slice(start, start + old.stop - old.start)
                batch.labels[task] = self.labels[task]
                if self.positions:
                    batch.positions[task] = self.positions[task]
                start = batch.rows[task].stop
        for name, values in self.inputs.items():
            if name != PACKED:
                batch.inputs[name] = torch.cat([values[self.rows[task]] for task in batch.rows])
        return batch


def make_batch(
    encoder: Encoder, data: Mapping[str, Prepared], step: Mapping[str, np.ndarray], length: int | None = None
) -> Batch:
    """The examples of a step, task after task, padded to one length.

    Args:
        encoder: collates the examples.
        data: each task's examples.
        step: positions of those that are taken.
        length: at least so many positions, for batches of one shape, from encoders that `pads_freely`.
    """
    rows: dict[str, slice] = {}
    num_rows = 0
    for task, positions in step.items():
        rows[task] = slice(num_rows, num_rows + len(positions))
        num_rows += len(positions)
    examples = gather([(data[task].rows, positions) for task, positions in step.items()])
    inputs = encoder.collate(examples) if length is None else encoder.collate_to(examples, length)
    labels = {task: _labels(data[task], positions, inputs) for task, positions in step.items()}
    return Batch(inputs, labels, rows, dict(step))


def batch_of_few_shapes(encoder: Encoder, data: Mapping[str, Prepared], step: Step, *, packs: bool = True) -> Batch:
    """The same in one of few shapes: padded to some lengths, or with texts that share rows where that is shorter.

    Args:
        encoder: collates the examples.
        data: each task's examples.
        step: positions of those that are taken.
        packs: whether texts may share rows.
    """
    length = padded_length(data, step)
    if packs and encoder.packs:
        num_rows = sum(map(len, step.values()))
        num_tokens = sum(int(data[task].all_lengths[positions].sum()) for task, positions in step.items())
        packed_length = math.ceil(length / PACKED_LENGTH_STEP) * PACKED_LENGTH_STEP
        if num_tokens < (1 - LEAST_PADDING) * num_rows * length:
            batch = make_batch(encoder, data, step, packed_length)
            inputs = encoder.packed(batch.inputs, PACKED_ROW_STEP)
            if inputs is not None and inputs[PACKED].numel() < num_rows * length:
                return replace(batch, inputs=inputs)
    return make_batch(encoder, data, step, length)


def padded_length(data: Mapping[str, Prepared], step: Step) -> int:
    """The length to pad the batch of a step to, so that batches have few lengths and little padding."""
    longest = 1
    for task, positions in step.items():
        longest = max(longest, int(data[task].all_lengths[positions].max()))
    multiple = next(multiple for limit, multiple in LENGTH_STEPS if longest <= limit)
    return math.ceil(longest / multiple) * multiple


def row_counts(rows: Mapping[str, slice]) -> RowCounts:
    """The tasks of a batch with the number of their examples."""
    return tuple((task, part.stop - part.start) for task, part in rows.items())


def _labels(prepared: Prepared, positions: np.ndarray, inputs: Mapping[str, Tensor]) -> Tensor:
    """Labels of one task's examples: [batch], [batch, labels] for multilabel, [batch, length] for tagging.

    Soft labels have a last axis of labels.
    """
    if prepared.spec.kind == "tagging":
        mask = inputs["attention_mask"] if "attention_mask" in inputs else inputs["mask"]
        tags = np.full((len(positions), mask.shape[1]), IGNORED, dtype=np.int64)
        if are_soft(prepared.labels):  # [batch, length, labels], zero where nothing counts
            tags = np.zeros((*tags.shape, prepared.spec.num_outputs), dtype=np.float32)
        word_positions = column(gather([(prepared.rows, positions)]), "word_positions")
        for row, words, i in zip(tags, word_positions, positions, strict=True):
            is_read = words >= 0  # a word beyond the maximum length has no position
            row[words[is_read]] = np.asarray(prepared.labels[i])[is_read]
        return torch.from_numpy(tags)
    labels = np.asarray(prepared.labels)[positions]
    return torch.from_numpy(labels.astype(np.int64 if labels.dtype.kind == "i" else np.float32))


@dataclass(frozen=True)
class TaskSampling:
    """Which tasks a step has, where there are more than fit.

    - `tasks`: all of them, in their order;
    - `sampled`: those of which a step has `count`, each as likely as any other; the rest are in every step.
    """

    tasks: Sequence[str]
    sampled: Sequence[str]
    count: int

    @classmethod
    def of(cls, tasks: Sequence[str], tasks_per_step: int | None, always: Collection[str]) -> "TaskSampling":
        """All tasks where there are no more than `tasks_per_step`; where all are `always` there, these are sampled."""
        sampled = [task for task in tasks if task not in always] or list(tasks)
        num_always = len(tasks) - len(sampled)
        if tasks_per_step is None or tasks_per_step >= len(tasks):
            return cls(tasks, sampled, len(sampled))
        if tasks_per_step <= num_always:
            raise CrossTaskError(
                f"`tasks_per_step` is {tasks_per_step}, but every step has {num_always} targets and a source at least: "
                f"raise it to {num_always + 1} or more."
            )
        return cls(tasks, sampled, tasks_per_step - num_always)

    @property
    def leaves_out(self) -> bool:
        """Whether a step has some of the tasks only."""
        return self.count < len(self.sampled)

    @property
    def probabilities(self) -> dict[str, float]:
        """By task that of being part of a step."""
        probabilities = dict.fromkeys(self.tasks, 1.0)
        for task in self.sampled:
            probabilities[task] = self.count / len(self.sampled)
        return probabilities

    def steps_with_tasks(self, num_steps: int, generator: np.random.Generator) -> dict[str, Sequence[int]]:
        """The numbers of the steps that have a task, by task."""
        steps_with: dict[str, Sequence[int]] = dict.fromkeys(self.tasks, range(num_steps))
        if self.leaves_out:
            lists: list[list[int]] = [[] for _ in self.sampled]
            for step in range(num_steps):
                for index in generator.choice(len(lists), self.count, replace=False).tolist():
                    lists[index].append(step)
            steps_with.update(zip(self.sampled, lists, strict=True))
        return steps_with


class Stream:
    """Which examples come next, epoch by epoch; a pure function of the seed, so resuming needs no replay.

    - `mixed`: one task a step; an epoch shows every example once, its batches shuffled over all tasks. A task has the
      probability q_t, its fraction of the batches (Liu et al. 2019, MT-DNN).
    - `parallel`: a batch of every task each step (q_t = 1); an epoch lasts as long as the largest task, the others
      start over as often as it takes.
    - `parallel` with `tasks_per_step`: a batch of so many tasks, those that are `always` there and a random sample of
      the others, drawn anew for each step. Each of these has the same probability q_t.

    With `buckets`, examples of similar length share a batch, and in `parallel` also a step, so that little is padded.
    """

    def __init__(
        self,
        lengths: Mapping[str, np.ndarray],
        *,
        batch_size: int,
        schedule: Schedule = "parallel",
        seed: int = 0,
        buckets: bool = True,
        tasks_per_step: int | None = None,
        always: Collection[str] = (),
    ) -> None:
        if schedule not in SCHEDULES:
            raise unknown("schedule", schedule, SCHEDULES)
        self.lengths = lengths
        self.sampling = TaskSampling.of(list(lengths), tasks_per_step, always)
        self.batch_size = batch_size
        self.schedule = schedule
        self.seed = seed
        self.buckets = buckets
        self.num_batches = {task: -(-len(items) // batch_size) for task, items in lengths.items()}

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in an epoch."""
        if self.schedule == "parallel":
            return max(self.num_batches.values())
        return sum(self.num_batches.values())

    @property
    def probabilities(self) -> dict[str, float]:
        """q_t: the probability that a task is part of a step."""
        if self.schedule == "parallel":
            return self.sampling.probabilities
        return {task: count / self.steps_per_epoch for task, count in self.num_batches.items()}

    def epoch(self, number: int) -> list[Step]:
        """The steps of an epoch, in order."""
        steps: list[Step] = []
        if self.schedule == "mixed":
            for task in self.lengths:
                for batch in self._batches(task, number, self.num_batches[task]):
                    steps.append({task: batch})
        else:
            steps = [{} for _ in range(self.steps_per_epoch)]
            steps_with = self.sampling.steps_with_tasks(len(steps), self._generator(number, "tasks"))
            for task in self.lengths:
                batches = self._batches(task, number, len(steps_with[task]))
                if self.buckets and batches:
                    batches = self._longest_first(task, batches)
                for index, batch in zip(steps_with[task], batches, strict=True):
                    steps[index][task] = batch
        order = self._generator(number, "order").permutation(len(steps))
        return take(steps, order)

    def _batches(self, task: str, epoch: int, count: int) -> list[np.ndarray]:
        """`count` batches of one task, over as many rounds through its examples as that takes."""
        lengths = self.lengths[task]
        generator = self._generator(epoch, task)
        window = 0
        if self.buckets:
            # A window holds at most a quarter of the batches: sorting all examples of a small task would make each
            # epoch's batches the same.
            window = min(BUCKET_BATCHES, self.num_batches[task] // 4) * self.batch_size
        batches: list[np.ndarray] = []
        while len(batches) < count:
            order = self._order(task, generator)
            if window:
                order = _sorted_in_windows(order, lengths, window)
            batches.extend(_slices(order, self.batch_size))
        return batches[:count]

    def _order(self, task: str, generator: np.random.Generator) -> np.ndarray:
        """All examples of a task, once each, at random."""
        return generator.permutation(len(self.lengths[task]))

    def _longest_first(self, task: str, batches: list[np.ndarray]) -> list[np.ndarray]:
        """The same batches, window by window from long to short, so that long ones meet long ones of other tasks."""
        max_lengths = np.asarray([self.lengths[task][batch].max() for batch in batches])
        return take(batches, _sorted_in_windows(np.arange(len(batches)), max_lengths, BUCKET_BATCHES))

    def _generator(self, epoch: int, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch, zlib.crc32(purpose.encode())])


class LabelStream(Stream):
    """Batches that hold several examples of a label, for losses that compare these; otherwise as `Stream`.

    The examples of each label are cut at random into groups of `per_label` or a little fewer, and whole groups follow
    one another in random order. Batches are not sorted by length, which would take groups apart.

    Args:
        lengths: number of positions of each example, by task.
        labels: index of each example's label, by task.
        per_label: examples of a label in a group.
        batch_size: examples of one task in one step.
        seed: of all orders.
        tasks_per_step: as in `Stream`, like `always`.
        always: tasks that are in every step.
    """

    def __init__(
        self,
        lengths: Mapping[str, np.ndarray],
        labels: Mapping[str, np.ndarray],
        per_label: int,
        *,
        batch_size: int,
        seed: int = 0,
        tasks_per_step: int | None = None,
        always: Collection[str] = (),
    ) -> None:
        super().__init__(
            lengths, batch_size=batch_size, seed=seed, buckets=False, tasks_per_step=tasks_per_step, always=always
        )
        self.labels = labels
        self.per_label = max(1, min(per_label, batch_size // 2))  # so that a batch holds two labels

    def _order(self, task: str, generator: np.random.Generator) -> np.ndarray:
        labels = self.labels[task]
        groups: list[np.ndarray] = []
        for label in np.unique(labels):
            positions = generator.permutation(np.flatnonzero(labels == label))
            groups.extend(np.array_split(positions, -(-len(positions) // self.per_label)))
        order = generator.permutation(len(groups))
        return np.concatenate([groups[index] for index in order])


def split_over_ranks(step: Step, rank: int, num_ranks: int) -> Step:
    """This rank's part of a step: every `num_ranks`-th example of each task."""
    if num_ranks == 1:
        return step
    return {task: positions[rank::num_ranks] for task, positions in step.items()}


def in_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """All positions in batches of similar length, for evaluation and prediction."""
    return list(_slices(_sorted_by_length(np.arange(len(lengths)), lengths), batch_size))


def _sorted_by_length(positions: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Positions from the longest example to the shortest."""
    return positions[np.argsort(-lengths[positions], kind="stable")]


def _sorted_in_windows(positions: np.ndarray, lengths: np.ndarray, window: int) -> np.ndarray:
    """Positions from the longest example to the shortest within each window of this size."""
    return np.concatenate([_sorted_by_length(some, lengths) for some in _slices(positions, window)])


def _slices(positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Consecutive slices of this size; the last may be shorter."""
    for start in range(0, len(positions), size):
        yield positions[start : start + size]
