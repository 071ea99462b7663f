"""Predictions for a target's own labels, each by models that were not trained on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, TaskSpec, select
from crosstask.data.metrics import Predictions
from crosstask.errors import CrossTaskError


class OutOfFold:
    """What several models say of labeled examples that trained none of them, fold by fold.

    A model that predicts an example in several folds (repeated cross-validation) is averaged over them.

    >>> spec = TaskSpec("mood", "classification", "text", ("-", "+"))
    >>> predictions = OutOfFold(spec, Examples(["so good", "so bad"], ["+", "-"]))
    >>> predictions.add("probe", [1], [[0.8, 0.2]])
    >>> predictions.add("probe", [0], [[0.4, 0.6]])
    >>> predictions.add("probe", [0], [[0.2, 0.8]])
    >>> predictions.of("probe").scores.tolist()
    [[0.30000000000000004, 0.7], [0.8, 0.2]]

    Args:
        spec: the task.
        examples: all labeled ones that are dealt to folds.
    """

    def __init__(self, spec: TaskSpec, examples: Examples) -> None:
        self.spec = spec
        labels = spec.encode(examples)
        if spec.kind == "regression":
            labels = np.asarray(labels) * spec.scale + spec.mean
        self.labels = labels
        self._sums: dict[str, dict[int, np.ndarray]] = {}  # by member and position
        self._counts: dict[str, dict[int, int]] = {}

    @property
    def members(self) -> list[str]:
        """The models, in the order in which they were added."""
        return list(self._sums)

    def add(self, member: str, positions: Sequence[int] | np.ndarray, outputs: Sequence[Any] | np.ndarray) -> None:
        """Add what a model says of the examples at these positions, which it was not trained on.

        Args:
            member: name of the model.
            positions: of the examples.
            outputs: `Predictions.outputs`: probabilities, for tagging of each word's labels, or numbers. Lists do too.
        """
        if len(positions) != len(outputs):
            raise CrossTaskError(f"'{member}' has {len(outputs)} predictions for {len(positions)} examples.")
        sums, counts = self._sums.setdefault(member, {}), self._counts.setdefault(member, {})
        for position, output in zip(np.asarray(positions).tolist(), outputs, strict=True):
            sums[position] = sums.get(position, 0.0) + np.asarray(output, dtype=np.float64)
            counts[position] = counts.get(position, 0) + 1

    def positions(self, members: Sequence[str] | None = None) -> list[int]:
        """The examples that all of these models have predicted; all models when none is named."""
        shared: set[int] | None = None
        for member in members or self.members:
            predicted = set(self._sums.get(member, ()))
            shared = predicted if shared is None else shared & predicted
        return sorted(shared or ())

    def of(self, member: str, positions: Sequence[int] | None = None) -> Predictions:
        """A model's predictions next to the true labels, for these examples or all that it has predicted."""
        if positions is None:
            positions = self.positions([member])
        sums, counts = self._sums[member], self._counts[member]
        outputs = [sums[position] / counts[position] for position in positions]
        if isinstance(self.labels, np.ndarray):
            return Predictions.of_outputs(self.spec, outputs, self.labels[np.asarray(positions, dtype=np.int64)])
        return Predictions.of_outputs(self.spec, outputs, select(self.labels, positions))

    def predictions(self, members: Sequence[str] | None = None) -> dict[str, Predictions]:
        """By model, for the examples that all of them have predicted: what `learn_weights` takes."""
        names = list(members or self.members)
        positions = self.positions(names)
        return {name: self.of(name, positions) for name in names}
