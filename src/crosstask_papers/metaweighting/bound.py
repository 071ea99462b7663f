"""How far MetaWeighting's weights can move at all, from how far the query losses fall."""

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from crosstask.runs.events import Row


class Reach(NamedTuple):
    """How far a weight can get from 1.

    - `alike`: where the query losses of all tasks fall alike;
    - `most`: whatever the tasks.
    """

    alike: float
    most: float


def reach_of_weights(first: Mapping[str, float], lowest: Mapping[str, float], step_size: float) -> Reach:
    """How far a weight can get from 1 in a run, from each task's query loss at the beginning and at its lowest.

    In a step of gradient descent the model moves by `eta / T` times the sum of all support gradients (weights are near
    1). To first order, query loss t then falls by `eta / T` times the sum over tasks i of the products
    `<grad L^q_t, grad L^s_i>`. But `eta / T` times each of these products is what eq. 10 has as the derivative of that
    loss by weight i: the entries of row `d_t` add up to the fall of query loss t. The weights move against a mixture of
    the rows, times `step_size`. So over a whole run,

    - a row's length is at most the sum of its entries (as long as no task's gradient opposes another's), and the
      shortest mixture is no longer than any row: no weight moves further than `step_size` times the fall of any one
      query loss, hence of that which falls least (`most`);
    - where all tasks fall alike, the mixture spreads that fall over the T weights: each moves by `step_size / T` times
      the fall (`alike`).

    A loss cannot fall below zero, so this holds however long one trains and whatever the learning rate. With Adam it is
    less: its steps lower the loss by far more than products of gradients times eta say, so that the fall is over before
    these have added up.

    >>> reach_of_weights({"a": 1.5, "b": 1.5}, {"a": 0.5, "b": 0.1}, step_size=0.5)
    Reach(alike=0.3, most=0.5)
    """
    falls = [max(first[task] - lowest[task], 0.0) for task in first]
    mean_fall = statistics.fmean(falls)
    return Reach(step_size / len(falls) * mean_fall, step_size * min(falls))


def reach_of(row: Row) -> Reach | None:
    """The same from the row of a run; None where it has no query losses."""
    if "query_losses" not in row:
        return None
    losses = row["query_losses"]
    return reach_of_weights(losses["first"], losses["lowest"], row["step_size"])


def largest_move(row: Row) -> float:
    """How far any weight was from 1, at the moments that are written down.

    >>> largest_move({"weights": [{"weights": {"a": 1.0, "b": 1.0}}, {"weights": {"a": 1.01, "b": 0.97}}]})
    0.03
    """
    moves = [abs(weight - 1.0) for moment in row["weights"] for weight in moment["weights"].values()]
    return round(max(moves), 6)
