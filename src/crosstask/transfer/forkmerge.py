"""Branches of the model with and without sources, merged as examples of the target say that trained none of them."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from crosstask.data.overlap import DistinctInputs
from crosstask.errors import CrossTaskError
from crosstask.gradients.optimizer_state import set_rates
from crosstask.gradients.task_gradients import num_entries
from crosstask.models.batches import Prepared, Step
from crosstask.models.evaluate import evaluate
from crosstask.papers import FORKMERGE, Paper
from crosstask.probing.heads import SOLVED_HEADS
from crosstask.probing.names import named_probe_of
from crosstask.transfer.base import Ability, Facts, Moment, Setup, Transfer
from crosstask.transfer.label_transfer.probes import fill_head, probe_of
from crosstask.weighting.evidence import Need
from crosstask.weighting.validation import check_count

if TYPE_CHECKING:
    from crosstask.models.multitask import Model
    from crosstask.training.config import Training
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

WHERE = "transfer 'forkmerge'"
FRACTIONS = (0.2, 0.4, 0.6, 0.8)
"""How far a merge may go toward one more branch."""
MAX_MERGES = 1000
MAX_PARTS = 20


def merge(branches: Tensor, weights: Tensor) -> Tensor:
    """`sum_b Lambda_b theta_b`, [entries]. A branch without weight is left out, whatever stands in it.

    >>> merge(torch.tensor([[0.0, 4.0], [1.0, 0.0]]), torch.tensor([0.25, 0.75])).tolist()
    [0.75, 1.0]

    Args:
        branches: parameters of each branch, [branches, entries].
        weights: Lambda, [branches].
    """
    counts = weights > 0.0
    return weights[counts].to(branches) @ branches[counts.to(branches.device)]


def search_weights(loss: Callable[[Tensor], float], num_branches: int) -> Tensor:
    """Lambda by line searches, [branches]: from the best branch toward one after the other, as far as the loss falls.

    A step goes from Lambda to `(1 - lambda) Lambda + lambda e_b` with lambda from a grid, so that with two branches all
    points of the grid are tried.

    >>> search_weights(lambda weights: float((weights[1] - 0.4) ** 2), 2).tolist()
    [0.6, 0.4]

    Args:
        loss: held-out loss of the branches merged with some weights; one that is not finite is the worst.
        num_branches: how many there are; of equally good ones the first is the best.
    """

    def finite_loss(weights: Tensor) -> float:
        value = loss(weights)
        return value if math.isfinite(value) else math.inf

    alone = torch.eye(num_branches, dtype=torch.float64)  # [branches, branches]
    losses = [finite_loss(weights) for weights in alone]
    order = sorted(range(num_branches), key=losses.__getitem__)
    best, lowest = alone[order[0]], losses[order[0]]
    for branch in order[1:]:
        start = best
        for fraction in FRACTIONS:
            weights = (1.0 - fraction) * start + fraction * alone[branch]
            value = finite_loss(weights)
            if value < lowest:
                best, lowest = weights, value
    return best


@dataclass(frozen=True)
class BranchPosition:
    """Where in training an update is: which copy of the model, which of its branches, and how far that one is.

    - `round`: number of merges before;
    - `update`: of this branch since the fork.
    """

    round: int
    copy: int
    branch: int
    update: int


class ForkMerge(Transfer):
    """The model forks into branches with and without each source; held-out examples of the target say how they merge.

    Again and again, from the same parameters theta (Jiang et al. 2023),

        theta_0 = theta trained on the target alone,     theta_k = theta trained on the target and source k,
        theta  <- sum_b Lambda_b theta_b,                Lambda = argmin over the simplex of L(sum_b Lambda_b theta_b).

    For one step of gradient descent this is what weights of tasks do: with Lambda the gradient of source k counts
    Lambda_k beside the target's. So Lambda weighs sources by the target's loss after some training with them, not by
    gradients at one point.

    - `Lambda`: `weights` of `merge`;
    - `L`: loss of the target on examples that trained none of the branches, see below.

    In the code: the merge is `merge`, the search for Lambda is `search_weights`, a round of branches is
    `ForkMerge.before_step` and `ForkMerge.after_update`.

    With few labels there is no validation set to spare, so the merges are cross-fitted. The target's examples are dealt
    to `parts`. There is a copy of the model for each part, from the same start, which never trains on that part, from
    the first fork to the end: an example that had trained before would say which branch has forgotten least. All copies
    have the same branches and the same Lambda, the one with the lowest loss over all examples of the target, each by
    the copy that does not know it. What goes on after the last merge, and what dev sees after each, is the mean of the
    copies' parameters; all labels have trained it.

    Args:
        merges: how often branches are merged; after so many equal rounds of training.
        parts: number of parts of the target's examples, and of copies of the model.

    Differs from the paper: cross-fitting in place of a validation set, and the loss in place of the metric, in which
    few examples tie. A run takes as many updates as one without this transfer, so each branch is short: its number of
    updates is that of the run over `merges * parts * branches`. Each branch begins with a new optimizer, and its
    learning rate goes by the updates that lead to it. The search goes from branch to branch in the order of their
    losses, by a fraction of 0.2 to 0.8, like their greedy search; no source is dropped for good.

    Needs a phase of target and sources together (`joint`, `normalized-joint`), a fixed weighting, which says what
    source and target count within a branch, and `schedule: parallel`. Before the first fork no label trains a head that
    is kept: where `sources_first` has trained the target's head beside the sources it is reset, and with `head: probe`
    or `names` each copy solves for its own. Goes with no other transfer, since what that learns is not forked. Costs
    no updates, but memory, and checkpoints, of `parts * (branches + 1)` copies of the parameters that learn, and about
    4 passes over the target's examples for each branch and merge.

    >>> branches = torch.tensor([[0.0], [1.0], [9.0]])  # the target alone, with a good source, with a bad one
    >>> search_weights(lambda weights: abs(float(merge(branches, weights)) - 0.6), 3).tolist()
    [0.4, 0.6, 0.0]
    """

    name: ClassVar[str] = "forkmerge"
    summary: ClassVar[str] = "branches with and without each source, merged by the target's loss on held-out parts"
    paper: ClassVar[Paper | None] = FORKMERGE
    excludes: ClassVar[Mapping[Ability, str]] = {
        Ability.ANY: "transfer '{name}' forks the model and not what '{other}' learns beside it: use one of them."
    }
    copies: Tensor
    branches: Tensor
    num_forks: Tensor

    def __init__(self, *, merges: int = 4, parts: int = 3) -> None:
        super().__init__()
        self.merges = check_count(self.name, "merges", merges, at_most=MAX_MERGES, what="transfer")
        self.parts = check_count(self.name, "parts", parts, at_least=2, at_most=MAX_PARTS, what="transfer")
        self.targets: tuple[str, ...] = ()
        self.sources: tuple[str, ...] = ()
        self._settings: Training | None = None  # of the phase that forks
        self._num_updates = 0  # that it would have without rounds
        self._is_forking = False  # whether the present phase does
        self._part_of: dict[str, np.ndarray] = {}  # by target: the part of each of its examples
        self._facts: Facts = {}

    @property
    def branch_names(self) -> list[str]:
        """Of each branch its source; of the first one, which has none, the targets."""
        return [", ".join(self.targets), *self.sources]

    @property
    def _num_branches(self) -> int:
        """Of all copies in all rounds."""
        return self.merges * self.parts * len(self.branch_names)

    # --- before training ---

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """Fork where targets and sources train together, in rounds of equal length."""
        self.targets, self.sources = plan.targets, plan.sources
        planned: list[Phase] = []
        trained_heads: set[str] = set()  # of tasks that an earlier phase has had
        for phase in phases:
            forks = bool(set(phase.tasks) & set(plan.targets)) and bool(set(phase.tasks) & set(plan.sources))
            if forks:
                self._settings = self._in_rounds(plan, phase)
                phase = replace(phase, settings=self._settings)
                if self._settings.head not in SOLVED_HEADS and not trained_heads.isdisjoint(plan.targets):
                    phase = replace(phase, reset_heads=plan.targets)
            trained_heads.update(phase.tasks_with_batches)
            planned.append(replace(phase, begin=partial(self._begin_phase, phase.begin, forks)))
        if self._settings is None:
            raise CrossTaskError(
                f"{WHERE} forks a model that trains on target and sources together: use the paradigm 'joint' or "
                "'normalized-joint', with at least one source."
            )
        return planned

    def _in_rounds(self, plan: "Plan", phase: "Phase") -> "Training":
        """The settings of a phase with as many updates as equal rounds have, and an evaluation after each."""
        settings, weighting = phase.settings, phase.weighting
        if phase.solve is not None or weighting.inspects is not Need.NOTHING or weighting.held_out is not None:
            raise CrossTaskError(
                f"{WHERE} finds out by itself what a source counts: leave the weighting '{weighting.name}' out, or use "
                "'uniform', 'by-size' or 'fixed'."
            )
        if settings.schedule != "parallel":
            raise CrossTaskError(f"{WHERE} needs a batch of every task in each step: use `schedule: parallel`.")
        if settings.tasks_per_step is not None:
            raise CrossTaskError(f"{WHERE} trains one source at a time anyway: leave `tasks_per_step` out.")
        self._num_updates = settings.updates or plan.num_updates(phase.tasks)
        round_length = max(1, self._num_updates // self._num_branches) * self.parts * len(self.branch_names)
        return replace(settings, updates=self.merges * round_length, evaluate_every=round_length)

    def start(self, setup: Setup) -> None:
        """There must be an update for every branch, and an example for every part."""
        if self._num_updates < self._num_branches:  # not refused by a plan, which is made before sizes are known too
            raise CrossTaskError(
                f"{WHERE} shares the updates of a run among {self._num_branches} branches ({self.merges} merges, "
                f"{self.parts} parts, {len(self.branch_names)} branches each), but there are {self._num_updates}: give "
                "more `updates` or `epochs`, or fewer `merges` or `parts`."
            )
        for task in setup.tasks:
            num_inputs = len(DistinctInputs.of(task.train.inputs))
            if task.name in self.targets and num_inputs < self.parts:
                raise CrossTaskError(
                    f"{WHERE} holds out {self.parts} parts of the target '{task.name}', which has {num_inputs} "
                    "different inputs in its training examples: label some more, or lower `parts`."
                )

    def _begin_phase(self, begin: "Callable[[Model], None]", forks: bool, model: "Model") -> None:
        """Begin a phase as planned; before the first one that forks, make room for what is kept of the model."""
        begin(model)
        self._is_forking = forks
        self.is_ready = not forks  # a branch is never selected
        if forks and not self._buffers:
            shape = (self.parts, len(self.branch_names), num_entries(_learning(model)))
            self.register_buffer("copies", torch.zeros(shape[0], shape[2], device=model.device()))
            self.register_buffer("branches", torch.zeros(shape, device=model.device()))
            self.register_buffer("num_forks", torch.zeros((), dtype=torch.int64))  # on the host, which reads it

    # --- in training ---

    def before_step(self, moment: Moment) -> Step:
        """Begin a branch where it is time; the step has its tasks alone, and no example of the part held out."""
        if not self._is_forking:
            return moment.step
        # 1. The model of this branch.
        position, length = self._position(moment), self._length(moment)
        num_forks = moment.update // length + 1
        if int(self.num_forks) < num_forks:  # several steps may make one update
            self._fork(position, moment)
            self.num_forks.fill_(num_forks)
        # 2. Its learning rate: the updates that lead to it are those of one branch in each round.
        assert self._settings is not None
        update = position.round * length + position.update
        set_rates(moment.optimizer, self._settings.rate_factor(update, self.merges * length))
        # 3. Its examples.
        step: Step = {}
        for task, positions in moment.step.items():
            if task in self.targets:
                training = self._examples(task, moment, position.copy, held_out=False)
                # The positions say which examples others would train on, the same on all ranks.
                step[task] = np.random.default_rng(positions).permutation(training)[: len(positions)]
            elif position.branch and task == self.sources[position.branch - 1]:
                step[task] = positions
        return step

    def after_update(self, moment: Moment) -> None:
        """Keep a branch that has ended, and merge when all have."""
        if not self._is_forking:
            return
        position = self._position(moment)
        self.is_ready = False
        if position.update + 1 < self._length(moment):
            return
        self.branches[position.copy, position.branch] = _flat(moment.model)
        if position.copy + 1 == self.parts and position.branch + 1 == len(self.branch_names):
            self._merge(moment)

    def graph_key(self) -> Hashable | None:
        """No graph holds the optimizer of a branch: each has its own."""
        return None if self._is_forking else ()

    def facts(self) -> Facts:
        """The last merge, once: Lambda, and the held-out loss of each branch alone and of the merged model."""
        facts, self._facts = self._facts, {}
        return facts

    def _length(self, moment: Moment) -> int:
        """Updates of a branch."""
        return moment.num_updates // self._num_branches

    def _position(self, moment: Moment) -> BranchPosition:
        """Branches of a copy follow each other, then those of the next copy."""
        number, update = divmod(moment.update, self._length(moment))
        number, branch = divmod(number, len(self.branch_names))
        number, copy = divmod(number, self.parts)
        return BranchPosition(number, copy, branch, update)

    def _examples(self, target: str, moment: Moment, copy: int, *, held_out: bool) -> list[int]:
        """The training examples that are held out of a copy, or all others."""
        if target not in self._part_of:
            self._part_of[target] = moment.data[target].deal(self.parts)
        return np.flatnonzero((self._part_of[target] == copy) == held_out).tolist()

    def _fork(self, position: BranchPosition, moment: Moment) -> None:
        """Begin a branch from the parameters of its copy, with a new optimizer."""
        if moment.update == 0:
            self._start_copies(moment)
        _load(moment.model, self.copies[position.copy])
        moment.optimizer.state.clear()

    def _start_copies(self, moment: Moment) -> None:
        """All copies are the model as it is, but for heads that are probes: these have been fitted on all labels."""
        assert self._settings is not None
        for copy in range(self.parts):
            if self._settings.head in SOLVED_HEADS:
                for target in self.targets:
                    training = moment.data[target].take(self._examples(target, moment, copy, held_out=False))
                    if self._settings.head == "names":
                        probe = named_probe_of(moment.model, training).model
                    else:
                        probe = probe_of(moment.model, training)
                    fill_head(moment.model, target, probe)
            self.copies[copy] = _flat(moment.model)

    def _merge(self, moment: Moment) -> None:
        """Search for Lambda, merge the branches of every copy with it, and take the mean of the copies as the model."""
        model = moment.model
        # Each copy's part, and what a mean over its examples counts in the mean over all of the target's.
        held_out: list[list[tuple[Prepared, float]]] = []
        for copy in range(self.parts):
            held_out.append([])
            for target in self.targets:
                positions = self._examples(target, moment, copy, held_out=True)
                fraction = len(positions) / len(moment.data[target])
                held_out[copy].append((moment.data[target].take(positions), fraction))
        losses: list[float] = []

        def loss(weights: Tensor) -> float:
            total = 0.0
            for copy, parts in enumerate(held_out):
                _load(model, merge(self.branches[copy], weights))
                for part, fraction in parts:
                    total += fraction * evaluate(model, part)[1]
            losses.append(total)
            return total

        weights = search_weights(loss, len(self.branch_names))
        for copy in range(self.parts):
            self.copies[copy] = merge(self.branches[copy], weights)
        _load(model, self.copies.mean(0))
        self.is_ready = True
        self._facts = {
            "merge_weights": dict(zip(self.branch_names, weights.tolist(), strict=True)),
            "branch_losses": dict(zip(self.branch_names, losses, strict=False)),  # the first ones are of branches alone
            "merged_loss": min((value for value in losses if math.isfinite(value)), default=math.nan),
        }


def _learning(model: "Model") -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _flat(model: "Model") -> Tensor:
    """All parameters that learn, [entries]."""
    return parameters_to_vector(_learning(model)).detach()


@torch.no_grad()
def _load(model: "Model", entries: Tensor) -> None:
    """Put back what `_flat` returned, in place."""
    start = 0
    for parameter in _learning(model):
        parameter.copy_(entries[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()
