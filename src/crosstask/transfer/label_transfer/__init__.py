"""Label transfer (MetaXT): labels of the sources become soft labels of the target, learned by what they do to it."""

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.label_names import check_label_texts
from crosstask.errors import CrossTaskError
from crosstask.gradients.bilevel import Rate, Values, Variant
from crosstask.gradients.cuda_graphs import Parts, PlainGraphs, Tensors
from crosstask.limits import MAX_RATE, MAX_WIDTH
from crosstask.models.batches import (
    Batch,
    RowCounts,
    Step,
    batch_of_few_shapes,
    make_batch,
    row_counts,
    split_over_ranks,
)
from crosstask.models.losses import in_full
from crosstask.models.modes import without_dropout
from crosstask.papers import METAXT, Paper
from crosstask.probing.heads import SOLVED_HEADS
from crosstask.quoting import shown
from crosstask.transfer.base import (
    Ability,
    Facts,
    Moment,
    Pass,
    Setup,
    StateAdapter,
    Terms,
    Transfer,
    WholeModel,
    step_if_finite,
)
from crosstask.transfer.label_transfer import probes, splits
from crosstask.transfer.label_transfer.label_map import LabelMap
from crosstask.transfer.label_transfer.meta_step import (
    Autocast,
    LookAhead,
    MetaStep,
    Reader,
    Term,
    labeled_units,
    sum_of_one,
)
from crosstask.transfer.label_transfer.network import LabelTransferNetwork
from crosstask.transfer.label_transfer.soft_labels import outcome_costs, outcome_weights
from crosstask.weighting import validation as checks

if TYPE_CHECKING:
    from crosstask.data.task import Task, TaskSpec
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

Part = Literal["all", "half"]
Hold = Literal["batch", "set"]
Start = Literal["nothing", "model", "probe", "stacked", "names"]
Order = Literal["before", "after"]
Choice = TypeVar("Choice", bound=str)
TRAIN, HELD_OUT, SOURCES = "train ", "held-out ", "sources "
"""Names of the tensors of the batches of a meta step begin so."""
MIN_SUM = 1e-12
"""Lower bound of a sum of soft labels in a denominator."""


@dataclass(frozen=True)
class Preset:
    """A recipe, by what soft labels start from: its flags, and the options that the user leaves out.

    - `corrects_model`: the network corrects the logits of the target's head;
    - `uses_probe`: the network corrects a linear model of the target, fitted at the end of a warm-up without target;
    - `reads_source_labels`: that model also reads the label of the source;
    - `reads_names`: it begins at what the labels of the target mean, and so does the map from source labels.
    """

    gamma_2: float
    learning_rate: float
    warmup: float
    corrects_model: bool = False
    uses_probe: bool = False
    reads_source_labels: bool = False
    reads_names: bool = False


PAPER = Preset(gamma_2=1.0, learning_rate=1e-3, warmup=0.0)
FROM_PROBE = Preset(gamma_2=3.0, learning_rate=1e-4, warmup=0.5, uses_probe=True)
"""Its values were the best of several trials of `metaxt-sentiment`."""
PRESETS: dict[str, Preset] = {
    "nothing": PAPER,
    "model": replace(PAPER, corrects_model=True),
    "probe": FROM_PROBE,
    "stacked": replace(FROM_PROBE, reads_source_labels=True),
    "names": replace(FROM_PROBE, reads_names=True),
}
"""By the option `start`."""


class MetaBatches(NamedTuple):
    """What a meta step reads: sources and the first part of the target's batch, and the part that is held out.

    `sources`: those of `train` once more, where their texts can share rows; taken out of `train` when left out.
    """

    train: Batch
    held_out: Batch
    sources: Batch | None = None


class LabelTransfer(Transfer):
    """MetaXT: source examples train the target's head too, with soft labels from a label transfer network (LTN).

        L_train = L(target) + sum_s w_s ( gamma_1 L(source s, its own head)
                                        + gamma_2 / S L(source s, the target's head, soft labels g_alpha(h(x), y)) )
        theta' = theta - eta grad L_train,        alpha <- alpha - d L_meta(theta') / d alpha

    - theta: the model; eta: its learning rate; `w_s`: the source's weight relative to the target's (1 with `uniform`),
      so that any weighting can be learned on top; several targets share `gamma_2` evenly;
    - S: the number of sources, 1 in the paper;
    - alpha: the LTN, one for all sources, with an embedding of the source where there are several;
    - soft labels: a distribution over the target's classes; a probability of each label, where examples have several
      (multilabel); or a number (regression). A source's label may likewise be a class, several, or a number;
    - `L_meta`: the loss on held-out examples of the target's batch, which the look-ahead step has not trained on.

    In the code: eq. 2 is `terms` and `MetaStep`, eq. 5 is `bilevel`, Algorithm 1 is `before_step` followed by the
    model's own step; losses of soft labels are in `soft_labels`. At inference there is no LTN: the model that is saved
    or exported is the plain one.

    A loss of soft labels is a sum of products, of what they say and what the target's head makes of it (cross-entropy
    is linear in them, and `-2 z v` is all that a squared error `(z - v)^2` has of both), so the meta-gradient needs no
    second derivative: one pass in forward mode over the source batch gives it exactly. The look-ahead step and the
    meta-gradient are taken without dropout. No gradient passes from the LTN into the representations that it reads.

    Args:
        gamma_1: weight of a source's own labels.
        gamma_2: weight of the transferred labels of all sources together: they train the head that the target has few
            labels for, and many sources should not drown those. 1, and 3 with a probe to start from. 0 is plain joint
            training.
        meta: learn alpha by the loss on held-out examples. False is the paper's ablation XT: alpha is trained jointly
            with the model on L_train, where the easiest labels win.
        learning_rate: of alpha, by Adam. Labels that change faster than the model learns them oscillate and collapse to
            one label: lower it where the map does not settle. 1e-3, and 1e-4 with a probe to start from. With 0 alpha
            stays where it starts, and no meta step is taken: what a gain of learning is measured against.
        split: fraction of the target's examples that are held out from the look-ahead step.
        hold: what is split: "batch", each batch of the target anew as in the paper; or "set", the target's training set
            once, so that held-out examples are new to the model for as long as alpha learns. With few labels the model
            soon overfits them, and then they carry no signal for alpha.
        learn: fraction of all updates in which alpha learns; then it is fixed.
        train_on: which part of the target's batch the model's own step takes while alpha learns: "all", or "half", the
            part that is not held out, as a literal reading of Algorithm 1 has it. With `hold="set"` always the latter.
        order: when alpha moves: "before" the model's step, by a look-ahead step of its own, as in Algorithm 1; or
            "after" its backward pass, whose gradient then is that of the look-ahead step: a third cheaper, and the
            model learns from alpha one update later. Needs `train_on="half"` or `hold="set"`, or nothing would be held
            out of that gradient.
        every: updates from one meta step to the next.
        warmup: fraction of all updates before the transferred term begins; the target's head and the LTN start from
            random weights, and train each other on noise at first. 0, and 0.5 with a probe to start from.
        prior: factor of the Kullback-Leibler divergence between the target's label frequencies and the mean soft label
            of a batch, so that a map that collapses onto one label costs; not for numbers. 0 in the paper.
        variant: of the meta-gradient, see `bilevel.meta_gradient`.
        look_ahead: "sgd" as in eq. 4; "adam", the step that the optimizer will take; or "none", which takes the
            held-out loss of the current model: a third cheaper, and the same to first order in the learning rate.
        start: what soft labels start from (`PRESETS`), "probe" unless said otherwise, which was the best in our trials:
            "nothing", the network alone as in the paper; "model", the
            prediction of the target's head, which the network learns to correct: a label that only repeats the model
            leaves it unchanged, so that the transferred term does no harm before the network has learned something;
            "probe", the prediction of a linear model that is fitted to the target's labels at the end of the warm-up,
            in which the sources train alone, so that the target is not overfitted by then. The target's head starts
            there too, where it is one linear layer; the soft labels keep it near while its few labels train it on. Or
            "stacked", a linear model that also reads the prediction of the source's head; for an example of the source
            its own label stands there, which is informative where label sets are close. Or "names", where labels are
            words or have `descriptions`: the probe stays near what the target's labels mean (`head: names`), and the
            logit of a target label is the higher the nearer it is to the source's own label, by the cosine of their
            texts times 10; a Hugging Face encoder then gives the mean of its token vectors.
        hidden: width of the LTN.
        label_width: of its label embeddings.

    Differs from the paper: `train_on="all"`, since labels of the target are the scarcest; several sources; numbers and
    several labels per example, where the paper has classes and tags;
    `warmup`, `learn`, `hold`, `prior`, `start`, `every`, "adam" and "none". The factor eta of the meta-gradient is left
    out: Adam, which trains alpha, does not see a factor, until it is so small that its epsilon does.
    """

    name: ClassVar[str] = "label-transfer"
    summary: ClassVar[str] = "source labels carried over into the target's label set by a network learned on the target"
    paper: ClassVar[Paper | None] = METAXT
    paper_options: ClassVar[Mapping[str, Any]] = {"start": "nothing"}
    provides = frozenset({Ability.ANY, Ability.TRANSFERRED_TERM})
    excludes: ClassVar[Mapping[Ability, str]] = {
        Ability.TRANSFERRED_TERM: "transfer 'label-transfer' is named twice: one serves all sources and targets.",
        Ability.PRIVATE_ENCODERS: "transfer 'label-transfer' lets the target's head read source examples, but private "
        "encoders give it features that the target alone has: use `private: false` there.",
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
        start: Start = "probe",
        hidden: int = 128,
        label_width: int = 32,
    ) -> None:
        super().__init__()
        preset = self.preset = PRESETS[_choice("start", start, get_args(Start))]
        # The objective
        self.mean_vectors = preset.reads_names
        self.gamma_1 = _number("gamma_1", gamma_1, at_least=0.0)
        self.gamma_2 = _number("gamma_2", preset.gamma_2 if gamma_2 is None else gamma_2, at_least=0.0)
        self.prior = _number("prior", prior, at_least=0.0)
        self.warmup = _fraction("warmup", preset.warmup if warmup is None else warmup, at_least=0.0)
        # How alpha is learned
        self.meta = bool(meta)
        rate = preset.learning_rate if learning_rate is None else learning_rate
        self.learning_rate = _number("learning_rate", rate, at_least=0.0, at_most=MAX_RATE)
        if self.meta:
            self.meta_learning_rate = self.learning_rate
        self.every = _count("every", every)
        self.learn = _number("learn", learn, above=0.0)
        if self.learn > 1.0:
            raise CrossTaskError(f"transfer 'label-transfer': `learn` must be a share up to 1, found {shown(learn)}.")
        self.variant = _choice("variant", variant, get_args(Variant))
        self.look_ahead = _choice("look_ahead", look_ahead, get_args(LookAhead))
        # What is held out
        self.split = _fraction("split", split, above=0.0)
        self.hold = _choice("hold", hold, get_args(Hold))
        self.train_on = _choice("train_on", train_on, get_args(Part))
        self.order = _choice("order", order, get_args(Order))
        if self.order == "after" and self.train_on == "all" and self.hold == "batch":
            raise CrossTaskError(
                "transfer 'label-transfer': with `order: after` the model's own step is the look ahead, so that "
                "examples must be held out of it: set `train_on: half` or `hold: set`."
            )
        # With the others it reads the gradient or the optimizer's state, of which each rank has a part.
        if self.order == "before" and self.look_ahead != "adam":
            self.needs_whole_model = WholeModel.BEFORE_STEP
        # The network
        self.hidden = _count("hidden", hidden, at_most=MAX_WIDTH)
        self.label_width = _count("label_width", label_width, at_most=MAX_WIDTH)
        self.networks, self.maps = nn.ModuleList(), nn.ModuleList()
        self.adapters: tuple[StateAdapter, ...] = ()  # a tuple, so no submodule: its state is its own
        self.has_begun = False
        self.held_out: dict[str, np.ndarray] = {}
        self.delayed: tuple[Moment, dict[str, splits.Split]] | None = None
        self.reduce: Callable[[Tensor], Tensor] = sum_of_one

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """A source and the target must meet in a step."""
        if not plan.sources:
            raise CrossTaskError("transfer 'label-transfer' carries over the labels of sources: name at least one.")
        if not any({*phase.tasks} & {*plan.targets} and {*phase.tasks} & {*plan.sources} for phase in phases):
            raise CrossTaskError(
                "transfer 'label-transfer' needs a source and the target in one phase: "
                "use the paradigm joint or normalized-joint."
            )
        if plan.settings.schedule != "parallel":
            raise CrossTaskError(
                "transfer 'label-transfer' needs a source and the target in every step: use `schedule: parallel`."
            )
        if plan.settings.tasks_per_step is not None:
            raise CrossTaskError(
                "transfer 'label-transfer' learns what every source's labels say of the target in each step: leave "
                "`tasks_per_step` out."
            )
        if plan.settings.head in SOLVED_HEADS or plan.settings.sources_first:
            head = plan.settings.head if plan.settings.head in SOLVED_HEADS else "probe"
            raise CrossTaskError(
                "transfer 'label-transfer' has a first part with the sources alone, and a solver after it, of its own "
                f"(`warmup`, `start: {head}`): leave `head: {head}` and `sources_first` out."
            )
        takes_turns = [phase.weighting.name for phase in phases if phase.weighting.held_out_part is not None]
        if self.meta and self.hold == "set" and takes_turns:
            raise CrossTaskError(
                f"transfer 'label-transfer' trains on all of the target that is not in its own held-out set, and so on "
                f"what weighting '{takes_turns[0]}' holds out: use `hold: batch`."
            )
        if self.meta and plan.settings.batch_size < 2:
            raise CrossTaskError(
                "transfer 'label-transfer' splits the target's batch in two, and a batch of one cannot be split: "
                "use a `batch_size` of at least 2."
            )
        return list(phases)

    def start(self, setup: Setup) -> None:
        """Make a network per target, over all sources of its level."""
        if Ability.STATE_ADAPTER in setup.providers:
            self.adapters = (cast(StateAdapter, setup.providers[Ability.STATE_ADAPTER]),)
        tasks = {task.name: task for task in setup.tasks}
        self.targets = tuple(setup.targets)
        for name in self.targets:
            if self.preset.reads_names:
                check_label_texts(tasks[name].spec)
        self.target_kinds = {name: tasks[name].kind for name in self.targets}
        self.has_taggers = any(task.kind == "tagging" for task in setup.tasks)
        self.sources: dict[str, list[TaskSpec]] = {}
        self.receivers: dict[str, list[str]] = {}  # by source, the targets that its labels are carried over to
        self.pairs: list[tuple[str, str]] = []  # source and target of each map
        self.register_buffer("held_out_loss", torch.full((), math.nan))
        for number, name in enumerate(self.targets):
            self.sources[name] = splits.sources_of(tasks[name].spec, setup.tasks, self.targets)
            self._start_target(number, tasks, name, setup.model.encoder.width)
        self.has_begun = not self.warmup
        if self.meta_learning_rate is not None:
            self.optimizer = torch.optim.Adam(self.networks.parameters(), self.meta_learning_rate)

    def _start_target(self, number: int, tasks: "Mapping[str, Task]", name: str, width: int) -> None:
        """Make a target's network, and a map for each of its sources."""
        target = tasks[name]
        if self.prior and target.kind == "regression":
            raise CrossTaskError(
                "transfer 'label-transfer': `prior` compares how frequent labels are, but those of the target "
                f"'{name}' are numbers: leave it out."
            )
        if self.meta and len(target.train) < 2:
            raise CrossTaskError(
                f"transfer 'label-transfer' splits the batches of '{target.name}' in two, "
                "but it has one training example."
            )
        sources = self.sources[target.name]
        network = LabelTransferNetwork(
            width,
            {spec.name: spec.num_outputs for spec in sources},
            target.spec.num_outputs,
            label_width=self.label_width,
            hidden=self.hidden,
            target_kind=target.kind,
            corrects=self.preset.corrects_model,
            has_probe=self.preset.uses_probe,
        )
        self.networks.append(network)
        if target.kind != "regression":
            self.register_buffer(f"frequencies_{number}", splits.label_frequencies(target))
        for spec in sources:
            self.maps.append(LabelMap(tasks[spec.name], target))
            self.pairs.append((spec.name, target.name))
            self.receivers.setdefault(spec.name, []).append(target.name)
            if target.labels and set(spec.labels) == set(target.labels):
                note = (
                    f"'{spec.name}' has the same labels as '{target.name}': label transfer may find that each stays "
                    "what it is; mapping both to one task would be simpler."
                )
                self.notes = [*self.notes, note]

    def soft_labels(self, vectors: Tensor, labels: Tensor, source: str, target: str, logits: Tensor) -> Tensor:
        """`g_alpha(h(x), y)`, [units, outputs]; `logits` are those of the target's head, of the same shape."""
        network = self.networks[self.targets.index(target)]
        result: Tensor = network(in_full(vectors), labels, source, in_full(logits))
        return result

    def before_step(self, moment: Moment) -> Step:
        """Algorithm 1: split the target's batch, and move alpha against the meta-gradient."""
        if moment.devices.num_ranks > 1:
            self.reduce = moment.devices.sum
        # 1. The warm-up: until its end the transferred term is missing, and with a probe the target too.
        # At least one update is left, however short the run.
        first_update = min(math.ceil(self.warmup * moment.num_updates), moment.num_updates - 1)
        self.has_begun = moment.update >= first_update
        if self.preset.uses_probe:
            self.is_ready = self.has_begun
            if moment.update == first_update:
                self._start_from_probes(moment)
            if not self.has_begun:
                return {task: rows for task, rows in moment.step.items() if task not in self.targets}
        # 2. Targets whose alpha learns in this update.
        if not self.meta or moment.update >= self.learn * moment.num_updates:
            return moment.step
        batch_splits: dict[str, splits.Split] = {}
        for name in self.targets:
            if name in moment.step and any(spec.name in moment.step for spec in self.sources[name]):
                batch_splits[name] = self._split(moment, name)
        # 3. The meta step, now or after the model's backward pass.
        if self.learning_rate and self.has_begun and moment.update % self.every == 0:
            usable = {name: split for name, split in batch_splits.items() if len(split.held_out)}
            if usable and self.order == "before":
                self._meta_step(moment, usable)
            elif usable:
                self.delayed = moment, usable
        # 4. What the model's own step trains on.
        step = dict(moment.step)
        if self.train_on == "half" or self.hold == "set":
            for name, split in batch_splits.items():
                step[name] = split.train
        return step

    def graph_key(self) -> Hashable | None:
        """Whether the transferred term has begun; labeled words are counted by the host, so taggers have no graphs."""
        if self.delayed is not None or self.has_taggers:
            return None
        return self.has_begun

    def _start_from_probes(self, moment: Moment) -> None:
        """Fit a linear model to each target's labels; the networks and the target's head start from it."""
        for name, network in zip(self.targets, self.networks, strict=True):
            model, target = moment.model, moment.data[name]
            probe = probes.named_probe_of(model, target) if self.preset.reads_names else probes.probe_of(model, target)
            for spec in self.sources[name]:
                source_probe = probe
                if self.preset.reads_source_labels:
                    source_probe = probes.stacked_probe_of(model, target, spec.name)
                elif self.preset.reads_names:
                    source_probe = probes.with_label_names(model, probe, target.spec, spec)
                cast(LabelTransferNetwork, network).set_probe(spec.name, source_probe)
            probes.fill_head(model, name, probe)

    def after_backward(self, model: "Model", update: int) -> None:
        """With `order: after`, the meta step from the gradient that the model's step is about to take."""
        delayed, self.delayed = self.delayed, None
        if delayed is not None:
            gradient: Values = {}
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    gradient[name] = parameter.grad
            self._meta_step(*delayed, gradient)

    def _split(self, moment: Moment, target: str) -> splits.Split:
        """Positions of the target's examples for the look-ahead step, and of those that are held out."""
        if self.hold == "batch":
            input_numbers = moment.data[target].distinct_inputs.numbers
            return splits.split_batch(moment.step[target], self.split, input_numbers)
        if target not in self.held_out:
            self.held_out[target] = splits.held_out_positions(moment.data[target], self.split)
        return splits.sample_split(moment, target, self.held_out[target])

    def _meta_step(self, moment: Moment, batch_splits: dict[str, splits.Split], gradient: Values | None = None) -> None:
        """The batches and terms of a meta step, and that step; `gradient` is that of L_train, if known."""
        train_step, held_out_step = dict(moment.step), {}
        for name, split in batch_splits.items():
            train_step[name], held_out_step[name] = split
        # The two parts of the target's batch, with the sources' in the first.
        is_known = gradient is not None
        can_replay = moment.example_weights is None and self._shapes_repeat(moment.model)
        if moment.graphs is not None and can_replay and not is_known:
            self._replay_meta_step(moment, moment.graphs, train_step, held_out_step)
            return
        batches = MetaBatches(self._local_batch(moment, train_step), self._local_batch(moment, held_out_step))
        self.learn_alpha(moment, batches, self.loss_terms(list(train_step), moment.weights), gradient)

    def _shapes_repeat(self, model: "Model") -> bool:
        """Whether a CUDA graph can hold a meta step, and its shapes come back."""
        has_inserts = bool(self.adapters) or bool(len(model.inserts))
        return model.encoder.has_few_shapes and not self.has_taggers and not has_inserts

    def _replay_meta_step(self, moment: Moment, graphs: PlainGraphs, train_step: Step, held_out_step: Step) -> None:
        """The meta step as a computation of tensors, which a CUDA graph replays."""
        encoder, data, tasks = moment.model.encoder, moment.data, list(train_step)
        source_step = {task: positions for task, positions in train_step.items() if task in self.receivers}
        inputs: dict[str, Tensor] = {"weights": torch.tensor([moment.weights.get(task, 1.0) for task in tasks])}
        rows: list[RowCounts] = []
        for prefix, step in ((TRAIN, train_step), (HELD_OUT, held_out_step), (SOURCES, source_step)):
            batch = batch_of_few_shapes(encoder, data, step)
            inputs |= batch.tensors(prefix)
            rows.append(row_counts(batch.rows))
        train_rows, held_out_rows, source_rows = rows

        def meta_step(inputs: Tensors) -> Parts:
            batches = MetaBatches(
                Batch.from_tensors(inputs, train_rows, TRAIN),
                Batch.from_tensors(inputs, held_out_rows, HELD_OUT),
                Batch.from_tensors(inputs, source_rows, SOURCES),
            )
            weights = dict(zip(tasks, inputs["weights"], strict=True))
            self.learn_alpha(moment, batches, self.loss_terms(tasks, weights))
            yield {}

        graphs.run(("meta step", *rows), meta_step, inputs).finish()

    def learn_alpha(
        self, moment: Moment, batches: MetaBatches, terms: Sequence[Term], gradient: Values | None = None
    ) -> None:
        """One step of Adam on alpha, and on what adapts hidden states.

        Nothing here waits for the device, unless a task is tagging: it can be captured in a CUDA graph, with batches of
        one shape, with weights in `loss_terms` and the optimizer's learning rates as tensors.

        Args:
            moment: the model, its optimizer and the devices.
            batches: this process's, on the device.
            terms: `loss_terms` of the step.
            gradient: that of L_train over all processes, if it is known. It stays as it is.
        """
        learning: list[LabelTransfer | StateAdapter] = [self, *self.adapters]
        meta: list[nn.Parameter] = []
        optimizers: list[torch.optim.Optimizer] = []
        for transfer in learning:
            assert transfer.optimizer is not None
            meta += transfer.own_parameters()
            optimizers.append(transfer.optimizer)
        meta_step = MetaStep(
            self._reader(moment.model),
            self.soft_labels,
            meta,
            self.variant,
            self.look_ahead,
            self.reduce,
            moment.devices.autocast,
            moment.example_weights,
        )
        # 1. The meta-gradient, in the parameters' `.grad`.
        derivatives, loss = meta_step.gradient(
            batches.train, batches.held_out, terms, moment.optimizer, gradient, batches.sources
        )
        self.held_out_loss.copy_(loss)
        for parameter, value in zip(meta, _divided(derivatives, moment.optimizer.param_groups[0]["lr"]), strict=True):
            parameter.grad = value
        if self.prior:
            self._add_prior(moment.model, batches.train, moment.devices.autocast)
        # 2. A step, unless a gradient overflowed.
        moment.devices.sum_gradients(meta)
        step_if_finite(optimizers, meta)

    def _reader(self, model: "Model") -> Reader:
        return Reader(model, *self.adapters)

    def _local_batch(self, moment: Moment, step: Step) -> Batch:
        """This process's part of a step."""
        local = split_over_ranks(step, moment.devices.rank, moment.devices.num_ranks)
        local = {task: positions for task, positions in local.items() if len(positions)}
        if not local:
            return Batch({}, {}, {}, {})
        return make_batch(moment.model.encoder, moment.data, local).to(moment.devices.device)

    def loss_terms(self, tasks: Sequence[str], weights: Mapping[str, Rate]) -> list[Term]:
        """The terms of L_train, in the order of the tasks, with these weights; one without has weight 1."""
        terms = []
        for task in tasks:
            weight = weights.get(task, 1.0)
            receivers = self.receivers.get(task, [])
            terms.append(Term(task, task, weight * self.gamma_1 if receivers else weight))
            for name in receivers:
                terms.append(Term(task, name, weight * self._transferred_factor(name, receivers)))
        return terms

    def _transferred_factor(self, target: str, receivers: Sequence[str]) -> float:
        """Of the transferred labels of one source: sources share `gamma_2`, and so do the targets of each."""
        return self.gamma_2 / (len(self.sources[target]) * len(receivers))

    def terms(self, forward: Pass) -> Terms:
        """`gamma_1` times each source's own loss and `gamma_2` times that of the transferred labels."""
        factors: dict[str, float] = {}
        added: dict[str, list[Tensor]] = {}
        for task in forward.logits:
            receivers = self.receivers.get(task, [])
            if receivers:
                factors[task] = self.gamma_1
                if self.has_begun:
                    added[task] = self._transferred_terms(task, receivers, forward)
        return Terms(factors, added)

    def _transferred_terms(self, task: str, receivers: Sequence[str], forward: Pass) -> list[Tensor]:
        """The losses of a source's transferred labels, one for each target, summed over the units of the batch."""
        kind, labels = forward.model.specs[task].kind, forward.batch.labels[task]
        vectors = labeled_units(kind, forward.representations[task].read_by(kind).detach(), labels)  # [units, width]
        unit_labels = labeled_units(kind, labels, labels)  # [units, ...]
        reader = self._reader(forward.model)
        terms = []
        for name in receivers:
            logits = labeled_units(kind, reader.transferred(forward, Term(task, name, 1.0)), labels)
            # Only the ablation XT trains alpha on this loss.
            with torch.set_grad_enabled(not self.meta and torch.is_grad_enabled()):
                soft_labels = self.soft_labels(vectors, unit_labels, task, name, logits.detach())
            cast(LabelMap, self.maps[self.pairs.index((task, name))]).add(soft_labels.detach(), unit_labels)
            kind_of_target = self.target_kinds[name]
            loss = (outcome_weights(kind_of_target, soft_labels) * outcome_costs(kind_of_target, logits)).sum()
            terms.append(self._transferred_factor(name, receivers) * loss)
        return terms

    def _add_prior(self, model: "Model", batch: Batch, autocast: Autocast = nullcontext) -> None:
        """This process's part of the gradient of `prior * KL(frequencies of the target's labels | mean soft label)`."""
        terms = [Term(source, target, 1.0) for source, target in self.pairs if source in batch.rows]
        logits: dict[Term, Tensor] = {}
        vectors: dict[str, Tensor] = {}
        if terms:
            with without_dropout(model), torch.no_grad(), autocast():
                logits, vectors = self._reader(model)(batch, terms)
        for number, name in enumerate(self.targets):
            frequencies = getattr(self, f"frequencies_{number}")  # [..., outcomes]
            soft_labels = [frequencies.new_zeros(0, *frequencies.shape)]
            for term in terms:
                if term.head == name:
                    kind, labels = model.specs[term.task].kind, batch.labels[term.task]
                    term_vectors = labeled_units(kind, vectors[term.task], labels)
                    term_logits = labeled_units(kind, logits[term], labels)
                    unit_labels = labeled_units(kind, labels, labels)
                    with autocast():
                        soft = self.soft_labels(term_vectors, unit_labels, term.task, name, term_logits)
                    soft_labels.append(outcome_weights(self.target_kinds[name], soft))
            total = torch.cat(soft_labels).sum(0)  # [..., outcomes]
            # The derivative of the divergence by the sum of all soft labels, which is the same in every process.
            derivative = -frequencies / self.reduce(total.detach()).clamp(min=MIN_SUM)
            if total.requires_grad:
                (self.prior * (derivative * total).sum()).backward()

    def facts(self) -> Facts:
        """The label map since the last evaluation: the mean soft label of each source label; and the held-out loss."""
        label_map: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for (source, target), pair_map in zip(self.pairs, self.maps, strict=True):
            rows = cast(LabelMap, pair_map).take(self.reduce)
            if rows:
                label_map.setdefault(target, {})[source] = rows
        facts: Facts = {}
        if label_map:
            facts["label_map"] = label_map
        if not self.held_out_loss.isnan():
            facts["held_out_loss"] = self.held_out_loss.item()
        return facts


def _divided(derivatives: list[Tensor], rate: Rate) -> Sequence[Tensor]:
    """Meta-gradients without the factor eta; at a rate of zero, as when it warms up, they are zero and stay so."""
    if isinstance(rate, Tensor):
        return torch._foreach_div(derivatives, torch.where(rate == 0.0, 1.0, rate))
    return torch._foreach_div(derivatives, rate or 1.0)


_number = functools.partial(checks.check_number, "label-transfer", what="transfer")
_count = functools.partial(checks.check_count, "label-transfer", what="transfer")


def _choice(option: str, value: Choice, choices: Sequence[str]) -> Choice:
    checks.check_choice("label-transfer", option, value, choices, what="transfer")
    return value


def _fraction(option: str, value: float, *, above: float | None = None, at_least: float | None = None) -> float:
    fraction = _number(option, value, above=above, at_least=at_least)
    if fraction >= 1.0:
        raise CrossTaskError(f"transfer 'label-transfer': `{option}` must be a share below 1, found {shown(fraction)}.")
    return fraction
