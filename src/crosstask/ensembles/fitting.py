"""An ensemble of learners: what each counts is learned on labels that trained none of its models."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crosstask.data.overlap import DistinctInputs
from crosstask.data.task import Task
from crosstask.ensembles.out_of_fold import OutOfFold
from crosstask.ensembles.weights import Rule, cross_fitted, learn_weights, loss, metric_of
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.progress import make_progress, shown, step_by_step
from crosstask.quoting import shown as quoted
from crosstask.runs.ensemble import Ensemble, Member
from crosstask.training.paradigms import find_paradigm
from crosstask.training.problem import without_overlap
from crosstask.validation import items_of

MAX_FOLDS = 100


@dataclass(frozen=True, eq=False)
class FittedEnsemble:
    """An ensemble, and what its weights were learned from.

    - `ensemble`: the models as one predictor;
    - `out_of_fold`: what each learner said of labels that had not trained it;
    - `folds`: the fold of each of the target's training examples;
    - `rule`: how the weights were found;
    - `num_updates`: of all runs together.
    """

    ensemble: Ensemble
    out_of_fold: OutOfFold
    folds: np.ndarray
    rule: Rule
    num_updates: int

    @property
    def weights(self) -> dict[str, float]:
        """What each learner counts."""
        weights = dict.fromkeys(self.out_of_fold.members, 0.0)
        return {**weights, **self.ensemble.weights}

    def scores(self) -> dict[str, dict[str, float]]:
        """Out-of-fold loss and metric (higher being better) of each learner, and of `ensemble` with its weights
        learned fold by fold without the labels that it is measured on."""
        predictions = self.out_of_fold.predictions()
        scores: dict[str, dict[str, float]] = {}
        for name, each in predictions.items():
            scores[name] = {"loss": loss(each), "metric": metric_of(each)}
        mixed = cross_fitted(predictions, self.folds, self.rule)
        scores["ensemble"] = {"loss": loss(mixed), "metric": metric_of(mixed)}
        return scores


def fit_ensemble(
    learners: Mapping[str, Learner],
    target: Task,
    sources: Task | Sequence[Task] = (),
    *,
    folds: int = 5,
    refit: bool = True,
    rule: Rule = "mixture",
    seed: int = 0,
    progress: bool | None = None,
) -> FittedEnsemble:
    """Fit several learners, with and without sources, and weigh their models by labels that trained none of them.

    The target's training labels are dealt to folds. Each learner is fitted without one fold at a time and predicts it;
    `learn_weights` finds the weights of the ensemble that does best on these predictions (Caruana et al. 2004). Then
    each learner that has a weight is fitted on all labels.

    Args:
        learners: by name; those whose paradigm uses no sources get none. Each is fitted `folds` times, and once more.
        target: the task that matters. A dev set selects models as always; it has no part in the weights.
        sources: tasks that may help. What a fold holds out is never in them.
        folds: how many.
        refit: fit once more on all labels. Without, the models of the folds are the members, which saves those runs:
            each has seen a fold less, and there are more of them.
        rule: "mixture", "greedy", "best" or "uniform", see `learn_weights`.
        seed: of the folds.
        progress: show a bar; by default when the error stream is a terminal.
    """
    sources = items_of("fit_ensemble", "sources", sources, Task)
    _check(learners, target, folds)
    parts = deal_examples(target, folds, seed)
    out_of_fold = OutOfFold(target.spec, target.train)
    members: list[Member] = []
    num_updates = 0
    with shown(make_progress(progress)):
        # 1. Each learner on each fold.
        for fold in range(folds):
            held_out = np.flatnonzero(parts == fold)
            fold_target, fold_sources = fold_tasks(target, sources, held_out)
            inputs = target.train.take(held_out.tolist()).inputs
            for name in step_by_step(f"fold {fold + 1} of {folds}", list(learners)):
                learner = learners[name]
                run = _copy(learner, fold).fit(fold_target, _sources_of(learner, fold_sources))
                num_updates += run.num_updates
                out_of_fold.add(name, held_out, run.predictions(inputs, target.name).outputs)
                if not refit:
                    members.append(Member(name, 1.0, run))
        # 2. What each counts, and the models that do.
        weights = learn_weights(out_of_fold.predictions(), rule)
        if refit:
            for name in step_by_step("ensemble", [name for name in learners if weights[name]]):
                run = _copy(learners[name], 0).fit(target, _sources_of(learners[name], sources))
                num_updates += run.num_updates
                members.append(Member(name, weights[name], run))
        else:
            members = [replace(member, weight=weights[member.name] / folds) for member in members]
    return FittedEnsemble(Ensemble(members, target.name), out_of_fold, parts, rule, num_updates)


def deal_examples(target: Task, num_folds: int, seed: int) -> np.ndarray:
    """The fold of each training example, [examples]: all examples of an input in one, classes in proportion."""
    labels = None
    if target.kind in ("classification", "pair"):
        labels = target.train.labels
    inputs = DistinctInputs.of(target.train.inputs)
    if len(inputs) < num_folds:
        raise CrossTaskError(
            f"Task '{target.name}' has {len(inputs)} different inputs in its training examples, fewer than the "
            f"{num_folds} folds: label some more, or use fewer folds."
        )
    return inputs.deal(labels, num_folds, np.random.default_rng(seed))


def fold_tasks(target: Task, sources: Sequence[Task], held_out: np.ndarray) -> tuple[Task, list[Task]]:
    """The target without these training examples, and the sources without their inputs."""
    train = target.train
    others = np.setdiff1d(np.arange(len(train)), held_out)
    judged = replace(target, dev=train.take(held_out.tolist()), test=None)
    return replace(target, train=train.take(others.tolist()), test=None), without_overlap(sources, [judged])


def _check(learners: Mapping[str, Learner], target: Task, folds: int) -> None:
    if not isinstance(target, Task):
        raise CrossTaskError("fit_ensemble: `target` must be a `Task`.")
    if not isinstance(learners, Mapping) or not learners:
        raise CrossTaskError("fit_ensemble: `learners` maps names to learners; name at least one.")
    for name, learner in learners.items():
        if not isinstance(learner, Learner):
            raise CrossTaskError(f"fit_ensemble: '{name}' must be a `Learner`.")
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= MAX_FOLDS:
        raise CrossTaskError(
            f"fit_ensemble: `folds` must be a whole number from 2 to {MAX_FOLDS}, found {quoted(folds)}."
        )


def _sources_of(learner: Learner, sources: Sequence[Task]) -> Sequence[Task]:
    """None for a paradigm that uses none."""
    if learner.paradigm is not None and not find_paradigm(learner.paradigm).uses_sources:
        return []
    return sources


def _copy(learner: Learner, fold: int) -> Learner:
    """A learner of the same settings, of which nothing is left when it is done; folds have seeds of their own."""
    copied = copy.copy(learner)
    copied.seed, copied.run = learner.seed + fold, None
    return copied
