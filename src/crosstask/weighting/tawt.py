"""Target-aware weights: a task counts more the better its gradient agrees with the target's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor, nn

from crosstask.gradients.target_alignment import (
    ComparedLosses,
    InverseHessian,
    TargetAlignment,
    compare_with_targets,
)
from crosstask.weighting.base import HeldOut, Initial
from crosstask.weighting.evidence import Evidence, Need, check_shared
from crosstask.weighting.target_aware import TargetAware
from crosstask.weighting.validation import check_choice, check_count, check_number

Similarity = Literal["cosine", "dot", "exact"]
MAX_SOLVE_STEPS = 10_000
"""Products with a Hessian, each as costly as a step."""


class TAWT(TargetAware):
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

    >>> import torch
    >>> weighting = TAWT(tasks=["own", "like", "unlike"], target="own", every=1)
    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> losses = {"own": parameter.sum(), "like": 2.0 * parameter.sum(), "unlike": -parameter.sum()}
    >>> weighting.backward(losses, shared=[parameter])
    >>> {task: round(weight, 4) for task, weight in weighting.weights.items()}  # e : e : 1/e
    {'own': 0.4683, 'like': 0.4683, 'unlike': 0.0634}
    """

    name: ClassVar[str] = "tawt"
    summary: ClassVar[str] = "a task counts more the more its gradient agrees with the target's"
    paper_options: ClassVar[Mapping[str, Any]] = {"inspections": 4, "fresh": 64}

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
        self.damping = check_number(self.name, "damping", damping, at_least=0.0)
        self.solve_steps = check_count(self.name, "solve_steps", solve_steps, at_most=MAX_SOLVE_STEPS)
        self._inspection = Need.GRADIENTS | Need.SEPARATE_GRAPHS
        if similarity == "exact":
            self._inspection |= Need.SECOND_ORDER
        else:
            self._inspection |= Need.PRODUCTS
        for option, size in (("fresh", fresh), ("probe", probe)):
            if size is not None:
                self.held_out = HeldOut("fresh", size=check_count(self.name, option, size), need=self._inspection)
        super().__init__(
            step_size=step_size,
            sharpness=sharpness,
            inspections=inspections,
            every=every,
            average=average,
            smoothing=smoothing,
            initial=initial,
            tasks=tasks,
            target=target,
        )

    def needs(self, step: int) -> Need:
        """Gradients on every `every`-th step, and on those after it until an inspection was possible."""
        if self.held_out is not None:
            if (step + 1) % self.every == 0:
                return Need.TARGETS | Need.HELD_OUT
            return Need.TARGETS
        if step + 1 >= self.next_inspection and len(self.tasks) > 1:
            return Need.TARGETS | Need.SEVERAL_TASKS | self._inspection
        return Need.TARGETS | Need.SEVERAL_TASKS

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The weights from the next step on."""
        self._learn_from_alignment(evidence.align_with_targets(self._inverse_hessian()))
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
            self._learn_from_alignment(alignment)

    def _inverse_hessian(self) -> InverseHessian | None:
        if self.similarity != "exact":
            return None
        return InverseHessian(self.weights, self.damping, self.solve_steps)

    def _learn_from_alignment(self, alignment: TargetAlignment) -> None:
        """Eq. 2.8, with the derivative of the target's loss by each weight."""
        agreement = alignment.products
        if self.similarity == "cosine":
            agreement = alignment.cosines
        elif alignment.solved is not None:
            agreement = alignment.solved
        self._mirror_step(alignment, agreement)
