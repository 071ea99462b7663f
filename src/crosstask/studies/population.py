"""Population-based training of fixed weights: short runs in rounds, after each of which the worst copy the best.

What Royer et al. (2023) advise for many tasks, after Jaderberg et al. (2017). A population of runs trains with
different fixed weights. After each round the runs with the highest loss are replaced by copies of those with the
lowest, model and optimizer included, whose weights are changed a little. So time goes to weights that do well where
training is now, and weights can be found that no run began with.

All runs begin alike and see the same batches in the same order: they differ by their weights alone. A copy goes on from
a checkpoint, as a run does that was stopped. What is done is kept in a folder, so that a search that was stopped goes
on, too.

Ray Tune's `PopulationBasedTraining` is not used: a comparison already has a run for each method, target and seed, which
are what goes side by side, on Ray or here; the few lines of the rule itself need no cluster.

Differs from the papers: what counts at the end are the weights, with which a run of full length is trained on all
labels; the population's own models are dropped. Jaderberg et al. let members train at the same time and copy whenever
one is ready; here they come one after the other, and copy when the round is over. Rounds are few and short, so that
weights are doubled or halved, where they change hyperparameters by a fifth.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.runs.callbacks import StopTraining
from crosstask.runs.events import DevEvaluation, Event, PhaseEnd
from crosstask.runs.record import CHECKPOINTS_FOLDER
from crosstask.storage import read_json, write_text
from crosstask.studies.tuned_weights import (
    LARGEST,
    SMALLEST,
    UPDATES_OF_TRIAL,
    MakeLearner,
    Weights,
    WeightTrial,
    judging_tasks,
    normalized,
)
from crosstask.training.config import Training
from crosstask.weighting.static import Fixed

NUM_ROUNDS = 4
"""Unless a method says otherwise."""
REPLACED_FRACTION = 0.25
"""Of the population, after each round; Jaderberg et al. replace a fifth."""
FACTOR = 2.0
"""By which a copy's weights are multiplied or divided."""
LOSS_FILE = "loss.json"
"""In the folder of a run that has come to the end of its round."""


@dataclass(frozen=True)
class Member:
    """One of a population: its weights, and which one of the round before it goes on from, if any."""

    weights: Weights
    parent: int | None = None


def next_population(
    population: Sequence[Member], losses: Sequence[float], target: str, generator: np.random.Generator
) -> list[Member]:
    """Each goes on as it is, but for the worst and those that diverged: copies of the best, with other weights.

    >>> population = [Member({"target": 0.5, "source": 0.5}), Member({"target": 0.8, "source": 0.2})]
    >>> for member in next_population(population, [0.3, 0.9], "target", np.random.default_rng(0)):
    ...     print(member.parent, {task: round(weight, 2) for task, weight in member.weights.items()})
    0 {'target': 0.5, 'source': 0.5}
    0 {'target': 0.67, 'source': 0.33}
    """
    count = max(1, int(REPLACED_FRACTION * len(population)))
    order = sorted(range(len(population)), key=losses.__getitem__)
    best = [number for number in order[:count] if math.isfinite(losses[number])]
    worst = [number for number in order if number in order[-count:] or not math.isfinite(losses[number])]
    members: list[Member] = []
    for number, member in enumerate(population):
        if number in worst and best:
            parent = best[int(generator.integers(len(best)))]
            members.append(Member(perturbed(population[parent].weights, target, generator), parent))
        else:
            members.append(Member(member.weights, number))
    return members


def perturbed(weights: Weights, target: str, generator: np.random.Generator) -> Weights:
    """Each source's weight, relative to the target's, doubled or halved, as far as such weights are tried at all."""
    relative: dict[str, float] = {}
    for task, weight in weights.items():
        if task != target:
            factor = FACTOR if generator.random() < 0.5 else 1.0 / FACTOR
            relative[task] = min(max(factor * weight / weights[target], SMALLEST), LARGEST)
    return normalized(target, relative)


def train_population(
    make_learner: MakeLearner,
    training: Training,
    target: Task,
    sources: Sequence[Task],
    candidates: Sequence[Weights],
    folder: Path,
    *,
    num_rounds: int = NUM_ROUNDS,
    seed: int = 0,
) -> list[WeightTrial]:
    """The population after its last round, the best first.

    As with `tune_weights`, the loss judges, the test set plays no part, and all rounds together have a part of the
    run's updates.

    Args:
        make_learner: the learner of a run, by its weights and settings; with one phase of gradient steps.
        training: settings of the run that the weights are for, with a number of `updates`.
        target: with a dev set that judges, or without one, so that its labels judge in parts.
        sources: those that are weighted.
        candidates: weights to begin with, one set for each member.
        folder: for checkpoints of each member; a search that was stopped goes on from there.
        num_rounds: after all but the last the worst copy the best.
        seed: of what is copied, and how weights change.
    """
    updates = round_updates(training.updates or 1, num_rounds)
    settings = replace(
        training,
        updates=num_rounds * updates,
        evaluate_every=updates,
        checkpoint_every=updates,
        patience=None,
        keep="last",
    )
    runs = _Runs(make_learner, settings, updates, judging_tasks(target), sources, folder)
    generator = np.random.default_rng(seed)
    population = [Member(weights) for weights in candidates]
    losses: list[float] = []
    for number in range(num_rounds):
        if number:
            population = next_population(population, losses, target.name, generator)
        losses = [runs.loss(number, index, member) for index, member in enumerate(population)]
        runs.forget_round(number - 1)
    runs.forget_round(num_rounds - 1)
    trials = [WeightTrial(member.weights, loss) for member, loss in zip(population, losses, strict=True)]
    return sorted(trials, key=lambda trial: trial.loss)


def round_updates(updates: int, num_rounds: int) -> int:
    """Updates of a round, in the search for a run with so many.

    >>> round_updates(320, num_rounds=4)
    20
    """
    return max(1, updates // UPDATES_OF_TRIAL // num_rounds)


@dataclass(frozen=True, eq=False)
class _Runs:
    """The runs of a population, by round, member and judge: `updates` in each round, checkpoints in `folder`."""

    make_learner: MakeLearner
    settings: Training
    updates: int
    judges: Sequence[Task]
    sources: Sequence[Task]
    folder: Path

    def loss(self, number: int, index: int, member: Member) -> float:
        """The mean loss of a member on what did not train it, after the round of this number."""
        total = 0.0
        num_examples = 0
        for judge_index, judge in enumerate(self.judges):
            assert judge.dev is not None
            path = self._path(number, index, judge_index)
            if not (path / LOSS_FILE).exists():
                origin = None if member.parent is None else self._path(number - 1, member.parent, judge_index)
                loss = self._train(member.weights, judge, (number + 1) * self.updates, path, origin)
                write_text(path / LOSS_FILE, json.dumps({"loss": loss}))
            loss = read_json(path / LOSS_FILE, dict[str, float | None])["loss"]
            total += (math.inf if loss is None else loss) * len(judge.dev)
            num_examples += len(judge.dev)
        return total / num_examples

    def _train(self, weights: Weights, judge: Task, update: int, path: Path, origin: Path | None) -> float | None:
        """Train up to an update, from the start or from where another run is; None where the run diverges."""
        shutil.rmtree(path, ignore_errors=True)  # what is left of a search that was stopped
        if origin is not None:
            shutil.copytree(origin, path, ignore=shutil.ignore_patterns(LOSS_FILE))
        pause = _Pause(judge.name, update)
        learner = self.make_learner(weights, self.settings)
        learner.weighting = _WeightsOfRound(weights)
        learner.callbacks = (pause,)
        try:
            learner.fit(judge, self.sources, output=path, resume=origin is not None)
        except _PausedError:
            for checkpoint in sorted((path / CHECKPOINTS_FOLDER).iterdir())[:-1]:
                shutil.rmtree(checkpoint)  # the last one is enough
            return pause.loss
        except CrossTaskError:  # what is wrong with the method rather than with weights, the run itself will say
            path.mkdir(parents=True, exist_ok=True)
        return None

    def forget_round(self, number: int) -> None:
        """Remove the checkpoints of a round, once no run goes on from them any more."""
        for path in self.folder.glob(f"{number}/*/{CHECKPOINTS_FOLDER}"):
            shutil.rmtree(path)

    def _path(self, number: int, index: int, judge_index: int) -> Path:
        return self.folder / str(number) / f"{index}-{judge_index}"


class _PausedError(Exception):
    """The round is over."""


class _Pause:
    """A callback that ends a run right after its checkpoint at an update, and notes the loss on dev there."""

    def __init__(self, task: str, update: int) -> None:
        self.task, self.update = task, update
        self.loss: float | None = None
        self.is_over = False

    def __call__(self, event: Event) -> None:
        """Stop the phase at the update's evaluation; the checkpoint follows, and then the end of the phase."""
        if isinstance(event, DevEvaluation) and (event.task, event.update) == (self.task, self.update):
            self.is_over = True
            if event.loss is not None and math.isfinite(event.loss):
                self.loss = event.loss
            raise StopTraining
        if isinstance(event, PhaseEnd) and self.is_over:
            raise _PausedError


class _WeightsOfRound(Fixed):
    """Fixed weights that are still those of now when a run goes on from a checkpoint of others."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with as many steps."""
        self.steps = int(state["steps"])
