"""The loop: batches -> losses -> weighting -> update, with a look at dev, a record and a checkpoint now and then."""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from crosstask.data.metrics import Metric, chosen_metric, score
from crosstask.errors import CrossTaskError
from crosstask.gradients.fused import FusedLosses
from crosstask.models.batches import Prepared, Step, Stream
from crosstask.models.evaluate import evaluate, features_and_labels
from crosstask.models.modes import twice_differentiable, without_dropout
from crosstask.models.multitask import Model
from crosstask.probing.probe import SolverSession
from crosstask.progress import Progress
from crosstask.runs.events import (
    DevEvaluation,
    HeldOutLosses,
    PhaseEnd,
    PhaseStart,
    SetAside,
    SkippedStep,
    TransferFacts,
    Update,
    WeightingFacts,
)
from crosstask.runs.record import Record
from crosstask.training import checkpoints
from crosstask.training.checkpoints import Checkpoint
from crosstask.training.config import Training
from crosstask.training.devices import Devices
from crosstask.training.forward import Stepper
from crosstask.training.selection import ModelSelection
from crosstask.training.support_query import draw, held_out_losses, support_and_query
from crosstask.transfer.base import Moment, Transfer
from crosstask.weighting.base import HeldOut, Weighting
from crosstask.weighting.evidence import Need

FEATURES = 2000
"""Examples of each task whose representations a weighting may look at before training."""
FAILURES_TO_SET_ASIDE = 10
"""A task whose loss is not finite this many times in a row takes no further part."""

DevScores = tuple[dict[str, Metric], dict[str, float], dict[str, float]]
"""By task: the metric that selects models, its value and the loss."""


@dataclass(frozen=True, eq=False)
class Phase:
    """One stretch of training: these tasks, weighted like this, and watched by the dev scores of those.

    `observed` are targets that this phase does not train on but shows to the weighting. `begin` prepares the model, for
    instance by saying which parameters learn. `solve` replaces gradient steps where a solver does all the work.
    """

    name: str
    tasks: tuple[str, ...]
    weighting: Weighting
    settings: Training
    watched: tuple[str, ...]
    observed: tuple[str, ...] = ()
    begin: Callable[[Model], None] = lambda model: None
    solve: Callable[[SolverSession], None] | None = None


class Trainer:
    """Runs the phases of a paradigm, from the start or from the last checkpoint."""

    def __init__(
        self,
        model: Model,
        train: Mapping[str, Prepared],
        dev: Mapping[str, Prepared],
        *,
        targets: Sequence[str],
        transfers: Sequence[Transfer] = (),
        devices: Devices,
        record: Record,
        folder: Path | None = None,
        progress: Progress | None = None,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.train_data = train
        self.dev_data = dev
        self.targets = tuple(targets)
        self.stepper = Stepper(model, devices, transfers)
        self.support: dict[str, Prepared] = {}
        self.query: dict[str, Prepared] = {}
        self.transfer_modules = torch.nn.ModuleList(transfers)  # one state for the checkpoint
        self.devices = devices
        self.record = record
        self.folder = folder
        self.progress = progress or Progress()
        self.seed = seed
        self.set_aside: set[str] = set()
        self.failures: dict[str, int] = {}
        self.recent: dict[str, list[float]] = {}
        self.best: dict[str, Tensor] = {}
        self.selection = ModelSelection()
        self.num_checkpoints = 0
        self.learning: set[str] = set()

    def run(self, phases: Sequence[Phase], resume_from: Checkpoint | None = None) -> None:
        """Train phase after phase; a checkpoint says which one to go on with, and where in it."""
        self.model.to(self.devices.device)
        self.transfer_modules.to(self.devices.device)
        for phase in phases:
            phase.begin(self.model)
            self.learning |= self.model.learning_names()
        first = 0
        if resume_from:
            first = int(resume_from.state["phase"])
            self.num_checkpoints = resume_from.state["number"]
            self.model.load_state_dict(resume_from.tensors["model"], strict=False)
            self.transfer_modules.load_state_dict(resume_from.tensors["transfers"])
            optimizers = [transfer.optimizer for transfer in self.stepper.transfers]
            checkpoints.restore_optimizers(optimizers, resume_from.tensors["transfer_optimizers"])
            self.set_aside = set(resume_from.state["set_aside"])
        for number in range(first, len(phases)):
            self._run_phase(number, phases[number], resume_from if number == first else None)
            self._save_checkpoint(number + 1)

    def _run_phase(self, number: int, phase: Phase, resumed: Checkpoint | None) -> None:
        settings, weighting = phase.settings, phase.weighting
        phase.begin(self.model)
        if phase.solve is not None:
            self._solve_phase(phase, phase.solve)
            return
        weighting.connect(self.devices.sum, self.devices.num_ranks)
        self.support, self.query = dict(self.train_data), {}
        if weighting.held_out is not None and weighting.held_out.kind == "query":
            self.support, self.query = support_and_query(
                self.train_data, self.dev_data, phase.tasks, weighting.held_out.query, self.seed
            )
        stream = Stream(
            {task: self.support[task].lengths() for task in dict.fromkeys((*phase.tasks, *phase.observed))},
            batch_size=settings.batch_size,
            schedule=settings.schedule,
            seed=self.seed,
            buckets=settings.length_buckets,
        )
        updates_per_epoch = math.ceil(stream.steps_per_epoch / settings.accumulate)
        num_updates = settings.updates or settings.epochs * updates_per_epoch
        evaluate_every = settings.evaluate_every or max(updates_per_epoch, (settings.updates or 0) // 10)
        optimizer = self._make_optimizer(settings)
        done = self._start_phase(number, phase, optimizer, resumed)
        started = time.perf_counter()
        self.progress.start(phase.name, num_updates, done)
        self.model.train()
        steps: list[Step] = []
        tired = False
        while done < num_updates and not tired:
            epoch, place = divmod(done, updates_per_epoch)
            if not steps or place == 0:
                steps = stream.epoch(epoch)
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * settings.rate_factor(done, num_updates)
            chosen = steps[place * settings.accumulate : (place + 1) * settings.accumulate]
            losses = self._update(phase, chosen, stream.probabilities, optimizer, done, num_updates)
            done += 1
            self._note_update(phase, epoch, done, num_updates, losses, optimizer)
            if done % evaluate_every == 0 or done == num_updates:
                self._evaluate(phase, epoch, done, started)
                waited = self.selection.evaluations_since_best
                tired = settings.patience is not None and waited >= settings.patience
            if done % (settings.checkpoint_every or evaluate_every) == 0:
                self._save_checkpoint(number, phase, optimizer, done)
        self._finish_phase(phase, done, tired)

    def _solve_phase(self, phase: Phase, solve: Callable[[SolverSession], None]) -> None:
        """A phase without gradient steps: no model is selected, and no checkpoint is needed within it."""
        started = time.perf_counter()
        self.record.write(PhaseStart(phase.name, list(phase.tasks), phase.weighting.weights))
        self.progress.start(phase.name, len(phase.tasks))
        fitted = itertools.count(1)
        session = SolverSession(
            model=self.model,
            train=self.train_data,
            tasks=phase.tasks,
            targets=self.targets,
            seed=self.seed,
            write=self.record.write,
            advance=lambda: self.progress.advance(next(fitted)),
        )
        solve(session)
        self._evaluate_on_dev(phase, 0, 0, started)
        self.record.write(PhaseEnd(phase.name, 0, False, None, "solved", phase.weighting.weights))
        self.progress.stop()

    def _update(
        self,
        phase: Phase,
        steps: Sequence[Step],
        probabilities: Mapping[str, float],
        optimizer: torch.optim.Optimizer,
        number: int,
        num_updates: int,
    ) -> dict[str, float]:
        """One update from one step, or from several whose gradients add up; returns the mean losses."""
        weighting = phase.weighting
        optimizer.zero_grad(set_to_none=True)
        shared = self.model.shared_parameters()
        seen: dict[str, list[float]] = {}
        for step in steps:
            step = {task: at for task, at in step.items() if task not in self.set_aside}
            for transfer in self.stepper.transfers:
                where = (self.model, self.support, step, number, num_updates, optimizer)
                step = transfer.before_step(Moment(*where, weighting.weights, self.devices))
            need = weighting.needs(weighting.steps)
            if Need.EXAMPLE_PRODUCTS in need:
                self.stepper.examine(self.support, step, weighting, self.targets)
            with twice_differentiable(Need.SECOND_ORDER in need):
                result = self.stepper.run(
                    self.support,
                    step,
                    apart=Need.GRADIENTS in need,
                    fused=Need.SEPARATE_GRAPHS not in need,
                    representations=Need.REPRESENTATIONS in need,
                    example_weights=weighting.example_weights if Need.EXAMPLE_WEIGHTS in need else None,
                    scale=1.0 / len(steps),
                )
                for task, value in result.values.items():
                    seen.setdefault(task, []).append(value)
                losses = self._only_finite(result.losses, result.values)
                if losses:
                    weighting.backward(
                        losses,
                        shared=shared,
                        probabilities=probabilities,
                        scale=1.0 / len(steps),
                        representations=result.representations,
                    )
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.devices.sum_gradients(parameters)
        for transfer in self.stepper.transfers:
            transfer.after_backward(self.model, number)
        limit = phase.settings.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        if torch.isfinite(norm):
            optimizer.step()
        else:
            self.record.write(SkippedStep("the gradient is not finite", sorted(seen)))
        if weighting.held_out is not None and weighting.wants_held_out:
            self._show_held_out(phase, weighting.held_out, number, optimizer.param_groups[0]["lr"])
        return {task: sum(values) / len(values) for task, values in seen.items()}

    def _show_held_out(self, phase: Phase, held_out: HeldOut, number: int, learning_rate: float) -> None:
        """Let the weighting learn from examples that this update did not train on, without dropout."""
        data = self.query if held_out.kind == "query" else self.support
        tasks = [task for task in dict.fromkeys((*phase.tasks, *phase.observed)) if task not in self.set_aside]
        step = draw(data, tasks, held_out.size or phase.settings.batch_size, self.seed, number)
        fused = Need.SEPARATE_GRAPHS not in held_out.need
        with without_dropout(self.model), twice_differentiable(Need.SECOND_ORDER in held_out.need):
            losses, values = held_out_losses(self.stepper, data, step, fused=fused)
            shared = self.model.shared_parameters()
            phase.weighting.after_step(losses, shared=shared, learning_rate=learning_rate)
        if values:
            self.record.write(HeldOutLosses(phase.name, number, dict(values)))

    def _only_finite(self, losses: dict[str, Tensor], values: Mapping[str, float]) -> dict[str, Tensor]:
        """The losses that may reach the weights. A task that keeps failing is set aside; a target may not fail."""
        good = {task: loss for task, loss in losses.items() if math.isfinite(values[task])}
        for task in losses:
            self.failures[task] = 0 if task in good else self.failures.get(task, 0) + 1
            if task in good:
                continue
            self.record.write(SkippedStep(f"the loss is {values[task]}", [task]))
            if self.failures[task] >= FAILURES_TO_SET_ASIDE:
                if task in self.targets:
                    raise CrossTaskError(
                        f"The loss of the target '{task}' was not finite {FAILURES_TO_SET_ASIDE} times in a row. "
                        "Lower `learning_rate`, use `precision: float32`, and look for extreme values in its data."
                    )
                self.set_aside.add(task)
                self.record.write(SetAside(task, f"{FAILURES_TO_SET_ASIDE} losses that are not finite"))
        return losses.only(list(good)) if isinstance(losses, FusedLosses) else good

    def _make_optimizer(self, settings: Training) -> torch.optim.Optimizer:
        rate = settings.learning_rate
        own = {id(p) for transfer in self.stepper.transfers for p in transfer.own_parameters()}
        modules = (self.model, self.transfer_modules)
        trained = [p for module in modules for p in module.parameters() if p.requires_grad and id(p) not in own]
        groups = [
            {"params": [p for p in trained if p.dim() > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
        ]
        groups = [{**group, "lr": rate, "full_rate": rate} for group in groups if group["params"]]
        return torch.optim.AdamW(groups, fused=True)

    def _start_phase(
        self, number: int, phase: Phase, optimizer: torch.optim.Optimizer, resumed: Checkpoint | None
    ) -> int:
        """Set everything to the phase's beginning, or to where the checkpoint was; returns the updates done."""
        torch.manual_seed(self.seed + 1000 * number + self.devices.rank)
        self.best, self.selection = {}, ModelSelection()
        self.recent = {}
        if resumed is None or resumed.state["updates"] is None:  # None: the checkpoint was made between two phases
            if Need.FEATURES in phase.weighting.needs(0):
                found = {task: features_and_labels(self.model, self.support[task], FEATURES) for task in phase.tasks}
                phase.weighting.fit_features(
                    {task: features for task, (features, _) in found.items()},
                    {task: labels for task, (_, labels) in found.items()},
                )
            self.record.write(PhaseStart(phase.name, list(phase.tasks), phase.weighting.weights))
            return 0
        state = resumed.state
        checkpoints.restore_optimizer(optimizer, resumed.tensors["optimizer"])
        phase.weighting.load_state_dict({**state["weighting"], **resumed.tensors["weighting"]})
        self.best = dict(resumed.tensors["best"])
        self.selection = ModelSelection.from_state(state["selection"])
        self.failures, self.recent = dict(state["failures"]), dict(state["recent"])
        random = resumed.tensors["random"]
        torch.set_rng_state(random[f"cpu.{self.devices.rank}"])
        if f"cuda.{self.devices.rank}" in random and self.devices.device.type == "cuda":
            torch.cuda.set_rng_state(random[f"cuda.{self.devices.rank}"], self.devices.device)
        return int(state["updates"])

    def _evaluate_on_dev(self, phase: Phase, epoch: int, done: int, started: float) -> DevScores:
        """Loss and selection metric of the watched tasks on their dev sets, written to the record."""
        metrics: dict[str, Metric] = {}
        values: dict[str, float] = {}
        losses: dict[str, float] = {}
        for task in phase.watched:
            if task in self.dev_data:
                predictions, losses[task] = evaluate(self.model, self.dev_data[task])
                scores = score(predictions)
                metrics[task] = chosen_metric(predictions.spec)
                values[task] = scores[metrics[task].name]
                seconds = round(time.perf_counter() - started, 3)
                self.record.write(DevEvaluation(phase.name, epoch + 1, done, task, losses[task], scores, seconds))
        return metrics, values, losses

    def _evaluate(self, phase: Phase, epoch: int, done: int, started: float) -> None:
        """Evaluate on the dev sets; the best model so far is kept."""
        metrics, values, losses = self._evaluate_on_dev(phase, epoch, done, started)
        for transfer in self.stepper.transfers:
            facts = transfer.facts()
            if facts:
                self.record.write(TransferFacts(transfer.name, phase.name, done, facts))
        if not values or not all(transfer.is_ready for transfer in self.stepper.transfers):
            return
        if self.selection.update(metrics, values, losses) and phase.settings.keep == "best":
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.trainable_state().items()}

    def _finish_phase(self, phase: Phase, done: int, tired: bool) -> None:
        if self.best:
            self.model.load_state_dict(self.best, strict=False)
        kept = "best" if self.best else "last"
        weights = phase.weighting.weights
        self.record.write(PhaseEnd(phase.name, done, tired, self.selection.score, kept, weights))
        self.progress.stop()

    def _note_update(
        self,
        phase: Phase,
        epoch: int,
        done: int,
        num_updates: int,
        losses: Mapping[str, float],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        weights = phase.weighting.weights
        facts = phase.weighting.facts()
        if facts:
            self.record.write(WeightingFacts(phase.name, done, weights, facts))
        for task, value in losses.items():
            self.recent.setdefault(task, []).append(value)
        if done % max(1, num_updates // 500) == 0 or done == num_updates:  # at most some 500 rows a phase
            means = {task: sum(values) / len(values) for task, values in self.recent.items()}
            self.recent = {}
            learning_rate = optimizer.param_groups[0]["lr"]
            self.record.write(Update(phase.name, epoch + 1, done, means, weights, learning_rate))
        best_score = self.selection.score
        words = [] if best_score is None else [f"dev {abs(best_score):.3f}"]
        words += [f"{task} {value:.3f} ×{weights.get(task, 0.0):.2f}" for task, value in list(losses.items())[:4]]
        self.progress.advance(done, "  ".join(words))

    def _save_checkpoint(
        self, phase_number: int, phase: Phase | None = None, optimizer: torch.optim.Optimizer | None = None,
        updates: int | None = None,
    ) -> None:  # fmt: skip
        """Write down where the run stands; between phases there is no phase, no optimizer and no count of updates."""
        if self.folder is None:
            return
        random = self._random_states()
        self.num_checkpoints += 1
        if self.devices.is_main:
            weighting = phase.weighting.state_dict() if phase else {}
            tensors = {
                "model": self.model.trainable_state(self.learning),
                "transfers": self.transfer_modules.state_dict(),
                "transfer_optimizers": checkpoints.flatten_optimizers([t.optimizer for t in self.stepper.transfers]),
                "optimizer": checkpoints.flatten_optimizer(optimizer) if optimizer else {},
                "weighting": {key: value for key, value in weighting.items() if isinstance(value, Tensor)},
                "best": self.best,
                "random": random,
            }
            state = {
                "number": self.num_checkpoints,
                "phase": phase_number,
                "updates": updates,
                "weighting": {key: value for key, value in weighting.items() if not isinstance(value, Tensor)},
                "selection": self.selection.state_dict(),
                "set_aside": sorted(self.set_aside),
                "failures": self.failures,
                "recent": self.recent,
                "history_rows": len(self.record),
            }
            checkpoints.save(self.folder, self.num_checkpoints, Checkpoint(tensors, state))
        self.devices.wait()

    def _random_states(self) -> dict[str, Tensor]:
        """The state of every rank's random numbers."""
        own = {"cpu": torch.get_rng_state()}
        if self.devices.device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(self.devices.device)
        return {
            f"{kind}.{rank}": state
            for kind, mine in own.items()
            for rank, state in enumerate(self.devices.gather(mine))
        }
