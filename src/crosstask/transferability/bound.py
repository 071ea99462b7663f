"""The bound on what a target loses by learning its representation elsewhere, term by term."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from crosstask.errors import CrossTaskError
from crosstask.weighting.tawt import effective_sample_size


@dataclass(frozen=True)
class BoundTerms:
    """The three terms of Theorem 3.1, the first two up to a constant that nobody knows."""

    head: float
    representation: float
    distance: float


def bound_terms(
    distance: float,
    weights: Mapping[str, float],
    sizes: Mapping[str, int],
    target_size: int,
    *,
    head_complexity: float,
    representation_complexity: float,
    transfer_exponent: float = 1.0,
    failure: float = 0.05,
) -> BoundTerms:
    """What bounds the excess risk of the target after training on weighted sources (Theorem 3.1, eq. 3.6).

        head:            ((nu_F + log 1/delta) / n_0)^(1/2)
        representation:  ((nu_Phi + T nu_F + log 1/delta) / N_omega)^(1 / (2 rho))
        distance:        dist(sum_t omega_t D_t, D_0)

    The bound is `C' (head + representation) + distance`. C' depends on Lipschitz constants and is not known, so terms
    of one kind can be compared between weights and sizes, but not a first term with a third one.

    Args:
        distance: of Definition 3.1, such as `task_distance(...).mean`.
        weights: omega, on the simplex.
        sizes: n_t by source.
        target_size: n_0.
        head_complexity: nu_F; in the order of the number of parameters of a head.
        representation_complexity: nu_Phi; in the order of the number of parameters of the encoder.
        transfer_exponent: rho of Definition 3.2.
        failure: delta; the bound holds with probability 1 - delta.

    >>> terms = bound_terms(0.1, {"a": 0.5, "b": 0.5}, {"a": 200, "b": 200}, 100, head_complexity=1,
    ...                     representation_complexity=2, failure=1.0)
    >>> terms.head, terms.representation, terms.distance  # sqrt(1 / 100), sqrt((2 + 2) / 400)
    (0.1, 0.1, 0.1)
    """
    positive = {
        "target_size": target_size,
        "head_complexity": head_complexity,
        "representation_complexity": representation_complexity,
        "transfer_exponent": transfer_exponent,
        "failure": failure,
    }
    for name, value in positive.items():
        if not value > 0:
            raise CrossTaskError(f"`{name}` must be above 0, found {value}.")
    for task in weights:
        if sizes.get(task, 0) < 1:
            raise CrossTaskError(f"The number of examples of task '{task}' is not known: name it in `sizes`.")
    log = math.log(1.0 / failure)
    complexity = representation_complexity + len(weights) * head_complexity + log
    return BoundTerms(
        head=math.sqrt((head_complexity + log) / target_size),
        representation=(complexity / effective_sample_size(weights, sizes)) ** (1.0 / (2.0 * transfer_exponent)),
        distance=distance,
    )
