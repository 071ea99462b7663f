"""Weights that lower every task's loss on examples that the step did not train on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import inner_products
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.simplex import frank_wolfe, min_norm_point, project_onto_simplex
from crosstask.papers import METAWEIGHTING, Paper
from crosstask.quoting import shown
from crosstask.weighting.base import HeldOut, Problem, Query, Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task, to_vector
from crosstask.weighting.validation import check_choice, check_count, check_number, renamed

Solver = Literal["exact", "frank-wolfe", "mean"]


def _uniform(gram: Tensor) -> Tensor:
    return torch.full((len(gram),), 1.0 / len(gram), dtype=gram.dtype)


SOLVERS: dict[Solver, Callable[[Tensor], Tensor]] = {
    "exact": min_norm_point,
    "frank-wolfe": frank_wolfe,
    "mean": _uniform,
}


def hypergradients(products: Tensor, learning_rate: float) -> Tensor:
    """Derivative of each query loss by each weight, through one step of gradient descent (eq. 10), [query, tasks].

    Args:
        products: of the gradient of query loss t after the step with that of support loss i before it.
        learning_rate: of that step, which went along the mean of the weighted gradients.

    >>> hypergradients(torch.tensor([[1.0, -2.0], [3.0, 4.0]]), learning_rate=0.5).tolist()
    [[-0.25, 0.5], [-0.75, -1.0]]
    """
    return -(learning_rate / products.shape[1]) * products


def common_direction(gradients: Tensor, solver: Solver = "exact") -> tuple[Tensor, Tensor]:
    """The minimum-norm point of the rows (eq. 11), and the weight of each row in it (eq. 12).

    A step against it increases no query loss; it is zero where no such step exists. A row that is exactly zero, which
    nothing can lower, or that is not finite has weight zero: it would stop all others. With the solver "mean" it is the
    mean of the rows instead, and a step lowers the mean query loss.

    >>> direction, row_weights = common_direction(torch.tensor([[-1.0, 0.0], [0.0, -2.0]]))
    >>> direction.numpy().round(6).tolist(), row_weights.numpy().round(6).tolist()
    ([-0.8, -0.4], [0.8, 0.2])
    """
    gradients = gradients.double()
    row_weights = torch.zeros(len(gradients), dtype=torch.float64)
    counts = torch.isfinite(gradients).all(1) & (gradients != 0.0).any(1)
    if not counts.any():
        return torch.zeros(gradients.shape[1], dtype=torch.float64), row_weights
    rows = gradients[counts]
    unit = rows.abs().max()  # so that squares of small gradients times a small rate do not underflow
    row_weights[counts] = SOLVERS[solver]((rows / unit) @ (rows / unit).T)
    return row_weights[counts] @ rows, row_weights


def step_weights(weights: Tensor, direction: Tensor, step_size: float, keep_sum: bool = False) -> Tensor:
    """A step against the direction (eq. 13), projected onto weights that are not negative.

    >>> step_weights(torch.ones(2), torch.tensor([-1.0, 4.0]), 0.5).tolist()
    [1.5, 0.0]
    >>> step_weights(torch.ones(2), torch.tensor([-1.0, 1.0]), 0.5, keep_sum=True).tolist()
    [1.5, 0.5]
    """
    moved = weights.double() - step_size * direction.double()
    if keep_sum:
        # Onto the simplex times T, which is the nearest point with that sum.
        return len(moved) * project_onto_simplex(moved / len(moved))
    return moved.clamp(min=0.0)


@dataclass
class SupportGradients:
    """The support gradients of one update, until the query losses are known.

    They are kept as the backward passes returned them: products are taken some parameters at a time.

    - `parameters`: the shared parameters;
    - `scale`: the factor of all gradients here, added up over the steps that make one update;
    - `shared`: each task's gradient on the shared parameters, of several ranks a slice;
    - `heads`: each task's gradients on the other parameters that it reaches, likewise;
    - `factors`: by how much more of a task the step had than its weight: one over its probability.
    """

    parameters: list[nn.Parameter]
    scale: float = 0.0
    shared: dict[str, grads.Gradient] = field(default_factory=dict)
    heads: dict[str, dict[Tensor, Tensor]] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)

    def add(self, task: str, shared: grads.Gradient, head: dict[Tensor, Tensor], factor: float) -> None:
        """Take in a task's gradient; over several steps that make one update they add up."""
        self.factors[task] = factor
        if task not in self.shared:
            self.shared[task], self.heads[task] = shared, head
            return
        self.shared[task] = [_sum(*parts) for parts in zip(self.shared[task], shared, strict=True)]
        for leaf, gradient in head.items():
            self.heads[task][leaf] = gradient + self.heads[task].get(leaf, 0.0)

    def products(self, queries: Sequence[grads.TaskGradient]) -> Tensor:
        """Products of query gradients with the support gradients on all that both reach, [queries, tasks here].

        With the scale and without the factors; nothing waits for the device.
        """
        products = inner_products.cross_products([query.shared for query in queries], list(self.shared.values()))
        for row, query in zip(products, queries, strict=True):
            for column, support_head in enumerate(self.heads.values()):
                common = [(gradient, support_head[leaf]) for leaf, gradient in query.head if leaf in support_head]
                if common:
                    on_query, on_support = zip(*common, strict=True)
                    row[column] += inner_products.product([*on_query], [*on_support]).to(row.device)
        return products

    def of_tasks(self, products: Tensor, tasks: Sequence[str]) -> Tensor:
        """Such products for all tasks, [queries, tasks], on the CPU.

        A task that was not in the step has zero: its weight had no effect.
        """
        complete = torch.zeros(len(products), len(tasks), dtype=torch.float64)
        for column, task in enumerate(self.shared):
            complete[:, tasks.index(task)] = products[:, column].cpu() * self.factors[task]
        return complete / self.scale


def take_support(evidence: Evidence, support: SupportGradients | None, *, with_heads: bool) -> SupportGradients:
    """The gradients of a step, which also go into `.grad`, for losses that are known after the update.

    Args:
        evidence: of the step.
        support: of earlier steps, to which those of this one are added if they make one update.
        with_heads: whether gradients on heads are kept too.
    """
    is_new_update = all(parameter.grad is None for parameter in evidence.shared)
    if support is None or is_new_update:
        # Support gradients of an update that was not followed by `after_step` are dropped.
        support = SupportGradients(evidence.shared)
    heads: dict[str, dict[Tensor, Tensor]] = {}
    shared: dict[str, grads.Gradient] = {}
    for task, gradient in evidence.take_and_put_in_place().items():
        heads[task] = dict(gradient.head if with_heads else ())
        shared[task] = evidence.ranks.slices(gradient.shared, evidence.shared)
    for task, head in evidence.ranks.slice_heads(heads, evidence.shared[0].device).items():
        support.add(task, shared[task], head, 1.0 / evidence.probabilities.get(task, 1.0))
    support.scale += evidence.scale
    return support


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None:
        return second
    if second is None:
        return first
    return first.add_(second)


NamedGradient = tuple[str, Tensor, grads.TaskGradient]
"""A task, its loss and its gradient."""


def _alone(gradient: NamedGradient) -> list[NamedGradient]:
    return [gradient]


class MetaWeighting(Weighting):
    """Weights that lower every task's loss on examples that the step did not train on.

    Each training set is split into support, which trains the model, and query, which judges the weights. In each step
    (Mao et al. 2022, Algorithm 1)

        theta' = theta - (eta / T) sum_i w_i grad L^s_i(theta)
        d_t = d L^q_t(theta') / d w,   d_ti = -(eta / T) <grad L^q_t(theta'), grad L^s_i(theta)>
        d_c = sum_t lambda_t d_t,      lambda = argmin over the simplex of | sum_t lambda_t d_t |^2
        w <- w - alpha d_c

    - `w_t`: `weights[t]`, which start at 1; the model's step takes `w_t / T` of each gradient, heads included;
    - `L^s`, `L^q`: the losses given to `backward` and to `after_step`;
    - `eta`: `learning_rate`, which the learner passes to `after_step`; in a loop of one's own it stays at 1
      until set, which is the same as a larger alpha;
    - `alpha`: `step_size`;
    - `lambda`: `shares` in the record, where `conflict` is the fraction of the pairs of rows `d_t` at an obtuse angle.

    In the code: eq. 9 is `backward`; eq. 10 is `hypergradients`, its products are `SupportGradients.products`; eq. 11
    and 12 are `common_direction`; Algorithm 2 is `simplex.frank_wolfe`; eq. 13 is
    `step_weights`.

    A query gradient lives on the shared parameters and on its task's head. So `d_ti` is a product on the shared
    parameters, and for `i = t` on the head as well (in general: on all that both losses reach).

    Args:
        query: fraction of each training set that becomes the query set; 0.1 in the paper. Or "dev": the dev sets judge
            the weights too, and all examples train; a task without one gives a tenth. Not in the paper.
        step_size: alpha; 0.1 for sentiment and 0.5 for topics in the paper. With 0 every weight stays at 1: what a gain
            of learning is measured against.
        every: calls of `backward` from one inspection of gradients to the next; 1 in the paper. In between, a step is a
            plain joint step.
        solver: "exact" by `simplex.min_norm_point`, or "frank-wolfe", the paper's Algorithm 2. Both let those tasks
            decide whose hypergradients `d_t` are short, often tasks that are learned already. "mean" takes the mean of
            all hypergradients instead: the weights then follow the mean query loss. Not in the paper.
        heads: whether the products on heads count. Without them a weight is judged by its effect on the shared
            parameters alone.
        normalize: measure `d_c` in units of the longest `d_t`. The step then does not depend on eta, T or the norms of
            the gradients: at most `step_size`, and less where the tasks disagree. Not in the paper.
        keep_sum: keep the sum of the weights at T, so that weighting does not change the length of the model's steps.
            Not in the paper.
        normalise: the same as `normalize`.

    With Adam, as in the paper's experiments: eq. 10 is the derivative through a step of plain gradient descent, and the
    paper uses it as it stands, without Adam's scaling. So do we: the query gradients are taken at the model
    that the optimizer, whichever it is, has made; the derivative of that model by the weights is that of gradient
    descent with rate eta, without momentum, scaling, weight decay or clipping. With a rate of 2e-5 the weights then
    hardly leave 1; raise `step_size` or set `normalize`.

    Differs from the paper: the exact point instead of Frank-Wolfe by default; weights are projected to be at least zero
    (clamped, the nearest such point; with `keep_sum` onto the simplex times T), which the paper's update does not
    ensure, and a negative weight would train a task to fail. A task at zero is still inspected and can recover. A query
    loss with a row of zeros does not stop the others. All tasks matter: `target` plays no part.

    Needs a batch of every task in each step, query losses in `after_step` (each with a graph of its own, looked up one
    by one: a mapping that computes them on demand saves memory), and `after_step` before the next update begins. An
    inspection costs a backward pass per task, hardly more than one of their sum, and the same with a forward pass on
    queries; T gradients are kept from `backward` to `after_step`, those of queries one at a time. As in the learner,
    `zero_grad` between the optimizer's step and `after_step` frees one more. On a GPU the learner takes all of them
    from one fused pass where it can (`gradients.fused`), and then those of queries are in memory together too.

    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> weighting = MetaWeighting(step_size=1.0, tasks=["a", "b"])
    >>> weighting.backward({"a": parameter.sum() ** 2 / 2, "b": 2 * parameter.sum()}, shared=[parameter])
    >>> parameter.data -= 0.5 * parameter.grad  # gradients 1 and 2: from 1 to 1 - 0.5 * 1.5 = 0.25
    >>> weighting.after_step({"a": parameter.sum() ** 2 / 2, "b": 2 * parameter.sum()}, learning_rate=0.5)
    >>> weighting.weights  # rows -0.25 * 0.25 * (1, 2) and -0.25 * 2 * (1, 2): the first has the smaller norm
    {'a': 1.0625, 'b': 1.125}
    """

    name: ClassVar[str] = "metaweighting"
    summary: ClassVar[str] = "weights that lower every task's loss on held-out parts of the training sets"
    paper: ClassVar[Paper | None] = METAWEIGHTING
    paper_options: ClassVar[Mapping[str, Any]] = {"solver": "frank-wolfe"}

    def __init__(
        self,
        *,
        query: Query = 0.1,
        step_size: float = 0.1,
        every: int = 1,
        solver: Solver = "exact",
        heads: bool = True,
        normalize: bool = False,
        keep_sum: bool = False,
        normalise: bool | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        if query != "dev" and (isinstance(query, str) or check_number(self.name, "query", query, above=0.0) >= 1.0):
            raise CrossTaskError(
                f"weighting '{self.name}': `query` must be a share below 1, or 'dev' for the dev sets; found "
                f"{shown(query)}."
            )
        self.held_out = HeldOut("query", query=query)
        self.step_size = check_number(self.name, "step_size", step_size, at_least=0.0)
        self.every = check_count(self.name, "every", every)
        check_choice(self.name, "solver", solver, SOLVERS)
        self.solver: Solver = solver
        self.heads = bool(heads)
        self.normalize = renamed(bool(normalize), normalise)
        self.keep_sum = bool(keep_sum)
        self._support: SupportGradients | None = None
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Start with a weight of 1 per task."""
        super().start(problem)
        self._weights = dict.fromkeys(self.tasks, 1.0)
        self._support = None

    def needs(self, step: int) -> Need:
        """Gradients on every `every`-th step and on those that add to the same update, and query losses after it."""
        if (step + 1) % self.every == 0 or self._support is not None:
            need = Need.EVERY_TASK | Need.GRADIENTS | Need.HELD_OUT
            return need | Need.HELD_OUT_PRODUCTS if self.heads else need
        return Need.EVERY_TASK

    @property
    def wants_held_out(self) -> bool:
        """Whether support gradients wait for query losses."""
        return self._support is not None

    def _step_weights(self) -> Mapping[str, float]:
        return {task: weight / len(self.tasks) for task, weight in self._weights.items()}

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """Keep the tasks' gradients of this step for `after_step`, which changes the weights."""
        if evidence.placer is not None:  # which keeps the gradients itself, for `learn_from_products`
            self._support = None
            return {}
        self._support = take_support(evidence, self._support, with_heads=self.heads)
        return {}

    def _learn_from_held_out(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None) -> None:
        """Algorithm 1 from line 3 on: products with the query gradients at the new model, then a step of the weights.

        Without support gradients it does nothing, so a loop may call `after_step` after every update. The shared
        parameters are those that `backward` had.
        """
        support, self._support = self._support, None
        if support is None or not losses:
            return
        ranks = self.ranks
        rows: list[Tensor] = []
        query_losses: dict[str, Tensor] = {}
        gradients = grads.each_gradient(losses, support.parameters, check=self.check_losses)
        groups: Iterable[list[NamedGradient]] = map(_alone, gradients)  # so that one is in memory at a time
        if isinstance(losses, grads.HasTaskGradients):
            groups = [list(gradients)]  # they come from one pass
        for group in groups:
            queries = []
            for task, loss, gradient in group:
                gradient.shared = ranks.slices(gradient.shared, support.parameters)
                head = ranks.slice_heads({task: dict(gradient.head)}, loss.device)[task]
                gradient.head = list(head.items())
                queries.append(gradient)
                query_losses[task] = loss
            rows.append(support.products(queries))
            del group, gradient, queries  # before the next are taken
        # Each rank has a slice of both gradients.
        products = support.of_tasks(ranks.sum(torch.cat(rows)).cpu(), self.tasks)  # [query tasks, tasks]
        values = ranks.sum(torch.stack(list(query_losses.values())).float()).tolist()
        self._learn_from_products(products, dict(zip(query_losses, values, strict=True)))

    def learn_from_products(self, products: Tensor, losses: Mapping[str, float], learning_rate: float) -> None:
        """Algorithm 1 from line 3 on, where the training loop has taken the products."""
        self.learning_rate = learning_rate
        weights_before = self._weights
        self._learn_from_products(products, losses)
        if self._refuse_if_not_finite(self._weights):
            self._weights = weights_before

    def _learn_from_products(self, products: Tensor, query_losses: Mapping[str, float]) -> None:
        gradients = hypergradients(products, self.learning_rate)  # [query tasks, tasks]
        direction, row_weights = common_direction(gradients, self.solver)
        # Rows with an overflow are not finite and set no unit.
        if self.normalize and direction.any():
            direction = direction / gradients[torch.isfinite(gradients).all(1)].norm(dim=1).max()
        weights = step_weights(to_vector(self._weights, self.tasks), direction, self.step_size, self.keep_sum)
        self._weights = by_task(self.tasks, weights)
        self._facts = {
            "query_losses": dict(query_losses),
            "shares": by_task(list(query_losses), row_weights),
            "conflict": inner_products.conflict(gradients @ gradients.T),
            "weights": self.weights,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the weights and the number of steps; states are saved between updates, without support gradients."""
        super().load_state_dict(state)
        self._support = None
