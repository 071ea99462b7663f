"""Weights sampled at each step: the baseline that a method must beat to be worth its cost."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from crosstask.papers import RANDOM_WEIGHTS, Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, by_task
from crosstask.weighting.validation import check_seed


class RandomWeights(Weighting):
    """Weights that are sampled at random in each step.

    In each step (Lin et al. 2022, the method RLW with the normal distribution)

        w = softmax(z),    z_t ~ N(0, 1) .

    - `w_t`: `weights[t]`, on the simplex; 1 / T on average.

    In the code: the sample is `RandomWeights.coefficients`.

    Args:
        seed: of the samples. They come from a separate generator, so that they are the same on every rank and do not
            change the model's random numbers.

    Differs from the paper: nothing; of its distributions this is the normal one.

    Needs nothing. Costs nothing beside a plain step. Every task gets a weight, in the order in which they were named,
    whether it takes part in the step or not.

    >>> weighting = RandomWeights(seed=0, tasks=["a", "b"])
    >>> weighting.backward({"a": torch.ones((), requires_grad=True)})
    >>> round(sum(weighting.weights.values()), 6)
    1.0
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "weights sampled anew at each step"
    paper: ClassVar[Paper | None] = RANDOM_WEIGHTS
    state_attributes: ClassVar[Mapping[str, str]] = {"generator": "_generator_state"}

    def __init__(
        self,
        *,
        seed: int = 0,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.seed = check_seed(self.name, seed)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """1 / T each until the first step, and a generator with the seed."""
        super().start(problem)
        self._generator_state = torch.Generator().manual_seed(self.seed).get_state()

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """A new sample, for the tasks that are absent too."""
        # A generator cannot be copied or saved, its state can.
        generator = torch.Generator()
        generator.set_state(self._generator_state)
        logits = torch.randn(len(self.tasks), generator=generator, dtype=torch.float64)
        self._generator_state = generator.get_state()
        return by_task(self.tasks, torch.softmax(logits, 0))
