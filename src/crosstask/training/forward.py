"""The forward pass of a step: from the positions of examples to the tasks' losses, on one rank or on many."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum, auto

import torch
from torch import Tensor, nn

from crosstask.gradients import fused
from crosstask.gradients.sharded import is_sharded
from crosstask.gradients.task_gradients import num_entries
from crosstask.models.batches import Batch, Prepared, Step, make_batch, split_over_ranks
from crosstask.models.modes import without_dropout
from crosstask.models.multitask import Model
from crosstask.models.per_example import batch_products, target_direction
from crosstask.training.devices import Devices
from crosstask.transfer.base import ExampleWeights, Objective, Pass, Terms, Transfer
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Need


class Graphs(Enum):
    """How many graphs the losses of a step have."""

    ONE_FOR_ALL = auto()
    """One pass over the examples of all tasks."""
    ONE_PER_TASK = auto()
    """A pass for each task, so that each task's gradient can be taken by itself."""
    FUSED_IF_POSSIBLE = auto()
    """One pass where each task's gradient can be taken from it (`gradients.fused`), else one per task."""

    @classmethod
    def for_need(cls, need: Need) -> "Graphs":
        """What a weighting's need asks for."""
        if Need.GRADIENTS not in need:
            return cls.ONE_FOR_ALL
        if Need.SEPARATE_GRAPHS in need:
            return cls.ONE_PER_TASK
        return cls.FUSED_IF_POSSIBLE


@dataclass(frozen=True)
class PassOptions:
    """How a step is run.

    - `graphs`: one for all losses, or one per task;
    - `keep_representations`: return them for the weighting;
    - `example_weights`: what each example counts within its task; all the same when left out;
    - `objective`: what is trained instead of the heads' losses, where there is such a thing; no term joins it;
    - `with_transfers`: whether terms of transfers are added; held-out losses are those of the tasks alone;
    - `scale`: factor of the terms that no weighting touches, which go into `.grad` at once.
    """

    graphs: Graphs = Graphs.ONE_FOR_ALL
    keep_representations: bool = False
    example_weights: ExampleWeights | None = None
    objective: Objective | None = None
    with_transfers: bool = True
    scale: float = 1.0


@dataclass
class StepLosses:
    """The losses of a step.

    - `losses`: this rank's part of each task's mean loss over all ranks, added up over ranks the loss itself; a
      `FusedLosses` where one pass was enough;
    - `values`: the losses over all ranks, as numbers;
    - `representations`: each task's representation inside the graph of its loss, where kept.
    """

    losses: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    representations: dict[str, Tensor] = field(default_factory=dict)


class Stepper:
    """Runs the model on the examples of a step."""

    def __init__(self, model: Model, devices: Devices, transfers: Sequence[Transfer] = ()) -> None:
        self.model = model
        self.devices = devices
        self.transfers = list(transfers)
        # Layers to record in a fused pass, by the parameters that learn; None where a fused pass does not work.
        self._layers: dict[tuple[int, ...], Sequence[nn.Module] | None] = {}

    def run(self, data: Mapping[str, Prepared], step: Step, options: PassOptions | None = None) -> StepLosses:
        """The losses of a step, whose positions point into `data`."""
        options = options or PassOptions()
        result = StepLosses()
        if not step:
            return result
        # 1. This rank's examples, and how many passes they take.
        own_step = split_over_ranks(step, self.devices.rank, self.devices.num_ranks)
        local_step: Step = {}
        for task, positions in own_step.items():
            # All ranks take part in the same passes, and their losses reach the same parameters in the same order: one
            # without an example of a task runs another's, which counts 0.
            if len(step[task]):
                local_step[task] = positions if len(positions) else step[task][:1]
        layers = None
        if options.graphs is Graphs.FUSED_IF_POSSIBLE:
            layers = self.fusable_layers(data, step, options.with_transfers)
        if options.graphs is Graphs.ONE_FOR_ALL or layers is not None:
            groups = [local_step] if local_step else []  # one pass for all
        else:
            groups = [{task: positions} for task, positions in local_step.items()]  # a graph of its own per task
        # 2. Sums of the examples' losses, and numbers of labeled units.
        sums: dict[str, Tensor] = {}
        for task in step:
            if task not in local_step:
                sums[task] = self._zero_loss(task)
        counts = torch.zeros(len(step), device=self.devices.device)  # [tasks], in the step's order
        rows = {task: row for row, task in enumerate(step)}
        for group in groups:
            batch = make_batch(self.model.encoder, data, group).to(self.devices.device)
            try:
                with fused.recorded(layers or (), _num_examples(group)) as calls:
                    forward = self._forward(batch)
            except fused.RowsMixedError:  # with this batch, though not with that of the self-check
                self._layers[self._learning_key()] = None
                return self.run(data, step, replace(options, graphs=Graphs.ONE_PER_TASK))
            for task, (total, count) in self._loss_sums(forward, options).items():
                if not len(own_step[task]):
                    total, count = 0.0 * total, torch.zeros_like(count)
                sums[task], counts[rows[task]] = total, count
                if options.keep_representations:
                    kind = self.model.specs[task].kind
                    result.representations[task] = forward.representations[task].head_input(kind)
        # 3. Means over the units of all ranks.
        counts = self.devices.sum(counts).clamp(min=1.0)  # a batch may hold no labeled unit at all
        for task, row in rows.items():
            result.losses[task] = sums[task] / counts[row]
        if layers is not None:
            result.losses = self._fused_losses(result.losses, batch, calls)
        values = self.devices.sum(torch.stack([loss.detach() for loss in result.losses.values()])).tolist()
        result.values = dict(zip(result.losses, values, strict=True))
        return result

    def batch_losses(self, batch: Batch) -> dict[str, Tensor]:
        """The tasks' mean losses over one batch, with the terms of transfers; nothing here waits for the device."""
        losses: dict[str, Tensor] = {}
        for task, (total, count) in self._loss_sums(self._forward(batch), PassOptions()).items():
            losses[task] = total / count.clamp(min=1)
        return losses

    def fused_losses(self, batch: Batch, layers: Sequence[nn.Module]) -> fused.FusedLosses:
        """The same without transfers, with what it takes to compute each task's gradient."""
        size = max(rows.stop for rows in batch.rows.values())
        with fused.recorded(layers, size) as calls:
            forward = self._forward(batch)
        losses: dict[str, Tensor] = {}
        for task in batch.rows:
            total, count = self._loss_sum(task, forward, None)
            losses[task] = total / count.clamp(min=1)
        return self._fused_losses(losses, batch, calls)

    def _loss_sums(self, forward: Pass, options: PassOptions) -> dict[str, tuple[Tensor, Tensor]]:
        """By task the sum of the losses of a batch, changed by the transfers, and the number of labeled units."""
        if options.objective is not None:
            return options.objective.loss_sums(forward)
        terms = self._transfer_terms(forward, options)
        sums: dict[str, tuple[Tensor, Tensor]] = {}
        for task in forward.batch.rows:
            total, count = self._loss_sum(task, forward, options.example_weights)
            for transfer_terms in terms:
                total = transfer_terms.change(task, total)
            sums[task] = total, count
        return sums

    def _loss_sum(self, task: str, forward: Pass, example_weights: ExampleWeights | None) -> tuple[Tensor, Tensor]:
        """The sum of a task's losses in a batch, and the number of its labeled units."""
        batch = forward.batch
        weights = None
        if example_weights is not None:
            weights = example_weights(task, batch.positions[task])
        return self.model.training_loss(task, forward.logits[task], batch.labels[task], weights)

    def _zero_loss(self, task: str) -> Tensor:
        """A loss of zero for a task without any example, which reaches what the task's loss would."""
        parameters = self.model.head_parameters(task)
        parameters += [parameter for parameter in self.model.shared_parameters() if not is_sharded(parameter)]
        return torch.stack([parameter.sum() for parameter in parameters]).sum() * 0.0

    def _forward(self, batch: Batch) -> Pass:
        """Logits of each task, and the representations that its head has read."""
        with self.devices.autocast():
            encoded = self.model.encode(batch.inputs, batch.rows)
            by_task = {task: encoded.rows(rows.start, rows.stop) for task, rows in batch.rows.items()}
            return Pass(self.model, batch, self.model.read(by_task, batch.inputs, batch.rows), by_task)

    def _transfer_terms(self, forward: Pass, options: PassOptions) -> list[Terms]:
        """Terms of all transfers; the gradient of those that no weighting touches goes into `.grad` at once."""
        if not options.with_transfers:
            return []
        result = []
        for transfer in self.transfers:
            with self.devices.autocast():
                terms = transfer.terms(forward)
            if terms.unweighted is not None:
                (terms.unweighted * (options.scale / self.devices.num_ranks)).backward(retain_graph=True)
            result.append(terms)
        return result

    # --- fused passes ---

    def can_fuse(self, data: Mapping[str, Prepared], step: Step) -> bool:
        """Whether one pass without transfers gives every task's gradient."""
        return self.fusable_layers(data, step, with_transfers=False) is not None

    def fusable_layers(
        self, data: Mapping[str, Prepared], step: Step, with_transfers: bool
    ) -> Sequence[nn.Module] | None:
        """The layers to record for each task's gradient from one pass; None where that does not pay or work."""
        shared = self.model.shared_parameters()
        if self.devices.device.type not in fused.DEVICES or self.devices.num_ranks > 1:
            return None
        # A gradient per task exists at the same time.
        if not shared or len(step) * num_entries(shared) > fused.MAX_ENTRIES:
            return None
        if not all(len(positions) for positions in step.values()):  # a task without examples has no rows to record
            return None
        # Inserts and terms of transfers act on several tasks at once.
        if len(self.model.inserts) or (with_transfers and any(_has_terms(transfer) for transfer in self.transfers)):
            return None
        key = self._learning_key()
        if key not in self._layers:
            self._layers[key] = None
            # Once for each set of learning parameters: the check costs several passes.
            layers = fused.layers_to_record(self.model.encoder)
            if layers is not None and self._check_fused_pass(data, step, layers):
                self._layers[key] = layers
        return self._layers[key]

    def _fused_losses(
        self, losses: Mapping[str, Tensor], batch: Batch, calls: Sequence[fused.Call]
    ) -> fused.FusedLosses:
        heads = {task: self.model.head_parameters(task) for task in losses}
        return fused.FusedLosses(losses, batch.rows, calls, heads)

    def _learning_key(self) -> tuple[int, ...]:
        return tuple(id(parameter) for parameter in self.model.shared_parameters())

    def _check_fused_pass(self, data: Mapping[str, Prepared], step: Step, layers: Sequence[nn.Module]) -> bool:
        """Compare gradients of one fused pass without dropout with those of autograd."""
        batch = make_batch(self.model.encoder, data, step).to(self.devices.device)
        with without_dropout(self.model) if self.model.training else nullcontext():
            try:
                with fused.recorded(layers, _num_examples(step)) as calls:
                    forward = self._forward(batch)
                losses: dict[str, Tensor] = {}
                for task in step:
                    losses[task], _ = self._loss_sum(task, forward, None)
                return fused.agree(self._fused_losses(losses, batch, calls), self.model.shared_parameters())
            except torch.OutOfMemoryError:
                raise
            except (fused.RowsMixedError, RuntimeError):  # RuntimeError: shapes that no rule of a layer expects
                return False

    # --- products of single examples ---

    def update_example_weights(
        self, data: Mapping[str, Prepared], step: Step, weighting: Weighting, targets: Sequence[str]
    ) -> None:
        """Let the weighting learn from the products of a step's source examples with the targets' gradient."""
        target_step = {task: positions for task, positions in step.items() if task in targets}
        if not target_step:
            return
        # Every rank compares its own source examples with the gradient of all target examples.
        device = self.devices.device
        target_batch = make_batch(self.model.encoder, data, target_step).to(device)
        direction = target_direction(self.model, [target_batch], list(target_step))
        for task, positions in split_over_ranks(step, self.devices.rank, self.devices.num_ranks).items():
            if task in targets:
                continue
            products = torch.zeros(0, device=device)  # [this rank's examples of the task]
            if len(positions):
                batch = make_batch(self.model.encoder, data, {task: positions}).to(device)
                products = batch_products(self.model, batch, task, direction)
            weighting.update_examples(task, positions, products)


def _num_examples(step: Step) -> int:
    return sum(len(positions) for positions in step.values())


def _has_terms(transfer: Transfer) -> bool:
    return type(transfer).terms is not Transfer.terms
