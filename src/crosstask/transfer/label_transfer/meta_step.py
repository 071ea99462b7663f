"""MetaXT's meta step: one look ahead on a model, and the gradient of what shapes it (Sharma et al. 2021, eq. 5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from crosstask.data.task import Kind
from crosstask.gradients import bilevel
from crosstask.gradients.bilevel import Values, Variant
from crosstask.models.batches import Batch
from crosstask.models.encoder import Representation
from crosstask.models.losses import IGNORED, in_full, loss_sum
from crosstask.models.modes import forward_mode_ready
from crosstask.models.multitask import Model
from crosstask.transfer.base import Pass, StateAdapter

LookAhead = Literal["sgd", "adam", "none"]
SoftLabels = Callable[[Tensor, Tensor, str, str, Tensor], Tensor]
"""From units' vectors and labels, their source, the target and what its head says of them, without a graph, to soft
labels with a graph that leads to alpha."""


@dataclass(frozen=True)
class Term:
    """One cross-entropy of the training loss: the examples of `task` read by the head of `head`, counting `factor`.

    A transferred term (`head` is not `task`) has soft labels from the label transfer network.
    """

    task: str
    head: str
    factor: float

    @property
    def is_transferred(self) -> bool:
        """Whether another task's head reads."""
        return self.task != self.head


class Reader(nn.Module):
    """The model with its heads read crosswise: the examples of any task through the head of any other."""

    def __init__(self, model: Model, adapter: StateAdapter | None = None) -> None:
        super().__init__()
        self.model = model
        # In a list, so no submodule: its parameters are meta-parameters and stay out of the look ahead.
        self.adapting = [] if adapter is None else [adapter]

    def forward(self, batch: Batch, terms: Sequence[Term]) -> tuple[dict[Term, Tensor], dict[str, Tensor]]:
        """Logits of each term, and by task the vectors that the label transfer network reads."""
        adapted = [term for term in terms if self.adapting and term.is_transferred]
        whole = self.model.encode(batch.inputs, batch.rows)
        logits = {term: self._read(whole, batch, term) for term in terms if term not in adapted}
        if adapted:
            part = rows_of(batch, {term.task for term in adapted})
            with self.adapting[0].active():
                changed = self.model.encode(part.inputs, part.rows)
            logits |= {term: self._read(changed, part, term) for term in adapted}
        vectors = {
            task: whole.rows(at.start, at.stop).read_by(self.model.specs[task].kind) for task, at in batch.rows.items()
        }
        return logits, vectors

    def transferred(self, forward: Pass, term: Term) -> Tensor:
        """Logits of a transferred term where a pass was made already: of its representations, unless they change."""
        at = forward.batch.rows[term.task]
        if self.adapting:
            part = rows_of(forward.batch, {term.task})
            with self.adapting[0].active():
                return self._read(self.model.encode(part.inputs, part.rows), part, term)
        inputs = {key: value[at] for key, value in forward.batch.inputs.items()}
        return self.model.head(term.head)(forward.representations[term.task], inputs)

    def _read(self, representation: Representation, batch: Batch, term: Term) -> Tensor:
        at = batch.rows[term.task]
        inputs = {key: value[at] for key, value in batch.inputs.items()}
        return self.model.head(term.head)(representation.rows(at.start, at.stop), inputs)


def units(kind: Kind, values: Tensor, labels: Tensor) -> Tensor:
    """What counts of a batch, [units, ...]: the words of sentences that have a label, or all examples."""
    return values[labels != IGNORED] if kind == "tagging" else values


def costs_of(logits: Tensor) -> Tensor:
    """`-log p_c` of every unit and class, [units, labels]."""
    return -F.log_softmax(in_full(logits), dim=-1)


def rows_of(batch: Batch, tasks: set[str]) -> Batch:
    """The part of a batch that belongs to these tasks."""
    kept = [task for task in batch.rows if task in tasks]
    parts = [batch.rows[task] for task in kept]
    rows, start = {}, 0
    for task, part in zip(kept, parts, strict=True):
        rows[task] = slice(start, start + part.stop - part.start)
        start = rows[task].stop
    inputs = {key: torch.cat([value[part] for part in parts]) for key, value in batch.inputs.items()}
    return Batch(inputs, {t: batch.labels[t] for t in kept}, rows, {t: batch.positions[t] for t in kept})


def alone(values: Tensor) -> Tensor:
    """The sum over ranks where there is one."""
    return values


@dataclass(frozen=True, eq=False)
class MetaStep:
    """How the meta-gradient is taken.

    - `meta`: alpha, and phi where there is a representation transfer;
    - `reduce`: adds up over ranks.
    """

    reader: Reader
    soft_labels: SoftLabels
    meta: Sequence[nn.Parameter]
    variant: Variant = "forward"
    look_ahead: LookAhead = "sgd"
    reduce: Callable[[Tensor], Tensor] = alone

    def gradient(
        self,
        train: Batch,
        held_out: Batch,
        terms: Sequence[Term],
        optimizer: torch.optim.Optimizer,
        taken: Values | None = None,
    ) -> tuple[list[Tensor], float]:
        """The derivative of the held-out loss after the model's step by each meta-parameter, and that loss.

        Args:
            train: the batch of the step: sources and the first part of the target's batch.
            held_out: the second part of the target's batch.
            terms: of the training loss.
            optimizer: the model's, for its rate and, with "adam", its state.
            taken: the gradient of the training loss over all ranks, where it is known already: that saves a forward and
                a backward pass over `train`. Its memory is reused.
        """
        model = self.reader.model
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        counts = self._counts(train, [term.task for term in terms])
        shares: dict[Term, Tensor] = {}

        def inner(values: Values) -> Tensor:
            logits, vectors = self._read(values, train, terms)
            shares.update(self._shares(logits, vectors, train, counts))
            return self._loss(logits, train, {term: share.detach() for term, share in shares.items()}, counts)

        with forward_mode_ready(model), torch.enable_grad():
            if self.look_ahead == "none" or taken is not None:
                shares.update(self._shares_alone(named, train, terms, counts))
            else:
                taken = self._over_ranks(bilevel.gradient_of(inner, named) if train.rows else {}, named)
            looked, rates = self._step(named, taken or {}, optimizer)
            del taken
            judges = list(dict.fromkeys(term.head for term in terms if term.is_transferred))
            after, loss = self._held_out_gradient(looked, held_out, judges, named)
            del looked  # as large as the model: not while the next pass runs
            direction = bilevel.direction_of(after, rates)
            if not shares or not direction:
                return [torch.zeros_like(one) for one in self.meta], loss
            return self._meta_gradient(named, direction, train, shares), loss

    def _step(
        self, named: Mapping[str, nn.Parameter], gradient: Values, optimizer: torch.optim.Optimizer
    ) -> tuple[Values, Values | float]:
        if self.look_ahead == "adam":
            return bilevel.adam_step(named, gradient, optimizer)
        rate = float(optimizer.param_groups[0]["lr"])
        return (dict(named), rate) if self.look_ahead == "none" else bilevel.sgd_step(named, gradient, rate)

    def _shares_alone(
        self, named: Mapping[str, Tensor], train: Batch, terms: Sequence[Term], counts: Mapping[str, Tensor]
    ) -> dict[Term, Tensor]:
        """The shares by a pass over the sources that keeps no graph of the model."""
        transferred = [term for term in terms if term.is_transferred and term.task in train.rows]
        if not transferred:
            return {}
        sources = rows_of(train, {term.task for term in transferred})
        with torch.no_grad():
            logits, vectors = self._read(dict(named), sources, transferred)
        return self._shares(logits, vectors, sources, counts)

    def _held_out_gradient(
        self, looked: Values, held_out: Batch, targets: Sequence[str], named: Mapping[str, Tensor]
    ) -> tuple[Values, float]:
        """The gradient of the mean losses of these tasks at the looked-ahead model, and the sum of the losses."""
        own = [Term(task, task, 1.0) for task in targets]
        counts = self._counts(held_out, targets)
        value = torch.zeros((), device=next(iter(counts.values())).device)

        def outer(values: Values) -> Tensor:
            logits, _ = self._read(values, held_out, own)
            loss = self._loss(logits, held_out, {}, counts)
            value.copy_(loss.detach())
            return loss

        start = {name: looked[name] for name in named}
        gradient = self._over_ranks(bilevel.gradient_of(outer, start) if held_out.rows else {}, named)
        return gradient, float(self.reduce(value))

    def _meta_gradient(
        self, named: Mapping[str, Tensor], direction: Values, train: Batch, shares: Mapping[Term, Tensor]
    ) -> list[Tensor]:
        terms = list(shares)
        sources = rows_of(train, {term.task for term in terms})

        def costs(values: Values) -> Tensor:
            logits, _ = self._read(values, sources, terms)
            return torch.cat([self._costs(term, logits[term], sources).reshape(-1) for term in terms])

        joined = torch.cat([share.reshape(-1) for share in shares.values()])
        if not self.reader.adapting:
            return bilevel.linear_meta_gradient(costs, named, direction, joined, self.meta, self.variant)
        # The costs depend on meta-parameters too, through the representations.
        return bilevel.meta_gradient(
            lambda values: (joined * costs(values)).sum(), named, direction, self.meta, self.variant
        )

    def _read(
        self, values: Values, batch: Batch, terms: Sequence[Term]
    ) -> tuple[dict[Term, Tensor], dict[str, Tensor]]:
        present = [term for term in terms if term.task in batch.rows]
        return functional_call(
            self.reader, {f"model.{name}": value for name, value in values.items()}, (batch, present)
        )

    def _loss(
        self, logits: Mapping[Term, Tensor], batch: Batch, shares: Mapping[Term, Tensor], counts: Mapping[str, Tensor]
    ) -> Tensor:
        """This rank's part of the sum of all terms, each a mean over its units on all ranks."""
        parts = []
        for term, values in logits.items():
            if term.is_transferred:
                parts.append((shares[term] * self._costs(term, values, batch)).sum())
            else:
                total, _ = loss_sum(self.reader.model.specs[term.task].kind, values, batch.labels[term.task])
                parts.append(term.factor * total / counts[term.task])
        return torch.stack(parts).sum()

    def _costs(self, term: Term, logits: Tensor, batch: Batch) -> Tensor:
        """`-log p_c` of every unit and class, [units, target labels]."""
        kind = self.reader.model.specs[term.task].kind
        return costs_of(units(kind, logits, batch.labels[term.task]))

    def _shares(
        self,
        logits: Mapping[Term, Tensor],
        vectors: Mapping[str, Tensor],
        batch: Batch,
        counts: Mapping[str, Tensor],
    ) -> dict[Term, Tensor]:
        """Soft labels times what each unit counts: `factor * g_alpha(x, y) / number of units`."""
        shares = {}
        for term in logits:
            if term.is_transferred:
                kind, labels = self.reader.model.specs[term.task].kind, batch.labels[term.task]
                seen = units(kind, vectors[term.task].detach(), labels)
                said = units(kind, logits[term].detach(), labels)
                soft = self.soft_labels(seen, units(kind, labels, labels), term.task, term.head, said)
                shares[term] = term.factor * soft / counts[term.task]
        return shares

    def _counts(self, batch: Batch, tasks: Sequence[str]) -> dict[str, Tensor]:
        """The number of units of each task, over all ranks."""
        names = list(dict.fromkeys(tasks))
        specs, labels = self.reader.model.specs, batch.labels
        own = [
            float(len(units(specs[task].kind, labels[task], labels[task]))) if task in labels else 0.0 for task in names
        ]
        whole = self.reduce(torch.tensor(own, device=next(self.reader.parameters()).device)).clamp(min=1.0)
        return dict(zip(names, whole, strict=True))

    def _over_ranks(self, gradient: Values, named: Mapping[str, Tensor]) -> Values:
        """The same on every rank; a parameter that this rank does not reach adds zero."""
        if self.reduce is alone:
            return gradient
        return {name: self.reduce(gradient.get(name, torch.zeros_like(value))) for name, value in named.items()}
