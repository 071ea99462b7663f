"""A trainer of several tasks: `transformers.Trainer` with a data set, a head and a loss for each, and any weighting."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PredictionOutput, seed_worker
from transformers.utils.generic import find_labels

from crosstask.errors import CrossTaskError, CrossTaskWarning, unknown
from crosstask.gradients.distributed import share_ranks, sum_gradients
from crosstask.hugging_face.head_inputs import HeadInputs, vectors_and_labels
from crosstask.hugging_face.shared_encoder import MultiTaskModel
from crosstask.hugging_face.task_batches import (
    Examples,
    StepLoader,
    StepSampler,
    TaskCollator,
    TaskDatasets,
    check_datasets,
    cut_query_sets,
    examples_at,
    lengths_of,
)
from crosstask.hugging_face.weighting_state import from_json, to_json
from crosstask.methods import make_weighting
from crosstask.models.batches import Schedule, Stream
from crosstask.models.modes import twice_differentiable, without_dropout
from crosstask.training.support_query import sample_step
from crosstask.training.trainer import MAX_FEATURE_EXAMPLES
from crosstask.validation import Named
from crosstask.weighting import Weighting
from crosstask.weighting.base import HeldOut, Problem
from crosstask.weighting.evidence import Need
from crosstask.weighting.static import Uniform

PER_TASK = ("data_collator", "compute_metrics", "compute_loss_func", "preprocess_logits_for_metrics")
"""Arguments of the trainer that may be a mapping from tasks to one each."""
SAVED_STATE = "crosstask_weighting"
"""Where `trainer_state.json` has the state of the weighting, among those of callbacks."""
SAMPLING = {"random": False, "group_by_length": True}
"""Strategies of `TrainingArguments`, and whether examples of like length share a batch."""

if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class WeightedTasksMixin(_Base):
    """Several tasks for a class that derives from `transformers.Trainer`: `class Mine(WeightedTasksMixin, Trainer)`.

    Whatever the trainer does (accumulation, mixed precision, clipping, schedules, callbacks, checkpoints) it does as
    before. Each step has a batch of every task, from a data loader that `Stream` orders. Each task's loss is computed
    by `compute_loss`, whose inputs have the name of the task as `task`; then `weighting.backward` takes the place of
    `loss.backward()`. Logs have `loss_TASK` and `weight_TASK`, evaluations `eval_TASK_METRIC`. Checkpoints hold the
    weighting's state.

    Args:
        model: models of transformers by task, which then share an encoder; a `MultiTaskModel`; or a module of your own
            with `forward(task, ...)` and `shared_parameters()`.
        args: `TrainingArguments`; `per_device_train_batch_size` counts the examples of one task.
        data_collator: one for all tasks, or a mapping from tasks to one each, as also `compute_metrics`,
            `compute_loss_func` and `preprocess_logits_for_metrics`.
        train_dataset: data sets by task. An epoch lasts as long as the largest, others start over.
        eval_dataset: data sets by task.
        weighting: how much each task counts, as an object, a name, or a mapping with `name` and options; all the same
            when left out. One that names its tasks itself, such as `TAWT(tasks=sources, target="stars")`, keeps them:
            a target outside them trains its head alone.
        target: the task that matters, or several, for weightings that ask for it.
        held_out_dataset: data sets by task that judge the weights, for weightings that learn from a query set; without
            it they cut it from the training sets, as their option `query` says.
        schedule: "parallel", a batch of every task in each step, or "mixed", one task a step in proportion to its size.
        options: all other arguments of the trainer, by name.

    On several ranks (DDP) each task's gradient is added up over all. Not with DeepSpeed or FSDP, and not with weights
    of single examples.
    """

    # The trainer's, which are there by the time that they are read.
    model: Any
    optimizer: Any
    state: Any
    train_dataset: Any
    eval_dataset: Any

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        *,
        weighting: Weighting | Named | None = None,
        target: str | Sequence[str] | None = None,
        held_out_dataset: Mapping[str, Any] | None = None,
        schedule: Schedule = "parallel",
        **options: Any,
    ) -> None:
        options["data_collator"] = data_collator
        self._by_task: dict[str, Mapping[str, Any]] = {}
        for name in PER_TASK:
            if isinstance(options.get(name), Mapping):
                self._by_task[name] = options.pop(name)
        # 1. Tasks, data and model.
        if isinstance(model, Mapping):
            model = MultiTaskModel(model)
        if train_dataset is not None:
            train_dataset = TaskDatasets(check_datasets("train_dataset", train_dataset))
            self.tasks = tuple(train_dataset.datasets)
        elif isinstance(model, MultiTaskModel):
            self.tasks = model.tasks
        else:
            raise CrossTaskError("`train_dataset` maps each task to its data set; there is none.")
        if eval_dataset is not None:
            eval_dataset = check_datasets("eval_dataset", eval_dataset, self.tasks)
        self.held_out_dataset: dict[str, Any] = {}
        if held_out_dataset is not None:
            self.held_out_dataset = check_datasets("held_out_dataset", held_out_dataset, self.tasks)
        # 2. The weighting.
        self.schedule = schedule
        self.target = (target,) if isinstance(target, str) else tuple(target or ())
        self.weighting = deepcopy(make_weighting(weighting) or Uniform())  # which may be another trainer's too
        self._support: dict[str, Any] = {}
        self._held_out: dict[str, Any] = {}
        self._recent_losses: dict[str, list[Tensor]] = {}
        self._probabilities: dict[str, float] = {}
        self._learning_rate: float | None = None
        self._wants_held_out = False
        self._task = ""
        super().__init__(model=model, args=args, train_dataset=train_dataset, eval_dataset=eval_dataset, **options)
        self._check_model()
        if train_dataset is not None:
            self._split_data()
            self._start_weighting()  # so that what cannot be is told at once
        self.add_callback(_WeightingCallback(self))

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """A new model, where the trainer was given a function instead of one."""
        model: Any = super().call_model_init(trial)
        return MultiTaskModel(model) if isinstance(model, Mapping) else model

    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters that all tasks train: what weightings compare gradients on."""
        parameters: list[nn.Parameter] = self.model.shared_parameters()
        return parameters

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts now."""
        return self.weighting.weights

    # --- data ---

    def get_train_dataloader(self) -> StepLoader:
        """Steps: batches by task."""
        self._split_data()
        by_length = self._samples_by_length()
        lengths: dict[str, np.ndarray] = {}
        datasets: dict[str, Any] = {}
        collators: dict[str, Any] = {}
        for task, dataset in self._support.items():
            lengths[task] = np.ones(len(dataset))
            if by_length:
                lengths[task] = lengths_of(dataset, self.args.length_column_name)
            datasets[task], collators[task] = self._with_collator(task, dataset, "training")
        num_ranks = self.args.world_size
        stream = Stream(
            lengths,
            batch_size=self._train_batch_size * num_ranks,
            schedule=self.schedule,
            seed=self._data_seed,
            buckets=by_length,
        )
        self._probabilities = stream.probabilities
        sampler: Any = StepSampler(stream, self.args.process_index, num_ranks)  # of steps, where torch knows lists
        collator: Any = TaskCollator(collators)
        return StepLoader(
            TaskDatasets(datasets),
            batch_sampler=sampler,
            collate_fn=collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            worker_init_fn=partial(
                seed_worker, num_workers=self.args.dataloader_num_workers, rank=self.args.process_index
            ),
        )

    def _samples_by_length(self) -> bool:
        strategy = getattr(self.args, "train_sampling_strategy", "random")
        if strategy not in SAMPLING:
            raise CrossTaskError(
                f"`train_sampling_strategy` must be one of {', '.join(SAMPLING)} where there are several tasks; found "
                f"'{strategy}'."
            )
        if self.args.dataloader_drop_last:
            warnings.warn(
                "`dataloader_drop_last` has no effect on training with several tasks: their last batches are kept.",
                CrossTaskWarning,
                stacklevel=3,
            )
        return SAMPLING[strategy]

    @property
    def _data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _split_data(self) -> None:
        """Take query sets out of the training sets, for a weighting that learns from them."""
        self._support, self._held_out = dict(self.train_dataset.datasets), {}
        held_out = self.weighting.held_out
        if held_out is None:
            return
        self._held_out = self._support
        if held_out.kind == "query":
            self._support, self._held_out = cut_query_sets(
                self._support, self.eval_dataset or {}, self.held_out_dataset, held_out.query, self._data_seed
            )

    def _with_collator(self, task: str, dataset: Any, description: str) -> tuple[Any, Callable[[Examples], Any]]:
        """The data set of a task without columns that its model does not take, and what makes batches of it."""
        with self._on_task(task):
            if hasattr(dataset, "remove_columns"):  # of the package `datasets`
                return self._remove_unused_columns(dataset, description=description), self.data_collator
            return dataset, self._get_collator_with_removed_columns(self.data_collator, description=description)

    @contextmanager
    def _on_task(self, task: str) -> Iterator[None]:
        """Inside it the trainer is that of one task: its collator, its metrics, its loss, its labels."""
        settings: dict[str, Any] = {"_task": task}
        for name, by_task in self._by_task.items():
            if task in by_task:
                settings[name] = by_task[task]
        if isinstance(self.model, MultiTaskModel):
            task_model = self.model[task]
            if self.args.label_names is None:
                settings["label_names"] = find_labels(type(task_model))
            names = list(inspect.signature(task_model.forward).parameters)
            labels = settings.get("label_names", self.label_names)
            settings["_signature_columns"] = [*names, "label", "label_ids", *labels]
        before = {name: getattr(self, name) for name in settings}
        vars(self).update(settings)
        try:
            yield
        finally:
            vars(self).update(before)

    # --- the weighting ---

    def _check_model(self) -> None:
        if isinstance(self.model, MultiTaskModel):
            for task in self.tasks:
                self.model[task]  # unknown ones are named
            return
        if not callable(getattr(self.model, "shared_parameters", None)) and _is_inherited(self, "shared_parameters"):
            raise CrossTaskError(
                f"The model, a {type(self.model).__name__}, does not say which parameters all tasks share. Give a "
                "mapping from tasks to models of transformers, or a module with a method `shared_parameters()`."
            )
        names = inspect.signature(self.model.forward).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
        if "task" not in names and not takes_any and type(self).compute_loss is Trainer.compute_loss:
            raise CrossTaskError(
                f"`forward` of the model, a {type(self.model).__name__}, has no parameter `task`, which tells it whose "
                "batch it gets."
            )

    def _start_weighting(self) -> None:
        """Begin with the first weights."""
        weighting = self.weighting
        tasks, targets = weighting.tasks or self.tasks, weighting.targets or self.target
        for name in (*tasks, *targets):
            if name not in self.tasks:
                raise unknown("task", name, self.tasks)
        sizes = {task: len(dataset) for task, dataset in self._support.items()}
        weighting.start(Problem(tuple(tasks), tuple(targets), sizes, self.tasks, "uniform"))
        need = weighting.needs(0)
        if need & (Need.EXAMPLE_WEIGHTS | Need.EXAMPLE_PRODUCTS):
            raise CrossTaskError(
                f"weighting '{weighting.name}' weighs single examples, for which the trainer's batches do not do. Use "
                "`crosstask.Learner`, or weigh tasks."
            )
        if need & (Need.REPRESENTATIONS | Need.FEATURES) and not isinstance(self.model, MultiTaskModel):
            raise CrossTaskError(
                f"weighting '{weighting.name}' reads what the encoder hands to the heads, which is known of models of "
                "transformers that share one: give a mapping from tasks to such models."
            )
        if need & (Need.EVERY_TASK | Need.SEVERAL_TASKS) and self.schedule != "parallel":
            raise CrossTaskError(
                f"weighting '{weighting.name}' needs a batch of every task in each step: use `schedule='parallel'`."
            )

    def begin_weighting(self) -> None:
        """What happens when training begins, after the trainer has read a checkpoint."""
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise CrossTaskError("Weights of tasks are learned from whole gradients: not with DeepSpeed or FSDP.")
        self._start_weighting()
        share_ranks(self.weighting)
        self.weighting.expect(self.state.max_steps * self.args.gradient_accumulation_steps)
        self._recent_losses.clear()
        if self.state.global_step:
            self._resume_weighting()
        elif Need.FEATURES in self.weighting.needs(0):
            self._fit_features()

    def _resume_weighting(self) -> None:
        saved = self.state.stateful_callbacks.get(SAVED_STATE)
        if not isinstance(saved, Mapping) or saved.get("name") != self.weighting.name:
            raise CrossTaskError(
                f"The checkpoint holds no state of the weighting '{self.weighting.name}': it is of a trainer with "
                "another weighting, or with none. Resume with that one, or start anew."
            )
        self.weighting.load_state_dict(from_json(saved["state"]))

    def end_update(self) -> None:
        """What happens after an update: learning from held-out examples, and state for the next checkpoint."""
        if self._wants_held_out and self.weighting.held_out is not None:
            self._learn_from_held_out(self.weighting.held_out)
        self._wants_held_out = False
        state = to_json(self.weighting.state_dict())
        self.state.stateful_callbacks[SAVED_STATE] = {"name": self.weighting.name, "state": state}

    def _learn_from_held_out(self, held_out: HeldOut) -> None:
        names = self.tasks if held_out.kind == "fresh" else self.weighting.tasks
        num_ranks = self.args.world_size
        size = (held_out.size or self._train_batch_size) * num_ranks
        step = sample_step(self._held_out, names, size, self._data_seed, self.state.global_step)
        model = self.model_wrapped
        losses = _LossesOnDemand()
        for task, positions in step.items():
            losses.compute[task] = partial(self._held_out_loss, model, task, positions)
        with ExitStack() as stack:
            stack.enter_context(without_dropout(self.model))
            stack.enter_context(twice_differentiable(Need.SECOND_ORDER in held_out.need))
            stack.enter_context(_unsynchronized(model))
            self.weighting.after_step(losses, shared=self.shared_parameters(), learning_rate=self._learning_rate)

    def _held_out_loss(self, model: nn.Module, task: str, positions: np.ndarray) -> Tensor:
        """This rank's part of the mean loss over these examples."""
        local = positions[self.args.process_index :: self.args.world_size]
        fraction = len(local) * self.args.world_size / len(positions)
        if not len(local):  # a rank without an example takes part too, with a loss of zero
            local = positions[:1]
        return self._task_loss(model, task, self._batch(task, self._held_out[task], local)) * fraction

    def _batch(self, task: str, dataset: Any, positions: np.ndarray) -> dict[str, Any]:
        """Examples of a task as its model takes them, on the device."""
        dataset, collate = self._with_collator(task, dataset, "held-out")
        batch: dict[str, Any] = self._prepare_inputs(dict(collate(examples_at(dataset, positions))))
        return batch

    def _fit_features(self) -> None:
        """Show the weighting what the encoder makes of training examples."""
        head_inputs = HeadInputs(self.model.encoder)
        features: dict[str, Tensor] = {}
        labels: dict[str, Tensor] = {}
        for task in self.weighting.tasks:
            dataset = self._support[task]
            order = np.random.default_rng(self._data_seed).permutation(len(dataset))[:MAX_FEATURE_EXAMPLES]
            parts: list[tuple[Tensor, Tensor]] = []
            for positions in np.array_split(order, -(-len(order) // self.args.eval_batch_size)):
                batch = self._batch(task, dataset, positions)
                with self._on_task(task):
                    if len(self.label_names) != 1 or self.label_names[0] not in batch:
                        raise CrossTaskError(
                            f"weighting '{self.weighting.name}' needs labels of one kind for each example of '{task}'."
                        )
                    batch_labels = batch[self.label_names[0]]
                with without_dropout(self.model), head_inputs.recorded():
                    loss = self._task_loss(self.model, task, batch)
                read = head_inputs.of(task, loss).detach()
                parts.append(vectors_and_labels(read, batch_labels))
            features[task] = torch.cat([vectors for vectors, _ in parts]).float().cpu()
            labels[task] = torch.cat([of_vectors for _, of_vectors in parts]).cpu()
        self.weighting.fit_features(features, labels)

    # --- a step ---

    def training_step(self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Put the gradient of one step in place, as the weighting decides; returns the weighted mean of the losses."""
        model.train()
        if callable(getattr(self.optimizer, "train", None)):  # as optimizers without a schedule have it
            self.optimizer.train()
        self._learning_rate = float(self.optimizer.param_groups[0]["lr"])
        batches = self._prepare_inputs(dict(inputs))
        weighting = self.weighting
        need = weighting.needs(weighting.steps)
        weights = weighting.weights
        scale = 1.0 / self.current_gradient_accumulation_steps
        # 1. Losses, each with a graph of its own, and what the weighting makes of their gradients.
        with twice_differentiable(Need.SECOND_ORDER in need), _unsynchronized(model):
            losses, representations = self._losses(model, batches, keeps_head_inputs=Need.REPRESENTATIONS in need)
            weighting.backward(
                losses,
                shared=self.shared_parameters(),
                probabilities=self._probabilities,
                scale=scale * self._loss_scale(),
                representations=representations,
            )
        self._wants_held_out |= weighting.wants_held_out
        # 2. What DDP would have done.
        num_ranks = self.args.world_size
        if num_ranks > 1 and self.accelerator.sync_gradients:
            sum_gradients(self.model.parameters())
        # 3. For the logs.
        values = {task: loss.detach() * num_ranks for task, loss in losses.items()}
        for task, value in values.items():
            self._recent_losses.setdefault(task, []).append(value)
        return _weighted_mean(values, weights) * scale

    def _losses(
        self, model: nn.Module, batches: Mapping[str, Any], *, keeps_head_inputs: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The losses of a step by task, and what the heads have read."""
        losses: dict[str, Tensor] = {}
        representations: dict[str, Tensor] = {}
        head_inputs = HeadInputs(self.model.encoder) if keeps_head_inputs else None
        for task, batch in batches.items():
            with head_inputs.recorded() if head_inputs is not None else nullcontext():
                losses[task] = self._task_loss(model, task, batch)
            if head_inputs is not None:
                representations[task] = head_inputs.of(task, losses[task])
        return losses, representations

    def _task_loss(self, model: nn.Module, task: str, batch: Mapping[str, Any]) -> Tensor:
        """This rank's part of a task's loss."""
        with self._on_task(task), self.compute_loss_context_manager():
            loss: Any = self.compute_loss(model, {**batch, "task": task})
        mean: Tensor = loss.mean()  # of several devices of one process
        return mean / self.args.world_size

    def _loss_scale(self) -> float:
        """Of 16-bit floats: gradients are scaled up, so that small ones are not lost."""
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is None:
            return 1.0
        return float(scaler.scale(torch.ones((), device=self.args.device)))

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Losses and weights of the tasks stand beside those that the trainer logs."""
        if "loss" in logs and self._recent_losses:
            for task, values in self._recent_losses.items():
                mean = torch.stack(values).float().mean()
                logs[f"loss_{task}"] = round(float(self.accelerator.reduce(mean, "mean")), 6)
            self._recent_losses.clear()
            logs |= {f"weight_{task}": weight for task, weight in self.weighting.weights.items()}
        super().log(logs, *args, **options)

    # --- evaluation ---

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        *,
        task: str | None = None,
    ) -> dict[str, float]:
        """Metrics of all tasks, as `eval_TASK_METRIC`.

        Args:
            eval_dataset: data sets by task, or one data set of `task`; those of the trainer when left out.
            ignore_keys: as for the trainer.
            metric_key_prefix: likewise.
            task: the task that a single data set is of; the target when left out.
        """
        if eval_dataset is None and task is not None:
            if task not in self._eval_datasets():
                raise CrossTaskError(f"There is no `eval_dataset` of the task '{task}'.")
            eval_dataset = {task: self._eval_datasets()[task]}
        if eval_dataset is not None and not isinstance(eval_dataset, Mapping):
            eval_dataset = {task or self._default_task(): eval_dataset}
        is_override = eval_dataset is not None
        datasets = check_datasets("eval_dataset", eval_dataset, self.tasks) if is_override else self._eval_datasets()
        metrics: dict[str, float] = {}
        for name, dataset in datasets.items():
            if is_override:  # a loader that was kept is of another set
                getattr(self, "_eval_dataloaders", {}).pop("eval", None)
            which: Any = dataset if is_override else name
            with self._on_task(name):
                metrics |= super().evaluate(which, ignore_keys, f"{metric_key_prefix}_{name}")
        return metrics

    def predict(  # type: ignore[override]
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        *,
        task: str | None = None,
    ) -> PredictionOutput | dict[str, PredictionOutput]:
        """Predictions of a data set of one task, or of data sets by task.

        Args:
            test_dataset: data sets by task, or one data set of `task`.
            ignore_keys: as for the trainer.
            metric_key_prefix: likewise.
            task: the task that a single data set is of; the target when left out.
        """
        if isinstance(test_dataset, Mapping):
            outputs: dict[str, PredictionOutput] = {}
            for name, dataset in check_datasets("test_dataset", test_dataset, self.tasks).items():
                with self._on_task(name):
                    outputs[name] = super().predict(dataset, ignore_keys, f"{metric_key_prefix}_{name}")
            return outputs
        with self._on_task(self._known(task or self._default_task())):
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """As the trainer's, for the task that is evaluated."""
        return super().prediction_step(model, {**inputs, "task": self._task}, prediction_loss_only, ignore_keys)

    def _eval_datasets(self) -> dict[str, Any]:
        return check_datasets("eval_dataset", self.eval_dataset, self.tasks)

    def _default_task(self) -> str:
        if len(self.target) == 1:
            return self.target[0]
        if len(self.tasks) == 1:
            return self.tasks[0]
        raise CrossTaskError(f"Which task is the data set of? Name it with `task=`: {', '.join(self.tasks)}.")

    def _known(self, task: str) -> str:
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        return task


class MultiTaskTrainer(WeightedTasksMixin, Trainer):
    """`transformers.Trainer` for several tasks, each with a data set, a head and a loss, and with any weighting.

    See `WeightedTasksMixin` for what it takes, and `examples/trainer_two_tasks.py` for a script.
    """


class _WeightingCallback(TrainerCallback):
    """Tells the trainer when training begins, and when an update has ended."""

    def __init__(self, trainer: WeightedTasksMixin) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the weighting, or go on with it."""
        self.trainer.begin_weighting()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the optimizer's step, and before anything is saved."""
        self.trainer.end_update()


class _LossesOnDemand(Mapping[str, Tensor]):
    """Losses by task, each computed when it is looked up, so that one graph exists at a time."""

    def __init__(self) -> None:
        self.compute: dict[str, Callable[[], Tensor]] = {}

    def __getitem__(self, task: str) -> Tensor:
        return self.compute[task]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.compute)

    def __len__(self) -> int:
        return len(self.compute)


@contextmanager
def _unsynchronized(model: nn.Module) -> Iterator[None]:
    """Without the sum over ranks that DDP takes at the end of a backward pass: there are several passes in a step."""
    if isinstance(model, DistributedDataParallel):
        with model.no_sync():
            yield
    else:
        yield


def _weighted_mean(losses: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Of the tasks that count; of all, where none does."""
    counts = {task: weights.get(task, 0.0) for task in losses}
    total = sum(counts.values())
    if total <= 0.0:
        counts, total = dict.fromkeys(losses, 1.0), float(len(losses))
    return torch.stack([losses[task] * (count / total) for task, count in counts.items()]).sum()


def _is_inherited(trainer: WeightedTasksMixin, method: str) -> bool:
    """Whether a class derived from ours has left a method as it is."""
    return getattr(type(trainer), method) is getattr(WeightedTasksMixin, method)
