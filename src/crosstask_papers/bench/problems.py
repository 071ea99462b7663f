"""A problem: one target with few labels, its sources with many, and what judges or measures it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crosstask.data.options import SplitKeywords
from crosstask.data.task import Task
from crosstask_papers.bench.data_sets import CUT_SEED, data_set, measured_fingerprints, train_fingerprints
from crosstask_papers.bench.shared_text import Fingerprints
from crosstask_papers.bench.suites import Suite
from crosstask_papers.rates import CHOOSING_SEED


@dataclass(frozen=True, eq=False)
class Problem:
    """A target and its sources as a method gets them: the target has no dev set, for all its labels are the few."""

    suite: Suite
    labels: int
    seed: int
    target: Task
    sources: tuple[Task, ...]


def make_problem(data: Path, suite: Suite, target: str, labels: int, seed: int) -> Problem:
    """The problem of a run. In a trial, which has `CHOOSING_SEED`, the examples of dev stand in the place of test.

    No source shares text with the target's few labels, dev or test.
    """
    complete = data_set(data, target)
    few = suite.few(data, target, labels, seed)
    judges = complete.dev if seed == CHOOSING_SEED else complete.test
    task = Task.assemble(target, few, False, judges, **_options(complete))
    known = [*measured_fingerprints(data, target), Fingerprints.of(few.inputs)]
    sources = [_source(data, name, known, suite.max_source) for name in suite.sources[target]]
    return Problem(suite, labels, seed, task, tuple(sources))


def _source(data: Path, name: str, known: list[Fingerprints], most: int) -> Task:
    """A data set as source, without what shares text with the target; nearly the same examples for every seed."""
    source = data_set(data, name)
    is_apart = train_fingerprints(data, name).apart_from(known)
    order = np.random.default_rng(CUT_SEED).permutation(len(is_apart))
    positions = np.sort(order[is_apart[order]][:most]).tolist()
    return Task.assemble(name, source.train.take(positions), dev=False, **_options(source))


def _options(task: Task) -> SplitKeywords:
    """Of a task with other examples of the same data set."""
    descriptions = dict(zip(task.labels, task.spec.descriptions, strict=False))
    return {
        "labels": task.labels or None,
        "kind": task.kind,
        "metric": task.spec.metric,
        "descriptions": {label: text for label, text in descriptions.items() if text} or None,
    }
