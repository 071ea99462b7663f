"""Model selection: which evaluation on the dev sets was the best so far."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from typing_extensions import TypedDict

from crosstask.data.metrics import Metric


class SelectionState(TypedDict):
    """A `ModelSelection` as plain values: the three of its best standing, and the rest."""

    best: list[float] | None
    evaluations_since_best: int
    first_errors: dict[str, float]


@dataclass(frozen=True, order=True)
class Standing:
    """How good a model is on the dev sets; of two standings the greater one is better.

    Fields are compared in this order:

    - `defined`: number of targets whose metric has a value. AUC on a dev set of one class, for instance, has none.
    - `score`: mean over those targets, higher is better.
    - `negative_loss`: on a small dev set scores tie often; the loss tells such models apart. Where no metric has a
      value it decides alone.
    """

    defined: int
    score: float
    negative_loss: float


@dataclass
class ModelSelection:
    """Keeps the best standing of a phase and counts the evaluations since.

    >>> from crosstask.data.metrics import METRICS
    >>> selection, accuracy = ModelSelection(), {"t": METRICS["accuracy"]}
    >>> [selection.update(accuracy, {"t": value}, {"t": 0.5}) for value in (float("nan"), 0.7, 0.6, float("nan"))]
    [True, True, False, False]
    >>> selection.score, selection.evaluations_since_best
    (0.7, 2)
    """

    best: Standing | None = None
    evaluations_since_best: int = 0
    first_errors: dict[str, float] = field(default_factory=dict)
    """With several targets, the first value of each metric that measures an error: the unit of later ones."""

    @property
    def score(self) -> float | None:
        """The best mean score, as a number of which higher is better; None where there is none."""
        if self.best is None or not self.best.defined:
            return None
        return self.best.score

    def update(self, metrics: Mapping[str, Metric], values: Mapping[str, float], losses: Mapping[str, float]) -> bool:
        """Take in one evaluation; True if it is the best so far.

        Args:
            metrics: the metric of each target that chooses its model.
            values: what each target's metric says; not finite where it has no value.
            losses: mean dev loss of each target.
        """
        standing = self._standing(metrics, values, losses)
        if self.best is not None and standing <= self.best:
            self.evaluations_since_best += 1
            return False
        self.best, self.evaluations_since_best = standing, 0
        return True

    def _standing(
        self, metrics: Mapping[str, Metric], values: Mapping[str, float], losses: Mapping[str, float]
    ) -> Standing:
        scores = []
        for target, value in values.items():
            if not math.isfinite(value):  # not defined, or the error of a model that diverged
                continue
            if metrics[target].greater_is_better:
                scores.append(value)
            elif len(metrics) == 1:
                scores.append(-value)
            else:
                # An error has the units of its labels, so it cannot be averaged with an accuracy, nor with an error
                # of another target. Relative to the first error it can.
                first = self.first_errors.setdefault(target, value)
                scores.append(_relative_improvement(first, value))
        negative_loss = -sum(losses.values()) / len(losses)
        if not math.isfinite(negative_loss):
            negative_loss = -math.inf  # comparable, and worse than any other
        return Standing(len(scores), sum(scores) / max(1, len(scores)), negative_loss)

    def state_dict(self) -> SelectionState:
        """Plain values for a checkpoint."""
        return {
            "best": None if self.best is None else list(astuple(self.best)),
            "evaluations_since_best": self.evaluations_since_best,
            "first_errors": dict(self.first_errors),
        }

    @classmethod
    def from_state(cls, state: SelectionState) -> "ModelSelection":
        """Go on from what `state_dict` returned."""
        best = None
        if state["best"] is not None:
            defined, score, negative_loss = state["best"]
            best = Standing(int(defined), score, negative_loss)
        return cls(best, state["evaluations_since_best"], dict(state["first_errors"]))


def _relative_improvement(first: float, error: float) -> float:
    if first <= 0.0:
        return -error
    return 1.0 - error / first
