"""One run at a time: a candidate on a fold, a few updates to see what they cost, and the last fit on all labels."""

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from crosstask.automl.budget import Cost
from crosstask.automl.candidates import Candidate, FineTuning, Level, training_of
from crosstask.automl.folds import WHOLE, Folds
from crosstask.automl.recipe import limited_section
from crosstask.data.metrics import Metric, chosen_metric
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.probing.known_fits import KNOWN_FITS
from crosstask.runs.events import Row
from crosstask.runs.run import PlainRecipe, Run, RunFolder
from crosstask.storage import DamagedFileError
from crosstask.studies.method import Section
from crosstask.training.config import Training
from crosstask.training.problem import without_overlap

TIMED_UPDATES = (4, 12, 60)
"""Of the runs whose difference tells what an update costs: of the first two, and where these are quick of the last two,
for the first updates of a card prepare later ones."""
QUICK_SECONDS = 5.0
MAX_OUTPUTS = 200_000
"""Numbers that a fold's predictions may have to be kept for an ensemble."""


class Evaluator:
    """What all runs of a search have in common: folds, sources and settings.

    Args:
        target: with all labels in `train`.
        sources: by level and name, cut to what is read of them in the time. Folds have them without inputs of
            the target's test set, as the last fit takes them out itself.
        training: the user's settings of the loop.
        fine_tuning: how a pretrained encoder is fine-tuned.
        updates: of each level's runs.
        seed: of folds and starts.
        drop_overlap: for the last fit; folds always hold out inputs from the sources too.
    """

    def __init__(
        self,
        target: Task,
        sources: Mapping[Level, Mapping[str, Task]],
        training: Training,
        fine_tuning: FineTuning,
        updates: Mapping[Level, int],
        seed: int,
        *,
        drop_overlap: bool = True,
    ) -> None:
        self.target, self.sources = target, sources
        self.training, self.fine_tuning, self.updates = training, fine_tuning, dict(updates)
        self.seed, self.drop_overlap = seed, drop_overlap
        self.folds = Folds(target, seed)
        self._clean_sources: dict[tuple[Level, str], Task] = {}

    @property
    def metric(self) -> Metric:
        """By which candidates are judged."""
        return chosen_metric(self.target.spec)  # made anew: no process could be sent it

    def run(self, candidate: Candidate, fold: int, quarters: int = WHOLE) -> Row:
        """Train on what a fold leaves, or on so many quarters of that, and score the held-out examples."""
        started, source_seconds = time.perf_counter(), KNOWN_FITS.source_seconds
        target, sources = self.folds.tasks(fold, self._sources(candidate), quarters)
        # A start for each fold; a solver has none, and finds what it fitted to the sources before.
        seed = self.seed if candidate.level == "solved" else self.seed + fold
        run = self._learner(candidate, self.updates.get(candidate.level, 1), seed).fit(target, sources)
        assert target.dev is not None
        row: Row = {"score": self._signed(run.scores[target.name]["dev"])}
        outputs = run.predictions(target.dev.inputs, target.name).outputs
        if sum(map(np.size, outputs)) <= MAX_OUTPUTS:
            row["outputs"] = [np.round(np.asarray(output, dtype=np.float64), 4).tolist() for output in outputs]
        row["seconds"] = round(time.perf_counter() - started, 3)
        row["source_seconds"] = round(KNOWN_FITS.source_seconds - source_seconds, 3)
        return row

    def measure_cost(self, candidate: Candidate, seconds: float) -> Cost:
        """What an update costs, and what comes before the first: short runs, evaluated on two examples.

        Where the first has taken more than these seconds, it must do, although it is slower than later ones.
        """
        target, sources = self.folds.tasks(0, self._sources(candidate))
        assert target.dev is not None
        target = replace(target, dev=target.dev.take(range(min(2, len(target.dev)))))
        first, second, third = TIMED_UPDATES
        first_seconds = self._timed(candidate, first, target, sources)
        if first_seconds > seconds:
            return Cost(0.0, first_seconds / first)
        second_seconds = self._timed(candidate, second, target, sources)
        if second_seconds < min(QUICK_SECONDS, seconds / 2.0):
            first, first_seconds = second, second_seconds
            second, second_seconds = third, self._timed(candidate, third, target, sources)
        update = max(0.0, second_seconds - first_seconds) / (second - first)
        # The first run loads what later ones find loaded.
        return Cost(max(0.0, second_seconds - second * update), update)

    def _timed(self, candidate: Candidate, updates: int, target: Task, sources: Sequence[Task]) -> float:
        started = time.perf_counter()
        self._learner(candidate, updates, self.seed).fit(target, sources)
        return time.perf_counter() - started

    def fit_on_all_labels(self, candidate: Candidate, *, output: Path | None, recipe: Section | None) -> Run:
        """The model: the candidate on all labels."""
        target = self.target
        sources = [self.sources[candidate.level][name] for name in candidate.sources]
        learner = self._learner(candidate, self.updates.get(candidate.level, 1), self.seed, is_last=True)
        if output is None:
            return learner.fit(target, sources)
        tasks = {task.name: task for task in (target, *sources)}
        plain_recipe = learner.describe(candidate.method.paradigm, tasks)
        if recipe is not None:
            plain_recipe = dict(self._recipe(recipe, candidate, tasks, learner.training))
        try:
            return learner.fit(target, sources, output=_folder_to_fit_in(output, plain_recipe))
        except DamagedFileError:  # what is left of a call that was stopped is of no use
            shutil.rmtree(output, ignore_errors=True)
            return learner.fit(target, sources, output=RunFolder.checked(output, plain_recipe))

    def _learner(self, candidate: Candidate, updates: int, seed: int, *, is_last: bool = False) -> Learner:
        training = training_of(candidate, self.training, updates, self.fine_tuning)
        if not is_last:
            # What a fold holds out judges: it must not choose thresholds too.
            training = replace(training, calibration="none", thresholds=False)
        return candidate.method.learner(candidate.encoder, training, seed, drop_overlap=self.drop_overlap)

    def _sources(self, candidate: Candidate) -> Sequence[Task]:
        sources: list[Task] = []
        for name in candidate.sources:
            key = (candidate.level, name)
            if key not in self._clean_sources:
                source = self.sources[candidate.level][name]
                self._clean_sources[key] = without_overlap([source], [self.target])[0] if self.drop_overlap else source
            sources.append(self._clean_sources[key])
        return sources

    def _signed(self, scores: Mapping[str, float | None]) -> float | None:
        """The score that chooses, higher being better; None where it is not defined."""
        score = scores[self.metric.name]
        if score is None or math.isnan(score):
            return None
        if self.metric.greater_is_better:
            return score
        return -score

    def _recipe(self, recipe: Section, candidate: Candidate, tasks: Mapping[str, Task], training: Training) -> Section:
        """The user's recipe with what trains this candidate, on the very examples that it was trained on."""
        method = candidate.method
        sections: dict[str, Section] = {}
        for name, section in recipe["tasks"].items():
            if name == self.target.name:
                sections[name] = limited_section(section, len(self.target.train))
            elif name in tasks:
                sections[name] = limited_section(section, len(self.sources[candidate.level][name].train))
        return {
            **recipe,
            "tasks": sections,
            "encoder": candidate.encoder,
            "paradigm": method.paradigm,
            "weighting": method.weighting,
            "transfer": list(method.transfer),
            "training": asdict(training),
            "drop_overlap": self.drop_overlap,
            "seed": self.seed,
        }


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
