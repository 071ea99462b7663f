"""AdapterFusion: the target learns, position by position, an attention over the adapters of all tasks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError, unknown
from crosstask.models.hooks import ByTask, PlainParts
from crosstask.papers import ADAPTER_FUSION, Paper
from crosstask.transfer.adapters import REFUSES_OTHERS, AdapterInsert, AdapterShape, one_per_layer
from crosstask.transfer.base import Ability, Facts, Pass, Setup, Terms, Transfer, WholeModel
from crosstask.validation import Factor, check_value
from crosstask.weighting import validation as checks
from crosstask.weighting.static import Uniform

if TYPE_CHECKING:
    from crosstask.models.encoder import Representation
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

QUERY_SPREAD = 0.02
"""Standard deviation of the initial weights of queries and keys."""
VALUE_NOISE = 1e-6
"""Standard deviation of the initial value matrix beside its diagonal of ones."""


class Fusion(nn.Module):
    """Attention over the adapters of one layer (Pfeiffer et al. 2021, Sec. 3.2).

    - `Q`, `K`, `V`: `query`, `key`, `value`, without biases; as matrices left of a column vector.
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
        """The change to be added to the hidden state, [..., width], and the attention, [..., adapters].

        `changes` is what each adapter would add, [..., adapters, width].
        """
        scores = self.key(changes) @ self.query(hidden).unsqueeze(-1)  # [..., adapters, 1]
        attention = scores.squeeze(-1).softmax(-1)  # [..., adapters]
        return (attention.unsqueeze(-2) @ self.value(changes)).squeeze(-2), attention

    def distance(self) -> Tensor:
        """Squared Frobenius distance of the value matrix from the identity."""
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
        self.fusions = ByTask({target: one_per_layer(partial(Fusion, width), layers) for target in targets})
        self.is_fusing = True
        self.attention = AttentionMeans()

    def adapt(self, index: int, task: str, hidden: Tensor) -> Tensor:
        """A target's hidden states behind its fusion of this index; those of other tasks behind their own adapter."""
        if not (self.is_fusing and task in self.fusions.tasks):
            return super().adapt(index, task, hidden)
        all_changes = [self.adapters.layers_of(name)[index](hidden) for name in self.adapters.tasks]
        # [rows, length, adapters, width] -> [rows, length, width] and [rows, length, adapters]
        change, attention = self.fusions.layers_of(task)[index](hidden, torch.stack(all_changes, dim=-2))
        if not self.training:
            self.attention.add_layer(task, index, attention)
        return hidden + change

    def distances(self, target: str) -> list[Tensor]:
        """How far a target's value matrices are from the identity, layer by layer."""
        distances = []
        for fusion in self.fusions.layers_of(target):
            assert isinstance(fusion, Fusion)
            distances.append(fusion.distance())
        return distances

    def after(self, representation: "Representation", inputs: Mapping[str, Tensor]) -> "Representation":
        """The representation unchanged; the attention of this pass is added up, without padding."""
        assert representation.mask is not None
        self.attention.finish_pass(representation.mask, self.rows)
        return representation

    def learn(self, adapters: Collection[str], fusions: Collection[str], heads: Collection[str]) -> None:
        """Let the adapters, fusions and poolers of these tasks train, and no others.

        Targets are fused as soon as fusions train.
        """
        self.adapters.learn(adapters)
        self.fusions.learn(fusions)
        self.poolers.learn(heads)
        self.is_fusing = bool(fusions)

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The task's bottlenecks, pooler and fusions."""
        return [*super().parameters_of(task), *self.fusions.parameters_of(task)]

    def config(self) -> dict[str, Any]:
        """Tasks, targets, layers and sizes."""
        return {**super().config(), "targets": self.fusions.tasks}

    def for_task(self, model: "Model", task: str) -> Self:
        """A target needs its fusions and every adapter in them; another task its own adapters alone."""
        self._move_pooler(model, task)
        if task not in self.fusions.tasks:
            self.adapters = self.adapters.only(task)
        self.fusions, self.poolers = self.fusions.only(task), self.poolers.only(task)
        return self

    def plain_parts(self) -> PlainParts | None:
        """Adapters behind layers, and the attention over them."""
        if not self.fusions.tasks:
            return super().plain_parts()
        weights = self._adapter_weights()
        for layer, fusion in enumerate(self.fusions.layers_of(self.fusions.tasks[0])):
            for name, tensor in fusion.state_dict().items():
                weights[f"adapters.{layer}.{name}"] = tensor
        config = self._plain_config(len(self.adapters.tasks), fused=True)
        return PlainParts({"adapters": config}, weights)


class AttentionMeans:
    """Running means of the fusions' attention while the model is evaluated: by target, [layers, adapters]."""

    def __init__(self) -> None:
        self._pass: dict[str, dict[int, Tensor]] = {}
        self._sums: dict[str, np.ndarray] = {}
        self._counts: dict[str, int] = {}

    def add_layer(self, target: str, index: int, attention: Tensor) -> None:
        """Keep one layer's attention, [rows, length, adapters], until the pass is finished."""
        self._pass.setdefault(target, {})[index] = attention.detach()

    def finish_pass(self, mask: Tensor, rows: Mapping[str, slice]) -> None:
        """Add up the attention of a pass at positions that hold a token."""
        for target, layers in self._pass.items():
            tokens = mask[rows[target]]  # [rows, length]
            sums = np.stack([attention[tokens].double().sum(0).cpu().numpy() for attention in layers.values()])
            self._sums[target] = self._sums.get(target, 0.0) + sums
            self._counts[target] = self._counts.get(target, 0) + int(tokens.sum())
        self._pass = {}

    def take(self) -> dict[str, np.ndarray]:
        """The means since the last call."""
        means = {target: sums / max(self._counts[target], 1) for target, sums in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


class AdapterFusion(Transfer):
    """Every task trains adapters of its own; then the target learns an attention over them (Pfeiffer et al. 2021).

    First each task's adapters (see `adapters`) and head are trained, a phase per task, in a frozen encoder. Then, on
    the target alone, adapters are frozen too, and behind each layer l, for every position, an attention over them is
    learned, while the target's head goes on training:

        s = softmax_n((Q h) . (K z_n))         h <- h + sum_n s_n V z_n

    - `h`: the hidden state that the layer returns;
    - `z_n`: what the adapter of task n would add to it, `Bottleneck`;
    - `Q`, `K`, `V`: `Fusion.query`, `Fusion.key`, `Fusion.value`. V starts at the identity, with noise of size 1e-6
      beside its diagonal, and is kept close to it by the term `regularization * sum_l ||V_l - I||^2`.

    Args:
        fuse: names of the tasks whose adapters are fused; all when left out, including the target's own. A source that
            is not named takes no part.
        reduction: how many times narrower than the hidden states a bottleneck is.
        size: width of the bottleneck, instead of `reduction`.
        layers: numbers of the layers, from 1, that have adapters; all when left out.
        regularization: factor of the term that keeps V close to the identity. The paper says that V is regularized by
            its squared norm; its published code pulls V towards the identity with 0.01, and so do we.
        regularisation: the same as `regularization`.

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
    needs_whole_model = WholeModel.NEVER
    paper: ClassVar[Paper | None] = ADAPTER_FUSION
    provides = frozenset({Ability.ANY, Ability.FROZEN_ENCODER})
    excludes: ClassVar[Mapping[Ability, str]] = {Ability.ANY: REFUSES_OTHERS}

    def __init__(
        self,
        *,
        fuse: Sequence[str] | None = None,
        reduction: int = 16,
        size: int | None = None,
        layers: Sequence[int] | None = None,
        regularization: float = 0.01,
        regularisation: float | None = None,
    ) -> None:
        super().__init__()
        self.fuse: list[str] | None = None
        if fuse is not None:
            self.fuse = checks.check_task_names(self.name, "fuse", fuse, what="transfer")
        self.shape = AdapterShape(self.name, reduction, size, layers)
        option, self.regularization = "regularization", regularization
        if regularisation is not None:
            option, self.regularization = "regularisation", regularisation
        check_value(f"transfer '{self.name}'", option, Factor, self.regularization)
        self._inserts: tuple[FusionInsert, ...] = ()  # in a tuple, so no submodule: its parameters are the model's

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """A phase for the adapters of each task, and one for the fusion."""
        trained: set[str] = set()
        for phase in phases:
            trained.update(phase.tasks)
        tasks = [task for task in (*plan.targets, *plan.sources) if task in trained]
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
        # 1. A phase for the adapters of each task.
        planned = []
        for task in self._fused_tasks(tasks):
            phase = plan.phase(f"adapters of {task}", [task], Uniform, watched=[task])
            planned.append(replace(phase, begin=partial(_learn, adapters=[task], fusions=[], heads=[task])))
        # 2. A phase for the targets' fusions, with the settings of fine-tuning.
        settings = plan.settings
        finetune = replace(
            settings,
            epochs=settings.finetune_epochs or settings.epochs,
            learning_rate=settings.finetune_learning_rate or settings.learning_rate,
        )
        fusion = plan.phase("fusion", plan.targets, Uniform, watched=plan.targets, settings=finetune)
        begin = partial(_learn, adapters=[], fusions=plan.targets, heads=plan.targets)
        return [*planned, replace(fusion, begin=begin)]

    def start(self, setup: Setup) -> None:
        """Freeze the encoder and put adapters and fusions into it."""
        model = setup.model
        tasks = self._fused_tasks([task.name for task in setup.tasks])
        insert = FusionInsert(tasks, setup.targets, *self.shape.within(model.encoder))
        model.insert(insert)
        model.encoder.requires_grad_(False)
        self._inserts = (insert,)

    def _fused_tasks(self, tasks: Sequence[str]) -> list[str]:
        """Those of these tasks whose adapters are fused."""
        if self.fuse is None:
            return list(tasks)
        if not self.fuse:
            raise CrossTaskError(f"transfer '{self.name}': `fuse` names no task; leave it out for all of them.")
        for name in self.fuse:
            if name not in tasks:
                raise unknown(f"task in `fuse` of transfer '{self.name}':", name, tasks)
        return [task for task in tasks if task in self.fuse]

    def terms(self, forward: Pass) -> Terms:
        """The regularizer of the value matrices of this batch's targets."""
        insert = _fusion_of(forward.model)
        distances = []
        for task in forward.logits:
            if task in insert.fusions.tasks:
                distances += insert.distances(task)
        if not (insert.is_fusing and distances and self.regularization):
            return Terms()
        return Terms(unweighted=self.regularization * torch.stack(distances).sum())

    def facts(self) -> Facts:
        """The mean attention on each adapter, layer by layer, on the targets' dev sets since the last evaluation."""
        (insert,) = self._inserts
        attention: dict[str, dict[str, list[float]]] = {}
        for target, means in insert.attention.take().items():
            attention[target] = {}  # `means` is [layers, adapters]
            for index, task in enumerate(insert.adapters.tasks):
                attention[target][task] = [round(float(mean), 4) for mean in means[:, index]]
        return {"attention": attention} if attention else {}


def _fusion_of(model: "Model") -> FusionInsert:
    return next(insert for insert in model.inserts if isinstance(insert, FusionInsert))


def _learn(model: "Model", adapters: Collection[str], fusions: Collection[str], heads: Collection[str]) -> None:
    """Let these tasks' adapters, fusions and heads train, and nothing else."""
    model.encoder.requires_grad_(False)
    _fusion_of(model).learn(adapters, fusions, heads)
    for task in model.specs:
        model.head(task).requires_grad_(task in heads)
