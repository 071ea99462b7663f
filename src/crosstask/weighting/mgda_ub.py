"""The minimum-norm combination of the gradients on the representation: MGDA at the cost of a plain step."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from crosstask.papers import MGDA as MGDA_PAPER
from crosstask.papers import Paper
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, Need
from crosstask.weighting.mgda import check_normalize, min_norm_weights
from crosstask.weighting.validation import check_count


class MGDAUB(Weighting):
    """The minimum-norm combination of the tasks' gradients on the representation, an upper bound of MGDA's problem.

    The weights solve (Sener & Koltun 2018, problem MGDA-UB)

        min over the simplex of  | sum_t alpha_t dL_t/dZ |^2 ,

    which bounds MGDA's problem up to the norm of dZ/dtheta, the same for all weights.

    - `alpha_t`: `weights[t]`, on the simplex;
    - `Z`: the representation, what the encoder hands to the heads: `representations[t]` for task t;
    - `dL_t/dZ`: by a backward pass through the head alone; their products are `representation_gram`.

    In the code: the problem is `mgda.min_norm_weights` on those products; then one backward pass through the encoder
    starts from `alpha_t dL_t/dZ_t` at all representations. Heads train on their own unweighted losses, as in
    Algorithm 2; parameters in `shared` that a head uses besides the representation get the weighted gradient.

    Args:
        normalize: as in `MGDA`; None in the paper, "loss+" in much later work.
        every: steps from one inspection to the next; 1 in the paper. In between, without representations, heads are
            weighted.
        normalise: the same as `normalize`.

    Differs from the paper: there all tasks have the same inputs and so one Z. Here each task has its own examples:
    where representations have the same shape they are multiplied position by position, as authors of text experiments
    did with separate batches; where shapes differ, products of different tasks are zero and the weights are in
    proportion to the inverse squared norms. The exact point instead of Frank-Wolfe; a task whose gradient is exactly
    zero is left out.

    Needs `backward(..., representations={task: tensor})` with the very tensors that the heads were given, and each task
    in each step (absent tasks keep their weights). Costs about a plain step, also with one graph for all tasks.

    >>> import torch
    >>> weighting = MGDAUB(tasks=["a", "b"])
    >>> encoder = torch.nn.Parameter(torch.ones(2))
    >>> z = 3.0 * encoder
    >>> weighting.backward({"a": z[0] ** 2 / 6, "b": z[1] ** 2 / 3}, representations={"a": z, "b": z})
    >>> {task: round(weight, 6) for task, weight in weighting.weights.items()}  # dL/dZ is (1, 0) and (0, 2)
    {'a': 0.8, 'b': 0.2}
    """

    name: ClassVar[str] = "mgda-ub"
    summary: ClassVar[str] = "the minimum-norm combination of gradients on the representation; costs a plain step"
    paper: ClassVar[Paper | None] = MGDA_PAPER

    def __init__(
        self,
        *,
        normalize: str | None = None,
        every: int = 1,
        normalise: str | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.normalize = check_normalize(self.name, normalize, normalise)
        self.every = check_count(self.name, "every", every)
        super().__init__(tasks, target)

    def needs(self, step: int) -> Need:
        """Representations on every step, so that heads are never weighted; a new combination on every `every`-th."""
        need = Need.REPRESENTATIONS | Need.EVERY_TASK
        if step % self.every == 0:
            need |= Need.LOSSES
        return need

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The minimum-norm point of this step's gradients on the representation."""
        return min_norm_weights(self.name, evidence.representation_gram, evidence.losses, self.normalize)
