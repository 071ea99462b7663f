"""One run at a time: a candidate on a fold, a few updates to see what they cost, and the last fit on all labels."""

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from crosstask.automl.budget import Cost
from crosstask.automl.candidates import LEVELS, UPDATES, Candidate, Level, training_of
from crosstask.automl.folds import Folds
from crosstask.automl.source_selection import Selection, limited
from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.runs.events import Row
from crosstask.runs.run import PlainRecipe, Run, RunFolder
from crosstask.storage import DamagedFileError
from crosstask.studies.method import Section
from crosstask.training.config import Training

TIMED_UPDATES, TIMED_EVERY = 6, 2
"""Of the run that measures what an update costs, and from one evaluation in it to the next."""


class Evaluator:
    """What all runs of a search have in common: folds, sources and settings.

    `updates` are those of each level of candidates, the same for all of a level; they depend on the time that there is.
    `drop_overlap` is for the last fit: folds always hold out inputs from the sources too.
    """

    def __init__(
        self,
        target: Task,
        sources: Mapping[str, Task],
        selection: Selection,
        training: Training,
        seed: int,
        *,
        drop_overlap: bool = True,
    ) -> None:
        self.target, self.training, self.seed, self.drop_overlap = target, training, seed, drop_overlap
        self.folds = Folds(target, seed)
        self.metric = chosen_metric(target.spec)
        self.updates: dict[Level, int] = {}
        # Fine-tuning reads no more examples than its updates take.
        max_examples = training.batch_size * training.accumulate * self.max_updates("fine-tuned")
        self.sources: dict[Level, dict[str, Task]] = {level: {} for level in LEVELS}
        for name in selection.usable:
            on_features = selection.limited(sources[name], seed)
            self.sources["solved"][name] = self.sources["network"][name] = on_features
            self.sources["fine-tuned"][name] = limited(sources[name], max_examples, seed)

    def max_updates(self, level: Level) -> int:
        """As many as the settings say, or as are usual."""
        return self.training.updates or UPDATES[level]

    def run(self, candidate: Candidate, fold: int) -> Row:
        """Train on all but the held-out examples of a fold, and score those; a network at every evaluation."""
        started = time.perf_counter()
        target, sources = self.folds.tasks(fold, self._sources(candidate))
        learner = self._learner(candidate, self.updates.get(candidate.level, 1), self.seed + fold)
        # What a fold holds out judges: it must not choose thresholds too.
        learner.training = replace(learner.training, calibration="none", thresholds=False)
        run = learner.fit(target, sources)
        row: Row = {}
        if candidate.level == "solved":
            row["score"] = self._signed(run.scores[target.name]["dev"])
        else:
            row["curve"] = [self._signed(evaluation["scores"]) for evaluation in run.record.of("dev")]
        return {**row, "seconds": round(time.perf_counter() - started, 3)}

    def measure_cost(self, candidate: Candidate) -> Cost:
        """What an update costs, and what comes before the first: a few updates, evaluated on two examples."""
        started = time.perf_counter()
        target, sources = self.folds.tasks(0, self._sources(candidate))
        assert target.dev is not None
        target = replace(target, dev=target.dev.take(range(min(2, len(target.dev)))))
        # The time between two evaluations is that of the updates in between, if evaluating takes none.
        learner = self._learner(candidate, TIMED_UPDATES, self.seed)
        learner.training = replace(learner.training, evaluate_every=TIMED_EVERY)
        run = learner.fit(target, sources)
        first, *_, last = run.record.of("dev")
        setup = time.perf_counter() - started - last["seconds"]
        return Cost(setup, (last["seconds"] - first["seconds"]) / (TIMED_UPDATES - TIMED_EVERY))

    def fit_on_all_labels(
        self, candidate: Candidate, updates: int, *, test: bool, output: Path | None, recipe: Section | None
    ) -> Run:
        """The model: the candidate on all labels, with as many updates as the folds found best."""
        target = self.target
        if not test:
            target = replace(target, test=None)
        sources = self._sources(candidate)
        learner = self._learner(candidate, updates, self.seed)
        if output is None:
            return learner.fit(target, sources)
        tasks = {task.name: task for task in (target, *sources)}
        plain_recipe = learner.describe(candidate.method.paradigm, tasks)
        if recipe is not None:
            plain_recipe = dict(_recipe_of(recipe, candidate, list(tasks), learner.training))
        try:
            return learner.fit(target, sources, output=_folder_to_fit_in(output, plain_recipe))
        except DamagedFileError:  # what is left of a call that was stopped is of no use
            shutil.rmtree(output, ignore_errors=True)
            return learner.fit(target, sources, output=RunFolder.checked(output, plain_recipe))

    def _learner(self, candidate: Candidate, updates: int, seed: int) -> Learner:
        training = training_of(candidate, self.training, updates)
        return candidate.method.learner(candidate.encoder, training, seed, drop_overlap=self.drop_overlap)

    def _sources(self, candidate: Candidate) -> Sequence[Task]:
        return [self.sources[candidate.level][name] for name in candidate.sources]

    def _signed(self, scores: Mapping[str, float | None]) -> float | None:
        """The score that chooses, higher being better; None where it is not defined."""
        score = scores[self.metric.name]
        if score is None or math.isnan(score):
            return None
        if self.metric.greater_is_better:
            return score
        return -score


def _folder_to_fit_in(path: Path, recipe: PlainRecipe) -> RunFolder:
    """A new folder, or that of a call that was stopped while it fitted the same model, to go on from its checkpoint."""
    if not path.exists():
        return RunFolder.checked(path, recipe)
    try:
        RunFolder(path, recipe).check_recipe()
    except CrossTaskError:  # another model had won by then
        shutil.rmtree(path)
        return RunFolder.checked(path, recipe)
    return RunFolder.checked(path, recipe, resume=True)


def _recipe_of(recipe: Section, candidate: Candidate, tasks: Sequence[str], training: Training) -> Section:
    """The user's recipe with what trains this candidate."""
    method = candidate.method
    sections = {name: section for name, section in recipe["tasks"].items() if name in tasks}
    return {
        **recipe,
        "tasks": sections,
        "encoder": candidate.encoder,
        "paradigm": method.paradigm,
        "weighting": method.weighting,
        "transfer": list(method.transfer),
        "training": asdict(training),
    }
