"""A mean over runs, and how sure it is."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

DASH = "–"
"""In place of a mean that there is none of."""


class EstimateFields(TypedDict):
    """An estimate as JSON holds it; `deviation` and `standard_error` are null where one value alone has none."""

    mean: float
    deviation: float | None
    standard_error: float | None
    count: int


@dataclass(frozen=True)
class Estimate:
    """Mean and sample standard deviation of values over seeds or folds.

    One value alone has no deviation, and none at all no mean (nan).

    - `overlap`: n_test / n_train where the values come from cross-validation. Training sets of different folds overlap,
      so the values are not independent; `standard_error` is then the corrected one of Nadeau and Bengio (2003);
    - `digits`: decimals in `str`.

    >>> Estimate.of([1.0, 3.0]).standard_error, str(Estimate.of([0.5, 0.7])), str(Estimate.of([]))
    (1.0, '0.600 ± 0.141', '–')
    """

    mean: float
    deviation: float | None
    count: int
    overlap: float = field(default=0.0, kw_only=True)
    digits: int = field(default=3, kw_only=True, compare=False, repr=False)

    @classmethod
    def of(cls, values: Iterable[float | None], *, overlap: float = 0.0, digits: int = 3) -> "Estimate":
        """Of the values that are defined: None and nan do not count."""
        defined = [value for value in values if value is not None and math.isfinite(value)]
        mean = statistics.fmean(defined) if defined else math.nan
        deviation = statistics.stdev(defined) if len(defined) > 1 else None
        return cls(mean, deviation, len(defined), overlap=overlap, digits=digits)

    @classmethod
    def of_any(cls, values: Iterable[float | None], *, digits: int = 3) -> "Estimate | None":
        """The same, or None where no value is defined."""
        estimate = cls.of(values, digits=digits)
        return estimate if estimate.count else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean: deviation * sqrt(1 / n + overlap)."""
        if self.deviation is None:
            return None
        return self.deviation * math.sqrt(1.0 + self.count * self.overlap) / math.sqrt(self.count)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the mean (Student's t); the whole line for one value alone."""
        if self.standard_error is None:
            return -math.inf, math.inf
        from scipy.stats import t

        margin = float(t.ppf(0.5 + level / 2.0, self.count - 1)) * self.standard_error
        return self.mean - margin, self.mean + margin

    def text(
        self, error: Literal["deviation", "standard_error"] = "deviation", *, signed: bool = False, unit: str = ""
    ) -> str:
        """For people: the mean, and after ± its deviation or its standard error.

        >>> Estimate(0.5, 0.02, 4).text("standard_error"), Estimate(0.5, None, 1).text(signed=True)
        ('0.500 ± 0.010', '+0.500')
        >>> Estimate(12345.6, 7.0, 2).text()
        '12,346 ± 7.000'
        """
        if not self.count:
            return DASH
        spread = self.deviation if error == "deviation" else self.standard_error
        mean = _number(self.mean, self.digits, "+" if signed else "") + unit
        if spread is None:
            return mean
        return f"{mean} ± {_number(spread, self.digits)}"

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> EstimateFields:
        """As plain data; see `from_json`."""
        return {
            "mean": self.mean,
            "deviation": self.deviation,
            "standard_error": self.standard_error,
            "count": self.count,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, float | None], *, overlap: float = 0.0) -> "Estimate":
        """Read what `to_json` wrote, or version 0.1, which left out either the deviation or the standard error."""
        count = int(data["count"] or 0)
        mean = data["mean"]
        deviation = data.get("deviation")
        standard_error = data.get("standard_error", data.get("error"))
        if deviation is None and standard_error is not None:
            deviation = standard_error * math.sqrt(count) / math.sqrt(1.0 + count * overlap)
        return cls(
            math.nan if mean is None else mean, deviation, count, overlap=overlap, digits=int(data.get("digits") or 3)
        )


def _number(value: float, digits: int, sign: str = "") -> str:
    """From a thousand on, decimals say nothing."""
    if abs(value) >= 1000:
        return f"{value:{sign},.0f}"
    return f"{value:{sign}.{digits}f}"


def estimate_json(estimate: Estimate | None) -> EstimateFields | None:
    """An estimate as plain data, where there is one."""
    if estimate is None:
        return None
    return estimate.to_json()


def estimates_json(estimates: Mapping[Any, Estimate]) -> dict[str, EstimateFields]:
    """Estimates by name or number as plain data."""
    return {str(name): estimate.to_json() for name, estimate in estimates.items()}
