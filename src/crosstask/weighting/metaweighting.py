"""Weights that lower every task's loss on examples that the step did not train on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads
from crosstask.papers import METAWEIGHTING, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import Query, Weighting, reduced_values, weighted_backward
from crosstask.weighting.lookahead import SOLVERS, Solver, Support, common_direction, hypergradients, step_weights

SMALL = 2**21
"""Shared parameters of a model whose gradients are copied into one vector rather than gone through one by one."""


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
    - `eta`: `learning_rate`, an attribute that the learner sets before each step; in a loop of one's own it stays at 1
      until set, which means a larger alpha and nothing else;
    - `alpha`: `step_size`;
    - `lambda`: `shares` in the record, where `conflict` is the share of the pairs of rows `d_t` at an obtuse angle.

    In the code: eq. 9 is `backward`; the rest is in `look_ahead.py`: eq. 10 is `hypergradients`, its products are
    `Support.products`; eq. 11 and 12 are `common_direction`; Algorithm 2 is `simplex.frank_wolfe`; eq. 13 is
    `step_weights`.

    A query gradient lives on the shared parameters and on its task's head. So `d_ti` is a product on the shared
    parameters, and for `i = t` on the head as well (in general: on all that both losses reach).

    Args:
        query: share of each training set that becomes the query set; 0.1 in the paper. Or "dev": the dev sets judge
            the weights too, and no example is kept from training; a task without one gives a tenth. Not in the paper.
        step_size: alpha; 0.1 for sentiment and 0.5 for topics in the paper.
        every: calls of `backward` from one look to the next; 1 in the paper. In between, a step is a plain joint step.
        solver: "exact" by `simplex.min_norm_point`, or "frank-wolfe", the paper's Algorithm 2. Both let those tasks
            decide whose slopes `d_t` are short, often what is learned already. "mean" takes the mean of all slopes
            instead: the weights then follow the mean query loss, for those who judge by an average. Not in the paper.
        heads: whether the products on heads count. Without them a weight is judged by what it does to the shared
            parameters alone.
        normalise: measure `d_c` in units of the longest `d_t`. The step then does not depend on eta, T or the size of
            the gradients: at most `step_size`, and less where the tasks disagree. Not in the paper.
        keep_sum: keep the sum of the weights at T, so that weighting does not change the length of the model's steps.
            Not in the paper.

    With Adam, as in the paper's experiments: eq. 10 is the derivative through a step of plain gradient descent, and the
    paper uses it as it stands, with no word of Adam's scaling. So do we: the query gradients are taken at the model
    that the optimizer, whichever it is, has made; the derivative of that model by the weights is that of gradient
    descent with rate eta, without momentum, scaling, weight decay or clipping. With a rate of 2e-5 the weights then
    hardly leave 1; raise `step_size` or set `normalise`.

    Differs from the paper: the exact point instead of Frank-Wolfe by default; weights are kept from going below zero by
    projection (clamped at zero, the nearest such point; with `keep_sum` onto the simplex times T), where nothing in the
    paper's update does so and a negative weight would train a task to fail. A task at zero goes on being looked at and
    can come back. A query loss with a row of zeros does not stop the others. All tasks matter: `target` plays no part.

    Needs a batch of every task in each step, query losses in `after_step` (each with a graph of its own, looked up one
    by one: a mapping that computes them when asked saves memory), and `after_step` before the next update begins. On a
    look it costs a backward pass per task, hardly more than one of their sum, and the same with a forward pass on
    queries; T gradients are kept from `backward` to `after_step`, those of queries one at a time. On a GPU the learner
    takes all of them from one fused pass where it can (`blockwise`), and then those of queries are held together too.

    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> weighting = MetaWeighting(step_size=1.0, tasks=["a", "b"])
    >>> weighting.learning_rate = 0.5
    >>> weighting.backward({"a": parameter.sum() ** 2 / 2, "b": 2 * parameter.sum()}, shared=[parameter])
    >>> parameter.data -= 0.5 * parameter.grad  # gradients 1 and 2: from 1 to 1 - 0.5 * 1.5 = 0.25
    >>> weighting.after_step({"a": parameter.sum() ** 2 / 2, "b": 2 * parameter.sum()})
    >>> weighting.weights  # rows -0.25 * 0.25 * (1, 2) and -0.25 * 2 * (1, 2): the first is the shortest mixture
    {'a': 1.0625, 'b': 1.125}
    """

    name: ClassVar[str] = "metaweighting"
    summary: ClassVar[str] = "weights that lower every task's loss on held-out parts of the training sets"
    paper: ClassVar[Paper | None] = METAWEIGHTING
    needs_held_out = True
    held_out: ClassVar[Literal["query", "probe"]] = "query"
    needs_every_task = True
    takes_fused_losses = True

    def __init__(
        self,
        *,
        query: Query = 0.1,
        step_size: float = 0.1,
        every: int = 1,
        solver: Solver = "exact",
        heads: bool = True,
        normalise: bool = False,
        keep_sum: bool = False,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        if query != "dev" and (isinstance(query, str) or checks.number(self.name, "query", query, above=0.0) >= 1.0):
            raise CrossTaskError(
                f"weighting '{self.name}': `query` must be a share below 1, or 'dev' for the dev sets; found {query!r}."
            )
        self.query = query
        self.step_size = checks.number(self.name, "step_size", step_size, above=0.0)
        self.every = checks.count(self.name, "every", every)
        checks.choice(self.name, "solver", solver, SOLVERS)
        self.solver: Solver = solver
        self.heads = bool(heads)
        self.normalise = bool(normalise)
        self.keep_sum = bool(keep_sum)
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 each."""
        self._weights = torch.ones(len(self.tasks), dtype=torch.float64)
        self._support: Support | None = None

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts; all start at 1, and the step takes the mean over tasks."""
        return dict(zip(self.tasks, self._weights.tolist(), strict=True)) if self.tasks else {}

    @property
    def looks_at_gradients(self) -> bool:
        """On every `every`-th step, and on those that add to the same update."""
        return (self.steps + 1) % self.every == 0 or self.wants_held_out

    @property
    def wants_held_out(self) -> bool:
        """Whether support gradients wait for query losses."""
        return bool(self.tasks) and self._support is not None

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """The gradient of `(1 / T) sum_t w_t L^s_t`, eq. 9; on a look the tasks' gradients wait for `after_step`."""
        self.check_losses(losses)
        drawn = probabilities or {}
        looks = self.looks_at_gradients
        self.steps += 1
        step = {task: weight / len(self.tasks) for task, weight in self.weights.items()}
        if not looks:
            weighted_backward(losses, step, drawn, scale)
            return
        parameters = self.check_shared(shared)
        begins = all(parameter.grad is None for parameter in parameters)  # what waits is of an update that is over
        support = Support(parameters) if begins or self._support is None else self._support
        own: dict[str, dict[Tensor, Tensor]] = {}
        taken: dict[str, grads.Gradient] = {}
        for task, _, gradient in grads.each_gradient(losses, parameters, scale):
            own[task] = dict(gradient.own) if self.heads else {}
            factor = step[task] / drawn.get(task, 1.0)
            grads.add_to_grad((*zip(parameters, gradient.shared, strict=True), *gradient.own), factor, keep=True)
            taken[task] = [self._over_ranks(part) for part in self._packed(gradient.shared, parameters)]
        for task, parts in self._heads_over_ranks(own, parameters[0].device).items():
            support.add(task, taken[task], parts, 1.0 / drawn.get(task, 1.0))
        support.scale += scale
        self._support = support

    def after_step(
        self, held_out_losses: Mapping[str, Tensor], *, shared: Iterable[nn.Parameter] | None = None
    ) -> None:
        """Algorithm 1 from line 3 on: products with the query gradients at the new model, then a step of the weights.

        Without support gradients that wait it does nothing, so a loop may call it after every update. The shared
        parameters are those that `backward` had.
        """
        support, self._support = self._support, None
        if support is None or not held_out_losses:
            return
        rows: dict[str, Tensor] = {}
        losses: dict[str, Tensor] = {}
        each = grads.each_gradient(held_out_losses, support.parameters, check=self.check_losses)
        for task, loss, gradient in each:
            packed = self._packed(gradient.shared, support.parameters)
            rows[task] = support.products(self.tasks, packed, dict(gradient.own))
            losses[task] = loss
        # Support gradients are whole on every rank, so the products of each rank's queries add up.
        self._learn(self._over_ranks(torch.stack(list(rows.values()))).cpu(), reduced_values(losses, self.reduce))

    def _learn(self, products: Tensor, query_losses: Mapping[str, float]) -> None:
        slopes = hypergradients(products, self.learning_rate)
        direction, shares = common_direction(slopes, self.solver)
        if self.normalise and direction.any():
            direction = direction / slopes[torch.isfinite(slopes).all(1)].norm(dim=1).max()
        self._weights = step_weights(self._weights, direction, self.step_size, self.keep_sum)
        self._facts = {
            "query_losses": dict(query_losses),
            "shares": dict(zip(query_losses, shares.tolist(), strict=True)),
            "conflict": grads.conflict(slopes @ slopes.T),
            "weights": self.weights,
        }

    def _packed(self, gradient: grads.Gradient, parameters: Sequence[nn.Parameter]) -> grads.Gradient:
        """As one vector where many small parts are slow: between ranks, on an accelerator, for a small model."""
        if self.num_ranks > 1 or parameters[0].is_cuda or sum(p.numel() for p in parameters) < SMALL:
            return [grads.flatten(gradient, parameters)]
        return gradient

    def _over_ranks(self, part: Any) -> Any:
        return self.reduce(part) if self.num_ranks > 1 else part

    def _heads_over_ranks(
        self, own: dict[str, dict[Tensor, Tensor]], device: torch.device
    ) -> dict[str, dict[Tensor, Tensor]]:
        """The same over all ranks. A rank without an example of a task does not see its head: then none counts it."""
        if self.num_ranks == 1 or not self.heads:
            return own
        entries = [float(sum(part.numel() for part in parts.values())) for parts in own.values()]
        sizes = torch.tensor(entries, dtype=torch.float64, device=device)
        agree = self.reduce(sizes) == self.num_ranks * sizes
        return {
            task: {leaf: self.reduce(part) for leaf, part in parts.items()} if agreed else {}
            for (task, parts), agreed in zip(own.items(), agree.tolist(), strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """The weights and the number of steps; to be called between updates, when no support gradient waits."""
        return {"weights": self.weights, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take both over."""
        self._weights = torch.tensor([float(state["weights"][task]) for task in self.tasks], dtype=torch.float64)
        self.steps = int(state["steps"])
        self._support = None
