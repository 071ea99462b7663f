"""Which sources help a target, alone and together, from one base model that is linearized around its parameters."""

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from crosstask.data.task import Examples, Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.models.batches import Prepared
from crosstask.models.multitask import Model
from crosstask.progress import Progress, make_progress, shown
from crosstask.training.problem import without_overlap
from crosstask_papers.linearized.linearized_model import Change, LinearUnits, fit
from crosstask_papers.linearized.projected_gradients import ProjectedGradients

if TYPE_CHECKING:
    from crosstask.learner import Learner

MAX_EXHAUSTIVE = 128
"""The best subset is searched among all where there are no more than this, else by adding and taking away."""


class AffinityOptions(TypedDict, total=False):
    """Options of `linearized_affinity`.

    - `dimension`: d of the projection of shared gradients, 400 when left out; a task's own parameters have a quarter;
    - `limit`: examples of each task that are used at most, sampled at random; 1000 when left out;
    - `units_per_example`: words of a sentence, or labels of a multilabel example, that are used at most; 4 when left
      out;
    - `ridge`: penalty for gradients that are scaled so that the target's have a mean square of 1; 1e-3 when left out.
      Small stands for long training;
    - `seed`: of the projection and of what is sampled;
    - `progress`: a bar that counts examples.
    """

    dimension: int
    limit: int
    units_per_example: int
    ridge: float
    seed: int
    progress: Progress | None


class Affinity:
    """The target's dev loss after training with any subset of the sources, as `linearized_affinity` estimates it.

    Each subset is a convex fit of a fraction of a second, done when it is asked for and then cached.

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

    def best_subset(self, max_size: int | None = None, *, errors: float = 1.0) -> tuple[str, ...]:
        """The sources, at most `max_size` of them, with the largest gain together; none where nothing helps.

        All subsets are tried where they are few; else sources are added and taken away one by one, each time the one
        that lowers the loss most, until no such step lowers it. Of the best, sources that hardly count are then left
        out, as long as the loss does not rise above the least by more than `errors` standard errors of the difference;
        with 0 all stay.
        """
        if max_size is not None and max_size < 1:
            raise CrossTaskError(f"`max_size` must be at least 1, found {max_size}.")
        max_size = min(max_size or len(self.sources), len(self.sources))
        if sum(math.comb(len(self.sources), size) for size in range(max_size + 1)) <= MAX_EXHAUSTIVE:
            best = self._best_of_all(max_size)
        else:
            best = self._best_by_steps(max_size)
        # Leave out what hardly counts: the smallest subset that is about as good as the best.
        smallest = best
        while smallest and errors > 0:
            candidates = [smallest - {source} for source in self.sources if source in smallest]
            smaller = min(candidates, key=self.loss)
            rise, error = self._difference(smaller, best)
            if not rise <= errors * error:
                break
            smallest = smaller
        return tuple(source for source in self.sources if source in smallest)

    def _best_of_all(self, max_size: int) -> frozenset[str]:
        subsets: list[frozenset[str]] = []
        for size in range(max_size + 1):
            subsets.extend(frozenset(subset) for subset in combinations(self.sources, size))
        return min(subsets, key=self.loss)  # of equals the first, which is the smaller one

    def _best_by_steps(self, max_size: int) -> frozenset[str]:
        """Greedy: in each step one source more or one less, whichever lowers the loss most."""
        best: frozenset[str] = frozenset()
        while True:
            neighbors = [best ^ {source} for source in self.sources]
            nearest = min((subset for subset in neighbors if len(subset) <= max_size), key=self.loss)
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
        # Units of one example are not independent: the error is that over examples.
        _, indices, counts = np.unique(self._dev.examples, return_inverse=True, return_counts=True)
        if len(counts) < 2:
            return float(by_unit.mean()), math.nan
        by_example = np.bincount(indices, by_unit) / counts
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
            tasks = [self._train[self.target]]
            tasks.extend(self._train[source] for source in self.sources if source in names)
            change = fit(tasks, self.ridge, start=self._alone)
            self._alone = self._alone or change
            self._losses[names] = self._dev.losses(self._dev.outputs(change.shared, change.own[0]))
            self.seconds["fits"] += time.perf_counter() - started
        return self._losses[names]


def linearized_affinity(
    model: Model,
    train: Mapping[str, Prepared | Examples],
    dev: Mapping[str, Prepared | Examples],
    target: str,
    sources: Sequence[str],
    **options: Unpack[AffinityOptions],
) -> Affinity:
    """Estimate, from a model of all tasks, how training on any subset of the sources would change the target's loss.

    Close to the parameters theta_0 of the base model, an output is linear in the change of the parameters (Grad-TAG, Li
    et al. 2024):

        f(x; theta) = f(x; theta_0) + g(x)' (theta - theta_0),    theta - theta_0 = P w

    Training on a set S of tasks becomes a regression on projected gradients, for classes the logistic one

        w_S = argmin  sum_{t in S} mean_i log(1 + exp(-f_i - (P'g_i)' w))  +  ridge / 2 |w|^2

    and the gain of the sources S is what they take off the linear model's loss on the target's dev examples, against
    the fit to the target alone. One pass of gradients serves all subsets.

    - f: the margin of the right class, `linearized_model.margins`; for regression the prediction, with squared errors;
    - P, P'g: a seeded random projection, `ProjectedGradients`;
    - w_S: `linearized_model.fit`.

    It works for every kind of task, and across kinds. Gains are in units of the target's loss. Their order is what they
    are good for: the base has learned from all sources already, which the target's fit alone cannot undo, so gains come
    out smaller than those of training afresh.

    Args:
        model: trained on the target and all sources together, for about half as long as one would train; one that
            overfits its training set tells little.
        train: training examples of the target and the sources by name, prepared or as they are in a task.
        dev: held-out examples of the target by its name.
        target: the task that matters.
        sources: tasks that may help.
        options: `dimension`, `limit`, `units_per_example`, `ridge`, `seed` and `progress`; see `AffinityOptions`.

    Differs from the paper: every task counts the same, as in normalized joint training, where the paper pools
    examples; the fit has a penalty; shared parameters and those of heads are projected apart, and matrices from both
    sides, which a backward pass over a batch gives at once; the loss is the linear model's own, and no network is run
    with the changed parameters. With more than two classes the margin, not every logit, is taken as linear.
    """
    ridge, limit, seed = options.get("ridge", 1e-3), options.get("limit", 1000), options.get("seed", 0)
    dimension, units_per_example = options.get("dimension", 400), options.get("units_per_example", 4)
    _check_options(dimension=dimension, limit=limit, units_per_example=units_per_example, ridge=ridge)
    names = _check_names(model, train, dev, target, sources)
    started = time.perf_counter()
    # 1. The examples: training examples of every task, and held-out ones of the target at the end.
    sets = [_sampled(_prepared(model, name, train[name]), limit, seed) for name in names]
    sets.append(_sampled(_prepared(model, target, dev[target]), limit, seed))
    # 2. Their projected gradients at the base model.
    gradients = ProjectedGradients(model, dimension=dimension, own_dimension=max(1, dimension // 4), seed=seed)
    if not any(block.owner is None for block in gradients.blocks):
        raise CrossTaskError(
            "The tasks share no parameter that learns, so that no source can help: with a frozen encoder, set `hidden` "
            "under `encoder`."
        )
    bar = options.get("progress") or Progress()
    bar.start("gradients", sum(len(examples) for examples in sets))
    units, num_examples = [], 0
    for examples in sets:
        units.append(gradients.of(examples, units_per_example=units_per_example, progress=bar, num_before=num_examples))
        num_examples += len(examples)
    bar.stop()
    # 3. One scale for all, so that the penalty means the same for every model.
    scale = _gradient_size(units[0])
    *train_units, dev_units = (replace(task, shared=task.shared / scale, own=task.own / scale) for task in units)
    seconds = {"gradients": time.perf_counter() - started}
    by_name = dict(zip(names, train_units, strict=True))
    return Affinity(target, sources, by_name, dev_units, ridge=ridge, seconds=seconds)


linearised_affinity = linearized_affinity
"""The name in version 0.1."""


def task_affinity(
    target: Task, sources: Sequence[Task], learner: "Learner | None" = None, **options: Unpack[AffinityOptions]
) -> Affinity:
    """Train a base model on all tasks for half of a learner's budget, and estimate what each subset of sources brings.

    Args:
        target: the task that matters; its dev examples measure.
        sources: tasks that may help.
        learner: encoder, settings, seed and progress bar; weighting, transfer and paradigm play no part, the base is
            trained jointly with every task counting the same.
        options: those of `linearized_affinity`.
    """
    from crosstask.learner import Learner

    if target.dev is None:
        raise _no_dev(target.name)
    if not sources:
        raise _no_sources()
    learner = learner or Learner()
    if learner.drop_overlap:  # before the base model is trained, and for the linear models too
        sources = without_overlap(sources, [target])
    training = learner.training
    updates = training.updates
    if updates is not None:
        updates = max(1, updates // 2)
    training = replace(training, keep="last", epochs=max(1, training.epochs // 2), updates=updates)
    base = Learner(
        learner.encoder, paradigm="normalized-joint", training=training, seed=learner.seed, progress=learner.progress
    )
    started = time.perf_counter()
    model = base.fit(target, sources).model
    seconds = time.perf_counter() - started
    with shown(make_progress(learner.progress)) as bar:
        options.setdefault("seed", learner.seed)
        options.setdefault("progress", bar)
        affinity = linearized_affinity(
            model,
            {task.name: task.train for task in (target, *sources)},
            {target.name: target.dev},
            target.name,
            [task.name for task in sources],
            **options,
        )
    affinity.seconds["base"] = seconds
    return affinity


def _gradient_size(units: LinearUnits) -> float:
    """The length of a unit's gradient by all parameters, as the root of the mean square."""
    square = float((units.shared**2).sum(axis=1).mean() + (units.own**2).sum(axis=1).mean())
    return math.sqrt(square) or 1.0


def _prepared(model: Model, name: str, examples: Prepared | Examples) -> Prepared:
    if isinstance(examples, Prepared):
        return examples
    return Prepared.of(model.encoder, model.specs[name], examples)


def _sampled(prepared: Prepared, limit: int, seed: int) -> Prepared:
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
