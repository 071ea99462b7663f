"""Updates of the model as CUDA graphs: the whole of one, from the batch to the optimizer's step, in few launches.

What the host decides meanwhile, the weights of the tasks, comes in as tensors (`gradients.cuda_graphs`). A loss or
gradient that is not finite makes the optimizer skip its step on the device; the host sees it afterwards, and the
trainer takes the step again as plain code, which tells the failing tasks apart.
"""

import math
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.gradients.cuda_graphs import Parts, PlainGraphs, Run, Tensors
from crosstask.gradients.fused import FusedLosses
from crosstask.gradients.stacked import HeadGradients, StackedGradients, head_products
from crosstask.gradients.task_gradients import add_to_grad
from crosstask.models.batches import Batch, Prepared, RowCounts, Step, batch_of_few_shapes, row_counts
from crosstask.models.losses import ignore
from crosstask.models.modes import without_dropout
from crosstask.training.config import Training
from crosstask.training.forward import Stepper
from crosstask.weighting.evidence import Need

UNSUITABLE = Need.SECOND_ORDER | Need.REPRESENTATIONS | Need.EXAMPLE_PRODUCTS | Need.EXAMPLE_WEIGHTS
"""What a weighting may need that only plain code gives."""
CLIP_EPSILON = 1e-6
"""As in `torch.nn.utils.clip_grad_norm_`."""
KINDS_WITH_IGNORED = ("classification", "pair", "tagging")
"""Kinds of tasks in which an example can be labeled as one that does not count."""
QUERY = "query "
"""Names of the tensors of held-out examples begin so."""
PartsWithLosses = Generator[Tensors, Tensors, Tensor]
"""Parts of a computation that return the losses, [tasks]."""


class Examples(NamedTuple):
    """Examples of a step, as positions in the data of each task."""

    data: Mapping[str, Prepared]
    step: Step


class Outcome(NamedTuple):
    """What an update has shown.

    - `losses`: by task;
    - `is_finite`: whether they and the gradient were finite, so that the step was taken;
    - `query_losses`, `products`: what a weighting with `Need.HELD_OUT_PRODUCTS` learns from, [query losses, tasks];
      empty without one.
    """

    losses: dict[str, float]
    is_finite: bool
    query_losses: dict[str, float]
    products: Tensor


@dataclass(frozen=True)
class Plan:
    """What the host decides about an update beforehand.

    - `rows`: the tasks of the batch, and those of held-out examples, if the weights learn from products with them;
    - `observed`: tasks of which only heads are trained;
    - `reads_losses`: the weights depend on the losses of this update;
    - `takes_products`: they depend on products of the tasks' gradients;
    - `transfers`: what transfers have decided, see `Transfer.graph_key`.
    """

    rows: RowCounts
    query_rows: RowCounts
    observed: tuple[str, ...]
    reads_losses: bool
    takes_products: bool
    transfers: tuple[Hashable, ...]

    @property
    def tasks(self) -> list[str]:
        """In the order of their rows in the batch."""
        return [task for task, _ in self.rows]


class UpdateGraphs:
    """Runs updates of one phase by CUDA graphs.

    Args:
        stepper: runs the model.
        optimizer: AdamW, `fused` and `capturable`.
        settings: of the loop.
        graphs: captures and replays.
    """

    def __init__(
        self, stepper: Stepper, optimizer: torch.optim.Optimizer, settings: Training, graphs: PlainGraphs
    ) -> None:
        self.stepper = stepper
        self.optimizer = optimizer
        self.batch_size = settings.batch_size
        self.clip = settings.clip or math.inf
        self.graphs = graphs
        # Which parameters learn does not change within a phase, and to find them takes as long as to launch a graph.
        self.shared = stepper.model.shared_parameters()
        self.layers: dict[tuple[str, ...], Sequence[nn.Module]] = {}  # by the tasks of a step
        self.parameters: list[nn.Parameter] = []
        for group in optimizer.param_groups:
            self.parameters.extend(group["params"])

    def start(
        self, examples: Examples, need: Need, observed: Sequence[str] = (), query: Examples | None = None
    ) -> "UpdateInParts | None":
        """Begin an update, or None where this one has to run as plain code.

        Args:
            examples: of the update.
            need: what the weighting needs.
            observed: tasks that the weighting sees without training on them.
            query: held-out examples, for a weighting that learns from products with their gradients.
        """
        model, step = self.stepper.model, examples.step
        if need & UNSUITABLE or not step or not model.encoder.has_few_shapes or len(model.inserts):
            return None
        if not all(len(positions) for positions in step.values()):
            return None
        transfer_keys = tuple(transfer.graph_key() for transfer in self.stepper.transfers)
        if None in transfer_keys:
            return None
        layers: Sequence[nn.Module] = ()
        if Need.GRADIENTS in need:
            layers = self._layers_to_record(examples)
            if not layers or not need & (Need.PRODUCTS | Need.HELD_OUT_PRODUCTS):
                return None
        # Where each task's gradient is recorded, its examples have rows of their own.
        batch, query_batch = self._batch(examples, packs=not layers), None
        if query is not None:
            query_batch = self._batch(query, packs=False)
        plan = Plan(
            rows=row_counts(batch.rows),
            query_rows=() if query_batch is None else row_counts(query_batch.rows),
            observed=tuple(observed),
            reads_losses=Need.LOSSES in need,
            takes_products=Need.PRODUCTS in need,
            transfers=transfer_keys,
        )
        return UpdateInParts(Update(self, plan, layers), batch, query_batch)

    def _layers_to_record(self, examples: Examples) -> Sequence[nn.Module]:
        """For each task's gradient from one pass; none where that does not work."""
        tasks = tuple(examples.step)
        if tasks not in self.layers:
            self.layers[tasks] = self.stepper.fusable_layers(*examples, with_transfers=True) or ()
        return self.layers[tasks]

    def _batch(self, examples: Examples, *, packs: bool) -> Batch:
        """A batch whose shape comes back: filled up to the batch size with examples that do not count."""
        data, step = examples
        full_step = dict(step)
        if not self.stepper.transfers:
            for task, positions in step.items():
                if data[task].spec.kind in KINDS_WITH_IGNORED:
                    full_size = min(self.batch_size, len(data[task]))
                    full_step[task] = np.resize(positions, max(full_size, len(positions)))
        batch = batch_of_few_shapes(self.stepper.model.encoder, data, full_step, packs=packs)
        for task, positions in step.items():
            if len(full_step[task]) > len(positions):
                ignore(batch.labels[task][len(positions) :])
        return batch


class Update:
    """One update as a computation in parts; everything here runs on the device, and nothing waits for it."""

    def __init__(self, updates: UpdateGraphs, plan: Plan, layers: Sequence[nn.Module]) -> None:
        self.stepper, self.model = updates.stepper, updates.stepper.model
        self.optimizer, self.parameters, self.clip = updates.optimizer, updates.parameters, updates.clip
        self.graphs, self.shared = updates.graphs, updates.shared
        self.plan = plan
        self.layers = layers

    def run(self, inputs: Tensors) -> Parts:
        """From the batch to the optimizer's step, and the held-out losses after it."""
        self._clear()
        batch = Batch.from_tensors(inputs, self.plan.rows)
        gradients: tuple[StackedGradients, HeadGradients] | None = None
        if self.layers:
            losses = self.stepper.fused_losses(batch, self.layers)
            gradients = self._take_gradients(losses)
            values = yield from self._put_mixture_in_place(losses, *gradients, inputs)
        else:
            values = yield from self._plain_step(batch, inputs)
        norm = self._take_step(values)
        self._clear()  # gradients in a graph's memory must not be found there by plain code
        results = [values.double(), norm.double().reshape(1)]
        if self.plan.query_rows and gradients is not None:
            results += self._held_out_products(inputs, *gradients)
        yield {"numbers": torch.cat(results)}

    def _plain_step(self, batch: Batch, inputs: Tensors) -> PartsWithLosses:
        """One backward pass of the weighted sum of losses."""
        losses = self.stepper.batch_losses(batch)
        values = _stack(losses)
        sent = inputs
        if self.plan.reads_losses:
            sent = yield {"numbers": values.double()}
        terms: list[Tensor] = []
        for factor, (task, loss) in zip(sent["head factors"], losses.items(), strict=True):
            if task in self.plan.observed:
                heads = self.model.head_parameters(task)
                torch.autograd.backward(factor * loss, inputs=heads, retain_graph=True)
            else:
                terms.append(factor * loss)
        if terms:
            torch.stack(terms).sum().backward()
        return values

    def _take_gradients(self, losses: FusedLosses) -> tuple[StackedGradients, HeadGradients]:
        """Every task's gradient from one pass."""
        stacks, heads = losses.stacked_gradients()
        return StackedGradients(stacks, self.shared), heads

    def _put_mixture_in_place(
        self, losses: FusedLosses, gradients: StackedGradients, heads: HeadGradients, inputs: Tensors
    ) -> PartsWithLosses:
        """The sum of the tasks' gradients; the host may read their products first, and decide what each counts."""
        values = _stack(losses)
        sent = inputs
        if self.plan.takes_products:
            sent = yield {"numbers": torch.cat([values.double(), gradients.gram().flatten()])}
        gradients.put_mixture_in_place(sent["factors"])
        for factor, task in zip(sent["head factors"], self.plan.tasks, strict=True):
            add_to_grad([(parameter, factor * gradient) for parameter, gradient in heads[task]])
        return values

    @torch.no_grad()
    def _take_step(self, losses: Tensor) -> Tensor:
        """The optimizer's step, unless something is not finite; returns the norm of the gradient."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        is_finite = torch.isfinite(norm) & torch.isfinite(losses).all()
        # As under a GradScaler: the kernel divides gradients by the one and does nothing where the other is 1.
        grad_scale = ((norm + CLIP_EPSILON) / self.clip).clamp(min=1.0)
        scaling = {"grad_scale": grad_scale, "found_inf": 1.0 - is_finite.float()}
        vars(self.optimizer).update(scaling)
        self.optimizer.step()
        for name in scaling:
            delattr(self.optimizer, name)
        return norm

    def _held_out_products(self, inputs: Tensors, support: StackedGradients, heads: HeadGradients) -> list[Tensor]:
        """Held-out losses at the new model, and products of their gradients with those of the step; flat."""
        batch = Batch.from_tensors(inputs, self.plan.query_rows, QUERY)
        with without_dropout(self.model):
            losses = self.stepper.fused_losses(batch, self.layers)
            gradients, query_heads = self._take_gradients(losses)
        products = gradients.products_with(support)  # [losses, tasks]
        # A head is reached by its own task alone, in the same place of both orders.
        on_heads = head_products(query_heads, heads)
        return [_stack(losses).double(), (products + torch.diag(on_heads)).flatten()]

    def _clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


class UpdateInParts(dict[str, Tensor]):
    """The losses of one update for a weighting, which puts gradients in place through it (`PlacesGradients`)."""

    def __init__(self, update: Update, batch: Batch, query: Batch | None) -> None:
        super().__init__(dict.fromkeys(update.plan.tasks, torch.zeros(())))  # a weighting sees which tasks there are
        self.update_on_device, self.plan, self.graphs = update, update.plan, update.graphs
        self.inputs = batch.tensors()
        if query is not None:
            self.inputs |= query.tensors(QUERY)
        self.run: Run | None = None
        self._numbers = torch.zeros(0)  # what the host reads before gradients are in place
        if self.plan.reads_losses or self.plan.takes_products:
            self._start(self.inputs)
            self._numbers = self._fetch()

    def _start(self, inputs: Tensors) -> None:
        self.run = self.graphs.run(self.plan, self.update_on_device.run, inputs)

    @property
    def has_values(self) -> bool:
        """Whether the host can read losses before gradients are in place."""
        return self.run is not None

    def numbers(self) -> dict[str, float]:
        """The losses by task."""
        return dict(zip(self.plan.tasks, self._numbers.tolist(), strict=False))

    def gram(self, tasks: Sequence[str]) -> Tensor:
        """Products of these tasks' gradients."""
        num_tasks = len(self.plan.rows)
        gram = self._numbers[num_tasks:].view(num_tasks, num_tasks)
        rows = [self.plan.tasks.index(task) for task in tasks]
        return gram[rows][:, rows]

    def put_in_place(self, factors: Mapping[str, float], head_factors: Mapping[str, float]) -> None:
        """Everything that follows: the gradients, and the optimizer's step."""
        tasks = self.plan.tasks
        sent = {
            "factors": torch.tensor([factors[task] for task in tasks]),
            "head factors": torch.tensor([head_factors[task] for task in tasks]),
        }
        if self.run is None:
            self._start({**self.inputs, **sent})
        else:
            self.run.send(sent)

    def finish(self) -> "Outcome":
        """Wait until the update is done."""
        numbers = self._fetch()
        assert self.run is not None
        self.run.finish()
        tasks, query_tasks = self.plan.tasks, [task for task, _ in self.plan.query_rows]
        sizes = [len(tasks), 1, len(query_tasks), len(query_tasks) * len(tasks)]
        losses, norm, query_losses, products = numbers.split(sizes)
        return Outcome(
            losses=dict(zip(tasks, losses.tolist(), strict=True)),
            is_finite=bool(torch.isfinite(losses).all()) and math.isfinite(norm.item()),
            query_losses=dict(zip(query_tasks, query_losses.tolist(), strict=True)),
            products=products.view(len(query_tasks), len(tasks)),
        )

    def _fetch(self) -> Tensor:
        assert self.run is not None
        return self.graphs.fetch(self.run.outputs["numbers"])


def _stack(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([loss.detach() for loss in losses.values()])  # [tasks]
