"""The learner: tasks in, a trained model of the target out."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch

from crosstask.data.metrics import check_metric, default_metric, score
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import make_transfer, make_weighting, papers_of
from crosstask.models.batches import Prepared
from crosstask.models.build import build_encoder, feature_section
from crosstask.models.evaluate import evaluate
from crosstask.models.multitask import Model
from crosstask.progress import make_progress, shown
from crosstask.report import write_run_page
from crosstask.runs.events import Note, PhaseEnd, Row, Start, TaskDescription, Warned
from crosstask.runs.prediction_log import measured_rows
from crosstask.runs.record import HISTORY_FILE, Record
from crosstask.runs.run import Run, RunFolder, load
from crosstask.runs.tracking import Tracking, check_installed, read_trackers
from crosstask.training import checkpoints
from crosstask.training.config import Training
from crosstask.training.devices import Devices
from crosstask.training.paradigms import Paradigm, Plan, default_paradigm, find_paradigm
from crosstask.training.trainer import Phase, Trainer
from crosstask.transfer import Transfer
from crosstask.transfer.base import Ability, copies_for_run, start_transfers
from crosstask.validation import check_options
from crosstask.weighting import Weighting


class Learner:
    """Trains a model of a target task with the help of source tasks.

    Args:
        encoder: "minilm", a folder or hub id, "textcnn", "lstm", "mlp", "linear", "relu", or a mapping with `name` and
            options.
        paradigm: "single", "pretrain", "joint", "normalized-joint", "probe" or "stacking"; by default
            normalized-joint, or single where there is no source.
        weighting: how much each task counts, as an object, a name, or a mapping; the paradigm's own by default.
        transfer: what else passes between tasks.
        training: settings of the loop; single ones can also be given by name (`epochs=10`).
        track: "tensorboard", "wandb" or "mlflow", a mapping with `name` and options, a tracker of Accelerate, or a list
            of these: where losses, weights and scores are shown as the run goes.
        seed: of initialisation, order and dropout.
        progress: show a bar; by default when the error stream is a terminal.
    """

    def __init__(
        self,
        encoder: str | Mapping[str, Any] = "minilm",
        *,
        paradigm: str | None = None,
        weighting: Weighting | str | Mapping[str, Any] | None = None,
        transfer: Sequence[Transfer | str | Mapping[str, Any]] = (),
        training: Training | Mapping[str, Any] | None = None,
        track: Any = None,
        seed: int = 0,
        progress: bool | None = None,
        **settings: Any,
    ) -> None:
        self.encoder = encoder
        if paradigm is not None:
            find_paradigm(paradigm)
        self.paradigm = paradigm
        self.weighting = make_weighting(weighting)
        self.transfer = [make_transfer(item) for item in transfer]
        given = asdict(training) if isinstance(training, Training) else dict(training or {})
        given.update(settings)
        check_options("training", Training, given)
        self.training = Training(**given)
        self.track = read_trackers(track)
        check_installed(self.track)
        self.seed = seed
        self.progress = progress
        self.run: Run | None = None
        self.trained_transfers: list[Transfer] = []  # copies of `transfer` that the last fit trained

    def fit(
        self,
        target: Task | Sequence[Task],
        sources: Sequence[Task] = (),
        *,
        output: str | Path | None = None,
        resume: bool = False,
        recipe: Mapping[str, Any] | None = None,
        keep_model: bool = True,
    ) -> Run:
        """Train, choose by the target's dev score, measure, and return the run.

        Args:
            target: the task that matters, or several.
            sources: tasks that may help.
            output: run folder; without one nothing is written.
            resume: go on from the last checkpoint in `output`.
            recipe: what to write down as the run's recipe; the learner's own settings by default.
            keep_model: whether `output` gets the model, checkpoints on the way to it, and a page; without them it holds
                what was measured, and a run that was stopped starts again.
        """
        targets = [target] if isinstance(target, Task) else list(target)
        names = [task.name for task in targets]
        if self.paradigm is None:
            paradigm = default_paradigm(len(targets), len(sources))
        else:
            paradigm = find_paradigm(self.paradigm)
        tasks = self._check_tasks(targets, sources)
        described = dict(recipe or self.describe(paradigm.name, tasks))
        devices = Devices(self.training.precision)
        folder = RunFolder(Path(output)) if output is not None else None
        if folder is not None:
            folder.check_recipe(described) if resume else folder.check_new()
            if folder.is_finished:
                self.run = cast(Run, load(folder.path))
                return self.run
        devices.wait()
        started = time.perf_counter()
        tracking = Tracking(self.track if devices.is_main else [])
        with tracking, shown(make_progress(self.progress if devices.is_main else False)) as progress:
            transfers = self.trained_transfers = copies_for_run(self.transfer)
            section, notes = feature_section(self.encoder) if paradigm.frozen_features else (self.encoder, [])
            if paradigm.limit_source is not None:
                sources = [paradigm.limit_source(task, self.seed) for task in sources]
                tasks.update({task.name: task for task in sources})
            taken = [*targets, *sources] if paradigm.uses_sources else targets
            model = self._make_model(taken, section)
            model.encoder.show_on(progress)
            # Before features are computed: a refusal should come at once.
            phases = self._plan(paradigm, targets, sources, model, transfers)
            train = {task.name: Prepared.of(model.encoder, task.spec, task.train) for task in taken}
            dev = {task.name: Prepared.of(model.encoder, task.spec, task.dev) for task in taken if task.dev is not None}
            start_transfers(transfers, model, taken, names)
            if folder is not None and not resume and devices.is_main:
                folder.create(described)  # only now: what could go wrong with the user's input has not
            checkpoint = checkpoints.load_latest(folder.checkpoints) if folder is not None and resume else None
            record = Record(
                folder.path / HISTORY_FILE if folder is not None and devices.is_main else None,
                keep=int(checkpoint.state["history_rows"]) if checkpoint else 0,
            )
            tracking.start(record, described, None if folder is None else folder.path)
            if checkpoint is None:
                self._describe_start(record, paradigm, targets, sources, model, transfers)
                for note in notes:
                    record.write(Note(note))
            trainer = Trainer(
                model,
                train,
                dev,
                targets=names,
                transfers=transfers,
                devices=devices,
                record=record,
                folder=folder.checkpoints if folder is not None and keep_model else None,
                progress=progress,
                seed=self.seed,
            )
            trainer.run(phases, checkpoint)
            measured = [tasks[name] for name in phases[-1].tasks if name not in trainer.set_aside]
            scores, examples = _measure(model, measured, dev, names)
            tracking.final(scores)
        metrics = {
            "targets": names,
            "paradigm": paradigm.name,
            "uses_sources": paradigm.uses_sources,
            "papers": self._paper_keys(paradigm.name),
            "scores": scores,
            "weights": {end.name: end.weights for end in record.events(PhaseEnd)},
            "trained_on": {name: len(train[name]) for phase in phases for name in phase.tasks},
            "set_aside": sorted(trainer.set_aside),
            "seconds": round(time.perf_counter() - started, 1),
        }
        self.run = Run(
            model.eval(),
            names,
            record=record,
            metrics=metrics,
            recipe=described,
            folder=folder,
            measured=examples,
            write_page=write_run_page,
        )
        if folder is not None and devices.is_main:
            folder.finish(self.run, keep_model=keep_model)
            if keep_model:
                write_run_page(folder.path)
        devices.wait()
        return self.run

    def predict(self, inputs: Sequence[Any], task: str | None = None) -> list[Any]:
        """Labels for new inputs, by the last run's model."""
        if self.run is None:
            raise CrossTaskError("The learner has not been fitted yet: call `fit` first.")
        return self.run.predict(inputs, task)

    def describe(self, paradigm: str, tasks: Mapping[str, Task]) -> dict[str, Any]:
        """The learner's settings and the sizes of its tasks, as plain data."""
        weighting = self.weighting
        return {
            "encoder": dict(self.encoder) if isinstance(self.encoder, Mapping) else self.encoder,
            "paradigm": paradigm,
            "weighting": weighting.name if weighting else None,
            "transfer": [transfer.name for transfer in self.transfer],
            "training": asdict(self.training),
            "seed": self.seed,
            "tasks": {
                name: {"kind": task.kind, **{part: len(rows) for part, rows in task.splits.items()}}
                for name, task in tasks.items()
            },
        }

    def _paper_keys(self, paradigm: str) -> list[str]:
        """Keys in BibTeX of the papers that the run's methods come from."""
        weighting = self.weighting.name if self.weighting else None
        transfers = [transfer.name for transfer in self.transfer]
        return [paper.key for paper in papers_of(paradigm, weighting, transfers, self.training.schedule)]

    def _check_tasks(self, targets: Sequence[Task], sources: Sequence[Task]) -> dict[str, Task]:
        if not targets:
            raise CrossTaskError("There is no target task.")
        tasks: dict[str, Task] = {}
        for task in [*targets, *sources]:
            if task.name in tasks:
                raise CrossTaskError(f"Two tasks are called '{task.name}'; every task needs a name of its own.")
            check_metric(task.spec.metric or default_metric(task.spec), task.spec)
            tasks[task.name] = task
        if self.weighting is not None:
            self.weighting.check_names(tasks)
        return tasks

    def _make_model(self, tasks: Sequence[Task], section: str | Mapping[str, Any] | None = None) -> Model:
        """Encoder first, then the heads, targets before sources: the same seed gives every paradigm the same start."""
        torch.manual_seed(self.seed)
        encoder = build_encoder(self.encoder if section is None else section, tasks)
        torch.manual_seed(self.seed)
        return Model(encoder, [task.spec for task in tasks])

    def _plan(
        self,
        paradigm: Paradigm,
        targets: Sequence[Task],
        sources: Sequence[Task],
        model: Model,
        transfers: Sequence[Transfer],
    ) -> list[Phase]:
        settings = self.training
        if settings.learning_rate is None:
            frozen = any(Ability.FROZEN_ENCODER in transfer.provides for transfer in transfers)  # by `start`, later
            learns = bool(model.shared_parameters()) and not frozen
            settings = replace(settings, learning_rate=5e-5 if learns and model.encoder.is_pretrained else 1e-3)
        sizes = {task.name: len(task.train) for task in [*targets, *sources]}
        plan = Plan(
            tuple(task.name for task in targets),
            tuple(task.name for task in sources),
            sizes,
            settings,
            self.weighting,
            tuple(transfer.name for transfer in self.transfer),
        )
        phases = paradigm.plan(plan)
        for transfer in transfers:
            phases = transfer.plan(plan, phases)
        return phases

    def _describe_start(
        self,
        record: Record,
        paradigm: Paradigm,
        targets: Sequence[Task],
        sources: Sequence[Task],
        model: Model,
        transfers: Sequence[Transfer],
    ) -> None:
        parameters = {
            "all": sum(p.numel() for p in model.parameters()),
            "shared": sum(p.numel() for p in model.shared_parameters()),
        }
        record.write(
            Start(
                targets=[task.name for task in targets],
                sources=[task.name for task in sources],
                paradigm=paradigm.name,
                weighting=self.weighting.name if self.weighting else None,
                parameters=parameters,
            )
        )
        for task in [*targets, *sources]:
            sizes = {part: len(rows) for part, rows in task.splits.items()}
            record.write(TaskDescription(task.name, task.kind, list(task.labels), sizes))
            for note in task.notes:
                record.write(Note(note, task=task.name))
        for transfer in transfers:
            for note in transfer.notes:
                record.write(Note(note, transfer=transfer.name))
        for task in targets:
            if task.dev is None and not paradigm.frozen_features:
                record.write(Warned("no dev set: the model of the last epoch is kept", task=task.name))
        frozen = any(Ability.FROZEN_ENCODER in transfer.provides for transfer in transfers)
        frozen = frozen or paradigm.frozen_features
        if not model.shared_parameters() and not frozen and len(model.specs) > 1:
            record.write(
                Warned(
                    "the tasks share no parameter that learns (frozen encoder without a shared layer), so the sources "
                    "cannot help; set `hidden` under `encoder`"
                )
            )


def _measure(
    model: Model, tasks: Sequence[Task], dev: Mapping[str, Prepared], targets: Sequence[str]
) -> tuple[dict[str, dict[str, dict[str, float]]], list[Row]]:
    """Scores on dev and test of every task that was trained last; of targets also what was said of each example."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    examples: list[Row] = []
    for task in tasks:
        parts = {"dev": dev.get(task.name)}
        if task.test is not None:
            parts["test"] = Prepared.of(model.encoder, task.spec, task.test)
        found = {part: evaluate(model, prepared)[0] for part, prepared in parts.items() if prepared is not None}
        scores[task.name] = {part: score(predictions) for part, predictions in found.items()}
        if task.name in targets and found:
            part = "test" if "test" in found else "dev"
            examples += measured_rows(part, task.splits[part], found[part])
    return scores, examples
