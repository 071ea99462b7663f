"""Steps of several data sets as a data loader of torch: a batch of each task, or of one, in an order from the seed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, Subset

from crosstask.errors import CrossTaskError
from crosstask.models.batches import Step, Stream, split_over_ranks
from crosstask.training.support_query import DEFAULT_FRACTION
from crosstask.validation import shown
from crosstask.weighting.base import Query

Examples = list[Any]
Collate = Callable[[Examples], Mapping[str, Any]]


class TaskDatasets(Dataset[Any]):
    """Data sets by task. What is taken out is a step: examples of several tasks."""

    def __init__(self, datasets: Mapping[str, Any]) -> None:
        self.datasets = dict(datasets)

    def __len__(self) -> int:
        """Number of examples of all tasks."""
        return sum(len(dataset) for dataset in self.datasets.values())

    def __getitem__(self, task: str) -> Any:
        """The data set of a task."""
        return self.datasets[task]

    def __getitems__(self, step: Step) -> dict[str, Examples]:
        """The examples of a step, by task."""
        return {task: examples_at(self.datasets[task], positions) for task, positions in step.items()}


def examples_at(dataset: Any, positions: Sequence[int] | np.ndarray) -> Examples:
    """The examples at these positions, at once where the data set can."""
    numbers = [int(position) for position in positions]
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(numbers))
    return [dataset[number] for number in numbers]


class TaskCollator:
    """Makes a batch of each task's examples, by the collator of that task."""

    def __init__(self, collators: Mapping[str, Collate]) -> None:
        self.collators = dict(collators)

    def __call__(self, examples: Mapping[str, Examples]) -> dict[str, dict[str, Any]]:
        batches: dict[str, dict[str, Any]] = {}
        for task, of_task in examples.items():
            batches[task] = dict(self.collators[task](of_task))
        return batches


class StepSampler:
    """This rank's part of each step of an epoch: as many examples of each task as every other rank has."""

    def __init__(self, stream: Stream, rank: int = 0, num_ranks: int = 1) -> None:
        self.stream = stream
        self.rank, self.num_ranks = rank, num_ranks
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose steps come next: each has an order of its own."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.stream.steps_per_epoch

    def __iter__(self) -> Iterator[Step]:
        for step in self.stream.epoch(self.epoch):
            even = {task: _filled_up(positions, self.num_ranks) for task, positions in step.items()}
            yield split_over_ranks(even, self.rank, self.num_ranks)


def _filled_up(positions: np.ndarray, multiple: int) -> np.ndarray:
    """With positions of its beginning again, so that all ranks get the same number.

    >>> _filled_up(np.array([5, 6, 7]), 2).tolist()
    [5, 6, 7, 5]
    """
    return np.resize(positions, -(-len(positions) // multiple) * multiple)


class StepLoader(DataLoader[Any]):
    """A data loader whose items are steps: batches by task."""

    def set_epoch(self, epoch: int) -> None:
        """What the trainer calls before each epoch."""
        sampler: Any = self.batch_sampler
        sampler.set_epoch(epoch)


def check_datasets(name: str, datasets: object, tasks: Sequence[str] = ()) -> dict[str, Any]:
    """Data sets by task that can be indexed; every one of a task that is known, where tasks are named."""
    if isinstance(datasets, TaskDatasets):
        datasets = datasets.datasets
    if not isinstance(datasets, Mapping) or not datasets:
        raise CrossTaskError(
            f"`{name}` maps each task to its data set, as in {{'stars': stars, 'polarity': polarity}}; found "
            f"{shown(datasets)}."
        )
    for task, dataset in datasets.items():
        if tasks and task not in tasks:
            raise CrossTaskError(f"`{name}` has data of '{task}', which is no task here: {', '.join(tasks)}.")
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise CrossTaskError(
                f"`{name}`: the data set of '{task}' is a {type(dataset).__name__} without length or index; batches of "
                "several tasks are drawn by index. Load it, or save it with `datasets` first."
            )
        if len(dataset) == 0:
            raise CrossTaskError(f"`{name}`: the data set of '{task}' holds no examples.")
    return dict(datasets)


def cut_query_sets(
    train: Mapping[str, Any], dev: Mapping[str, Any], held_out: Mapping[str, Any], query: Query, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Support sets, which train the model, and query sets, which judge the weights, by task.

    Args:
        train: training sets by task.
        dev: sets for evaluation, which are the query sets where `query` is "dev".
        held_out: query sets that the user has set apart.
        query: fraction of a training set that is cut off where there is no other query set, or "dev".
        seed: of what is cut off.
    """
    support, query_sets = dict(train), dict(held_out)
    fraction = DEFAULT_FRACTION if query == "dev" else query
    for number, (task, dataset) in enumerate(train.items()):
        if task in query_sets:
            continue
        if query == "dev" and task in dev:
            query_sets[task] = dev[task]
            continue
        num_query = max(1, round(fraction * len(dataset)))
        if num_query >= len(dataset):
            raise CrossTaskError(
                f"Task '{task}' has {len(dataset)} training examples: too few to cut a query set from."
            )
        order = np.random.default_rng([seed, number]).permutation(len(dataset))
        support[task] = _subset(dataset, np.sort(order[num_query:]))
        query_sets[task] = _subset(dataset, np.sort(order[:num_query]))
    return support, query_sets


def _subset(dataset: Any, positions: np.ndarray) -> Any:
    """Some examples of a data set; one of the package `datasets` keeps its columns."""
    if hasattr(dataset, "select"):
        return dataset.select(positions)
    return Subset(dataset, positions.tolist())


def lengths_of(dataset: Any, column: str) -> np.ndarray:
    """Number of tokens of each example, to put examples of like length together."""
    names = getattr(dataset, "column_names", None)
    if names and column in names:
        return np.asarray(dataset[column])
    lengths = []
    for example in (dataset[number] for number in range(len(dataset))):
        if "input_ids" not in example:
            raise CrossTaskError("`group_by_length` needs examples with `input_ids`, or a column with their lengths.")
        lengths.append(len(example["input_ids"]))
    return np.asarray(lengths)
