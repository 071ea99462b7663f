"""Weights of single examples that follow the target: TAWT's sample weights, kept from epoch to epoch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError, unknown
from crosstask.gradients import task_gradients as grads
from crosstask.papers import TAWT as TAWT_PAPER
from crosstask.papers import Paper
from crosstask.weighting import checks
from crosstask.weighting.base import Weighting, weighted_backward
from crosstask.weighting.example_steps import effective_number, mirror_step_within, relative_products

Similarity = Literal["dot", "scaled"]
Initial = Literal["by-size", "uniform"]


class SampleTAWT(Weighting):
    """Target-aware weights of single source examples: those whose gradients agree with the target's count more.

    On a look, one step of mirror descent on the weights of the examples looked at (Chen et al. 2022, eq. 2.8),

        p_i <- p_i exp(-eta g_i) / normaliser,

    where g_i stands for the derivative of the target's loss by p_i, with the inverse Hessian of eq. 2.7 replaced by a
    multiple of the identity (App. B):

        dot:     g_i = -c <grad_0, grad_i>                                                (App. B)
        scaled:  g_i = -c <grad_0, grad_i> / rms,   rms = root mean square of the products of this look

    - `p_i`: weight of example i within its task, on the simplex: `example_weights / n_t`;
    - `eta`: `step_size`; `c`: `sharpness`;
    - `grad_0`: gradient of the target's loss on the shared parameters; `grad_i`: that of example i's own loss. Their
      `products` come from the loop, all of a batch at once: `crosstask.gradients.per_example`.

    In the code: eq. 2.8 is `mirror_step_within`; eq. 2.7 with the identity is `update_examples`; step 2 of Algorithm 1
    (the target's head, where the target does not train jointly) is `backward`.

    The paper's simplex over samples, one source: the loss is `sum_i p_i l_i`. Ours: the loop multiplies each loss by
    `example_weights = n_t p_i`, whose mean over the task is 1, and takes the mean as ever; the task then counts its own
    fixed weight omega_t, so that an example counts `omega_t p_i`. A target's examples count 1.

    Args:
        similarity: "dot" in the paper. "scaled" does not depend on how long gradients are, which differs by orders of
            magnitude between models and falls during training; it stands where the cosine stands for tasks, since
            lengths of single examples' gradients cannot be had from one pass.
        step_size: eta; 1 in the paper.
        sharpness: c; 5 in the paper. Left out, 5 with "dot" and 1 with "scaled".
        every: calls of `backward` from one look to the next. The paper looks at all examples every 5 epochs; a look at
            every fifth batch comes to the same number of looks per example.
        warmup: calls of `backward` before the first look, while heads are still random; 5 epochs in the paper.
        floor: an example counts at least so much; 0 in the paper.
        cap: an example counts at most so much; infinity in the paper.
        initial: the tasks' own weights: "by-size" in joint and pre-training, "uniform" in normalized joint training.
            Left out, the paradigm decides; in a loop of one's own, uniform.
        sizes: number of training examples of each task, where the learner does not tell.

    Differs from the paper: weights are bounded by `cap`. When a look sees some examples of a task alone, those share
    what they had (with all of them it is eq. 2.8 exactly). A simplex per source, and none for the target's examples
    in joint training. A sentence of a tagging task is one example. Products that are not finite change nothing.

    Needs the target's gradient and, for every example looked at, a product. Costs one pass in forward mode per batch
    looked at, about the time of a training step, and one float64 per source example. In a loop of one's own:

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
    weighs_examples = True
    observes_targets = True
    needs_every_task = True  # a look compares the step's source examples with the target's

    def __init__(
        self,
        *,
        similarity: Similarity = "scaled",
        step_size: float = 1.0,
        sharpness: float | None = None,
        every: int = 5,
        warmup: int = 50,
        floor: float = 0.0,
        cap: float = 10.0,
        initial: Initial | None = None,
        sizes: Mapping[str, int] | None = None,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.similarity = checks.choice(self.name, "similarity", similarity, get_args(Similarity))
        self.step_size = checks.number(self.name, "step_size", step_size, above=0.0)
        usual = 5.0 if similarity == "dot" else 1.0
        self.sharpness = usual if sharpness is None else checks.number(self.name, "sharpness", sharpness, above=0.0)
        self.every = checks.count(self.name, "every", every)
        self.warmup = checks.count(self.name, "warmup", warmup, at_least=0)
        self.floor = checks.number(self.name, "floor", floor, at_least=0.0)
        self.cap = math.inf if cap == math.inf else checks.number(self.name, "cap", cap, at_least=1.0)
        if self.floor > 1.0:
            raise CrossTaskError(
                f"weighting '{self.name}': `floor` must be at most 1, the mean of the weights; found {floor!r}."
            )
        self.initial = checks.choice(self.name, "initial", initial, (None, *get_args(Initial)))
        self.given_sizes = dict(sizes) if sizes is not None else None
        self._weights: dict[str, float] = {}
        self._log_weights: dict[str, Tensor] = {}
        self._opposed: dict[str, float] = {}
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """Every example counts 1; tasks by size or all the same."""
        if not self.targets:
            raise CrossTaskError(
                f"weighting '{self.name}' compares examples with the target, but no target is named: pass `target=...`."
            )
        known = self.given_sizes if self.given_sizes is not None else sizes
        sources = [task for task in self.tasks if task not in self.targets]
        for task in self.tasks if self.initial == "by-size" else sources:
            if known.get(task, 0) < 1:
                raise CrossTaskError(
                    f"weighting '{self.name}': the number of examples of task '{task}' is not known; pass `sizes`."
                )
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))
        if self.initial == "by-size":
            self._weights = {task: known[task] / sum(known[name] for name in self.tasks) for task in self.tasks}
        self._log_weights = {task: torch.zeros(known[task], dtype=torch.float64) for task in sources}
        self._opposed = {}

    @property
    def weights(self) -> dict[str, float]:
        """What each task counts; these do not change."""
        return dict(self._weights)

    @property
    def wants_products(self) -> bool:
        """After the warm-up, on every `every`-th step."""
        return bool(self._log_weights) and self.steps >= self.warmup and (self.steps - self.warmup) % self.every == 0

    def example_weights(self, task: str, positions: Sequence[int] | np.ndarray | Tensor) -> Tensor:
        """What these examples count, [batch] in float32; their mean over the whole task is 1."""
        places = torch.as_tensor(positions, dtype=torch.long).cpu()
        if task in self.targets:
            return torch.ones(len(places))
        return self._of(task)[self._checked(task, places)].exp().float()

    def update_examples(self, task: str, positions: Sequence[int] | np.ndarray | Tensor, products: Tensor) -> None:
        """One mirror step (eq. 2.8) among these examples, given `<grad_0, grad_i>` of each.

        An example that is named twice counts with the mean of its products. On several ranks every rank calls this for
        the same task, with the examples that it has.
        """
        log_weights = self._of(task)
        places = self._checked(task, torch.as_tensor(positions, dtype=torch.long).cpu())
        if products.shape != places.shape:
            raise CrossTaskError(
                f"weighting '{self.name}': {len(places)} examples of '{task}' need as many products, found shape "
                f"{tuple(products.shape)}."
            )
        seen, found = self._over_ranks(places, products.detach(), len(log_weights))
        if not len(seen):
            return
        agreement = found if self.similarity == "dot" else relative_products(found)
        exponents = self.step_size * self.sharpness * agreement  # -eta g_i
        log_weights[seen] = mirror_step_within(log_weights[seen], exponents, self.floor, self.cap)
        self._opposed[task] = float((found < 0.0).double().mean())

    def _over_ranks(self, places: Tensor, products: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Which examples were looked at on any rank, and their products; what is not finite is left out."""
        finite = torch.isfinite(products)
        device = products.device if self.num_ranks > 1 else torch.device("cpu")
        where = places.to(device)[finite.to(device)]
        sums_and_counts = torch.zeros(2, size, dtype=torch.float64, device=device)
        sums_and_counts[0].index_add_(0, where, products[finite].to(device).double())
        sums_and_counts[1].index_add_(0, where, torch.ones_like(where, dtype=torch.float64))
        sums, counts = self.reduce(sums_and_counts).cpu()
        seen = counts.nonzero()[:, 0]
        return seen, sums[seen] / counts[seen]

    def _of(self, task: str) -> Tensor:
        if task in self._log_weights:
            return self._log_weights[task]
        if not self.tasks:
            raise CrossTaskError(
                f"weighting '{self.name}' does not know its tasks: pass `tasks=[...]` or call `bind` first."
            )
        if task in self.targets:
            raise CrossTaskError(f"weighting '{self.name}': the examples of the target '{task}' always count 1.")
        raise unknown("task", task, self._log_weights)

    def _checked(self, task: str, places: Tensor) -> Tensor:
        size = len(self._of(task))
        if len(places) and (int(places.min()) < 0 or int(places.max()) >= size):
            raise CrossTaskError(
                f"weighting '{self.name}': task '{task}' has {size} examples, numbered from 0; found positions from "
                f"{int(places.min())} to {int(places.max())}."
            )
        return places

    def backward(
        self,
        losses: Mapping[str, Tensor],
        *,
        shared: Iterable[nn.Parameter] | None = None,
        probabilities: Mapping[str, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """One backward pass of the sum of `weight_t / q_t * loss_t`, each loss a mean of weighted examples already.

        The loss of a target outside the tasks (pre-training) reaches that target's own head alone; only then `shared`
        is needed.
        """
        self.check_losses(losses)
        self.steps += 1
        drawn = probabilities or {}
        observed = [task for task in losses if task not in self._weights]
        known = {id(parameter) for parameter in (self.check_shared(shared) if observed else ())}
        for task in observed:
            own = [leaf for leaf in grads.leaves_of(losses[task]) if id(leaf) not in known]
            if own:  # the graph is kept: it may be part of the one below
                factor = scale / drawn.get(task, 1.0)
                torch.autograd.backward(losses[task] * factor, inputs=own, retain_graph=True)
        trained = {task: loss for task, loss in losses.items() if task in self._weights}
        if trained:
            weighted_backward(trained, self._weights, probabilities, scale)

    def facts(self) -> dict[str, Any]:
        """After a look: how many examples each source is worth, and all together; the share that opposed the target.

        `effective_sample_size` is the paper's N_omega (Theorem 3.1) with `sum_i p_i^2` in place of `1 / n_t`, over the
        sources.
        """
        opposed, self._opposed = self._opposed, {}
        if not opposed:
            return super().facts()
        numbers = {task: effective_number(logs) for task, logs in self._log_weights.items()}
        share = sum(self._weights[task] for task in numbers)
        squares = sum((self._weights[task] / share) ** 2 / number for task, number in numbers.items())
        return {
            **super().facts(),
            "effective_examples": numbers,
            "effective_sample_size": 1.0 / squares,
            "opposed_examples": opposed,
        }

    def state_dict(self) -> dict[str, Any]:
        """The logarithms of all examples' weights, one source after another, and the number of steps."""
        return {
            "log_weights": torch.cat(list(self._log_weights.values())) if self._log_weights else torch.zeros(0),
            "sources": {task: len(logs) for task, logs in self._log_weights.items()},
            "opposed": dict(self._opposed),
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them over; the sources must be those of this run."""
        sizes = {task: int(size) for task, size in state["sources"].items()}
        expected = {task: len(logs) for task, logs in self._log_weights.items()}
        if sizes != expected:
            raise CrossTaskError(
                f"weighting '{self.name}': the state is for sources and sizes {sizes}, this run has {expected}."
            )
        parts = state["log_weights"].double().cpu().split(list(sizes.values()))
        self._log_weights = {task: part.clone() for task, part in zip(sizes, parts, strict=True)}
        self._opposed = {task: float(value) for task, value in state["opposed"].items()}
        self.steps = int(state["steps"])
