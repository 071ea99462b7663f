"""Label transfer (MetaXT): labels of the sources become soft labels of the target, learned by what they do to it."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients.bilevel import Values, Variant
from crosstask.models.batches import Batch, Step, make_batch, split_over_ranks
from crosstask.models.losses import in_full
from crosstask.models.modes import without_dropout
from crosstask.papers import METAXT, Paper
from crosstask.transfer.base import (
    ANY_TRANSFER,
    PRIVATE_ENCODERS,
    STATE_ADAPTER,
    TRANSFERRED_TERM,
    Moment,
    Pass,
    Setup,
    StateAdapter,
    Terms,
    Transfer,
)
from crosstask.transfer.label_transfer import probes
from crosstask.transfer.label_transfer import splits as label_data
from crosstask.transfer.label_transfer.meta_step import LookAhead, MetaStep, Reader, Term, alone, costs_of, units
from crosstask.transfer.label_transfer.network import LabelMap, LabelTransferNetwork
from crosstask.weighting import validation as checks

if TYPE_CHECKING:
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

Part = Literal["all", "half"]
Hold = Literal["batch", "set"]
Start = Literal["nothing", "model", "probe", "stacked"]
PROBED: tuple[Start, ...] = ("probe", "stacked")
"""Starts that need a linear model of the target first."""
Order = Literal["before", "after"]
USUAL = {"gamma_2": 1.0, "learning_rate": 1e-3, "warmup": 0.0}
FROM_PROBE = {"gamma_2": 3.0, "learning_rate": 1e-4, "warmup": 0.5}
"""What options are when left out; the second was the best of several trials of `metaxt-sentiment`."""
SMALLEST = 1e-12
"""What a sum of soft labels is at least, where it is divided by."""


class LabelTransfer(Transfer):
    """MetaXT: source examples train the target's head too, with soft labels from a label transfer network (LTN).

        L_train = L(target) + sum_s w_s ( gamma_1 L(source s, its own head)
                                        + gamma_2 / S L(source s, the target's head, soft labels g_alpha(h(x), y)) )
        theta' = theta - eta grad L_train,        alpha <- alpha - d L_meta(theta') / d alpha

    - theta: the model; eta: its learning rate; `w_s`: what the weighting says of the source next to the target (1 with
      `uniform`), so that any weighting can be learned on top; with several targets each has its part of `gamma_2`;
    - S: the number of sources, 1 in the paper;
    - alpha: the LTN, one for all sources, with an embedding of the source where there are several;
    - `L_meta`: the loss on a part of the target's batch that the look ahead has not trained on.

    In the code: eq. 2 is `change_loss` and `MetaStep`, eq. 5 is `bilevel`, Algorithm 1 is `before_step` followed by the
    model's own step. At inference there is no LTN: the model that is saved or exported is the plain one.

    Cross-entropy is linear in soft labels, so the meta-gradient needs no second derivative: one pass in forward mode
    over the source batch gives it exactly. The look ahead and the meta-gradient are taken without dropout. The LTN
    reads representations and sends no gradient into them.

    Args:
        gamma_1: what a source counts by its own labels.
        gamma_2: what all sources together count by the transferred ones: they train the head that the target has few
            labels for, and many sources should not drown those. 1, and 3 with a probe to start from.
        meta: learn alpha by what it does to held-out examples. False is the paper's ablation XT: alpha is trained along
            with the model on L_train, where the easiest labels win.
        learning_rate: of alpha, by Adam. Labels that change faster than the model learns them go round in circles and
            end up as one: lower it where the map does not settle. 1e-3, and 1e-4 with a probe to start from.
        split: share of the target's examples that are held out from the look ahead.
        hold: what is split: "batch", each batch of the target anew as in the paper; or "set", the target's training set
            once, so that held-out examples are new to the model for as long as alpha learns. With few labels the model
            knows every example by heart before long, and what it knows by heart says nothing about labels.
        learn: share of all updates in which alpha learns; then it stays what it is.
        train_on: which part of the target's batch the model's own step takes while alpha learns: "all", or "half", the
            part that is not held out, as a literal reading of Algorithm 1 has it. With `hold="set"` always the latter.
        order: when alpha moves: "before" the model's step, by a look ahead of its own, as in Algorithm 1; or "after"
            its backward pass, whose gradient then is the look ahead: a third cheaper, and the model learns from alpha
            one update later. Needs `train_on="half"` or `hold="set"`, or nothing would be held out of that gradient.
        every: updates from one meta step to the next.
        warmup: share of all updates before the transferred term begins; the target's head and the LTN start from
            nothing, and what they say to each other first is noise. 0, and 0.5 with a probe to start from.
        prior: how much the mean soft label of a batch is drawn to the target's label frequencies, as the factor of
            their Kullback-Leibler divergence. 0 in the paper; a map that collapses onto one label costs then.
        variant: of the meta-gradient, see `bilevel.meta_gradient`.
        look_ahead: "sgd" as in eq. 4; "adam", the step that the optimizer will take; or "none", which judges by the
            model as it stands: a third cheaper, and the same to first order in the learning rate.
        start: what soft labels start from: "nothing", the network alone as in the paper; "model", what the target's
            head says of the example, which the network learns to correct: a label that only repeats the model leaves it
            as it is, so that the transferred term does no harm before the network has learned something; or "probe",
            what a linear model says that is fitted to the target's labels at the end of the warm-up, in which the
            sources train alone, so that no example of the target is known by heart by then. The target's head starts
            there too, where it is one linear layer; the soft labels keep it near while its few labels train it on. Or
            "stacked", one that also reads what the source's head says of the target's examples; an example of the
            source has its own label in that place, which says much where label sets are close.
        hidden: width of the LTN.
        label_width: of its label embeddings.

    Differs from the paper: `train_on="all"`, since labels of the target are what there is least of; several sources;
    `warmup`, `learn`, `hold`, `prior`, `start`, `every`, "adam" and "none". The factor eta of the meta-gradient is left
    out: Adam, which trains alpha, does not see a factor, until it is so small that its epsilon does.
    """

    name: ClassVar[str] = "label-transfer"
    summary: ClassVar[str] = "source labels carried over into the target's label set by a network learned on the target"
    paper: ClassVar[Paper | None] = METAXT
    provides = frozenset({ANY_TRANSFER, TRANSFERRED_TERM})
    excludes: ClassVar[Mapping[str, str]] = {
        TRANSFERRED_TERM: "transfer 'label-transfer' is named twice: one serves all sources and targets.",
        PRIVATE_ENCODERS: "transfer 'label-transfer' lets the target's head read source examples, but private encoders "
        "give it features that the target alone has: use `private: false` there.",
    }
    held_out_loss: Tensor

    def __init__(
        self,
        *,
        gamma_1: float = 1.0,
        gamma_2: float | None = None,
        meta: bool = True,
        learning_rate: float | None = None,
        split: float = 0.5,
        hold: Hold = "batch",
        learn: float = 1.0,
        train_on: Part = "all",
        order: Order = "before",
        every: int = 1,
        warmup: float | None = None,
        prior: float = 0.0,
        variant: Variant = "forward",
        look_ahead: LookAhead = "sgd",
        start: Start = "nothing",
        hidden: int = 128,
        label_width: int = 32,
    ) -> None:
        super().__init__()
        self.starts_from = _choice("start", start, get_args(Start))
        usual = FROM_PROBE if self.starts_from in PROBED else USUAL
        self.gamma_1 = _number("gamma_1", gamma_1, at_least=0.0)
        self.gamma_2 = _number("gamma_2", usual["gamma_2"] if gamma_2 is None else gamma_2, above=0.0)
        self.meta = bool(meta)
        rate = usual["learning_rate"] if learning_rate is None else learning_rate
        self.learning_rate = _number("learning_rate", rate, above=0.0)
        self.split = _share("split", _number("split", split, above=0.0))
        self.hold = _choice("hold", hold, get_args(Hold))
        self.learn = _number("learn", learn, above=0.0)
        if self.learn > 1.0:
            raise CrossTaskError(f"transfer 'label-transfer': `learn` must be a share up to 1, found {learn!r}.")
        self.train_on = _choice("train_on", train_on, get_args(Part))
        self.order = _choice("order", order, get_args(Order))
        if self.order == "after" and self.train_on == "all" and self.hold == "batch":
            raise CrossTaskError(
                "transfer 'label-transfer': with `order: after` the model's own step is the look ahead, so that "
                "examples must be held out of it: set `train_on: half` or `hold: set`."
            )
        self.every = _count("every", every)
        warmup = usual["warmup"] if warmup is None else warmup
        self.warmup = _share("warmup", _number("warmup", warmup, at_least=0.0))
        self.prior = _number("prior", prior, at_least=0.0)
        self.variant = _choice("variant", variant, get_args(Variant))
        self.look_ahead = _choice("look_ahead", look_ahead, get_args(LookAhead))
        self.hidden = _count("hidden", hidden)
        self.label_width = _count("label_width", label_width)
        self.networks = nn.ModuleList()
        self.adapters: tuple[StateAdapter, ...] = ()  # a tuple, so no submodule: its state is its own
        self.begun = False
        self.waiting: tuple[Moment, dict[str, tuple[np.ndarray, np.ndarray]]] | None = None
        self.reduce: Callable[[Tensor], Tensor] = alone

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """A source and the target must meet in a step."""
        if not plan.sources:
            raise CrossTaskError("transfer 'label-transfer' carries over the labels of sources: name at least one.")
        together = [phase for phase in phases if {*phase.tasks} & {*plan.targets} and {*phase.tasks} & {*plan.sources}]
        if not together:
            raise CrossTaskError(
                "transfer 'label-transfer' needs a source and the target in one phase: "
                "use the paradigm joint or normalized-joint."
            )
        if plan.settings.schedule != "parallel":
            raise CrossTaskError(
                "transfer 'label-transfer' needs a source and the target in every step: use `schedule: parallel`."
            )
        if self.meta and plan.settings.batch_size < 2:
            raise CrossTaskError(
                "transfer 'label-transfer' splits the target's batch in two, and a batch of one cannot be split: "
                "use a `batch_size` of at least 2."
            )
        return list(phases)

    def start(self, setup: Setup) -> None:
        """A network per target, over all sources of its level."""
        model, tasks, targets = setup.model, setup.tasks, setup.targets
        if STATE_ADAPTER in setup.providers:
            self.adapters = (cast(StateAdapter, setup.providers[STATE_ADAPTER]),)
        by_name = {task.name: task for task in tasks}
        self.targets = tuple(targets)
        self.sources = {name: label_data.sources_of(by_name[name].spec, tasks, targets) for name in targets}
        self.pairs = [(spec.name, name) for name, specs in self.sources.items() for spec in specs]
        self.notes = []
        self.held_out: dict[str, np.ndarray] = {}
        self.maps = nn.ModuleList()
        self.register_buffer("held_out_loss", torch.full((), math.nan))
        for number, name in enumerate(targets):
            target, sources = by_name[name], self.sources[name]
            if self.meta and len(target.train) < 2:
                raise CrossTaskError(
                    f"transfer 'label-transfer' splits the batches of '{name}' in two, but it has one training example."
                )
            self.networks.append(
                LabelTransferNetwork(
                    model.encoder.width, {spec.name: len(spec.labels) for spec in sources}, len(target.labels),
                    label_width=self.label_width, hidden=self.hidden, corrects=self.starts_from == "model",
                    has_probe=self.starts_from in PROBED,
                )
            )  # fmt: skip
            self.register_buffer(f"frequencies_{number}", label_data.frequencies(target))
            for spec in sources:
                self.maps.append(LabelMap(spec.labels, target.labels))
                if set(spec.labels) == set(target.labels):
                    self.notes.append(
                        f"'{spec.name}' has the same labels as '{name}': label transfer may find that each stays what "
                        "it is; mapping both to one task would be simpler."
                    )
        self.begun = not self.warmup
        self.optimizer = torch.optim.Adam(self.networks.parameters(), self.learning_rate) if self.meta else None

    def soft_labels(self, vectors: Tensor, labels: Tensor, source: str, target: str, logits: Tensor) -> Tensor:
        """`g_alpha(h(x), y)`, [units, target labels]; `logits` are what the target's head says of them."""
        network = self.networks[self.targets.index(target)]
        soft: Tensor = network(in_full(vectors), labels, source, in_full(logits))
        return soft

    def before_step(self, moment: Moment) -> Step:
        """Algorithm 1: split the target's batch, and move alpha against the meta-gradient."""
        step = moment.step
        self.reduce = alone if moment.devices.num_ranks == 1 else moment.devices.sum
        present = [name for name in self.targets if name in step and any(s.name in step for s in self.sources[name])]
        first = math.ceil(self.warmup * moment.num_updates)
        self.begun = moment.update >= first
        self.is_ready = self.begun or self.starts_from not in PROBED
        if self.starts_from in PROBED and moment.update == first:
            self._start_from_probes(moment)
        if self.starts_from in PROBED and not self.begun:
            return {task: positions for task, positions in step.items() if task not in self.targets}
        if not present or not self.meta or moment.update >= self.learn * moment.num_updates:
            return step
        parts = {name: self._split(moment, name) for name in present}
        if self.begun and moment.update % self.every == 0:
            able = {name: part for name, part in parts.items() if len(part[1])}
            if able and self.order == "before":
                self._meta_step(moment, able)
            elif able:
                self.waiting = moment, able
        if self.train_on == "half" or self.hold == "set":
            return {**step, **{name: part[0] for name, part in parts.items()}}
        return step

    def _start_from_probes(self, moment: Moment) -> None:
        for name, network in zip(self.targets, self.networks, strict=True):
            model, target = moment.model, moment.data[name]
            probe = probes.probe_of(model, target)
            for spec in self.sources[name]:
                stacks = self.starts_from == "stacked"
                own = probes.stacked_probe_of(model, target, spec.name) if stacks else probe
                cast(LabelTransferNetwork, network).set_probe(spec.name, own)
            probes.fill_head(model, name, probe)

    def after_backward(self, model: "Model", update: int) -> None:
        """With `order: after`, the meta step from the gradient that the model's step is about to take."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            taken = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
            self._meta_step(*waiting, taken)

    def _split(self, moment: Moment, target: str) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the target's examples for the look ahead, and of those that judge it."""
        if self.hold == "batch":
            return label_data.halves(moment.step[target], self.split)
        if target not in self.held_out:
            self.held_out[target] = label_data.held_out_part(moment.data[target], self.split)
        return label_data.drawn_apart(moment, target, self.held_out[target])

    def _meta_step(
        self, moment: Moment, halves: dict[str, tuple[np.ndarray, np.ndarray]], taken: Values | None = None
    ) -> None:
        train = {**moment.step, **{name: parts[0] for name, parts in halves.items()}}
        own = self._batch(moment, train)
        held_out = self._batch(moment, {name: parts[1] for name, parts in halves.items()})
        learning: list[LabelTransfer | StateAdapter] = [self, *self.adapters]
        meta = [parameter for transfer in learning for parameter in transfer.own_parameters()]
        how = MetaStep(self._reader(moment.model), self.soft_labels, meta, self.variant, self.look_ahead, self.reduce)
        found, loss = how.gradient(own, held_out, self._terms(list(train), moment), moment.optimizer, taken)
        self.held_out_loss.fill_(loss)
        rate = moment.learning_rate or 1.0
        for parameter, gradient in zip(meta, found, strict=True):
            parameter.grad = gradient / rate
        if self.prior:
            self._add_prior(moment.model, own)
        moment.devices.sum_gradients(meta)
        is_finite = all(bool(torch.isfinite(parameter.grad).all()) for parameter in meta if parameter.grad is not None)
        for transfer in learning:
            assert transfer.optimizer is not None
            if is_finite:
                transfer.optimizer.step()
            transfer.optimizer.zero_grad()

    def _reader(self, model: "Model") -> Reader:
        return Reader(model, self.adapters[0] if self.adapters else None)

    def _batch(self, moment: Moment, step: Step) -> Batch:
        """This rank's share."""
        own = split_over_ranks(step, moment.devices.rank, moment.devices.num_ranks)
        own = {task: at for task, at in own.items() if len(at)}
        if not own:
            return Batch({}, {}, {}, {})
        return make_batch(moment.model.encoder, moment.data, own).to(moment.devices.device)

    def _terms(self, tasks: Sequence[str], moment: Moment) -> list[Term]:
        """The terms of L_train, in the order of the tasks."""
        terms = []
        for task in tasks:
            weight = moment.weights.get(task, 1.0)
            receivers = self._receivers(task)
            terms.append(Term(task, task, weight * (self.gamma_1 if receivers else 1.0)))
            terms += [Term(task, name, weight * self._transferred(name, receivers)) for name in receivers]
        return terms

    def _receivers(self, task: str) -> list[str]:
        """The targets that this task's labels are carried over to; none if it is no source."""
        return [name for name in self.targets if any(spec.name == task for spec in self.sources[name])]

    def _transferred(self, target: str, receivers: Sequence[str]) -> float:
        """What the transferred labels of one source count: sources share `gamma_2`, and so do the targets of each."""
        return self.gamma_2 / (len(self.sources[target]) * len(receivers))

    def terms(self, forward: Pass) -> Terms:
        """`gamma_1` times each source's own loss and `gamma_2` times that of the transferred labels."""
        factors: dict[str, float] = {}
        added: dict[str, list[Tensor]] = {}
        for task in forward.logits:
            receivers = self._receivers(task)
            if receivers:
                factors[task] = self.gamma_1
                if self.begun:
                    added[task] = self._transferred_terms(task, receivers, forward)
        return Terms(factors, added)

    def _transferred_terms(self, task: str, receivers: Sequence[str], forward: Pass) -> list[Tensor]:
        """The losses of a source's transferred labels, one for each target, summed over the units of the batch."""
        model, batch = forward.model, forward.batch
        kind, labels = model.specs[task].kind, batch.labels[task]
        vectors = units(kind, forward.representations[task].read_by(kind).detach(), labels)
        reader, source_labels = self._reader(model), units(kind, labels, labels)
        terms = []
        for name in receivers:
            logits = units(kind, reader.transferred(forward, Term(task, name, 1.0)), labels)
            with torch.set_grad_enabled(not self.meta and torch.is_grad_enabled()):
                soft = self.soft_labels(vectors, source_labels, task, name, logits.detach())
            cast(LabelMap, self.maps[self.pairs.index((task, name))]).add(soft.detach(), source_labels)
            terms.append(self._transferred(name, receivers) * (soft * costs_of(logits)).sum())
        return terms

    def _add_prior(self, model: "Model", batch: Batch) -> None:
        """This rank's part of the gradient of `prior * KL(frequencies of the target's labels | mean soft label)`."""
        terms = [Term(spec.name, name, 1.0) for name in self.targets for spec in self.sources[name]]
        terms = [term for term in terms if term.task in batch.rows]
        with without_dropout(model), torch.no_grad():
            logits, vectors = self._reader(model)(batch, terms) if terms else ({}, {})
        for number, name in enumerate(self.targets):
            wanted = getattr(self, f"frequencies_{number}")
            soft = [wanted.new_zeros(0, len(wanted))]
            for term in terms:
                if term.head == name:
                    kind, labels = model.specs[term.task].kind, batch.labels[term.task]
                    seen, own, said = (units(kind, v, labels) for v in (vectors[term.task], labels, logits[term]))
                    soft.append(self.soft_labels(seen, own, term.task, name, said))
            own = torch.cat(soft).sum(0)
            # The derivative of the divergence by the sum of all soft labels, which is the same on every rank.
            slope = -wanted / self.reduce(own.detach()).clamp(min=SMALLEST)
            if own.requires_grad:
                (self.prior * (slope * own).sum()).backward()

    def facts(self) -> dict[str, Any]:
        """The label map since the last look: the mean soft label of each source label; and the held-out loss."""
        found: dict[str, Any] = {}
        for (source, target), label_map in zip(self.pairs, self.maps, strict=True):
            rows = cast(LabelMap, label_map).take(self.reduce)
            if rows:
                found.setdefault(target, {})[source] = rows
        facts: dict[str, Any] = {"label_map": found} if found else {}
        if not self.held_out_loss.isnan():
            facts["held_out_loss"] = self.held_out_loss.item()
        return facts


_number = functools.partial(checks.check_number, "label-transfer", what="transfer")
_count = functools.partial(checks.check_count, "label-transfer", what="transfer")


def _choice(option: str, value: Any, known: Sequence[str]) -> Any:
    return checks.check_choice("label-transfer", option, value, known, what="transfer")


def _share(option: str, value: float) -> float:
    if value >= 1.0:
        raise CrossTaskError(f"transfer 'label-transfer': `{option}` must be a share below 1, found {value!r}.")
    return value
