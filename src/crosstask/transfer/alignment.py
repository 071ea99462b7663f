"""Covariance alignment: a matrix per task between its embeddings and the shared module."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from crosstask.data.subsets import random_subset
from crosstask.errors import CrossTaskError
from crosstask.gradients.covariance import covariance, similarity_of_covariances
from crosstask.limits import MAX_COUNT
from crosstask.models.batches import Prepared, Step, in_batches, make_batch
from crosstask.models.evaluate import PREDICTION_BATCH
from crosstask.models.hooks import Insert, PlainParts
from crosstask.papers import INFORMATION_TRANSFER, Paper
from crosstask.transfer.base import Facts, Moment, Setup, Transfer, WholeModel
from crosstask.validation import Rate, check_values

if TYPE_CHECKING:
    from crosstask.data.task import Task
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase

WHERE = "transfer 'alignment'"


class AlignmentMatrices(Insert):
    """Multiplies each task's hidden states at one site by the task's own matrix; tasks without one pass unchanged.

    The matrix of a task is `R_t = I + rate * offsets[t]`: so it starts as the identity to the last bit, and weight
    decay pulls it to the identity instead of to zero. Adam's steps do not depend on the norm of a gradient, so that the
    factor acts as a factor of the matrix's learning rate.

    Args:
        layer: index of the site among the encoder's sites.
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
        # A list, not a dictionary of parameters: task names are the user's and may hold any character.
        self.offsets = nn.ParameterList(torch.zeros(width, width) for _ in self.tasks)
        self.inputs: list[Tensor] | None = None
        self._hook: RemovableHandle | None = None

    def attach(self, model: "Model") -> None:
        """Multiply at the site of the encoder."""
        site = model.encoder.site(self.layer, WHERE)
        if site.width != self.width:
            raise CrossTaskError(
                f"{WHERE}: the matrices are for vectors of {self.width} numbers, but those of the encoder "
                f"'{model.encoder.name}' at layer {self.layer} have {site.width}. They belong to another encoder."
            )
        self._hook = site.change(self.align)

    def align(self, values: Tensor) -> Tensor:
        """Each task's rows times its matrix, [batch, ..., width]; `inputs`, if it is a list, collects what comes in."""
        if self.inputs is not None:
            self.inputs.append(values.detach())
        return self.by_task(values, self._align_task)

    def _align_task(self, task: str, values: Tensor) -> Tensor:
        if task not in self.tasks:
            return values
        return values + self.rate * (values @ self._offset(task)).to(values.dtype)  # x R = x + rate * x offset

    def _offset(self, task: str) -> nn.Parameter:
        return self.offsets[self.tasks.index(task)]

    def matrix(self, task: str) -> Tensor:
        """R_t, [width, width]; the identity for a task without one of its own."""
        identity = torch.eye(self.width, device=next(iter(self.offsets)).device)
        if task not in self.tasks:
            return identity
        return identity + self.rate * self._offset(task).detach()

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """The task's matrix."""
        return [self._offset(task)] if task in self.tasks else []

    def config(self) -> dict[str, Any]:
        """Layer, width, tasks and factor."""
        return {"layer": self.layer, "width": self.width, "tasks": self.tasks, "rate": self.rate}

    def for_task(self, model: "Model", task: str) -> "Insert | None":
        """Nothing, where the weights next to the site can absorb the matrix; else the task's matrix alone."""
        if task not in self.tasks or model.encoder.fold_input(self.matrix(task), model.head(task)):
            if self._hook is not None:
                self._hook.remove()
            return None
        self.offsets = nn.ParameterList([self._offset(task)])
        self.tasks = [task]
        self.layer = self.layer or model.encoder.num_frozen_layers  # the same site, by its number in the whole encoder
        return self

    def plain_parts(self) -> PlainParts | None:
        """A linear layer at its site."""
        (task,) = self.tasks
        # A linear layer computes x W', which is x R with W = R'.
        weights = {"alignment.weight": self.matrix(task).T.contiguous()}
        return PlainParts({"alignment": self.layer}, weights)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for number, task in enumerate(self.tasks):
            offset = state.get(f"{prefix}offsets.{number}")
            if offset is not None and offset.shape != (self.width, self.width):
                raise CrossTaskError(
                    f"{WHERE}: expected a matrix of {self.width} x {self.width} numbers for the task "
                    f"'{task}', found one of shape {tuple(offset.shape)}. It belongs to another encoder."
                )
        super()._load_from_state_dict(state, prefix, *rest)


class Alignment(Transfer):
    """A matrix per task aligns the covariance of its embeddings with that of the other tasks.

    Algorithm 1 of Wu, Zhang & Ré (2020): tasks whose inputs vary in different directions interfere in a shared module,
    however similar their labels.

        min  sum_t  L(g(E_t R_t B) A_t, y_t)

    - `E_t`: embeddings of task t, at the encoder's site number `layer`;
    - `R_t`: `matrix(t)` of the insert `AlignmentMatrices`, [width, width], the identity at the start;
    - `B`, `g`: the rest of the encoder, which all tasks share;
    - `A_t`: `model.head(t)`.

    Recorded is the covariance similarity score (eq. 6, `gradients.covariance`) of every source with every target, with
    the current R (`similarity`), and with the same embeddings but R = I (`similarity_before`). An example is one row;
    where it has a vector per token, that is their mean. The paper does not say what a row of such embeddings is. Means
    of word vectors have much in common whatever the tasks, so that these scores are high before anything is aligned;
    with a row per token they are lower: see the experiment `transfer-sentences`, which shows both.

    Args:
        layer: where: 0 is the input of the shared part (word vectors, numeric vectors, frozen features, the first layer
            of a transformer), n is the output of a transformer's layer n.
        tasks: which tasks have a matrix: "all", or the "target" alone, as the paper does it for transfer learning;
            with the paradigm `pretrain` that matrix then learns in fine-tuning.
        shared: "train", or "freeze": the encoder is frozen in every phase that trains a target, as BERT in the paper;
            sources still train it in the first phase of `pretrain`.
        rate: learning rate of the matrices in units of the model's. A matrix has width squared entries that act
            together: at the model's own rate a few updates change it so much that tasks share little.
        warmup: fraction of all updates in which the matrices stay the identity. With `shared="freeze"` the shared
            module is trained until then and frozen afterwards: Algorithm 1 on the module that joint training gives.
        steps: "along", all parameters in every update; or "alternate": the heads, the matrices and the shared module
            take turns, one group an update, once the warm-up is over.
        measured: examples of each task from whose embeddings the similarity is computed; 0 for no score.

    Differs from the paper: Algorithm 1 is given a B, keeps it fixed and alternates over A and R (`steps="alternate",
    shared="freeze"`, with `warmup` for a B from joint training); the paper leaves open where B comes from, whether it
    is trained too, and at which rate R; by default here everything is trained at once. Weight decay pulls R to the
    identity. In the exported model of a task R is folded into a weight next to it wherever that is exact: word vectors,
    numeric vectors, frozen features that go into a linear layer.

    Costs a product with a [width, width] matrix per token, and a pass over `measured` examples of each task at every
    evaluation on the dev sets.
    """

    name: ClassVar[str] = "alignment"
    paper_options: ClassVar[Mapping[str, Any]] = {"steps": "alternate", "shared": "freeze"}
    summary: ClassVar[str] = "a matrix per task that brings the covariance of its embeddings in line with the others'"
    needs_whole_model = WholeModel.NEVER
    paper: ClassVar[Paper | None] = INFORMATION_TRANSFER

    def __init__(
        self,
        *,
        layer: int = 0,
        tasks: Literal["all", "target"] = "all",
        shared: Literal["train", "freeze"] = "train",
        rate: Rate = 0.1,
        warmup: float = 0.0,
        steps: Literal["along", "alternate"] = "along",
        measured: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 1000,
    ) -> None:
        super().__init__()
        options = {"layer": layer, "tasks": tasks, "shared": shared, "steps": steps, "measured": measured}
        check_values(WHERE, type(self), {**options, "rate": rate, "warmup": warmup})
        if not 0.0 <= warmup < 1.0:
            raise CrossTaskError(f"{WHERE}: `warmup` must be a share of all updates below 1, found {warmup}.")
        self.layer = layer
        self.tasks = tasks
        self.shared = shared
        self.rate = rate
        self.warmup = warmup
        self.steps = steps
        self.measured = measured
        self._run: _Run | None = None
        self._is_warm = not warmup
        self._trains_target = True

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """The same phases; with `shared="freeze"`, the encoder is frozen in those that train a target."""
        trained: set[str] = set()
        for phase in phases:
            trained.update(phase.tasks)
        if len(trained) < 2:
            raise CrossTaskError(
                f"{WHERE} brings tasks in line with each other, but only '{next(iter(trained))}' is trained. "
                "Take another paradigm than 'single', or leave the alignment out."
            )
        if self.shared == "train" or self.warmup:
            return list(phases)
        planned = []
        for phase in phases:
            freezes = bool(set(plan.targets) & set(phase.tasks))
            planned.append(replace(phase, begin=partial(self._begin_phase, phase.begin, freezes)))
        return planned

    def _begin_phase(self, begin: Callable[["Model"], None], freezes: bool, model: "Model") -> None:
        """Begin a phase as planned, with the encoder's parameters trained or frozen."""
        shared = [] if self._run is None else self._run.shared
        for parameter in shared:
            parameter.requires_grad_(True)
        begin(model)
        if freezes:
            for parameter in shared:
                parameter.requires_grad_(False)

    def start(self, setup: Setup) -> None:
        """Put identity matrices into the model, and prepare examples of each task for the similarity scores."""
        model = setup.model
        width = model.encoder.site(self.layer, WHERE).width
        names = [task.name for task in setup.tasks if self.tasks == "all" or task.name in setup.targets]
        insert = AlignmentMatrices(layer=self.layer, width=width, tasks=names, rate=self.rate)
        shared = model.shared_parameters()  # of the encoder alone: the insert is not in it yet
        model.insert(insert)
        samples: dict[str, Prepared] = {}
        if self.measured:
            samples = {task.name: _sample(model, task, self.measured) for task in setup.tasks}
        self._run = _Run(model, insert, shared, samples, tuple(setup.targets))

    def before_step(self, moment: Moment) -> Step:
        """Find out whether the warm-up is over, and whether this phase trains a target: then that has a weight."""
        self._is_warm = moment.update >= self.warmup * moment.num_updates
        self._trains_target = self._run is not None and not moment.weights.keys().isdisjoint(self._run.targets)
        return moment.step

    def after_backward(self, model: "Model", update: int) -> None:
        """Drop the gradients of what is not trained now: matrices in the warm-up, a frozen module after it.

        With alternating steps, only one group of parameters keeps its gradients: heads, matrices or shared. The warm-up
        is plain joint training, where nothing takes turns.
        """
        if self._run is None:
            return
        if not self._is_warm:
            _drop_gradients(self._run.insert.parameters())
            return
        if self.warmup and self.shared == "freeze" and self._trains_target:
            _drop_gradients(self._run.shared)
        if not self._trains_target:  # a target is aligned while it is trained, not while it is observed
            for target in self._run.targets:
                _drop_gradients(self._run.insert.parameters_of(target))
        if self.steps == "along":
            return
        groups = [list(model.heads.parameters()), list(self._run.insert.parameters()), model.shared_parameters()]
        # A group that this update does not reach, such as the matrix of a task that is not part of it, has no turn.
        reached = []
        for group in groups:
            if any(parameter.grad is not None for parameter in group):
                reached.append(group)
        for number, group in enumerate(reached):
            if number != update % len(reached):
                _drop_gradients(group)

    def facts(self) -> Facts:
        """Scores of every source with every target, by the target's name and then the source's."""
        if self._run is None or len(self._run.samples) < 2:
            return {}
        return self._run.similarities()


def _drop_gradients(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None


@dataclass(frozen=True, eq=False)
class _Run:
    """The state of one run: the insert, the encoder's trainable parameters, examples for the similarity scores.

    Not in attributes of the transfer, which is a module: all of it belongs to the model.
    """

    model: "Model"
    insert: AlignmentMatrices
    shared: list[nn.Parameter]
    samples: dict[str, Prepared]
    targets: tuple[str, ...]

    @torch.no_grad()
    def similarities(self) -> Facts:
        """Scores with the current matrices and with the identity."""
        before, now = {}, {}
        for task, sample in self.samples.items():
            before[task] = _covariance_of(self.model, self.insert, sample)  # [width, width]
            matrix = self.insert.matrix(task).double()
            now[task] = matrix.T @ before[task] @ matrix  # (E R)' (E R)
        return {"similarity": self._scores(now), "similarity_before": self._scores(before)}

    def _scores(self, covariances: Mapping[str, Tensor]) -> dict[str, dict[str, float]]:
        """By target and source."""
        scores: dict[str, dict[str, float]] = {}
        for target in self.targets:
            scores[target] = {}
            for source in covariances:
                if source != target:
                    score = similarity_of_covariances(covariances[source], covariances[target])
                    scores[target][source] = score
        return scores


def _sample(model: "Model", task: "Task", max_examples: int) -> Prepared:
    count = min(max_examples, len(task.train))
    positions = random_subset(len(task.train), count, np.random.default_rng(0))
    return Prepared.of(model.encoder, task.spec, task.train.take(positions))


def _covariance_of(model: "Model", insert: AlignmentMatrices, sample: Prepared) -> Tensor:
    """`E' E` of a task's embeddings as they reach its matrix, [width, width]."""
    total = torch.zeros(insert.width, insert.width, dtype=torch.float64, device=model.device())
    was_training = model.training
    model.eval()
    task = sample.spec.name
    for positions in in_batches(sample.lengths(), PREDICTION_BATCH):
        insert.inputs = embeddings = list[Tensor]()
        batch = make_batch(model.encoder, {task: sample}, {task: positions}).to(model.device())
        model.encode(batch.inputs, batch.rows)
        total += covariance(_example_rows(embeddings, batch.inputs))
    insert.inputs = None
    model.train(was_training)
    return total


def _example_rows(embeddings: Sequence[Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
    """A row per example, [batch, width], of the embeddings of one pass: the last, or the mean over its tokens."""
    values = embeddings[-1]  # frozen features pass token by token first, then one per text where the head reads that
    if values.dim() == 2:
        return values
    mask = inputs["mask"] if "mask" in inputs else inputs["attention_mask"]
    mask = mask.unsqueeze(-1).to(values.dtype)  # [batch, length, 1]
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)
