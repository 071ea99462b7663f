"""What is expected of each candidate before any fold, from what its method has brought on other targets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from crosstask.automl.candidates import Candidate, is_pretrained
from crosstask.automl.prior import WEAK_DEVIATION, Budget, Expectation, Prior
from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task

BASES = ("probe", "single")
NEARLY_EQUAL = 0.02
"""Difference of expected gains that is not worth to wait for: the deviation of each is larger."""
DOUBT = 0.02
"""What is taken off the gain where the ranking speaks against the sources that a candidate has."""


def base_of(candidates: Sequence[Candidate]) -> str:
    """The candidate that gains are over: the cheapest model of the target alone, which every round can measure."""
    names = [candidate.name for candidate in candidates]
    for name in BASES:
        if name in names:
            return name
    return next(candidate.name for candidate in candidates if not candidate.sources)


def with_rates(candidates: Sequence[Candidate], target: Task, budget: Budget, prior: Prior) -> list[Candidate]:
    """Candidates with the learning rates that their methods had on targets like this one.

    Args:
        candidates: of one search.
        target: with all its labels in `train`.
        budget: of those that fine-tune a pretrained encoder.
        prior: what is known of methods.
    """
    rated: list[Candidate] = []
    for candidate in candidates:
        if candidate.level == "fine-tuned":
            rate = prior.learning_rate(
                candidate.prior_name,
                kind=target.kind,
                num_labels=len(target.train),
                num_classes=num_classes_of(target),
                budget=budget,
                has_sources=bool(candidate.sources),
            )
            candidate = replace(candidate, learning_rate=rate)
        rated.append(candidate)
    return rated


def num_classes_of(target: Task) -> int | None:
    """Classes of which an example has one."""
    return len(target.labels) if target.kind in ("classification", "pair") else None


def expectations(
    candidates: Sequence[Candidate],
    target: Task,
    base: str,
    trust: Mapping[str, float],
    prior: Prior,
    budget: Budget | None = None,
) -> dict[str, Expectation]:
    """The gain over the base of each candidate by name, in units of the metric.

    Args:
        candidates: of one search.
        target: with all its labels in `train`.
        base: as `base_of` says.
        trust: by source, what part of a gain elsewhere it promises, by its ranking. A candidate has the trust of its
            best source; one with sources that promise nothing is expected to lose `DOUBT`.
        prior: what is known of methods.
        budget: of those that fine-tune a pretrained encoder.
    """

    def expect(candidate: Candidate) -> Expectation:
        # Layers on the features of a pretrained encoder are a network without one.
        return prior.expect(
            candidate.prior_name,
            kind=target.kind,
            pretrained=candidate.level != "network" and is_pretrained(candidate.encoder),
            num_labels=len(target.train),
            num_classes=num_classes_of(target),
            budget=budget if candidate.level == "fine-tuned" else None,
            has_sources=bool(candidate.sources),
        )

    scale = gain_scale(target)
    of_base = expect(next(candidate for candidate in candidates if candidate.name == base))
    expected: dict[str, Expectation] = {}
    for candidate in candidates:
        if candidate.name == base:
            expected[candidate.name] = Expectation(0.0, 0.0)
            continue
        of_candidate = expect(candidate)
        gain = of_candidate.gain - of_base.gain
        if candidate.sources:
            gain = _with_trust(gain, max(trust.get(name, 0.0) for name in candidate.sources))
        deviation = of_candidate.deviation or of_base.deviation or WEAK_DEVIATION  # none for what the prior calls base
        expected[candidate.name] = Expectation(scale * gain, scale * deviation)
    return expected


def with_updates(expected: Expectation, updates: int, measured_updates: int) -> Expectation:
    """Less gain is expected of fewer updates than it was measured with, in proportion; as much of more.

    >>> with_updates(Expectation(gain=0.1, deviation=0.05), updates=50, measured_updates=100)
    Expectation(gain=0.05, deviation=0.05)
    """
    part = min(1.0, updates / measured_updates)
    return replace(expected, gain=min(expected.gain, part * expected.gain))


def _with_trust(gain: float, trust: float) -> float:
    """A loss elsewhere is as likely with any source."""
    if not trust:
        return min(gain, 0.0) - DOUBT
    return trust * gain if gain > 0.0 else gain


def gain_scale(target: Task) -> float:
    """What a gain of 1 is in the target's metric: 1 for scores, the labels' standard deviation for an error."""
    if chosen_metric(target.spec).greater_is_better:
        return 1.0
    return float(np.std(np.asarray(target.train.labels, dtype=np.float64))) or 1.0


def by_expectation(candidates: Sequence[Candidate], gains: Mapping[str, float]) -> list[Candidate]:
    """Those first of which most is expected, of nearly equal ones the cheapest.

    Args:
        candidates: in any order.
        gains: that are expected of each, by name.
    """

    def position(candidate: Candidate) -> tuple[int, float]:
        return -round(gains[candidate.name] / NEARLY_EQUAL), candidate.batches

    return sorted(candidates, key=position)
