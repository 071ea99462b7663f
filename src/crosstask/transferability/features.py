"""Features and labels of the tasks that are ranked: from disk where they are there, else by the encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.batches import Prepared, in_batches
from crosstask.models.build import build_encoder
from crosstask.models.encoder import PreparedInput, length_of
from crosstask.models.encoders.feature_index import recall, remember
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.multitask import Model
from crosstask.probing.linear_models import Units
from crosstask.probing.probe import collect
from crosstask.progress import Progress

MOST_UNITS = 4_000
"""Words of a tagging task that are looked at, at most, in whole sentences."""


def sampled(task: Task, most: int, seed: int) -> Task:
    """Its training examples, at most so many; a smaller sample is part of a larger one, so that features are reused."""
    chosen = np.random.default_rng(seed).permutation(len(task.train))[:most]
    return replace(task, train=task.train.take(np.sort(chosen).tolist()), dev=None, test=None)


def all_units(
    section: Mapping[str, Any], tasks: Sequence[Task], drawn: Sequence[Task], bar: Progress, seed: int
) -> dict[str, Units | str]:
    """Features and labels of each drawn task, or why there are none.

    Args:
        section: the `encoder` section.
        tasks: whole, for the encoder to be built for.
        drawn: the same with the examples that are looked at.
        bar: to show how far it is.
        seed: of the words of a long tagging task.
    """
    known = recall(section, tasks, drawn)
    if known is not None:
        found: dict[str, Units | str] = {task.name: units_of_rows(task, known[task.name]) for task in drawn}
    else:
        found = _computed(section, tasks, drawn, bar)
    return {
        name: units if isinstance(units, str) else units.sample(MOST_UNITS, np.random.default_rng(seed))
        for name, units in found.items()
    }


def _computed(
    section: Mapping[str, Any], tasks: Sequence[Task], drawn: Sequence[Task], bar: Progress
) -> dict[str, Units | str]:
    encoder = build_encoder(section, tasks)
    before = 0
    encoder.report_progress(lambda done, _: bar.advance(before + done))
    model = Model(encoder, [task.spec for task in drawn])
    bar.start("features", sum(len(task.train) for task in drawn))
    found: dict[str, Units | str] = {}
    for task in drawn:
        try:
            found[task.name] = collect(model, Prepared.of(encoder, task.spec, task.train))
        except CrossTaskError as error:
            found[task.name] = str(error)
        before += len(task.train)
        bar.advance(before, task.name)
    if isinstance(encoder, FrozenEncoder):
        remember(section, tasks, encoder)
    return found


def units_of_rows(task: Task, rows: Sequence[PreparedInput]) -> Units:
    """What `probes.collect` makes of a frozen encoder's features, in the same order, without an encoder."""
    spec, labels = task.spec, task.spec.encode(task.train)
    order = np.concatenate(in_batches(np.asarray([length_of(row) for row in rows]), len(rows)))
    if spec.kind == "tagging":
        seen = [~np.isnan(rows[i]["tokens"]).any(axis=1) for i in order]  # a word that was cut off has no features
        features = np.concatenate([rows[i]["tokens"][kept] for i, kept in zip(order, seen, strict=True)])
        values = np.concatenate([np.asarray(labels[i])[kept] for i, kept in zip(order, seen, strict=True)])
        order = np.repeat(order, [int(kept.sum()) for kept in seen])
    else:
        features = np.concatenate([rows[i]["pooled"] for i in order])
        values = np.asarray(labels)[order]
    if values.dtype.kind == "f":
        values = values.astype(np.float32)  # the precision of training, which `collect` goes through
    if spec.kind == "regression":
        values = values.astype(np.float64)
    return Units(spec.kind, spec.num_outputs, features.astype(np.float64), values, order)
