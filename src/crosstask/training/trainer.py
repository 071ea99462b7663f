"""The training loop: batches -> losses -> weighting -> update, with evaluations, a record and checkpoints."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from crosstask.baton import clock
from crosstask.data.metrics import Metric, chosen_metric, score
from crosstask.data.readers.streamed import StreamPosition
from crosstask.errors import CrossTaskError
from crosstask.gradients.cuda_graphs import CudaGraphs, PlainGraphs
from crosstask.gradients.fused import FusedLosses
from crosstask.gradients.optimizer_state import set_rates
from crosstask.gradients.sharded import gathered, is_sharded, put_together
from crosstask.gradients.task_gradients import ids_of
from crosstask.models.batches import LabelStream, Prepared, Step, Stream
from crosstask.models.evaluate import evaluate, features_and_labels
from crosstask.models.modes import evaluating, twice_differentiable, without_dropout
from crosstask.models.multitask import Model
from crosstask.probing.probe import SolverSession
from crosstask.progress import Progress
from crosstask.runs.events import (
    DevEvaluation,
    HeldOutLosses,
    Note,
    PhaseEnd,
    PhaseStart,
    TransferFacts,
    Update,
    Warned,
    WeightingFacts,
)
from crosstask.runs.record import Record
from crosstask.storage import DamagedFileError
from crosstask.training import checkpoints
from crosstask.training.checkpoint_timer import CheckpointTimer
from crosstask.training.checkpoints import Checkpoint
from crosstask.training.config import Training
from crosstask.training.devices import Devices
from crosstask.training.failures import Failures, FiniteParts
from crosstask.training.forward import Graphs, PassOptions, Stepper
from crosstask.training.sharding import all_finite, check_shards, clip_gradient, shard_encoder
from crosstask.training.state import PhasePosition, TrainingState
from crosstask.training.support_query import (
    deal_parts,
    held_out_losses,
    sample_step,
    support_and_query,
    without_part,
)
from crosstask.training.update_graphs import Examples, Outcome, UpdateGraphs
from crosstask.transfer.base import Moment, Objective, Transfer, WholeModel
from crosstask.weighting.base import HeldOut, Weighting
from crosstask.weighting.evidence import Need

MAX_FEATURE_EXAMPLES = 2000
"""Examples of each task whose features a weighting is shown before training."""
MAX_UPDATE_ROWS = 500
"""About so many rows of mean losses are recorded per phase."""

DevScores = tuple[dict[str, Metric], dict[str, float], dict[str, float]]
"""By task: the metric that selects models, its value and the loss."""


@dataclass(frozen=True, eq=False)
class Phase:
    """One stretch of training.

    - `tasks`: those that are trained, with this `weighting` and these `settings`;
    - `watched`: tasks whose dev scores select the model;
    - `observed`: targets of which the heads alone are trained, and which the weighting sees;
    - `reset_heads`: tasks whose heads start this phase with the weights that they had when the run began;
    - `begin`: prepares the model, for instance by setting which parameters learn;
    - `solve`: replaces gradient steps where a solver does all the work;
    - `objective`: what is trained instead of the heads' losses; transfers have no part in such a phase.
    """

    name: str
    tasks: tuple[str, ...]
    weighting: Weighting
    settings: Training
    watched: tuple[str, ...]
    observed: tuple[str, ...] = ()
    reset_heads: tuple[str, ...] = ()
    begin: Callable[[Model], None] = lambda model: None
    solve: Callable[[SolverSession], None] | None = None
    objective: Objective | None = None

    @property
    def tasks_with_batches(self) -> list[str]:
        """The trained tasks and the observed targets, each once."""
        return list(dict.fromkeys((*self.tasks, *self.observed)))


class EpochWindows(Protocol):
    """Training examples of a task that is larger than memory, by the number of the epoch."""

    def __call__(self, epoch: int) -> Prepared: ...

    def position(self, epoch: int) -> StreamPosition | None:
        """Where the window of an epoch begins, if a run that goes on has to be told."""

    def restore(self, position: StreamPosition) -> None:
        """Let a window begin where `position` said."""


@dataclass(frozen=True)
class TrainingData:
    """Prepared examples by task, and which tasks are targets.

    `windows`: of sources that are larger than memory, other training examples for each epoch, as many as in `train`.
    """

    train: Mapping[str, Prepared]
    dev: Mapping[str, Prepared]
    targets: tuple[str, ...]
    windows: Mapping[str, EpochWindows] = field(default_factory=dict)


@dataclass(frozen=True)
class RunContext:
    """What a run has besides model and data: devices, where it writes, its seed; no checkpoints without `folder`.

    `recipe_digest` tells checkpoints of this run from those of others; `wants_to_stop` is asked after each evaluation
    whether the phase is to end.
    """

    devices: Devices
    record: Record
    folder: Path | None = None
    progress: Progress = field(default_factory=Progress)
    seed: int = 0
    recipe_digest: str = ""
    wants_to_stop: Callable[[], bool] = lambda: False


class PhaseSchedule:
    """How many updates a phase has, and when it evaluates and saves."""

    def __init__(self, settings: Training, steps_per_epoch: int) -> None:
        self.updates_per_epoch = math.ceil(steps_per_epoch / settings.accumulate)
        self.num_updates = settings.updates or settings.epochs * self.updates_per_epoch
        tenth_of_updates = (settings.updates or 0) // 10
        self.evaluate_every = settings.evaluate_every or max(self.updates_per_epoch, tenth_of_updates)
        self.checkpoint_every: int | None = self.evaluate_every
        if isinstance(settings.checkpoint_every, int):
            self.checkpoint_every = settings.checkpoint_every
        elif settings.checkpoint_every is not None:  # a time
            self.checkpoint_every = None

    def saves(self, update: int) -> bool:
        """Whether there is a checkpoint after so many updates, whatever the time."""
        return self.checkpoint_every is not None and update % self.checkpoint_every == 0

    def evaluates(self, update: int) -> bool:
        """Whether there is an evaluation after so many updates."""
        return update % self.evaluate_every == 0 or update == self.num_updates

    def records(self, update: int) -> bool:
        """Whether mean losses are recorded after so many updates."""
        return update % max(1, self.num_updates // MAX_UPDATE_ROWS) == 0 or update == self.num_updates


@dataclass(eq=False)
class PhaseRun:
    """A phase while it runs: `num_done` updates are done."""

    phase: Phase
    number: int
    optimizer: torch.optim.Optimizer
    schedule: PhaseSchedule
    probabilities: Mapping[str, float]
    num_done: int = 0
    started: float = 0.0
    graphs: UpdateGraphs | None = None

    @property
    def learning_rate(self) -> float:
        """The model's at this update."""
        return float(self.optimizer.param_groups[0]["rate"])

    @property
    def epoch(self) -> int:
        """The epoch of the last update, from 1."""
        return (self.num_done - 1) // self.schedule.updates_per_epoch + 1


class Trainer:
    """Runs the phases of a paradigm, from the start or from the last checkpoint."""

    def __init__(
        self, model: Model, data: TrainingData, context: RunContext, transfers: Sequence[Transfer] = ()
    ) -> None:
        self.model = model
        self.data = data
        self.devices, self.record, self.progress = context.devices, context.record, context.progress
        self.folder, self.seed = context.folder, context.seed
        self.wants_to_stop = context.wants_to_stop
        self.transfers = list(transfers)
        if self.devices.shards:
            check_shards(model, self.transfers)
        self.stepper = Stepper(model, context.devices, transfers)
        self.state = TrainingState(model, transfers, context.devices, context.recipe_digest)
        self.failures = Failures(self.state, context.record, data.targets)
        self.cuda_graphs = graphs_for(context.devices, context.record)
        self.checkpoint_timer = CheckpointTimer()
        self.support: dict[str, Prepared] = {}
        self.query: dict[str, Prepared] = {}
        self.part_of: dict[str, np.ndarray] = {}  # of examples of targets, where parts judge weights in turn
        self.initial_heads: dict[str, dict[str, Tensor]] = {}  # of tasks whose heads will be reset

    @property
    def set_aside(self) -> set[str]:
        """Tasks whose losses or gradients failed too often."""
        return self.state.set_aside

    def run(self, phases: Sequence[Phase], resume_from: Checkpoint | None = None) -> None:
        """Train phase after phase; a checkpoint says which one to go on with, and where in it."""
        with self._stream():
            self._run_phases(phases, resume_from)

    def _stream(self) -> AbstractContextManager[object]:
        """Where the device's work is queued: graphs are captured on a stream of their own."""
        return nullcontext() if self.cuda_graphs is None else self.cuda_graphs.active()

    def _run_phases(self, phases: Sequence[Phase], resume_from: Checkpoint | None) -> None:
        self._begin_all(phases)
        first = 0
        if resume_from is not None:
            first = self.state.restore_run(resume_from)
        for number in range(first, len(phases)):
            self._run_phase(number, phases[number], resume_from)
            if not all_finite(self.model.state_dict().values(), self.devices):
                raise _not_finite(f"After phase '{phases[number].name}' the model's weights are not finite")
            resume_from = None  # later phases start anew
            self._save_checkpoint(number + 1)

    def put_together(self) -> None:
        """Let every rank have the whole model again, once it is trained."""
        if self.devices.shards:
            put_together(self.model, torch.device("cpu"))  # a card may not hold it
            self.model.to("cpu")

    def check(self, phases: Sequence[Phase], checkpoint: Checkpoint) -> None:
        """Whether the run can go on from this checkpoint; if not, a `DamagedFileError` before anything changes."""
        self._begin_all(phases)
        self.state.check_run(checkpoint)
        number = checkpoint.state["phase"]
        if number < len(phases) and phases[number].solve is None:
            phase = phases[number]
            phase.begin(self.model)
            self.state.check_phase(checkpoint, phase.weighting, self._make_optimizer(phase.settings))
        elif number > len(phases) or checkpoint.state["updates"] is not None:
            raise DamagedFileError("it is of a phase that this run has not")

    def _begin_all(self, phases: Sequence[Phase]) -> None:
        """Begin every phase once, to see what any of them trains."""
        if self.devices.shards and not any(map(is_sharded, self.model.parameters())):
            shard_encoder(self.model, self.devices)  # before it goes to the device, which may not hold it
        self.model.to(self.devices.device)
        self.state.transfer_modules.to(self.devices.device)
        for phase in phases:
            for task in phase.reset_heads:
                # Before a checkpoint is restored: the model is new, and its seed gives every run the same heads.
                head = self.model.head(task).state_dict()
                self.initial_heads[task] = {name: tensor.detach().clone() for name, tensor in head.items()}
            phase.begin(self.model)
            self.state.learning_names |= self.model.learning_names()

    def _run_phase(self, number: int, phase: Phase, resumed: Checkpoint | None) -> None:
        phase.begin(self.model)
        if phase.solve is not None:
            self._solve_phase(phase, phase.solve)
            return
        # 1. Data, optimizer and state, from the phase's beginning or from the checkpoint.
        settings = phase.settings
        devices = self.devices
        self.state.held_out = {}
        phase.weighting.connect(devices.sum, devices.num_ranks, devices.scatter, devices.rank)
        self._split_data(phase)
        self.stepper.transfers = self.transfers if phase.objective is None else []
        stream = self._stream_of_batches(phase)
        schedule = PhaseSchedule(settings, stream.steps_per_epoch)
        phase.weighting.expect(schedule.num_updates * settings.accumulate)
        run = PhaseRun(phase, number, self._make_optimizer(settings), schedule, stream.probabilities)
        run.num_done = self._start_phase(run, resumed)
        # A graph is of certain tasks: where each step has others, none comes back.
        if self.cuda_graphs is not None and phase.objective is None and not stream.sampling.leaves_out:
            self.cuda_graphs.forget()  # parameters of the phase before may not learn any more
            run.graphs = UpdateGraphs(self.stepper, run.optimizer, settings, self.cuda_graphs)
        run.started = clock()
        self.progress.start(phase.name, schedule.num_updates, run.num_done)
        self.model.train()
        # 2. Update after update.
        steps: list[Step] = []
        stops_early = False
        while run.num_done < schedule.num_updates and not stops_early:
            epoch, update_in_epoch = divmod(run.num_done, schedule.updates_per_epoch)
            if not steps or update_in_epoch == 0:  # a resumed run starts in the middle of an epoch
                stream = self._stream_of_epoch(phase, epoch, stream)
                steps = stream.epoch(epoch)
            set_rates(run.optimizer, settings.rate_factor(run.num_done, schedule.num_updates))
            first_step = update_in_epoch * settings.accumulate
            losses = self._update(run, steps[first_step : first_step + settings.accumulate])
            for transfer in self.stepper.transfers:
                transfer.after_update(self._moment(run, {}))
            run.num_done += 1
            self._record_update(run, losses)
            if run.graphs is None:  # which pause while the device computes
                self.devices.pause()
            saves = schedule.saves(run.num_done)
            if (saves or schedule.evaluates(run.num_done)) and not self._is_finite():
                self._give_up(run)
                break
            if schedule.evaluates(run.num_done):
                self._evaluate(run)
                num_evaluations = self.state.selection.evaluations_since_best
                stops_early = settings.patience is not None and num_evaluations >= settings.patience
                stops_early = self.wants_to_stop() or stops_early
            # What the loop does must not depend on the time, so a checkpoint by time changes nothing else.
            if saves or (self.devices.num_ranks == 1 and self.checkpoint_timer.is_due(settings)):
                self._save_checkpoint(number, self._position(run))
        # 3. The best model.
        self._finish_phase(run, stops_early)

    def _stream_of_batches(self, phase: Phase) -> Stream:
        """Which examples come when; with an objective that compares them, batches hold several of a label."""
        settings = phase.settings
        lengths = {task: self.support[task].lengths() for task in phase.tasks_with_batches}
        if phase.objective is not None:
            labels = {task: np.asarray(self.support[task].hard_labels) for task in lengths}
            per_label = phase.objective.per_label
            return LabelStream(
                lengths,
                labels,
                per_label,
                batch_size=settings.batch_size,
                seed=self.seed,
                tasks_per_step=settings.tasks_per_step,
                always=self.data.targets,
            )
        return Stream(
            lengths,
            batch_size=settings.batch_size,
            schedule=settings.schedule,
            seed=self.seed,
            buckets=settings.length_buckets,
            tasks_per_step=settings.tasks_per_step,
            always=self.data.targets,
        )

    def _stream_of_epoch(self, phase: Phase, epoch: int, stream: Stream) -> Stream:
        """The stream, over the examples of this epoch where there are others than before."""
        large = [task for task in phase.tasks_with_batches if task in self.data.windows]
        if not large:
            return stream
        for task in large:
            self.support[task] = self.data.windows[task](epoch)
        return self._stream_of_batches(phase)

    def _position(self, run: PhaseRun) -> PhasePosition:
        """Where a phase is, and where the windows begin that it goes on with."""
        epoch = run.num_done // run.schedule.updates_per_epoch
        streams: dict[str, StreamPosition] = {}
        for task in run.phase.tasks_with_batches:
            if task in self.data.windows:
                position = self.data.windows[task].position(epoch)
                if position is not None:
                    streams[task] = position
        return PhasePosition(run.phase.weighting, run.optimizer, run.num_done, streams)

    def _solve_phase(self, phase: Phase, solve: Callable[[SolverSession], None]) -> None:
        """A phase without gradient steps: no model is selected, and no checkpoint is needed within it."""
        started = clock()
        self.record.write(PhaseStart(phase.name, list(phase.tasks), phase.weighting.weights))
        self.progress.start(phase.name, len(phase.tasks))
        num_fitted = itertools.count(1)
        session = SolverSession(
            model=self.model,
            train=self.data.train,
            tasks=phase.tasks,
            targets=self.data.targets,
            seed=self.seed,
            write=self.record.write,
            advance=lambda: self.progress.advance(next(num_fitted)),
        )
        solve(session)
        self.state.held_out = session.held_out
        if not self._is_finite():
            raise _not_finite(f"In phase '{phase.name}' a solver found weights that are not finite")
        self._evaluate_on_dev(phase, 1, 0, started)
        self.record.write(PhaseEnd(phase.name, 0, False, None, "solved", phase.weighting.weights))
        self.progress.stop()

    def _split_data(self, phase: Phase) -> None:
        """Query sets or parts for the weighting, where it needs some; everything else trains."""
        self.support, self.query, self.part_of = dict(self.data.train), {}, {}
        held_out = phase.weighting.held_out
        if held_out is not None and held_out.kind == "query":
            self.support, self.query = support_and_query(
                self.data.train, self.data.dev, phase.tasks, held_out.query, self.seed
            )
        elif held_out is not None and held_out.kind == "parts":
            targets = [task for task in phase.tasks_with_batches if task in self.data.targets]
            self.part_of = deal_parts(self.data.train, targets, held_out.parts)

    def _start_phase(self, run: PhaseRun, resumed: Checkpoint | None) -> int:
        """Seed, features and record of a new phase, or the state of the checkpoint; returns the updates so far."""
        # Dropout differs between ranks and phases.
        torch.manual_seed(self.seed + 1000 * run.number + self.devices.rank)
        self.state.start_phase()
        phase, weighting = run.phase, run.phase.weighting
        if resumed is not None:
            num_done = self.state.restore_phase(resumed, weighting, run.optimizer)
            if num_done is not None:
                for task, position in resumed.state.get("streams", {}).items():
                    self.data.windows[task].restore(position)
                if self.state.has_other_ranks(resumed.tensors["random"]):
                    self.record.write(
                        Note("the run goes on with more or fewer processes: dropout differs from here on")
                    )
                return num_done
        for task in phase.reset_heads:
            self.model.head(task).load_state_dict(self.initial_heads[task])
        if Need.FEATURES in weighting.needs(0):
            features: dict[str, Tensor] = {}
            labels: dict[str, Tensor] = {}
            for task in phase.tasks:
                features[task], labels[task] = features_and_labels(self.model, self.support[task], MAX_FEATURE_EXAMPLES)
            weighting.fit_features(features, labels)
        self.record.write(PhaseStart(phase.name, list(phase.tasks), weighting.weights))
        return 0

    def _make_optimizer(self, settings: Training) -> torch.optim.Optimizer:
        """AdamW without weight decay of vectors: biases and normalizations."""
        separate: set[int] = set()  # parameters that a transfer trains with its own optimizer
        for transfer in self.transfers:
            separate |= ids_of(transfer.own_parameters())
        matrices: list[torch.nn.Parameter] = []
        vectors: list[torch.nn.Parameter] = []
        for parameter in itertools.chain(self.model.parameters(), self.state.transfer_modules.parameters()):
            if parameter.requires_grad and id(parameter) not in separate:
                group = matrices if parameter.dim() > 1 else vectors
                group.append(parameter)
        numbers = {id(parameter): number for number, parameter in enumerate((*matrices, *vectors))}
        groups: list[dict[str, Any]] = []
        for parameters, weight_decay in ((matrices, settings.weight_decay), (vectors, 0.0)):
            rate = settings.learning_rate
            # No kernel takes both kinds at once.
            kinds = [[one for one in parameters if is_sharded(one) == with_shards] for with_shards in (False, True)]
            for kind in kinds:
                if kind:
                    lr = rate if self.cuda_graphs is None else torch.tensor(rate, device=self.devices.device)
                    groups.append({"params": kind, "weight_decay": weight_decay, "lr": lr, "full_rate": rate})
                    groups[-1]["numbers"] = [numbers[id(parameter)] for parameter in kind]
        return torch.optim.AdamW(groups, fused=True, capturable=self.devices.device.type == "cuda")

    def _update(self, run: PhaseRun, steps: Sequence[Step]) -> dict[str, float]:
        """One update from one step, or from several whose gradients add up; returns the mean losses."""
        optimizer = run.optimizer
        optimizer.zero_grad(set_to_none=True)
        failures_before = dict(self.state.failures)
        # 1. The whole update by CUDA graphs, where that works.
        begun = self._begin_step(run, steps[0])
        if run.graphs is not None and len(steps) == 1:
            values = self._replay(run, run.graphs, begun, failures_before)
            if values is not None:
                self._show_held_out(run)
                return values
        # 2. Gradients of all steps.
        losses: dict[str, list[float]] = {}
        steps_taken: list[Step] = []
        for index, step in enumerate(steps):
            if index:
                begun = self._begin_step(run, step)
            step_taken, values = self._backward(run, begun, scale=1.0 / len(steps))
            steps_taken.append(step_taken)
            for task, value in values.items():
                losses.setdefault(task, []).append(value)
        parameters: list[torch.nn.Parameter] = []
        for group in optimizer.param_groups:
            parameters.extend(group["params"])
        self.devices.sum_gradients(parameters)
        is_finite = self._prepare_gradient(run, parameters)
        # 3. The optimizer's step, without the tasks whose gradients are not finite.
        if not is_finite:
            is_finite = self._keep_finite_parts(run, steps_taken, parameters, failures_before)
        if is_finite:
            optimizer.step()
            self.state.skipped_updates = 0  # only those in a row count
        # 4. What the weighting learns from other examples at the new model.
        optimizer.zero_grad(set_to_none=True)  # its passes need the memory
        self._show_held_out(run)
        return _means(losses)

    def _replay(
        self, run: PhaseRun, graphs: UpdateGraphs, step: Step, failures_before: Mapping[str, int]
    ) -> dict[str, float] | None:
        """A whole update by CUDA graphs; returns the losses, or None where it has to run as plain code."""
        weighting = run.phase.weighting
        need = weighting.needs(weighting.steps)
        observed = [task for task in step if task not in weighting.tasks]
        query = None
        if Need.HELD_OUT_PRODUCTS in need and weighting.held_out is not None:
            query = self._held_out_examples(run, weighting.held_out)
        update = graphs.start(Examples(self.support, step), need, observed, query)
        if update is None or (update.has_values and not all(map(math.isfinite, update.numbers().values()))):
            return None
        weighting.backward(update, shared=graphs.shared, probabilities=run.probabilities)
        outcome = update.finish()
        finite_tasks = self.failures.finite_losses(outcome.losses)
        is_finite = outcome.is_finite
        if is_finite and outcome.query_losses:
            self._learn_from_products(run, outcome)
        elif not is_finite:
            # No step was taken: it is taken now, without the tasks that failed.
            finite_step = {task: step[task] for task in finite_tasks}
            is_finite = self._keep_finite_parts(run, [finite_step], graphs.parameters, failures_before)
            if is_finite:
                run.optimizer.step()
        if is_finite:
            self.state.skipped_updates = 0
        return outcome.losses

    def _learn_from_products(self, run: PhaseRun, outcome: Outcome) -> None:
        """Let the weighting learn from held-out losses whose gradients the update has multiplied with its own."""
        # A task counts 1 / q where it is in a step with probability q.
        factors = [1.0 / run.probabilities.get(task, 1.0) for task in outcome.losses]
        products = outcome.products * torch.tensor(factors, dtype=torch.float64)  # [query losses, tasks]
        run.phase.weighting.learn_from_products(products, outcome.query_losses, run.learning_rate)
        self.record.write(HeldOutLosses(run.phase.name, run.num_done, outcome.query_losses))

    def _held_out_examples(self, run: PhaseRun, held_out: HeldOut) -> Examples:
        """Examples of every task that this update does not train on."""
        phase = run.phase
        data, names = self.support, phase.tasks_with_batches
        if held_out.kind == "query":
            data, names = self.query, list(phase.tasks)
        elif held_out.kind == "parts":
            data = {}
            for task, parts in self.part_of.items():
                data[task] = self.support[task].take(np.flatnonzero(parts == phase.weighting.held_out_part).tolist())
            names = list(data)
        tasks = [task for task in names if task not in self.set_aside]
        size = held_out.size or phase.settings.batch_size
        return Examples(data, sample_step(data, tasks, size, self.seed, run.num_done))

    def _prepare_gradient(self, run: PhaseRun, parameters: Sequence[torch.nn.Parameter]) -> bool:
        """What transfers do to the gradient, and clipping; whether it may be used."""
        for transfer in self.stepper.transfers:
            transfer.after_backward(self.model, run.num_done)
        norm = clip_gradient(parameters, run.phase.settings.clip or math.inf, self.devices)
        return bool(torch.isfinite(norm))

    def _keep_finite_parts(
        self,
        run: PhaseRun,
        steps: Sequence[Step],
        parameters: Sequence[torch.nn.Parameter],
        failures_before: Mapping[str, int],
    ) -> bool:
        """The gradient is not finite: take it again task by task, and leave out those that fail.

        The weighting has seen this update, or refused to learn from it; its weights are taken as they are. Returns
        whether the gradient may be used now.
        """
        separate: list[torch.nn.Parameter] = []
        for transfer in self.stepper.transfers:
            separate += transfer.own_parameters()
        parts = FiniteParts(self.devices, parameters, separate)
        for step in steps:
            for task, positions in step.items():
                backward = functools.partial(self._backward_alone, run, {task: positions}, 1.0 / len(steps))
                parts.add(task, backward)
        self.failures.add_gradients(parts.failing_tasks, failures_before)
        parts.put_in_place()
        if parts.failing_tasks and not parts.num_finite:
            return False
        is_finite = self._prepare_gradient(run, parameters) and bool(parts.failing_tasks)
        if not is_finite:
            self.failures.skip_update(sorted({task for step in steps for task in step}))
        return is_finite

    def _begin_step(self, run: PhaseRun, step: Step) -> Step:
        """Let the transfers do what comes before a step; returns the step as they change it."""
        step = {task: positions for task, positions in step.items() if task not in self.set_aside}
        part = run.phase.weighting.held_out_part
        if part is not None:
            step = without_part(step, self.part_of, part)
        for transfer in self.stepper.transfers:
            with self._whole_model(transfer.needs_whole_model is WholeModel.BEFORE_STEP):
                step = transfer.before_step(self._moment(run, step))
        return step

    def _moment(self, run: PhaseRun, step: Step) -> Moment:
        """The state of training as transfers see it."""
        weighting = run.phase.weighting
        example_weights = None
        if Need.EXAMPLE_WEIGHTS in weighting.needs(weighting.steps):
            example_weights = weighting.example_weights
        return Moment(
            model=self.model,
            data=self.support,
            step=step,
            update=run.num_done,
            num_updates=run.schedule.num_updates,
            optimizer=run.optimizer,
            weights=weighting.weights,
            devices=self.devices,
            graphs=self.cuda_graphs,
            example_weights=example_weights,
        )

    def _backward(self, run: PhaseRun, step: Step, scale: float) -> tuple[Step, dict[str, float]]:
        """Put the gradients of one step in place, as the weighting decides.

        Returns the part of the step whose losses are finite, and all losses.
        """
        weighting = run.phase.weighting
        need = weighting.needs(weighting.steps)
        if Need.EXAMPLE_PRODUCTS in need:
            with self._whole_model():
                self.stepper.update_example_weights(self.support, step, weighting, self.data.targets)
        options = PassOptions(
            graphs=Graphs.for_need(need),
            keep_representations=Need.REPRESENTATIONS in need,
            example_weights=weighting.example_weights if Need.EXAMPLE_WEIGHTS in need else None,
            objective=run.phase.objective,
            scale=scale,
        )
        is_second_order = Need.SECOND_ORDER in need
        with self._whole_model(is_second_order), twice_differentiable(is_second_order):
            result = self.stepper.run(self.support, step, options)
            finite_tasks = self.failures.finite_losses(result.values)
            if finite_tasks:
                weighting.backward(
                    _only(result.losses, finite_tasks),
                    shared=self.model.shared_parameters(),
                    probabilities=run.probabilities,
                    scale=scale,
                    representations=result.representations,
                )
        return {task: step[task] for task in finite_tasks}, result.values

    def _whole_model(self, is_needed: bool = True) -> AbstractContextManager[None]:
        """Inside it every rank has all parameters, for derivatives that sharded ones have not."""
        return gathered(self.model) if is_needed and self.devices.shards else nullcontext()

    def _backward_alone(self, run: PhaseRun, step: Step, scale: float) -> None:
        """Put the gradient of one task in place, with the weights as they are."""
        weighting = run.phase.weighting
        example_weights = None
        if Need.EXAMPLE_WEIGHTS in weighting.needs(weighting.steps - 1):
            example_weights = weighting.example_weights
        options = PassOptions(example_weights=example_weights, objective=run.phase.objective, scale=scale)
        result = self.stepper.run(self.support, step, options)
        shared = self.model.shared_parameters()
        weighting.plain_backward(result.losses, shared=shared, probabilities=run.probabilities, scale=scale)

    def _show_held_out(self, run: PhaseRun) -> None:
        """Let the weighting learn from examples that this update did not train on, if it wants to; without dropout."""
        phase, held_out = run.phase, run.phase.weighting.held_out
        if held_out is None or not phase.weighting.wants_held_out:
            return
        data, step = self._held_out_examples(run, held_out)
        is_second_order = Need.SECOND_ORDER in held_out.need
        gathering, kernels = self._whole_model(is_second_order), twice_differentiable(is_second_order)
        # `values` fills up while the weighting asks for one loss after another.
        with without_dropout(self.model), gathering, kernels:
            losses, values = held_out_losses(self.stepper, data, step, held_out)
            shared = self.model.shared_parameters()
            phase.weighting.after_step(losses, shared=shared, learning_rate=run.learning_rate)
        if values:
            self.record.write(HeldOutLosses(phase.name, run.num_done, dict(values)))

    def _evaluate_on_dev(self, phase: Phase, epoch: int, update: int, started: float) -> DevScores:
        """Loss and selection metric of the watched tasks on their dev sets, written to the record."""
        metrics: dict[str, Metric] = {}
        values: dict[str, float] = {}
        losses: dict[str, float] = {}
        with evaluating(self.model):
            for task in phase.watched:
                if task in self.data.dev:
                    predictions, losses[task] = evaluate(self.model, self.data.dev[task])
                    scores = score(predictions)
                    metrics[task] = chosen_metric(predictions.spec)
                    values[task] = scores[metrics[task].name]
                    seconds = round(clock() - started, 3)
                    self.record.write(DevEvaluation(phase.name, epoch, update, task, losses[task], scores, seconds))
        return metrics, values, losses

    def _evaluate(self, run: PhaseRun) -> None:
        """Evaluate on the dev sets, and keep a copy of the best model so far."""
        phase = run.phase
        metrics, values, losses = self._evaluate_on_dev(phase, run.epoch, run.num_done, run.started)
        for transfer in self.stepper.transfers:
            facts = transfer.facts()
            if facts:
                self.record.write(TransferFacts(transfer.name, phase.name, run.num_done, facts))
        # A model is not selected before its transfers have warmed up.
        if not values or not all(transfer.is_ready for transfer in self.stepper.transfers):
            return
        if self.state.selection.update(metrics, values, losses) and phase.settings.keep == "best":
            trainable = self.model.trainable_state()
            self.state.best = {name: tensor.detach().clone() for name, tensor in trainable.items()}

    def _finish_phase(self, run: PhaseRun, stopped_early: bool) -> None:
        best, weights = self.state.best, run.phase.weighting.weights
        if best:
            # Not strict: the copy holds trainable tensors alone.
            self.model.load_state_dict(best, strict=False)
        model_kept = "best" if best else "last"
        best_score = self.state.selection.score
        self.record.write(PhaseEnd(run.phase.name, run.num_done, stopped_early, best_score, model_kept, weights))
        self.progress.stop()

    def _is_finite(self) -> bool:
        """Whether every tensor that learns is finite; such a model could only get worse."""
        return all_finite(self.model.trainable_state(self.state.learning_names).values(), self.devices)

    def _give_up(self, run: PhaseRun) -> None:
        """Weights are not finite: the phase ends with the best model so far, or the run with an error."""
        failure = f"After {run.num_done} updates of phase '{run.phase.name}' the model's weights are not finite"
        if not self.state.best:
            raise _not_finite(failure)
        self.record.write(Warned(f"{failure}; the best model from before is kept. Lower `learning_rate`."))

    def _record_update(self, run: PhaseRun, losses: Mapping[str, float]) -> None:
        """Facts of the weighting at once; mean losses now and then; the progress bar."""
        name, weights = run.phase.name, run.phase.weighting.weights
        facts = run.phase.weighting.facts()
        if facts:
            self.record.write(WeightingFacts(name, run.num_done, weights, facts))
        recent = self.state.recent_losses
        for task, value in losses.items():
            recent.setdefault(task, []).append(value)
        if run.schedule.records(run.num_done):
            means = _means(recent)
            self.state.recent_losses = {}
            self.record.write(Update(name, run.epoch, run.num_done, means, weights, run.learning_rate))
        words: list[str] = []
        best_score = self.state.selection.score
        if best_score is not None:
            words.append(f"dev {abs(best_score):.3f}")  # the score of an error has a minus sign
        for task, value in list(losses.items())[:4]:  # as many as a line holds
            words.append(f"{task} {value:.3f} ×{weights.get(task, 0.0):.2f}")
        self.progress.advance(run.num_done, "  ".join(words))

    def _save_checkpoint(self, phase_number: int, position: PhasePosition | None = None) -> None:
        # A run that goes on from weights that are not finite learns nothing.
        if self.folder is None or not self.state.is_finite:
            return
        began = clock()
        self.state.num_checkpoints += 1
        # Every rank takes part, since the states of all random number generators are gathered; one writes.
        checkpoint = self.state.capture(phase_number, self.record, position)
        if self.devices.is_main:
            self.record.flush_to_disk()
        if self.devices.shards:
            checkpoints.save_shards(self.folder, self.state.num_checkpoints, checkpoint, self.devices)
        elif self.devices.is_main:
            checkpoints.save(self.folder, self.state.num_checkpoints, checkpoint)
        self.devices.wait()
        self.checkpoint_timer.note_save(began)


def graphs_for(devices: Devices, record: Record) -> PlainGraphs | None:
    """What runs whole updates as CUDA graphs, where there is one card."""
    if devices.device.type == "cuda" and devices.num_ranks == 1:
        return CudaGraphs(devices.device, lambda note: record.write(Note(note)), devices.pause)
    return None


def _not_finite(failure: str) -> CrossTaskError:
    return CrossTaskError(
        f"{failure}, so no model is kept. Lower `learning_rate`, use `precision: float32`, and look for extreme values "
        "in the data."
    )


def _only(losses: dict[str, Tensor], tasks: Sequence[str]) -> dict[str, Tensor]:
    """The losses of these tasks."""
    if isinstance(losses, FusedLosses):
        return losses.only(tasks)  # which still knows how to take each task's gradient
    return {task: losses[task] for task in tasks}


def _means(losses: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {task: sum(values) / len(values) for task, values in losses.items()}
