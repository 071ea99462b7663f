"""The runs of a comparison: methods x targets x seeds, each in a folder of its own."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NotRequired

from typing_extensions import TypedDict

from crosstask.baton import clock
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.report import write_missing_page
from crosstask.runs.events import Row
from crosstask.runs.record import METRICS_FILE, MODEL_FOLDER, RECIPE_FILE
from crosstask.runs.run import Run, RunFolder, read_recipe
from crosstask.storage import (
    DamagedFileError,
    explain_write_errors,
    folder_name,
    lock_folder,
    read_json,
    remove_scratch,
)
from crosstask.studies.grid import Fact, Grid, RunKey, open_grid
from crosstask.studies.hyperparameters import Trial
from crosstask.studies.method import Method, Named
from crosstask.studies.options import content, overlap_fact, same_budget, tasks_by_name
from crosstask.studies.population import train_population
from crosstask.studies.tuned_weights import Weights, WeightTrial, candidate_weights, tune_weights
from crosstask.training.config import Training

AXES = ("method", "target", "seed", "trial")
RUNS_FOLDER = "runs"
ORPHAN_SECONDS = 10.0
"""To wait for a worker that has lost its comparison."""


class Measured(TypedDict):
    """What a comparison reads of a run's `metrics.json`; scores that are not defined are null there."""

    scores: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    weights: Mapping[str, Mapping[str, float | None]]
    seconds: float
    majority: NotRequired[Mapping[str, Mapping[str, Mapping[str, float | None]]]]
    still_rising: NotRequired[Sequence[str]]


class MethodRow(TypedDict):
    """The row of a run: its key, its target's scores by split and metric, and the weights of each phase.

    - `majority`: scores of always answering what is most common in training;
    - `still_rising`: whether the dev score was still rising at the end.
    """

    method: str
    target: str
    seed: int
    trial: str
    scores: Mapping[str, Mapping[str, float | None]]
    weights: Mapping[str, Mapping[str, float | None]]
    seconds: float | None
    majority: NotRequired[Mapping[str, Mapping[str, float | None]]]
    still_rising: NotRequired[bool]
    run: NotRequired[str]


def run_key(method: str, target: str, seed: int, trial: str = "") -> RunKey:
    """One run; `trial` names the settings that are tried, where some are searched."""
    return RunKey.of(method=method, target=target, seed=seed, trial=trial)


class SeededTasks:
    """The tasks for a seed, by name; the last ones are kept, since the methods of a seed come one after the other."""

    def __init__(self, make: Callable[[int], Sequence[Task]]) -> None:
        self.make = make
        self._last: tuple[int, dict[str, Task]] | None = None

    def __call__(self, seed: int) -> dict[str, Task]:
        if self._last is None or self._last[0] != seed:
            self._last = seed, tasks_by_name(self.make(seed))
        return self._last[1]

    def __getstate__(self) -> dict[str, object]:
        # A worker makes its own: what a function makes need not travel.
        return {"make": self.make, "_last": None}


@dataclass(frozen=True, eq=False)
class MethodStudy:
    """What all runs of a comparison have in common.

    The same seed gives every method the same examples, the same start and the same number of updates, so that scores
    are pairs. The phases of a method (`pretrain` has two) share the updates.

    - `folder`: where each run gets a folder of its own under `runs`, if anywhere;
    - `keep_models`: whether those hold the model too, and checkpoints from which a run that was killed goes on;
    - `trials`: of every method by name, where settings are searched;
    - `drop_overlap`: as for `Learner`.
    """

    tasks: SeededTasks
    encoder: Named
    training: Training
    methods: Mapping[str, Method]
    folder: Path | None = None
    keep_models: bool = False
    trials: Mapping[str, Mapping[str, Trial]] = field(default_factory=dict)
    drop_overlap: bool = True

    def run(self, key: RunKey) -> Row:
        """Train one run; returns its scores, or the reason why this method does not go with these tasks."""
        tasks = self.tasks(key["seed"])
        try:
            return self._measure(key, tasks)
        except CrossTaskError as error:
            return {"refused": str(error)}

    def _measure(self, key: RunKey, tasks: Mapping[str, Task]) -> Row:
        """What a run measured; a folder that was finished before a kill is read, not trained again."""
        method = self.method(key)
        training = self.budget(method, key["target"], tasks)
        # 1. Train, or read what was trained before a kill.
        started = clock()
        seconds: float | None
        folder = None if self.folder is None else self.folder / run_folder(key)
        finished = None if folder is None else _read_finished(folder)
        if finished is not None:
            measured = finished
            seconds = measured["seconds"]
        else:
            goes_on = folder is not None and self._prepare_folder(folder)
            if method.tune and goes_on and folder is not None:
                method = replace(method, weighting=read_recipe(folder / RECIPE_FILE)["weighting"], tune=0)
            elif method.tune:
                method = self._tuned(method, training, key, tasks, folder)
            metrics = self._train(method, training, key, tasks, folder).metrics
            measured = {
                "scores": metrics["scores"],
                "weights": metrics["weights"],
                "seconds": metrics["seconds"],
                "majority": metrics.get("majority", {}),
                "still_rising": metrics.get("still_rising", []),
            }
            # How long the run took before the kill is not known.
            seconds = None if goes_on else round(clock() - started, 3)
        if folder is not None:
            shutil.rmtree(_search_folder(folder), ignore_errors=True)
        # 2. What the table needs of it.
        scores = measured["scores"].get(key["target"], {})
        row: Row = {"scores": scores, "weights": measured["weights"], "seconds": seconds}
        row["majority"] = measured.get("majority", {}).get(key["target"], {})
        if key["target"] in measured.get("still_rising", []):
            row["still_rising"] = True
        if folder is not None:
            row["run"] = run_folder(key)
        return row

    def draw_missing_pages(self, keys: Iterable[RunKey]) -> None:
        """Pages of runs with a model that a kill or a full disk has prevented."""
        if self.folder is None or not self.keep_models:
            return
        for key in keys:
            folder = self.folder / run_folder(key)
            if (folder / MODEL_FOLDER).exists():
                write_missing_page(folder)

    def _prepare_folder(self, folder: Path) -> bool:
        """Remove what a killed run left behind; whether there is a checkpoint to go on from."""
        remove_scratch(folder)
        if folder.is_dir():
            # A worker of a comparison that was killed lives on for a second.
            with explain_write_errors(folder):
                lock_folder(folder, patience=ORPHAN_SECONDS).release()
        if not self.keep_models:
            shutil.rmtree(folder, ignore_errors=True)
        return RunFolder(folder).checkpoints.exists()

    def _train(
        self, method: Method, training: Training, key: RunKey, tasks: Mapping[str, Task], folder: Path | None
    ) -> Run:
        target, learner = key["target"], self._learner(method, training, key)
        # The target first, as in a recipe; weighting and transfers with their options, not by name alone.
        recipe = learner.describe(method.paradigm, {target: tasks[target], **tasks})
        recipe |= {"weighting": method.weighting, "transfer": list(method.transfer)}
        sources = [task for name, task in tasks.items() if name != target]
        if folder is None:
            return learner.fit(tasks[target], sources)
        output = RunFolder.checked(folder, recipe, resume=folder.exists(), keep_model=self.keep_models)
        return learner.fit(tasks[target], sources, output=output)

    def _tuned(
        self,
        method: Method,
        training: Training,
        key: RunKey,
        tasks: Mapping[str, Task],
        folder: Path | None = None,
    ) -> Method:
        """The method with the fixed weights that short runs have found; `folder` is that of the run."""
        target = tasks[key["target"]]
        sources = [task for name, task in tasks.items() if name != target.name]
        candidates = candidate_weights(target.name, [task.name for task in sources], method.tune, key["seed"])

        def with_weights(weights: Weights) -> Method:
            return replace(method, weighting={"name": "fixed", "weights": weights}, tune=0, rounds=1)

        def make_learner(weights: Weights, settings: Training) -> Learner:
            return self._learner(with_weights(weights), settings, key)

        if method.rounds == 1:
            return with_weights(tune_weights(make_learner, training, target, sources, candidates)[0].weights)
        if len(method.gradient_phases(target.name, tasks, training)) > 1:
            raise CrossTaskError(
                "a search of weights in rounds needs target and sources in one phase of training: use the paradigm "
                "'joint' or 'normalized-joint', or one round (tuned-weights)."
            )

        def search(folder: Path) -> list[WeightTrial]:
            return train_population(
                make_learner, training, target, sources, candidates, folder, num_rounds=method.rounds, seed=key["seed"]
            )

        if folder is not None:
            return with_weights(search(_search_folder(folder))[0].weights)
        with TemporaryDirectory() as scratch:
            return with_weights(search(Path(scratch))[0].weights)

    def learner(self, key: RunKey, tasks: Mapping[str, Task]) -> Learner:
        """The learner of a run, with weights that have been searched where the method has such."""
        method = self.method(key)
        training = self.budget(method, key["target"], tasks)
        if method.tune:
            method = self._tuned(method, training, key, tasks)
        return self._learner(method, training, key)

    def _learner(self, method: Method, training: Training, key: RunKey) -> Learner:
        return method.learner(self.encoder, training, key["seed"], drop_overlap=self.drop_overlap)

    def method(self, key: RunKey) -> Method:
        """The method of a run, with the settings that it tries."""
        if key["trial"]:
            return self.trials[key["method"]][key["trial"]].method
        return self.methods[key["method"]]

    def budget(self, method: Method, target: str, tasks: Mapping[str, Task]) -> Training:
        """Settings with which all phases together take as many updates as any other method."""
        training = method.settings(target, self.training)
        updates = same_budget(training, list(tasks.values())).updates or 1
        training = replace(training, updates=updates)
        total = method.num_updates(target, tasks, training) or updates  # a solver takes none
        return replace(training, updates=max(1, updates * updates // total))

    def open(self, seeds: Sequence[int]) -> Grid:
        """The runs that are there already; methods, targets and seeds can be added later."""
        # A fact for each method and seed: those that are added later change nothing for the others.
        settings = {"encoder": self.encoder, "training": asdict(self.training), **overlap_fact(self.drop_overlap)}
        facts = [Fact("settings", "", settings)]
        for name, method in self.methods.items():
            facts.append(Fact("method", name, {"method": method.to_json()}))
        for seed in sorted(seeds):
            digests = {name: content(task) for name, task in self.tasks(seed).items()}
            facts.append(Fact("data", str(seed), {"tasks": digests}))
        names = {"settings": "encoder or training", "method": "method '{}'", "data": "the data of seed {}"}
        return open_grid(self.folder, facts, kind="comparison", names=names, axes=AXES, results=MethodRow)


def _read_finished(folder: Path) -> Measured | None:
    """What a finished run measured; None if it has not finished, or has to be trained again for damage."""
    if not RunFolder(folder).is_finished:
        return None
    RunFolder(folder).tidy()
    try:
        return read_json(folder / METRICS_FILE, Measured)
    except DamagedFileError:
        shutil.rmtree(folder, ignore_errors=True)
        return None


def run_folder(key: RunKey) -> str:
    """Where a run is, from the comparison's folder on."""
    names = [folder_name(key["target"]), folder_name(key["method"])]
    if key["trial"]:
        names.append(folder_name(key["trial"]))
    return "/".join([RUNS_FOLDER, *names, f"seed-{key['seed']}"])


def _search_folder(folder: Path) -> Path:
    """Where a search of weights keeps what it has done until the run is over, beside the run's folder."""
    return folder.with_name(f"{folder.name}-search")
