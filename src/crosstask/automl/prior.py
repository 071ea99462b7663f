"""What is expected of a method before any fold: what it has brought on other targets.

`prior.json` holds measured gains, target by target; `docs/tools/auto_prior.py` makes it from the runs of the bench.
"""

import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, NotRequired

from typing_extensions import TypedDict

PRIOR_FILE = "prior.json"
PRETRAINED_BASE, NETWORK_BASE = "probe", "single"
"""What gains are over: with a pretrained encoder, and with a network that has none."""
ALONE: Mapping[str, str] = {
    "stacking": "probe",
    "normalized-joint": "single",
    "joint-then-target": "single",
    "pretrain": "single",
    "tawt": "single",
    "sources-first": "single-probed",
    "sources-first-then-target": "single-probed",
    "pretrain-probed": "single-probed",
    "label-transfer": "single-probed",
    "sources-then-contrast": "contrastive",
    "sources-first-named": "names-alone",
    "names": "names-alone",
}
"""What is left of a method where there are no sources."""

Budget = Literal["full", "short"]
"""A whole encoder with hundreds of updates, or its upper layers with a hundred."""
MEASURED_UPDATES: Mapping[Budget, int] = {"full": 300, "short": 100}
"""With which gains were measured, of networks as in `full`."""
WEAK_DEVIATION = 0.05
"""Of the gain of a method of which nothing is known; it counts like one target among those that were measured."""
LEAST_DEVIATION = 0.01
"""Even many suites do not foresee the next target to less than a point."""
SUITE_SHARE = 0.5
"""Of the variance of gains over targets, what targets of a suite have in common."""
OTHER_KIND, OTHER_FORM = 0.1, 0.02
"""What a target counts that has another kind of labels, or was measured with (without) a pretrained encoder: next to
nothing, for there a layer begins at nothing, here it has been trained on more than all sources."""
OTHER_BUDGET = 0.5
"""What a target counts that was measured with a pretrained encoder in another budget."""
HALVING_FACTOR = 4.0
"""With so many times more or fewer labels a target counts half, and with so many times more or fewer classes."""


class MeasuredTarget(TypedDict):
    """What each method had over the others on a target of the bench, with one number of labels.

    - `pretrained`: whether the encoder was;
    - `num_labels`: labeled examples, all classes together; `num_classes`: None where that is not written down, or where
      there are none;
    - `budget`: "full" for the bench itself, "short" for few updates of the upper layers;
    - `seeds`: how many draws of the labels each gain is a mean over, at least;
    - `gains`: by method, as fractions: 0.03 is three points;
    - `rates`: by method the learning rate, which was the best of a few on other targets.
    """

    suite: str
    target: str
    kind: str
    pretrained: bool
    num_labels: int
    num_classes: int | None
    budget: Budget
    seeds: int
    gains: dict[str, float]
    rates: NotRequired[dict[str, float]]


@dataclass(frozen=True)
class Expectation:
    """The gain in the metric that is expected of a method over the base, as a fraction.

    - `deviation`: how far the gain on one more target may lie from it, as a standard deviation.
    """

    gain: float
    deviation: float


@dataclass(frozen=True)
class Prior:
    """What has been measured, and what it lets expect of a method on one more target.

    Targets t of suite s have gains g_st. Their suite mean is drawn from a normal distribution around the method's gain
    mu, which is itself expected near 0, as in a hierarchical model with these variances:

        mu ~ N(0, max(D, d)^2)      m_s ~ N(mu, r d^2)      g_st ~ N(m_s, (1 - r) d^2)

    so that a suite with n_s targets tells of mu with the variance `r d^2 + (1 - r) d^2 / n_s`, and

        1 / v = 1 / max(D, d)^2 + sum_s w_s / (r d^2 + (1 - r) d^2 / n_s)
        gain = v sum_s w_s m_s / (r d^2 + (1 - r) d^2 / n_s)
        deviation^2 = d^2 + v

    - `g_st`: the gain over the base, of the same labels and updates; m_s: the mean over targets by their likeness;
    - `w`: likeness of a target: `OTHER_KIND`, `OTHER_FORM` and `OTHER_BUDGET` where it differs, and half for every
      `HALVING_FACTOR` times more or fewer labels, and classes; `w_s`: of the most alike target of the suite; `n_s`: all
      likenesses over this one;
    - `d^2`: variance of gains over targets, in which D^2 counts like one target more;
    - `D`: `WEAK_DEVIATION`; where gains of targets are further apart than that, so may methods be; `r`: `SUITE_SHARE`.

    So a gain that few suites have shown is drawn to nothing, more targets of the same suite are worth less than another
    suite, and the deviation has in it that the mean is uncertain.

    >>> row = MeasuredTarget(
    ...     suite="one",
    ...     target="a",
    ...     kind="pair",
    ...     pretrained=True,
    ...     num_labels=100,
    ...     num_classes=2,
    ...     budget="full",
    ...     seeds=5,
    ...     gains={"probe": 0.0, "stacking": 0.05},
    ... )
    >>> prior = Prior([row])  # d is 0.05 / sqrt(2), so that the row counts twice as much as nothing at all
    >>> expected = prior.expect("stacking", kind="pair", pretrained=True, num_labels=100)
    >>> round(expected.gain, 4), round(expected.deviation, 4)
    (0.0333, 0.0456)
    """

    measured: Sequence[MeasuredTarget]

    @classmethod
    def load(cls, without: Collection[str] = ()) -> "Prior":
        """What the package knows.

        Args:
            without: suites that are left out, because they are what will judge.
        """
        return cls([row for row in measured_targets() if row["suite"] not in without])

    def expect(
        self,
        method: str,
        *,
        kind: str,
        pretrained: bool,
        num_labels: int,
        num_classes: int | None = None,
        budget: Budget | None = None,
        has_sources: bool = True,
    ) -> Expectation:
        """What a method should bring over the base, which itself has the gain and the deviation 0.

        A method of which nothing is known has the gain 0 and the deviation `WEAK_DEVIATION`.

        Args:
            method: as the bench calls it.
            kind: of the target.
            pretrained: whether the encoder is; the base is "probe" then, and "single" otherwise.
            num_labels: labeled examples of the target.
            num_classes: of the target; where that is left out, or unknown of a measured one, classes are not compared.
            budget: in which it trains; where that is left out, budgets are not compared.
            has_sources: whether there are sources; without any, a method does what is left of it (`ALONE`).
        """
        if not has_sources:
            method = ALONE.get(method, method)
        base = PRETRAINED_BASE if pretrained else NETWORK_BASE
        if method == base:
            return Expectation(0.0, 0.0)
        evidence: dict[str, list[tuple[float, float]]] = {}
        for row in self.measured:
            if method in row["gains"] and base in row["gains"]:
                gain = row["gains"][method] - row["gains"][base]
                weight = likeness(row, kind, pretrained, num_labels, num_classes, budget)
                evidence.setdefault(row["suite"], []).append((gain, weight))
        return expectation(list(evidence.values()))

    def learning_rate(
        self,
        method: str,
        *,
        kind: str,
        num_labels: int,
        num_classes: int | None = None,
        budget: Budget,
        has_sources: bool = True,
    ) -> float | None:
        """The rate for a pretrained encoder: the geometric mean of those that the method had elsewhere, by likeness.

        None where it was not measured in this budget. Arguments are those of `expect`.
        """
        if not has_sources:
            method = ALONE.get(method, method)
        logarithms: list[float] = []
        weights: list[float] = []
        for row in self.measured:
            rate = row.get("rates", {}).get(method)
            if rate is not None and row["pretrained"] and row["budget"] == budget:
                logarithms.append(math.log(rate))
                weights.append(likeness(row, kind, True, num_labels, num_classes))
        if not weights:
            return None
        return float(f"{math.exp(statistics.fmean(logarithms, weights)):.1e}")


def likeness(
    row: MeasuredTarget,
    kind: str,
    pretrained: bool,
    num_labels: int,
    num_classes: int | None = None,
    budget: Budget | None = None,
) -> float:
    """What a target counts for another one, between 0 and 1."""
    weight = 1.0
    if row["kind"] != kind:
        weight *= OTHER_KIND
    if row["pretrained"] != pretrained:
        weight *= OTHER_FORM
    elif pretrained and budget is not None and row["budget"] != budget:
        weight *= OTHER_BUDGET
    weight *= halved(num_labels, row["num_labels"])
    if num_classes is not None and row["num_classes"] is not None:
        weight *= halved(num_classes, row["num_classes"])
    return weight


def halved(count: int, other: int) -> float:
    """One half for every `HALVING_FACTOR` times between two counts.

    >>> halved(100, 100), halved(25, 100), halved(400, 100)
    (1.0, 0.5, 0.5)
    """
    return 0.5 ** abs(math.log(max(count, 1) / max(other, 1), HALVING_FACTOR))


def expectation(suites: Sequence[Sequence[tuple[float, float]]]) -> Expectation:
    """The formulas of `Prior`: of each suite the gains of its targets, each with its likeness.

    >>> expectation([])
    Expectation(gain=0.0, deviation=0.05)
    """
    pairs = [pair for suite in suites for pair in suite]
    if not pairs:
        return Expectation(0.0, WEAK_DEVIATION)
    weights = [weight for _, weight in pairs]
    mean = statistics.fmean([gain for gain, _ in pairs], weights)
    squares = sum(weight * (gain - mean) ** 2 for gain, weight in pairs)
    variance = (WEAK_DEVIATION**2 + squares) / (1.0 + sum(weights))
    precision, total = 1.0 / max(WEAK_DEVIATION**2, variance), 0.0
    for suite in suites:
        of_suite = [weight for _, weight in suite]
        most = max(of_suite)
        suite_mean = statistics.fmean([gain for gain, _ in suite], of_suite)
        targets = sum(of_suite) / most
        suite_precision = most / (variance * (SUITE_SHARE + (1.0 - SUITE_SHARE) / targets))
        precision += suite_precision
        total += suite_precision * suite_mean
    deviation = math.sqrt(variance + 1.0 / precision)
    return Expectation(total / precision, max(deviation, LEAST_DEVIATION))


@cache
def measured_targets() -> tuple[MeasuredTarget, ...]:
    """What `prior.json` holds."""
    text = files("crosstask.automl").joinpath(PRIOR_FILE).read_text(encoding="utf-8")
    rows: list[MeasuredTarget] = json.loads(text)["measured"]
    return tuple(rows)
