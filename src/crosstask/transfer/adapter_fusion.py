"""AdapterFusion: the target learns, position by position, which tasks' adapters to listen to."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError, unknown
from crosstask.papers import ADAPTER_FUSION, Paper
from crosstask.transfer.adapters import REFUSES_OTHERS, AdapterInsert, AdapterShape, ByTask
from crosstask.transfer.base import ANY_TRANSFER, FROZEN_ENCODER, Pass, Setup, Terms, Transfer
from crosstask.weighting.static import Uniform

if TYPE_CHECKING:
    from crosstask.models.encoder import Representation
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

QUERY_SPREAD = 0.02
"""Standard deviation of the queries' and keys' first weights."""
VALUE_NOISE = 1e-6
"""Size of the value matrix beside its diagonal of ones at the start."""


class Fusion(nn.Module):
    """Attention over the adapters of one layer (Pfeiffer et al. 2021, Sec. 3.2).

    - `Q`, `K`, `V`: `query`, `key`, `value`, without biases; as matrices that stand left of a column.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            self.query.weight.normal_(std=QUERY_SPREAD)
            self.key.weight.normal_(std=QUERY_SPREAD)
            self.value.weight.normal_(std=VALUE_NOISE).fill_diagonal_(1.0)

    def forward(self, hidden: Tensor, changes: Tensor) -> tuple[Tensor, Tensor]:
        """What is to be added to the hidden state, [..., width], and how much of it is each adapter's, [..., adapters].

        `changes` is what each adapter would add, [..., adapters, width].
        """
        scores = self.key(changes) @ self.query(hidden).unsqueeze(-1)  # [..., adapters, 1]
        attention = scores.squeeze(-1).softmax(-1)
        return (attention.unsqueeze(-2) @ self.value(changes)).squeeze(-2), attention

    def distance(self) -> Tensor:
        """How far the value matrix has gone from the identity, squared."""
        identity = torch.eye(len(self.value.weight), device=self.value.weight.device)
        return (self.value.weight - identity).square().sum()


class FusionInsert(AdapterInsert):
    """Adapters in a model, and for each of `targets` a fusion of them behind each layer.

    While `is_fusing`, a target's rows go through its fusion; those of other tasks through their own adapters.
    """

    name: ClassVar[str] = "adapter-fusion"

    def __init__(
        self, tasks: Sequence[str], targets: Sequence[str], layers: Sequence[int], width: int, size: int
    ) -> None:
        super().__init__(tasks, layers, width, size)
        self.fusions = ByTask({target: nn.ModuleList(Fusion(width) for _ in layers) for target in targets})
        self.is_fusing = True
        self.looks = AttentionLooks()

    def adapt(self, place: int, task: str, hidden: Tensor) -> Tensor:
        """A target listens to all adapters, any other task to its own."""
        if not (self.is_fusing and task in self.fusions.tasks):
            return super().adapt(place, task, hidden)
        changes = torch.stack([self.adapters.of(name)[place](hidden) for name in self.adapters.tasks], dim=-2)
        change, attention = self.fusions.of(task)[place](hidden, changes)
        if not self.training:
            self.looks.at_layer(task, place, attention)
        return hidden + change

    def after(self, representation: "Representation", inputs: Mapping[str, Tensor]) -> "Representation":
        """Only a look: at what the fusions of this pass attended to, padding left out."""
        assert representation.mask is not None
        self.looks.finish(representation.mask, self.rows)
        return representation

    def learn(self, adapters: Collection[str], fusions: Collection[str], heads: Collection[str]) -> None:
        """Say whose parts learn; targets are fused from the moment that their fusions do."""
        self.adapters.learn(adapters)
        self.fusions.learn(fusions)
        self.poolers.learn(heads)
        self.is_fusing = bool(fusions)

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The task's bottlenecks, pooler and fusions."""
        return [*super().parameters_of(task), *self.fusions.parameters_of(task)]

    def config(self) -> dict[str, Any]:
        """Whose adapters, for whom, where, and how large."""
        return {**super().config(), "targets": self.fusions.tasks}

    def for_task(self, model: "Model", task: str) -> Self:
        """A target needs its fusions and every adapter in them; another task its own adapters alone."""
        if task not in self.fusions.tasks:
            self.adapters = self.adapters.only([task])
        self.fusions, self.poolers = self.fusions.only([task]), self.poolers.only([task])
        return self


class AttentionLooks:
    """Running means of what fusions attend to while the model is evaluated: by target, [layers, adapters]."""

    def __init__(self) -> None:
        self._pass: dict[str, dict[int, Tensor]] = {}
        self.sums: dict[str, np.ndarray] = {}
        self.counts: dict[str, int] = {}

    def at_layer(self, target: str, place: int, attention: Tensor) -> None:
        """Note one layer's attention, [rows, length, adapters]."""
        self._pass.setdefault(target, {})[place] = attention.detach()

    def finish(self, mask: Tensor, rows: Mapping[str, slice]) -> None:
        """Add up the layers of a pass, at positions that hold a token."""
        for target, layers in self._pass.items():
            tokens = mask[rows[target]]
            sums = np.stack([attention[tokens].double().sum(0).cpu().numpy() for attention in layers.values()])
            self.sums[target] = self.sums.get(target, 0.0) + sums
            self.counts[target] = self.counts.get(target, 0) + int(tokens.sum())
        self._pass = {}

    def take(self) -> dict[str, np.ndarray]:
        """The means since the last time."""
        means = {target: sums / max(self.counts[target], 1) for target, sums in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means


class AdapterFusion(Transfer):
    """Every task trains adapters of its own; then the target learns which of them to listen to (Pfeiffer et al. 2021).

    First each task's adapters (see `adapters`) and head are trained, a phase per task, in an encoder that stays as it
    is. Then, on the target alone, adapters stay as they are too, and behind each layer l, for every position, an
    attention over them is learned, with the target's head going on:

        s = softmax_n((Q h) . (K z_n))         h <- h + sum_n s_n V z_n

    - `h`: the hidden state that the layer hands on;
    - `z_n`: what the adapter of task n would add to it, `Bottleneck`;
    - `Q`, `K`, `V`: `Fusion.query`, `Fusion.key`, `Fusion.value`. V starts at the identity, with noise of size 1e-6
      beside its diagonal, and is held close to it by the term `regularisation * sum_l ||V_l - I||^2`.

    Args:
        fuse: names of the tasks whose adapters are fused; all when left out, the target's own among them. A source
            that is not named takes no part.
        reduction: how many times narrower than the hidden states a bottleneck is.
        size: width of the bottleneck, instead of `reduction`.
        layers: numbers of the layers, from 1, that have adapters; all when left out.
        regularisation: factor of the term that holds V close to the identity. The paper says that V is regularised by
            its squared norm; its published code pulls V towards the identity with 0.01, and so do we.

    Differs from the paper: adapters and fusion stand behind the layer, not before its last normalisation. The fusion
    goes on with the head that the target's adapters were trained with. The adapter's residual is added behind the
    fusion, as in the published code; within it only V would see a difference, for what all keys share drops out of the
    softmax. Both stages have one learning rate unless `finetune_learning_rate` gives the fusion its own.

    Costs: a phase of `epochs` (or `updates`) for every fused task alone, each chosen by its own dev set, and one of
    `finetune_epochs` (or `updates`) for the fusion. Per update that is one batch, where joint training takes one of
    every task: T tasks and one target see (T + 1) / T of the examples of a joint run with the same `updates`. The
    paradigm decides nothing but that there are sources; several targets are fused in one phase, each by itself.
    """

    name: ClassVar[str] = "adapter-fusion"
    summary: ClassVar[str] = "adapters for every task, then an attention over them that the target learns"
    paper: ClassVar[Paper | None] = ADAPTER_FUSION
    provides = frozenset({ANY_TRANSFER, FROZEN_ENCODER})
    excludes: ClassVar[Mapping[str, str]] = {ANY_TRANSFER: REFUSES_OTHERS}

    def __init__(
        self,
        *,
        fuse: Sequence[str] | None = None,
        reduction: int = 16,
        size: int | None = None,
        layers: Sequence[int] | None = None,
        regularisation: float = 0.01,
    ) -> None:
        super().__init__()
        self.fuse = None if fuse is None else list(dict.fromkeys(fuse))
        self.shape = AdapterShape(self.name, reduction, size, layers)
        if not regularisation >= 0.0:
            raise CrossTaskError(
                f"transfer '{self.name}': `regularisation` must be at least 0, found {regularisation}."
            )
        self.regularisation = regularisation
        self._inserted: tuple[FusionInsert, ...] = ()  # a tuple hides it: its parameters are the model's

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """A phase for the adapters of each task, and one for the fusion."""
        known = list(dict.fromkeys(task for phase in phases for task in phase.tasks))
        tasks = [task for task in (*plan.targets, *plan.sources) if task in known]
        if len(tasks) < 2:
            raise CrossTaskError(
                f"transfer '{self.name}' fuses the adapters of several tasks, but the paradigm trains on "
                f"'{tasks[0]}' alone: add a source task, or use another paradigm than 'single'."
            )
        if plan.weighting is not None:
            raise CrossTaskError(
                f"transfer '{self.name}' trains each task's adapters apart, so there is nothing for the weighting "
                f"'{plan.weighting.name}' to weigh: leave out `weighting`."
            )
        settings = plan.settings
        finetune = replace(
            settings,
            epochs=settings.finetune_epochs or settings.epochs,
            learning_rate=settings.finetune_learning_rate or settings.learning_rate,
        )
        adapting = [
            replace(
                plan.phase(f"adapters of {task}", [task], Uniform, watched=[task]),
                begin=partial(_learn, adapters=[task], fusions=[], heads=[task]),
            )
            for task in self._fused(tasks)
        ]
        fusing = replace(
            plan.phase("fusion", plan.targets, Uniform, watched=plan.targets, settings=finetune),
            begin=partial(_learn, adapters=[], fusions=plan.targets, heads=plan.targets),
        )
        return [*adapting, fusing]

    def start(self, setup: Setup) -> None:
        """Freeze the encoder and put adapters and fusions into it."""
        model = setup.model
        fused = self._fused([task.name for task in setup.tasks])
        insert = FusionInsert(fused, setup.targets, *self.shape.within(model.encoder))
        model.insert(insert)
        model.encoder.requires_grad_(False)
        self._inserted = (insert,)

    def _fused(self, tasks: Sequence[str]) -> list[str]:
        if self.fuse is None:
            return list(tasks)
        if not self.fuse:
            raise CrossTaskError(f"transfer '{self.name}': `fuse` names no task; leave it out for all of them.")
        for name in self.fuse:
            if name not in tasks:
                raise unknown(f"task in `fuse` of transfer '{self.name}':", name, tasks)
        return [task for task in tasks if task in self.fuse]

    def terms(self, forward: Pass) -> Terms:
        """What holds the value matrices of this batch's targets close to the identity."""
        insert = _fusion_of(forward.model)
        targets = [task for task in forward.logits if task in insert.fusions.tasks]
        if not (insert.is_fusing and targets and self.regularisation):
            return Terms()
        distances = [fusion.distance() for target in targets for fusion in insert.fusions.of(target)]
        return Terms(unweighted=self.regularisation * torch.stack(distances).sum())

    def facts(self) -> dict[str, Any]:
        """How much of the fusion was each adapter's, layer by layer, at the last look at the targets' dev sets."""
        (insert,) = self._inserted
        means = insert.looks.take()
        if not means:
            return {}
        return {
            "attention": {
                target: {
                    task: [round(float(share), 4) for share in mean[:, place]]
                    for place, task in enumerate(insert.adapters.tasks)
                }
                for target, mean in means.items()
            }
        }


def _fusion_of(model: "Model") -> FusionInsert:
    return next(insert for insert in model.inserts if isinstance(insert, FusionInsert))


def _learn(model: "Model", adapters: Collection[str], fusions: Collection[str], heads: Collection[str]) -> None:
    """Let these tasks' adapters, fusions and heads learn, and nothing else."""
    model.encoder.requires_grad_(False)
    _fusion_of(model).learn(adapters, fusions, heads)
    for task in model.specs:
        model.head(task).requires_grad_(task in heads)
