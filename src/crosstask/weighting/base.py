"""The contract of a weighting: losses in, gradients in place, and word of how much each task counted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError, unknown
from crosstask.gradients import task_gradients as grads
from crosstask.papers import Paper

Query = float | Literal["dev"]
"""What judges weights: a share of each training set, or the dev sets."""


class Weighting(ABC):
    """How much each task counts.

    In a loop of one's own, `backward(losses, shared=...)` stands where `.backward()` stood. The tasks may be named at
    once or later with `bind`, as the learner does.

    On several ranks every rank must reach the same weights: `reduce` is called on whatever the weights are computed
    from (losses, gradients). The learner sets it; in a loop of one's own `ranks.share_ranks(weighting)` does, see
    `crosstask.gradients.distributed` for such a loop with or without DistributedDataParallel.
    """

    name: ClassVar[str]
    """How a recipe calls it."""
    summary: ClassVar[str]
    """One line for `crosstask methods`."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    needs_held_out: bool = False
    """Whether `after_step` wants losses on held-out examples."""
    held_out: ClassVar[Literal["query", "probe"]] = "query"
    """Which ones: those of `query`, which never train, or a fresh draw from the training set."""
    needs_every_task: bool = False
    """Whether each step must have a batch of every task, as the schedule `parallel` gives."""
    observes_targets: bool = False
    """Whether it wants the targets' losses even in a phase that trains the sources alone."""
    query: Query = 0.1
    """Share of each training set that becomes the query part, or "dev" for the dev sets."""
    held_out_size: int | None = None
    """Held-out examples of each task at a look; as many as a training batch has when left out."""
    learning_rate: float = 1.0
    """Of the model at this step; a loop that knows it sets it."""
    needs_representation: bool = False
    """Whether `backward` wants each task's representation, by the keyword `representations`."""
    needs_features: bool = False
    """Whether it wants every task's features and labels once, before training, by `fit_features`."""
    needs_second_order: bool = False
    """Whether a look differentiates twice: then the model must run with kernels that allow it, not with fused ones."""
    weighs_examples: bool = False
    """Whether it has a weight for every example, asked for by `example_weights`, learned by `update_examples`."""
    every: int = 1
    """Steps from one look to the next; in between a step is a plain joint step."""
    takes_fused_losses: ClassVar[bool] = False
    """Whether a look takes gradients by `gradients.each_gradient`: then one fused pass may stand for one per task."""

    def __init__(self, tasks: Sequence[str] | None = None, target: str | Sequence[str] | None = None) -> None:
        self.tasks: tuple[str, ...] = ()
        self.targets: tuple[str, ...] = ()
        self.steps = 0
        self.reduce: Callable[[Tensor], Tensor] = lambda values: values
        self.num_ranks = 1
        self._facts: dict[str, Any] = {}
        if tasks is not None:
            self.bind(tasks, target)

    def bind(
        self,
        tasks: Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Name the tasks that take part, those that matter most, and how many examples each has."""
        if not tasks:
            raise CrossTaskError(f"weighting '{self.name}': there must be at least one task.")
        if len(set(tasks)) != len(tasks):
            raise CrossTaskError(f"weighting '{self.name}': a task is named twice in {list(tasks)}.")
        self.tasks = tuple(tasks)
        self.targets = (target,) if isinstance(target, str) else tuple(target or ())
        self.steps = 0
        self.start(dict(sizes or {}))

    @abstractmethod
    def start(self, sizes: Mapping[str, int]) -> None:
        """Set the first weights; `sizes` is empty when the number of examples is not known."""

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """What each task counts now."""

    @property
    def looks_at_gradients(self) -> bool:
        """Whether the next `backward` takes each task's own gradient.

        Then each loss should have a graph of its own: a graph that all share would be walked once per task.
        """
        return False

    @property
    def wants_held_out(self) -> bool:
        """Whether `after_step` should be called after this step."""
        return self.needs_held_out and self.steps % self.every == 0

    @abstractmethod
    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """Put the gradient of the weighted loss into the parameters' `.grad`.

        Args:
            losses: a scalar per task; tasks that are absent from this step may be missing.
            shared: the parameters that all tasks train, for weightings that look at gradients.
            probabilities: how likely each task was to be part of this step; a loss counts `weight / probability`.
            scale: factor of every gradient, one over the accumulated steps or that of a GradScaler, which is
                `float(scaler.scale(torch.ones((), device=...)))`; the weights do not depend on it.
        """

    def after_step(  # noqa: B027 - most weightings need none
        self, held_out_losses: Mapping[str, Tensor], *, shared: Iterable[nn.Parameter] | None = None
    ) -> None:
        """Learn from losses on held-out examples after the update, where `needs_held_out` says so."""

    def fit_features(  # noqa: B027 - most weightings need none
        self, features: Mapping[str, Tensor], labels: Mapping[str, Tensor]
    ) -> None:
        """Learn from what the encoder makes of the training sets, once after `bind`, where `needs_features` says so.

        Args:
            features: [examples, dimension] per task.
            labels: [examples] per task, whole numbers for classes; or [examples, labels].
        """

    def example_weights(self, task: str, positions: np.ndarray) -> Tensor | None:
        """What these examples of a task count, [batch]; None when all count the same."""
        return None

    @property
    def wants_products(self) -> bool:
        """Whether `update_examples` should be called for the tasks of this step, before their losses are taken."""
        return False

    def update_examples(  # noqa: B027 - most weightings weigh tasks alone
        self, task: str, positions: np.ndarray, products: Tensor
    ) -> None:
        """Learn how well these examples of a task agree with the targets, where `wants_products` says so.

        Args:
            task: a task that is no target.
            positions: which of its examples; on several ranks each passes its own, and none passes an empty array.
            products: of the targets' gradient on the shared parameters with each example's, [batch].
        """

    def facts(self) -> dict[str, Any]:
        """What was seen since the last call (similarities, norms, conflict), as plain data for the record."""
        facts, self._facts = self._facts, {}
        return facts

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while training: plain values and tensors."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""

    def check_losses(self, losses: Mapping[str, Tensor]) -> None:
        """Every loss must belong to a task that was named, and be a finite scalar."""
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

    def check_shared(self, shared: Iterable[nn.Parameter] | None) -> list[nn.Parameter]:
        """The shared parameters that learn; there must be some."""
        # Each once: a list put together by hand may name tied weights twice.
        parameters = list({id(parameter): parameter for parameter in shared or () if parameter.requires_grad}.values())
        if not parameters:
            raise CrossTaskError(
                f"weighting '{self.name}' looks at gradients of the shared parameters, but `shared` is empty or "
                "frozen; pass the encoder's parameters (with a frozen encoder, add a shared layer: `hidden`)."
            )
        return parameters


class LossWeighting(Weighting):
    """Weights from the values of the losses; one plain backward pass of the weighted sum."""

    _weights: dict[str, float]

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts."""
        return dict(self._weights)

    def update(self, values: Mapping[str, float]) -> None:
        """Change the weights, given this step's losses over all ranks."""

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """Look at the values if the method does, then one backward pass of the sum of `weight_t / q_t * loss_t`."""
        self.check_losses(losses)
        if type(self).update is not LossWeighting.update:
            self.update(reduced_values(losses, self.reduce))
        self.steps += 1
        weighted_backward(losses, self._weights, probabilities, scale)

    def state_dict(self) -> dict[str, Any]:
        """The weights and the number of steps."""
        return {"weights": self.weights, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take both over."""
        self._weights = {task: float(weight) for task, weight in state["weights"].items()}
        self.steps = int(state["steps"])


class GradientWeighting(Weighting):
    """Weights from the tasks' gradients on the shared parameters, looked at every so many steps.

    On a look each task's gradient is taken from its own graph, which is freed at once; their products make the Gram
    matrix, `coefficients` turns it into the mixture of this step. In between, a step is one plain backward pass.
    """

    weighs_heads: ClassVar[bool] = True
    """Whether a task's own parameters get its gradient times its coefficient, or as it is (Sener & Koltun 2018)."""
    _weights: dict[str, float]

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts."""
        return dict(self._weights)

    @property
    def looks_at_gradients(self) -> bool:
        """On every `every`-th step."""
        return self.steps % self.every == 0

    @abstractmethod
    def coefficients(self, gram: Tensor, tasks: Sequence[str], values: Mapping[str, float]) -> Sequence[float]:
        """What each of these tasks' gradients counts in this step; changes the weights on the way.

        Args:
            gram: products of the tasks' gradients, [tasks, tasks], in float64 on the CPU.
            tasks: the tasks of its rows.
            values: this step's losses over all ranks.
        """

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """A look at the gradients on every `every`-th step, a plain weighted backward pass on the others."""
        self.check_losses(losses)
        looks = self.looks_at_gradients
        self.steps += 1
        if not looks:
            weighted_backward(losses, self._weights, probabilities, scale)
            return
        parameters = self.check_shared(shared)
        taken = self.take(losses, parameters, scale)
        gram = self.products([gradient.shared for gradient in taken.values()]).cpu() / scale**2
        if not torch.isfinite(gram).all():  # an overflow under a GradScaler: leave the weights, let the scaler skip
            chosen: Sequence[float] = [self._weights.get(task, 1.0) for task in taken]
        else:
            self.note(gram, list(taken))
            chosen = self.coefficients(gram, list(taken), reduced_values(losses, self.reduce))
        drawn = probabilities or {}
        shares = [coefficient / drawn.get(task, 1.0) for task, coefficient in zip(taken, chosen, strict=True)]
        for gradient, share in zip(taken.values(), shares, strict=True):
            grads.add_to_grad(gradient.own, share if self.weighs_heads else 1.0)
        # The shared part is whole already; the loop will add up what all ranks have.
        mixed = grads.mix([gradient.shared for gradient in taken.values()], [s / self.num_ranks for s in shares])
        grads.add_to_grad(zip(parameters, mixed, strict=True))

    def products(self, gradients: Sequence[grads.Gradient]) -> Tensor:
        """The Gram matrix of the tasks' gradients, over all shared parameters unless a method looks at some alone."""
        return grads.gram_matrix(gradients)

    def take(
        self, losses: Mapping[str, Tensor], shared: Sequence[nn.Parameter], scale: float
    ) -> dict[str, grads.TaskGradient]:
        """The tasks' gradients; their shared parts, which weights are computed from, are added up over ranks."""
        taken = {task: gradient for task, _, gradient in grads.each_gradient(losses, shared, scale)}
        if self.num_ranks > 1:
            for gradient in taken.values():
                gradient.shared = [part if part is None else self.reduce(part) for part in gradient.shared]
        return taken

    def note(self, gram: Tensor, tasks: Sequence[str]) -> None:
        """Keep norms, similarities and conflict for the record."""
        norms = gram.diagonal().clamp(min=0.0).sqrt().tolist()
        self._facts = {
            "gradient_norms": dict(zip(tasks, norms, strict=True)),
            "conflict": grads.conflict(gram),
        }
        target = next((i for i, task in enumerate(tasks) if task in self.targets), None)
        if target is not None:
            row = grads.cosines(gram)[target].tolist()
            self._facts["similarities"] = {task: row[i] for i, task in enumerate(tasks) if i != target}

    def state_dict(self) -> dict[str, Any]:
        """The weights and the number of steps."""
        return {"weights": self.weights, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take both over."""
        self._weights = {task: float(weight) for task, weight in state["weights"].items()}
        self.steps = int(state["steps"])


def weighted_backward(
    losses: Mapping[str, Tensor],
    weights: Mapping[str, float],
    probabilities: Mapping[str, float] | None = None,
    scale: float = 1.0,
) -> None:
    """One backward pass of the sum of `scale * weight_t / q_t * loss_t`."""
    drawn = probabilities or {}
    terms = [scale * weights[task] / drawn.get(task, 1.0) * loss for task, loss in losses.items()]
    sum(terms[1:], terms[0]).backward()


def reduced_values(losses: Mapping[str, Tensor], reduce: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """The losses as numbers, over all ranks."""
    values = reduce(torch.stack([loss.detach() for loss in losses.values()]).float()).tolist()
    return dict(zip(losses, values, strict=True))
