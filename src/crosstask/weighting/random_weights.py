"""Weights drawn anew at each step: what a method must beat to be worth its cost."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from crosstask.papers import RANDOM_WEIGHTS, Paper
from crosstask.weighting import checks
from crosstask.weighting.base import LossWeighting


class RandomWeights(LossWeighting):
    """Weights that are drawn at random in each step.

    In each step (Lin et al. 2022, the method RLW with the normal distribution)

        w = softmax(z),    z_t ~ N(0, 1) .

    - `w_t`: `weights[t]`, on the simplex; 1 / T on average.

    In the code: the draw is `RandomWeights.update`.

    Args:
        seed: of the draws. They come from a generator of their own, so that they are the same on every rank and do not
            touch the model's random numbers.

    Differs from the paper: nothing; of its distributions this is the normal one.

    Needs nothing. Costs nothing beside a plain step. All tasks are drawn for, in the order in which they were named,
    whether they take part in the step or not.

    >>> weighting = RandomWeights(seed=0, tasks=["a", "b"])
    >>> weighting.update({})
    >>> round(sum(weighting.weights.values()), 6)
    1.0
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "weights drawn anew at each step"
    paper: ClassVar[Paper | None] = RANDOM_WEIGHTS

    def __init__(
        self,
        *,
        seed: int = 0,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self.seed = checks.count(self.name, "seed", seed, at_least=0)
        super().__init__(tasks, target)

    def start(self, sizes: Mapping[str, int]) -> None:
        """1 / T each, until the first draw."""
        self._weights = dict.fromkeys(self.tasks, 1.0 / len(self.tasks))
        self._generator_state = torch.Generator().manual_seed(self.seed).get_state()

    def update(self, values: Mapping[str, float]) -> None:
        """A new draw."""
        generator = torch.Generator()
        generator.set_state(self._generator_state)
        draws = torch.randn(len(self.tasks), generator=generator, dtype=torch.float64)
        self._generator_state = generator.get_state()
        self._weights = dict(zip(self.tasks, torch.softmax(draws, 0).tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The weights, the number of steps and the generator's state."""
        return {**super().state_dict(), "generator": self._generator_state.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them over."""
        super().load_state_dict(state)
        self._generator_state = state["generator"].clone()
