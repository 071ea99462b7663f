"""MetaXT's meta step: a look-ahead step of the model, and the meta-gradient through it (Sharma et al. 2021, eq. 5).

Shapes below: a unit is an example or, for tagging, a labeled word; `outputs` are those of the head that reads,
`outcomes` what a soft label speaks of (`soft_labels`).

Nothing here waits for the device unless a task is tagging, whose labeled words are selected by a mask. So a step can be
captured in a CUDA graph; what changes from step to step, factors of terms and learning rates, may come as tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from crosstask.data.task import Kind
from crosstask.gradients import bilevel
from crosstask.gradients.bilevel import Rate, Values, Variant
from crosstask.models.arrays import rows_of
from crosstask.models.batches import Batch
from crosstask.models.encoder import Representation
from crosstask.models.losses import IGNORED
from crosstask.models.modes import forward_mode_ready
from crosstask.models.multitask import Model
from crosstask.transfer.base import ExampleWeights, Pass, StateAdapter
from crosstask.transfer.label_transfer.soft_labels import outcome_costs, outcome_weights

LookAhead = Literal["sgd", "adam", "none"]
Autocast = Callable[[], AbstractContextManager[None]]
"""The precision of a pass."""
Counts = Mapping[str, Rate]
"""The number of units of each task, over all processes."""
SoftLabels = Callable[[Tensor, Tensor, str, str, Tensor], Tensor]
"""From units' vectors [units, width] and labels [units, ...], their source, the target and its head's logits [units,
outputs], all without a graph, to soft labels [units, outputs] with a graph that leads to alpha."""


@dataclass(frozen=True)
class Term:
    """One part of the training loss: the loss of the examples of `task` read by the head of `head`, times `factor`.

    A transferred term (`head` is not `task`) has soft labels from the label transfer network. Two terms with the same
    names are equal whatever their factors, which may change from step to step.
    """

    task: str
    head: str
    factor: Rate = field(compare=False)

    @property
    def is_transferred(self) -> bool:
        """Whether another task's head reads."""
        return self.task != self.head


class Reader(nn.Module):
    """The model with its heads read crosswise: the examples of any task through the head of any other."""

    def __init__(self, model: Model, adapter: StateAdapter | None = None) -> None:
        super().__init__()
        self.model = model
        # In a tuple, so no submodule: its parameters are meta-parameters and stay out of the look-ahead step.
        self.adapters: tuple[StateAdapter, ...] = () if adapter is None else (adapter,)

    def forward(self, batch: Batch, terms: Sequence[Term]) -> tuple[dict[Term, Tensor], dict[str, Tensor]]:
        """Logits of each term, and by task the vectors that the label transfer network reads."""
        representation = self.model.encode(batch.inputs, batch.rows)
        adapted = [term for term in terms if self.adapters and term.is_transferred]
        logits: dict[Term, Tensor] = {}
        for term in terms:
            if term not in adapted:
                logits[term] = self._head_logits(representation, batch, term)
        if adapted:
            # A pass of its own over the sources, with adapted hidden states.
            sources = batch.only(tasks_of(adapted))
            adapted_representation = self._encode_adapted(sources)
            for term in adapted:
                logits[term] = self._head_logits(adapted_representation, sources, term)
        vectors = {}
        for task, rows in batch.rows.items():
            vectors[task] = representation.rows(rows.start, rows.stop).read_by(self.model.specs[task].kind)
        return logits, vectors

    def transferred(self, forward: Pass, term: Term) -> Tensor:
        """Logits of a transferred term after a forward pass: from its representations, unless they are adapted."""
        if self.adapters:
            sources = forward.batch.only({term.task})
            return self._head_logits(self._encode_adapted(sources), sources, term)
        inputs = rows_of(forward.batch.inputs, forward.batch.rows[term.task])
        return self.model.head(term.head)(forward.representations[term.task], inputs)

    def _encode_adapted(self, batch: Batch) -> Representation:
        with self.adapters[0].active():
            return self.model.encode(batch.inputs, batch.rows)

    def _head_logits(self, representation: Representation, batch: Batch, term: Term) -> Tensor:
        """[rows, classes], or [rows, length, classes] for tagging."""
        rows = batch.rows[term.task]
        return self.model.head(term.head)(representation.rows(rows.start, rows.stop), rows_of(batch.inputs, rows))


def tasks_of(terms: Sequence[Term]) -> list[str]:
    """The tasks whose examples these terms read, each once."""
    return list(dict.fromkeys(term.task for term in terms))


def labeled_units(kind: Kind, values: Tensor, labels: Tensor) -> Tensor:
    """The labeled units of a batch, [units, ...]: words with a label, from [rows, length, ...], or all examples."""
    return values[labels != IGNORED] if kind == "tagging" else values


def sum_of_one(values: Tensor) -> Tensor:
    """The sum over processes where there is one."""
    return values


@dataclass(frozen=True, eq=False)
class MetaStep:
    """How the meta-gradient is taken.

    - `meta`: alpha, and phi where hidden states are adapted;
    - `reduce`: adds up over processes;
    - `autocast`: the precision of the model's own step, for every pass here;
    - `example_weights`: what examples count in the model's own step, within the own loss of their task.
    """

    reader: Reader
    soft_labels: SoftLabels
    meta: Sequence[nn.Parameter]
    variant: Variant = "forward"
    look_ahead: LookAhead = "sgd"
    reduce: Callable[[Tensor], Tensor] = sum_of_one
    autocast: Autocast = nullcontext
    example_weights: ExampleWeights | None = None

    def gradient(
        self,
        train: Batch,
        held_out: Batch,
        terms: Sequence[Term],
        optimizer: torch.optim.Optimizer,
        train_gradient: Values | None = None,
        sources: Batch | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """The derivative of the held-out loss after the model's step by each meta-parameter, and that loss.

        Args:
            train: the batch of the step: sources and the first part of the target's batch.
            held_out: the second part of the target's batch.
            terms: of the training loss.
            optimizer: the model's, for its rate and, with "adam", its state.
            train_gradient: the gradient of the training loss over all processes, where it is known already: that saves
                a forward and a backward pass over `train`.
            sources: the examples of `train` with transferred terms, in a batch of their own; made when left out.
        """
        model = self.reader.model
        parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        counts = self._counts(train, tasks_of(terms))
        coefficients: dict[Term, Tensor] = {}

        def training_loss(values: Values) -> Tensor:
            logits, vectors = self._read(values, train, terms)
            coefficients.update(self._coefficients(logits, vectors, train, counts))
            constants = {term: coefficient.detach() for term, coefficient in coefficients.items()}
            return self._loss(logits, train, constants, counts, self.example_weights)

        with forward_mode_ready(model), torch.enable_grad():
            # 1. The gradient of the training loss, unless it is known or not needed.
            is_known = train_gradient is not None
            if self.look_ahead == "none" or is_known:
                coefficients.update(self._coefficients_alone(parameters, train, terms, counts))
            else:
                local = bilevel.gradient_of(training_loss, parameters) if train.rows else {}
                train_gradient = self._over_processes(local, parameters)
            # 2. The look-ahead step theta'.
            stepped, rates = self._step(parameters, train_gradient or {}, optimizer, keep=is_known)
            del train_gradient
            # 3. The gradient of the held-out loss at theta'.
            targets = list(dict.fromkeys(term.head for term in terms if term.is_transferred))
            direction, loss = self._held_out_gradient(stepped, held_out, targets, parameters)
            del stepped  # as large as the model: not while the next pass runs
            # 4. Its product with the mixed second derivative of the training loss.
            if isinstance(rates, dict):
                direction = bilevel.direction_of(direction, rates)
            if not coefficients or not direction:
                return [torch.zeros_like(parameter) for parameter in self.meta], loss
            if sources is None:
                sources = train.only(tasks_of(list(coefficients)))
            derivatives = self._meta_gradient(parameters, direction, sources, coefficients)
            if not isinstance(rates, dict):  # the product is linear in its direction, and has fewer entries
                torch._foreach_mul_(derivatives, rates)
            return derivatives, loss

    def _step(
        self,
        parameters: Mapping[str, nn.Parameter],
        gradient: Values,
        optimizer: torch.optim.Optimizer,
        keep: bool,
    ) -> tuple[Values, Values | Rate]:
        """The parameters after the look-ahead step, and its derivative by its gradient: a rate, or one for each entry.

        Unless the gradient is to be kept, the step is made in its memory.
        """
        if self.look_ahead == "adam":
            return bilevel.adam_step(parameters, gradient, optimizer)
        rate: Rate = optimizer.param_groups[0]["lr"]
        if self.look_ahead == "none":
            return dict(parameters), rate
        return bilevel.sgd_step(parameters, gradient, rate, keep=keep), rate

    def _coefficients_alone(
        self, parameters: Mapping[str, Tensor], train: Batch, terms: Sequence[Term], counts: Counts
    ) -> dict[Term, Tensor]:
        """The coefficients by a pass over the sources that keeps no graph of the model."""
        transferred = [term for term in terms if term.is_transferred and term.task in train.rows]
        if not transferred:
            return {}
        sources = train.only(tasks_of(transferred))
        with torch.no_grad():
            logits, vectors = self._read(dict(parameters), sources, transferred)
        return self._coefficients(logits, vectors, sources, counts)

    def _held_out_gradient(
        self, stepped: Values, held_out: Batch, targets: Sequence[str], parameters: Mapping[str, Tensor]
    ) -> tuple[Values, Tensor]:
        """The gradient of the mean losses of these tasks at the look-ahead model, and the sum of the losses."""
        terms = [Term(task, task, 1.0) for task in targets]
        counts = self._counts(held_out, targets)

        def held_out_loss(values: Values) -> Tensor:
            logits, _ = self._read(values, held_out, terms)
            return self._loss(logits, held_out, {}, counts)

        start = {name: stepped[name] for name in parameters}
        loss = torch.zeros((), device=self._device)
        local: Values = {}
        if held_out.rows:
            loss, local = bilevel.value_and_gradient(held_out_loss, start)
        return self._over_processes(local, parameters), self.reduce(loss)

    @property
    def _device(self) -> torch.device:
        return next(self.reader.parameters()).device

    def _meta_gradient(
        self,
        parameters: Mapping[str, Tensor],
        direction: Values,
        sources: Batch,
        coefficients: Mapping[Term, Tensor],
    ) -> list[Tensor]:
        """The training loss is a product: `sum of coefficients(alpha) * costs(theta)`."""
        terms = list(coefficients)

        def costs(values: Values) -> Tensor:
            logits, _ = self._read(values, sources, terms)
            return torch.cat([self._costs(term, logits[term], sources).reshape(-1) for term in terms])

        flat = torch.cat([coefficient.reshape(-1) for coefficient in coefficients.values()])  # as `costs`
        if not self.reader.adapters:
            return bilevel.linear_meta_gradient(costs, parameters, direction, flat, self.meta, self.variant)

        def loss(values: Values) -> Tensor:
            return (flat * costs(values)).sum()

        # The costs depend on meta-parameters too, through the representations.
        return bilevel.meta_gradient(loss, parameters, direction, self.meta, self.variant)

    def _read(
        self, values: Values, batch: Batch, terms: Sequence[Term]
    ) -> tuple[dict[Term, Tensor], dict[str, Tensor]]:
        """Logits and vectors of the model with these parameters."""
        present = [term for term in terms if term.task in batch.rows]
        named = {f"model.{name}": value for name, value in values.items()}
        with self.autocast():
            return functional_call(self.reader, named, (batch, present))

    def _loss(
        self,
        logits: Mapping[Term, Tensor],
        batch: Batch,
        coefficients: Mapping[Term, Tensor],
        counts: Counts,
        example_weights: ExampleWeights | None = None,
    ) -> Tensor:
        """This process's part of the sum of all terms, each a mean over its units on all processes."""
        losses = []
        for term, values in logits.items():
            if term.is_transferred:
                losses.append((coefficients[term] * self._costs(term, values, batch)).sum())
            else:
                weights = None
                if example_weights is not None:
                    weights = example_weights(term.task, batch.positions[term.task])
                total, _ = self.reader.model.training_loss(term.task, values, batch.labels[term.task], weights)
                losses.append(term.factor * total / counts[term.task])
        return torch.stack(losses).sum()

    def _costs(self, term: Term, logits: Tensor, batch: Batch) -> Tensor:
        """What each outcome costs the head, of every unit, [units, ..., outcomes]."""
        specs = self.reader.model.specs
        labeled_logits = labeled_units(specs[term.task].kind, logits, batch.labels[term.task])
        return outcome_costs(specs[term.head].kind, labeled_logits)

    def _coefficients(
        self,
        logits: Mapping[Term, Tensor],
        vectors: Mapping[str, Tensor],
        batch: Batch,
        counts: Counts,
    ) -> dict[Term, Tensor]:
        """Factors of the costs, [units, ..., outcomes]: those of `g_alpha(x, y)` times `factor / number of units`."""
        coefficients = {}
        for term, term_logits in logits.items():
            if not term.is_transferred:
                continue
            specs, labels = self.reader.model.specs, batch.labels[term.task]
            kind = specs[term.task].kind
            with self.autocast():
                soft_labels = self.soft_labels(
                    labeled_units(kind, vectors[term.task].detach(), labels),  # [units, width]
                    labeled_units(kind, labels, labels),  # [units, ...]
                    term.task,
                    term.head,
                    labeled_units(kind, term_logits.detach(), labels),  # [units, outputs]
                )
            weights = outcome_weights(specs[term.head].kind, soft_labels)
            coefficients[term] = term.factor * weights / counts[term.task]
        return coefficients

    def _counts(self, batch: Batch, tasks: Sequence[str]) -> Counts:
        """At least one of each task."""
        local: dict[str, Rate] = {}
        for task in tasks:
            local[task] = 0.0
            if task in batch.labels:
                labels = batch.labels[task]
                local[task] = float(len(labels))
                if self.reader.model.specs[task].kind == "tagging":
                    local[task] = (labels != IGNORED).sum().float()
        if self.reduce is sum_of_one:
            return {task: _at_least_one(count) for task, count in local.items()}
        counts = torch.stack([torch.as_tensor(count, device=self._device) for count in local.values()])
        return dict(zip(tasks, self.reduce(counts).clamp(min=1.0), strict=True))

    def _over_processes(self, gradient: Values, parameters: Mapping[str, Tensor]) -> Values:
        """The gradient over all processes; a parameter that this process does not reach adds zero."""
        if self.reduce is sum_of_one:
            return gradient
        return {name: self.reduce(gradient.get(name, torch.zeros_like(value))) for name, value in parameters.items()}


def _at_least_one(count: Rate) -> Rate:
    return count.clamp(min=1.0) if isinstance(count, Tensor) else max(count, 1.0)
