"""One run at a time: a candidate on a fold, a few updates to see what they cost, and the last fit on all labels."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from crosstask.automl.budget import Cost
from crosstask.automl.candidates import UPDATES, Candidate, Level, training_of
from crosstask.automl.folds import Folds
from crosstask.automl.source_selection import Selection, limited
from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.runs.events import Row
from crosstask.runs.run import Run
from crosstask.training.config import Training

TRIAL_UPDATES, TRIAL_EVERY = 6, 2


class Bench:
    """What all runs of a search have in common: folds, sources and settings.

    `updates` are those of each level of candidates, the same for all of a level; they depend on the time that there is.
    """

    def __init__(
        self, target: Task, sources: Mapping[str, Task], selection: Selection, training: Training, seed: int
    ) -> None:
        self.target, self.training, self.seed = target, training, seed
        self.folds = Folds(target, seed)
        self.metric = chosen_metric(target.spec)
        self.updates: dict[Level, int] = {}
        on_features = {name: selection.limited(sources[name], seed) for name in selection.usable}
        seen = training.batch_size * training.accumulate * self.most_updates("fine-tuned")
        self.sources: dict[Level, dict[str, Task]] = {
            "solved": on_features,
            "network": on_features,
            "fine-tuned": {name: limited(sources[name], seen, seed) for name in selection.usable},
        }

    def most_updates(self, level: Level) -> int:
        """As many as the settings say, or as are usual."""
        return self.training.updates or UPDATES[level]

    def run(self, candidate: Candidate, fold: int) -> Row:
        """Train on all but the held-out part of a fold, and score that part; a network at every look."""
        started = time.perf_counter()
        target, sources = self.folds.tasks(fold, self._sources(candidate))
        run = self._learner(candidate, self.updates.get(candidate.level, 1), self.seed + fold).fit(target, sources)
        row: Row = {}
        if candidate.level == "solved":
            row["score"] = self._signed(run.scores[target.name]["dev"])
        else:
            row["curve"] = [self._signed(look["scores"]) for look in run.record.of("dev")]
        return {**row, "seconds": round(time.perf_counter() - started, 3)}

    def trial(self, candidate: Candidate) -> Cost:
        """What an update costs, and what comes before the first: a few updates, timed at looks at two examples."""
        started = time.perf_counter()
        target, sources = self.folds.tasks(0, self._sources(candidate))
        assert target.dev is not None
        target = replace(target, dev=target.dev.take(range(min(2, len(target.dev)))))
        learner = self._learner(candidate, TRIAL_UPDATES, self.seed)
        learner.training = replace(learner.training, evaluate_every=TRIAL_EVERY)
        run = learner.fit(target, sources)
        first, *_, last = (look["seconds"] for look in run.record.of("dev"))
        setup = time.perf_counter() - started - last
        return Cost(setup, (last - first) / (TRIAL_UPDATES - TRIAL_EVERY))

    def refit(
        self, candidate: Candidate, updates: int, *, test: bool, output: Path | None, recipe: Mapping[str, Any] | None
    ) -> Run:
        """The model: the candidate on all labels, with as many updates as the folds found best."""
        target = self.target if test else replace(self.target, test=None)
        learner = self._learner(candidate, updates, self.seed)
        if recipe is not None:
            used = {name: task for name, task in recipe["tasks"].items() if name in (target.name, *candidate.sources)}
            recipe = {**recipe, "tasks": used, **_described(candidate, learner)}
        return learner.fit(target, self._sources(candidate), output=output, recipe=recipe)

    def _learner(self, candidate: Candidate, updates: int, seed: int) -> Learner:
        training = self.training
        if candidate.level != "solved":
            training = training_of(candidate.level, training, candidate.encoder, updates)
        return Learner(
            candidate.encoder, paradigm=candidate.paradigm, weighting=candidate.weighting,
            transfer=candidate.transfer, training=training, seed=seed, progress=False,
        )  # fmt: skip

    def _sources(self, candidate: Candidate) -> Sequence[Task]:
        return [self.sources[candidate.level][name] for name in candidate.sources]

    def _signed(self, scores: Mapping[str, float | None]) -> float | None:
        """The score that chooses, higher being better; None where it is not defined."""
        value = scores[self.metric.name]
        if value is None or math.isnan(value):
            return None
        return value if self.metric.greater_is_better else -value


def _described(candidate: Candidate, learner: Learner) -> dict[str, Any]:
    """What a recipe has to say to train this candidate."""
    return {
        "encoder": dict(candidate.encoder),
        "paradigm": candidate.paradigm,
        "weighting": candidate.weighting,
        "transfer": list(candidate.transfer),
        "training": asdict(learner.training),
    }
