"""Which sources help a target, alone and together, from one base model: affinity by linearisation."""

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstask.data.task import Examples, Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.models.batches import Prepared
from crosstask.models.multitask import Model
from crosstask.progress import Progress, make_progress, shown
from crosstask_papers.linearized.linearized_model import Change, LinearUnits, fit
from crosstask_papers.linearized.projected_gradients import ProjectedGradients

if TYPE_CHECKING:
    from crosstask.learner import Learner

EXHAUSTIVE = 128
"""The best subset is sought among all where there are no more than this, else by adding and taking away."""


class Affinity:
    """What the target's dev loss would be after training with any subset of the sources, as `linearised_affinity` says.

    Each subset is a convex fit of a fraction of a second, done when it is asked for and then remembered.

    Attributes:
        target: the target's name.
        sources: names of the sources.
        ridge: the penalty of the fits.
        seconds: what it took so far: `base` (training the base model, where we did), `gradients`, `fits`.
    """

    def __init__(
        self,
        target: str,
        sources: Sequence[str],
        train: Mapping[str, LinearUnits],
        dev: LinearUnits,
        *,
        ridge: float,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        self.target = target
        self.sources = tuple(sources)
        self.ridge = ridge
        self.seconds = {"base": 0.0, "gradients": 0.0, "fits": 0.0, **(seconds or {})}
        self._train = dict(train)
        self._dev = dev
        self._alone: Change | None = None
        self._losses: dict[frozenset[str], np.ndarray] = {}

    def loss(self, subset: str | Collection[str] = ()) -> float:
        """The target's mean dev loss with a subset of the sources; of the target alone when left out."""
        return float(self._unit_losses(subset).mean())

    def gain(self, subset: str | Collection[str]) -> float:
        """By how much the target's dev loss is lower with a subset of the sources than alone."""
        return self.loss() - self.loss(subset)

    def error(self, subset: str | Collection[str]) -> float:
        """Standard error of the gain that comes from the choice of dev examples; nan where there is one alone."""
        return self._difference((), subset)[1]

    @property
    def gains(self) -> dict[str, float]:
        """The gain of each source by itself."""
        return {source: self.gain([source]) for source in self.sources}

    def average_gains(self, size: int, num_subsets: int = 50, seed: int = 0) -> dict[str, float]:
        """The mean gain of random subsets of `size` sources, over those that a source is part of.

        This is the affinity of higher order of Li et al. (2024). A source that no subset holds has nan.
        """
        self._check_size("size", size, most=len(self.sources))
        generator = np.random.default_rng(seed)
        subsets = [generator.permutation(self.sources)[:size].tolist() for _ in range(num_subsets)]
        found: dict[str, list[float]] = {source: [] for source in self.sources}
        for subset in subsets:
            for source in subset:
                found[source].append(self.gain(subset))
        return {source: float(np.mean(gains)) if gains else math.nan for source, gains in found.items()}

    def best_subset(self, max_size: int | None = None, *, errors: float = 1.0) -> tuple[str, ...]:
        """The sources, at most `max_size` of them, with the largest gain together; none where nothing helps.

        All subsets are tried where they are few; else sources are added and taken away one by one, each time the one
        that lowers the loss most, until no such step lowers it. Of the best, sources that hardly count are then left
        out, as long as the loss does not rise above the least by more than `errors` standard errors of the difference;
        with 0 all stay.
        """
        most = len(self.sources) if max_size is None else max_size
        self._check_size("max_size", most)
        most = min(most, len(self.sources))
        if sum(math.comb(len(self.sources), size) for size in range(most + 1)) <= EXHAUSTIVE:
            every = (frozenset(subset) for size in range(most + 1) for subset in combinations(self.sources, size))
            best = min(every, key=self.loss)  # of equals the first, which is the smaller one
        else:
            best = self._best_by_steps(most)
        kept = best
        while kept:
            smaller = min((kept - {source} for source in self.sources if source in kept), key=self.loss)
            rise, error = self._difference(smaller, best)
            if errors == 0 or not rise <= errors * error:
                break
            kept = smaller
        return tuple(source for source in self.sources if source in kept)

    def _best_by_steps(self, most: int) -> frozenset[str]:
        best: frozenset[str] = frozenset()
        while True:
            steps = [step for step in (best ^ {source} for source in self.sources) if len(step) <= most]
            nearest = min(steps, key=self.loss)
            if self.loss(nearest) >= self.loss(best):
                return best
            best = nearest

    def facts(self) -> dict[str, Any]:
        """Losses, gains and costs as plain data."""
        best = self.best_subset()
        return {
            "target": self.target,
            "loss_alone": self.loss(),
            "gains": self.gains,
            "errors": {source: self.error([source]) for source in self.sources},
            "best_subset": list(best),
            "best_gain": self.gain(best),
            "ridge": self.ridge,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }

    def _difference(self, subset: str | Collection[str], other: str | Collection[str]) -> tuple[float, float]:
        """By how much the loss with one subset is above that with another, and the standard error of that."""
        by_unit = self._unit_losses(subset) - self._unit_losses(other)
        _, places, counts = np.unique(self._dev.examples, return_inverse=True, return_counts=True)
        if len(counts) < 2:
            return float(by_unit.mean()), math.nan
        by_example = np.bincount(places, by_unit) / counts
        return float(by_unit.mean()), float(by_example.std(ddof=1) / math.sqrt(len(counts)))

    def _unit_losses(self, subset: str | Collection[str]) -> np.ndarray:
        """The target's dev losses, unit by unit."""
        names = frozenset([subset] if isinstance(subset, str) else subset)
        for name in names:
            if name not in self.sources:
                raise unknown("source", name, self.sources)
        if names not in self._losses:
            if names and self._alone is None:
                self._unit_losses(())  # where every other fit starts
            started = time.perf_counter()
            chosen = [
                self._train[name] for name in (self.target, *self.sources) if name == self.target or name in names
            ]
            change = fit(chosen, self.ridge, start=self._alone)
            self._alone = self._alone or change
            self._losses[names] = self._dev.losses(self._dev.outputs(change.shared, change.own[0]))
            self.seconds["fits"] += time.perf_counter() - started
        return self._losses[names]

    def _check_size(self, name: str, size: int, most: int | None = None) -> None:
        if size < 1 or (most is not None and size > most):
            wanted = "at least 1" if most is None else f"from 1 to {most}, the number of sources"
            raise CrossTaskError(f"`{name}` must be {wanted}, found {size}.")


def linearised_affinity(
    model: Model,
    train: Mapping[str, Prepared | Examples],
    dev: Mapping[str, Prepared | Examples],
    target: str,
    sources: Sequence[str],
    *,
    dimension: int = 400,
    limit: int = 1000,
    units_per_example: int = 4,
    ridge: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Affinity:
    """Estimate, from a model of all tasks, how training on any subset of the sources would change the target's loss.

    Close to the parameters theta_0 of the base model, an output is linear in the change of the parameters (Grad-TAG, Li
    et al. 2024):

        f(x; theta) = f(x; theta_0) + g(x)' (theta - theta_0),    theta - theta_0 = P w

    Training on a set S of tasks becomes a regression on projected gradients, for classes the logistic one

        w_S = argmin  sum_{t in S} mean_i log(1 + exp(-f_i - (P'g_i)' w))  +  ridge / 2 |w|^2

    and the gain of the sources S is what they take off the linear model's loss on the target's dev examples, against
    the fit to the target alone. One pass of gradients serves all subsets.

    - f: the margin of the right class, `linearised.margins`; for regression the prediction, with squared errors;
    - P, P'g: a seeded random projection, `ProjectedGradients`;
    - w_S: `linearised.fit`.

    It works for every kind of task, and across kinds. Gains are in units of the target's loss. Their order is what they
    are good for: the base has learned from all sources already, which the target's fit alone cannot undo, so gains come
    out smaller than those of training afresh.

    Args:
        model: trained on the target and all sources together, for about half as long as one would train; one that has
            learned its training set by heart tells little.
        train: training examples of the target and the sources by name, prepared or as they are in a task.
        dev: held-out examples of the target by its name.
        target: the task that matters.
        sources: tasks that may help.
        dimension: d of the projection of shared gradients; a task's own parameters have a quarter of it.
        limit: examples of each task that are used at most, drawn at random.
        units_per_example: words of a sentence, or labels of a multilabel example, that are used at most.
        ridge: penalty for gradients that are scaled so that the target's have a mean square of 1. Small stands for long
            training.
        seed: of the projection and of what is drawn.
        progress: a bar that counts examples.

    Differs from the paper: every task counts the same, as in normalized joint training, where the paper pools
    examples; the fit has a penalty; shared parameters and those of heads are projected apart, and matrices from both
    sides, which a backward pass over a batch gives at once; the loss is the linear model's own, and no network is run
    with the changed parameters. With more than two classes the margin, not every logit, is taken as linear.
    """
    _check_options(dimension=dimension, limit=limit, units_per_example=units_per_example, ridge=ridge)
    names = _check_names(model, train, dev, target, sources)
    started = time.perf_counter()
    parts = {name: _drawn(_prepared(model, name, train[name]), limit, seed) for name in names}
    held_out = _drawn(_prepared(model, target, dev[target]), limit, seed)
    gradients = ProjectedGradients(model, dimension=dimension, own_dimension=max(1, dimension // 4), seed=seed)
    if not any(block.owner is None for block in gradients.blocks):
        raise CrossTaskError(
            "The tasks share no parameter that learns, so that no source can help: with a frozen encoder, set `hidden` "
            "under `encoder`."
        )
    bar, done = progress or Progress(), 0
    bar.start("gradients", sum(len(part) for part in (*parts.values(), held_out)))
    units = []
    for part in (*parts.values(), held_out):
        units.append(gradients.of(part, units_per_example=units_per_example, progress=bar, done=done))
        done += len(part)
    bar.stop()
    scale = _size(units[0])
    *train_units, dev_units = (replace(part, shared=part.shared / scale, own=part.own / scale) for part in units)
    seconds = {"gradients": time.perf_counter() - started}
    by_name = dict(zip(names, train_units, strict=True))
    return Affinity(target, sources, by_name, dev_units, ridge=ridge, seconds=seconds)


def task_affinity(target: Task, sources: Sequence[Task], learner: "Learner | None" = None, **options: Any) -> Affinity:
    """Train a base model on all tasks for half of a learner's budget, and estimate what each subset of sources brings.

    Args:
        target: the task that matters; its dev examples measure.
        sources: tasks that may help.
        learner: encoder, settings, seed and progress bar; weighting, transfer and paradigm play no part, the base is
            trained jointly with every task counting the same.
        options: those of `linearised_affinity`.
    """
    from crosstask.learner import Learner

    if target.dev is None:
        raise _no_dev(target.name)
    if not sources:
        raise _no_sources()
    given = learner or Learner()
    half = given.training
    half = replace(
        half, keep="last", epochs=max(1, half.epochs // 2), updates=half.updates and max(1, half.updates // 2)
    )
    base = Learner(given.encoder, paradigm="normalized-joint", training=half, seed=given.seed, progress=given.progress)
    started = time.perf_counter()
    model = base.fit(target, sources).model
    seconds = time.perf_counter() - started
    with shown(make_progress(given.progress)) as bar:
        found = linearised_affinity(
            model,
            {task.name: task.train for task in (target, *sources)},
            {target.name: target.dev},
            target.name,
            [task.name for task in sources],
            **{"seed": given.seed, "progress": bar, **options},
        )
    found.seconds["base"] = seconds
    return found


def _size(units: LinearUnits) -> float:
    """The length of a unit's whole gradient, as the root of the mean square."""
    square = float((units.shared**2).sum(axis=1).mean() + (units.own**2).sum(axis=1).mean())
    return math.sqrt(square) or 1.0


def _prepared(model: Model, name: str, given: Prepared | Examples) -> Prepared:
    return given if isinstance(given, Prepared) else Prepared.of(model.encoder, model.specs[name], given)


def _drawn(prepared: Prepared, limit: int, seed: int) -> Prepared:
    if len(prepared) <= limit:
        return prepared
    return prepared.take(np.sort(np.random.default_rng(seed).permutation(len(prepared))[:limit]).tolist())


def _check_names(
    model: Model, train: Mapping[str, Any], dev: Mapping[str, Any], target: str, sources: Iterable[str]
) -> list[str]:
    names = [target, *sources]
    if len(names) == 1:
        raise _no_sources()
    if len(set(names)) < len(names):
        raise CrossTaskError(
            f"Every task can be named once, the target not among the sources; found {', '.join(names)}."
        )
    for name in names:
        if name not in model.specs:
            raise unknown("task of the base model:", name, model.specs)
        if name not in train:
            raise CrossTaskError(f"`train` has no examples of task '{name}'. Add them, or leave the task out.")
    if target not in dev:
        raise _no_dev(target)
    return names


def _check_options(**options: float) -> None:
    for name, value in options.items():
        if name == "ridge" and not (value > 0 and math.isfinite(value)):
            raise CrossTaskError(f"`ridge` must be above 0, found {value}.")
        if name != "ridge" and value < 1:
            raise CrossTaskError(f"`{name}` must be at least 1, found {value}.")


def _no_dev(target: str) -> CrossTaskError:
    return CrossTaskError(
        f"The target '{target}' has no dev examples, which tell how much a source helps. Give it some."
    )


def _no_sources() -> CrossTaskError:
    return CrossTaskError("There is no source task whose help could be estimated. Name at least one.")
