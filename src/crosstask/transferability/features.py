"""Features and labels of the tasks that are ranked: from disk where they are there, else by the encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosstask.data.overlap import DistinctInputs
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput, lengths_of
from crosstask.models.batches import Prepared, in_batches
from crosstask.models.build import build_encoder, features_on_disk, index_features
from crosstask.models.multitask import Model
from crosstask.probing.features import collect
from crosstask.probing.linear_models import Units
from crosstask.progress import Progress

MAX_UNITS = 4_000
"""Words of a tagging task that are used, at most, in complete sentences."""
UnitsOrProblem = Units | str
"""Features and labels of a task, or why there are none."""


def sampled(task: Task, max_examples: int, seed: int) -> Task:
    """The task with a random sample of its training examples alone.

    A smaller sample is part of a larger one, so that features are reused.
    """
    positions = np.random.default_rng(seed).permutation(len(task.train))[:max_examples]
    return replace(task, train=task.train.take(np.sort(positions).tolist()), dev=None, test=None)


def all_units(
    section: Mapping[str, Any], tasks: Sequence[Task], samples: Sequence[Task], bar: Progress, seed: int
) -> dict[str, UnitsOrProblem]:
    """Features and labels of each sampled task by name, or why there are none.

    Args:
        section: the `encoder` section.
        tasks: with all their examples, for the encoder to be built for.
        samples: the same tasks with the examples that are used.
        bar: shows the progress.
        seed: of the words of a long tagging task.
    """
    units: dict[str, UnitsOrProblem] = {}
    cached_rows = features_on_disk(section, tasks, samples)
    if cached_rows is None:
        units = _computed_units(section, tasks, samples, bar)
    else:
        for task in samples:
            units[task.name] = units_of_rows(task, cached_rows[task.name])
    for name, task_units in units.items():
        if isinstance(task_units, Units):
            units[name] = task_units.sample(MAX_UNITS, np.random.default_rng(seed))
    return units


def _computed_units(
    section: Mapping[str, Any], tasks: Sequence[Task], samples: Sequence[Task], bar: Progress
) -> dict[str, UnitsOrProblem]:
    encoder = build_encoder(section, tasks)
    num_encoded = 0  # examples of the tasks before; the bar goes on within a task
    encoder.report_progress(lambda count, _: bar.advance(num_encoded + count))
    model = Model(encoder, [task.spec for task in samples])
    bar.start("features", sum(len(task.train) for task in samples))
    units: dict[str, UnitsOrProblem] = {}
    for task in samples:
        try:
            units[task.name] = collect(model, Prepared.of(encoder, task.spec, task.train))
        except CrossTaskError as error:
            units[task.name] = str(error)
        num_encoded += len(task.train)
        bar.advance(num_encoded, task.name)
    index_features(section, tasks, encoder)
    return units


def units_of_rows(task: Task, rows: Sequence[PreparedInput]) -> Units:
    """What `probe.collect` makes of a frozen encoder's features, in the same order, without an encoder."""
    spec, labels = task.spec, task.spec.encode(task.train)
    # The order of batches, which sort by length.
    order = np.concatenate(in_batches(lengths_of(rows), len(rows)))
    if spec.kind == "tagging":
        word_features, word_labels, word_examples = [], [], []
        for i in order:
            vectors = rows[i]["tokens"]
            has_features = ~np.isnan(vectors).any(axis=1)  # a word that was cut off has none
            word_features.append(vectors[has_features])
            word_labels.append(np.asarray(labels[i])[has_features])
            word_examples.append(np.full(int(has_features.sum()), i))
        # [words, width], [words]
        features, values = np.concatenate(word_features), np.concatenate(word_labels)
        order = np.concatenate(word_examples)
    else:
        features = np.concatenate([rows[i]["pooled"] for i in order])
        values = np.asarray(labels)[order]
    if values.dtype.kind == "f":
        values = values.astype(np.float32)  # the precision of training, which `collect` goes through
    if spec.kind == "regression":
        values = values.astype(np.float64)
    distinct = DistinctInputs.of(task.train.inputs)
    examples = distinct.first[distinct.numbers[order]]
    return Units(spec.kind, spec.num_outputs, features.astype(np.float64), values, examples)
