"""Contrast before training: texts of one label move together and others apart, then a probe is the target's head."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.models.losses import in_full
from crosstask.papers import SETFIT, Paper
from crosstask.quoting import shown
from crosstask.transfer.base import Ability, Pass, Transfer, WholeModel
from crosstask.weighting import validation as checks
from crosstask.weighting.static import Uniform

if TYPE_CHECKING:
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

Loss = Literal["supervised", "cosine"]
ContrastedTasks = Literal["all", "targets", "sources"]
PHASE = "contrast"
"""Name of the phase in the record."""
KINDS = ("classification", "pair")
"""Kinds of tasks whose examples have a class each."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Anchors compared with candidates: the cosine of each two, and which of them have the same label.

    - `cosines`: [anchors, candidates];
    - `is_same`: true for two examples with the same label of the same task, but not for an example and itself;
    - `is_self`: true for an example and itself.
    """

    cosines: Tensor
    is_same: Tensor
    is_self: Tensor

    @classmethod
    def of(cls, vectors: Tensor, labels: Tensor, anchors: slice = slice(None)) -> "Comparisons":
        """All vectors, [examples, width], are candidates, with labels [examples]; some of them are anchors."""
        directions = F.normalize(in_full(vectors), dim=-1)
        is_self = torch.eye(len(labels), dtype=torch.bool, device=labels.device)[anchors]
        is_same = (labels[anchors, None] == labels[None, :]) & ~is_self
        return cls(directions[anchors] @ directions.T, is_same, is_self)


def supervised_contrast(comparisons: Comparisons, temperature: float) -> tuple[Tensor, Tensor]:
    """Sum of the anchors' losses (Khosla et al. 2020, eq. 2), and the number of anchors that have a positive.

    >>> vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> total, count = supervised_contrast(Comparisons.of(vectors, torch.tensor([0, 0, 1])), temperature=1.0)
    >>> round(total.item() / 2, 4), count.item()  # log(1 + 1 / e)
    (0.3133, 2)
    """
    logits = comparisons.cosines / temperature  # [anchors, candidates]
    logits = logits.masked_fill(comparisons.is_self, torch.finfo(logits.dtype).min)
    log_probabilities = logits - logits.logsumexp(dim=1, keepdim=True)
    num_positives = comparisons.is_same.sum(dim=1)
    sums = log_probabilities.masked_fill(~comparisons.is_same, 0.0).sum(dim=1)
    return -(sums / num_positives.clamp(min=1)).sum(), (num_positives > 0).sum()


def cosine_regression(comparisons: Comparisons) -> tuple[Tensor, Tensor]:
    """Mean squared error of the cosine: 1 for pairs of one label and 0 for others, each kind of pair counting half.

    Returns the error, and 1, or 0 where there is no pair.

    >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> error, _ = cosine_regression(Comparisons.of(vectors, torch.tensor([0, 0, 1])))
    >>> round(error.item(), 4)  # half of 1 for the first two, half of 1/2 for the others
    0.75
    """
    errors = (comparisons.cosines - comparisons.is_same.to(comparisons.cosines)).square()
    is_other = ~(comparisons.is_same | comparisons.is_self)
    total, num_kinds = errors.new_zeros(()), errors.new_zeros(())
    for pairs in (comparisons.is_same, is_other):
        count = pairs.sum()
        total = total + errors.masked_fill(~pairs, 0.0).sum() / count.clamp(min=1)
        num_kinds = num_kinds + (count > 0)
    return total / num_kinds.clamp(min=1), num_kinds.clamp(max=1)


class Contrast(Transfer):
    """A first phase on pairs: texts of one label move together, others apart; then the target's head is a linear probe.

    Few labels make many pairs, so that the encoder learns from them what one label per text does not tell it. With
    `z_i` the direction of text i's vector, the loss of an anchor i is that of Khosla et al. (2020), `loss: supervised`,

        L_i = -1 / |P(i)| sum_{p in P(i)} log( exp(z_i z_p / tau) / sum_{a != i} exp(z_i z_a / tau) )

    or, with `loss: cosine`, pairs are a regression as in SetFit (Tunstall et al. 2022):

        L = 1/2 mean_{same} (z_i z_j - 1)^2 + 1/2 mean_{other} (z_i z_j)^2

    - P(i), *same*: the other texts of the batch with the label of i, of the same task;
    - a, *other*: texts of the batch with another label;
    - tau: `temperature`.

    In the code: `supervised_contrast`, `cosine_regression`; batches hold several texts of a label (`LabelStream`).
    Each task counts the same in this phase. Other transfers and the run's weighting act from the next phase on. Between
    them a solver fits the target's head to the features as they then are; heads of sources learn in their own phases.

    Args:
        loss: "supervised" or "cosine".
        tasks: whose labels are contrasted: "all", "targets" (as in SetFit, which knows one task) or "sources".
        fraction: of the updates of the phase that comes next, which keeps the rest; or, after the sources, of theirs.
        temperature: of the supervised loss. 0.1 in Khosla et al. (2020), and for intents in Zhang et al. (2021).
        per_label: texts of a label that a batch holds, if it has so many.
        across: texts of other tasks are others too; else texts of each task are compared among themselves. Tasks that
            share meanings (two sets of intents) are driven apart by it.

    With the paradigms `contrastive` (and `sources_first`) and `names` the sources train first, and the phase stands
    between them and the solver. Then it is for the target: `tasks: targets`.

    Differs from the papers: all pairs of a batch are compared, where SetFit samples 20 pairs of each kind for every
    text; each text is read once, where Khosla et al. and Zhang et al. compare it with a second view of itself; there is
    no phase without labels (Zhang et al. 2021). SetFit sees each pair once; here `fraction` decides how long it takes.

    Needs classes (tasks of the kind classification or pair) and an encoder that learns. An update costs as much as one
    of training. The paradigm `contrastive` is this phase and the probe, and nothing else. With several processes, texts
    are compared within each.

    >>> Contrast(loss="cosine", tasks="targets").fraction
    0.5
    """

    name: ClassVar[str] = "contrast"
    summary: ClassVar[str] = "a first phase on pairs: texts of one label together, others apart; then a probe as head"
    needs_whole_model = WholeModel.NEVER
    paper: ClassVar[Paper | None] = SETFIT
    paper_options: ClassVar[Mapping[str, Any]] = {"loss": "cosine", "tasks": "targets"}
    provides = frozenset({Ability.ANY, Ability.CONTRAST})
    excludes: ClassVar[Mapping[Ability, str]] = {
        Ability.CONTRAST: "transfer 'contrast' is named twice: one phase contrasts all tasks.",
    }

    def __init__(
        self,
        *,
        loss: Loss = "supervised",
        tasks: ContrastedTasks = "all",
        fraction: float = 0.5,
        temperature: float = 0.1,
        per_label: int = 4,
        across: bool = False,
    ) -> None:
        super().__init__()
        checks.check_choice(self.name, "loss", loss, get_args(Loss), what="transfer")
        checks.check_choice(self.name, "tasks", tasks, get_args(ContrastedTasks), what="transfer")
        self.loss, self.tasks = loss, tasks
        self.fraction = _number("fraction", fraction, above=0.0)
        if self.fraction >= 1.0:
            raise CrossTaskError(
                f"transfer 'contrast': `fraction` must be below 1, found {shown(fraction)}; for contrast and a probe "
                "alone use the paradigm 'contrastive'."
            )
        self.temperature = _number("temperature", temperature, at_least=MIN_TEMPERATURE)
        self.per_label = checks.check_count(self.name, "per_label", per_label, at_least=2, what="transfer")
        self.across = bool(across)

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """Put the phase in front, or where a solver ends everything after the sources behind these; then a probe."""
        names = self._tasks_of(plan, phases)
        *before, last = phases
        if before and last.solve is not None and not any({*phase.tasks} & {*plan.targets} for phase in before):
            return self._after_sources(plan, names, before, last)
        # 1. Its updates, and what is left for the next phase.
        first = phases[0]
        if first.solve is not None and len(phases) > 1:
            first = phases[1]
        num_updates = replace(plan, settings=first.settings).num_updates(first.tasks)
        num_first = num_updates
        if first.solve is None:
            num_first = self._share_of(num_updates)
        if num_first < 1:  # one update is all there is
            return list(phases)
        following = []
        for phase in phases:
            if phase is first and first.solve is None:
                phase = replace(phase, settings=replace(phase.settings, updates=num_updates - num_first))
            following.append(phase)
        # 2. The target's head.
        contrast = self._phase(plan, names, num_first)
        if all(phase.solve is None for phase in phases):
            return [contrast, *plan.probe_phases(), *following]
        return [contrast, *following]

    def _after_sources(
        self, plan: "Plan", names: tuple[str, ...], before: "Sequence[Phase]", last: "Phase"
    ) -> "list[Phase]":
        """The phase between the sources' and that of a solver, with what the sources leave of the updates."""
        sources = before[-1]
        num_sources = replace(plan, settings=sources.settings).num_updates(sources.tasks)
        num_updates = (plan.settings.updates or num_sources) - num_sources
        if num_updates < 1:
            num_updates = self._share_of(num_sources)
            shorter = replace(sources.settings, updates=num_sources - num_updates)
            before = [*before[:-1], replace(sources, settings=shorter)]
        if num_updates < 1:
            return [*before, last]
        return [*before, self._phase(plan, names, num_updates), last]

    def _share_of(self, num_updates: int) -> int:
        """Its part of the updates of another phase, to which one is left at least."""
        return min(max(1, round(self.fraction * num_updates)), num_updates - 1)

    def _phase(self, plan: "Plan", names: tuple[str, ...], num_updates: int) -> "Phase":
        settings = replace(plan.settings, updates=num_updates, schedule="parallel")
        return replace(plan.phase(PHASE, names, Uniform, watched=(), settings=settings), objective=self)

    def _tasks_of(self, plan: "Plan", phases: "Sequence[Phase]") -> tuple[str, ...]:
        trained = {task for phase in phases for task in phase.tasks}
        candidates = {"targets": plan.targets, "sources": plan.sources, "all": plan.targets + plan.sources}[self.tasks]
        names = tuple(task for task in candidates if task in trained)
        if not names:
            raise CrossTaskError(
                "transfer 'contrast' with `tasks: sources` contrasts the labels of sources, and no source trains "
                "here: name one, or use `tasks: targets`."
            )
        return names

    def check(self, model: "Model", tasks: Sequence[str]) -> None:
        """Refuse tasks without classes, and encoders that cannot learn."""
        for task in tasks:
            kind = model.specs[task].kind
            if kind not in KINDS:
                raise CrossTaskError(
                    f"The contrastive phase compares examples by their class, and those of the task '{task}' ({kind}) "
                    "have none. Leave the task out, or name others by `tasks` of the transfer 'contrast'."
                )
        if not model.shared_parameters():
            raise CrossTaskError(
                "The contrastive phase moves the vectors of texts, and nothing of this encoder learns: leave "
                "`freeze: true` out, set `hidden` beside it, or use the paradigm 'probe'."
            )

    def loss_sums(self, forward: Pass) -> dict[str, tuple[Tensor, Tensor]]:
        """What the phase trains: by task the sum of the losses of a batch, and what they are to be divided by."""
        sums: dict[str, tuple[Tensor, Tensor]] = {}
        vectors: dict[str, Tensor] = {}
        for task, representation in forward.representations.items():
            vectors[task] = representation.read_by(forward.model.specs[task].kind)  # [batch, width]
        for task in vectors:
            compared = list(vectors) if self.across else [task]
            comparisons = compare(vectors, forward.batch.labels, compared, task)
            if self.loss == "cosine":
                sums[task] = cosine_regression(comparisons)
            else:
                sums[task] = supervised_contrast(comparisons, self.temperature)
        return sums


def compare(
    vectors: Mapping[str, Tensor], labels: Mapping[str, Tensor], compared: Sequence[str], task: str
) -> Comparisons:
    """The examples of a task compared with those of `compared`, which it is one of; labels of two tasks differ."""
    all_labels: list[Tensor] = []
    anchors = slice(0, 0)
    num_labels, num_examples = 0, 0
    for name in compared:
        all_labels.append(labels[name] + num_labels)
        num_labels += int(labels[name].max()) + 1 if len(labels[name]) else 0
        if name == task:
            anchors = slice(num_examples, num_examples + len(labels[name]))
        num_examples += len(labels[name])
    return Comparisons.of(torch.cat([vectors[name] for name in compared]), torch.cat(all_labels), anchors)


MIN_TEMPERATURE = 1e-3
"""Of a lower one the exponents are beyond all use."""

_number = functools.partial(checks.check_number, "contrast", what="transfer")
