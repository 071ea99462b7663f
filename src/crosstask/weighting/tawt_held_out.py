"""Target-aware weights by the target's loss on examples that did not train: TAWT, cross-fitted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from crosstask.gradients import inner_products
from crosstask.gradients import task_gradients as grads
from crosstask.gradients.distributed import Ranks
from crosstask.gradients.target_alignment import TargetAlignment
from crosstask.weighting.base import HeldOut, Initial, Problem
from crosstask.weighting.evidence import Evidence, Need
from crosstask.weighting.metaweighting import SupportGradients, take_support
from crosstask.weighting.target_aware import TargetAware
from crosstask.weighting.validation import check_choice, check_count

Similarity = Literal["cosine", "dot"]
MAX_PARTS = 100


class HeldOutTAWT(TargetAware):
    """Target-aware weights judged by examples of the target that do not train: more weight to what lowers their loss.

    The weighted step of the model, and what a weight in it does to the target's loss on held-out examples:

        theta' = theta - eta sum_t omega_t grad L_t(theta)
        d L_0^h(theta') / d omega_t = -eta <grad L_0^h(theta'), grad L_t(theta)>

    A few times in a run the weights take a step of mirror descent against it (Chen et al. 2022, eq. 2.8),

        omega_t <- omega_t exp(-s g_t) / normalizer,

        cosine:  g_t = -c cos(grad L_0^h(theta'), grad L_t(theta))
        dot:     g_t = -c <grad L_0^h(theta'), grad L_t(theta)>

    - `omega_t`: `weights[t]`, on the simplex; `s`: `step_size`; `c`: `sharpness`;
    - `L_t`: losses of the step, passed to `backward`; `theta`: the shared parameters, with the heads as they are;
    - `L_0^h`: the target's loss on examples that the step did not train on, passed to `after_step`;
    - `eta`: the model's learning rate, part of `c` here.

    TAWT compares tasks with the target's loss on examples that train. With few labels the model soon knows them: their
    gradient vanishes, what is left of it says how to memorize, and the target always agrees with itself. Here the
    target's own batch is judged like every other task, by what it does for examples that it has not seen.

    No label is lost: the target's training examples are dealt to `parts`. From one inspection to the next the learner
    leaves one part out of training, and then judges by it; the parts take turns, and after the last inspection all
    train. So each example trains and judges, but never both between two inspections. An example that has trained in an
    earlier turn is not new to the model, only out of practice: held-out losses are somewhat too low, the more so with a
    short distance between inspections.

    In the code: the derivative is `agreement_after_step`, of the gradients that `backward` leaves; eq. 2.8 is
    `simplex.mirror_step_of_logs`; N_omega (Theorem 3.1) is `effective_sample_size`.

    Args:
        similarity: "cosine", which does not depend on how long gradients are, or "dot", the derivative itself.
        parts: number of parts of the target's training examples that take turns in judging.
        size: held-out examples of an inspection at most, 64 as in the paper.
        step_size: s; 1 in the paper.
        sharpness: c. Gradients on held-out examples agree less than those on the same ones, so that weights move more
            slowly than with `tawt`.
        inspections: how often gradients are inspected in a run, at equal distances: twice per part unless said
            otherwise. Counts where the run's length is known (`expect`, which the learner calls).
        every: calls of `backward` from one inspection to the next, instead; 50 where neither it nor the length of the
            run is known.
        average: use the mean of the weights since the first inspection instead of the last ones.
        smoothing: fraction of the weight that all tasks share evenly, so that none is lost.
        initial: weights to start with, "by-size" or "uniform". Left out, the paradigm decides; in a loop of one's own,
            by size where sizes are known.

    Differs from the paper: held-out examples, and the gradient of their loss after the step in place of before it; the
    inverse Hessian of eq. 2.7, which stands for training to the end, is left out. Weights are stored as logarithms.
    Tasks absent from an inspection keep their weights, those present keep their sum. With several targets the mean of
    their held-out losses judges.

    Needs two tasks of the simplex in the same step, each loss with a graph of its own, and the targets' held-out losses
    in `after_step`, before the next update; a loop of one's own holds its examples out itself. The targets may stand
    outside the simplex (pre-training): their heads learn in every step, and their labels judge. An inspection costs a
    backward pass per task, hardly more than one of their sum, memory for the tasks' gradients, and a step on the
    held-out examples.

    >>> weighting = HeldOutTAWT(tasks=["own", "like", "unlike"], target="own", every=1)
    >>> parameter = torch.nn.Parameter(torch.ones(1))
    >>> losses = {"own": -parameter.sum(), "like": 2.0 * parameter.sum(), "unlike": -parameter.sum()}
    >>> weighting.backward(losses, shared=[parameter])
    >>> weighting.after_step({"own": parameter.sum()})  # the target's own batch was misleading
    >>> {task: round(weight, 4) for task, weight in weighting.weights.items()}  # 1/e : e : 1/e
    {'own': 0.1065, 'like': 0.787, 'unlike': 0.1065}
    """

    name: ClassVar[str] = "tawt-held-out"
    summary: ClassVar[str] = "a task counts more the more it lowers the target's loss on examples held out in turn"

    def __init__(
        self,
        *,
        similarity: Similarity = "cosine",
        parts: int = 5,
        size: int = 64,
        step_size: float = 1.0,
        sharpness: float = 1.0,
        inspections: int | None = None,
        every: int | None = None,
        average: bool = False,
        smoothing: float = 0.0,
        initial: Initial | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.similarity = check_choice(self.name, "similarity", similarity, get_args(Similarity))
        self.parts = check_count(self.name, "parts", parts, at_least=2, at_most=MAX_PARTS)
        self.held_out = HeldOut("parts", parts=self.parts, size=check_count(self.name, "size", size))
        self._support: SupportGradients | None = None
        super().__init__(
            step_size=step_size,
            sharpness=sharpness,
            inspections=2 * self.parts if inspections is None else inspections,
            every=every,
            average=average,
            smoothing=smoothing,
            initial=initial,
            tasks=tasks,
            target=target,
        )

    def start(self, problem: Problem) -> None:
        """By size or uniform, as `initial` says."""
        super().start(problem)
        self._support = None

    @property
    def _is_over(self) -> bool:
        """Whether no inspection is to come that could still change a step."""
        last = self.num_steps - 1
        if not self.has_fixed_distance:
            last = min(last, self.inspections * self.every)
        return self.next_inspection > last

    @property
    def held_out_part(self) -> int | None:
        """The part that the next inspection judges by."""
        if self._is_over:
            return None
        return (self.next_inspection // self.every - 1) % self.parts

    def needs(self, step: int) -> Need:
        """Gradients when an inspection is due, on steps that add to the same update, and the held-out loss after it."""
        is_due = step + 1 >= self.next_inspection and len(self.tasks) > 1 and not self._is_over
        if is_due or self._support is not None:
            return Need.TARGETS | Need.SEVERAL_TASKS | Need.GRADIENTS | Need.HELD_OUT
        return Need.TARGETS | Need.SEVERAL_TASKS

    @property
    def wants_held_out(self) -> bool:
        """Whether the gradients of an update wait for the held-out loss."""
        return self._support is not None

    def _can_learn_from(self, evidence: Evidence) -> bool:
        return len(evidence.tasks) > 1

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """Keep the tasks' gradients of this step for `after_step`, which changes the weights."""
        self._support = take_support(evidence, self._support, with_heads=False)
        return {}

    def _learn_from_held_out(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None) -> None:
        """Compare the kept gradients with that of the targets' losses; other losses are not looked up.

        Without kept gradients it does nothing, so a loop may call `after_step` after every update. The shared
        parameters are those that `backward` had.
        """
        support, self._support = self._support, None
        present = [task for task in losses if task in self.targets]
        if support is None or not present:
            return
        target_gradients: list[grads.Gradient] = []
        for task in present:
            loss = losses[task]
            self.check_losses({task: loss})
            gradient = grads.take_gradient(loss, support.parameters)
            target_gradients.append(self.ranks.slices(gradient.shared, support.parameters))
        alignment = agreement_after_step(support, target_gradients, self.ranks)
        if alignment.is_finite:
            agreement = alignment.cosines if self.similarity == "cosine" else alignment.products
            self._mirror_step(alignment, agreement)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the weights; states are saved between updates, without gradients."""
        super().load_state_dict(state)
        self._support = None


def agreement_after_step(
    support: SupportGradients, target_gradients: Sequence[grads.Gradient], ranks: Ranks | None = None
) -> TargetAlignment:
    """How the gradients of a step stand to those of held-out losses after it.

    `products`, times -eta, are the derivatives of the mean held-out loss by what each task counted in the step.

    Args:
        support: gradients of the step, on the shared parameters.
        target_gradients: of each target's held-out loss.
        ranks: of which each has a slice of all gradients; without them the gradients are complete.
    """
    direction = grads.mix(target_gradients, [1.0 / len(target_gradients)] * len(target_gradients))
    pairs: list[Tensor] = []
    for gradient in (*support.shared.values(), direction):
        pairs.append(torch.stack(inner_products.pair_products(gradient, direction)).to(support.parameters[0].device))
    totals = torch.stack(pairs)  # [tasks + 1, 2], the held-out loss last
    if ranks is not None:
        totals = ranks.sum(totals)
    products, squares = totals.cpu().T
    units = torch.tensor([support.factors[task] for task in support.shared], dtype=torch.float64) / support.scale
    return TargetAlignment(list(support.shared), products[:-1] * units, squares[:-1] * units**2, squares[-1])
