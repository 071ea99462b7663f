"""Evidence of one step for a weighting, each quantity computed on first access, and how gradients reach `.grad`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import inner_products
from crosstask.gradients import representations as on_representations
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.distributed import Ranks
from crosstask.gradients.sharded import cut, is_sharded
from crosstask.gradients.target_alignment import (
    ComparedLosses,
    InverseHessian,
    Placement,
    TargetAlignment,
    align_by_gram_matrix,
    compare_with_targets,
)


class Need(Flag):
    """What a weighting needs of a step, or of all steps."""

    NOTHING = 0
    """A plain step with the weights as they are: `coefficients` is not asked."""
    LOSSES = auto()
    """`coefficients` reads the values of the losses."""
    GRADIENTS = auto()
    """`coefficients` reads each task's gradient on the shared parameters, so each loss has a graph of its own, or
    all come from one fused pass (`gradients.fused`)."""
    SEPARATE_GRAPHS = auto()
    """With GRADIENTS: a fused pass will not do."""
    PRODUCTS = auto()
    """With GRADIENTS: of these `coefficients` reads products alone, `gram` or `align_with_targets`."""
    HELD_OUT_PRODUCTS = auto()
    """With GRADIENTS and HELD_OUT: all it reads is products of both losses' gradients (`learn_from_products`)."""
    SECOND_ORDER = auto()
    """Gradients are differentiated once more: the model must run with kernels that allow it."""
    REPRESENTATIONS = auto()
    """`backward` is passed `representations`."""
    HELD_OUT = auto()
    """`after_step` is called with the losses that `held_out` describes."""
    EXAMPLE_WEIGHTS = auto()
    """Each example's loss is multiplied by `example_weights`."""
    EXAMPLE_PRODUCTS = auto()
    """`update_examples` is called before the losses are taken."""
    FEATURES = auto()
    """`fit_features` is called before the first step."""
    EVERY_TASK = auto()
    """Each step has a batch of every task, as the schedule `parallel` gives."""
    SEVERAL_TASKS = auto()
    """Each step has batches of several tasks and of the targets: `parallel`, or a sample of it (`tasks_per_step`)."""
    TARGETS = auto()
    """Losses of the targets, even in a phase that trains the sources alone."""


Facts = dict[str, Any]
"""Plain data for the record: numbers, and mappings of numbers by task."""
Value = TypeVar("Value")


class computed_once(Generic[Value]):  # noqa: N801 - used like `property`
    """A property that is computed on first access.

    `functools.cached_property` holds one lock for all instances in Python 3.11: ranks that run as threads and add up
    inside such a property would wait for each other for ever.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "computed_once[Value]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> "computed_once[Value] | Value":
        if instance is None:
            return self
        value = self.compute(instance)
        vars(instance)[self.name] = value  # the next access finds it there
        return value


class GradientOverflowError(Exception):
    """Gradients are not finite, as under a GradScaler, which skips such a step. The weights stay as they are."""


def to_vector(values: Mapping[str, float], tasks: Sequence[str], default: float | None = None) -> Tensor:
    """The values of these tasks in float64, [tasks]; tasks without one have the default, if there is any.

    >>> to_vector({"a": 1.0, "b": 2.0}, ["b", "a"]).tolist()
    [2.0, 1.0]
    """
    numbers = []
    for task in tasks:
        numbers.append(values[task] if default is None else values.get(task, default))
    return torch.tensor(numbers, dtype=torch.float64)


def by_task(tasks: Sequence[str], vector: Tensor) -> dict[str, float]:
    """The entries of a vector by the names of their tasks.

    >>> by_task(["a", "b"], torch.tensor([1.0, 2.0]))
    {'a': 1.0, 'b': 2.0}
    """
    return dict(zip(tasks, vector.tolist(), strict=True))


def check_shared(method: str, shared: Iterable[nn.Parameter] | None) -> list[nn.Parameter]:
    """The shared parameters that learn, each once; there must be some."""
    # A list put together by hand may name tied weights twice.
    unique = {id(parameter): parameter for parameter in shared or () if parameter.requires_grad}
    if not unique:
        raise CrossTaskError(
            f"weighting '{method}' looks at gradients of the shared parameters, but `shared` is empty or "
            "frozen; pass the encoder's parameters (with a frozen encoder, add a shared layer: `hidden`)."
        )
    return list(unique.values())


def gradient_facts(gram: Tensor, tasks: Sequence[str], targets: Sequence[str] = ()) -> Facts:
    """Norms, conflict and cosines with the first target, from the products of gradients, for the record.

    >>> gradient_facts(torch.tensor([[4.0, 0.0], [0.0, 9.0]]), ["a", "b"], ["a"])
    {'gradient_norms': {'a': 2.0, 'b': 3.0}, 'conflict': 0.0, 'similarities': {'b': 0.0}}
    """
    norms = gram.diagonal().clamp(min=0.0).sqrt()
    facts: Facts = {"gradient_norms": by_task(tasks, norms), "conflict": inner_products.conflict(gram)}
    cosines = cosines_with_target(gram, tasks, targets)
    if cosines:
        # The first target's cosine with itself is 1 and says nothing.
        del cosines[next(task for task in tasks if task in targets)]
        facts["similarities"] = cosines
    return facts


def cosines_with_target(gram: Tensor, tasks: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
    """Cosine of each task's gradient with that of the first target among the tasks; empty without one."""
    for row, task in enumerate(tasks):
        if task in targets:
            return by_task(tasks, inner_products.cosines(gram)[row])
    return {}


@dataclass(eq=False)
class Evidence:
    """One step as a weighting sees it. Costly quantities are computed on first access, and only then.

    Attributes:
        method: name of the weighting, for messages.
        loss_tensors: by task, in the order in which the weighting knows its tasks.
        observed: losses of targets that are not among the tasks; only their heads are trained.
        targets: names of all targets.
        weights: what each task counts by the weights from before this step.
        probabilities: how likely each task was to be part of this step.
        scale: factor of every gradient in `.grad`; all that is shown here is without it.
        ranks: the processes that train the model.
        shared_parameters: as passed to `backward`.
        representations: what each task's head was given, where the weighting needs it.
        placer: takes the gradients and puts them in place, where the training loop does that itself.
    """

    method: str
    loss_tensors: Mapping[str, Tensor]
    observed: Mapping[str, Tensor]
    targets: tuple[str, ...]
    weights: Mapping[str, float]
    probabilities: Mapping[str, float]
    scale: float
    ranks: Ranks
    shared_parameters: Sequence[nn.Parameter]
    representations: Mapping[str, Tensor] | None = None
    placer: grads.PlacesGradients | None = None
    is_in_place: bool = False
    facts: Facts = field(default_factory=dict)
    _num_compared: int | None = None

    @property
    def tasks(self) -> list[str]:
        """The weighted tasks of this step: the rows of every matrix here."""
        return list(self.loss_tensors)

    @computed_once
    def losses(self) -> dict[str, float]:
        """This step's losses over all ranks."""
        if self.placer is not None:
            numbers = self.placer.numbers()
            return {task: numbers[task] for task in self.tasks}
        values = torch.stack([loss.detach() for loss in self.loss_tensors.values()])
        if values.dtype != torch.float64:
            values = values.float()
        return dict(zip(self.tasks, self.ranks.sum(values).tolist(), strict=True))

    @computed_once
    def shared(self) -> list[nn.Parameter]:
        """The shared parameters that learn."""
        return check_shared(self.method, self.shared_parameters)

    @computed_once
    def gradients(self) -> dict[str, grads.TaskGradient]:
        """Each task's gradient times `scale`: this rank's part, on sharded parameters its rows."""
        # Each graph is freed as soon as its gradient is taken.
        each_gradient = grads.each_gradient(self.loss_tensors, self.shared, self.scale)
        return {task: gradient for task, _, gradient in each_gradient}

    def compare_last(self, count: int) -> None:
        """Let `gram` be over the last `count` shared tensors alone; to be called before it is first read."""
        if count > len(self.shared):
            raise CrossTaskError(
                f"weighting '{self.method}': `last_shared` is {count}, but there are only {len(self.shared)} "
                "shared parameter tensors that learn."
            )
        self._num_compared = count

    @computed_once
    def gram(self) -> Tensor:
        """Products of the tasks' gradients on the shared parameters, [tasks, tasks], in float64 on the CPU."""
        if self.placer is not None:
            gram = self._finite(self.placer.gram(self.tasks))
        else:
            num_left_out = len(self.shared) - (self._num_compared or len(self.shared))
            compared = self.shared[num_left_out:]
            rows = [gradient.shared[num_left_out:] for gradient in self.gradients.values()]
            gram = self._finite(self.ranks.gram(rows, compared).cpu() / self.scale**2)  # products have the scale twice
        self.facts = gradient_facts(gram, self.tasks, self.targets)
        return gram

    @computed_once
    def gradient_norms(self) -> Tensor:
        """Lengths of the tasks' gradients, [tasks]."""
        return self.gram.diagonal().clamp(min=0.0).sqrt()

    @computed_once
    def target_cosines(self) -> dict[str, float]:
        """Cosine of each task's gradient with that of the first target of this step; empty without one."""
        return cosines_with_target(self.gram, self.tasks, self.targets)

    @computed_once
    def jacobian(self) -> Tensor:
        """The tasks' gradients as rows, [tasks, parameters], in float32 at least.

        For methods that cannot do with products alone: it takes the memory that `gram` avoids.
        """
        self.gram  # noqa: B018 - raises when gradients have overflowed
        rows: list[Tensor] = []
        for gradient in self.gradients.values():
            total = self.ranks.sum_gradient(gradient.shared, self.shared)
            pieces = []
            for on_parameter, parameter in zip(total, self.shared, strict=True):
                dense = parameter.new_zeros(parameter.numel()) if on_parameter is None else on_parameter
                pieces.append(dense.detach().reshape(-1))
            rows.append(torch.cat(pieces))
        jacobian = torch.stack(rows)  # [tasks, parameters]
        if jacobian.dtype != torch.float64:
            jacobian = jacobian.float()
        return jacobian / self.scale

    @computed_once
    def representation_gradients(self) -> dict[str, on_representations.RepresentationGradient]:
        """Each task's gradient times `scale` on its representation, from a backward pass through its head alone."""
        if self.representations is None:
            raise CrossTaskError(
                f"weighting '{self.method}' looks at gradients on the representation: pass "
                "`representations={task: tensor}` with what each task's head was given, or use `mgda`."
            )
        gradients = {}
        for task, loss in self.loss_tensors.items():
            representation = self.representations.get(task)
            gradients[task] = on_representations.take_gradient(
                loss * self.scale,
                representation,
                self._shared_ids,
                where=(self.method, task),
                num_ranks=self.ranks.count,
            )
        return gradients

    @computed_once
    def representation_gram(self) -> Tensor:
        """Products of the tasks' gradients on their representations, [tasks, tasks], in float64 on the CPU."""
        gradients = [gradient.on_representation for gradient in self.representation_gradients.values()]
        device = next(iter(self.loss_tensors.values())).device
        counts = None
        if self.ranks.count > 1:
            counts = self.ranks.sum(on_representations.num_examples(gradients, device)).tolist()
        gram = self.ranks.sum(on_representations.representation_gram(gradients, device, counts)).cpu()
        gram = self._finite(gram / self.scale**2)
        self.facts = gradient_facts(gram, self.tasks)
        return gram

    def align_with_targets(self, solve: InverseHessian | None = None) -> TargetAlignment:
        """Products of each task's gradient with the target's, without all gradients in memory together.

        The backward passes that give them put the step's gradients in place on the way, so this is for methods whose
        step uses the weights from before it.
        """
        if self.placer is not None:
            tasks = [*self.tasks, *self.observed]
            return align_by_gram_matrix(tasks, self.targets, self._finite(self.placer.gram(tasks)))
        weights = {**self.weights, **dict.fromkeys(self.observed, 1.0)}
        losses = {**self.loss_tensors, **self.observed}
        factors = {task: self._factor(task, weights) for task in losses}
        compared = ComparedLosses(
            losses, self.targets, self.shared, self.ranks, self.scale, Placement(factors, tuple(self.observed))
        )
        self.is_in_place = True
        alignment = compare_with_targets(compared, solve)
        if not alignment.is_finite:
            raise GradientOverflowError
        return alignment

    def take_and_put_in_place(self) -> dict[str, grads.TaskGradient]:
        """Each task's gradient times `scale`, which stays as it is while the weighted sum goes into `.grad`."""
        self.is_in_place = True
        self._put_observed_heads_in_place()
        each_gradient = grads.each_gradient(self.loss_tensors, self.shared, self.scale)
        gradients = {task: gradient for task, _, gradient in each_gradient}
        # Only now, when all graphs are freed: the sum takes memory besides.
        for task, gradient in gradients.items():
            pairs = (*zip(self.shared, gradient.shared, strict=True), *gradient.head)
            grads.add_to_grad(pairs, self._factor(task, self.weights), keep=True)
        return gradients

    def put_direction_in_place(self, direction: Tensor) -> None:
        """Make this vector, [parameters], the gradient on the shared parameters; heads get their own gradients."""
        self.is_in_place = True
        self._put_observed_heads_in_place()
        for gradient in self.gradients.values():
            grads.add_to_grad(gradient.head)
        start = 0
        pairs = []
        for parameter in self.shared:
            entries = direction[start : start + parameter.numel()].view(parameter.shape) * self.scale
            if is_sharded(parameter):
                entries = cut(entries, parameter)
            else:  # complete on every rank, and the loop adds up what all ranks have
                entries = entries / self.ranks.count
            pairs.append((parameter, entries))
            start += parameter.numel()
        grads.add_to_grad(pairs)

    def put_in_place(self, weights: Mapping[str, float], *, weigh_heads: bool = True) -> None:
        """Add the gradient of the weighted sum of losses to `.grad`, from what has been taken so far.

        Args:
            weights: what each task counts.
            weigh_heads: whether a task's own parameters get its weighted gradient, where gradients were taken one by
                one; if not, they get it as it is.
        """
        if self.is_in_place:
            return
        factors = {task: self._factor(task, weights) for task in self.tasks}
        if self.placer is not None:
            self._let_placer_put_in_place(factors, weigh_heads)
            return
        self._put_observed_heads_in_place()
        if self.representations is not None:
            # Cotangents are weighted, then one backward pass goes through the encoder.
            on_representations.put_in_place(self.representation_gradients, factors, self._shared_ids)
        elif "gradients" in vars(self):
            self._put_mixture_in_place(factors, weigh_heads)
        elif factors:
            # No gradient has been read: one plain backward pass of the weighted sum.
            terms = [self.scale * factors[task] * loss for task, loss in self.loss_tensors.items()]
            sum(terms[1:], terms[0]).backward()

    def _let_placer_put_in_place(self, factors: Mapping[str, float], weigh_heads: bool) -> None:
        assert self.placer is not None
        head_factors = dict(factors) if weigh_heads else dict.fromkeys(factors, 1.0)
        for task in self.observed:
            head_factors[task] = self._factor(task, {task: 1.0})
        self.placer.put_in_place({**factors, **dict.fromkeys(self.observed, 0.0)}, head_factors)

    def _put_mixture_in_place(self, factors: Mapping[str, float], weigh_heads: bool) -> None:
        shared_gradients, shared_factors = [], []
        for task, gradient in self.gradients.items():
            grads.add_to_grad(gradient.head, factors[task] if weigh_heads else 1.0)
            shared_gradients.append(gradient.shared)
            shared_factors.append(factors[task])
        mixture = grads.mix(shared_gradients, shared_factors)
        grads.add_to_grad(zip(self.shared, mixture, strict=True))

    def _put_observed_heads_in_place(self) -> None:
        """The loss of a target outside the tasks reaches that target's own head alone."""
        if not self.observed:
            return
        for task, loss in self.observed.items():
            head = grads.leaves_beside(loss, self.shared)
            if head:
                # The graph is retained: it may be part of another loss's.
                weighted = loss * (self.scale * self._factor(task, {task: 1.0}))
                torch.autograd.backward(weighted, inputs=head, retain_graph=True)

    @computed_once
    def _shared_ids(self) -> set[int]:
        """Unlike `shared`, this may be empty: gradients on representations do not need it."""
        return {id(parameter) for parameter in self.shared_parameters}

    def _factor(self, task: str, weights: Mapping[str, float]) -> float:
        return weights[task] / self.probabilities.get(task, 1.0)

    def _finite(self, gram: Tensor) -> Tensor:
        if not torch.isfinite(gram).all():
            raise GradientOverflowError
        return gram
