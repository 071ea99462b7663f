"""Each task counts in proportion to one over its loss, so that all weighted losses are equal."""

from collections.abc import Mapping
from typing import ClassVar

from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence


class InverseLoss(Weighting):
    """Weights `w_t = (1 / L_t) / sum_s (1 / L_s)` of the losses `L_t` of this step."""

    name: ClassVar[str] = "inverse-loss"
    summary: ClassVar[str] = "one over the loss"

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """The new weights."""
        inverse = {task: 1.0 / max(loss, 1e-8) for task, loss in evidence.losses.items()}
        total = sum(inverse.values())
        return {task: value / total for task, value in inverse.items()}
