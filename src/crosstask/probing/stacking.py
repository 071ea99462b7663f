"""Stacking: a linear model of frozen features and of the outputs of the sources' probes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crosstask.data.subsets import random_subset
from crosstask.data.task import Task
from crosstask.models.stacked_head import StackedHead, num_columns
from crosstask.probing.heads import fill
from crosstask.probing.linear_models import CrossValidation, LinearModel, Units, choose_penalty, fit, penalty_grid
from crosstask.probing.probe import MAX_CHOICE_UNITS, Probe, SolverSession, fit_probe
from crosstask.runs.events import Note, StackingFitted

MAX_SOURCE_EXAMPLES = 5_000
"""Examples of a source that stacking uses at most: more make its linear model hardly better, but features cost time."""
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Fractions of the logits' prior variance for the sources' outputs: 0 is the probe, 1 leaves the features out."""

Columns = Mapping[str, slice]
"""Columns of each source's outputs, behind the features."""


def limited_source(task: Task, seed: int) -> Task:
    """A source as stacking needs it: its training examples alone, a random sample of them where there are many."""
    count = len(task.train)
    train_only = replace(task, dev=None, test=None)
    if count <= MAX_SOURCE_EXAMPLES:
        return train_only
    positions = random_subset(count, MAX_SOURCE_EXAMPLES, np.random.default_rng(seed))
    note = f"stacking uses {MAX_SOURCE_EXAMPLES:,} of its {count:,} training examples, drawn at random"
    return replace(train_only, train=task.train.take(positions), notes=(*task.notes, note))


def fit_stacking(session: SolverSession) -> None:
    """Fit a probe to each source, then the targets' models on features and on what those probes say."""
    sources = [fit_probe(session, task) for task in session.tasks if task not in session.targets]
    for target in session.targets:
        _fit_target(session, target, sources)


def _fit_target(session: SolverSession, task: str, sources: Sequence[Probe]) -> None:
    """Fit a target's stacked model, fill its head, and measure what each source contributes."""
    head = session.model.head(task)
    assert isinstance(head, StackedHead)
    # 1. The sources' outputs, as columns behind the features.
    units, _ = session.units(task)
    width = units.features.shape[1]
    features = [units.features]  # [units, width], then [units, columns] of each source
    columns: dict[str, slice] = {}
    start = width
    for source in sources:
        features.append(source.outputs_for_target(units, session.seed))
        stop = start + num_columns(source.spec)
        if _is_readable(session, task, source.spec.name):
            columns[source.spec.name] = slice(start, stop)
        start = stop
    units = units.of(np.concatenate(features, 1))
    # 2. The model, and the head filled with it.
    stacked = fit_stacked(units, width, columns, session.seed)
    fill(head.linear, stacked.model)
    emphasis = _emphasis(units, width, columns, stacked.fraction, num_outputs=_count(columns))
    session.hold_out(task, stacked.choice_units, stacked.inverse_penalty, emphasis)
    for layer, source in zip(head.sources, sources, strict=True):
        fill(layer, source.model)
    # 3. The same without each source; without its only source it is the probe.
    without: dict[str, CrossValidation] = {}
    if stacked.fraction and len(columns) > 1:
        for name in columns:
            others = dict(columns)
            del others[name]
            emphasis = _emphasis(units, width, others, stacked.fraction, num_outputs=_count(columns))
            penalties = [stacked.inverse_penalty]
            _, without[name] = choose_penalty(stacked.choice_units, penalties, emphasis, seed=session.seed)
    _record(session, task, stacked, without)
    session.advance()


def _is_readable(session: SolverSession, target: str, source: str) -> bool:
    """Whether a source's layer means something at the target's features: words and texts may be pooled differently."""
    specs = session.model.specs
    is_mixed = (specs[target].kind == "tagging") != (specs[source].kind == "tagging")
    if not is_mixed or session.model.encoder.texts_are_read_like_words:
        return True
    text = f"not read for '{target}': with `pooling: stock`, words and texts have features of different sorts"
    session.write(Note(text, task=source))
    return False


@dataclass(frozen=True, eq=False)
class Stacked:
    """A linear model of features and of the sources' outputs behind them, with what chose its penalty.

    - `fraction`: of the prior variance that the outputs have;
    - `together`, `alone`: cross-validated with the outputs and on the features alone, each at its best penalty;
    - `choice_units`: the units that chose.
    """

    model: LinearModel
    inverse_penalty: float
    fraction: float
    together: CrossValidation
    alone: CrossValidation
    choice_units: Units


def fit_stacked(units: Units, width: int, columns: Columns, seed: int) -> Stacked:
    """Choose the penalty and the outputs' fraction by cross-validation, and fit.

    Args:
        units: with `width` features, and then the outputs.
        width: of the features.
        columns: of each source's outputs; those of no source are not read.
        seed: of the folds.
    """
    choice_units = units.sample(MAX_CHOICE_UNITS, np.random.default_rng(seed))
    choices = {}
    for fraction in SHARES:
        emphasis = _emphasis(units, width, columns, fraction, num_outputs=_count(columns))
        choices[fraction] = choose_penalty(choice_units, penalty_grid(width), emphasis, seed=seed)
    best = 0.0
    if columns:
        best = min(SHARES, key=lambda fraction: choices[fraction][1].loss)
    penalty, together = choices[best]
    emphasis = _emphasis(units, width, columns, best, num_outputs=_count(columns))
    model = fit(units, [penalty], emphasis)[0]
    return Stacked(model, penalty, best, together, choices[0.0][1], choice_units)


def _count(columns: Columns) -> int:
    return sum(where.stop - where.start for where in columns.values())


def _emphasis(units: Units, width: int, columns: Columns, fraction: float, *, num_outputs: int) -> np.ndarray:
    """Factors of standardized features and outputs that give the outputs this fraction of the prior variance.

    `width` features with factor `sqrt(1 - fraction)` and m outputs with `sqrt(fraction * width / m)`: their squares add
    up to `width` for every fraction, so that one grid of penalties serves all. `num_outputs` is m, which also counts
    outputs that are left out on trial.
    """
    emphasis = np.zeros(units.features.shape[1])
    emphasis[:width] = np.sqrt(1.0 - fraction)
    for where in columns.values():
        emphasis[where] = np.sqrt(fraction * width / num_outputs)
    return emphasis


def _record(session: SolverSession, task: str, stacked: Stacked, without: Mapping[str, CrossValidation]) -> None:
    """Write down how good the model is with all sources, without each, and with none."""
    together, alone = stacked.together, stacked.alone
    facts = {name: result.facts() for name, result in without.items()}
    session.write(
        StackingFitted(task, stacked.inverse_penalty, stacked.fraction, together.facts(), alone.facts(), facts)
    )
    text = "cross-validation found nothing in the sources' outputs that the features do not tell better"
    if stacked.fraction:
        measure, value = together.headline
        text = f"cross-validated {measure}, where the loss chose: {value:.3f} with the sources' outputs"
        for name, result in without.items():
            text += f", {result.headline[1]:.3f} without '{name}'"
        text += f", {alone.headline[1]:.3f} on the features alone"
    session.write(Note(text, task=task))
