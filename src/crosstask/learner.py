"""The learner: tasks in, a trained model of the target out."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, CrossTaskWarning
from crosstask.methods import make_transfers, make_weighting, papers_of
from crosstask.models.batches import Prepared
from crosstask.models.build import build_encoder, feature_section, mean_section, trusts_remote_code
from crosstask.models.memory import within_machine
from crosstask.models.multitask import Model
from crosstask.report import write_if_possible, write_missing_page, write_run_page
from crosstask.runs.callbacks import Callback, read_callbacks
from crosstask.runs.events import DevEvaluation, Note, PhaseEnd, SkippedStep, Start, TaskDescription, Warned
from crosstask.runs.loading import load_run
from crosstask.runs.predictor import Decision, Inputs
from crosstask.runs.record import Record
from crosstask.runs.run import PlainRecipe, Run, RunFolder
from crosstask.runs.run_metrics import Metrics
from crosstask.runs.tracking import Track, check_installed, read_trackers
from crosstask.storage import check_path
from crosstask.training.calibration import RuleFitter
from crosstask.training.config import Training, TrainingSettings, make_training
from crosstask.training.measurement import Measured, measure, targets_still_rising, too_short
from crosstask.training.paradigms import Plan, find_paradigm, plan_phases
from crosstask.training.problem import LearningProblem
from crosstask.training.session import Session
from crosstask.training.trainer import Phase, RunContext, Trainer, TrainingData
from crosstask.training.windows import PreparedWindows, check_windows
from crosstask.transfer import Transfer
from crosstask.transfer.base import Ability, copies_for_run, start_transfers
from crosstask.validation import Named, Seed, check_value, name_and_options
from crosstask.weighting import Weighting

FINE_TUNING_RATE = 5e-5
"""Learning rate of a pretrained encoder that learns, where `training` names none."""
DEFAULT_RATE = 1e-3
"""Learning rate of everything else."""


class Learner:
    """Trains a model of a target task with the help of source tasks.

    Args:
        encoder: "minilm", a folder or hub id, "textcnn", "lstm", "mlp", "linear", "relu", or a mapping with `name` and
            options.
        paradigm: "single", "pretrain", "joint", "normalized-joint", "probe", "stacking", "contrastive" or "names"; by
            default normalized-joint, or single where there is no source.
        weighting: how much each task counts, as an object, a name, or a mapping; the paradigm's own by default.
        transfer: what else passes between tasks.
        drop_overlap: leave training examples out whose input stands in dev or test of a target that is another task: a
            model that was trained on them knows them, as it will not know new ones. The record says how many.
        training: settings of the loop; single ones can also be given by name (`epochs=10`).
        track: "tensorboard", "wandb" or "mlflow", a mapping with `name` and options, a tracker of Accelerate, or a list
            of these: where losses, weights and scores are shown as the run goes.
        seed: of initialization, order and dropout.
        progress: show a bar; by default when the error stream is a terminal.
        callbacks: functions that are called with every event of a run as it happens (`crosstask.runs.events`); one that
            raises `StopTraining` ends the phase after its next evaluation, and any other exception ends the run.
        settings: single settings of the loop, the fields of `Training`.
    """

    def __init__(
        self,
        encoder: Named = "minilm",
        *,
        paradigm: str | None = None,
        weighting: Weighting | Named | None = None,
        transfer: Sequence[Transfer | Named] | Transfer | Named | None = (),
        drop_overlap: bool = True,
        training: Training | Mapping[str, Any] | None = None,
        track: Track = None,
        seed: int = 0,
        progress: bool | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        **settings: Unpack[TrainingSettings],
    ) -> None:
        check_value("Learner", "seed", Seed, seed)
        check_value("Learner", "progress", bool | None, progress)
        check_value("Learner", "drop_overlap", bool, drop_overlap)
        if paradigm is not None:
            find_paradigm(paradigm)
        name_and_options("encoder", encoder)
        self.encoder = encoder
        self.paradigm = paradigm
        self.weighting = make_weighting(weighting)
        self.transfer = make_transfers("Learner", transfer)
        self.drop_overlap = drop_overlap
        self.trained_transfers: list[Transfer] = []  # copies of `transfer` that the last fit trained
        self.training = make_training(training, settings)
        self.track = read_trackers(track)
        check_installed(self.track)
        self.seed = seed
        self.progress = progress
        self.callbacks = read_callbacks(callbacks)
        self.run: Run | None = None

    def fit(
        self,
        target: Task | Sequence[Task],
        sources: Task | Sequence[Task] | None = (),
        *,
        output: str | Path | RunFolder | None = None,
        resume: bool = False,
    ) -> Run:
        """Train, choose by the target's dev score, measure, and return the run.

        Args:
            target: the task that matters, or several.
            sources: tasks that may help, or one.
            output: run folder; without one nothing is written. `RunFolder.checked` makes one that holds another recipe
                than the learner's settings, or no model.
            resume: go on from the last checkpoint in `output`.
        """
        problem = LearningProblem.of(target, sources, self.paradigm)
        self._check_names(problem)
        folder, recipe = self._run_folder(problem, output, resume)
        session = Session(folder, recipe, self.training.precision, self.callbacks, shard=self.training.shard)
        if folder is not None and folder.is_finished:  # which can be read where nothing may be written
            self.run = reopen(folder, trusts_remote_code(self.encoder))
            return self.run
        with session.writing():
            if folder is not None and folder.is_finished:  # by a process that wrote to it until now
                self.run = reopen(folder, trusts_remote_code(self.encoder))
            else:
                self.run = self._train(problem, session)
                session.finish(self.run)
                _warn_of_skipped(self.run)
        return self.run

    def _train(self, problem: LearningProblem, session: Session) -> Run:
        """From the tasks to a run whose model and metrics are still to be written."""
        with session.running(self.track, self.progress):
            if self.drop_overlap:
                problem = problem.without_overlap()
            problem = problem.limited(self.seed)
            self.trained_transfers = copies_for_run(self.transfer)
            section, notes = self._encoder_section(problem)
            model = self._make_model(problem.trained_tasks, section)
            model.encoder.show_on(session.progress)
            # Before features are computed: a refusal should come at once.
            phases = self._plan(problem, model)
            train, dev = _prepare(model, problem.trained_tasks)
            with within_machine("transfer"):
                start_transfers(self.trained_transfers, model, problem.trained_tasks, problem.target_names)
            context = RunContext(
                session.devices,
                session.record,
                session.checkpoints_folder,
                session.progress,
                self.seed,
                session.recipe_digest,
                session.wants_to_stop,
            )
            windows = self._windows(problem, model, train)
            data = TrainingData(train, dev, tuple(problem.target_names), windows)
            trainer = Trainer(model, data, context, self.trained_transfers)
            # Nothing is written before this line: what could go wrong with the user's input has not.
            checkpoint = session.open(partial(trainer.check, phases))
            if checkpoint is None:
                self._describe_start(session.record, problem, model, [*notes, *session.devices.notes()])
            trainer.run(phases, checkpoint)
            last_tasks = [problem.tasks[name] for name in phases[-1].tasks if name not in trainer.set_aside]
            rules = RuleFitter(model, problem.target_names, self.training, session.record, trainer.state.held_out)
            measured = measure(model, last_tasks, dev, problem.target_names, rules)
            trainer.put_together()
            metrics = self._metrics(problem, phases, measured, session, trainer.set_aside)
            _write_judgement(session.record, measured, metrics.get("still_rising", []))
            session.tracking.final(measured.scores)
        return Run(
            model.eval(),
            record=session.record,
            metrics=metrics,
            recipe=session.recipe,
            folder=session.folder,
            measured=measured.rows,
            write_page=_write_page,
        )

    def predict(
        self,
        inputs: Inputs,
        task: str | None = None,
        *,
        abstain: float | None = None,
        min_confidence: float | None = None,
    ) -> Sequence[Decision | None]:
        """Labels for new inputs, by the last run's model; see `Predictor.predict`."""
        if self.run is None:
            raise CrossTaskError("The learner has not been fitted yet: call `fit` first.")
        return self.run.predict(inputs, task, abstain=abstain, min_confidence=min_confidence)

    def describe(self, paradigm: str, tasks: Mapping[str, Task]) -> PlainRecipe:
        """The learner's settings and the sizes of its tasks, as plain data."""
        sections = {}
        for name, task in tasks.items():
            sections[name] = {"kind": task.kind, **_split_sizes(task)}
        return {
            "encoder": self.encoder if isinstance(self.encoder, str) else dict(self.encoder),
            "paradigm": paradigm,
            "weighting": self._weighting_name,
            "transfer": [transfer.name for transfer in self.transfer],
            "drop_overlap": self.drop_overlap,
            "training": asdict(self.training),
            "seed": self.seed,
            "tasks": sections,
        }

    @property
    def _weighting_name(self) -> str | None:
        """None where the paradigm chooses the weighting."""
        return None if self.weighting is None else self.weighting.name

    def _check_names(self, problem: LearningProblem) -> None:
        """Weights by task name must name tasks that exist."""
        if self.weighting is not None:
            self.weighting.check_names(problem.tasks)

    def _run_folder(
        self, problem: LearningProblem, output: str | Path | RunFolder | None, resume: bool
    ) -> tuple[RunFolder | None, PlainRecipe]:
        """The run folder, checked, and the recipe that is written there."""
        if isinstance(output, RunFolder):
            return output, output.recipe
        if output is not None:
            check_path(output, "`output`")
        recipe = self.describe(problem.paradigm.name, problem.tasks)
        if output is None:
            return None, recipe
        return RunFolder.checked(output, recipe, resume=resume), recipe

    def _encoder_section(self, problem: LearningProblem) -> tuple[Named, list[str]]:
        """The encoder that the paradigm reads, and notes on options that it does not use."""
        paradigm = problem.paradigm
        if not paradigm.needs_labels and not problem.sources:
            feature_section(self.encoder)  # refuses one that knows nothing before it is trained
        if paradigm.frozen_features:
            return feature_section(self.encoder)
        compares_vectors = paradigm.mean_vectors or any(transfer.mean_vectors for transfer in self.transfer)
        if compares_vectors or self.training.head == "names":
            return mean_section(self.encoder), []
        return self.encoder, []

    def _make_model(self, tasks: Sequence[Task], section: Named | None = None) -> Model:
        """Encoder first, then the heads, targets before sources: the same seed gives every paradigm the same start."""
        torch.manual_seed(self.seed)
        encoder = build_encoder(section or self.encoder, tasks)
        torch.manual_seed(self.seed)
        with within_machine("model"):
            return Model(encoder, [task.spec for task in tasks])

    def _plan(self, problem: LearningProblem, model: Model) -> list[Phase]:
        settings = self.training
        if settings.learning_rate is None:
            is_fine_tuned = model.encoder.is_pretrained and bool(model.shared_parameters())
            if is_fine_tuned and not self._has_frozen_encoder:
                settings = replace(settings, learning_rate=FINE_TUNING_RATE)
            else:
                settings = replace(settings, learning_rate=DEFAULT_RATE)
        sizes = {name: len(task.train) for name, task in problem.tasks.items()}
        plan = Plan(
            tuple(problem.target_names),
            tuple(problem.source_names),
            sizes,
            settings,
            self.weighting,
            tuple(self.trained_transfers),
            {name: task.num_examples for name, task in problem.tasks.items() if task.windows is not None},
        )
        phases = plan_phases(problem.paradigm.name, plan)
        check_windows(problem.trained_tasks, problem.target_names, phases)
        for phase in phases:
            if phase.objective is not None:
                phase.objective.check(model, phase.tasks)
        return phases

    def _windows(
        self, problem: LearningProblem, model: Model, train: Mapping[str, Prepared]
    ) -> dict[str, PreparedWindows]:
        """Of sources that are larger than memory, the examples of each epoch."""
        windows: dict[str, PreparedWindows] = {}
        for task in problem.trained_tasks:
            if task.windows is None:
                continue
            judges = [task, *problem.targets] if self.drop_overlap else [task]
            held_out = [examples for one in judges for examples in (one.dev, one.test) if examples is not None]
            windows[task.name] = PreparedWindows(task, model.encoder, held_out, train[task.name])
        return windows

    @property
    def _has_frozen_encoder(self) -> bool:
        """Whether a transfer will freeze the encoder when it starts."""
        return any(Ability.FROZEN_ENCODER in transfer.provides for transfer in self.trained_transfers)

    def _describe_start(self, record: Record, problem: LearningProblem, model: Model, notes: Sequence[str]) -> None:
        """Write down tasks and sizes, and what a reader of the report should know before training."""
        parameters = {
            "all": sum(parameter.numel() for parameter in model.parameters()),
            "shared": sum(parameter.numel() for parameter in model.shared_parameters()),
        }
        paradigm = problem.paradigm
        record.write(Start(problem.target_names, problem.source_names, paradigm.name, self._weighting_name, parameters))
        for task in problem.tasks.values():
            record.write(TaskDescription(task.name, task.kind, list(task.labels), _split_sizes(task)))
            for note in task.notes:
                record.write(Note(note, task=task.name))
        for transfer in self.trained_transfers:
            for note in transfer.notes:
                record.write(Note(note, transfer=transfer.name))
        for task in problem.targets:
            is_trained = not paradigm.frozen_features and bool(paradigm.needs_labels or problem.sources)
            if task.dev is None and is_trained:
                record.write(Warned("no dev set: the model of the last epoch is kept", task=task.name))
        is_frozen = paradigm.frozen_features or self._has_frozen_encoder
        if not model.shared_parameters() and not is_frozen and len(model.specs) > 1:
            record.write(
                Warned(
                    "the tasks share no parameter that learns (frozen encoder without a shared layer), so the sources "
                    "cannot help; set `hidden` under `encoder`"
                )
            )
        for note in notes:
            record.write(Note(note))

    def _metrics(
        self,
        problem: LearningProblem,
        phases: Sequence[Phase],
        measured: Measured,
        session: Session,
        set_aside: set[str],
    ) -> Metrics:
        transfers = [transfer.name for transfer in self.transfer]
        papers = papers_of(problem.paradigm.name, self._weighting_name, transfers, self.training.schedule)
        trained_on = {}
        for phase in phases:
            trained_on.update({name: len(problem.tasks[name].train) for name in phase.tasks})
        return {
            "targets": problem.target_names,
            "paradigm": problem.paradigm.name,
            "uses_sources": problem.paradigm.uses_sources,
            "papers": [paper.key for paper in papers],
            "scores": measured.scores,
            "majority": measured.majority,
            "never_predicted": measured.never_predicted,
            "still_rising": targets_still_rising(session.record.events(DevEvaluation), problem.target_names),
            "weights": {end.name: end.weights for end in session.record.events(PhaseEnd) if end.kept != "solved"},
            "trained_on": trained_on,
            "set_aside": sorted(set_aside),
            "seconds": session.seconds,
        }


def reopen(folder: RunFolder, trust_remote_code: bool = False) -> Run:
    """A finished run; what a kill at its very end left undone is done."""
    run = load_run(folder.path, trust_remote_code=trust_remote_code)
    folder.tidy()
    write_missing_page(folder.path)
    return run


def _warn_of_skipped(run: Run) -> None:
    if run.record.of(SkippedStep.event):
        warnings.warn(" ".join(f"{sentence}." for sentence in run.warnings), CrossTaskWarning, stacklevel=3)


def _write_page(folder: Path) -> None:
    write_if_possible(lambda: write_run_page(folder), folder)


def _write_judgement(record: Record, measured: Measured, rising: Sequence[str]) -> None:
    """What a reader should know beside the scores."""
    for note in measured.notes:
        record.write(note)
    for target in rising:
        record.write(too_short(record.events(DevEvaluation), target))


def _split_sizes(task: Task) -> dict[str, int]:
    return {split: len(examples) for split, examples in task.splits.items()}


def _prepare(model: Model, tasks: Sequence[Task]) -> tuple[dict[str, Prepared], dict[str, Prepared]]:
    """Training and dev examples as the encoder reads them, by task; training sets of all tasks first."""
    train = {task.name: Prepared.of(model.encoder, task.spec, task.train) for task in tasks}
    dev = {task.name: Prepared.of(model.encoder, task.spec, task.dev) for task in tasks if task.dev is not None}
    return train, dev
