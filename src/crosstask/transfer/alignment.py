"""Covariance alignment: a matrix per task between its embeddings and the shared module."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.subsets import random_subset
from crosstask.errors import CrossTaskError
from crosstask.gradients.covariance import covariance, similarity_of_covariances
from crosstask.models.batches import Prepared, Step, in_batches, make_batch
from crosstask.models.evaluate import PREDICTION_BATCH
from crosstask.models.hooks import Insert
from crosstask.papers import INFORMATION_TRANSFER, Paper
from crosstask.transfer.base import Moment, Setup, Transfer
from crosstask.validation import check_values

if TYPE_CHECKING:
    from crosstask.data.task import Task
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

WHERE = "transfer 'alignment'"


class AlignmentMatrices(Insert):
    """Multiplies each task's hidden states at one place by the task's own matrix; tasks without one pass unchanged.

    The matrix of a task is `R_t = I + rate * offsets[t]`: so it begins as the identity to the last bit, and weight
    decay draws it back to the identity instead of to zero. Adam's steps do not depend on how long a gradient is, so
    that the factor is that of the matrix' learning rate.

    Args:
        layer: number of the place among the encoder's sites.
        width: size of the hidden states there.
        tasks: names of the tasks that have a matrix.
        rate: the factor; 1 for matrices that were saved before there was one.
    """

    name: ClassVar[str] = "alignment"

    def __init__(self, *, layer: int, width: int, tasks: Sequence[str], rate: float = 1.0) -> None:
        super().__init__()
        self.layer = layer
        self.width = width
        self.tasks = list(tasks)
        self.rate = rate
        # A list, not a dictionary of parameters: task names are people's and may hold any character.
        self.offsets = nn.ParameterList(torch.zeros(width, width) for _ in self.tasks)
        self.seen: list[Tensor] | None = None

    def attach(self, model: "Model") -> None:
        """Take the place in the encoder."""
        site = model.encoder.site(self.layer, WHERE)
        if site.width != self.width:
            raise CrossTaskError(
                f"{WHERE}: the matrices are for vectors of {self.width} numbers, but those of the encoder "
                f"'{model.encoder.name}' at layer {self.layer} have {site.width}. They belong to another encoder."
            )
        site.change(self.align)

    def align(self, values: Tensor) -> Tensor:
        """Each task's rows times its matrix, [batch, ..., width]; a list in `seen` is given what comes in."""
        if self.seen is not None:
            self.seen.append(values.detach())
        return self.by_task(values, self._align_task)

    def _align_task(self, task: str, values: Tensor) -> Tensor:
        if task not in self.tasks:
            return values
        return values + self.rate * (values @ self._offset(task)).to(values.dtype)

    def _offset(self, task: str) -> nn.Parameter:
        return self.offsets[self.tasks.index(task)]

    def matrix(self, task: str) -> Tensor:
        """R_t, [width, width]; the identity for a task without one of its own."""
        identity = torch.eye(self.width, device=next(iter(self.offsets)).device)
        return identity + self.rate * self._offset(task).detach() if task in self.tasks else identity

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The task's matrix."""
        return [self._offset(task)] if task in self.tasks else []

    def config(self) -> dict[str, Any]:
        """Place, width, names and factor."""
        return {"layer": self.layer, "width": self.width, "tasks": self.tasks, "rate": self.rate}

    def for_task(self, model: "Model", task: str) -> "Insert | None":
        """Nothing, where a linear map next to the place takes the matrix up; else the task's matrix alone."""
        if task not in self.tasks or model.encoder.fold_input(self.matrix(task), model.head(task)):
            return None
        self.offsets = nn.ParameterList([self._offset(task)])
        self.tasks = [task]
        return self

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for number in range(len(self.tasks)):
            found = state.get(f"{prefix}offsets.{number}")
            if found is not None and found.shape != (self.width, self.width):
                raise CrossTaskError(
                    f"{WHERE}: expected a matrix of {self.width} x {self.width} numbers for the task "
                    f"'{self.tasks[number]}', found one of shape {tuple(found.shape)}. It belongs to another encoder."
                )
        super()._load_from_state_dict(state, prefix, *rest)


class Alignment(Transfer):
    """A matrix per task turns its embeddings so that their covariance suits the shared module.

    Algorithm 1 of Wu, Zhang & Ré (2020): tasks whose inputs spread in other directions disturb each other in a shared
    module, however alike what they have to learn.

        min  sum_t  L(g(E_t R_t B) A_t, y_t)

    - `E_t`: embeddings of task t, what passes the encoder's site number `layer`;
    - `R_t`: `matrix(t)` of the insert `AlignmentMatrices`, [width, width], the identity at the start;
    - `B`, `g`: the rest of the encoder, which all tasks share;
    - `A_t`: `model.head(t)`.

    What is recorded: the covariance similarity score (eq. 6, `gradients.covariance`) of every source with every target,
    now (`similarity`), and with the same embeddings but R = I (`similarity_before`). An example is one row, as in the
    paper; where it has a vector per token, that is their mean.

    Args:
        layer: where: 0 is what enters the shared part (word vectors, numeric vectors, frozen features, the first layer
            of a transformer), n is behind a transformer's layer n.
        tasks: which tasks have a matrix: "all", or the "target" alone, as the paper does it for transfer learning;
            with the paradigm `pretrain` that matrix then learns in fine-tuning.
        shared: "train", or "freeze": the encoder stays as it is in every phase that trains a target, as with BERT in
            the paper; sources still train it in the first phase of `pretrain`.
        rate: learning rate of the matrices in units of the model's. A matrix has width squared entries that all push
            the same way: at the model's own rate a few updates turn it inside out, and little is shared any more.
        warmup: share of all updates in which the matrices stay the identity. With `shared="freeze"` the shared module
            learns until then and is fixed from there on: Algorithm 1 on the module that joint training has made.
        steps: "along", all parameters in every update; or "alternate": the heads, the matrices and the shared module
            take turns, one kind an update.
        measured: examples of each task whose embeddings tell the similarity; 0 for no score.

    Differs from the paper: Algorithm 1 alternates over A and R with B fixed (`steps="alternate", shared="freeze"`) and
    leaves open whether B learns too, and how fast R does; by default here everything learns at once. Weight decay draws
    R to the identity. In the exported model of a task nothing is left of R wherever a weight next to it can take it up
    exactly: word vectors, numeric vectors, frozen features that go into a linear layer.

    Costs a product with a [width, width] matrix per token, and a pass over `measured` examples of each task at every
    look at the dev set.
    """

    name: ClassVar[str] = "alignment"
    summary: ClassVar[str] = "a matrix per task that brings the covariance of its embeddings in line with the others'"
    paper: ClassVar[Paper | None] = INFORMATION_TRANSFER

    def __init__(
        self,
        *,
        layer: int = 0,
        tasks: Literal["all", "target"] = "all",
        shared: Literal["train", "freeze"] = "train",
        rate: float = 0.1,
        warmup: float = 0.0,
        steps: Literal["along", "alternate"] = "along",
        measured: int = 1000,
    ) -> None:
        super().__init__()
        given = {"layer": layer, "tasks": tasks, "shared": shared, "steps": steps, "measured": measured}
        check_values(WHERE, type(self), {**given, "rate": rate, "warmup": warmup})
        if rate <= 0.0:
            raise CrossTaskError(f"{WHERE}: `rate` must be above 0, found {rate}.")
        if not 0.0 <= warmup < 1.0:
            raise CrossTaskError(f"{WHERE}: `warmup` must be a share of all updates below 1, found {warmup}.")
        if measured < 0:
            raise CrossTaskError(f"{WHERE}: `measured` must be at least 0, found {measured}.")
        self.layer = layer
        self.tasks = tasks
        self.shared = shared
        self.rate = rate
        self.warmup = warmup
        self.steps = steps
        self.measured = measured
        self._bound: _Bound | None = None
        self._is_warm = not warmup
        self._has_target = True

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """The same phases; where asked for, the encoder is fixed in those that train a target."""
        taking_part = {task for phase in phases for task in phase.tasks}
        if len(taking_part) < 2:
            raise CrossTaskError(
                f"{WHERE} brings tasks in line with each other, but only '{next(iter(taking_part))}' is trained. "
                "Take another paradigm than 'single', or leave the alignment out."
            )
        if self.shared == "train" or self.warmup:
            return list(phases)
        return [replace(phase, begin=_Begin(self, phase, set(plan.targets) & set(phase.tasks))) for phase in phases]

    def start(self, setup: Setup) -> None:
        """Put matrices that are the identity into the model, and keep examples of each task to measure with."""
        model, tasks = setup.model, setup.tasks
        width = model.encoder.site(self.layer, WHERE).width
        names = [task.name for task in tasks if self.tasks == "all" or task.name in setup.targets]
        insert = AlignmentMatrices(layer=self.layer, width=width, tasks=names, rate=self.rate)
        learning = model.shared_parameters()
        model.insert(insert)
        samples = {task.name: _sample(model, task, self.measured) for task in tasks} if self.measured else {}
        self._bound = _Bound(model, insert, learning, samples, tuple(setup.targets))

    def before_step(self, moment: Moment) -> Step:
        """See whether the matrices learn by now, and whether this phase (it has a weight per task) fixes the rest."""
        self._is_warm = moment.update >= self.warmup * moment.num_updates
        self._has_target = self._bound is not None and any(task in moment.weights for task in self._bound.targets)
        return moment.step

    def after_backward(self, model: "Model", update: int) -> None:
        """Drop the gradients of what has no turn: matrices before the end of the warm-up, a fixed module behind it.

        With alternating steps, those of one kind of parameters alone are kept: heads, matrices, shared.
        """
        if self._bound is None:
            return
        if not self._is_warm:
            _drop_gradients(self._bound.insert.parameters())
        elif self.warmup and self.shared == "freeze" and self._has_target:
            _drop_gradients(self._bound.learning)
        if self.steps == "along":
            return
        kinds = [list(model.heads.parameters()), list(self._bound.insert.parameters()), model.shared_parameters()]
        # A kind that this update does not reach, such as the matrix of a task that is not part of it, has no turn.
        reached = [kind for kind in kinds if any(parameter.grad is not None for parameter in kind)]
        for number, kind in enumerate(reached):
            if number != update % len(reached):
                _drop_gradients(kind)

    def facts(self) -> dict[str, Any]:
        """Scores of every source with every target, by the target's name and then the source's."""
        if self._bound is None or len(self._bound.samples) < 2:
            return {}
        return self._bound.similarities()


def _drop_gradients(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None


@dataclass(frozen=True, eq=False)
class _Begin:
    """The beginning of a phase: whatever it was, and the encoder fixed if the phase trains a target."""

    alignment: Alignment
    phase: "Phase"
    targets: set[str]

    def __call__(self, model: "Model") -> None:
        bound = self.alignment._bound
        learning = bound.learning if bound is not None else []
        for parameter in learning:
            parameter.requires_grad_(True)
        self.phase.begin(model)
        if self.targets:
            for parameter in learning:
                parameter.requires_grad_(False)


@dataclass(frozen=True, eq=False)
class _Bound:
    """What a run has made of an alignment: the insert, the encoder's parameters that learn, examples to measure with.

    Kept apart from the transfer's own modules: all of it belongs to the model.
    """

    model: "Model"
    insert: AlignmentMatrices
    learning: list[nn.Parameter]
    samples: dict[str, Prepared]
    targets: tuple[str, ...]

    @torch.no_grad()
    def similarities(self) -> dict[str, Any]:
        before, now = {}, {}
        for task, sample in self.samples.items():
            before[task] = _covariance_of(self.model, self.insert, sample)
            matrix = self.insert.matrix(task).double()
            now[task] = matrix.T @ before[task] @ matrix  # (E R)' (E R)
        return {"similarity": self._scores(now), "similarity_before": self._scores(before)}

    def _scores(self, covariances: Mapping[str, Tensor]) -> dict[str, dict[str, float]]:
        return {
            target: {
                source: similarity_of_covariances(covariances[source], covariances[target])
                for source in covariances
                if source != target
            }
            for target in self.targets
        }


def _sample(model: "Model", task: "Task", limit: int) -> Prepared:
    chosen = random_subset(len(task.train), min(limit, len(task.train)), np.random.default_rng(0))
    return Prepared.of(model.encoder, task.spec, task.train.take(chosen))


def _covariance_of(model: "Model", insert: AlignmentMatrices, sample: Prepared) -> Tensor:
    """`E' E` of a task's embeddings as they reach its matrix, [width, width]."""
    total = torch.zeros(insert.width, insert.width, dtype=torch.float64, device=model.device())
    was_training = model.training
    model.eval()
    task = sample.spec.name
    for positions in in_batches(sample.lengths(), PREDICTION_BATCH):
        seen: list[Tensor] = []
        insert.seen = seen
        batch = make_batch(model.encoder, {task: sample}, {task: positions}).to(model.device())
        model.encode(batch.inputs, batch.rows)
        total += covariance(_one_row_each(seen, batch.inputs))
    insert.seen = None
    model.train(was_training)
    return total


def _one_row_each(seen: Sequence[Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
    """A row per example, [batch, width], of all that passed in one pass: the last, or the mean over its tokens."""
    values = seen[-1]  # frozen features pass token by token first, then one per text where the head reads that
    if values.dim() == 2:
        return values
    mask = next(inputs[key] for key in ("mask", "attention_mask") if key in inputs).unsqueeze(-1).to(values.dtype)
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)
