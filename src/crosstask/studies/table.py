"""From runs to a table: scores over seeds, gains over the baseline on the same seeds, and how sure they are."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from crosstask.data.metrics import higher
from crosstask.report.comparison_view import Spread
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.studies.compare_runs import Cell
from crosstask.studies.hyperparameters import Trial, Tried, choose, settings_text
from crosstask.studies.method import Method
from crosstask.studies.significance import holm, paired_t_test, signed_rank_test
from crosstask.studies.study import Estimate

SINGLE = "single"
COST_REFERENCES = ("joint", "normalized-joint")
"""Plain joint training: the first of these among the methods is what cost is a multiple of."""
Part = Literal["dev", "test"]
Verdict = Literal["hurts", "may hurt", "helps", "may help", "unclear"]


@dataclass(frozen=True)
class Line:
    """A method on a target, over all seeds.

    - `score`, `dev`: of the measured part, and of dev, which may choose;
    - `gain`, `wins`, `pairs`, `p_t`, `p_rank`: against the baseline on the same seeds, positive where it is better
      whichever way the metric points; `p_t_holm` and `p_rank_holm` are corrected over the whole table;
    - `over_single`, `verdict`: against training on the target alone, of methods that use sources;
    - `seconds`, `cost`: median time of a run, and as a multiple of plain joint training;
    - `settings`: what dev chose, where some were searched;
    - `refused`: why it did not run, or not with every seed.
    """

    method: str
    target: str
    score: Spread | None
    dev: Spread | None
    gain: Spread | None = None
    wins: int = 0
    pairs: int = 0
    p_t: float | None = None
    p_rank: float | None = None
    p_t_holm: float | None = None
    p_rank_holm: float | None = None
    over_single: Spread | None = None
    verdict: Verdict | None = None
    seconds: float | None = None
    cost: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_best: bool = False
    is_baseline: bool = False
    refused: str | None = None

    @property
    def has_negative_transfer(self) -> bool:
        """Whether the sources did harm, for sure or perhaps."""
        return self.verdict in ("hurts", "may hurt")


@dataclass(frozen=True, eq=False)
class Comparison:
    """The table with all that it was made of.

    - `metrics`, `parts`: by target, what is measured and on which part: test where there is one;
    - `cells`: the rows of the runs that the table is made of;
    - `tried`: every trial with its dev scores, where settings were searched.
    """

    lines: tuple[Line, ...]
    baseline: str
    metrics: Mapping[str, str]
    parts: Mapping[str, Part]
    seeds: tuple[int, ...]
    methods: Mapping[str, Method]
    settings: Mapping[str, Any]
    cells: tuple[Row, ...]
    tried: tuple[Tried, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """In their order."""
        return tuple(self.metrics)

    @property
    def is_against_single(self) -> bool:
        """Whether the baseline is the target alone."""
        return self.methods[self.baseline].is_single

    def of_target(self, target: str) -> list[Line]:
        """The lines of one target."""
        return [line for line in self.lines if line.target == target]

    def line(self, method: str, target: str | None = None) -> Line:
        """A method's line; of the first target when left out."""
        wanted = target or self.targets[0]
        return next(line for line in self.lines if (line.method, line.target) == (method, wanted))

    def notes(self) -> list[str]:
        """What a reader has to know."""
        found = []
        count = len(self.seeds)
        if count < 2:
            found.append("One seed tells nothing about chance: no deviation and no test. Use --seeds 5 or more.")
        else:
            found.append(
                f"± standard deviation over {count} seeds. Paired tests against {self.baseline}, corrected by Holm's "
                f"method over the whole table; with {count} seeds the signed-rank test cannot go below "
                f"{2.0 ** (1 - count):.2g}."
            )
            found.append(
                "sources: they help or hurt where the 95% interval of the gain over single leaves zero out; they may "
                "where only the mean points that way."
            )
        found += self._search_notes()
        on_dev = [target for target, part in self.parts.items() if part == "dev"]
        if on_dev:
            chosen = "the best look of every run" + (" and the settings" if self.tried else "")
            found.append(f"No test set: {', '.join(on_dev)} measured on dev, which also chose {chosen}.")
        return found

    def _search_notes(self) -> list[str]:
        if not self.tried:
            return []
        counts = {
            name: len({settings_text(t.settings) for t in self.tried if t.method == name}) for name in self.methods
        }
        chosen = [
            f"{line.method} on {line.target} {settings_text(line.settings)}" for line in self.lines if line.settings
        ]
        found = [f"Chosen by mean dev scores: {'; '.join(chosen)}."]
        if len(set(counts.values())) == 1:
            return [f"{found[0][:-1]} ({counts[self.baseline]} trials for each method)."]
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        return [*found, f"The numbers of trials differ, which favours those with more: {listed}."]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return finite(
            {
                "baseline": self.baseline,
                "metrics": dict(self.metrics),
                "parts": dict(self.parts),
                "seeds": list(self.seeds),
                "methods": {name: method.to_json() for name, method in self.methods.items()},
                "settings": dict(self.settings),
                "lines": [asdict(line) for line in self.lines],
                "search": [asdict(tried) for tried in self.tried],
                "notes": self.notes(),
                "cells": list(self.cells),
            }
        )


def choose_trials(
    rows: Mapping[Cell, Row], trials: Mapping[str, Mapping[str, Trial]], metrics: Mapping[str, str]
) -> tuple[dict[Cell, Row], tuple[Tried, ...]]:
    """The rows of the trials that dev chose for each method and target, and all that was tried."""
    chosen: dict[Cell, Row] = {}
    tried: list[Tried] = []
    for target, metric in metrics.items():
        for method, own in trials.items():
            of_trial: dict[str, dict[Cell, Row]] = {name: {} for name in own}
            for cell, row in rows.items():
                if (cell.target, cell.method) == (target, method):
                    of_trial[cell.trial][cell] = row
            dev = {name: _scores(found, method, "dev", metric) for name, found in of_trial.items()}
            best = choose(dev, higher(metric)) or next(iter(own))  # with no score at all the reason is to be seen
            chosen |= of_trial[best]
            tried += [
                Tried(method, target, trial.settings, Spread.of(list(dev[name].values())), name == best,
                      next((row["refused"] for row in of_trial[name].values() if "refused" in row), None))
                for name, trial in own.items()
            ]  # fmt: skip
    return {cell: row for cell, row in rows.items() if cell in chosen}, tuple(tried)


def make_lines(
    rows: Mapping[Cell, Row],
    methods: Mapping[str, Method],
    metrics: Mapping[str, str],
    baseline: str,
    tried: Sequence[Tried] = (),
) -> tuple[tuple[Line, ...], dict[str, Part]]:
    """The lines of all methods on all targets, and which part of each target is measured."""
    settings = {(trial.method, trial.target): trial.settings for trial in tried if trial.is_chosen}
    lines: list[Line] = []
    parts: dict[str, Part] = {}
    for target, metric in metrics.items():
        of_target = {cell: row for cell, row in rows.items() if cell.target == target}
        part: Part = "test" if any("test" in row.get("scores", {}) for row in of_target.values()) else "dev"
        parts[target] = part
        lines += _lines_of_target(of_target, methods, target, metric, part, baseline)
    corrected = zip(holm([line.p_t for line in lines]), holm([line.p_rank for line in lines]), strict=True)
    return tuple(
        replace(line, p_t_holm=p_t, p_rank_holm=p_rank, settings=settings.get((line.method, line.target), {}))
        for line, (p_t, p_rank) in zip(lines, corrected, strict=True)
    ), parts


def _lines_of_target(
    rows: Mapping[Cell, Row], methods: Mapping[str, Method], target: str, metric: str, part: Part, baseline: str
) -> list[Line]:
    sign = 1.0 if higher(metric) else -1.0
    scores = {name: _scores(rows, name, part, metric) for name in methods}
    means = {name: sign * statistics.fmean(found.values()) for name, found in scores.items() if found}
    times = {name: _times(rows, name) for name in methods}
    alone = next((name for name, m in methods.items() if m.is_single), None)
    plain = {m.paradigm: name for name, m in methods.items() if m.is_plain}
    reference = next((plain[paradigm] for paradigm in COST_REFERENCES if paradigm in plain), None)
    lines = []
    for name, method in methods.items():
        gains = _gains(scores[name], scores[baseline], sign) if name != baseline else []
        from_alone = _gains(scores[name], scores[alone], sign) if alone is not None and method.uses_sources else []
        lines.append(
            Line(
                method=name,
                target=target,
                score=Spread.of(list(scores[name].values())),
                dev=Spread.of(list(_scores(rows, name, "dev", metric).values())),
                gain=Spread.of(gains),
                wins=sum(gain > 0 for gain in gains),
                pairs=len(gains),
                p_t=paired_t_test(gains),
                p_rank=signed_rank_test(gains),
                over_single=Spread.of(from_alone),
                verdict=verdict(from_alone),
                seconds=statistics.median(times[name].values()) if times[name] else None,
                cost=_ratio(times[name], times[reference]) if reference is not None else None,
                is_best=name in means and means[name] == max(means.values()),
                is_baseline=name == baseline,
                refused=next(
                    (row["refused"] for c, row in rows.items() if c.method == name and "refused" in row), None
                ),
            )
        )
    return lines


def verdict(gains: Sequence[float]) -> Verdict | None:
    """What sources did to a target, by the 95% interval of the mean gain, or failing that by its sign.

    >>> verdict([-0.1, -0.11, -0.12]), verdict([-0.3, 0.1]), verdict([0.2]), verdict([])
    ('hurts', 'may hurt', 'may help', None)
    """
    if not gains:
        return None
    found = Estimate.of(gains)
    low, high = found.interval()
    if low > 0 or high < 0:
        return "helps" if low > 0 else "hurts"
    return "unclear" if found.mean == 0 else "may help" if found.mean > 0 else "may hurt"


def _scores(rows: Mapping[Cell, Row], method: str, part: Part, metric: str) -> dict[int, float]:
    """By seed; what is missing or no number is left out."""
    found = {
        cell.seed: row.get("scores", {}).get(part, {}).get(metric)
        for cell, row in rows.items()
        if cell.method == method
    }
    return {seed: value for seed, value in found.items() if value is not None}


def _times(rows: Mapping[Cell, Row], method: str) -> dict[int, float]:
    found = {cell.seed: row.get("seconds") for cell, row in rows.items() if cell.method == method}
    return {seed: seconds for seed, seconds in found.items() if seconds is not None}


def _gains(scores: Mapping[int, float], others: Mapping[int, float], sign: float) -> list[float]:
    """Differences over the seeds that both have."""
    return [sign * (value - others[seed]) for seed, value in scores.items() if seed in others]


def _ratio(times: Mapping[int, float], others: Mapping[int, float]) -> float | None:
    """The median over seeds, for the first run of all also waits for things that later ones find ready."""
    ratios = [value / others[seed] for seed, value in times.items() if others.get(seed)]
    return statistics.median(ratios) if ratios else None
