"""Weights that follow the target: a task counts more the more its gradient points the way the target's does."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.simplex import mirror_step_of_logs
from crosstask.papers import TAWT as TAWT_PAPER
from crosstask.papers import Paper
from crosstask.weighting import checks
from crosstask.weighting.base import Weighting, weighted_backward
from crosstask.weighting.target_alignment import Look, Solve, compare_with_targets

Similarity = Literal["cosine", "dot", "exact"]
Initial = Literal["by-size", "uniform"]
NEGLIGIBLE = 1e-20
"""A weight below this counts nothing in a step: it could not change a float, and tiny numbers are slow to work with."""


def effective_sample_size(weights: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """`N_omega = 1 / sum_t (omega_t^2 / n_t)`: how many examples weighted training is worth (Sec. 3, Theorem 3.1).

    >>> round(effective_sample_size({"a": 0.5, "b": 0.5}, {"a": 100, "b": 300}), 6)
    300.0
    """
    return 1.0 / sum(weight**2 / sizes[task] for task, weight in weights.items())


class TAWT(Weighting):
    """Target-aware weighted training: now and then, tasks whose gradients agree with the target's get more weight.

    Every `every` steps one step of mirror descent on the weights (Chen et al. 2022, eq. 2.8),

        omega_t <- omega_t exp(-eta g_t) / normaliser,

    where g_t stands for the derivative of the target's loss by omega_t, through what the weighted tasks would learn:

        cosine:  g_t = -c cos(grad_0, grad_t)                                             (Sec. 4)
        dot:     g_t = -c <grad_0, grad_t>                                                (App. B)
        exact:   g_t = -c grad_0' H^-1 grad_t,   H = sum_t omega_t Hessian of L_t          (eq. 2.7)

    - `omega_t`: `weights[t]`, on the simplex; `eta`: `step_size`; `c`: `sharpness`;
    - `grad_0`, `grad_t`: gradients of the target's and of task t's loss on the shared parameters, heads held fixed;
    - `H`: the same mixture's second derivatives, which never exist as a matrix.

    In the code: eq. 2.8 is `simplex.mirror_step_of_logs`; the cosine is `comparison.cosine_similarities`; eq. 2.7 is
    `hypergradient.conjugate_gradients` on `hypergradient.hessian_of`: one system `(H + damping) v = grad_0`, then the
    products `<v, grad_t>`; Algorithm 1 is `backward`; N_omega (Theorem 3.1) is `effective_sample_size`, which `facts`
    tells where sizes are known.

    The target is one of the tasks, and so part of the simplex (joint training), or is not (pre-training, `target` not
    among `tasks`). Then `backward` still takes its loss: its own head gets its gradient in every step (Algorithm 1,
    step 2), its gradient on the shared parameters only serves the comparison. With several targets grad_0 is the mean
    of their gradients, those of the targets present in the step.

    How many looks there are matters: each multiplies the target's own weight by exp(eta c) against a task at a right
    angle to it, so that in joint training it tends to one (0.87 to 0.99 in Table 5). A long run wants a larger `every`
    or a smaller `step_size`. "exact" magnifies the noise of small batches: give it a `probe` of some hundred examples.

    Args:
        similarity: "cosine" in the main experiments, "dot" for sample weights (App. B), "exact" in the derivation.
        step_size: eta; 1 in the paper.
        sharpness: c; 1 for joint training, the best of 1, 10, 30, 100 for pre-training, 5 with "dot".
        every: calls of `backward` from one look to the next; once an epoch in the authors' code.
        probe: None looks at the losses of the step itself. A number looks at fresh losses of so many examples per task,
            handed to `after_step`; 64 in the paper.
        damping: lambda in `(H + lambda I)^-1`, for "exact" alone; the paper assumes H to be invertible.
        solve_steps: at most so many products with H per look, for "exact" alone.
        initial: weights to start with: "by-size" in joint and pre-training, "uniform" in normalized joint training.
            Left out, the paradigm decides; in a loop of one's own, by size where sizes are known.

    Differs from the paper: the weights are kept as logarithms, so that one too small for a float can still come back
    (there is no floor, as in the paper; below 1e-20 a step leaves the task out). Without `probe` gradients come from
    the training batches, before the step's update. Tasks absent from a look keep their weights, those present share
    what they had. H is damped, and where it is not positive the solution is cut short. For fixed final weights
    (Table 6) train anew with `Fixed(run.weights)`.

    Needs the target and two tasks of the simplex in the same step, each loss with a graph of its own; a look waits for
    such a step, and for gradients that are finite. A look costs a backward pass per task, hardly more than one of their
    sum, and memory for one more gradient; the step itself still uses the old weights. "exact" keeps all graphs for
    second derivatives and walks them up to `solve_steps` times; attention must allow that (eager or math attention: the
    learner sees to it, a loop of one's own goes by `needs_second_order`).
    Gradient checkpointing must be of the kind `use_reentrant=False`.

    >>> weighting = TAWT(tasks=["own", "like", "unlike"], target="own", every=1)
    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> losses = {"own": parameter.sum(), "like": 2.0 * parameter.sum(), "unlike": -parameter.sum()}
    >>> weighting.backward(losses, shared=[parameter])
    >>> {task: round(weight, 4) for task, weight in weighting.weights.items()}  # e : e : 1/e
    {'own': 0.4683, 'like': 0.4683, 'unlike': 0.0634}
    """

    name: ClassVar[str] = "tawt"
    summary: ClassVar[str] = "a task counts more the more its gradient agrees with the target's"
    paper: ClassVar[Paper | None] = TAWT_PAPER
    held_out: ClassVar[Literal["query", "probe"]] = "probe"
    observes_targets = True

    def __init__(
        self,
        *,
        similarity: Similarity = "cosine",
        step_size: float = 1.0,
        sharpness: float = 1.0,
        every: int = 50,
        probe: int | None = None,
        damping: float = 0.1,
        solve_steps: int = 10,
        initial: Initial | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.similarity = checks.choice(self.name, "similarity", similarity, get_args(Similarity))
        self.step_size = checks.number(self.name, "step_size", step_size, above=0.0)
        self.sharpness = checks.number(self.name, "sharpness", sharpness, above=0.0)
        self.every = checks.count(self.name, "every", every)
        self.probe = None if probe is None else checks.count(self.name, "probe", probe)
        self.damping = checks.number(self.name, "damping", damping, at_least=0.0)
        self.solve_steps = checks.count(self.name, "solve_steps", solve_steps)
        self.initial = checks.choice(self.name, "initial", initial, (None, *get_args(Initial)))
        self.needs_held_out, self.held_out_size = probe is not None, self.probe
        self.needs_every_task = probe is None
        self.needs_second_order = similarity == "exact"
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """By size or all the same, as `initial` says."""
        if not self.targets:
            raise CrossTaskError(
                "weighting 'tawt' compares every task with the target, but no target is named: pass `target=...`."
            )
        self.sizes = {task: sizes[task] for task in self.tasks if sizes.get(task, 0) > 0}
        unknown = [task for task in self.tasks if task not in self.sizes]
        if self.initial == "by-size" and unknown:
            raise CrossTaskError(
                f"weighting 'tawt': `initial` is 'by-size', but the number of examples of task '{unknown[0]}' is not "
                "known. Pass `sizes` to `bind`, or choose 'uniform'."
            )
        self._log_weights = torch.zeros(len(self.tasks), dtype=torch.float64)
        if self.initial != "uniform" and not unknown:
            counts = torch.tensor([self.sizes[task] for task in self.tasks], dtype=torch.float64)
            self._log_weights = (counts / counts.max()).log()
        self.last_look = 0

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts; a target outside the simplex is not among them."""
        return dict(zip(self.tasks, torch.softmax(self._log_weights, 0).tolist(), strict=True))

    @property
    def looks_at_gradients(self) -> bool:
        """On every `every`-th step, and on those after it until a look was possible."""
        due = self.steps + 1 >= (self.last_look // self.every + 1) * self.every
        return due and self.probe is None and len(self.tasks) > 1

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """Algorithm 1: the weighted step, the target's head, and on a look the weights from the next step on."""
        self.check_losses(losses)
        looks = self.looks_at_gradients and self._can_compare(losses)
        self.steps += 1
        drawn = probabilities or {}
        weights = {task: weight if weight >= NEGLIGIBLE else 0.0 for task, weight in self.weights.items()}
        factors = {task: weights.get(task, 1.0) / drawn.get(task, 1.0) for task in losses}
        observed = [task for task in losses if task not in weights]
        if looks:
            self._look(losses, shared, factors=factors, observed=observed, scale=scale)
            return
        known = {id(parameter) for parameter in (self.check_shared(shared) if observed else ())}
        for task in observed:
            own = [leaf for leaf in grads.leaves_of(losses[task]) if id(leaf) not in known]
            if own:  # the graph is kept: it may be part of the one below
                torch.autograd.backward(losses[task] * (scale * factors[task]), inputs=own, retain_graph=True)
        trained = {task: loss for task, loss in losses.items() if task in weights}
        if trained:
            weighted_backward(trained, weights, probabilities, scale)

    def after_step(
        self, held_out_losses: Mapping[str, Tensor], *, shared: Iterable[nn.Parameter] | None = None
    ) -> None:
        """The look at losses of a probe, if there is one; nothing goes into `.grad`."""
        losses = dict(held_out_losses)  # each looked up once: they may be computed when asked
        self.check_losses(losses)
        if self.probe is not None and self._can_compare(losses):
            self._look(losses, shared)

    def _can_compare(self, losses: Mapping[str, Tensor]) -> bool:
        return any(task in self.targets for task in losses) and sum(task in self.tasks for task in losses) > 1

    def _look(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None, **how: Any) -> None:
        """Compare gradients, and learn from that unless something overflowed: then the next step is looked at."""
        solve = Solve(self.weights, self.damping, self.solve_steps) if self.similarity == "exact" else None
        reduce = self.reduce if self.num_ranks > 1 else None
        try:
            look = compare_with_targets(
                losses, self.targets, self.check_shared(shared), solve=solve, reduce=reduce, **how
            )
        except RuntimeError as error:
            if "second time" not in str(error):
                raise
            raise CrossTaskError(
                "weighting 'tawt' takes each task's gradient by itself on this step, but losses share a graph. Where "
                "`looks_at_gradients` says so, run the model once for every task."
            ) from error
        if look.is_finite:
            self.last_look = self.steps
            self._learn(look)

    def _learn(self, look: Look) -> None:
        """Eq. 2.8 among the tasks that were seen: together they keep what they had."""
        related = look.cosines if self.similarity == "cosine" else look.products if look.solved is None else look.solved
        found = dict(zip(look.tasks, (-related * self.sharpness).tolist(), strict=True))
        slopes = {task: found[task] for task in self.tasks if task in found}
        places = [self.tasks.index(task) for task in slopes]
        before = self._log_weights[places]
        after = mirror_step_of_logs(before, torch.tensor(list(slopes.values()), dtype=torch.float64), self.step_size)
        moved = self._log_weights.clone()
        moved[places] = after + before.logsumexp(0) - after.logsumexp(0)
        self._log_weights = moved - moved.max()

        self._facts = {**look.facts(self.targets), "weight_gradient": slopes}
        if len(self.sizes) == len(self.tasks):
            self._facts["effective_sample_size"] = effective_sample_size(self.weights, self.sizes)

    def state_dict(self) -> dict[str, Any]:
        """The weights as logarithms, the largest zero; the number of steps, and when the last look was."""
        logs = dict(zip(self.tasks, self._log_weights.tolist(), strict=True))
        return {"log_weights": logs, "steps": self.steps, "last_look": self.last_look}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them over."""
        logs = [float(state["log_weights"][task]) for task in self.tasks]
        self._log_weights = torch.tensor(logs, dtype=torch.float64)
        self.steps, self.last_look = int(state["steps"]), int(state["last_look"])
