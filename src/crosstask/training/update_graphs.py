"""Updates of the model as CUDA graphs: the whole of one, from the batch to the optimizer's step, in few launches.

What the host decides meanwhile, the weights of the tasks, comes in as tensors (`gradients.cuda_graphs`). A loss or
gradient that is not finite makes the optimizer skip its step on the device; the host sees it afterwards, and the
trainer takes the step again as plain code, which tells the failing tasks apart.
"""

import math
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.gradients.cuda_graphs import Computation, Parts, PlainGraphs, Run, Tensors
from crosstask.gradients.stacked import StackedGradients
from crosstask.gradients.task_gradients import add_to_grad
from crosstask.models.batches import Batch, Prepared, Step, make_batch
from crosstask.training.forward import Stepper
from crosstask.weighting.evidence import Need

UNSUITABLE = Need.SECOND_ORDER | Need.REPRESENTATIONS | Need.EXAMPLE_PRODUCTS | Need.EXAMPLE_WEIGHTS
"""What a weighting may need that only plain code gives."""
LENGTH_STEPS = ((64, 8), (128, 16), (512, 32), (math.inf, 64))
"""Up to a length, batches are padded to multiples of a number: few shapes, and little work on padding."""

CLIP_EPSILON = 1e-6
"""As in `torch.nn.utils.clip_grad_norm_`."""
LossesLast = Generator[Tensors, Tensors, Tensor]
"""Parts of a computation that return the losses, [tasks]."""


def padded_length(length: int) -> int:
    """The length that a batch of this length is padded to.

    >>> [padded_length(length) for length in (1, 8, 9, 65, 200)]
    [8, 8, 16, 80, 224]
    """
    for limit, multiple in LENGTH_STEPS:
        if length <= limit:
            return -(-length // multiple) * multiple
    raise AssertionError


@dataclass(frozen=True)
class Plan:
    """What the host decides about an update beforehand.

    - `tasks`: in the order of their rows in the batch;
    - `observed`: those of which only heads are trained;
    - `reads_losses`: the weights depend on the losses of this update;
    - `takes_products`: they depend on products of the tasks' gradients;
    - `transfers`: what transfers have decided, see `Transfer.graph_key`.
    """

    tasks: tuple[str, ...]
    observed: tuple[str, ...]
    reads_losses: bool
    takes_products: bool
    transfers: tuple[Hashable, ...]


class UpdateGraphs:
    """Runs updates of one phase by CUDA graphs.

    Args:
        stepper: runs the model.
        optimizer: AdamW, `fused` and `capturable`.
        clip: largest norm of the gradient; infinite for none.
        graphs: captures and replays.
    """

    def __init__(self, stepper: Stepper, optimizer: torch.optim.Optimizer, clip: float, graphs: PlainGraphs) -> None:
        self.stepper = stepper
        self.optimizer = optimizer
        self.clip = clip
        self.graphs = graphs
        self.lengths: dict[str, np.ndarray] = {}  # of each task's examples
        self.parameters: list[nn.Parameter] = []
        for group in optimizer.param_groups:
            self.parameters.extend(group["params"])

    def start(
        self, data: Mapping[str, Prepared], step: Step, need: Need, observed: Sequence[str]
    ) -> "UpdateInParts | None":
        """Begin an update, or None where this one has to run as plain code."""
        model = self.stepper.model
        if need & UNSUITABLE or not step or not model.encoder.has_few_shapes or len(model.inserts):
            return None
        if not all(len(positions) for positions in step.values()):
            return None
        keys = tuple(transfer.graph_key() for transfer in self.stepper.transfers)
        if None in keys:
            return None
        layers: Sequence[nn.Module] | None = None
        if Need.GRADIENTS in need:
            layers = self.stepper.fusable_layers(data, step, with_transfers=True)
            if Need.PRODUCTS not in need or layers is None:
                return None
        plan = Plan(tuple(step), tuple(observed), Need.LOSSES in need, layers is not None, keys)
        return UpdateInParts(self, plan, self._batch(data, step), layers)

    def _batch(self, data: Mapping[str, Prepared], step: Step) -> Batch:
        longest = 0
        for task, positions in step.items():
            if task not in self.lengths:
                self.lengths[task] = data[task].lengths()
            longest = max(longest, int(self.lengths[task][positions].max()))
        return make_batch(self.stepper.model.encoder, data, step, padded_length(longest))

    # --- what runs on the device ---

    def computation(self, plan: Plan, rows: Mapping[str, slice], layers: Sequence[nn.Module] | None) -> Computation:
        """The update as a computation in parts."""

        def update(inputs: Tensors) -> Parts:
            self._clear()
            batch = _batch_of(inputs, rows)
            if layers is not None:
                losses = yield from self._step_by_products(plan, batch, layers)
            else:
                losses = yield from self._plain_step(plan, batch, inputs)
            norm = self._take_step(losses)
            self._clear()  # gradients in a graph's memory must not be found there by plain code
            yield {"results": torch.cat([losses.double(), norm.double().reshape(1)])}

        return update

    def _plain_step(self, plan: Plan, batch: Batch, inputs: Tensors) -> LossesLast:
        """One backward pass of the weighted sum of losses."""
        losses = self.stepper.batch_losses(batch)
        values = _stack(losses)
        sent = inputs
        if plan.reads_losses:
            sent = yield {"losses": values}
        terms: list[Tensor] = []
        for factor, (task, loss) in zip(sent["factors"], losses.items(), strict=True):
            if task in plan.observed:
                heads = self.stepper.model.head_parameters(task)
                torch.autograd.backward(factor * loss, inputs=heads, retain_graph=True)
            else:
                terms.append(factor * loss)
        if terms:
            torch.stack(terms).sum().backward()
        return values

    def _step_by_products(self, plan: Plan, batch: Batch, layers: Sequence[nn.Module]) -> LossesLast:
        """Every task's gradient from one pass; the host reads their products and decides what each counts."""
        losses = self.stepper.fused_losses(batch, layers)
        stacks, heads = losses.stacked_gradients()
        values = _stack(losses)
        gradients = StackedGradients(stacks, self.stepper.model.shared_parameters())
        sent = yield {"losses": values, "gram": gradients.gram()}
        gradients.put_mixture_in_place(sent["factors"])
        for factor, task in zip(sent["head_factors"], plan.tasks, strict=True):
            add_to_grad([(parameter, factor * gradient) for parameter, gradient in heads[task]])
        return values

    @torch.no_grad()
    def _take_step(self, losses: Tensor) -> Tensor:
        """The optimizer's step, unless something is not finite; returns the norm of the gradient."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        is_finite = torch.isfinite(norm) & torch.isfinite(losses).all()
        # As under a GradScaler: the kernel divides gradients by the one and does nothing where the other is 1.
        scaling = {
            "grad_scale": ((norm + CLIP_EPSILON) / self.clip).clamp(min=1.0),
            "found_inf": 1.0 - is_finite.float(),
        }
        vars(self.optimizer).update(scaling)
        self.optimizer.step()
        for name in scaling:
            delattr(self.optimizer, name)
        return norm

    def _clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


class UpdateInParts(dict[str, Tensor]):
    """The losses of one update for a weighting, which puts gradients in place through it (`PlacesGradients`)."""

    def __init__(self, updates: UpdateGraphs, plan: Plan, batch: Batch, layers: Sequence[nn.Module] | None) -> None:
        super().__init__(dict.fromkeys(plan.tasks, torch.zeros(())))  # the weighting sees which tasks there are
        self.updates, self.plan = updates, plan
        self.rows, self.inputs = batch.rows, _inputs_of(batch)
        self.computation = updates.computation(plan, batch.rows, layers)
        self.run: Run | None = None
        if plan.reads_losses or plan.takes_products:
            self.run = self._start(self.inputs)
        self._numbers: dict[str, float] = {}

    def _start(self, inputs: Tensors) -> Run:
        rows = tuple((task, part.start, part.stop) for task, part in self.rows.items())
        return self.updates.graphs.run((self.plan, rows), self.computation, inputs)

    @property
    def has_values(self) -> bool:
        """Whether the host can read losses before gradients are in place."""
        return self.run is not None

    def numbers(self) -> dict[str, float]:
        """The losses by task."""
        if not self._numbers:
            assert self.run is not None
            values = self.updates.graphs.fetch(self.run.outputs["losses"]).tolist()
            self._numbers = dict(zip(self.plan.tasks, values, strict=True))
        return self._numbers

    def gram(self, tasks: Sequence[str]) -> Tensor:
        """Products of these tasks' gradients."""
        assert self.run is not None
        rows = [self.plan.tasks.index(task) for task in tasks]
        return self.updates.graphs.fetch(self.run.outputs["gram"])[rows][:, rows]

    def put_in_place(self, factors: Mapping[str, float], head_factors: Mapping[str, float]) -> None:
        """Everything that follows: the gradients, and the optimizer's step."""
        tasks = self.plan.tasks
        inputs = {"factors": torch.tensor([factors[task] for task in tasks])}
        if self.run is None:
            for task in self.plan.observed:
                inputs["factors"][tasks.index(task)] = head_factors[task]
            self.run = self._start({**self.inputs, **inputs})
            return
        if self.plan.takes_products:
            inputs["head_factors"] = torch.tensor([head_factors[task] for task in tasks])
        self.run.send(inputs)

    def finish(self) -> tuple[dict[str, float], bool]:
        """The losses, and whether they and the gradient were finite, so that the step was taken."""
        assert self.run is not None
        *losses, norm = self.updates.graphs.fetch(self.run.outputs["results"]).tolist()
        self.run.finish()
        is_finite = all(map(math.isfinite, (*losses, norm)))
        return dict(zip(self.plan.tasks, losses, strict=True)), is_finite


def _stack(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([loss.detach() for loss in losses.values()])  # [tasks]


def _inputs_of(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by names of their own."""
    inputs = {f"input {name}": tensor for name, tensor in batch.inputs.items()}
    for task, labels in batch.labels.items():
        inputs[f"labels {task}"] = labels
    return inputs


def _batch_of(inputs: Tensors, rows: Mapping[str, slice]) -> Batch:
    """The batch that `_inputs_of` took apart."""
    model_inputs: dict[str, Tensor] = {}
    for name, tensor in inputs.items():
        if name.startswith("input "):
            model_inputs[name.removeprefix("input ")] = tensor
    labels = {task: inputs[f"labels {task}"] for task in rows}
    return Batch(model_inputs, labels, dict(rows), {})
