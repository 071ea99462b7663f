"""An encoder for each source by itself, merged with weights that the target's labels choose; then a head for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from crosstask.errors import CrossTaskError
from crosstask.gradients.task_gradients import num_entries
from crosstask.models.batches import Prepared, Step
from crosstask.papers import LORAHUB, Paper
from crosstask.probing.features import collect
from crosstask.probing.heads import place_heads
from crosstask.probing.linear_models import choose_penalty, penalty_grid
from crosstask.probing.probe import MAX_CHOICE_UNITS, SolverSession
from crosstask.runs.events import TransferFacts
from crosstask.transfer.base import Ability, Facts, Moment, Setup, Transfer
from crosstask.transfer.forkmerge import merge, search_weights
from crosstask.weighting.static import Uniform
from crosstask.weighting.validation import check_choice

if TYPE_CHECKING:
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

Rule = Literal["learned", "uniform"]
End = Literal["target", "head"]
WHERE = "transfer 'merging'"
NO_SOURCE = "no source"
"""Name of the encoder as it was, beside those of the sources."""
MAX_DIRECTIONS = 12
"""Encoders that the search goes toward at most, the best ones: with many sources most have nothing to add."""
PENALTIES = slice(1, None, 2)
"""Of the grid of inverse penalties those that judge a merge."""


class Merging(Transfer):
    """Each source trains an encoder by itself; their mean, weighted by the target's labels, is where the target begins.

    From the same parameters theta_0, each source s is trained alone to theta_s. The encoder of the target is

        theta = theta_0 + sum_s lambda_s (theta_s - theta_0),        lambda_s >= 0,  sum_s lambda_s <= 1,

    in task arithmetic (Ilharco et al. 2023), a sum of the sources' task vectors. With `lora: true` these are parameters
    of low-rank updates, so that theta is the module of LoraHub (Huang et al. 2024), `(sum_s lambda_s A_s)
    (sum_s lambda_s B_s)` where the lambda add up to one and beside the first A where they do not.

    - theta: the parameters of the encoder that learn; lambda: `weights`.

    The weights are those with the least cross-validated loss of a linear probe on the merged encoder's features of the
    target's labels: heads are out of line after a merge, and the features are not (Kong et al. 2024), so that a merge
    is judged, and used, with a head of its own. No gradient is taken. The search begins at the best of theta_0, each
    theta_s and their mean, and goes from there toward one after the other (`search_weights`).

    In the code: theta is `forkmerge.merge`, the search is `merge_weights`, what is judged is `probe_loss`.

    Args:
        weights: "learned", or "uniform", the mean of all sources' encoders, which did as well in few shots in Asadi et
            al. (2024).
        then: "target": the phases that follow go on from the merged encoder, with the head that a solver has fitted to
            it; or "head", as in the papers: that head is all that the target's labels train.

    Differs from the papers: weights are on the simplex, and not of any sign; the loss is cross-validated with heads of
    its own, where LoraHub takes that of the few examples at hand; line searches instead of an evolution strategy.

    Needs a phase of sources alone: `pretrain`, or `sources_first` in joint training. Its updates are shared evenly, so
    that all together cost what they cost without this transfer. Then the target's examples are read once for each
    source and some four times more for each of the best. Memory, and checkpoints, hold a copy of the parameters that
    learn for each source: with many sources use `lora`.

    >>> probe_losses = {(1.0, 0.0, 0.0): 0.9, (0.0, 1.0, 0.0): 0.5, (0.0, 0.0, 1.0): 0.7}
    >>> merge_weights(lambda weights: probe_losses.get(tuple(weights.tolist()), 0.8), num_sources=2).tolist()
    [0.0, 1.0, 0.0]
    """

    name: ClassVar[str] = "merging"
    summary: ClassVar[str] = "an encoder for each source by itself, merged with weights by the target's labels"
    paper: ClassVar[Paper | None] = LORAHUB
    excludes: ClassVar[Mapping[Ability, str]] = {
        Ability.ANY: "transfer '{name}' trains each source by itself, without what '{other}' learns beside: use one."
    }
    start_parameters: Tensor
    source_parameters: Tensor
    num_started: Tensor

    def __init__(self, *, weights: Rule = "learned", then: End = "target") -> None:
        super().__init__()
        check_choice(self.name, "weights", weights, get_args(Rule), what="transfer")
        check_choice(self.name, "then", then, get_args(End), what="transfer")
        self.weights = weights
        self.then = then
        self.sources: tuple[str, ...] = ()
        self.targets: tuple[str, ...] = ()
        self._source: int | None = None  # that the present phase trains

    # --- before training ---

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """In the place of the sources together, a phase for each, the merge, and a head for the target."""
        self.sources, self.targets = plan.sources, plan.targets
        if plan.weighting is not None:
            raise CrossTaskError(
                f"{WHERE} trains every source by itself, so that the weighting '{plan.weighting.name}' has nothing to "
                "weigh: leave it out."
            )
        planned: list[Phase] = []
        has_merged = False
        for phase in phases:
            if self._is_of_sources(phase):
                planned += [*self._source_phases(plan, phase), self._merge_phase(plan)]
                if plan.settings.head not in ("probe", "names"):  # which plan a solver themselves
                    planned += plan.probe_phases()
                has_merged = True
            elif not has_merged or phase.solve is not None or self.then == "target":
                planned.append(replace(phase, begin=partial(self._begin, None, phase.begin)))
        if not has_merged:
            raise CrossTaskError(
                f"{WHERE} merges encoders that sources train alone, and here is no such phase: use the paradigm "
                "'pretrain' with at least one source, or `sources_first` in joint training."
            )
        return planned

    def _is_of_sources(self, phase: "Phase") -> bool:
        """Whether a phase trains the sources, and them alone, step by step."""
        is_trained = phase.solve is None and phase.objective is None
        return is_trained and bool(phase.tasks) and set(phase.tasks) <= set(self.sources)

    def _source_phases(self, plan: "Plan", phase: "Phase") -> "list[Phase]":
        """A phase for each source; together they have the updates of the one that they replace."""
        num_updates = phase.settings.updates or plan.num_updates(phase.tasks)
        settings = replace(phase.settings, updates=max(1, num_updates // len(self.sources)), patience=None)
        phases: list[Phase] = []
        for number, source in enumerate(self.sources):
            alone = plan.phase(f"source {source}", (source,), Uniform, watched=(), settings=settings)
            phases.append(replace(alone, begin=partial(self._begin, number, alone.begin)))
        return phases

    def _merge_phase(self, plan: "Plan") -> "Phase":
        phase = plan.phase("merging", self.targets, Uniform, watched=self.targets)
        begin = partial(place_heads, targets=self.targets, sources=())
        return replace(phase, begin=partial(self._begin, None, begin), solve=self._merge)

    def start(self, setup: Setup) -> None:
        """Something of the encoder must learn."""
        if not setup.model.shared_parameters():
            raise CrossTaskError(
                f"{WHERE} merges what sources have made of the encoder, and nothing of this one learns: leave "
                "`freeze: true` out, set `hidden` beside it, or use the paradigm 'stacking'."
            )

    def _begin(self, source: int | None, begin: "Callable[[Model], None]", model: "Model") -> None:
        """Begin a phase as planned; before the first one, make room for what each source makes of the encoder."""
        begin(model)
        self._source = source
        if not self._buffers:
            size = num_entries(model.shared_parameters())
            self.register_buffer("start_parameters", _flat(model))
            self.register_buffer("source_parameters", torch.zeros(len(self.sources), size, device=model.device()))
            self.register_buffer("num_started", torch.zeros((), dtype=torch.int64))  # on the host, which reads it

    # --- in training ---

    def before_step(self, moment: Moment) -> Step:
        """Each source starts from the encoder as it was."""
        if self._source is not None and int(self.num_started) <= self._source:
            _load(moment.model, self.start_parameters)
            self.num_started.fill_(self._source + 1)
        return moment.step

    def after_update(self, moment: Moment) -> None:
        """Keep the encoder of a source that has been trained."""
        if self._source is not None and moment.update + 1 == moment.num_updates:
            self.source_parameters[self._source] = _flat(moment.model)

    def _merge(self, session: SolverSession) -> None:
        """Find the weights, and merge."""
        model = session.model
        encoders = torch.cat([self.start_parameters[None], self.source_parameters])  # [1 + sources, entries]
        losses: dict[tuple[float, ...], float] = {}

        def loss(weights: Tensor) -> float:
            key = tuple(weights.tolist())
            if key not in losses:
                _load(model, merge(encoders, weights))
                losses[key] = sum(probe_loss(model, session.train[target], session.seed) for target in self.targets)
            return losses[key]

        num_sources = len(self.sources)
        weights = torch.tensor([0.0, *[1.0 / num_sources] * num_sources], dtype=torch.float64)
        if self.weights == "learned":
            weights = merge_weights(loss, num_sources)
        _load(model, merge(encoders, weights))
        names = [NO_SOURCE, *self.sources]
        facts: Facts = {"merge_weights": dict(zip(names, weights.tolist(), strict=True))}
        if losses:
            alone = torch.eye(1 + num_sources, dtype=torch.float64)
            facts["branch_losses"] = {name: loss(row) for name, row in zip(names, alone, strict=True)}
            facts["merged_loss"] = loss(weights)
            _load(model, merge(encoders, weights))
        session.write(TransferFacts(self.name, "merging", 0, facts))
        session.advance()


def merge_weights(loss: Callable[[Tensor], float], num_sources: int) -> Tensor:
    """Weights of the encoder as it was and of each source's, [1 + sources], on the simplex.

    Args:
        loss: of an encoder that is merged with some weights; one that is not finite is the worst.
        num_sources: how many there are.
    """
    alone = torch.eye(1 + num_sources, dtype=torch.float64)
    points = list(alone)
    if num_sources > 1:
        points.append(torch.tensor([0.0, *[1.0 / num_sources] * num_sources], dtype=torch.float64))
    losses = [loss(point) for point in points]
    order = sorted(range(len(points)), key=lambda number: losses[number] if math.isfinite(losses[number]) else math.inf)
    directions = torch.stack([points[number] for number in order[: MAX_DIRECTIONS + 1]])
    # Of the best ones, so that what is searched is how much of each: also a point on the simplex.
    shares = search_weights(lambda shares: loss(shares @ directions), len(directions))
    return shares @ directions


def probe_loss(model: "Model", target: Prepared, seed: int) -> float:
    """How well a linear probe does on labels that it was not fitted to: cross-validated, at the best penalty."""
    units = collect(model, target).sample(MAX_CHOICE_UNITS, np.random.default_rng(seed))
    _, result = choose_penalty(units, penalty_grid(units.features.shape[1])[PENALTIES], seed=seed)
    return result.loss


def _flat(model: "Model") -> Tensor:
    """The encoder's parameters that learn, [entries]."""
    return parameters_to_vector(model.shared_parameters()).detach().clone()


@torch.no_grad()
def _load(model: "Model", entries: Tensor) -> None:
    """Put back what `_flat` returned, in place."""
    start = 0
    for parameter in model.shared_parameters():
        parameter.copy_(entries[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()
