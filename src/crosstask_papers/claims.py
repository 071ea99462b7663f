"""Claims, and when one holds: tests over independent units, corrected for their number.

An experiment states its claims with `Claim.of_gains` and its like; `judged` then corrects all p-values of the
experiment together. No verdict is set by hand: it follows from the numbers.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from crosstask.runs.estimate import DASH, Estimate
from crosstask.studies.significance import holm, paired_t_test

Verdict = Literal[
    "holds", "same direction", "does not hold", "reversed", "count", "no test", "in-sample", "not measured"
]
SIGNIFICANT = 0.05
SMALLEST_P = 0.0001
"""Below it a p-value is not spelled out: with a handful of seeds, more zeros say nothing but that a curve has tails."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its figure, ours, and what a test says of it.

    - `figure`: ours, without a p-value;
    - `by_mean`: the verdict where chance could have made our figure, or nothing was tested;
    - `if_significant`: the verdict where it could not;
    - `over`: what is independent in the test, in the plural; empty where there is none;
    - `p`: two-sided, of this claim alone; `adjusted_p`: corrected for all claims of the experiment, see `judged`. A
      claim that is still alone has nothing to be corrected for.
    """

    text: str
    paper: str
    figure: str = DASH
    by_mean: Verdict = "not measured"
    if_significant: Verdict | None = None
    over: str = ""
    p: float | None = None
    adjusted_p: float | None = None

    def __post_init__(self) -> None:
        assert self.by_mean not in ("holds", "reversed"), "only a test can say so"

    @property
    def ours(self) -> str:
        """Our figure for people, with the corrected p-value of its test."""
        if self.adjusted_p is None:
            return self.figure
        return f"{self.figure}, {p_text(self.adjusted_p)}"

    @property
    def verdict(self) -> Verdict:
        """By the corrected p-value.

        - "holds", "reversed": the mean is where the claim says, or on the other side, beyond chance;
        - "same direction", "does not hold": what the mean alone says;
        - "count", "no test": a figure that nothing was tested about; "in-sample": one that chose what it judges;
        - "not measured": the runs are missing.
        """
        is_significant = self.adjusted_p is not None and self.adjusted_p < SIGNIFICANT
        if is_significant and self.if_significant is not None:
            return self.if_significant
        return self.by_mean

    @classmethod
    def of_gains(
        cls,
        text: str,
        paper: str,
        gains: Sequence[float],
        *,
        over: str,
        at_least: float = 0.0,
        digits: int = 2,
        unit: str = "",
        in_sample: bool = False,
    ) -> "Claim":
        """A claim that something is better, from one difference per independent unit: Student's t-test, two-sided.

        Args:
            text: the claim.
            paper: the paper's figure.
            gains: one number for each of what is independent. Pairs of the same seed or the same target are not: take
                their means first, see `by_seed_mean` and `by_target_mean`.
            over: what they are, in the plural: "seeds", "targets", "pairs of tasks".
            at_least: the mean that is claimed, and that the test compares with. Below zero it is a margin: the claim is
                that something is not worse by more than that (non-inferiority).
            digits: decimals of our figure.
            unit: of our figure, as it follows the mean.
            in_sample: the figure has chosen what it would judge, so that no test of it says anything.

        >>> claim = Claim.of_gains("b is better than a", "+1.0", [0.8, 1.1, 0.9], over="seeds")
        >>> claim.ours, claim.verdict
        ('+0.93 ± 0.15 over 3 seeds, p = 0.0088', 'holds')
        >>> Claim.of_gains("b is better than a", "+1.0", [0.8], over="seeds").verdict
        'same direction'
        >>> Claim.of_gains("b is not worse than a by 2", "0", [-0.8, -1.1, -0.9], over="seeds", at_least=-2.0).verdict
        'holds'
        """
        gain = Estimate.of(gains, digits=digits)
        if not gain.count:
            return cls(text, paper)
        figure = _figure(gain, over, unit)
        if in_sample:
            return cls(text, paper, figure, "in-sample", over=over)
        if at_least:
            figure += f", against {at_least:+.{digits}f}"
        p = paired_t_test([value - at_least for value in gains if math.isfinite(value)])
        if p is None:
            figure += ", no test"
        by_mean: Verdict = "does not hold"
        if gain.mean > min(at_least, 0.0):
            by_mean = "same direction"
        if_significant: Verdict = "reversed"
        if gain.mean > at_least:
            if_significant = "holds"
        elif at_least > 0:  # less than was claimed is not the contrary of it
            if_significant = "does not hold"
        return cls(text, paper, figure, by_mean, if_significant, over, p, p)

    @classmethod
    def of_equivalence(
        cls,
        text: str,
        paper: str,
        differences: Sequence[float],
        *,
        over: str,
        margin: float,
        digits: int = 2,
        unit: str = "",
    ) -> "Claim":
        """A claim that two are alike: their mean difference is within ± `margin`, by two one-sided t-tests (TOST).

        Not to find a difference is no evidence that there is none; this test has to reject both that the difference is
        above the margin and that it is below its negative (Schuirmann 1987).

        >>> claim = Claim.of_equivalence("a and b are alike", "alike", [0.1, -0.1, 0.05], over="seeds", margin=1.0)
        >>> claim.ours, claim.verdict
        ('+0.02 ± 0.10 over 3 seeds, within ± 1.00, p = 0.0019', 'holds')
        """
        difference = Estimate.of(differences, digits=digits)
        if not difference.count:
            return cls(text, paper)
        figure = f"{_figure(difference, over, unit)}, within ± {margin:.{digits}f}"
        p = equivalence_test([value for value in differences if math.isfinite(value)], margin)
        if p is None:
            figure += ", no test"
        by_mean: Verdict = "does not hold"
        if abs(difference.mean) < margin:
            by_mean = "same direction"
        return cls(text, paper, figure, by_mean, "holds", over, p, p)

    @classmethod
    def of_count(cls, text: str, paper: str, cases: Sequence[bool]) -> "Claim":
        """How many of some cases go one way; a count has no test, and so no verdict.

        >>> claim = Claim.of_count("b is better in most cases", "3 of 4", [True, False, True])
        >>> claim.ours, claim.verdict
        ('in 2 of 3', 'count')
        """
        if not cases:
            return cls(text, paper)
        return cls(text, paper, f"in {sum(cases)} of {len(cases)}", "count")

    @classmethod
    def without_test(cls, text: str, paper: str, figure: str) -> "Claim":
        """A figure beside the paper's that nothing can be tested about."""
        return cls(text, paper, figure, "no test")

    def to_json(self) -> dict[str, Any]:
        """As plain data: what people read, and the numbers behind it."""
        return {
            "text": self.text,
            "paper": self.paper,
            "ours": self.ours,
            "verdict": self.verdict,
            "over": self.over,
            "p": self.p,
            "adjusted_p": self.adjusted_p,
        }


def judged(claims: Sequence[Claim]) -> list[Claim]:
    """The claims of an experiment with p-values corrected for their number, by Holm's method.

    Claims without a test do not count. It starts from each claim's own p-value, so that claims that were judged before
    are not corrected twice.

    >>> one, two = judged([Claim.of_gains(name, "+1", [0.8, 1.1, 0.9], over="seeds") for name in ("one", "two")])
    >>> round(one.p, 4), round(one.adjusted_p, 4), judged([one, two]) == [one, two]
    (0.0088, 0.0176, True)
    """
    adjusted = holm([claim.p for claim in claims])
    return [replace(claim, adjusted_p=p) for claim, p in zip(claims, adjusted, strict=True)]


def equivalence_test(differences: Sequence[float], margin: float) -> float | None:
    """The larger p-value of the one-sided t-tests for a mean above -margin and below margin; None without spread.

    >>> round(equivalence_test([0.1, -0.1, 0.05], 1.0), 4), equivalence_test([0.1], 1.0)
    (0.0019, None)
    """
    one_sided = []
    for distances in ([value + margin for value in differences], [margin - value for value in differences]):
        p = paired_t_test(distances)
        if p is None:
            return None
        is_inside = statistics.fmean(distances) > 0
        one_sided.append(p / 2 if is_inside else 1 - p / 2)
    return max(one_sided)


def differences(better: Mapping[int, float], worse: Mapping[int, float]) -> dict[int, float]:
    """What one has over the other, by seed, for the seeds that both have.

    >>> differences({1: 5.0, 0: 3.0}, {0: 1.0, 1: 1.0, 2: 1.0})
    {0: 2.0, 1: 4.0}
    """
    return {seed: better[seed] - worse[seed] for seed in sorted(better) if seed in worse}


def paired(better: Mapping[int, float], worse: Mapping[int, float]) -> list[float]:
    """The same without the seeds, in their order."""
    return list(differences(better, worse).values())


def by_seed_mean(gains: Mapping[Any, Mapping[Any, float]]) -> list[float]:
    """From gains by target and seed, the mean over targets of each seed that all targets have; over "seeds".

    For a claim about these very targets: what would other seeds give, on the same data? Targets without any run do not
    count.

    >>> by_seed_mean({"PoS": {0: 1.0, 1: 2.0, 2: 9.0}, "NER": {0: 3.0, 1: 4.0}, "chunking": {}})
    [2.0, 3.0]
    """
    by_target = [values for values in gains.values() if values]
    if not by_target:
        return []
    seeds = sorted(set.intersection(*(set(values) for values in by_target)))
    return [statistics.fmean(values[seed] for values in by_target) for seed in seeds]


def by_target_mean(gains: Mapping[Any, Mapping[Any, float]]) -> list[float]:
    """From gains by target and seed, the mean over seeds of each target; over "targets".

    For a claim that is meant to go beyond these targets: they are then a sample of such targets, and how much they
    differ among each other is what the test has to know (a random effect). Seeds of one target tell nothing of others.

    >>> by_target_mean({"PoS": {0: 1.0, 1: 2.0}, "NER": {0: 3.0, 1: 4.0}, "chunking": {}})
    [1.5, 3.5]
    """
    return [statistics.fmean(values.values()) for values in gains.values() if values]


def p_text(p: float) -> str:
    """A p-value for people.

    >>> p_text(0.03456), p_text(0.0496), p_text(5.9e-11), p_text(1.0)
    ('p = 0.035', 'p = 0.0496', 'p < 0.0001', 'p = 1')
    """
    if p < SMALLEST_P:
        return f"p < {SMALLEST_P:.4f}"
    text = f"{p:.2g}"
    if float(text) == SIGNIFICANT:  # on which side of it?
        text = f"{p:.3g}"
    return f"p = {text}"


def _figure(estimate: Estimate, over: str, unit: str) -> str:
    text = estimate.text(signed=True, unit=unit)
    if estimate.count == 1:
        return f"{text}, once"
    return f"{text} over {estimate.count} {over}"
