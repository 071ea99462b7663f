"""Target-aware weights: a task counts more the better its gradient agrees with the target's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.gradients.simplex import mirror_step_of_logs
from crosstask.gradients.target_alignment import (
    ComparedLosses,
    InverseHessian,
    TargetAlignment,
    compare_with_targets,
)
from crosstask.papers import TAWT as TAWT_PAPER
from crosstask.papers import Paper
from crosstask.weighting.base import HeldOut, Initial, Problem, State, Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task, check_shared, to_vector
from crosstask.weighting.validation import check_choice, check_count, check_number

Similarity = Literal["cosine", "dot", "exact"]
MIN_WEIGHT = 1e-20
"""A weight below this counts as zero in a step: it could not change a float, and denormal numbers are slow."""
DEFAULT_EVERY = 50
"""Steps from one inspection to the next in a loop that says neither this nor how long it is."""
MAX_SOLVE_STEPS = 10_000
"""Products with a Hessian, each as costly as a step."""


def effective_sample_size(weights: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """`N_omega = 1 / sum_t (omega_t^2 / n_t)`: how many examples weighted training is worth (Sec. 3, Theorem 3.1).

    >>> round(effective_sample_size({"a": 0.5, "b": 0.5}, {"a": 100, "b": 300}), 6)
    300.0
    """
    return 1.0 / sum(weight**2 / sizes[task] for task, weight in weights.items())


class TAWT(Weighting):
    """Target-aware weighted training: tasks whose gradients agree with the target's get more weight.

    A few times in a run, one step of mirror descent on the weights (Chen et al. 2022, eq. 2.8),

        omega_t <- omega_t exp(-eta g_t) / normalizer,

    where g_t stands for the derivative of the target's loss by omega_t, through what the weighted tasks would learn:

        cosine:  g_t = -c cos(grad_0, grad_t)                                             (Sec. 4)
        dot:     g_t = -c <grad_0, grad_t>                                                (App. B)
        exact:   g_t = -c grad_0' H^-1 grad_t,   H = sum_t omega_t Hessian of L_t          (eq. 2.7)

    - `omega_t`: `weights[t]`, on the simplex; `eta`: `step_size`; `c`: `sharpness`;
    - `grad_0`, `grad_t`: gradients of the target's and of task t's loss on the shared parameters, with fixed heads;
    - `H`: the same mixture's second derivatives, which are never formed as a matrix.

    In the code: eq. 2.8 is `simplex.mirror_step_of_logs`; the cosine is `target_alignment.cosine_similarities`; eq. 2.7
    is `hessian.conjugate_gradients` on `hessian.hessian_of`: one system `(H + damping) v = grad_0`, then the products
    `<v, grad_t>`; Algorithm 1 is `backward`; N_omega (Theorem 3.1) is `effective_sample_size`, which `facts` reports
    where sizes are known.

    The target is one of the tasks, and so part of the simplex (joint training), or is not (pre-training, `target` not
    among `tasks`). Then `backward` still takes its loss: its own head gets its gradient in every step (Algorithm 1,
    step 2), its gradient on the shared parameters only serves the comparison. With several targets grad_0 is the mean
    of their gradients, those of the targets present in the step.

    The number of inspections matters: each multiplies the target's weight by exp(eta c) relative to a task whose
    gradient is orthogonal to its own, so that in joint training it tends to one, and many inspections turn a run into
    single-task training. So their number is fixed, not their distance. "exact" amplifies the noise of small batches:
    set `fresh` to some hundred examples.

    Args:
        similarity: "cosine" in the main experiments, "dot" for sample weights (App. B), "exact" in the derivation.
        step_size: eta; 1 in the paper.
        sharpness: c; 1 for joint training, the best of 1, 10, 30, 100 for pre-training, 5 with "dot".
        inspections: how often gradients are inspected in a run, at equal distances: 4 in the authors' code, once an
            epoch. Counts where the run's length is known (`expect`, which the learner calls).
        every: calls of `backward` from one inspection to the next, instead; 50 where neither it nor the length of the
            run is known.
        average: use the mean of the weights since the first inspection instead of the last ones (as DoReMi does).
        smoothing: fraction of the weight that all tasks share evenly, so that none is lost; 1e-3 in DoReMi.
        fresh: None compares gradients of the step's own losses. A number compares those of fresh losses of so many
            examples per task, which are passed to `after_step`; 64 in the paper.
        damping: lambda in `(H + lambda I)^-1`, for "exact" alone; the paper assumes H to be invertible.
        solve_steps: maximum number of products with H per inspection, for "exact" alone.
        initial: weights to start with: "by-size" in joint and pre-training, "uniform" in normalized joint training.
            Left out, the paradigm decides; in a loop of one's own, by size where sizes are known.
        probe: the former name of `fresh`.

    Differs from the paper: weights are stored as logarithms, so that one too small for a float can recover (there is no
    lower bound, as in the paper; below 1e-20 a step leaves the task out). Without `fresh` gradients come from the
    training batches, before the step's update. Tasks absent from an inspection keep their weights, those present keep
    their sum. H is damped, and conjugate gradients stop at negative curvature. For fixed final weights (Table 6) train
    anew with `Fixed(run.weights)`.

    Needs the target and two tasks of the simplex in the same step, each loss with a graph of its own; an inspection
    waits for such a step, and for gradients that are finite. It costs a backward pass per task, hardly more than one of
    their sum, and memory for one more gradient; the step itself still uses the old weights. "exact" keeps all graphs
    for second derivatives and walks them up to `solve_steps` times; attention must allow that (eager or math attention:
    the learner sees to it, a loop of one's own goes by `Need.SECOND_ORDER in weighting.needs(weighting.steps)`).
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
    paper_options: ClassVar[Mapping[str, Any]] = {"inspections": 4, "fresh": 64}
    is_delayed: ClassVar[bool] = True

    def __init__(
        self,
        *,
        similarity: Similarity = "cosine",
        step_size: float = 1.0,
        sharpness: float = 1.0,
        inspections: int = 4,
        every: int | None = None,
        average: bool = False,
        smoothing: float = 0.0,
        fresh: int | None = None,
        damping: float = 0.1,
        solve_steps: int = 10,
        initial: Initial | None = None,
        probe: int | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.similarity = check_choice(self.name, "similarity", similarity, get_args(Similarity))
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        self.sharpness = check_number(self.name, "sharpness", sharpness, above=0.0)
        self.inspections = check_count(self.name, "inspections", inspections)
        self.has_fixed_distance = every is not None
        self.every = check_count(self.name, "every", DEFAULT_EVERY if every is None else every)
        self.average = bool(average)
        self.smoothing = check_number(self.name, "smoothing", smoothing, at_least=0.0, at_most=1.0)
        self.damping = check_number(self.name, "damping", damping, at_least=0.0)
        self.solve_steps = check_count(self.name, "solve_steps", solve_steps, at_most=MAX_SOLVE_STEPS)
        self.initial = check_choice(self.name, "initial", initial, (None, *get_args(Initial)))
        self._inspection = Need.GRADIENTS | Need.SEPARATE_GRAPHS
        if similarity == "exact":
            self._inspection |= Need.SECOND_ORDER
        else:
            self._inspection |= Need.PRODUCTS
        for option, size in (("fresh", fresh), ("probe", probe)):
            if size is not None:
                self.held_out = HeldOut("fresh", size=check_count(self.name, option, size), need=self._inspection)
        self.last_inspection = 0
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """By size or uniform, as `initial` says."""
        super().start(problem)
        if not self.targets:
            raise CrossTaskError(
                "weighting 'tawt' compares every task with the target, but no target is named: pass `target=...`."
            )
        self.sizes = {task: problem.sizes.get(task, 0) for task in self.tasks}
        without_size = [task for task, size in self.sizes.items() if size < 1]
        initial = self.initial or problem.initial
        if initial == "by-size" and without_size:
            raise CrossTaskError(
                f"weighting 'tawt': `initial` is 'by-size', but the number of examples of task '{without_size[0]}' is "
                "not known. Pass `sizes` to `bind`, or choose 'uniform'."
            )
        self._has_sizes = not without_size
        log_weights = torch.zeros(len(self.tasks), dtype=torch.float64)  # [tasks], the largest zero
        if initial != "uniform" and self._has_sizes:
            counts = to_vector(self.sizes, self.tasks)
            log_weights = (counts / counts.max()).log()
        self._weight_sums = torch.zeros(len(self.tasks), dtype=torch.float64)  # [tasks], over all inspections
        self._num_inspections = 0
        self._set_log_weights(log_weights)
        self.last_inspection = 0

    def expect(self, num_steps: int) -> None:
        """Place the inspections at equal distances from each other and from both ends of the run."""
        if not self.has_fixed_distance:
            self.every = max(1, num_steps // (self.inspections + 1))

    def needs(self, step: int) -> Need:
        """Gradients on every `every`-th step, and on those after it until an inspection was possible."""
        if self.held_out is not None:
            if (step + 1) % self.every == 0:
                return Need.TARGETS | Need.HELD_OUT
            return Need.TARGETS
        next_inspection = (self.last_inspection // self.every + 1) * self.every
        if step + 1 >= next_inspection and len(self.tasks) > 1:
            return Need.TARGETS | Need.EVERY_TASK | self._inspection
        return Need.TARGETS | Need.EVERY_TASK

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The weights from the next step on."""
        self._mirror_step(evidence.align_with_targets(self._inverse_hessian()))
        return self._weights

    def _can_learn_from(self, evidence: Evidence) -> bool:
        return self._can_compare([*evidence.tasks, *evidence.observed])

    def _can_compare(self, tasks: Iterable[str]) -> bool:
        """Whether a target and two tasks of the simplex are there."""
        names = set(tasks)
        return not names.isdisjoint(self.targets) and len(names.intersection(self.tasks)) > 1

    def _learn_from_held_out(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None) -> None:
        losses = dict(losses)  # each looked up once: they may be computed on demand
        self.check_losses(losses)
        if self.held_out is None or not self._can_compare(losses):
            return
        compared = ComparedLosses(losses, self.targets, check_shared(self.name, shared), self.ranks)
        alignment = compare_with_targets(compared, self._inverse_hessian())
        if alignment.is_finite:
            self._mirror_step(alignment)

    def _inverse_hessian(self) -> InverseHessian | None:
        if self.similarity != "exact":
            return None
        return InverseHessian(self.weights, self.damping, self.solve_steps)

    def _mirror_step(self, alignment: TargetAlignment) -> None:
        """Eq. 2.8 among the tasks that were compared, whose weights keep their sum."""
        self.last_inspection = self.steps
        # 1. The derivative of the target's loss by each weight. A target outside the simplex has none.
        agreement = alignment.products
        if self.similarity == "cosine":
            agreement = alignment.cosines
        elif alignment.solved is not None:
            agreement = alignment.solved
        derivatives = by_task(alignment.tasks, -self.sharpness * agreement)
        gradient = {task: derivatives[task] for task in self.tasks if task in derivatives}
        # 2. The step, on the logarithms of the weights of these tasks.
        rows = [self.tasks.index(task) for task in gradient]
        before = self._log_weights[rows]  # [compared tasks]
        after = mirror_step_of_logs(before, to_vector(gradient, list(gradient)), self.step_size)
        updated = self._log_weights.clone()  # [tasks]
        updated[rows] = after + before.logsumexp(0) - after.logsumexp(0)
        self._weight_sums += torch.softmax(updated, 0)
        self._num_inspections += 1
        self._set_log_weights(updated - updated.max())
        # 3. The record.
        self._facts = {**alignment.facts(self.targets), "weight_gradient": gradient}
        if self._has_sizes:
            self._facts["effective_sample_size"] = effective_sample_size(self.weights, self.sizes)

    def _set_log_weights(self, log_weights: Tensor) -> None:
        """Take these as the point of mirror descent, and weigh tasks by it, by the mean of all points, or smoothed."""
        self._log_weights = log_weights
        weights = torch.softmax(log_weights, 0)  # [tasks]
        if self.average and self._num_inspections:
            weights = self._weight_sums / self._num_inspections
        if self.smoothing:
            weights = (1.0 - self.smoothing) * weights + self.smoothing / len(self.tasks)
        self._weights = by_task(self.tasks, weights)

    def _step_weights(self) -> Mapping[str, float]:
        step_weights = dict(self._weights)
        for task, weight in self._weights.items():
            if weight < MIN_WEIGHT:
                step_weights[task] = 0.0
        return step_weights

    def state_dict(self) -> State:
        """The logarithms of the weights, the largest zero; the number of steps, and of that at the last inspection.

        With `average` also the sum of the weights over inspections, and their number.
        """
        log_weights = by_task(self.tasks, self._log_weights)
        state: State = {"log_weights": log_weights, "steps": self.steps, "last_look": self.last_inspection}
        if self.average:
            state["weight_sums"] = by_task(self.tasks, self._weight_sums)
            state["num_inspections"] = self._num_inspections
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if self.average:
            self._weight_sums = to_vector(state["weight_sums"], self.tasks)
            self._num_inspections = int(state["num_inspections"])
        self._set_log_weights(to_vector(state["log_weights"], self.tasks))
        self.steps, self.last_inspection = int(state["steps"]), int(state["last_look"])
