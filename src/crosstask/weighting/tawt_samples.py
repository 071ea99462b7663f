"""Target-aware weights of single examples: TAWT's sample weights, learned over the epochs."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from crosstask.errors import CrossTaskError, unknown
from crosstask.gradients.simplex import effective_number, mirror_step_within
from crosstask.limits import MAY_BE_INFINITE
from crosstask.papers import TAWT as TAWT_PAPER
from crosstask.papers import Paper
from crosstask.quoting import shown
from crosstask.weighting.base import Initial, Problem, State
from crosstask.weighting.evidence import Facts, Need, by_task, to_vector
from crosstask.weighting.static import StaticWeighting
from crosstask.weighting.validation import check_choice, check_count, check_counts, check_number

Similarity = Literal["dot", "scaled"]
Positions = Sequence[int] | np.ndarray | Tensor


def relative_products(products: Tensor) -> Tensor:
    """Products over their root mean square, so that the norms of the gradients do not matter.

    >>> relative_products(torch.tensor([7.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])).tolist()
    [2.8, -0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    root_mean_square = products.double().square().mean().sqrt()
    if root_mean_square == 0.0:
        return torch.zeros_like(products, dtype=torch.float64)
    return products.double() / root_mean_square


class SampleTAWT(StaticWeighting):
    """Target-aware weights of single source examples: those whose gradients agree with the target's count more.

    Every few steps, a step of mirror descent on the weights of the batch's source examples (Chen et al. 2022, eq. 2.8),

        p_i <- p_i exp(-eta g_i) / normalizer,

    where g_i stands for the derivative of the target's loss by p_i, with the inverse Hessian of eq. 2.7 replaced by a
    multiple of the identity (App. B):

        dot:     g_i = -c <grad_0, grad_i>                                                (App. B)
        scaled:  g_i = -c <grad_0, grad_i> / rms,   rms = root mean square of the products of this batch

    - `p_i`: weight of example i within its task, on the simplex: `example_weights / n_t`;
    - `eta`: `step_size`; `c`: `sharpness`;
    - `grad_0`: gradient of the target's loss on the shared parameters; `grad_i`: that of example i's loss. Their
      `products` come from the loop, all of a batch at once: `crosstask.gradients.per_example`.

    In the code: eq. 2.8 is `mirror_step_within`; eq. 2.7 with the identity is `update_examples`; step 2 of Algorithm 1
    (the target's head, where the target does not train jointly) is `backward`.

    The paper's simplex over samples, one source: the loss is `sum_i p_i l_i`. Ours: the loop multiplies each loss by
    `example_weights = n_t p_i`, whose mean over the task is 1, and takes the mean as usual; the task then counts its
    fixed weight omega_t, so that an example counts `omega_t p_i`. A target's examples count 1.

    Args:
        similarity: "dot" in the paper. "scaled" does not depend on the norms of gradients, which differ by orders of
            magnitude between models and fall during training. It takes the place of the cosine between tasks, since
            one pass does not give the norms of single examples' gradients.
        step_size: eta; 1 in the paper.
        sharpness: c; 5 in the paper. Left out, 5 with "dot" and 1 with "scaled".
        every: calls of `backward` from one update of weights to the next. The paper updates all examples every 5
            epochs; every fifth batch gives the same number of updates per example.
        warmup: calls of `backward` before the first update, while heads are still random; 5 epochs in the paper.
        floor: lower bound of an example's weight; 0 in the paper.
        cap: upper bound of an example's weight; infinity in the paper.
        initial: the tasks' fixed weights: "by-size" in joint and pre-training, "uniform" in normalized joint training.
            Left out, the paradigm decides; in a loop of one's own, uniform.
        sizes: number of training examples of each task, for a loop of one's own.

    Differs from the paper: weights are bounded by `cap`. An update of some examples of a task keeps their sum (with all
    of them it is eq. 2.8 exactly). A simplex per source, and none for the target's examples in joint training. A
    sentence of a tagging task is one example. Products that are not finite change nothing.

    Needs the target's gradient and a product for every example of an update. An update costs one forward-mode pass of
    the batch, about the time of a training step; the weights cost one float64 per source example. In a loop of one's
    own:

        weighting = SampleTAWT(tasks=["own", "other"], target="own", sizes={"own": len(own), "other": len(other)})
        for rows, batches in loader:                                  # rows["other"]: positions of the batch's examples
            if weighting.wants_products:
                parameters = dict(encoder.named_parameters())
                gradient = torch.autograd.grad(loss_of("own", own).mean(), list(parameters.values()))
                along = dict(zip(parameters, gradient))

                def losses_at(values):                                # of each example; dropout off
                    hidden = torch.func.functional_call(encoder, values, (batches["other"].inputs,))
                    return cross_entropy(heads["other"](hidden), batches["other"].labels, reduction="none")

                weighting.update_examples("other", rows["other"], example_products(losses_at, parameters, along))
            losses = {
                task: (weighting.example_weights(task, rows[task]) * loss_of(task, batch)).mean()
                for task, batch in batches.items()
            }
            weighting.backward(losses)
            optimizer.step(); optimizer.zero_grad()

    >>> weighting = SampleTAWT(similarity="dot", tasks=["own", "other"], target="own", sizes={"own": 9, "other": 4})
    >>> weighting.update_examples("other", [0, 2], torch.tensor([math.log(3.0) / 5.0, 0.0]))
    >>> [round(weight, 4) for weight in weighting.example_weights("other", [0, 1, 2, 3]).tolist()]  # 3 : 1, sum kept
    [1.5, 1.0, 0.5, 1.0]
    """

    name: ClassVar[str] = "tawt-samples"
    summary: ClassVar[str] = "a source example counts more the more its gradient agrees with the target's"
    paper: ClassVar[Paper | None] = TAWT_PAPER
    paper_options: ClassVar[Mapping[str, Any]] = {"similarity": "dot", "cap": math.inf}

    def __init__(
        self,
        *,
        similarity: Similarity = "scaled",
        step_size: float = 1.0,
        sharpness: float | None = None,
        every: int = 5,
        warmup: int = 50,
        floor: float = 0.0,
        cap: Annotated[float, MAY_BE_INFINITE] = 10.0,
        initial: Initial | None = None,
        sizes: Mapping[str, int] | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.similarity = check_choice(self.name, "similarity", similarity, get_args(Similarity))
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        if sharpness is None:
            sharpness = 5.0 if similarity == "dot" else 1.0
        self.sharpness = check_number(self.name, "sharpness", sharpness, above=0.0)
        self.every = check_count(self.name, "every", every)
        self.warmup = check_count(self.name, "warmup", warmup, at_least=0)
        self.floor = check_number(self.name, "floor", floor, at_least=0.0)
        self.cap = cap
        if cap != math.inf:
            self.cap = check_number(self.name, "cap", cap, at_least=1.0)
        if self.floor > 1.0:
            raise CrossTaskError(
                f"weighting '{self.name}': `floor` must be at most 1, the mean of the weights; found {shown(floor)}."
            )
        self.initial = check_choice(self.name, "initial", initial, (None, *get_args(Initial)))
        self.sizes = check_counts(self.name, "sizes", sizes)
        self._log_weights: dict[str, Tensor] = {}
        self._opposed: dict[str, float] = {}  # by task: fraction of the last update's examples with a negative product
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Every example counts 1; tasks by size or uniform."""
        super().start(problem)
        if not self.targets:
            raise CrossTaskError(
                f"weighting '{self.name}' compares examples with the target, but no target is named: pass `target=...`."
            )
        sizes = self.sizes or problem.sizes
        sources = [task for task in self.tasks if task not in self.targets]
        is_by_size = (self.initial or problem.initial) == "by-size"
        tasks_with_size = list(self.tasks) if is_by_size else sources
        for task in tasks_with_size:
            if sizes.get(task, 0) < 1:
                raise CrossTaskError(
                    f"weighting '{self.name}': the number of examples of task '{task}' is not known; pass `sizes`."
                )
        for task in sources:  # every example has a weight of its own
            if sizes[task] != problem.sizes.get(task, sizes[task]):
                raise CrossTaskError(
                    f"weighting '{self.name}': `sizes` gives task '{task}' {sizes[task]:,} examples, but it has "
                    f"{problem.sizes[task]:,}; leave `sizes` out."
                )
        if is_by_size:
            counts = to_vector(sizes, self.tasks)
            self._weights = by_task(self.tasks, counts / counts.sum())
        self._log_weights = {task: torch.zeros(sizes[task], dtype=torch.float64) for task in sources}
        self._opposed = {}

    def needs(self, step: int) -> Need:
        """Products of the batch's examples on every `every`-th step after the warm-up."""
        need = Need.TARGETS | Need.SEVERAL_TASKS | Need.EXAMPLE_WEIGHTS
        is_due = step >= self.warmup and (step - self.warmup) % self.every == 0
        if self._log_weights and is_due:
            need |= Need.EXAMPLE_PRODUCTS
        return need

    @property
    def wants_products(self) -> bool:
        """Whether `update_examples` should be called before the next `backward`."""
        return Need.EXAMPLE_PRODUCTS in self.needs(self.steps)

    def example_weights(self, task: str, positions: Positions) -> Tensor:
        """What these examples count, [batch] in float32; the mean over all examples of the task is 1."""
        index = torch.as_tensor(positions, dtype=torch.long).cpu()
        if task in self.targets:
            return torch.ones(len(index))
        log_weights = self._log_weights_of(task)
        self._check_positions(task, index)
        return log_weights[index].exp().float()

    def update_examples(self, task: str, positions: Positions, products: Tensor) -> None:
        """One mirror step (eq. 2.8) among these examples, given `<grad_0, grad_i>` of each.

        An example that is named twice counts with the mean of its products. On several ranks every rank calls this for
        the same task, with the examples that it has.
        """
        log_weights = self._log_weights_of(task)
        index = torch.as_tensor(positions, dtype=torch.long).cpu()
        self._check_positions(task, index)
        if products.shape != index.shape:
            raise CrossTaskError(
                f"weighting '{self.name}': {len(index)} examples of '{task}' need as many products, found shape "
                f"{tuple(products.shape)}."
            )
        examples, mean_products = self._over_ranks(index, products.detach(), len(log_weights))
        if not len(examples):
            return
        agreement = mean_products  # [examples]
        if self.similarity == "scaled":
            agreement = relative_products(mean_products)
        # Only these examples exchange weight; their sum stays the same.
        exponents = self.step_size * self.sharpness * agreement  # -eta g_i
        log_weights[examples] = mirror_step_within(log_weights[examples], exponents, self.floor, self.cap)
        self._opposed[task] = float((mean_products < 0.0).double().mean())

    def _over_ranks(self, index: Tensor, products: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The examples of all ranks, and the mean product of each; what is not finite is left out."""
        is_finite = torch.isfinite(products)
        # Sums over ranks are made on the device that the ranks communicate by.
        device = products.device if self.num_ranks > 1 else torch.device("cpu")
        index, products = index.to(device)[is_finite.to(device)], products[is_finite].to(device).double()
        if self.num_ranks > 1 and self.ranks.number is None:
            # One entry per example of the task, whoever has it: [2, examples].
            sums_and_counts = torch.zeros(2, size, dtype=torch.float64, device=device)
            sums_and_counts[0].index_add_(0, index, products)
            sums_and_counts[1].index_add_(0, index, torch.ones_like(products))
            sums, counts = self.reduce(sums_and_counts).cpu()
            examples = counts.nonzero()[:, 0]
            return examples, sums[examples] / counts[examples]
        # As few numbers as there are examples in the step, and not in the task.
        index, products = self.ranks.join(index.double()).long().cpu(), self.ranks.join(products).cpu()
        examples, rows = index.unique(return_inverse=True)
        sums, counts = torch.zeros(2, len(examples), dtype=torch.float64)
        sums.index_add_(0, rows, products)
        counts.index_add_(0, rows, torch.ones_like(products))
        return examples, sums / counts

    def _log_weights_of(self, task: str) -> Tensor:
        if task in self._log_weights:
            return self._log_weights[task]
        if not self.tasks:
            raise CrossTaskError(
                f"weighting '{self.name}' does not know its tasks: pass `tasks=[...]` or call `bind` first."
            )
        if task in self.targets:
            raise CrossTaskError(f"weighting '{self.name}': the examples of the target '{task}' always count 1.")
        raise unknown("task", task, self._log_weights)

    def _check_positions(self, task: str, index: Tensor) -> None:
        size = len(self._log_weights[task])
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= size):
            raise CrossTaskError(
                f"weighting '{self.name}': task '{task}' has {size} examples, numbered from 0; found positions from "
                f"{int(index.min())} to {int(index.max())}."
            )

    def facts(self) -> Facts:
        """After an update: effective examples of each source and of all, and the fraction that opposes the target.

        `effective_sample_size` is the paper's N_omega (Theorem 3.1) with `sum_i p_i^2` in place of `1 / n_t`, over the
        sources.
        """
        opposed, self._opposed = self._opposed, {}
        if not opposed:
            return super().facts()
        numbers = {task: effective_number(logs) for task, logs in self._log_weights.items()}
        sources = list(numbers)
        omega = to_vector(self._weights, sources)  # [sources]
        squares = (omega / omega.sum()).square() / to_vector(numbers, sources)
        return {
            **super().facts(),
            "effective_examples": numbers,
            "effective_sample_size": 1.0 / float(squares.sum()),
            "opposed_examples": opposed,
        }

    def state_dict(self) -> State:
        """The logarithms of all examples' weights, one source after another, and the number of steps."""
        return {
            "log_weights": torch.cat([torch.zeros(0, dtype=torch.float64), *self._log_weights.values()]),
            "sources": {task: len(logs) for task, logs in self._log_weights.items()},
            "opposed": dict(self._opposed),
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them; the sources must be those of this run."""
        sizes = dict(state["sources"])
        expected = {task: len(logs) for task, logs in self._log_weights.items()}
        if sizes != expected:
            raise CrossTaskError(
                f"weighting '{self.name}': the state is for sources and sizes {shown(sizes)}, this run has "
                f"{shown(expected)}."
            )
        log_weights = state["log_weights"].double().cpu().clone()  # [examples of all sources]
        self._log_weights = dict(zip(sizes, log_weights.split(list(sizes.values())), strict=True))
        self._opposed = dict(state["opposed"])
        self.steps = int(state["steps"])
