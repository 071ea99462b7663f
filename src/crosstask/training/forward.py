"""One step forward: from the positions of examples to the tasks' losses, on one rank or on many."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.gradients import fused as blockwise
from crosstask.models.batches import Batch, Prepared, Step, make_batch, split_over_ranks
from crosstask.models.losses import loss_sum
from crosstask.models.modes import without_dropout
from crosstask.models.multitask import Model
from crosstask.training.devices import Devices
from crosstask.transfer.base import Pass, Terms, Transfer
from crosstask.weighting.base import Weighting

ExampleWeights = Callable[[str, np.ndarray], Tensor | None]


@dataclass
class StepLosses:
    """What a step gives.

    - `losses`: this rank's part of each task's mean loss over all ranks; added up over ranks it is the whole; a
      `blockwise.FusedLosses` where one pass was enough;
    - `values`: the whole, as numbers;
    - `representations`: where asked for, each task's representation inside the graph of its loss.
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
        self._layers: dict[tuple[int, ...], Sequence[nn.Module] | None] = {}  # by what learns

    def run(
        self,
        data: Mapping[str, Prepared],
        step: Step,
        *,
        apart: bool = False,
        fused: bool = False,
        representations: bool = False,
        example_weights: ExampleWeights | None = None,
        transfers: bool = True,
        scale: float = 1.0,
    ) -> StepLosses:
        """The losses of a step.

        Args:
            data: the examples that the step's positions point into.
            step: positions by task.
            apart: a pass of its own for every task, so that each loss has its own graph; else one fused pass.
            fused: one pass will do nevertheless where the tasks' gradients can be told apart: see `blockwise`.
            representations: keep them for the weighting.
            example_weights: what each example counts within its task; all the same when left out.
            transfers: whether transfers have their say; held-out losses are those of the tasks alone.
            scale: factor of the terms that no weighting touches, which go into `.grad` here.
        """
        active = self.transfers if transfers else []
        result = StepLosses()
        if not step:
            return result
        share = split_over_ranks(step, self.devices.rank, self.devices.num_ranks)
        share = {task: positions for task, positions in share.items() if len(positions)}
        sums = {task: self._nothing(task) for task in step if task not in share}
        counts = torch.zeros(len(step), device=self.devices.device)
        places = {task: place for place, task in enumerate(step)}
        layers = self._layers_to_record(data, step, active) if apart and fused and not representations else None
        if layers is not None:
            apart = False
        for group in [{task: at} for task, at in share.items()] if apart else [share] if share else []:
            batch = make_batch(self.model.encoder, data, group).to(self.devices.device)
            try:
                with blockwise.recorded(layers or (), sum(map(len, group.values()))) as calls:
                    forward = self._forward(batch)
            except blockwise.RowsMixedError:  # with this batch, if not with that of the trial
                self._layers[self._learning()] = None
                return self.run(
                    data, step, apart=True, example_weights=example_weights, transfers=transfers, scale=scale
                )
            transfer_terms = self._transfer_terms(forward, active, scale)
            for task in group:
                weights = example_weights(task, batch.positions[task]) if example_weights is not None else None
                kind = self.model.specs[task].kind
                logits = forward.logits[task]
                sums[task], counts[places[task]] = loss_sum(kind, logits, batch.labels[task], weights)
                for terms in transfer_terms:
                    sums[task] = terms.change(task, sums[task])
                if representations:
                    result.representations[task] = forward.representations[task].head_input(kind)
        counts = self.devices.sum(counts).clamp(min=1.0)
        result.losses = {task: sums[task] / counts[place] for task, place in places.items()}  # in the step's order
        if layers is not None:
            own = {task: self.model.head_parameters(task) for task in step}
            result.losses = blockwise.FusedLosses(result.losses, batch.rows, calls, own)
        values = self.devices.sum(torch.stack([loss.detach() for loss in result.losses.values()])).tolist()
        result.values = dict(zip(result.losses, values, strict=True))
        return result

    def tells_apart(self, data: Mapping[str, Prepared], step: Step) -> bool:
        """Whether one fused pass without transfers gives every task's gradient."""
        return self._layers_to_record(data, step, ()) is not None

    def _layers_to_record(
        self, data: Mapping[str, Prepared], step: Step, active: Sequence[Transfer]
    ) -> Sequence[nn.Module] | None:
        """The layers by which the tasks of a fused pass can be told apart; None where that does not pay or work."""
        shared = self.model.shared_parameters()
        entries = len(step) * sum(parameter.numel() for parameter in shared)
        if (
            self.devices.device.type not in blockwise.DEVICES
            or self.devices.num_ranks > 1
            or not shared
            or not all(map(len, step.values()))
            or entries > blockwise.MAX_ENTRIES
            or len(self.model.inserts)
            or not all(map(_leaves_losses_alone, active))
        ):
            return None
        known = self._learning()
        if known not in self._layers:
            layers = blockwise.layers_to_record(self.model.encoder)
            self._layers[known] = layers if layers is not None and self._told_apart(data, step, layers) else None
        return self._layers[known]

    def _learning(self) -> tuple[int, ...]:
        """What learns now, as a key."""
        return tuple(map(id, self.model.shared_parameters()))

    def _told_apart(self, data: Mapping[str, Prepared], step: Step, layers: Sequence[nn.Module]) -> bool:
        """Try it once, without dropout, next to what autograd says."""
        batch = make_batch(self.model.encoder, data, step).to(self.devices.device)
        with without_dropout(self.model) if self.model.training else nullcontext():
            try:
                with blockwise.recorded(layers, sum(map(len, step.values()))) as calls:
                    logits = self._forward(batch).logits
                losses = {
                    task: loss_sum(self.model.specs[task].kind, logits[task], batch.labels[task])[0] for task in step
                }
                own = {task: self.model.head_parameters(task) for task in step}
                fused = blockwise.FusedLosses(losses, batch.rows, calls, own)
                return blockwise.agree(fused, self.model.shared_parameters())
            except (blockwise.RowsMixedError, RuntimeError):  # shapes that no rule foresaw, or too little memory
                return False

    def _nothing(self, task: str) -> Tensor:
        """A loss of zero that reaches what the task's loss would: a rank without an example of it still takes part."""
        reached = [*self.model.shared_parameters(), *self.model.head_parameters(task)]
        return torch.stack([parameter.sum() for parameter in reached]).sum() * 0.0

    def examine(self, data: Mapping[str, Prepared], step: Step, weighting: Weighting, targets: Sequence[str]) -> None:
        """Show the weighting how each source example of a step agrees with the targets."""
        from crosstask.models.per_example import batch_products, target_direction

        own = {task: at for task, at in step.items() if task in targets}
        if not own:
            return
        # Every rank compares its own examples with the gradient of all the targets' examples.
        device = self.devices.device
        direction = target_direction(self.model, [make_batch(self.model.encoder, data, own).to(device)], list(own))
        for task, positions in split_over_ranks(step, self.devices.rank, self.devices.num_ranks).items():
            if task in targets:
                continue
            products = torch.zeros(0, device=device)
            if len(positions):
                batch = make_batch(self.model.encoder, data, {task: positions}).to(device)
                products = batch_products(self.model, batch, task, direction)
            weighting.update_examples(task, positions, products)

    def _forward(self, batch: Batch) -> Pass:
        """Logits of each task, and the very representations that its head has read."""
        with self.devices.autocast():
            whole = self.model.encode(batch.inputs, batch.rows)
            parts = {task: whole.rows(at.start, at.stop) for task, at in batch.rows.items()}
            return Pass(self.model, batch, self.model.read(parts, batch.inputs, batch.rows), parts)

    def _transfer_terms(self, forward: Pass, transfers: Sequence[Transfer], scale: float) -> list[Terms]:
        """Terms of all transfers; the gradient of those that no weighting touches goes into `.grad` at once."""
        result = []
        for transfer in transfers:
            with self.devices.autocast():
                terms = transfer.terms(forward)
            if terms.unweighted is not None:
                (terms.unweighted * (scale / self.devices.num_ranks)).backward(retain_graph=True)
            result.append(terms)
        return result


def _leaves_losses_alone(transfer: Transfer) -> bool:
    return type(transfer).terms is Transfer.terms
