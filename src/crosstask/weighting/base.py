"""The interface of a task weighting.

A method says what it needs of a step (`needs`), reads evidence that is computed on first access (`Evidence`), and
answers with what each task counts (`coefficients`). Everything else, from taking gradients to several ranks, is
written once, in `backward`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import numpy as np
from torch import Tensor, nn

from crosstask.errors import CrossTaskError, unknown
from crosstask.gradients.distributed import Ranks
from crosstask.gradients.fused import FusedLosses
from crosstask.gradients.task_gradients import PlacesGradients
from crosstask.papers import Paper
from crosstask.registry import HasPresets
from crosstask.weighting.evidence import Evidence, Facts, GradientOverflowError, Need
from crosstask.weighting.own_loop import OwnLoop
from crosstask.weighting.validation import check_known_tasks

State = dict[str, Any]
"""Plain values and tensors by name."""
Query = float | Literal["dev"]
"""Which examples judge the weights: a fraction of each training set, or the dev sets."""
Initial = Literal["by-size", "uniform"]
"""Weights to start with: every example counts the same, or every task does."""

MAX_REFUSED = 10
"""A method whose weights are not finite this many times in a row cannot go on."""


@dataclass(frozen=True)
class Problem:
    """The tasks that a weighting starts with.

    - `tasks`: those that it weights;
    - `targets`: those that matter most; with `Need.TARGETS` they need not be among the tasks;
    - `sizes`: number of training examples by task, as far as it is known;
    - `all_tasks`: every task of the run, which options may name; empty if not known;
    - `initial`: how the paradigm starts, for methods that leave it to the paradigm.
    """

    tasks: tuple[str, ...]
    targets: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    all_tasks: tuple[str, ...] = ()
    initial: Initial | None = None


@dataclass(frozen=True)
class HeldOut:
    """Which losses `after_step` wants, and what it does with them.

    - `kind`: "query", examples that never train the model; "parts", of the targets' training sets, each of which judges
      and does not train in its turn (`Weighting.held_out_part`); or "fresh", a new sample of the training set;
    - `query`: for "query": fraction of each training set that becomes the query set, or "dev" for the dev sets;
    - `parts`: for "parts": how many there are;
    - `size`: examples of each task; as many as a training batch has when left out;
    - `need`: how gradients are taken of these losses.
    """

    kind: Literal["query", "parts", "fresh"]
    query: Query = 0.1
    parts: int = 1
    size: int | None = None
    need: Need = Need.GRADIENTS


class Weighting(HasPresets, ABC):
    """How much each task counts.

    In a loop of one's own, `backward(losses, shared=...)` replaces `.backward()`. The tasks may be named at once or
    later with `bind`; the learner calls `start`.

    A new method needs `name`, `summary` and `coefficients`. If it reads gradients it sets `inspects`, and if it
    remembers more than its weights it extends `start`, `state_dict` and `load_state_dict`.

    On several ranks every rank must reach the same weights. The learner calls `connect` for that; in a loop of one's
    own `gradients.distributed.share_ranks(weighting)` does, see there for such a loop.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    inspects: ClassVar[Need] = Need.LOSSES
    """What `coefficients` needs, on every `every`-th step."""
    is_delayed: ClassVar[bool] = False
    """Whether a step still uses the weights from before it, and `coefficients` counts from the next step on."""
    weighs_heads: ClassVar[bool] = True
    """Whether a task's own parameters get its weighted gradient on steps that inspect gradients, or its gradient as it
    is (Sener & Koltun 2018)."""
    state_attributes: ClassVar[Mapping[str, str]] = {}
    """What a method remembers besides its weights: keys of `state_dict`, and the attributes where it stands. Values
    are tensors, or plain values that JSON can hold."""
    every: int = 1
    """Steps from one inspection to the next; in between a step is a plain joint step."""
    held_out: HeldOut | None = None
    """The losses that `after_step` learns from, for methods that do."""
    learning_rate: float = 1.0
    """Of the model at this step; `after_step` can be passed it."""

    def __init__(self, tasks: Sequence[str] | None = None, target: str | Sequence[str] | None = None) -> None:
        self.tasks: tuple[str, ...] = ()
        self.targets: tuple[str, ...] = ()
        self.steps = 0
        self.reduce: Callable[[Tensor], Tensor] = _unchanged
        self.scatter: Callable[[Tensor], Tensor] | None = None
        self.num_ranks = 1
        self._rank: int | None = None
        self._weights: dict[str, float] = {}
        self._facts: Facts = {}
        self._num_refused = 0
        self._own_loop: OwnLoop | None = None
        if tasks is not None:
            self.bind(tasks, target)

    @final
    def bind(
        self,
        tasks: Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Name the tasks that take part, those that matter most, and how many examples each has."""
        targets = tuple(target or ())
        if isinstance(target, str):  # not a sequence of letters
            targets = (target,)
        self.start(Problem(tuple(tasks), targets, dict(sizes or {})))
        self._own_loop = OwnLoop(self.name, self.tasks, self.targets)

    def start(self, problem: Problem) -> None:
        """Begin with the first weights, 1 / T each unless a method says otherwise."""
        if not problem.tasks:
            raise CrossTaskError(f"weighting '{self.name}': there must be at least one task.")
        if len(set(problem.tasks)) != len(problem.tasks):
            raise CrossTaskError(f"weighting '{self.name}': a task is named twice in {list(problem.tasks)}.")
        if problem.all_tasks:
            self.check_names(problem.all_tasks)
        self.tasks, self.targets = problem.tasks, problem.targets
        self._own_loop = None
        self.steps = 0
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))

    def named_tasks(self) -> dict[str, list[str]]:
        """Tasks that the method's options name, by option."""
        return {}

    def check_names(self, all_tasks: Iterable[str]) -> None:
        """Every task that an option names must exist."""
        names = list(all_tasks)
        for option, tasks in self.named_tasks().items():
            check_known_tasks(self.name, option, tasks, names)

    @final
    def connect(
        self,
        reduce: Callable[[Tensor], Tensor],
        num_ranks: int,
        scatter: Callable[[Tensor], Tensor] | None = None,
        rank: int | None = None,
    ) -> None:
        """Take part in sums over ranks.

        Args:
            reduce: a tensor added up over all ranks, as a copy.
            num_ranks: how many there are.
            scatter: a vector added up over all ranks, of which each gets an equal part, in the order of the ranks.
                Without it gradients are sent by `reduce`, which takes twice as much.
            rank: number of this one.
        """
        self.reduce, self.num_ranks, self.scatter, self._rank = reduce, num_ranks, scatter, rank

    @property
    def ranks(self) -> Ranks:
        """The processes that train the model."""
        return Ranks(self.reduce, self.num_ranks, self.scatter, self._rank)

    def expect(self, num_steps: int) -> None:
        """Take note, before the first call of `backward`, how many there will be: inspections may be placed by it."""

    # --- what a method says ---

    def needs(self, step: int) -> Need:
        """What step number `step` needs, counted from 0; the loop asks once per step."""
        if step % self.every == 0:
            return self.inspects
        return Need.NOTHING

    @abstractmethod
    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """What each task of this step counts from now on; tasks that are left out keep their weights."""

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts."""
        return dict(self._weights)

    def _step_weights(self) -> Mapping[str, float]:
        """What each task's gradient counts in a step with the present weights: the weights themselves for most."""
        return self._weights

    def _can_learn_from(self, evidence: Evidence) -> bool:
        """Whether this step has the tasks that `coefficients` needs; if not, it is a plain step."""
        return True

    def _learn_from_held_out(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None) -> None:
        """What `after_step` does, for methods with `held_out`."""

    # --- what a loop asks and calls ---

    @property
    def needs_held_out(self) -> bool:
        """Whether `after_step` wants losses on held-out examples."""
        return self.held_out is not None

    @property
    def inspects_gradients(self) -> bool:
        """Whether the next `backward` takes each task's gradient.

        Then each loss should have a graph of its own: a graph that all share would be walked once per task.
        """
        return Need.GRADIENTS in self.needs(self.steps)

    @property
    def wants_held_out(self) -> bool:
        """Whether `after_step` should be called after this step."""
        return Need.HELD_OUT in self.needs(self.steps - 1)

    @property
    def held_out_part(self) -> int | None:
        """The part of each target's training set that does not train at present, where parts take turns in judging."""
        return None

    @final
    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
        representations: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Put the gradient of the sum of `weight_t / q_t * loss_t` into the parameters' `.grad`.

        Args:
            losses: a scalar per task; tasks that are absent from this step may be missing. The loss of a target that
                is not among the tasks trains that target's head alone.
            shared: the parameters that all tasks train, for weightings that inspect gradients.
            probabilities: q, how likely each task was to be part of this step; 1 if left out.
            scale: factor of every gradient, one over the accumulated steps or that of a GradScaler, which is
                `float(scaler.scale(torch.ones((), device=...)))`; the weights do not depend on it.
            representations: for each task the tensor that its head was given, part of its graph, for weightings with
                `Need.REPRESENTATIONS`.
        """
        self.check_losses(losses)
        shared = list(shared or ())
        need = self.needs(self.steps)
        if self._own_loop is not None:
            waits_for_after_step = self.steps > 0 and self.wants_held_out
            # Methods that weigh examples get the target's gradient by `update_examples`.
            needs_target_loss = Need.TARGETS in need and Need.EXAMPLE_WEIGHTS not in need
            self._own_loop.begin_step(losses, shared, waits_for_after_step, needs_target_loss)
        self.steps += 1  # before anything else: an inspection notes the number of its step
        # 1. What the step can show.
        evidence = self._evidence(losses, shared, probabilities, scale)
        weights_before = evidence.weights
        if Need.REPRESENTATIONS in need:
            evidence.representations = representations
        # 2. A step without inspection is a plain one with the weights as they are; so is one of observed targets alone.
        is_inspection = bool(need & (Need.LOSSES | Need.GRADIENTS)) and bool(evidence.tasks)
        can_learn = is_inspection and self._can_learn_from(evidence)
        if self._own_loop is not None and is_inspection:
            self._own_loop.note_tasks(are_enough=can_learn)
        if not can_learn:
            evidence.put_in_place(weights_before)
            return
        # 3. The method reads what it needs; then gradients go to `.grad`, unless that has happened on the way.
        self._learn(evidence)
        weights = weights_before if self.is_delayed else self._step_weights()
        evidence.put_in_place(weights, weigh_heads=self.weighs_heads)

    @final
    def plain_backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """Like `backward`, with the weights as they are: nothing is learned from these losses, and no step counted."""
        self.check_losses(losses)
        evidence = self._evidence(losses, shared, probabilities, scale)
        evidence.put_in_place(evidence.weights)

    def _evidence(
        self,
        losses: Mapping[str, Tensor],
        shared: Iterable[nn.Parameter] | None,
        probabilities: Mapping[str, float] | None,
        scale: float,
    ) -> Evidence:
        """What a step can show. Nothing is computed yet."""
        return Evidence(
            method=self.name,
            loss_tensors=_select(losses, [task for task in self.tasks if task in losses]),
            observed={task: loss for task, loss in losses.items() if task not in self.tasks},
            targets=self.targets,
            weights=self._step_weights(),
            probabilities=probabilities or {},
            scale=scale,
            ranks=self.ranks,
            shared_parameters=list(shared or ()),
            placer=losses if isinstance(losses, PlacesGradients) else None,
        )

    def _learn(self, evidence: Evidence) -> None:
        """Let `coefficients` change the weights, unless gradients have overflowed."""
        try:
            coefficients = self.coefficients(evidence)
        except GradientOverflowError:
            return
        if self._refuse_if_not_finite(coefficients):
            return
        # A new mapping: the evidence still refers to the weights from before.
        self._weights = {**self._weights, **coefficients}
        self._facts.update(evidence.facts)

    def _refuse_if_not_finite(self, weights: Mapping[str, float]) -> bool:
        """Whether weights are refused, since they would spoil the model; a method that finds no others is an error."""
        failing = [task for task, weight in weights.items() if not math.isfinite(weight)]
        if not failing:
            self._num_refused = 0
            return False
        self._num_refused += 1
        if self._num_refused >= MAX_REFUSED:
            raise CrossTaskError(
                f"weighting '{self.name}' found a weight of '{failing[0]}' that is not finite {MAX_REFUSED} times in a "
                "row. Use another weighting, and look for extreme values in the data."
            )
        return True

    @final
    def after_step(
        self,
        held_out_losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        learning_rate: float | None = None,
    ) -> None:
        """Learn from losses on held-out examples after the update, where `needs_held_out` says so.

        Args:
            held_out_losses: by task, each with a graph of its own; each is looked up once.
            shared: the parameters that all tasks train.
            learning_rate: of the model in the update; as it was if left out.
        """
        if learning_rate is not None:
            self.learning_rate = learning_rate
        if self._own_loop is not None:
            self._own_loop.hear("after_step")
        weights_before = self._weights
        self._learn_from_held_out(held_out_losses, shared)
        if self._refuse_if_not_finite(self._weights):
            self._weights = weights_before

    def facts(self) -> Facts:
        """What was seen since the last call (similarities, norms, conflict), as plain data for the record."""
        facts, self._facts = self._facts, {}
        return facts

    def state_dict(self) -> State:
        """Everything that changes while training: plain values and tensors."""
        state: State = {"weights": self.weights, "steps": self.steps}
        for key, attribute in self.state_attributes.items():
            state[key] = deepcopy(getattr(self, attribute))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._weights = dict(state["weights"])
        self.steps = int(state["steps"])
        for key, attribute in self.state_attributes.items():
            setattr(self, attribute, deepcopy(state[key]))

    def check_losses(self, losses: Mapping[str, Tensor]) -> None:
        """Every loss must belong to a task that was named, and be a scalar."""
        if not self.tasks:
            raise CrossTaskError(
                f"weighting '{self.name}' does not know its tasks: pass `tasks=[...]` or call `bind` first."
            )
        if not losses:
            raise CrossTaskError(f"weighting '{self.name}': `losses` is empty.")
        for task, loss in losses.items():
            if task not in self.tasks and task not in self.targets:
                raise unknown("task", task, self.tasks)
            if loss.dim() != 0:
                raise CrossTaskError(
                    f"weighting '{self.name}': the loss of '{task}' must be a scalar, found shape {tuple(loss.shape)}."
                )

    # --- for the few methods whose `needs` asks for more than losses and gradients ---

    def fit_features(self, features: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> None:
        """Learn from the encoder's features of the training sets, once before the first step (`Need.FEATURES`).

        Args:
            features: [examples, dimension] per task.
            labels: [examples] per task, whole numbers for classes; or [examples, labels].
        """
        raise NotImplementedError

    def example_weights(self, task: str, positions: np.ndarray) -> Tensor:
        """What these examples of a task count, [batch] (`Need.EXAMPLE_WEIGHTS`)."""
        raise NotImplementedError

    def update_examples(self, task: str, positions: np.ndarray, products: Tensor) -> None:
        """Learn how well these examples of a task agree with the targets (`Need.EXAMPLE_PRODUCTS`).

        Args:
            task: a task that is no target.
            positions: which of its examples; on several ranks each passes its own, and none passes an empty array.
            products: of the targets' gradient on the shared parameters with each example's, [batch].
        """
        raise NotImplementedError

    def learn_from_products(self, products: Tensor, losses: Mapping[str, float], learning_rate: float) -> None:
        """Learn from held-out losses after an update by products of gradients alone (`Need.HELD_OUT_PRODUCTS`).

        Args:
            products: of the gradient of each held-out loss, on all parameters that it reaches, with that of each task's
                loss in the step, [losses, tasks].
            losses: the held-out losses by task.
            learning_rate: of the model in the update.
        """
        raise NotImplementedError


def _unchanged(values: Tensor) -> Tensor:
    return values


def _select(losses: Mapping[str, Tensor], tasks: Sequence[str]) -> Mapping[str, Tensor]:
    """The losses of these tasks, in this order."""
    if isinstance(losses, FusedLosses):
        return losses.only(tasks)
    return {task: losses[task] for task in tasks}
