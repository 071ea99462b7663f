"""From runs to a table: scores over seeds, gains over the baseline on the same seeds, and how sure they are."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from crosstask.data.metrics import higher
from crosstask.errors import unknown
from crosstask.methods import papers_of
from crosstask.papers import POPULATION_BASED_TRAINING, SCALARIZATION_AT_SCALE
from crosstask.runs.estimate import Estimate, estimate_json
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.studies import formats
from crosstask.studies.grid import RunKey
from crosstask.studies.hyperparameters import Trials, Tried, choose, counts_text, settings_text, trial_counts
from crosstask.studies.method import Method, Section
from crosstask.studies.options import sign_of
from crosstask.studies.significance import holm, paired_t_test, signed_rank_test
from crosstask.studies.tuned_weights import UPDATES_OF_TRIAL

SINGLE = "single"
COST_REFERENCES = ("joint", "normalized-joint")
"""Plain joint training: the first of these among the methods is what cost is a multiple of."""
Split = Literal["dev", "test"]
LEVEL = 0.05
"""Of a corrected p-value, below which a difference is more than chance."""
Verdict = Literal["hurts", "may hurt", "helps", "may help", "unclear"]


@dataclass(frozen=True)
class Line:
    """A method on a target, over all seeds.

    - `score`, `dev`: on the measured split, and on dev, which may choose;
    - `gain`, `wins`, `pairs`, `p_t`, `p_rank`: against the baseline on the same seeds, positive where it is better
      whichever way the metric points; `p_t_holm` and `p_rank_holm` are corrected over the full table;
    - `over_alone`, `p_alone_holm`, `verdict`: of methods that use sources, against the best of those that train the
      target alone (`Comparison.alone`), with the p-value of the same test, corrected likewise;
    - `seconds`, `cost`: median time of a run, and as a multiple of plain joint training;
    - `settings`: what dev chose, where some were searched;
    - `refused`: why it did not run, or not with every seed.
    """

    method: str
    target: str
    score: Estimate | None
    dev: Estimate | None
    gain: Estimate | None = None
    wins: int = 0
    pairs: int = 0
    p_t: float | None = None
    p_rank: float | None = None
    p_t_holm: float | None = None
    p_rank_holm: float | None = None
    over_alone: Estimate | None = None
    p_alone: float | None = None
    p_alone_holm: float | None = None
    verdict: Verdict | None = None
    seconds: float | None = None
    cost: float | None = None
    settings: Section = field(default_factory=dict)
    is_best: bool = False
    is_baseline: bool = False
    refused: str | None = None

    @property
    def over_single(self) -> Estimate | None:
        """The former name of `over_alone`."""
        return self.over_alone

    @property
    def has_negative_transfer(self) -> bool:
        """Whether the sources did harm, for sure or perhaps."""
        return self.verdict in ("hurts", "may hurt")

    def to_json(self) -> Row:
        """As plain data."""
        data = dict(vars(self))
        for name in ("score", "dev", "gain", "over_alone"):
            data[name] = estimate_json(data[name])
        return data


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The table with all that it was made of.

    - `metrics`, `parts`: by target, what is measured and on which split: test where there is one;
    - `cells`: the rows of the runs that the table is made of;
    - `tried`: every trial with its dev scores, where settings were searched;
    - `left_out`: training examples that no run had, since a target measures on their inputs;
    - `alone`: by target, of the methods that train it alone the one with the best mean dev score: what sources are
      judged by;
    - `majority`: by target, the score of always answering what is most common in training.
    """

    lines: tuple[Line, ...]
    baseline: str
    metrics: Mapping[str, str]
    parts: Mapping[str, Split]
    seeds: tuple[int, ...]
    methods: Mapping[str, Method]
    settings: Section
    cells: tuple[Row, ...]
    tried: tuple[Tried, ...] = ()
    left_out: tuple[str, ...] = ()
    alone: Mapping[str, str] = field(default_factory=dict)
    majority: Mapping[str, Estimate] = field(default_factory=dict)

    def __repr__(self) -> str:
        targets = ", ".join(self.targets)
        return f"Comparison({targets}: {len(self.methods)} methods, {len(self.seeds)} seeds, against {self.baseline})"

    def __str__(self) -> str:
        """The table of each target, in Markdown."""
        return formats.to_markdown(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return formats.to_html(self)

    @property
    def targets(self) -> tuple[str, ...]:
        """In their order."""
        return tuple(self.metrics)

    def of_target(self, target: str) -> list[Line]:
        """The lines of one target."""
        return [line for line in self.lines if line.target == target]

    def line(self, method: str, target: str | None = None) -> Line:
        """A method's line; of the first target when left out."""
        for line in self.of_target(target or self.targets[0]):
            if line.method == method:
                return line
        raise unknown("method", method, self.methods)

    def notes(self) -> list[str]:
        """What a reader has to know."""
        notes: list[str] = []
        num_seeds = len(self.seeds)
        if num_seeds < 2:
            notes.append("One seed tells nothing about chance: no deviation and no test. Use --seeds 5 or more.")
        else:
            notes.append(
                f"± standard deviation over {num_seeds} seeds. Paired tests against {self.baseline}, corrected by "
                f"Holm's method over the whole table; with {num_seeds} seeds the signed-rank test cannot go below "
                f"{2.0 ** (1 - num_seeds):.2g}."
            )
            notes += self._notes_on_sources()
        notes += self._notes_on_length()
        if self.tried:
            notes += self._search_notes()
        # The measured cost has the search in it.
        for name, method in self.methods.items():
            if method.tune:
                rounds = ""
                if method.rounds > 1:
                    rounds = f" in {method.rounds} rounds, between which the worst copied the best with other weights"
                notes.append(
                    f"{name}: the best of {method.tune} sets of fixed weights by the target's loss on dev (or, without "
                    f"one, on parts of its labels in turn), each tried with 1/{UPDATES_OF_TRIAL} of the updates"
                    f"{rounds}. The search comes on top of the budget that all methods share."
                )
        on_dev = [target for target, split in self.parts.items() if split == "dev"]
        if on_dev:
            selected = "the best evaluation of every run"
            if self.tried:
                selected += " and the settings"
            notes.append(f"No test set: {', '.join(on_dev)} measured on dev, which also chose {selected}.")
        return [*notes, *self.left_out]

    def _notes_on_sources(self) -> list[str]:
        """What the verdict is about."""
        if not any(line.verdict for line in self.lines):
            return []
        references = list(dict.fromkeys(self.alone.values()))
        if len(references) == 1:
            words = references[0]
        else:
            words = ", ".join(f"{method} for {target}" for target, method in self.alone.items())
        return [
            f"sources: they help or hurt where the difference from the target alone, as trained by what dev prefers "
            f"({words}), has a corrected p below {LEVEL}; they may where only the mean points that way."
        ]

    def _notes_on_length(self) -> list[str]:
        """Methods that were perhaps trained too short, most of whose runs were still getting better."""
        rising: dict[str, list[bool]] = {}
        for row in self.cells:
            if "scores" in row:
                rising.setdefault(row["method"], []).append(bool(row.get("still_rising")))
        methods = [method for method, flags in rising.items() if 2 * sum(flags) > len(flags)]
        if not methods:
            return []
        return [
            "Perhaps trained too short: the dev score was still rising at the end in most runs of "
            f"{', '.join(methods)}. More updates or a larger learning rate may change the order; "
            "--search learning_rate=... tries several."
        ]

    def _search_notes(self) -> list[str]:
        """What dev chose, and whether all methods had the same number of trials."""
        # A trial was tried on every target, and counts once.
        trials: dict[str, set[str]] = {}
        for tried in self.tried:
            trials.setdefault(tried.method, set()).add(settings_text(tried.settings))
        selected: list[str] = []
        for line in self.lines:
            if line.settings:
                selected.append(f"{line.method} on {line.target} {settings_text(line.settings)}")
        note = f"Chosen by mean dev scores: {'; '.join(selected)}"
        counts = trial_counts(trials)
        if len(set(counts.values())) == 1:
            return [f"{note} ({counts[self.baseline]} trials for each method)."]
        return [f"{note}.", f"The numbers of trials differ, which favours those with more: {counts_text(counts)}."]

    def to_json(self) -> Row:
        """As plain data."""
        # The page is made from the file alone, so the file says what the registries know.
        methods: dict[str, Row] = {}
        schedule = self.settings.get("training", {}).get("schedule")
        for name, method in self.methods.items():
            papers = papers_of(method.paradigm, method.weighting, method.transfer, schedule)
            if method.tune:
                papers = (*papers, SCALARIZATION_AT_SCALE)
            if method.rounds > 1:
                papers = (*papers, POPULATION_BASED_TRAINING)
            citations = {"uses_sources": method.uses_sources, "papers": [paper.key for paper in papers]}
            methods[name] = {**method.to_json(), **citations}
        return finite(
            {
                "baseline": self.baseline,
                "metrics": dict(self.metrics),
                "greater_is_better": {metric: higher(metric) for metric in self.metrics.values()},
                "parts": dict(self.parts),
                "seeds": list(self.seeds),
                "methods": methods,
                "settings": dict(self.settings),
                "lines": [line.to_json() for line in self.lines],
                "search": [tried.to_json() for tried in self.tried],
                "notes": self.notes(),
                "alone": dict(self.alone),
                "majority": {target: estimate_json(estimate) for target, estimate in self.majority.items()},
                "cells": list(self.cells),
            }
        )


@dataclass(frozen=True)
class Standards:
    """What a method is measured against: the baseline, and the best that trains the target alone, if there is one."""

    baseline: str
    alone: str | None


@dataclass(frozen=True)
class Table:
    """What rows of runs say; see `Comparison`."""

    lines: tuple[Line, ...]
    parts: Mapping[str, Split]
    alone: Mapping[str, str]
    majority: Mapping[str, Estimate]


class Results:
    """Rows of one target by the name of a group, and then by seed. A group is a method, or a trial of one method."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.sign = sign_of(metric)
        self.rows: dict[str, dict[int, Row]] = {}

    def add(self, group: str, seed: int, row: Row) -> None:
        """Add a row."""
        self.rows.setdefault(group, {})[seed] = row

    @property
    def split(self) -> Split:
        """What is measured: test where there is one."""
        for rows in self.rows.values():
            for row in rows.values():
                if "test" in row.get("scores", {}):
                    return "test"
        return "dev"

    def scores(self, group: str, split: Split) -> dict[int, float]:
        """By seed; what is missing or not defined is left out."""
        scores: dict[int, float] = {}
        for seed, row in self.rows.get(group, {}).items():
            value = row.get("scores", {}).get(split, {}).get(self.metric)
            if value is not None:
                scores[seed] = value
        return scores

    @property
    def majority(self) -> dict[int, float]:
        """Score of always answering what is most common in training, by seed."""
        scores: dict[int, float] = {}
        for rows in self.rows.values():
            for seed, row in rows.items():
                value = (row.get("majority") or {}).get(self.split, {}).get(self.metric)
                if value is not None:
                    scores[seed] = value
        return scores

    def seconds(self, group: str) -> dict[int, float]:
        """Time of each run by seed, where it is known."""
        seconds: dict[int, float] = {}
        for seed, row in self.rows.get(group, {}).items():
            if row.get("seconds") is not None:
                seconds[seed] = row["seconds"]
        return seconds

    def refusal(self, group: str) -> str | None:
        """Why it did not run, if so."""
        for row in self.rows.get(group, {}).values():
            if "refused" in row:
                return row["refused"]
        return None

    def gains(self, group: str, reference: str | None) -> list[float]:
        """Differences over the seeds that both have, positive where the group is better."""
        if reference is None:
            return []
        scores, others = self.scores(group, self.split), self.scores(reference, self.split)
        gains: list[float] = []
        for seed, score in scores.items():
            if seed in others:
                gains.append(self.sign * (score - others[seed]))
        return gains

    def cost(self, group: str, reference: str | None) -> float | None:
        """Time as a multiple of the reference's, the median over seeds."""
        if reference is None:
            return None
        seconds, others = self.seconds(group), self.seconds(reference)
        # Not a ratio of sums: the first run of all also waits for things that later ones find ready.
        ratios: list[float] = []
        for seed, value in seconds.items():
            if others.get(seed):
                ratios.append(value / others[seed])
        return _median(ratios)


def choose_trials(
    rows: Mapping[RunKey, Row], trials: Trials, metrics: Mapping[str, str]
) -> tuple[dict[RunKey, Row], tuple[Tried, ...]]:
    """The rows of the trials that dev chose for each method and target, and all that was tried."""
    # 1. Rows by target and method, each with its trials as groups.
    results: dict[tuple[str, str], Results] = {}
    for target, metric in metrics.items():
        for method in trials:
            results[target, method] = Results(metric)
    for key, row in rows.items():
        results[key["target"], key["method"]].add(key["trial"], key["seed"], row)
    # 2. The best trial of each.
    best_trials: dict[tuple[str, str], str] = {}
    tried: list[Tried] = []
    for (target, method), group in results.items():
        dev = {name: group.scores(name, "dev") for name in trials[method]}
        # Where no trial has a score, the first one is there to say why.
        best = choose(dev, higher(group.metric)) or next(iter(trials[method]))
        best_trials[target, method] = best
        for name, trial in trials[method].items():
            estimate = Estimate.of_any(dev[name].values())
            tried.append(Tried(method, target, trial.settings, estimate, name == best, group.refusal(name)))
    best_rows = {key: row for key, row in rows.items() if key["trial"] == best_trials[key["target"], key["method"]]}
    return best_rows, tuple(tried)


def make_lines(
    rows: Mapping[RunKey, Row],
    methods: Mapping[str, Method],
    metrics: Mapping[str, str],
    baseline: str,
    tried: Sequence[Tried] = (),
) -> Table:
    """The lines of all methods on all targets, and what they are measured by."""
    results = {target: Results(metric) for target, metric in metrics.items()}
    for key, row in rows.items():
        results[key["target"]].add(key["method"], key["seed"], row)
    lines: list[Line] = []
    splits: dict[str, Split] = {}
    alone: dict[str, str] = {}
    majority: dict[str, Estimate] = {}
    for target, of_target in results.items():
        splits[target] = of_target.split
        reference = _best_alone(of_target, methods)
        if reference is not None:
            alone[target] = reference
        score = Estimate.of_any(of_target.majority.values())
        if score is not None:
            majority[target] = score
        lines += _lines_of_target(of_target, methods, target, Standards(baseline, reference))
    # Corrected over the full table, whatever the target.
    p_t_values = holm([line.p_t for line in lines])
    p_rank_values = holm([line.p_rank for line in lines])
    p_alone_values = holm([line.p_alone for line in lines])
    settings: dict[tuple[str, str], Section] = {}
    for trial in tried:
        if trial.is_chosen:
            settings[trial.method, trial.target] = trial.settings
    for i, line in enumerate(lines):
        # One test has one p: where the baseline trains the target alone, it is that of the gain.
        p_alone = p_t_values[i] if alone.get(line.target) == baseline else p_alone_values[i]
        lines[i] = replace(
            line,
            p_t_holm=p_t_values[i],
            p_rank_holm=p_rank_values[i],
            p_alone_holm=p_alone if line.over_alone is not None else None,
            verdict=verdict(line.over_alone, p_alone),
            settings=settings.get((line.method, line.target), {}),
        )
    return Table(tuple(lines), splits, alone, majority)


def _best_alone(results: Results, methods: Mapping[str, Method]) -> str | None:
    """Of the methods that train the target alone, the one with the best mean dev score; the first one without such."""
    best, best_score = None, -math.inf
    for name, method in methods.items():
        if method.uses_sources or not results.scores(name, results.split):
            continue
        dev = Estimate.of_any(results.scores(name, "dev").values())
        score = results.sign * dev.mean if dev is not None else -math.inf
        if best is None or score > best_score:
            best, best_score = name, score
    return best


def _lines_of_target(results: Results, methods: Mapping[str, Method], target: str, standards: Standards) -> list[Line]:
    """The lines of one target, not corrected yet."""
    cost_reference = None  # cost is measured against plain joint training
    for paradigm in reversed(COST_REFERENCES):
        for name, method in methods.items():
            if method.is_plain and method.paradigm == paradigm:
                cost_reference = name
    lines: list[Line] = []
    for name, method in methods.items():
        gains: list[float] = []
        over_alone: list[float] = []
        if name != standards.baseline:
            gains = results.gains(name, standards.baseline)
        if method.uses_sources:
            over_alone = results.gains(name, standards.alone)
        line = Line(
            method=name,
            target=target,
            score=Estimate.of_any(results.scores(name, results.split).values()),
            dev=Estimate.of_any(results.scores(name, "dev").values()),
            gain=Estimate.of_any(gains),
            wins=sum(gain > 0 for gain in gains),
            pairs=len(gains),
            p_t=paired_t_test(gains),
            p_rank=signed_rank_test(gains),
            over_alone=Estimate.of_any(over_alone),
            p_alone=paired_t_test(over_alone),
            seconds=_median(results.seconds(name).values()),
            cost=results.cost(name, cost_reference),
            is_baseline=name == standards.baseline,
            refused=results.refusal(name),
        )
        lines.append(line)
    # The best mean is marked, on every line that has it.
    means: dict[int, float] = {}
    for i, line in enumerate(lines):
        if line.score is not None:
            means[i] = results.sign * line.score.mean
    for i, mean in means.items():
        if mean == max(means.values()):
            lines[i] = replace(lines[i], is_best=True)
    return lines


def _median(values: Collection[float]) -> float | None:
    return statistics.median(values) if values else None


def verdict(gain: Estimate | None, p_value: float | None) -> Verdict | None:
    """What sources did to a target, by the corrected p-value of the gain, or failing that by its sign.

    >>> verdict(Estimate.of([-0.1, -0.11]), 0.02), verdict(Estimate.of([-0.3, 0.1]), 0.6)
    ('hurts', 'may hurt')
    """
    if gain is None:
        return None
    if gain.mean == 0:
        return "unclear"
    is_sure = p_value is not None and p_value < LEVEL
    if gain.mean > 0:
        return "helps" if is_sure else "may help"
    return "hurts" if is_sure else "may hurt"
